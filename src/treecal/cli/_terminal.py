"""What every command shares: exit codes, messages, tables, JSON, names that are safe to print, and signals."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from enum import IntEnum
from types import FrameType
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from treecal._typing import Array
from treecal.geometry import ConvexSet, Simplex

T = TypeVar("T")


class Exit(IntEnum):
    """How a command ended."""

    FINE = 0
    FLAWED = 1
    """It finished, but invalid rows were left out, or a check failed."""
    REFUSED = 2
    """The input or the options are invalid; a message on standard error says how."""
    INTERRUPTED = 130
    """By Ctrl-C or SIGTERM."""


def say(text: str) -> None:
    """Print a message to standard error, its hint on the next line and control characters escaped."""
    lines = text.replace("\n\nHint: ", "\nHint: ").split("\n")
    print("treecal:", "\n".join(map(printable, lines)), file=sys.stderr, flush=True)


def page() -> Console:
    """Return standard output for tables: as wide as the terminal, and at least 120 columns in a file or a pipe."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)
    return console


def table(title: str, *columns: str) -> Table:
    """Return an empty table; the columns whose names start with ">" are aligned to the right."""
    made = Table(title=title, title_justify="left")
    for name in columns:
        made.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left")
    return made


def emit(document: Any) -> None:
    """Write one line of JSON, and flush it.

    Examples
    --------
    >>> emit({"error": float("inf"), "rounds": 3})
    {"error": "inf", "rounds": 3}
    """
    text = json.dumps(document, ensure_ascii=False, default=_plain)
    if "Infinity" in text or "NaN" in text:  # JSON has no such numbers
        words = {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}
        text = json.dumps(json.loads(text, parse_constant=words.get), ensure_ascii=False)
    print(text, flush=True)


def _plain(value: Any) -> Any:
    """Return arrays as lists, and records by name."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value.tolist()


def by_class(space: ConvexSet, vector: Array) -> dict[str, float] | list[float]:
    """Return a point of a set as JSON: by class, where the set names its classes."""
    classes = space.classes if isinstance(space, Simplex) else None
    return vector.tolist() if classes is None else dict(zip(classes, vector.tolist(), strict=True))


def printable(name: object) -> str:
    r"""Return a name from a file with control characters escaped, so that it cannot drive a terminal.

    Examples
    --------
    >>> printable("rain"), printable("\x1b[2J")
    ('rain', '\\x1b[2J')
    """
    text = str(name)
    return text if text.isprintable() else repr(text)[1:-1]


class Shield:
    """Turns SIGINT and SIGTERM into `KeyboardInterrupt`, but only where that is harmless.

    Waiting for input and writing output are interrupted immediately; anything else, such as an update or a snapshot,
    is finished first.

    Examples
    --------
    >>> with Shield() as shield:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     print("the round is finished first")
    ...     try:
    ...         with shield.opened():
    ...             print("never printed")
    ...     except KeyboardInterrupt:
    ...         print("stopped")
    the round is finished first
    stopped
    """

    def __init__(self) -> None:
        self._open = self._signalled = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Shield:
        self._before = {number: signal.signal(number, self._receive) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True
        if self._open:
            self._open = False  # raised once: cleaning up is not interrupted
            raise KeyboardInterrupt

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Let a signal interrupt the block; one that has arrived already does so immediately."""
        self._open = True
        try:
            if self._signalled:
                raise KeyboardInterrupt
            yield
        finally:
            self._open = False

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        """Iterate over items; a signal may interrupt the wait for the next."""
        source = iter(items)
        while True:
            with self.opened():
                try:
                    item = next(source)
                except StopIteration:
                    return
            yield item
