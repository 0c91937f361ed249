"""Text files: their bytes, checked on the way, their lines, and the rows that these become.

Gzip is checked against its own checksums, and against sizes nobody means.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from treecal.exceptions import FileError, TreeCalError

LINE = 1 << 24
"""Longest line, in bytes."""
TOO_LONG = f"it is longer than {LINE >> 20} MiB."
_BLOCK = 1 << 20
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
    problem: str | None = None
    whole: bool = True

    def read(self) -> Any:
        """Return its value, or raise why it cannot be read."""
        if self.problem is not None:
            raise TreeCalError(self.problem)
        return self.value


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


def read_lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the lines of a file, without its byte order mark; of one that is too long only the first `LINE + 1` bytes.

    Nothing is read ahead, for the sake of pipes.
    """
    total = 0
    first = True
    with _unpacked(file, name) as text:
        while line := text.readline(LINE + 1):
            total += len(line)
            rest = line
            while len(line) > LINE and rest and not rest.endswith(b"\n"):
                rest = text.readline(_BLOCK)
                total += len(rest)
                _check_size(file, name, total)
            _check_size(file, name, total)
            yield line.removeprefix(_BOM) if first else line
            first = False


@contextmanager
def open_lines(path: str | os.PathLike[str]) -> Iterator[Iterator[bytes]]:
    """Open a text file, gzipped or not, and give its lines."""
    with open(path, "rb") as file:
        yield read_lines(file, Path(path).name)


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
