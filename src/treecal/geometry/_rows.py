"""Reading many outcomes or forecasts at once: the rows that reading them one by one gives, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array
from treecal.exceptions import ForecastError, OutcomeError
from treecal.geometry._cdf import Cdf
from treecal.geometry._convex import LARGEST, ROUNDING, TOLERANCE, ConvexSet
from treecal.geometry._distributions import read_distributions, read_numbers
from treecal.geometry._outcomes import (
    class_indices,
    read_forecast,
    read_outcome,
    renormalised,
    rounding,
    takes_numbers,
    without_negatives,
)
from treecal.geometry._pairing import Refusal, by_column, is_series
from treecal.geometry._sets import Simplex

_EDGE = 1e-2
"""Sums that are this near to a tolerance, in proportion to it, may be rounded to either side of it."""
_Read = Callable[[ConvexSet, Any, int], Array]


def read_outcome_rows(space: ConvexSet, values: Any, *, before: int = 0) -> Array:
    """Return outcomes as float64 rows of the set, `(n, d)`: an array of our own, so that it stays what was checked.

    They are points, `(n, d)`, or on a simplex classes, `(n,)`, as `read_outcome` takes them; of a table the columns
    named like the classes, in any order. The error names the first round that is invalid, after `before` earlier ones.

    Examples
    --------
    >>> read_outcome_rows(Simplex(classes=["rain", "sun"]), ["sun", "rain"])
    array([[0., 1.],
           [1., 0.]])
    """
    values = by_column(_classes(space), values, OutcomeError)
    raw = _as_array(space, values)
    if raw is not None and (at := class_indices(space, raw, before=before)) is not None:
        rows = np.zeros((len(at), space.dim))
        rows[np.arange(len(at)), at] = 1.0
        return rows
    kind = "points of shape (n, {}), or the classes" if isinstance(space, Simplex) else "points of shape (n, {})"
    if isinstance(space, Cdf):
        if raw is not None and raw.ndim == 1 and raw.dtype.kind in "iuf":
            return space.steps(read_numbers(space, raw, before))
        kind = "numbers"
    return _read(space, values, raw, before, read_outcome, OutcomeError, kind.format(space.dim))


def read_forecast_rows(space: ConvexSet, values: Any, *, before: int = 0, tolerance: float = ROUNDING) -> Array:
    """Return point forecasts as float64 rows of the set, `(n, d)`: an array of our own, which stays what was checked.

    Each is read as `read_forecast` reads it, with the same tolerance; of a table the columns named like the classes.

    Examples
    --------
    >>> read_forecast_rows(Simplex(3), [[0.2, 0.3, 0.5], [0.333333, 0.333333, 0.333333]]).sum(axis=1)
    array([1., 1.])
    """

    def read(space: ConvexSet, value: Any, round_: int) -> Array:
        return read_forecast(space, value, round_, tolerance)

    if isinstance(space, Cdf):
        return read_distributions(space, values, before=before, tolerance=tolerance)
    values = by_column(_classes(space), values, ForecastError)
    raw = _as_array(space, values)
    if raw is not None and isinstance(space, Simplex) and _are_rows(space, raw):
        off = _inside(space, raw, rounding(tolerance, space.dim) * (1 - _EDGE)) & ~_inside(
            space, raw, TOLERANCE * (1 + _EDGE)
        )
        if off.any():
            raw[off] = renormalised(raw[off])
    found = _read(space, values, raw, before, read, ForecastError, f"points of shape (n, {space.dim})")
    return without_negatives(space, found)


def _classes(space: ConvexSet) -> tuple[str, ...] | None:
    return space.classes if isinstance(space, Simplex) else None


def _as_array(space: ConvexSet, values: Any) -> NDArray[Any] | None:
    """Return the values as an array, unless they are ragged, entries are masked, or rows have names of their own.

    Rows are float64 and our own: the caller's may change between a check and the use of what was checked.
    """
    listed = isinstance(values, list | tuple)
    if np.ma.is_masked(values) or (listed and any(np.ma.is_masked(each) or is_series(each) for each in values)):
        return None
    try:
        raw = as_column(space, unmixed(values, np.asarray(values)))
    except (ValueError, TypeError, OverflowError):
        return None
    if not _are_rows(space, raw):
        return raw
    with np.errstate(over="ignore"):
        return np.array(raw, np.float64, order="C")


def unmixed(values: Any, raw: NDArray[Any]) -> NDArray[Any]:
    """Return the array of the values; where NumPy turned some into text or integers, one of the values as they are."""
    if raw.ndim == 1 and isinstance(values, list | tuple) and raw.dtype.kind in "iuUT":
        kinds = set(map(type, values))
        if len(kinds) > 1 and kinds & {str, np.str_, bool, np.bool_}:
            return np.array(values, object)
    return raw


def as_column(space: ConvexSet, raw: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as rows of one coordinate, where they are points of the set; any other array as it is.

    Examples
    --------
    >>> from treecal.geometry import Box
    >>> as_column(Box(0, 500), np.array([12.5, 80.0]))
    array([[12.5],
           [80. ]])
    """
    return raw[:, None] if raw.ndim == 1 and raw.dtype.kind in "biuf" and takes_numbers(space) else raw


def _are_rows(space: ConvexSet, raw: NDArray[Any]) -> bool:
    return raw.ndim == 2 and raw.shape[1] == space.dim and raw.dtype.kind in "biuf"


def _inside(space: ConvexSet, rows: Array, tolerance: float) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(space.contains(rows, tol=tolerance) & (np.abs(rows).max(axis=1, initial=0.0) <= LARGEST))


def _read(
    space: ConvexSet, values: Any, raw: NDArray[Any] | None, before: int, read: _Read, error: Refusal, expected: str
) -> Array:
    """Return the rows; those that do not surely lie in the set are read one by one, which may raise."""
    if raw is not None and _are_rows(space, raw):
        for at in np.flatnonzero(~_inside(space, raw, TOLERANCE * (1 - _EDGE))):
            raw[at] = read(space, raw[at].copy(), before + int(at) + 1)
        return raw
    if raw is not None and raw.shape == (0,):
        return np.empty((0, space.dim))
    if raw is None or raw.dtype.kind in "OUT":
        masked = isinstance(values, np.ma.MaskedArray)
        listed = values if isinstance(values, list | tuple) else list(values) if masked or raw is not None else []
        if listed and isinstance(listed, list | tuple):
            return np.array([read(space, value, before + k + 1) for k, value in enumerate(listed)])
    what = "not an array" if raw is None else f"{raw.dtype} of shape {raw.shape}"
    found = f"{error.what}s from round {before + 1} on are {what}, expected {expected}."
    raise error(found, hint=_no_classes(space, raw, error))


def _no_classes(space: ConvexSet, raw: NDArray[Any] | None, error: Refusal) -> str | None:
    """Return a hint for numbers that are not read as classes."""
    if not isinstance(space, Simplex) or raw is None or raw.ndim != 1 or raw.dtype.kind not in "biuf":
        return None
    if error is ForecastError:
        return "a forecast is the probability of each class: of a classifier predict_proba, not predict."
    if not np.isfinite(raw).all():
        return "drop or impute missing values; then pass the classes as integers, y.astype(int)."
    return "for classes pass their indices as integers: y.astype(int)." if not (raw % 1).any() else None
