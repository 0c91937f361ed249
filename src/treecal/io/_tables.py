"""Tables in memory as Arrow tables of types that DuckDB has: data frames, arrays, mappings of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal.exceptions import FileError, ParameterError
from treecal.io._duckdb import library
from treecal.io._source import sentence


def as_arrow(source: Any) -> tuple[str, Any]:
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


def for_duckdb(name: str, table: Any) -> Any:
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
