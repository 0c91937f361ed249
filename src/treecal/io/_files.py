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
from treecal.io._decoder import Decoder
from treecal.io._duckdb import identifier, library, quoted
from treecal.io._parquet import Parquet
from treecal.io._paths import File
from treecal.io._records import csv_count, json_count
from treecal.io._scan import FileSource
from treecal.io._source import LOG
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
    kind_of,
)

_NAMES: dict[Kind, str] = {"csv": "CSV", "jsonl": "JSON lines", "parquet": "Parquet"}


class _Csv(FileSource):
    """A CSV file. DuckDB leaves malformed rows out of the answer and lists them in a table."""

    _rejected: set[int] | None = None

    def __init__(self, file: File, connection: Any) -> None:
        with open_lines(file.path) as lines:
            self._header = header = csv_header(lines, file.name)
        gzipped = is_gzip(file.path.name)
        self._count = self._counted(file.path) if gzipped else 0  # it is checked before DuckDB believes it
        options = {"auto_detect": "false", "header": "true", "store_rejects": "true", "quote": "'\"'", "escape": "'\"'"}
        options |= {"max_line_size": f"{LINE + 2}", "buffer_size": f"{2 * LINE + 4}"}
        options |= {"delim": quoted(header.delimiter), "columns": _columns_of(header.names, "VARCHAR")}
        super().__init__(file, connection, "read_csv", options)

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
                row = Row(place, by_column(self._header.names, cells) | self.partition, problem)
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
        if read != (self._count or self._counted(self.path)):
            held = sum(1 for _ in self._records())  # slower, and exact wherever quotes are
            if read != held:
                raise FileError(
                    f"{self.name} cannot be read: it has {held:,} records, of which {read:,} were found.",
                    hint="not all of it is valid CSV; a quote may be missing.",
                )

    def _records(self) -> Iterator[Record]:
        with open_lines(self.path) as lines:
            csv_header(lines, self.name)
            yield from csv_records(lines, self._header, self.name)

    def _counted(self, path: Path) -> int:
        names, delimiter, _ = self._header
        return (csv_count(read_blocks(path), delimiter, blank_lines=len(names) == 1) or 0) - 1


class _Json(FileSource):
    """A file of JSON lines."""

    def __init__(self, file: File, connection: Any, *, names: Sequence[str] | None) -> None:
        if is_gzip(file.path.name):  # it is checked before DuckDB believes it
            deque(read_blocks(file.path), maxlen=0)
        options = {"format": "'newline_delimited'", "ignore_errors": "true", "maximum_object_size": f"{LINE + 2}"}
        self._lines = options
        options = {"columns": _columns_of(names or ["outcome"], "JSON"), "records": f"{names is not None}", **options}
        super().__init__(file, connection, "read_json", options)

    def key(self, name: str) -> str:
        if name in self.partition:
            return identifier(name)
        return f"NULLIF({identifier(name)} ->> '$', '')"  # text without its quotes, as in CSV

    def rows(self, columns: Sequence[str] = ()) -> Iterator[Row]:
        with open_lines(self.path) as lines:
            for row in json_rows(lines):
                yield row._replace(value=row.value | self.partition) if isinstance(row.value, dict) else row

    def check_complete(self, rows: int, *, columns: Sequence[str], valid: int) -> None:
        lines, named = json_count(read_blocks(self.path), columns)
        if rows != lines:
            held = sum(1 for _ in self.rows())  # without blank lines
            if rows != held:
                raise FileError(f"{self.name} cannot be read: it has {held:,} rows, of which {rows:,} were found.")
        # Where each valid row has each key once, and there are no more of them, no row has a key twice.
        if named is None or named > valid:
            options = {"records": "false", "columns": _columns_of(["line"], "JSON"), **self._lines}
            whole = FileSource(File(self.path, self.name, {}), self._connection, "read_json", options)
            keys = f"SELECT DISTINCT json_keys(line) AS keys FROM {LOG}"
            if whole.one(f"SELECT 1 FROM ({keys}) WHERE len(keys) > len(list_distinct(keys)) LIMIT 1") is not None:
                for row in self.rows():
                    if row.problem is not None and row.problem.endswith("twice."):
                        raise FileError.at(self.name, *row.place, row.problem)


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


def common_kind(files: Sequence[File], kind: Kind | None) -> Kind:
    """Return the format of files, which must be there and not empty; by default their names tell it."""
    first, found = files[0], kind or _kind(files[0])
    for file in files:
        own = kind or _kind(file)
        if own != found:
            raise FileError(
                f"{first.name} is {_NAMES[found]} and {file.name} is {_NAMES[own]}, expected files of one format.",
                hint="read them one by one, or convert some of them.",
            )
        _check(file)
    return found


def open_files(files: Sequence[File], kind: Kind, connection: Any) -> list[FileSource]:
    """Return the sources of files of one format."""
    if kind == "parquet":
        return [Parquet(file, connection) for file in files]
    if kind == "csv":
        return [_Csv(file, connection) for file in files]
    keys = [json_columns(file.path) for file in files]
    every = list(dict.fromkeys(name for names in keys for name in names or ()))  # missing where a file has no such key
    return [
        _Json(file, connection, names=None if names is None else every) for file, names in zip(files, keys, strict=True)
    ]


def _kind(file: File) -> Kind:
    check_file(file.path)
    kind = kind_of(file.path)
    if kind is None:
        raise FileError(
            f"the format of {file.path} is unknown: its name does not tell.", hint=f"{FORMATS}; text also with .gz."
        )
    return kind


def _check(file: File) -> None:
    """Raise an error unless the file is there, not empty, and has a name that DuckDB can be told."""
    check_file(file.path)
    if file.path.stat().st_size == 0:
        raise FileError(f"{file.name} is empty.")
    try:
        os.path.abspath(file.path).encode()
    except UnicodeEncodeError:
        raise FileError(f"the name of {file.path} is not in UTF-8.", hint="rename the file.") from None


def _columns_of(names: Sequence[str], kind: str) -> str:
    """Return columns of one type as DuckDB's readers take them."""
    return f"{{{', '.join(f'{quoted(name)}: {quoted(kind)}' for name in names)}}}"
