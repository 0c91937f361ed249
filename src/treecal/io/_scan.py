"""A file as DuckDB scans it: a function of SQL, its options, and what the names of its folders add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treecal.exceptions import FileError
from treecal.io._blocks import is_gzip
from treecal.io._duckdb import identifier, literal_path, quoted
from treecal.io._paths import File
from treecal.io._source import LOG, Source


class FileSource(Source):
    """A file that DuckDB scans.

    Parameters
    ----------
    file
        The file.
    connection
        DuckDB's.
    function, options
        The function that scans it, and its options.

    Attributes
    ----------
    shape
        All but the path: files of the same shape can be scanned together.
    """

    def __init__(self, file: File, connection: Any, function: str, options: Mapping[str, str]) -> None:
        self.path, name, self.partition = file
        given = {**options, "hive_partitioning": "false"}  # a folder named `p=0.9` is a folder, unless we say otherwise
        if function != "read_parquet":  # DuckDB would tell from the name, but not from one with a question mark
            given["compression"] = quoted("gzip" if is_gzip(self.path.name) else "none")
        self.shape = function, tuple(given.items()), tuple(self.partition.items())
        # So several files can share a connection, in which the same name stands for all of them.
        rows = f"WITH {LOG} AS NOT MATERIALIZED ({scan([self])})"
        super().__init__(name, lambda sql: connection.sql(f"{rows} {sql}"), connection)
        own = [column.lower() for column in self.types][: -len(self.partition) or None]
        if twice := next((column for column in self.partition if column.lower() in own), None):
            raise FileError(f"{name} has a column {twice!r}, and so has its folder.", hint="rename one of them.")


def scan(files: Sequence[FileSource], columns: Sequence[str] = ()) -> str:
    """Return SQL for the rows of files of the same shape, with these columns; by default all."""
    function, options, partition = files[0].shape
    paths = ", ".join(quoted(literal_path(file.path)) for file in files)
    # Parquet files may each have columns that others lack; text files of one shape have the same.
    more = [("union_by_name", "true")] * (len(files) > 1 and function == "read_parquet")
    given = ", ".join([f"[{paths}]", *(f"{name}={value}" for name, value in (*options, *more))])
    values = ((name, "NULL" if value is None else quoted(value)) for name, value in partition)
    added = {name: f"CAST({value} AS VARCHAR) AS {identifier(name)}" for name, value in values}
    chosen = [added.get(name, identifier(name)) for name in columns] or ["*", *added.values()]
    return f"SELECT {', '.join(chosen)} FROM {function}({given})"
