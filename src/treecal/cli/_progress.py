"""Progress bars: on standard error, and only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from treecal.cli._signals import interrupts

if TYPE_CHECKING:
    from rich.progress import Task

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
def progress(what: str, *, total: float | None = None, show: bool = True) -> Iterator[Done]:
    """Show a bar with count and rate, and give the function that moves it.

    Examples
    --------
    >>> with progress("rounds") as done:
    ...     for t in range(10):
    ...         done(t + 1, 10)
    """
    with bars(MofNCompleteColumn(), _Rate(), show=show) as bar:
        task = bar.add_task(what, total=total)

        def done(count: float, total: float | None = None) -> None:
            interrupts.check()
            bar.update(task, completed=count, total=total)

        yield done
