"""Columns of Parquet as they lie in the file: the codes of their values in the dictionary of a row group.

A column of few distinct numbers, such as probabilities of two decimals, is written as a list of these numbers and, for
each row, the place of its own in that list. Arrow and DuckDB give only the numbers. Here the codes are read as they
are, and only where a row group is as most writers make it: flat columns, no missing value, every page coded, a common
compression. Whatever else there is, damage included, is left to Arrow.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal.io._duckdb import library

_PLAIN, _OLD_CODES, _RLE, _CODES = 0, 2, 3, 8  # encodings
_DATA, _DICTIONARY, _NEW_DATA = 0, 2, 3  # kinds of pages
_CODECS = {"SNAPPY": "snappy", "ZSTD": "zstd", "GZIP": "gzip", "UNCOMPRESSED": None}
_NUMBERS = {"DOUBLE": np.float64, "FLOAT": np.float32, "INT32": np.int32, "INT64": np.int64}
_CELLS, _PAGE = 1 << 25, 1 << 26  # codes of a row group, and bytes of a page
_MOST = 1 << 16  # codes of 16 bits
_SPARE = 8  # which `unpack` may write beyond the last


class Coded(NamedTuple):
    """Columns of a row group: the code of each row, `(columns, rows)`, and the values that they stand for."""

    codes: NDArray[np.uint16]
    values: list[Any]


class _OtherwiseError(Exception):
    """A column is not as most writers make it."""


def read_codes(path: Path, metadata: Any, group: int, columns: Mapping[str, Any]) -> Coded | None:
    """Return columns of a row group, given their Arrow types, which are those of the values; None unless all are coded.

    Values may be there that no row has.
    """
    part, schema = metadata.row_group(group), metadata.schema
    places = {schema.column(k).path: k for k in range(part.num_columns)}
    rows, found = part.num_rows, [(places.get(name), kind) for name, kind in columns.items()]
    if not 0 < rows * len(found) <= _CELLS:
        return None
    codes, values = np.empty((len(found), rows + _SPARE), np.uint16), []
    try:
        with open(path, "rb") as file:
            for (place, kind), own in zip(found, codes, strict=True):
                if place is None or schema.column(place).max_repetition_level:
                    return None
                level = schema.column(place).max_definition_level
                values.append(_read(file.fileno(), part.column(place), level, kind, own, rows))
    except (_OtherwiseError, OSError, ValueError, library("pyarrow").ArrowException):
        return None
    return Coded(codes[:, :rows], values)


def _read(file: int, chunk: Any, level: int, kind: Any, codes: Any, rows: int) -> Any:
    """Read the codes of a column, and return the values."""
    from treecal.io._page_kernels import none_missing, unpack

    _check(chunk.has_dictionary_page and chunk.compression in _CODECS and level <= 1)
    start = min(at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at is not None)
    values, done = None, 0
    for page in _pages(os.pread(file, chunk.total_compressed_size, start), _CODECS[chunk.compression]):
        if page.kind == _DICTIONARY:
            _check(values is None and page.encoding in (_PLAIN, _OLD_CODES) and 0 < page.size <= _MOST)
            values = _values(page, chunk.physical_type, kind)
            continue
        data, at = page.data, 0
        _check(values is not None and page.encoding in (_OLD_CODES, _CODES) and page.size <= rows - done)
        if level and page.kind == _DATA:  # which of the values are missing
            at = 4 + int.from_bytes(data[:4].tobytes(), "little")
            _check(page.levels == _RLE and at < len(data) and none_missing(data[4:at], 0, page.size))
        _check(at < len(data) and data[at] <= 16)
        _check(unpack(data, at + 1, int(data[at]), codes, done, page.size) >= 0)
        done += page.size
    _check(values is not None and done == rows and codes[:rows].max() < len(values))
    return values


def _check(as_expected: Any) -> None:
    if not as_expected:
        raise _OtherwiseError


class _Page(NamedTuple):
    """A page without its compression: its kind, number of values, and their encoding and that of their levels."""

    data: NDArray[np.uint8]
    kind: int
    size: int
    encoding: int
    levels: int


def _pages(content: bytes, codec: str | None) -> Iterator[_Page]:
    """Yield the pages of a column."""
    from treecal.io._page_kernels import NONE, page_header

    unpacked = None if codec is None else library("pyarrow").Codec(codec)
    data, view, fields, at = np.frombuffer(content, np.uint8), memoryview(content), np.empty((2, 16), np.int64), 0
    while at < len(content):
        begin = page_header(data, at, fields)
        (_, kind, size, packed, crc, *_), inner = fields.tolist()
        at = begin + packed
        _check(begin > 0 <= packed and at <= len(content) and 0 <= size <= _PAGE)
        _check(crc == NONE or zlib.crc32(view[begin:at]) == crc & 0xFFFFFFFF)
        _, count, *encodings = inner[:4]
        if kind == _NEW_DATA:  # its levels lie before what is compressed
            _, count, missing, _, encoding, levels, lists, compressed = inner[:8]
            _check(missing == 0 and lists <= 0 <= levels <= packed)
            encodings, begin, size = [encoding, _RLE], begin + levels, size - levels
        _check(kind in (_DATA, _DICTIONARY, _NEW_DATA) and count >= 0)
        whole = data[begin:at]
        if unpacked is not None and not (kind == _NEW_DATA and compressed == 0):
            whole = np.frombuffer(unpacked.decompress(view[begin:at], size), np.uint8)
        yield _Page(whole, kind, count, *encodings)


def _values(page: _Page, physical: str, kind: Any) -> Any:
    """Return the values in a dictionary as an Arrow array."""
    arrow = library("pyarrow")
    if physical == "BYTE_ARRAY":
        content, texts, at = page.data.tobytes(), [], 0
        for _ in range(page.size):
            begin = at + 4
            at = begin + int.from_bytes(content[at:begin], "little")
            _check(at <= len(content))
            texts.append(content[begin:at].decode())
        return arrow.array(texts, kind)
    _check(physical in _NUMBERS)
    dtype = np.dtype(_NUMBERS[physical])
    _check(len(page.data) >= page.size * dtype.itemsize)
    numbers = page.data[: page.size * dtype.itemsize].view(dtype)
    unsigned = str(kind).startswith("uint")
    return arrow.array(numbers.view(f"u{dtype.itemsize}") if unsigned else numbers).cast(kind)
