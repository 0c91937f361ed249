"""Sources of rows: a file, a table in memory or a DuckDB relation, each queried by SQL as the table `LOG`."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from treecal._optional import require
from treecal.exceptions import FileError, ParameterError
from treecal.io._decoder import Decoder
from treecal.io._text import (
    Kind,
    Place,
    Row,
    by_column,
    csv_header,
    csv_records,
    json_columns,
    json_rows,
    kind_of,
    not_csv,
    not_gzip,
    open_lines,
)

LOG = "treecal_log"
"""The name of the table in SQL."""

_TICK = 0.1
_AHEAD = 3  # batches fetched in advance
_ROWS = 4096  # in a batch where rows are read one by one
_PLAIN = {"double", "float", "string", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}
"""Arrow types whose values are the same in DuckDB."""


def library(name: str) -> Any:
    """Import a library for files and tables."""
    return require(name, extra="files", what="reading files and tables")


class Source:
    """Rows that SQL can query.

    Attributes
    ----------
    name
        Its name in messages.
    types
        The columns and their DuckDB types, in order.
    watch
        Called every now and then while an answer is awaited.
    """

    watch: Callable[[], None] | None = None

    def __init__(self, name: str, query: Callable[[str], Any], connection: Any = None, *, scan: str = "") -> None:
        self.name = name
        self._query, self._connection = query, connection
        with self._plain_errors():
            if scan:
                connection.execute(f"CREATE VIEW {LOG} AS SELECT * FROM {scan}")
            described = query(f"SELECT * FROM {LOG} LIMIT 0")
        self.types: dict[str, str] = dict(zip(described.columns, map(str, described.types), strict=True))

    def batches(self, sql: str, *, rows: int, columns: Mapping[str, str] | None = None) -> Generator[Any]:
        """Yield the answer as Arrow batches of up to `rows` rows, in order; one query at a time.

        Where the query only renames columns, `columns` maps the new names to the old ones.
        """
        with self._plain_errors(), ThreadPoolExecutor(1) as fetcher:
            try:
                reader = fetcher.submit(self._reader, sql, rows, columns)
                batches = self._wait(reader)
                coming = deque(fetcher.submit(next, batches, None) for _ in range(_AHEAD))
                while (batch := self._wait(coming.popleft())) is not None:
                    coming.append(fetcher.submit(next, batches, None))
                    yield batch
            except BaseException:  # Ctrl-C, or the generator is closed
                fetcher.shutdown(wait=False, cancel_futures=True)
                if self._connection is not None:
                    self._connection.interrupt()
                raise

    def _reader(self, sql: str, rows: int, columns: Mapping[str, str] | None) -> Iterator[Any]:
        return iter(self._query(sql).to_arrow_reader(rows))

    def _wait(self, coming: Future[Any]) -> Any:
        # Fetched in another thread, so that a long wait can be watched, and interrupted by Ctrl-C.
        while True:
            try:
                return coming.result(timeout=_TICK)
            except TimeoutError:
                if self.watch is not None:
                    self.watch()

    def one(self, sql: str) -> tuple[Any, ...] | None:
        """Return the only row of an answer, or None."""
        with self._plain_errors():
            rows = self._query(sql).fetchall()
        return rows[0] if rows else None

    def done(self) -> float | None:
        """Return how much of the running query is done, from 0 to 1, if that is known."""
        percent = -1.0 if self._connection is None else self._connection.query_progress()
        return None if percent < 0 else min(percent / 100, 1.0)

    def cell(self, name: str) -> str:
        """Return SQL for the cells of a column, NULL where they are empty."""
        return identifier(name)

    def rows(self, columns: Sequence[str] = ()) -> Iterator[Row]:
        """Yield the rows one by one, with these columns; by default all."""
        row, chosen = 0, ", ".join(map(identifier, columns)) or "*"
        for batch in self.batches(f"SELECT {chosen} FROM {LOG}", rows=_ROWS):
            for value in batch.to_pylist():
                row += 1
                yield Row(Place(row, None), value)

    def invalid(self, records: Sequence[int], decoder: Decoder | None = None) -> Iterator[tuple[Place, str]]:
        """Read the invalid rows with these numbers again, and yield the place of each and what is wrong with it.

        Malformed text, which has no such number, is reported as well: all of it once the last row has been read, and
        before that only what precedes the last of these rows.
        """
        if records and decoder is not None:
            wanted = set(records)
            for row in islice(self.rows(decoder.columns), records[-1]):
                if row.place.row in wanted and (why := row.problem or decoder.complaint(row.value)):
                    yield row.place, why

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Turn errors of DuckDB and Arrow into ours."""
        duckdb, arrow = library("duckdb"), library("pyarrow")
        try:
            yield
        except (duckdb.Error, arrow.ArrowException, OSError) as error:  # Arrow passes DuckDB's errors on as OSError
            if "Interrupted" in str(error):
                raise KeyboardInterrupt from None
            raise _plain(self.name, error) from None


