"""Text files: their bytes, checked on the way, their lines, and the rows that these become.

Gzip is checked against its own checksums, and against sizes nobody means.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from treecal.exceptions import FileError, Reason, TreeCalError

LINE = 1 << 24
"""Longest line, in bytes."""
TOO_LONG = f"it is longer than {LINE >> 20} MiB."
_BLOCK = 1 << 20
_LINES = 1 << 18  # bytes of lines that are held at once
_LARGE = 1 << 30  # what a gzip file may always unpack to
_RATIO = 200  # how many times its own size it may unpack to beyond that
_BOM = b"\xef\xbb\xbf"


class Place(NamedTuple):
    """The place of a row: its 1-based number, and in a text file the line it begins on."""

    row: int
    line: int | None

    def __str__(self) -> str:
        return f"row {self.row:,}" if self.line is None else f"line {self.line:,} (row {self.row:,})"


class Row(NamedTuple):
    """A row: its place; its value, by column, or in JSON lines any value; or why it cannot be read.

    It is `whole` unless a text file ends before the end of its line: it may still be being written.
    """

    place: Place
    value: Any
    problem: Reason | None = None
    whole: bool = True

    def read(self) -> Any:
        """Return its value, or raise why it cannot be read."""
        if self.problem is not None:
            raise TreeCalError(self.problem) if isinstance(self.problem, str) else self.problem
        return self.value


class Block:
    """Rows that follow one another: as rows, and by column where all are whole and have the same columns.

    Examples
    --------
    >>> block = Block.of_columns({"day": ["1", "2"], "sky": ["rain", None]}, Place(1, 2))
    >>> [(str(row.place), row.value) for row in block[1:].rows]
    [('line 3 (row 2)', {'day': '2', 'sky': None})]
    >>> Block(block.rows).columns == block.columns
    True
    """

    _first: Place

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    @classmethod
    def of_columns(cls, columns: dict[str, list[Any]], first: Place) -> Block:
        """Return the rows of a table, the first of which is at this place, with one line for each."""
        block = object.__new__(cls)
        block.columns = columns
        block._first = first
        return block

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The rows."""
        assert self.columns is not None
        row, line = self._first
        names = list(self.columns)
        cells = zip(*self.columns.values(), strict=True)
        return [
            Row(Place(row + k, None if line is None else line + k), dict(zip(names, each, strict=True)))
            for k, each in enumerate(cells)
        ]

    @cached_property
    def columns(self) -> dict[str, list[Any]] | None:
        """The cells of each column; None where rows differ in their columns, or cannot be read."""
        rows = self.rows
        names = rows[0].value.keys() if rows and isinstance(rows[0].value, dict) else None
        if names is None or any(row.problem is not None or not row.whole for row in rows):
            return None
        if any(not isinstance(row.value, dict) or row.value.keys() != names for row in rows):
            return None
        return {name: [row.value[name] for row in rows] for name in names}

    def __len__(self) -> int:
        return len(self.rows) if "rows" in vars(self) else len(next(iter((self.columns or {}).values())))

    def __getitem__(self, at: slice) -> Block:
        if "rows" in vars(self):
            return Block(self.rows[at])
        row, line = self._first
        start = at.indices(len(self))[0]
        columns = {name: cells[at] for name, cells in (self.columns or {}).items()}
        return Block.of_columns(columns, Place(row + start, None if line is None else line + start))


def in_blocks(lines: Lines, rows: Iterator[Row]) -> Iterator[Block]:
    """Yield rows that are read from lines in blocks, each of those whose lines are there."""
    found: list[Row] = []
    for row in rows:
        found.append(row)
        if lines.waits:
            yield Block(found)
            found = []
    if found:
        yield Block(found)


def is_gzip(name: str) -> bool:
    """Return whether a file of this name is compressed."""
    return name.lower().endswith(".gz")


def not_gzip(name: str) -> FileError:
    """Return the error for a truncated or damaged gzip file."""
    return FileError(
        f"{name} cannot be read: it is not a complete gzip file.", hint="it may be truncated or damaged: gzip -t tells."
    )


def not_csv(name: str) -> FileError:
    """Return the error for a file that changes its format on the way."""
    return FileError(
        f"{name} cannot be read: not all of it is valid CSV.",
        hint="it may mix line endings, CR LF and LF: tr -d '\\r' makes them uniform.",
    )


