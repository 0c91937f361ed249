"""Sources of rows: a file, a table in memory or a DuckDB relation, each queried by SQL as the table `LOG`."""

from __future__ import annotations

import os
import re
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from treecal.exceptions import FileError, ParameterError, TreeCalError
from treecal.io._blocks import LINE, is_gzip, not_gzip, open_lines, read_blocks
from treecal.io._checksums import has_checksums
from treecal.io._decoder import Decoder
from treecal.io._duckdb import close, connect, identifier, library, literal_path, quoted, spill_folder
from treecal.io._records import csv_count, json_count
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
    not_csv,
)

LOG = "treecal_log"
"""The name of the table in SQL."""

_TICK = 0.1
_AHEAD = 3  # batches fetched in advance
_ROWS = 4096  # in a batch where rows are read one by one
_PLAIN = {"double", "float", "string", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}
"""Arrow types whose values are the same in DuckDB."""


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

    def __init__(
        self, name: str, query: Callable[[str], Any], connection: Any = None, *, scan: str = "", table: Any = None
    ) -> None:
        self.name = name
        self._query, self._connection = query, connection
        with self._plain_errors():
            if scan:
                connection.execute(f"CREATE VIEW {LOG} AS SELECT * FROM {scan}")
            if table is not None:
                connection.register(LOG, table)
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

    def key(self, name: str) -> str:
        """Return SQL for the cells of a column to group rows by: NaN is missing, and -0.0 is 0.0."""
        cell = self.cell(name)
        if self.types[name] not in ("FLOAT", "DOUBLE"):
            return cell
        return f"CASE WHEN isnan({cell}) THEN NULL WHEN {cell} = 0 THEN 0 ELSE {cell} END"

    def rows(self, columns: Sequence[str] = ()) -> Iterator[Row]:
        """Yield the rows one by one, with these columns; by default all."""
        row, chosen = 0, ", ".join(map(identifier, columns)) or "*"
        for batch in self.batches(f"SELECT {chosen} FROM {LOG}", rows=_ROWS):
            with self._plain_errors():
                values = batch.to_pylist()
            for value in values:
                row += 1
                yield Row(Place(row, None), value)

    def check_complete(self, rows: int, *, columns: Sequence[str], valid: int) -> None:
        """Raise an error unless these many rows are all that the source holds.

        Asked once these columns of all rows were read, of which so many were `valid`. It also looks for damage to them
        that readers overlook.
        """

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
        # Arrow passes DuckDB's errors on as OSError; both raise the others where names or values are damaged.
        damage = (OSError, RuntimeError, UnicodeError, OverflowError, MemoryError)
        try:
            yield
        except TreeCalError:
            raise
        except (duckdb.Error, arrow.ArrowException, *damage) as error:
            if "Interrupted" in str(error):
                raise KeyboardInterrupt from None
            raise _plain(self.name, error) from None


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
                deque(file.iter_batches(_ROWS, columns=wanted), maxlen=0)


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
    if isinstance(source, library("duckdb").DuckDBPyRelation):
        return Source("the relation", lambda sql: source.query(LOG, sql))
    folder, connection = spill_folder(temp_directory), None
    try:
        if isinstance(source, str | os.PathLike):
            path = Path(source)
            chosen = _file_class(path, kind or kind_of(path))
            connection = connect(memory_limit, folder, path)
            opened: Source = chosen(path, connection)
        else:
            name, table = _as_arrow(source)
            connection = connect(memory_limit, folder, None)
            opened = Source(name, connection.sql, connection, table=_for_duckdb(name, table))
    except OSError as error:
        close(connection, folder)
        raise FileError(f"{source} cannot be read: {error.strerror}.") from None
    except BaseException:
        close(connection, folder)
        raise
    weakref.finalize(opened, close, connection, folder)
    return opened


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


def _file_class(path: Path, kind: Kind | None) -> type[_Csv | _Json | _Parquet]:
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
            what = "has mixed types" if column.dtype == object else f"holds {column.dtype} values"
            raise FileError(f"column {name!r} {what}: {_sentence(error)}") from None
        made[name] = flat if column.ndim == 1 else arrow.FixedSizeListArray.from_arrays(flat, column.shape[1])
    return arrow.table(made)


def _for_duckdb(name: str, table: Any) -> Any:
    """Return the table with numbers of types that DuckDB has."""
    arrow = library("pyarrow")
    for k, field in enumerate(table.schema):
        kind = field.type
        if arrow.types.is_decimal256(kind):
            raise FileError(
                f"column {field.name!r} of {name} holds {kind} values, of more digits than can be read.",
                hint="convert it to float64.",
            )
        single = arrow.types.is_float16(kind) and arrow.float32()
        if arrow.types.is_fixed_size_list(kind) and arrow.types.is_float16(kind.value_type):
            single = arrow.list_(arrow.float32(), kind.list_size)
        if single:
            table = table.set_column(k, field.name, table.column(k).cast(single))
    return table


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
