"""Reading many outcomes at once, as float64 rows of the set or as classes; errors name the round."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal._compile import unlocked
from treecal._platform import parts, side_by_side
from treecal._typing import Array, Outcomes
from treecal.exceptions import OutcomeError
from treecal.forecasters import first_off_simplex
from treecal.geometry import (
    LARGEST,
    TOLERANCE,
    Cdf,
    ConvexSet,
    Simplex,
    as_column,
    by_column,
    class_indices,
    read_numbers,
    read_outcome,
    unmixed,
)

_ROWS = (np.dtype("f8"), np.dtype("f4"))
_CLASSES = (np.dtype("i8"), np.dtype("i4"), np.dtype("u1"))


def read_outcomes(space: ConvexSet, values: Any, *, before: int = 0, threads: int | None = 1) -> Outcomes:
    """Return outcomes as kernels take them: rows in the caller's own array if that fits, not to be written to.

    Classes are copied before they are checked, because kernels find their way by them. Rows are only added up: what
    another thread writes to them after the check makes a wrong number, and no more.

    `before` is the number of earlier rounds, for the error; `threads` is as in `first_refused`.
    """
    rows = as_float_or_class(space, as_array(space, values, before=before), before=before)
    if rows.ndim == 2 and (bad := first_refused(space, rows, threads)) is not None:
        refuse(space, rows[bad], before + bad + 1)
    return rows


def as_array(space: ConvexSet, values: Any, *, before: int = 0) -> NDArray[Any]:
    """Return the values as an array of numbers of the right shape, not yet read: a memory map stays on its disk."""
    if isinstance(space, Simplex):
        values = by_column(space.classes, values, OutcomeError)
    if type(values).__module__.partition(".")[0] == "pyarrow":
        values = _from_arrow(values, space.dim, before)
    try:
        raw = values if isinstance(values, np.ndarray) else unmixed(values, np.asarray(values))
    except (ValueError, TypeError, OverflowError):
        raw = np.empty(0, object)
    if raw.size == 0 and raw.ndim == 1 and raw.dtype != object:
        raw = np.empty((0, space.dim))
    raw = as_column(space, raw)
    if raw.dtype.kind in "bOUT" and not np.ma.is_masked(raw):
        names = class_indices(space, raw, before=before)
        if names is not None:
            return names
    kinds = "iu" if isinstance(space, Simplex) else "iuf" if isinstance(space, Cdf) else ""
    classes = raw.ndim == 1 and raw.dtype.kind in kinds
    rows = raw.ndim == 2 and raw.shape[1] == space.dim and raw.dtype.kind in "biuf"
    listed = isinstance(values, list | tuple)
    hidden = listed and any(isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in values)
    if (classes or rows) and not (hidden or np.ma.is_masked(raw)):
        return raw
    if classes:
        missing = int(np.argmax(np.ma.getmaskarray(raw)))
        raise OutcomeError.at(before + missing + 1, "is missing, expected a class.", hint="drop or impute it.")
    for index, row in enumerate(values if listed else raw if raw.ndim == 2 else ()):
        read_outcome(space, row, before + index + 1)
    kind = ", or classes of shape (n,), their indices or names" if isinstance(space, Simplex) else ""
    kind = " or (n,)" if isinstance(space, Cdf) else kind
    raise OutcomeError(
        f"outcomes from round {before + 1} on are {raw.dtype} of shape {raw.shape}, expected numbers of shape "
        f"(n, {space.dim}){kind}."
    )


def as_float_or_class(space: ConvexSet, raw: NDArray[Any], before: int) -> Outcomes:
    """Return the array as kernels take it: float64 rows, not yet checked against the set, or classes that exist."""
    if raw.ndim == 2:
        with np.errstate(over="ignore"):  # infinite values are refused later
            return np.ascontiguousarray(raw, dtype=np.float64)
    if isinstance(space, Cdf):
        return space.steps(read_numbers(space, raw, before))
    own = np.array(raw, order="C")
    found = class_indices(space, own, before=before, indices=True)
    return np.asarray(own if found is None else found, dtype=np.int64)


def as_leaves(raw: NDArray[Any]) -> NDArray[Any]:
    """Return rows or classes as the kernels of a replay take them, not yet checked; some types are not converted."""
    kinds = _ROWS if raw.ndim == 2 else _CLASSES
    with np.errstate(over="ignore"):  # infinite values are refused later
        leaves = np.require(raw, raw.dtype if raw.dtype in kinds else kinds[0], ["C", "A", "E"])
    return unlocked(leaves)


def first_refused(space: ConvexSet, rows: Outcomes, threads: int | None = 1) -> int | None:
    """Return the first row that is not a point of the set, if any; threads, None for all processors, share the rows."""
    if isinstance(space, Simplex):

        def first(part: tuple[int, int]) -> int | None:
            bad = int(first_off_simplex(rows[slice(*part)], TOLERANCE))
            return None if bad < 0 else part[0] + bad

        found = side_by_side(first, parts(len(rows), len(rows), threads))
        return next((bad for bad in found if bad is not None), None)
    with np.errstate(invalid="ignore"):
        inside = space.contains(rows) & (np.abs(rows).max(axis=1, initial=0.0) <= LARGEST)
    return None if inside.all() else int(np.argmin(inside))


def refuse(space: ConvexSet, row: Array, round_: int) -> None:
    """Raise what a forecaster would raise for this outcome."""
    row = np.array(row)
    read_outcome(space, row, round_)
    if row.ndim == 0:
        raise OutcomeError.at(round_, "changed while it was read.", hint="do not write to outcomes meanwhile.")
    raise OutcomeError.at(round_, f"lies outside {space!r}, within rounding: {space.complaint(row)}.")


def _from_arrow(values: Any, dim: int, before: int) -> Any:
    """Return Arrow data as NumPy's: a batch or table has a column for each coordinate, an array one class a row."""
    columns = getattr(values, "columns", None)
    if columns is not None and (len(columns) != 1 or dim == 1):
        return np.column_stack([np.asarray(column) for column in columns])
    array = values if columns is None else columns[0]
    array = array.combine_chunks() if hasattr(array, "combine_chunks") else array
    null = array.is_null().to_numpy(zero_copy_only=False)
    if null.any():  # flatten would skip it, and the rounds of later errors would be wrong
        raise OutcomeError.at(before + int(null.argmax()) + 1, "is null.", hint="drop or impute missing values.")
    if hasattr(array.type, "list_size"):
        return array.flatten().to_numpy(zero_copy_only=False).reshape(-1, array.type.list_size)
    return array.to_numpy(zero_copy_only=False)
