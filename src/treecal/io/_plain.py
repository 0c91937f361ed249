"""Columns of Parquet as plain numbers: those that seldom repeat lie in the file as they are.

They are copied from there into memory that is used again: new memory would take longer than reading.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array
from treecal.io._coded import codes_in
from treecal.io._duckdb import library
from treecal.io._pages import PLAIN, OtherwiseError, Page, check, read_pages

_STRIP, _LEAST = 1 << 17, 1 << 10  # numbers that caches hold; rows that are worth the calls
_CELLS = 1 << 23  # numbers of a row group
_ENCODINGS = {"PLAIN", "RLE", "BIT_PACKED"}  # those of levels among them
_NONE = np.empty(0)
_own = threading.local()


class Strip(NamedTuple):
    """Rows that follow one another: their numbers, `(columns, n)`; the codes of their labels, and what these stand for.

    The memory is a thread's own, and that of its next strip.
    """

    numbers: Array
    codes: NDArray[np.uint16]
    labels: Any


def read_strips(path: Path, metadata: Any, group: int, columns: Mapping[str, Any]) -> Iterator[Strip]:
    """Yield columns of a row group, given their Arrow types, all but the last as numbers, and the last as labels.

    Not all rows are there, unless the numbers are plain, and the labels coded.
    """
    part, at, (*names, label) = metadata.row_group(group), 0, columns
    rows, chunks = part.num_rows, map(part.column, range(part.num_columns))
    written = (set(chunk.encodings) for chunk in chunks if chunk.path_in_schema in names)
    if rows * len(names) > _CELLS or not all(kinds <= _ENCODINGS for kinds in written):
        return
    try:
        own: list[list[Page]] = [[] for _ in columns]
        for page in read_pages(path, metadata, group, columns):
            own[page.column].append(page)
        *numbers, last = own
        codes, (labels,) = codes_in([page._replace(column=0) for page in last], [columns[label]], rows)
        parts = [_Numbers(pages, rows) for pages in numbers]
        while at < rows:
            end = min(rows, at + max(_LEAST, _STRIP // len(parts)))
            strip = _room(len(parts), end - at)
            for part, out in zip(parts, strip, strict=True):
                part.fill(out)
            yield Strip(strip, codes[0, at:end], labels)
            at = end
    except (OtherwiseError, OSError, ValueError, library("pyarrow").ArrowException):
        return


class _Numbers:
    """The numbers of a column, page by page."""

    def __init__(self, pages: list[Page], rows: int) -> None:
        check(sum(page.length for page in pages) == rows)
        check(all(page.physical in ("DOUBLE", "FLOAT") and page.holds == PLAIN for page in pages))
        self._pages, self._left = pages[::-1], _NONE

    def fill(self, out: Array) -> None:
        """Read the next numbers."""
        done = 0
        while done < len(out):
            if not len(self._left):
                check(self._pages)
                self._left = self._pages.pop().numbers()
            step = min(len(out) - done, len(self._left))
            out[done : done + step] = self._left[:step]
            self._left = self._left[step:] if step < len(self._left) else _NONE  # its page is let go
            done += step


def _room(columns: int, rows: int) -> Array:
    if getattr(_own, "room", _NONE).size < columns * rows:
        _own.room = np.empty(columns * rows)
    room: Array = _own.room[: columns * rows].reshape(columns, rows)
    return room