@contextmanager
def _unpacked(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Give the text in a file, gzipped or not."""
    if not is_gzip(name):
        yield file
        return
    try:
        yield cast("BinaryIO", gzip.GzipFile(fileobj=file))
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise not_gzip(name) from None


def _check_size(file: BinaryIO, name: str, unpacked: int) -> None:
    if unpacked > _LARGE and is_gzip(name) and unpacked > _RATIO * file.tell():
        raise FileError(
            f"{name} unpacks to more than {_LARGE >> 30} GiB and {_RATIO} times its size.",
            hint="if that is meant, unpack it first: gunzip.",
        )


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield the text of a file in blocks; a line that is too long is an error."""
    lines = 1
    length = 0
    total = 0
    with open(path, "rb") as file, _unpacked(file, path.name) as text:
        while block := text.read(_BLOCK):
            total += len(block)
            _check_size(file, path.name, total)
            end = block.rfind(b"\n")  # a line within a block is short enough
            if length + (len(block) if end < 0 else block.find(b"\n")) > LINE:
                raise FileError(f"{path.name}, line {lines:,}: {TOO_LONG}")
            length = length + len(block) if end < 0 else len(block) - end - 1
            lines += block.count(b"\n")
            yield block


class Lines(Iterator[bytes]):
    """The lines of a file, without its byte order mark; of one that is too long only the first `LINE + 1` bytes.

    They are read in blocks, each of the lines that are there: none of a pipe waits for another.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._blocks = _blocks_of_lines(file, name)
        self._block: list[bytes] = []
        self._next = 0
        self._last = 0  # of the block's lines, where those after it are blank

    def __next__(self) -> bytes:
        if self._next == len(self._block):
            self.give_back(len(self.take()))
            if not self._block:
                raise StopIteration
        self._next += 1
        return self._block[self._next - 1]

    @property
    def waits(self) -> bool:
        """Whether no line is there now, but for blank ones."""
        return self._next >= self._last

    def take(self) -> list[bytes]:
        """Return the lines that are left of a block, or else those of the next one; none at the end."""
        if self._next == len(self._block):
            self._block = next(self._blocks, [])
            self._next = 0
            self._last = next((k for k in range(len(self._block), 0, -1) if not self._block[k - 1].isspace()), 0)
        left = self._block[self._next :]
        self._next = len(self._block)
        return left

    def give_back(self, count: int) -> None:
        """Let the last lines that were taken be taken again."""
        self._next -= count


def _blocks_of_lines(file: BinaryIO, name: str) -> Iterator[list[bytes]]:
    total = 0
    begun = b""  # of a line whose end is still to come
    mark = _BOM
    with _unpacked(file, name) as text:
        read = getattr(text, "read1", text.read)  # what is there, without waiting for more
        while block := read(_LINES):
            total += len(block)
            _check_size(file, name, total)
            lines = []
            if len(begun) > LINE:  # what is left of it is left out
                end = block.find(b"\n") + 1
                if not end:
                    continue
                lines.append(begun)
                begun = b""
                block = block[end:]
            lines += BytesIO(begun + block).readlines()
            begun = b""
            if block and not block.endswith(b"\n"):
                begun = lines.pop()[: LINE + 1]
            if lines:
                lines[0] = lines[0].removeprefix(mark)
                mark = b""
                yield [line if len(line) <= LINE else line[: LINE + 1] for line in lines]
        if begun:
            yield [begun.removeprefix(mark)]


@contextmanager
def open_lines(path: str | os.PathLike[str]) -> Iterator[Lines]:
    """Open a text file, gzipped or not, and give its lines."""
    with open(path, "rb") as file:
        yield Lines(file, Path(path).name)


def begins_with_mark(path: Path) -> bool:
    """Return whether a text file begins with a byte order mark."""
    with open(path, "rb") as file, _unpacked(file, path.name) as text:
        return text.read(len(_BOM)) == _BOM


def check_case(source: str, names: Iterable[str]) -> None:
    """Raise an error if names of columns differ only in case, which SQL does not distinguish."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise FileError(
                f"{source} has columns {other!r} and {name!r}, which differ only in case.", hint="rename one of them."
            )


def is_utf8(text: str) -> bool:
    """Return whether a text was read from UTF-8: bytes that are not stand in it as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
