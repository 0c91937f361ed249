"""Columns of Parquet as codes: the place of each row's value in the dictionary of a row group.

A column of few distinct numbers, such as probabilities of two decimals, is written as a list of these numbers and, for
each row, the place of its own in that list. Here the codes are read as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal.io._duckdb import library
from treecal.io._pages import CODES, DICTIONARY, OtherwiseError, Page, check, read_pages

_CELLS = 1 << 25  # codes of a row group
_MOST = 1 << 16  # codes of 16 bits
_SPARE = 8  # which `unpack` may write beyond the last
_NONE = np.empty(0, np.uint16)
_own = threading.local()


class Coded(NamedTuple):
    """Columns of a row group: the code of each row, `(columns, rows)`, and the values that they stand for.

    The codes are those of a thread's last row group.
    """

    codes: NDArray[np.uint16]
    values: list[Any]


def read_codes(path: Path, metadata: Any, group: int, columns: Mapping[str, Any]) -> Coded | None:
    """Return columns of a row group, given their Arrow types, which are those of the values; None unless all are coded.

    Values may be there that no row has.
    """
    part = metadata.row_group(group)
    own = (part.column(k) for k in range(part.num_columns))
    if any(not chunk.has_dictionary_page for chunk in own if chunk.path_in_schema in columns):
        return None
    try:
        return codes_in(read_pages(path, metadata, group, list(columns)), list(columns.values()), part.num_rows)
    except (OtherwiseError, OSError, ValueError, library("pyarrow").ArrowException):
        return None


def codes_in(pages: Sequence[Page], kinds: Sequence[Any], rows: int) -> Coded:
    """Return columns of these Arrow types and of so many rows, given all their pages."""
    from treecal.io._page_kernels import read_codes as read

    check(0 < rows * len(kinds) <= _CELLS)
    values: list[Any] = [None] * len(kinds)
    contents, jobs, length, done = list[Any](), list[list[int]](), 0, [0] * len(kinds)
    for page in pages:
        column = page.column
        if page.holds == DICTIONARY:
            check(values[column] is None and 0 < page.length <= _MOST)
            values[column] = _values(page, kinds[column])
            continue
        check(page.holds == CODES and page.length <= rows - done[column])
        contents.append(page.content())
        end = length + len(contents[-1])
        jobs.append([column, length, end, page.length, done[column], page.levels])
        length = end
        done[column] += page.length
    codes = _room(len(kinds), rows + _SPARE)
    check(all(each == rows for each in done))
    check(read(np.frombuffer(b"".join(contents), np.uint8), np.array(jobs, np.int64), codes))
    codes = codes[:, :rows]
    check(all(own is not None and most < len(own) for own, most in zip(values, codes.max(axis=1), strict=True)))
    return Coded(codes, values)


def _room(columns: int, rows: int) -> Any:
    """Return memory for codes: the same each time."""
    if getattr(_own, "room", _NONE).size < columns * rows:
        _own.room = np.empty(columns * rows, np.uint16)
    return _own.room[: columns * rows].reshape(columns, rows)


def _values(page: Page, kind: Any) -> Any:
    """Return the values in a dictionary as an Arrow array."""
    arrow = library("pyarrow")
    if page.physical == "BYTE_ARRAY":
        content, texts, at = bytes(page.content()), [], 0
        for _ in range(page.length):
            begin = at + 4
            at = begin + int.from_bytes(content[at:begin], "little")
            check(at <= len(content))
            texts.append(content[begin:at].decode())
        return arrow.array(texts, kind)
    numbers = page.numbers()
    values = arrow.array(numbers.view(f"u{numbers.itemsize}") if str(kind).startswith("uint") else numbers)
    return values if values.type == kind else values.cast(kind)
