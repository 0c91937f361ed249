"""Progress on standard error: bars where that is a terminal, and else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from treecal.cli._signals import interrupts
from treecal.cli._terminal import say

if TYPE_CHECKING:
    from rich.progress import Task

_MOST = 600.0  # seconds between two lines

Done = Callable[..., None]
"""Sets how much is done, and, given a second number, how much there is."""


class _Rate(ProgressColumn):
    """How many per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s")


def bars(*columns: ProgressColumn, show: bool = True) -> Progress:
    """Return bars with a description, these columns and the remaining time."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not (show and sys.stderr.isatty()),
        transient=True,
        redirect_stdout=False,  # results are not printed through the bar
        redirect_stderr=False,
    )


@contextmanager
def progress(what: str, *, total: float | None = None, show: bool = True, patience: float = 20.0) -> Iterator[Done]:
    """Show a bar with count and rate, and give the function that moves it.

    Where standard error is no terminal, there are lines in place of a bar: the first after so many seconds, and the
    others more and more seldom.

    Examples
    --------
    >>> with progress("rounds") as done:
    ...     for t in range(10):
    ...         done(t + 1, 10)
    """
    lines = _Lines(what, total, patience)
    with bars(MofNCompleteColumn(), _Rate(), show=show) as bar:
        task = bar.add_task(what, total=total)

        def done(count: float, total: float | None = None) -> None:
            interrupts.check()
            bar.update(task, completed=count, total=total)
            if not sys.stderr.isatty():
                lines.tell(count, total)

        yield done


class _Lines:
    """Says how much is done after some seconds, then after twice as long, and in the end once in ten minutes."""

    def __init__(self, what: str, total: float | None, patience: float) -> None:
        self._what = what
        self._total = total
        self._began = time.monotonic()
        self._next = patience

    def tell(self, count: float, total: float | None) -> None:
        passed = time.monotonic() - self._began
        if passed < self._next:
            return
        self._next = min(2 * passed, passed + _MOST)
        self._total = total or self._total
        known = "" if self._total is None else f" of {self._total:,.0f}"
        say(f"{self._what}: {count:,.0f}{known} after {passed:.0f} s.")