class _File(Source):
    """A file that DuckDB scans."""

    def __init__(self, path: Path, connection: Any, function: str, **options: str) -> None:
        self._path = path
        arguments = [_quoted(path), *(f"{name}={value}" for name, value in options.items())]
        super().__init__(path.name, connection.sql, connection, scan=f"{function}({', '.join(arguments)})")


class _Csv(_File):
    """A CSV file. DuckDB leaves malformed rows out of the answer and lists them in a table."""

    _rejected: set[int] | None = None

    def __init__(self, path: Path, connection: Any) -> None:
        with open_lines(path) as lines:
            self._header = header = csv_header(lines, path.name)
        options = {"auto_detect": "false", "header": "true", "store_rejects": "true", "quote": "'\"'", "escape": "'\"'"}
        columns = _columns_of(header.names, "VARCHAR")
        super().__init__(path, connection, "read_csv", delim=_quoted(header.delimiter), columns=columns, **options)

    def cell(self, name: str) -> str:
        return f"NULLIF(TRIM({identifier(name)}), '')"

    def invalid(self, records: Sequence[int], decoder: Decoder | None = None) -> Iterator[tuple[Place, str]]:
        wanted, whole, torn, rejected = set(records), 0, 0, self._rejected
        if not wanted and not rejected:
            return
        with open_lines(self._path) as lines:
            csv_header(lines, self.name)
            for number, place, cells, problem in csv_records(lines, self._header, self.name):
                lost = problem is not None if rejected is None else number in rejected
                whole, torn = whole + (not lost), torn + lost
                # Before the end it is unknown which rows were lost because they are not in UTF-8.
                if lost or whole in wanted or (rejected is None and not "".join(cells).isascii()):
                    row = Row(place, by_column(self._header.names, cells), problem)
                    if why := row.problem or (decoder and decoder.complaint(row.value)):
                        yield place, why
                if (not wanted or whole >= records[-1]) and (rejected is None or torn == len(rejected)):
                    return

    def batches(self, sql: str, *, rows: int, columns: Mapping[str, str] | None = None) -> Generator[Any]:
        self._rejected = None
        with suppress(library("duckdb").CatalogException):  # there is no such table before the first query
            self._connection.execute("DELETE FROM reject_errors")
        yield from super().batches(sql, rows=rows)
        self._rejected = {line for (line,) in self._connection.execute("SELECT line FROM reject_errors").fetchall()}


class _Json(_File):
    """A file of JSON lines."""

    def __init__(self, path: Path, connection: Any) -> None:
        names = json_columns(path)
        options = {"format": "'newline_delimited'", "records": f"{names is not None}", "ignore_errors": "true"}
        super().__init__(path, connection, "read_json", columns=_columns_of(names or ["outcome"], "JSON"), **options)

    def rows(self, columns: Sequence[str] = ()) -> Iterator[Row]:
        with open_lines(self._path) as lines:
            yield from json_rows(lines)


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
            # Without a buffer Arrow would hold whole row groups, and of those there may be one.
            file = library("pyarrow.parquet").ParquetFile(self._path, pre_buffer=False, buffer_size=1 << 20)
            kinds = dict(zip(file.schema_arrow.names, map(str, file.schema_arrow.types), strict=True))
            plain = all(kinds.get(name) in _PLAIN and "." not in name for name in columns.values())
            # Arrow reads a dot as a nested field, and DuckDB renames columns that differ only in case.
            if plain and list(kinds) == list(self.types):
                return self._columns(file, rows, columns)
        return super()._reader(sql, rows, columns)

    def _columns(self, file: Any, rows: int, columns: Mapping[str, str]) -> Iterator[Any]:
        record_batch, seen = library("pyarrow").record_batch, 0
        wanted = sorted(set(columns.values()))
        for batch in file.iter_batches(rows, columns=wanted, use_threads=False):  # the other core is busy
            seen += batch.num_rows
            self._share = seen / file.metadata.num_rows
            batch.validate(full=True)  # text that is not UTF-8
            yield record_batch([batch.column(name) for name in columns.values()], names=list(columns))


def open_source(
    source: Any,
    *,
    kind: Kind | None = None,
    memory_limit: str = "1GB",
    temp_directory: str | os.PathLike[str] | None = None,
) -> Source:
    """Open a file, a table, an array or a relation.

    Parameters
    ----------
    source
        A path to a CSV, Parquet or JSON lines file (text also as `.gz`); a pandas, Polars or Arrow table, or any other
        that narwhals supports; a DuckDB relation; a NumPy array, whose columns are named "0", "1", …; or a mapping from
        names to arrays, where an array of two dimensions is a column of lists.
    kind
        Format of a file; by default from its name.
    memory_limit
        Memory that DuckDB may use before it spills to disk. (A relation has its own connection's.)
    temp_directory
        Folder for the spill; by default a temporary one, removed at the end.

    Examples
    --------
    >>> rows = open_source({"p": np.array([[0.2, 0.8]]), "label": np.array(["sun"])})
    >>> rows.types
    {'p': 'DOUBLE[2]', 'label': 'VARCHAR'}
    """
    if isinstance(source, Source):
        return source
    duckdb = library("duckdb")
    if isinstance(source, duckdb.DuckDBPyRelation):
        return Source("the relation", lambda sql: source.query(LOG, sql))
    connection = _connect(duckdb, memory_limit, temp_directory)
    if isinstance(source, str | os.PathLike):
        return _open_file(Path(source), connection, kind or kind_of(source))
    name, table = _as_arrow(source)
    connection.register(LOG, table)
    return Source(name, connection.sql, connection)


