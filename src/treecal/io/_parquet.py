"""A Parquet file: read by DuckDB; its plain columns by Arrow, also piece by piece; its codes as they are."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treecal.exceptions import FileError
from treecal.io._checksums import has_checksums
from treecal.io._coded import Coded, read_codes
from treecal.io._duckdb import library
from treecal.io._paths import File
from treecal.io._plain import Strip, read_strips
from treecal.io._scan import FileSource
from treecal.io._source import ROWS

_PLAIN = {"double", "float", "string", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}
"""Arrow types whose values are the same in DuckDB."""
_PIECE = 1 << 16


@dataclass(frozen=True)
class Piece:
    """Row groups of a Parquet file that follow one another: what one thread reads while others read others.

    Attributes
    ----------
    source
        The file.
    metadata
        That of the file.
    groups
        The numbers of the row groups.
    before, rows
        Number of rows before them, and of their own.
    columns, types
        The columns to read, by the names to give them, and the Arrow types of all columns by name.
    """

    source: Parquet
    metadata: Any
    groups: tuple[int, ...]
    before: int
    rows: int
    columns: Mapping[str, str]
    types: Mapping[str, Any]

    def batches(self, rows: int, *, after: int = 0) -> Iterator[Any]:
        """Yield them as Arrow batches of up to `rows` rows, all that come after so many."""
        with self.source.plain_errors():
            file = self.source.opened(self.metadata)
            for batch in self.source.read_columns(file, rows, self.columns, self.groups):
                skip = min(after, batch.num_rows)
                after -= skip
                if skip < batch.num_rows:
                    yield batch.slice(skip)

    def codes(self) -> Coded | None:
        """Return the codes of the columns; None unless it is one row group, and all are coded."""
        kinds = self._kinds()
        return None if kinds is None else read_codes(self.source.path, self.metadata, self.groups[0], kinds)

    def strips(self) -> Iterator[Strip]:
        """Yield the columns some rows at a time, all but the last as numbers, and the last as labels.

        Rows are missing, from one on, unless it is one row group, its numbers are plain, and its labels coded.
        """
        kinds = self._kinds()
        return iter(()) if kinds is None else read_strips(self.source.path, self.metadata, self.groups[0], kinds)

    def _kinds(self) -> dict[str, Any] | None:
        """Return the types of the columns, if they are distinct ones of a single row group."""
        names = set(self.columns.values())
        if len(self.groups) > 1 or len(names) < len(self.columns) or names & set(self.source.partition):
            return None
        return {name: self.types[name] for name in self.columns.values()}


class Parquet(FileSource):
    """A Parquet file. Plain columns are read by Arrow, which is faster than through DuckDB."""

    _share: float | None = None

    def __init__(self, file: File, connection: Any) -> None:
        super().__init__(file, connection, "read_parquet", {})

    def done(self) -> float | None:
        return super().done() if self._share is None else self._share

    def pieces(self, columns: Mapping[str, str] | None) -> list[Piece] | None:
        with self.plain_errors():
            file = None if columns is None else self._direct(columns)
            if file is None or columns is None:
                return None
            self._share = 0.0  # Arrow will have read it
            found, groups, before, rows = list[Piece](), list[int](), 0, 0
            count, types = file.metadata.num_row_groups, {field.name: field.type for field in file.schema_arrow}
            for group in range(count):
                groups.append(group)
                rows += file.metadata.row_group(group).num_rows
                if rows >= _PIECE or group == count - 1:
                    found.append(Piece(self, file.metadata, tuple(groups), before, rows, columns, types))
                    groups, before, rows = [], before + rows, 0
            return found

    def ends(self, name: str) -> tuple[int, int] | None:
        with self.plain_errors():
            metadata = self.opened().metadata
            places = {metadata.schema.column(k).path: k for k in range(metadata.num_columns)}
            if name not in places:
                return None
            groups = (metadata.row_group(g).column(places[name]).statistics for g in range(metadata.num_row_groups))
            ends = [(part.min, part.max) if part and part.has_min_max else (None, None) for part in groups]
            if not ends or not all(isinstance(end, int) for pair in ends for end in pair):
                return None
            lows, highs = zip(*ends, strict=True)
            return min(lows), max(highs)

    def _direct(self, columns: Mapping[str, str]) -> Any:
        """Return the file as Arrow opens it, if Arrow reads these columns as DuckDB does."""
        file = self.opened()
        kinds = dict(zip(file.schema_arrow.names, map(str, file.schema_arrow.types), strict=True))
        own = [name for name in columns.values() if name not in self.partition]
        plain = all(kinds.get(name) in _PLAIN and "." not in name for name in own)
        # Arrow reads a dot as a nested field, and DuckDB renames columns that differ only in case.
        return file if plain and [*kinds, *self.partition] == list(self.types) else None

    def _reader(self, sql: str, rows: int, columns: Mapping[str, str] | None) -> Iterator[Any]:
        self._share = None
        if columns is not None and (file := self._direct(columns)) is not None:
            return self.read_columns(file, rows, columns)
        return super()._reader(sql, rows, columns)

    def opened(self, metadata: Any = None) -> Any:
        """Return the file as Arrow opens it."""
        # Without a buffer Arrow would hold whole row groups, and of those there may be one.
        options: dict[str, Any] = {"pre_buffer": False, "buffer_size": 1 << 20, "page_checksum_verification": True}
        path = os.path.abspath(self.path)  # `file:x` would be taken for an address
        return library("pyarrow.parquet").ParquetFile(path, metadata=metadata, **options)

    def read_columns(
        self, file: Any, rows: int, columns: Mapping[str, str], groups: Sequence[int] | None = None
    ) -> Iterator[Any]:
        """Yield columns of all row groups, or of these, in batches, by Arrow."""
        arrow, seen = library("pyarrow"), 0
        wanted = sorted(set(columns.values()) - set(self.partition))
        for batch in file.iter_batches(rows, row_groups=groups, columns=wanted, use_threads=False):  # others are busy
            seen += batch.num_rows
            self._share = seen / max(seen, file.metadata.num_rows)
            batch.validate(full=True)  # text that is not UTF-8
            found = [
                arrow.repeat(arrow.scalar(self.partition[name], arrow.string()), batch.num_rows)
                if name in self.partition
                else batch.column(name)
                for name in columns.values()
            ]
            yield arrow.record_batch(found, names=list(columns))

    def check_complete(self, rows: int, *, columns: Sequence[str], valid: int) -> None:
        with self.plain_errors():
            file = self.opened()
            held = file.metadata.num_rows
            if rows != held:
                raise FileError(f"{self.name} cannot be read: it has {held:,} rows, of which {rows:,} were found.")
            if self._share is None and has_checksums(
                self.path, file.metadata
            ):  # DuckDB, which has read it, checks none
                own = [name for name in columns if name not in self.partition]
                wanted = None if any("." in name for name in own) else own
                deque(file.iter_batches(ROWS, columns=wanted), maxlen=0)
