"""What every command shares: exit codes, where words go, JSON, names that are safe to show, and signals."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from enum import IntEnum
from types import FrameType
from typing import Any, TypeVar

from rich.console import Console

T = TypeVar("T")


class Exit(IntEnum):
    """How a command ended."""

    FINE = 0
    FLAWED = 1
    """It finished, but rows were bad and left out, or a check failed."""
    REFUSED = 2
    """The input or the options were bad; a paragraph on standard error says how."""
    INTERRUPTED = 130
    """By Ctrl-C or SIGTERM."""


def say(text: str) -> None:
    """Write a paragraph for people, on standard error; a hint is part of it, and what a terminal would obey is escaped.

    Examples
    --------
    >>> say("3 rows were left out.")
    """
    lines = text.replace("\n\nHint: ", "\nHint: ").split("\n")
    print("treecal:", "\n".join(map(printable, lines)), file=sys.stderr, flush=True)


def page() -> Console:
    """Return where tables for people go: standard output, as wide as the terminal, or as wide as a table needs.

    Examples
    --------
    >>> page().print("a table")
    a table
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)  # in a file or a pipe nothing is squeezed
    return console


def emit(document: Any) -> None:
    """Write one JSON document, or one line of many, and let it go at once.

    Examples
    --------
    >>> emit({"error": float("inf"), "rounds": 3})
    {"error": "inf", "rounds": 3}
    """
    try:
        text = _dumps(document)
    except ValueError:  # it holds infinity, for which JSON has no number
        text = _dumps(_spelled(json.loads(json.dumps(document, default=_plain))))
    print(text, flush=True)


def _dumps(document: Any) -> str:
    return json.dumps(document, allow_nan=False, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Return arrays as lists, and records by name."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.tolist()


def _spelled(value: Any) -> Any:
    """Return the same with infinity as a word."""
    if isinstance(value, dict):
        return {key: _spelled(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_spelled(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def printable(name: object) -> str:
    r"""Return a name from a file as it may be shown: what a terminal would obey is escaped.

    Examples
    --------
    >>> printable("rain"), printable("\x1b[2J")
    ('rain', '\\x1b[2J')
    """
    text = str(name)
    return text if text.isprintable() else repr(text)[1:-1]


class Shield:
    """Turns SIGINT and SIGTERM into `KeyboardInterrupt`, but only where that is harmless.

    Waiting for input and writing output are interrupted at once; anything else, such as a round that is half learned or
    a snapshot that is half written, is finished first.

    Examples
    --------
    >>> with Shield() as shield:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     print("the round is finished first")
    ...     try:
    ...         with shield.opened():
    ...             print("never said")
    ...     except KeyboardInterrupt:
    ...         print("stopped")
    the round is finished first
    stopped
    """

    def __init__(self) -> None:
        self._open = self._asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Shield:
        self._before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        if self._open:
            self._open = False  # raised once: what is done on the way out is not interrupted again
            raise KeyboardInterrupt

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Let a signal interrupt what is done inside, one that has come already at once."""
        self._open = True
        try:
            if self._asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._open = False

    def waiting(self, items: Iterable[T]) -> Iterator[T]:
        """Go through items; a signal may interrupt the wait for the next."""
        source = iter(items)
        while True:
            with self.opened():
                try:
                    item = next(source)
                except StopIteration:
                    return
            yield item