def check_file(path: Path) -> None:
    """Raise an error unless the path is a file."""
    if not path.exists():
        raise FileError(f"there is no file {path}.")
    if path.is_dir():
        raise FileError(f"{path} is a folder, expected a file.")


def _open_file(path: Path, connection: Any, kind: Kind | None) -> Source:
    check_file(path)
    if kind is None:
        raise FileError(
            f"the format of {path} is unknown, expected .csv, .tsv, .parquet or .jsonl, text also with .gz.",
            hint="rename the file.",
        )
    if path.stat().st_size == 0:
        raise FileError(f"{path.name} is empty.")
    return {"csv": _Csv, "jsonl": _Json, "parquet": _Parquet}[kind](path, connection)


def _columns_of(names: Sequence[str], kind: str) -> str:
    """Return columns of one type as DuckDB's readers take them."""
    return f"{{{', '.join(f'{_quoted(name)}: {_quoted(kind)}' for name in names)}}}"


def _connect(duckdb: Any, memory_limit: str, temp_directory: str | os.PathLike[str] | None) -> Any:
    # DuckDB creates the folder when needed, and removes it with the connection.
    where = temp_directory or Path(tempfile.gettempdir(), f"treecal-{secrets.token_hex(6)}")
    try:
        connection = duckdb.connect(config={"memory_limit": memory_limit, "temp_directory": str(where)})
    except duckdb.Error:
        raise ParameterError.expected("memory_limit", memory_limit, "an amount of memory such as '1GB'") from None
    connection.execute("SET enable_progress_bar = true")
    connection.execute("SET enable_progress_bar_print = false")
    connection.execute("SET streaming_buffer_size = '64MB'")  # so that reading continues while a batch is processed
    return connection


def _as_arrow(source: Any) -> tuple[str, Any]:
    """Return a name for the table, and the table."""
    arrow = library("pyarrow")
    if isinstance(source, np.ndarray):
        if source.ndim not in (1, 2):
            raise ParameterError(f"the array has shape {source.shape}, expected one or two dimensions.")
        if named := source.dtype.names:
            return "the array", _table(arrow, {name: source[name] for name in named})
        return "the array", _table(arrow, {str(k): c for k, c in enumerate(source.reshape(len(source), -1).T)})
    if isinstance(source, Mapping):
        return "the mapping", _table(arrow, {str(name): np.asarray(column) for name, column in source.items()})
    narwhals = library("narwhals")
    try:
        return "the table", narwhals.from_native(source).lazy().collect().to_arrow()
    except TypeError:
        raise ParameterError(
            f"the source is a {type(source).__name__}, expected a path, a table, an array or a DuckDB relation."
        ) from None
    except arrow.ArrowException as error:
        raise FileError(f"the table has a column of mixed types: {_sentence(error)}") from None


def _table(arrow: Any, columns: dict[str, Any]) -> Any:
    shapes = {name: column.shape for name, column in columns.items()}
    if len({shape[:1] for shape in shapes.values()}) != 1 or not all(1 <= len(shape) <= 2 for shape in shapes.values()):
        raise ParameterError(f"the columns have the shapes {shapes}, expected one or two dimensions and equal lengths.")
    made = {}
    for name, column in columns.items():
        try:
            flat = arrow.array(np.ascontiguousarray(column).ravel())
        except arrow.ArrowException as error:
            raise FileError(f"column {name!r} has mixed types: {_sentence(error)}") from None
        made[name] = flat if column.ndim == 1 else arrow.FixedSizeListArray.from_arrays(flat, column.shape[1])
    return arrow.table(made)


def _quoted(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return the name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _sentence(error: BaseException) -> str:
    """Return the first line of a library's message, without its class name."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return re.sub(r"^[\w ]+ Error: ", "", lines[0]).rstrip(".") + "."


def _plain(name: str, error: BaseException) -> FileError:
    """Return our error for one of DuckDB or Arrow."""
    text, hint = str(error), None
    if "state machine reached an invalid state" in text:
        return not_csv(name)
    if "gzip" in text.lower():
        return not_gzip(name)
    if "magic bytes" in text or "corrupt" in text.lower() or "too small to be a Parquet" in text:
        hint = "it is not a Parquet file, or it is truncated or damaged."
    if "Out of Memory" in text:
        hint = "raise memory_limit, for example to '4GB', or choose a temp_directory with more room."
    return FileError(f"{name} cannot be read: {_sentence(error)}", hint=hint)
