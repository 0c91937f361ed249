"""Sums that keep what rounding would drop, and arguments that are what they say."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal.exceptions import ParameterError

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return `a + b` rounded, and exactly what the rounding lost (Knuth's error-free addition).

    Examples
    --------
    >>> total, lost = two_sum(np.float64(1.0), np.float64(1e-20))
    >>> float(total), float(lost)
    (1.0, 1e-20)
    """
    total = a + b
    b_seen = total - a
    return total, (a - (total - b_seen)) + (b - b_seen)


def whole_number(name: str, value: Any, *, least: int) -> int:
    """Return `value` as a Python int of at least `least`, or say what is wrong with it.

    Examples
    --------
    >>> whole_number("arity", np.int32(8), least=2)
    8
    """
    try:
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise ParameterError.expected(name, value, f"a whole number of {least} or more")
    return number


def finite_array(name: str, value: Any, *, ndim: int | None = None) -> Array:
    """Return `value` as a read-only float64 copy with only finite entries, or say what is wrong with it."""
    try:
        raw = np.asarray(value)
    except ValueError as error:  # ragged nesting
        raise ParameterError(f"{name} is not an array of numbers: {error}") from None
    if raw.dtype.kind not in "biuf":
        raise ParameterError(f"{name} holds {raw.dtype} values, expected real numbers.")
    with np.errstate(over="ignore"):
        array = np.array(raw, dtype=np.float64)
    if ndim is not None and array.ndim != ndim:
        raise ParameterError(f"{name} has shape {array.shape}, expected {ndim} dimension{'s' * (ndim != 1)}.")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise ParameterError(f"{name} holds {array[tuple(where)]} at {where}, expected finite numbers.")
    array.setflags(write=False)
    return array


def group_rows(rows: Labels) -> tuple[Labels, Labels]:
    """Return where each distinct row first appears, and for each row the number of the group it belongs to.

    Groups are numbered as they appear. Rows are sorted by a hash of 64 bits, and then compared in full.

    Examples
    --------
    >>> group_rows(np.array([[5, 1], [2, 2], [5, 1]]))
    (array([0, 1]), array([0, 1, 0]))
    """
    code = np.full(len(rows), 0x9E3779B97F4A7C15, np.uint64)
    for column in rows.view(np.uint64).T:
        code = (code ^ column) * np.uint64(0xFF51AFD7ED558CCD)
        code ^= code >> np.uint64(32)
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    if not np.array_equal(rows[first[group]], rows):  # two rows of one hash: rare beyond hope, but not impossible
        _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[group]
