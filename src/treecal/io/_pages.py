"""The pages of columns of Parquet as they lie in a file: found, checked, and unpacked.

Arrow and DuckDB give the values of columns only, in memory of their own. Pages are read here only where a row group is
as most writers make it: flat columns, no missing value, a common compression. Whatever else there is, damage included,
is left to Arrow.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from treecal.io._duckdb import library

PLAIN, CODES, DICTIONARY = 0, 8, -1
"""What a page holds: values; codes of values; or the values that codes stand for."""
_OLD_CODES, _RLE = 2, 3  # other encodings
_DATA, _DICTIONARY, _NEW_DATA = 0, 2, 3  # kinds of pages
_CODECS = {"SNAPPY": "snappy", "ZSTD": "zstd", "GZIP": "gzip", "UNCOMPRESSED": None}
_NUMBERS = {"DOUBLE": np.float64, "FLOAT": np.float32, "INT32": np.int32, "INT64": np.int64}
_BYTES, _PAGE = 1 << 26, 1 << 26  # of a row group, and of a page
_PAGES = 1 << 12
_own = threading.local()


class OtherwiseError(Exception):
    """A row group is not as most writers make it."""


def check(as_expected: Any) -> None:
    """Raise an error unless something is as most writers make it."""
    if not as_expected:
        raise OtherwiseError


class Page(NamedTuple):
    """A page of values of a column. Its bytes are in memory of the thread, which the next row group takes.

    Attributes
    ----------
    column, physical
        The number of the column among those that were asked for, and the type of its values in the file.
    holds, length
        What it holds, and how many of these.
    levels
        Whether it begins with the levels of values that may be missing.
    packed, size, codec
        Its bytes, as they are compressed, and how many they are if not.
    """

    column: int
    physical: str
    holds: int
    length: int
    levels: bool
    packed: memoryview
    size: int
    codec: Any

    def content(self) -> Any:
        """Return its bytes."""
        return self.packed if self.codec is None else self.codec.decompress(self.packed, self.size)

    def numbers(self) -> Any:
        """Return the numbers in it."""
        content = memoryview(self.content())
        if self.levels:
            content = _without_levels(content, self.length)
        check(self.physical in _NUMBERS)
        numbers = np.frombuffer(content, _NUMBERS[self.physical])
        check(len(numbers) == self.length)
        return numbers


def read_pages(path: Path, metadata: Any, group: int, columns: Collection[str]) -> list[Page]:
    """Return the pages of columns of a row group, in order."""
    part, schema = metadata.row_group(group), metadata.schema
    places = {part.column(k).path_in_schema: k for k in range(part.num_columns)}
    check(all(name in places for name in columns))
    kinds = [schema.column(places[name]) for name in columns]
    check(all(kind.max_repetition_level == 0 and kind.max_definition_level <= 1 for kind in kinds))
    chunks = [part.column(places[name]) for name in columns]
    check(all(chunk.compression in _CODECS for chunk in chunks))
    with open(path, "rb") as file:
        return _read(file.fileno(), chunks, [kind.max_definition_level > 0 for kind in kinds])


def _read(file: int, chunks: list[Any], optional: list[bool]) -> list[Page]:
    from treecal.io._page_kernels import NONE, PAGE, page_headers

    names = [_CODECS[chunk.compression] for chunk in chunks]
    codecs = [None if name is None else library("pyarrow").Codec(name) for name in names]
    offsets = ((chunk.dictionary_page_offset, chunk.data_page_offset) for chunk in chunks)
    starts = np.array([min(at for at in pair if at is not None) for pair in offsets])
    ends = starts + [chunk.total_compressed_size for chunk in chunks]
    first, last = int(starts.min()), int(ends.max())
    check(0 < last - first <= _BYTES)  # the columns lie near one another
    view, headers = _room(last - first), np.empty((_PAGES, 3 + 2 * PAGE), np.int64)
    check(os.preadv(file, [view], first) == len(view))
    number = page_headers(np.frombuffer(view, np.uint8), starts - first, ends - first, headers)
    check(number > 0)
    pages = []
    for column, begin, end, *fields in headers[:number].tolist():
        (_, kind, size, _, crc, *_), inner = fields[:PAGE], fields[PAGE:]
        check(crc == NONE or zlib.crc32(view[begin:end]) == crc & 0xFFFFFFFF)
        check(0 <= size <= _PAGE)
        _, count, encoding, level_encoding, *_ = inner
        codec, levels = codecs[column], optional[column] and kind == _DATA
        if kind == _NEW_DATA:  # its levels lie before what is compressed
            _, count, missing, _, encoding, before, lists, compressed, _ = inner
            check(missing == 0 and lists <= 0 <= before <= end - begin)
            begin, size, codec = begin + before, size - before, codec if compressed else None
        check(count >= 0 and kind in (_DATA, _DICTIONARY, _NEW_DATA) and encoding in (PLAIN, _OLD_CODES, CODES))
        check(not (levels and level_encoding != _RLE))
        holds = DICTIONARY if kind == _DICTIONARY else CODES if encoding == _OLD_CODES else encoding
        check(not (kind == _DICTIONARY and encoding == CODES))
        pages.append(Page(column, chunks[column].physical_type, holds, count, levels, view[begin:end], size, codec))
    return pages


def _room(size: int) -> memoryview:
    """Return memory for bytes: the same each time, as new memory takes as long as reading."""
    if len(getattr(_own, "room", b"")) < size:
        _own.room = bytearray(size)
    return memoryview(_own.room)[:size]


def _without_levels(content: memoryview, count: int) -> memoryview:
    """Return what comes after the levels, if no value is missing."""
    from treecal.io._page_kernels import none_missing

    check(len(content) >= 4)
    end = 4 + int.from_bytes(content[:4], "little")
    check(end <= len(content) and none_missing(np.frombuffer(content[4:end], np.uint8), 0, count))
    return content[end:]
