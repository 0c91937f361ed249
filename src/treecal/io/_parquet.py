"""A Parquet file, as Arrow reads it: its plain columns as they are; others for DuckDB's SQL.

DuckDB does not read it itself: of some damaged pages it makes rows out of memory that nobody has written. What a footer
says of columns (their statistics, their places in the file) is never asked for: it may be damaged, and Arrow lets C++
errors about it end the process. The numbers of rows are compared with what is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Any

from treecal.exceptions import FileError
from treecal.io._duckdb import library
from treecal.io._formats import Format
from treecal.io._scan import File, FileSource
from treecal.io._source import ROWS

_PLAIN = {"double", "float", "string", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}
"""Arrow types whose values are the same in DuckDB."""
_BATCH = 1 << 14
"""Rows that are written at a time."""


_numbers = count()


def _opened(path: Path) -> Any:
    """Return a file as Arrow opens it."""
    # Without a buffer Arrow would hold whole row groups, and of those there may be one.
    options: dict[str, Any] = {"pre_buffer": False, "buffer_size": 1 << 20, "page_checksum_verification": True}
    whole = os.path.abspath(path)  # `file:x` would be taken for an address
    return library("pyarrow.parquet").ParquetFile(whole, **options)


@cache
def _scanned() -> Any:
    """Return a class of tables for DuckDB, whose rows Arrow reads from a file, a batch at a time, when it is asked."""
    arrow = library("pyarrow")
    dataset = library("pyarrow.dataset")

    base: Any = dataset.Dataset

    class Scanned(base):  # type: ignore[misc] # untyped
        def __init__(self, path: Path) -> None:
            self._path = path
            self.columns = _opened(path).schema_arrow

        @property
        def schema(self) -> Any:
            return self.columns

        def scanner(self, columns: Sequence[str] | None = None, **more: Any) -> Any:
            names = self.columns.names if columns is None else list(columns)
            schema = arrow.schema([self.columns.field(name) for name in names])
            wanted = None if any("." in name for name in names) else names  # it would be taken for a nested field
            # Its caller may have the only thread of Arrow: who waits for another would wait for ever.
            rows = _opened(self._path).iter_batches(ROWS, columns=wanted, use_threads=False)
            batches = (batch.select(names) for batch in rows)
            return dataset.Scanner.from_batches(batches, schema=schema, **more)

    return Scanned


class Parquet(FileSource):
    """A Parquet file. Plain columns are read by Arrow alone, which is faster than through DuckDB."""

    _share: float | None = None

    def __init__(self, file: File, connection: Any) -> None:
        name = f"treecal_file_{next(_numbers)}"
        self.name = file.name
        with self.plain_errors():
            connection.register(name, _scanned()(file.path))
        super().__init__(file, connection, name, None)

    def done(self) -> float | None:
        return super().done() if self._share is None else self._share

    def _direct(self, columns: Mapping[str, str]) -> Any:
        """Return the file as Arrow opens it, if Arrow reads these columns as DuckDB does."""
        file = _opened(self.path)
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

    def read_columns(self, file: Any, rows: int, columns: Mapping[str, str]) -> Iterator[Any]:
        """Yield columns in batches, by Arrow."""
        arrow = library("pyarrow")
        seen = 0
        wanted = sorted(set(columns.values()) - set(self.partition))
        for batch in file.iter_batches(rows, columns=wanted):
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
            held = _opened(self.path).metadata.num_rows
        if rows != held:
            raise FileError(f"{self.name} cannot be read: it has {held:,} rows, of which {rows:,} were found.")


def _write(path: Path, name: str, columns: Mapping[str, set[str]], rows: Iterable[dict[str, Any]]) -> None:
    arrow = library("pyarrow")
    left = iter(rows)
    types = {column: _arrow_type(arrow, kinds) for column, kinds in columns.items()}
    schema = arrow.schema(types.items())
    texts = [column for column, kind in types.items() if kind == arrow.string()]
    with library("pyarrow.parquet").ParquetWriter(path, schema) as file:
        while batch := list(islice(left, _BATCH)):
            for row in batch:
                row.update({column: _text(row[column]) for column in texts})
            file.write_table(arrow.Table.from_pylist(batch, schema))


def _arrow_type(arrow: Any, kinds: set[str]) -> Any:
    """Return the type of a column that holds values of these kinds; one of mixed kinds is text."""
    if kinds and kinds <= {"int", "float"}:
        return arrow.int64() if kinds == {"int"} else arrow.float64()
    return {"bool": arrow.bool_(), "list": arrow.list_(arrow.float64())}.get("".join(kinds), arrow.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


PARQUET = Format(
    "parquet",
    "Parquet",
    (".parquet", ".pq"),
    lambda files, connection: [Parquet(file, connection) for file in files],
    _write,
    begins=lambda head: head.startswith(b"PAR1"),
)
