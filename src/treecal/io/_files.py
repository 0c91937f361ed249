"""Files that DuckDB scans: CSV, JSON lines and Parquet, each checked for what its reader would leave out."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from treecal.exceptions import FileError
from treecal.io._blocks import LINE, is_gzip, open_lines, read_blocks
from treecal.io._checksums import has_checksums
from treecal.io._decoder import Decoder
from treecal.io._duckdb import identifier, library, literal_path, quoted
from treecal.io._records import csv_count, json_count
from treecal.io._source import ROWS, Source
from treecal.io._text import (
    FORMATS,
    Kind,
    Place,
    Record,
    Row,
    by_column,
    csv_header,
    csv_records,
    is_utf8,
    json_columns,
    json_rows,
)

_PLAIN = {"double", "float", "string", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}
"""Arrow types whose values are the same in DuckDB."""


class _File(Source):
    """A file that DuckDB scans."""

    def __init__(self, path: Path, connection: Any, function: str, **options: str) -> None:
        self._path = path
        super().__init__(path.name, connection.sql, connection, scan=_scan(function, path, options))


class _Csv(_File):
    """A CSV file. DuckDB leaves malformed rows out of the answer and lists them in a table."""

    _rejected: set[int] | None = None

    def __init__(self, path: Path, connection: Any) -> None:
        with open_lines(path) as lines:
            self._header = header = csv_header(lines, path.name)
        self._count = self._counted(path) if is_gzip(path.name) else 0  # gzip is checked before DuckDB believes it
        options = {"auto_detect": "false", "header": "true", "store_rejects": "true", "quote": "'\"'", "escape": "'\"'"}
        options |= {"max_line_size": f"{LINE + 2}", "buffer_size": f"{2 * LINE + 4}"}
        columns = _columns_of(header.names, "VARCHAR")
        super().__init__(path, connection, "read_csv", delim=quoted(header.delimiter), columns=columns, **options)

    def cell(self, name: str) -> str:
        return f"NULLIF(TRIM({identifier(name)}), '')"

    def invalid(self, records: Sequence[int], decoder: Decoder | None = None) -> Iterator[tuple[Place, str]]:
        wanted, whole, rejected = set(records), 0, self._rejected
        left = set(rejected or ())
        if not wanted and not left:
            return
        for number, place, cells, problem, _ in self._records():
            lost = problem is not None if rejected is None else number in rejected
            whole, text = whole + (not lost), "".join(cells)
            left.discard(number)
            # Before the end it is unknown which rows were lost because they are not in UTF-8.
            if lost or whole in wanted or (rejected is None and not text.isascii()):
                row = Row(place, by_column(self._header.names, cells), problem)
                why = row.problem or (decoder and decoder.complaint(row.value))
                if why or (lost and rejected is not None):
                    yield place, why or ("it is not valid CSV." if is_utf8(text) else "it is not text in UTF-8.")
            if (not wanted or whole >= records[-1]) and (rejected is None or not left):
                return
        for number in sorted(left):  # where DuckDB counts other records than we do
            yield Place(number - 1, None), "it is not valid CSV."

    def batches(self, sql: str, *, rows: int, columns: Mapping[str, str] | None = None) -> Generator[Any]:
        self._rejected = None
        with suppress(library("duckdb").CatalogException):  # there is no such table before the first query
            self._connection.execute("DELETE FROM reject_errors")
        yield from super().batches(sql, rows=rows)
        self._rejected = {line for (line,) in self._connection.execute("SELECT line FROM reject_errors").fetchall()}

    def check_complete(self, rows: int, *, columns: Sequence[str], valid: int) -> None:
        read = rows + len(self._rejected or ())
        if read != (self._count or self._counted(self._path)):
            held = sum(1 for _ in self._records())  # slower, and exact wherever quotes are
            if read != held:
                raise FileError(
                    f"{self.name} cannot be read: it has {held:,} records, of which {read:,} were found.",
                    hint="not all of it is valid CSV; a quote may be missing.",
                )

    def _records(self) -> Iterator[Record]:
        with open_lines(self._path) as lines:
            csv_header(lines, self.name)
            yield from csv_records(lines, self._header, self.name)

    def _counted(self, path: Path) -> int:
        names, delimiter, _ = self._header
        return (csv_count(read_blocks(path), delimiter, blank_lines=len(names) == 1) or 0) - 1


class _Json(_File):
    """A file of JSON lines."""

    def __init__(self, path: Path, connection: Any) -> None:
        names = json_columns(path)
        if is_gzip(path.name):  # it is checked before DuckDB believes it
            deque(read_blocks(path), maxlen=0)
        options = {"format": "'newline_delimited'", "ignore_errors": "true", "maximum_object_size": f"{LINE + 2}"}
        columns = _columns_of(names or ["outcome"], "JSON")
        self._whole = {**options, "records": "false", "columns": _columns_of(["line"], "JSON")}
        super().__init__(path, connection, "read_json", columns=columns, records=f"{names is not None}", **options)

    def key(self, name: str) -> str:
        return f"NULLIF({identifier(name)} ->> '$', '')"  # text without its quotes, as in CSV

    def rows(self, columns: Sequence[str] = ()) -> Iterator[Row]:
        with open_lines(self._path) as lines:
            yield from json_rows(lines)

    def check_complete(self, rows: int, *, columns: Sequence[str], valid: int) -> None:
        lines, named = json_count(read_blocks(self._path), columns)
        if rows != lines:
            held = sum(1 for _ in self.rows())  # without blank lines
            if rows != held:
                raise FileError(f"{self.name} cannot be read: it has {held:,} rows, of which {rows:,} were found.")
        # Where each valid row has each key once, and there are no more of them, no row has a key twice.
        if named is None or named > valid:
            keys = f"SELECT DISTINCT json_keys(line) AS keys FROM {_scan('read_json', self._path, self._whole)}"
            if self.one(f"SELECT 1 FROM ({keys}) WHERE len(keys) > len(list_distinct(keys)) LIMIT 1") is not None:
                for row in self.rows():
                    if row.problem is not None and row.problem.endswith("twice."):
                        raise FileError.at(self.name, *row.place, row.problem)


class _Parquet(_File):
    """A Parquet file. Plain columns are read by Arrow, which is faster than through DuckDB."""

    _share: float | None = None

    def __init__(self, path: Path, connection: Any) -> None:
        super().__init__(path, connection, "read_parquet")

    def done(self) -> float | None:
        return super().done() if self._share is None else self._share

    def _reader(self, sql: str, rows: int, columns: Mapping[str, str] | None) -> Iterator[Any]:
        self._share = None
        if columns is not None:
            file = self._opened()
            kinds = dict(zip(file.schema_arrow.names, map(str, file.schema_arrow.types), strict=True))
            plain = all(kinds.get(name) in _PLAIN and "." not in name for name in columns.values())
            # Arrow reads a dot as a nested field, and DuckDB renames columns that differ only in case.
            if plain and list(kinds) == list(self.types):
                return self._columns(file, rows, columns)
        return super()._reader(sql, rows, columns)

    def _opened(self) -> Any:
        # Without a buffer Arrow would hold whole row groups, and of those there may be one.
        options: dict[str, Any] = {"pre_buffer": False, "buffer_size": 1 << 20, "page_checksum_verification": True}
        path = os.path.abspath(self._path)  # `file:x` would be taken for an address
        return library("pyarrow.parquet").ParquetFile(path, **options)

    def _columns(self, file: Any, rows: int, columns: Mapping[str, str]) -> Iterator[Any]:
        record_batch, seen = library("pyarrow").record_batch, 0
        wanted = sorted(set(columns.values()))
        for batch in file.iter_batches(rows, columns=wanted, use_threads=False):  # the other core is busy
            seen += batch.num_rows
            self._share = seen / max(seen, file.metadata.num_rows)
            batch.validate(full=True)  # text that is not UTF-8
            yield record_batch([batch.column(name) for name in columns.values()], names=list(columns))

    def check_complete(self, rows: int, *, columns: Sequence[str], valid: int) -> None:
        with self._plain_errors():
            file = self._opened()
            held = file.metadata.num_rows
            if rows != held:
                raise FileError(f"{self.name} cannot be read: it has {held:,} rows, of which {rows:,} were found.")
            if self._share is None and has_checksums(
                self._path, file.metadata
            ):  # DuckDB, which has read it, checks none
                wanted = None if any("." in name for name in columns) else list(columns)
                deque(file.iter_batches(ROWS, columns=wanted), maxlen=0)


def check_file(path: Path) -> None:
    """Raise an error unless the path is a file."""
    try:
        there, folder = path.exists(), path.is_dir()
    except OSError as error:  # a name that is too long, for example
        raise FileError(f"{path} cannot be read: {error.strerror}.") from None
    if not there:
        raise FileError(f"there is no file {path}.")
    if folder:
        raise FileError(f"{path} is a folder, expected a file.")


def file_class(path: Path, kind: Kind | None) -> type[_Csv | _Json | _Parquet]:
    """Return the class for a file of this kind, which must be there and not empty."""
    check_file(path)
    if kind is None:
        raise FileError(
            f"the format of {path} is unknown: its name does not tell.", hint=f"{FORMATS}; text also with .gz."
        )
    if path.stat().st_size == 0:
        raise FileError(f"{path.name} is empty.")
    try:
        os.path.abspath(path).encode()
    except UnicodeEncodeError:
        raise FileError(f"the name of {path} is not in UTF-8.", hint="rename the file.") from None
    classes: dict[Kind, type[_Csv | _Json | _Parquet]] = {"csv": _Csv, "jsonl": _Json, "parquet": _Parquet}
    return classes[kind]


def _scan(function: str, path: Path, options: Mapping[str, str]) -> str:
    """Return SQL for the rows of a file."""
    given = {**options, "hive_partitioning": "false"}  # a folder named `p=0.9` is a folder, not a column
    if function != "read_parquet":  # DuckDB would tell from the name, but not from one with a question mark
        given["compression"] = quoted("gzip" if is_gzip(path.name) else "none")
    return (
        f"{function}({', '.join([quoted(literal_path(path)), *(f'{name}={value}' for name, value in given.items())])})"
    )


def _columns_of(names: Sequence[str], kind: str) -> str:
    """Return columns of one type as DuckDB's readers take them."""
    return f"{{{', '.join(f'{quoted(name)}: {quoted(kind)}' for name in names)}}}"
