"""The way in for rows of any kind: a file, a table in memory or a DuckDB relation becomes a source."""

from __future__ import annotations

import os
import weakref
from typing import Any

from treecal.exceptions import FileError
from treecal.io._duckdb import close, connect, library, spill_folder
from treecal.io._files import common_kind, open_files
from treecal.io._paths import find_files, is_paths, several_name
from treecal.io._several import Files
from treecal.io._source import LOG, Source
from treecal.io._tables import as_arrow, for_duckdb
from treecal.io._text import Kind


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
        A path to a CSV, Parquet or JSON lines file (text also as `.gz`), to a folder of such files, a pattern that
        matches some, or a list of all of these; a pandas, Polars or Arrow table, or any other
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
    >>> import numpy as np
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
        if isinstance(source, str | os.PathLike) or is_paths(source):
            files = find_files(source)
            kind = common_kind(files, kind)
            connection = connect(memory_limit, folder, [file.path for file in files])
            opened: Source
            opened, *more = open_files(files, kind, connection)
            if more or opened.partition:
                opened = Files(several_name(source, files), [opened, *more], connection)
        else:
            name, table = as_arrow(source)
            connection = connect(memory_limit, folder, [])
            opened = Source(name, connection.sql, connection, table=for_duckdb(name, table))
    except OSError as error:
        close(connection, folder)
        raise FileError(f"{source} cannot be read: {error.strerror}.") from None
    except BaseException:
        close(connection, folder)
        raise
    weakref.finalize(opened, close, connection, folder)
    return opened
