"""The bytes of a text file, checked on the way: gzip against its own checksums, and against sizes nobody means."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from treecal.exceptions import FileError

LINE = 1 << 24
"""Longest line, in bytes."""
TOO_LONG = f"it is longer than {LINE >> 20} MiB."
_BLOCK = 1 << 20
_LARGE, _RATIO = 1 << 30, 200  # what a gzip file may always unpack to, and how many times its own size beyond that
_BOM = b"\xef\xbb\xbf"


def is_gzip(name: str) -> bool:
    """Return whether a file of this name is compressed."""
    return name.lower().endswith(".gz")


def not_gzip(name: str) -> FileError:
    """Return the error for a truncated or damaged gzip file."""
    return FileError(
        f"{name} cannot be read: it is not a complete gzip file.", hint="it may be truncated or damaged: gzip -t tells."
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
    lines, length, total = 1, 0, 0
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
    total, first = 0, True
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
