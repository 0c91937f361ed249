"""What every command shares: exit codes, and the one way out for messages, tables and JSON.

Text from files, options and errors reaches a terminal only through here, where control characters are escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, is_dataclass
from enum import IntEnum
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from treecal._platform import wait_to_write
from treecal._typing import Array
from treecal.geometry import ConvexSet, Simplex

_PIPE = 4096  # bytes that a pipe takes whole


class Exit(IntEnum):
    """How a command ended."""

    FINE = 0
    FLAWED = 1
    """It finished, but invalid rows were left out, or a check failed."""
    REFUSED = 2
    """The input or the options are invalid; a message on standard error says how."""
    ALARM = 3
    """Forecasts are provably off, or their calibration error is above a limit."""
    LATER = 75
    """What a server needs is not there yet, such as its database, or still in use: it may be started again."""
    INTERRUPTED = 130
    """By Ctrl-C, SIGTERM, or a terminal that was closed."""
    UNREAD = 141
    """The reader of standard output has gone, as of other programs that a shell then says SIGPIPE has ended."""


def say(text: str) -> None:
    """Print a message to standard error, its hint on the next line and control characters escaped."""
    with suppress(OSError, ValueError):  # nobody listens: the terminal is gone, or the stream closed
        print("treecal:", printable(text.replace("\n\nHint: ", "\nHint: ")), file=sys.stderr, flush=True)


def counted(number: int, what: str) -> str:
    """Return so many of something: "1 round", "1,000 rounds"."""
    return f"{number:,} {what}{'s' * (number != 1)}"


class _Page(Console):
    """A console that escapes control characters in what it is given, whatever table or text they are in."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def page(*, stderr: bool = False) -> Console:
    """Return standard output for tables: as wide as the terminal, and at least 120 columns in a file or a pipe."""
    console = _Page(highlight=False, stderr=stderr)
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
    _write(_shown(text))


def _write(text: str) -> None:
    """Write lines, by one call of the system where output is not buffered either, so that none is there in part."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _shown(text: str) -> str:
    """Return JSON with escapes for what does not print; it is within a string."""
    if text.isprintable() and _takes(text):
        return text
    return json.dumps(json.loads(text)).replace("\x7f", "\\u007f")


def emit_lines(
    lines: list[str], waiting: Callable[[], AbstractContextManager[None]]
) -> tuple[int, BaseException | None]:
    """Write lines of JSON; return how many were written whole, and what stopped it, if anything.

    They are written in parts that a pipe takes whole or not at all. In `waiting` it may be interrupted.
    """
    done = 0
    if not (everything := "".join(lines)).isprintable() or not _takes(everything):
        lines = [_shown(line) for line in lines]
    size = 0
    part: list[str] = []
    try:
        for line in [*lines, ""]:
            size += 4 * len(line) + 1 if not line.isascii() else len(line) + 1
            if part and (size > _PIPE or not line):
                with waiting():
                    wait_to_write(sys.stdout)
                _write("\n".join(part))
                done += len(part)
                part = []
                size = len(line) + 1
            part.append(line)
    except BaseException as error:
        return done, error
    return done, None


def json_texts(cells: Sequence[Any]) -> list[str]:
    """Return JSON values as texts."""
    if {*map(type, cells)} == {str}:
        return list(map(json.encoder.encode_basestring, cells))
    return [json.dumps(cell, ensure_ascii=False) for cell in cells]


def _takes(text: str) -> bool:
    """Return whether standard output has these letters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeError:
        return False
    return True


def _plain(value: Any) -> Any:
    """Return arrays as lists, and records by name."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value.tolist()


def by_class(space: ConvexSet, vector: Array) -> dict[str, float] | list[float]:
    """Return a point of a set as JSON: by class, where the set names its classes."""
    classes = space.classes if isinstance(space, Simplex) else None
    return vector.tolist() if classes is None else dict(zip(classes, vector.tolist(), strict=True))


def printable(name: object) -> str:
    r"""Return text with control characters escaped, all but the ends of lines, so that it cannot drive a terminal.

    Examples
    --------
    >>> printable("rain"), printable("\x1b[2J")
    ('rain', '\\x1b[2J')
    """
    text = str(name)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
