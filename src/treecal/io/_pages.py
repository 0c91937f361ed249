"""Columns of Parquet as they lie in the file: the codes of their values in the dictionary of a row group.

A column of few distinct numbers, such as probabilities of two decimals, is written as a list of these numbers and, for
each row, the place of its own in that list. Arrow and DuckDB give only the numbers. Here the codes are read as they
are, and only where a row group is as most writers make it: flat columns, no missing value, every page coded, a common
compression. Whatever else there is, damage included, is left to Arrow.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal.io._duckdb import library

_PLAIN, _OLD_CODES, _RLE, _CODES = 0, 2, 3, 8  # encodings
_DATA, _DICTIONARY, _NEW_DATA = 0, 2, 3  # kinds of pages
_CODECS = {"SNAPPY": "snappy", "ZSTD": "zstd", "GZIP": "gzip", "UNCOMPRESSED": None}
_NUMBERS = {"DOUBLE": np.float64, "FLOAT": np.float32, "INT32": np.int32, "INT64": np.int64}
_CELLS, _BYTES, _PAGE = 1 << 25, 1 << 26, 1 << 26  # codes of a row group, bytes of it, and of a page
_PAGES = 1 << 12
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


class _OtherwiseError(Exception):
    """A column is not as most writers make it."""


def _check(as_expected: Any) -> None:
    if not as_expected:
        raise _OtherwiseError


def read_codes(path: Path, metadata: Any, group: int, columns: Mapping[str, Any]) -> Coded | None:
    """Return columns of a row group, given their Arrow types, which are those of the values; None unless all are coded.

    Values may be there that no row has.
    """
    part, schema = metadata.row_group(group), metadata.schema
    places = {part.column(k).path_in_schema: k for k in range(part.num_columns)}
    try:
        _check(all(name in places for name in columns) and 0 < part.num_rows * len(columns) <= _CELLS)
        chunks = [part.column(places[name]) for name in columns]
        levels = [schema.column(places[name]).max_definition_level for name in columns]
        lists = any(schema.column(places[name]).max_repetition_level for name in columns)
        _check(not lists and max(levels) <= 1)
        with open(path, "rb") as file:
            return _read(file.fileno(), chunks, levels, list(columns.values()), part.num_rows)
    except (_OtherwiseError, OSError, ValueError, library("pyarrow").ArrowException):
        return None


def _read(file: int, chunks: list[Any], levels: list[int], kinds: list[Any], rows: int) -> Coded:
    """Read these columns."""
    from treecal.io._page_kernels import NONE, PAGE, page_headers, read_pages

    arrow = library("pyarrow")
    _check(all(chunk.has_dictionary_page and chunk.compression in _CODECS for chunk in chunks))
    codecs = [None if (name := _CODECS[chunk.compression]) is None else arrow.Codec(name) for chunk in chunks]
    places = ((chunk.dictionary_page_offset, chunk.data_page_offset) for chunk in chunks)
    starts = np.array([min(at for at in pair if at is not None) for pair in places])
    ends = starts + [chunk.total_compressed_size for chunk in chunks]
    first, last = int(starts.min()), int(ends.max())
    _check(last - first <= _BYTES)  # the columns lie near one another
    content = os.pread(file, last - first, first)
    _check(len(content) == last - first)
    view, headers = memoryview(content), np.empty((_PAGES, 3 + 2 * PAGE), np.int64)
    number = page_headers(np.frombuffer(content, np.uint8), starts - first, ends - first, headers)
    _check(number > 0)
    values: list[Any] = [None] * len(chunks)
    read, jobs, length, done = list[Any](), list[list[int]](), 0, [0] * len(chunks)
    for column, begin, end, *fields in headers[:number].tolist():
        (_, kind, size, _, crc, *_), inner = fields[:PAGE], fields[PAGE:]
        _check(crc == NONE or zlib.crc32(view[begin:end]) == crc & 0xFFFFFFFF)
        _check(0 <= size <= _PAGE)
        _, count, encoding, level_encoding, *_ = inner
        codec, optional = codecs[column], levels[column] and kind == _DATA
        if kind == _NEW_DATA:  # its levels lie before what is compressed
            _, count, missing, _, encoding, before, lists, compressed, _ = inner
            _check(missing == 0 and lists <= 0 <= before <= end - begin)
            begin, size, codec = begin + before, size - before, codec if compressed else None
        page = view[begin:end] if codec is None else codec.decompress(view[begin:end], size)
        if kind == _DICTIONARY:
            _check(values[column] is None and encoding in (_PLAIN, _OLD_CODES) and 0 < count <= _MOST)
            values[column] = _values(arrow, page, count, chunks[column].physical_type, kinds[column])
            continue
        _check(
            kind in (_DATA, _NEW_DATA)
            and encoding in (_OLD_CODES, _CODES)
            and not (optional and level_encoding != _RLE)
        )
        _check(0 <= count <= rows - done[column])
        jobs.append([column, length, length + len(page), count, done[column], optional])
        read.append(page)
        length += len(page)
        done[column] += count
    codes = _room(len(chunks), rows + _SPARE)
    _check(all(each == rows for each in done))
    _check(read_pages(np.frombuffer(b"".join(read), np.uint8), np.array(jobs, np.int64), codes))
    codes = codes[:, :rows]
    _check(all(own is not None and most < len(own) for own, most in zip(values, codes.max(axis=1), strict=True)))
    return Coded(codes, values)


def _room(columns: int, rows: int) -> Any:
    """Return memory for codes: the same each time, as new memory takes as long as reading."""
    if getattr(_own, "room", _NONE).size < columns * rows:
        _own.room = np.empty(columns * rows, np.uint16)
    return _own.room[: columns * rows].reshape(columns, rows)


def _values(arrow: Any, page: Any, count: int, physical: str, kind: Any) -> Any:
    """Return the values in a dictionary as an Arrow array."""
    if physical == "BYTE_ARRAY":
        content, texts, at = bytes(page), [], 0
        for _ in range(count):
            begin = at + 4
            at = begin + int.from_bytes(content[at:begin], "little")
            _check(at <= len(content))
            texts.append(content[begin:at].decode())
        return arrow.array(texts, kind)
    _check(physical in _NUMBERS)
    numbers = np.frombuffer(page, _NUMBERS[physical], count)
    values = arrow.array(numbers.view(f"u{numbers.itemsize}") if str(kind).startswith("uint") else numbers)
    return values if values.type == kind else values.cast(kind)
