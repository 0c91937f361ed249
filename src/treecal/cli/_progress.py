"""Progress bars: on standard error, and only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Task


Done = Callable[..., None]
"""Moves a bar to a count, and sets the total if a second number is given."""


class Rate(ProgressColumn):
    """How many a second."""

    def render(self, task: Task) -> Text:
        """Return the speed, once there is one."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s")


@contextmanager
def progress(what: str, *, total: float | None = None, show: bool = True) -> Iterator[Done]:
    """Show a bar with count, rate and remaining time, and yield the function that moves it.

    Examples
    --------
    >>> with progress("rounds") as done:
    ...     for t in range(10):
    ...         done(t + 1, 10)
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    bar = Progress(
        *columns,
        console=Console(stderr=True),
        disable=not (show and sys.stderr.isatty()),
        transient=True,
        redirect_stdout=False,  # results go where they are sent, and not through the bar
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda count, total=None: bar.update(task, completed=count, total=total)
