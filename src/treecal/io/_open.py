"""The ways in for rows of any kind: a file, a pipe, a table in memory or a DuckDB relation becomes a source."""

from __future__ import annotations

import os
import shutil
import weakref
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from treecal.exceptions import FileError, ParameterError
from treecal.io._duckdb import close, connect, library, spill_folder
from treecal.io._formats import FORMATS
from treecal.io._paths import common_format, find_files, is_paths, several_name
from treecal.io._scan import Files
from treecal.io._source import LOG, Source, sentence

_HEAD = 1 << 16


def open_source(
    source: Any,
    *,
    kind: str | None = None,
    memory_limit: str = "1GB",
    temp_directory: str | os.PathLike[str] | None = None,
    decimal: str = ".",
    day_first: str | None = None,
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
        Format of a file: "csv", "jsonl" or "parquet"; by default from its name.
    memory_limit
        Memory that DuckDB may use before it spills to disk. (A relation has its own connection's.)
    temp_directory
        Folder for the spill; by default a temporary one, removed at the end.
    decimal
        The decimal mark of numbers that are text: "." or ",".
    day_first
        A column of times that are text and begin with the day, as 31.01.2026 or 31/01/2026 12:00.

    Examples
    --------
    >>> import numpy as np
    >>> rows = open_source({"p": np.array([[0.2, 0.8]]), "label": np.array(["sun"])})
    >>> rows.types
    {'p': 'DOUBLE[2]', 'label': 'VARCHAR'}
    """
    if decimal not in (".", ","):
        raise ParameterError.expected("decimal", decimal, "a point or a comma")
    if isinstance(source, Source):
        return source
    if isinstance(source, library("duckdb").DuckDBPyRelation):
        return Source("the relation", lambda sql: source.query(LOG, sql))
    folder = spill_folder(temp_directory)
    connection = None
    try:
        if isinstance(source, str | os.PathLike) or is_paths(source):
            files = find_files(source)
            found = common_format(files, kind)
            connection = connect(memory_limit, folder, [file.path for file in files])
            opened: Source
            opened, *more = found.sources(files, connection)
            if more or opened.partition:
                opened = Files(several_name(source, files), [opened, *more], connection)
        else:
            name, table = _as_arrow(source)
            connection = connect(memory_limit, folder, [])
            opened = Source(name, connection.sql, connection, table=_for_duckdb(name, table))
    except OSError as error:
        close(connection, folder)
        raise FileError(f"{source} cannot be read: {error.strerror}.") from None
    except BaseException:
        close(connection, folder)
        raise
    weakref.finalize(opened, close, connection, folder)
    opened.decimal = decimal
    if day_first is not None:
        opened.check([day_first])
        opened.day_first = day_first
    return opened


@contextmanager
def open_stream(
    stream: BinaryIO,
    name: str,
    *,
    kind: str | None = None,
    memory_limit: str = "1GB",
    decimal: str = ".",
    day_first: str | None = None,
) -> Iterator[Source]:
    """Open what a stream holds, by default of the format that its first bytes tell; the options are `open_source`'s.

    It is kept in a file until the end: a log is read more than once, and a pipe can be read only once.
    """
    with TemporaryDirectory(prefix="treecal-") as folder:
        path, found = _spool(stream, Path(folder), name)
        if kind not in (None, found):
            raise FileError(f"{name} is {FORMATS[found].name}, expected {FORMATS[kind].name}.")
        source = open_source(path, kind=found, memory_limit=memory_limit, decimal=decimal, day_first=day_first)
        source.name = name
        yield source


def _as_arrow(source: Any) -> tuple[str, Any]:
    """Return a name for the table, and the table."""
    arrow = library("pyarrow")
    if (found := arrays_of(source)) is not None:
        name, arrays = found
        return name, _table(arrow, arrays)
    narwhals = library("narwhals")
    try:
        return "the table", narwhals.from_native(source).lazy().collect().to_arrow()
    except TypeError:
        raise ParameterError(
            f"the source is a {type(source).__name__}, expected a path, a table, an array or a DuckDB relation."
        ) from None
    except arrow.ArrowException as error:
        raise FileError(f"the table has a column of mixed types: {sentence(error)}") from None


def arrays_of(source: Any) -> tuple[str, dict[str, NDArray[Any]]] | None:
    """Return a name for an array or a mapping of arrays, and its columns, of equal lengths; None for anything else.

    Examples
    --------
    >>> arrays_of(np.eye(2))
    ('the array', {'0': array([1., 0.]), '1': array([0., 1.])})
    """
    if isinstance(source, np.ndarray):
        if source.ndim not in (1, 2):
            raise ParameterError(f"the array has shape {source.shape}, expected one or two dimensions.")
        name, names = "the array", source.dtype.names
        columns = (
            {name: source[name] for name in names}
            if names
            else {str(k): column for k, column in enumerate(source.reshape(len(source), -1).T)}
        )
    elif isinstance(source, Mapping):
        name, columns = "the mapping", {str(name): np.asarray(column) for name, column in source.items()}
    else:
        return None
    shapes = {name: column.shape for name, column in columns.items()}
    if len({shape[:1] for shape in shapes.values()}) != 1 or not all(1 <= len(shape) <= 2 for shape in shapes.values()):
        raise ParameterError(f"the columns have the shapes {shapes}, expected one or two dimensions and equal lengths.")
    return name, columns


def _table(arrow: Any, columns: Mapping[str, NDArray[Any]]) -> Any:
    made = {}
    for name, column in columns.items():
        try:
            flat = arrow.array(np.ascontiguousarray(column).ravel())
        except arrow.ArrowException as error:
            what = "has mixed types" if column.dtype == object else f"holds {column.dtype} values"
            raise FileError(f"column {name!r} {what}: {sentence(error)}") from None
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


def _spool(stream: BinaryIO, folder: Path, name: str) -> tuple[Path, str]:
    """Write what a stream holds to a file in this folder; return the file, and its kind. Texts may also be gzipped."""
    head = stream.read(_HEAD)
    if not head:
        raise FileError(f"{name} is empty.")
    gzipped = head.startswith(b"\x1f\x8b")
    begin = _begin(head) if gzipped else head
    able = (each for each in FORMATS.values() if each.lines is not None or not gzipped)
    found = next((each for each in able if each.begins is not None and each.begins(begin)), FORMATS["csv"])
    path = folder / f"{name}{'.gz' * gzipped}"  # as messages call it
    with path.open("wb") as file:
        file.write(head)
        shutil.copyfileobj(stream, file)
    return path, found.kind


def _begin(head: bytes) -> bytes:
    """Return the beginning of a gzipped text; nothing where it is damaged, as its reader will say."""
    try:
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, _HEAD)
    except zlib.error:
        return b""
