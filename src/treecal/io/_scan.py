"""Files as DuckDB scans them: a function of SQL, its options, and what the names of folders add; several as one.

Several are asked together where the order is of no account, else one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from treecal.exceptions import FileError
from treecal.io._duckdb import identifier, literal_path, quoted
from treecal.io._source import LOG, Source
from treecal.io._text import Row, is_gzip


class File(NamedTuple):
    """A file: its path, its name in messages, and the columns that its folders are named after, as `day=2026-01-31`.

    Examples
    --------
    >>> File(Path("logs/day=2026-01-31/a.csv"), "a.csv", {"day": "2026-01-31"}).partition
    {'day': '2026-01-31'}
    """

    path: Path
    name: str
    partition: dict[str, str | None]


class FileSource(Source):
    r"""A file that DuckDB scans.

    Parameters
    ----------
    file
        The file.
    connection
        DuckDB's.
    function, options
        The function that scans it, and its options; or the name of a table that is registered, without any.

    Attributes
    ----------
    shape
        All but the path: files of the same shape can be scanned together.

    Examples
    --------
    >>> import duckdb, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "days.csv")
    ...     _ = path.write_text("day,outcome\nmonday,rain\n", encoding="utf-8")
    ...     source = FileSource(File(path, "days.csv", {}), duckdb.connect(), "read_csv", {"header": "true"})
    ...     source.shape[0], list(source.types)
    ('read_csv', ['day', 'outcome'])
    """

    def __init__(self, file: File, connection: Any, function: str, options: Mapping[str, str] | None) -> None:
        self.path, name, self.partition = file
        given = None
        if options is not None:
            # A folder named `p=0.9` is a folder, unless we say otherwise. DuckDB would tell from the name what is
            # compressed, but not from one with a question mark.
            more = {"hive_partitioning": "false", "compression": quoted("gzip" if is_gzip(self.path.name) else "none")}
            given = tuple({**options, **more}.items())
        self.shape = function, given, tuple(self.partition.items())
        # So several files can share a connection, in which the same name stands for all of them.
        rows = f"WITH {LOG} AS NOT MATERIALIZED ({scan([self])})"
        super().__init__(name, lambda sql: connection.sql(f"{rows} {sql}"), connection)
        own = [column.lower() for column in self.types][: -len(self.partition) or None]
        if twice := next((column for column in self.partition if column.lower() in own), None):
            raise FileError(f"{name} has a column {twice!r}, and so has its folder.", hint="rename one of them.")


def scan(files: Sequence[FileSource], columns: Sequence[str] = ()) -> str:
    """Return SQL for the rows of files of the same shape, with these columns; by default all."""
    function, options, partition = files[0].shape
    if options is not None:
        paths = ", ".join(quoted(literal_path(file.path)) for file in files)
        function = f"{function}({', '.join([f'[{paths}]', *(f'{name}={value}' for name, value in options)])})"
    values = ((name, "NULL" if value is None else quoted(value)) for name, value in partition)
    added = {name: f"CAST({value} AS VARCHAR) AS {identifier(name)}" for name, value in values}
    chosen = [added.get(name, identifier(name)) for name in columns] or ["*", *added.values()]
    return f"SELECT {', '.join(chosen)} FROM {function}"


class Files(Source):
    """Several files of one format.

    Its columns are those that all of them have, with the same type; to ask for another is an error that names a file.
    """

    def __init__(self, name: str, files: Sequence[FileSource], connection: Any) -> None:
        self._files = files
        self._current: int | None = None
        self._apart: dict[str, str] = {}
        first = files[0]
        for file in files[1:]:
            for column in first.types | file.types:
                if first.types.get(column) != file.types.get(column):
                    self._apart.setdefault(column, _difference(column, first, file))
        columns = [column for column in first.types if column not in self._apart]
        if not columns:
            raise _mixed(next(iter(self._apart.values())))
        alike = defaultdict(list)
        for file in files:
            alike[file.shape].append(file)
        together = " UNION ALL ".join(scan(each, columns) for each in alike.values())
        super().__init__(name, connection.sql, connection, scan=f"({together})")
        self._sizes = [file.path.stat().st_size for file in files]

    def parts(self) -> Iterator[Source]:
        try:
            for number, file in enumerate(self._files):
                self._current = number
                file.watch = self.watch
                yield file
        finally:
            self._current = None

    def check(self, names: Sequence[str], *, remedy: str | None = None) -> None:
        for name in names:
            if name in self._apart:
                raise _mixed(self._apart[name])
        super().check(names, remedy=remedy)

    def done(self) -> float | None:
        if self._current is None:
            return super().done()
        *before, own = self._sizes[: self._current + 1]
        return (sum(before) + (self._files[self._current].done() or 0.0) * own) / max(1, sum(self._sizes))

    def cell(self, name: str) -> str:
        return self._files[0].cell(name)

    def key(self, name: str) -> str:
        return self._files[0].key(name)

    def rows(self, columns: Sequence[str] = ()) -> Iterator[Row]:
        for file in self.parts():
            yield from file.rows(columns)


def _difference(column: str, one: FileSource, other: FileSource) -> str:
    if column in one.types and column in other.types:
        kinds = f"{one.types[column]} values in {one.name}, but {other.types[column]} values in {other.name}"
        return f"column {column!r} holds {kinds}."
    lacking, having = (one, other) if column not in one.types else (other, one)
    return f"{lacking.name} has no column {column!r}, as {having.name} has."


def _mixed(difference: str) -> FileError:
    return FileError(difference, hint="all files must have the columns that are read, with values of one type.")
