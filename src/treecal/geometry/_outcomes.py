"""Reading one outcome or start point: as float64 and inside the set, or an error that says what to do."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.geometry._convex import ConvexSet, frozen
from treecal.geometry._sets import Simplex

FLOAT64 = np.dtype(np.float64)
Refusal = type[OutcomeError] | type[ForecastError]


def is_outcome(value: object, space: ConvexSet) -> TypeGuard[Array]:
    """Return whether this is already a float64 vector of the set."""
    return type(value) is ndarray and value.dtype is FLOAT64 and value.shape == (space.dim,) and space.admits(value)


def read_outcome(space: ConvexSet, value: Any, round_: int, *, error: Refusal = OutcomeError) -> Array:
    """Return the outcome as a float64 vector of the set; it may be the caller's own array, so copy it to keep it.

    The error names the 1-based round. Point forecasts are read by the same rules, with `error=ForecastError`.
    """
    if is_outcome(value, space):
        return value
    outcome = _coerce(space, value, round_, error)
    if space.admits(outcome):
        return outcome
    if not np.isfinite(outcome).all():
        at = int(np.argmin(np.isfinite(outcome)))
        problem = f"holds {outcome[at]} at entry {at}, expected finite numbers."
        raise error.at(round_, problem, hint="drop or impute missing values.")
    hint = f"normalise the {error.what}, or use Box(0, 1, dim={space.dim})." if isinstance(space, Simplex) else None
    with np.errstate(over="ignore"):  # of numbers so large that their sum is infinite
        problem = f"lies outside {space!r}: {space.complaint(outcome)}."
    raise error.at(round_, problem, hint=hint)


def _coerce(space: ConvexSet, value: Any, round_: int, error: Refusal) -> Array:
    expected = f"expected {space.dim} real numbers, a point of {space!r}"
    if value is None or isinstance(value, str | bytes):
        raise error.at(round_, f"is {value!r}, {expected}.")
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise error.at(round_, f"has masked entries, {expected}.", hint="drop or impute missing values.")
    try:
        raw = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as problem:
        raise error.at(round_, f"is not a vector ({problem}), {expected}.") from None
    if raw.shape != (space.dim,):
        of_class = isinstance(space, Simplex) and raw.ndim == 0 and raw.dtype.kind in "iu"
        hint = f"for a class index k pass numpy.eye({space.dim})[k]." if of_class else None
        found = f"is the scalar {raw[()]!r}" if raw.ndim == 0 else f"has shape {raw.shape}"
        raise error.at(round_, f"{found}, {expected}.", hint=hint)
    if raw.dtype.kind not in "biuf":
        kinds = sorted({type(entry).__name__ for entry in raw.tolist()})
        too_large = raw.dtype == object and kinds == ["int"]
        what = "an integer too large for float64" if too_large else f"values of type {', '.join(kinds)}"
        raise error.at(round_, f"holds {what}, {expected}.")
    with np.errstate(over="ignore"):
        return raw.astype(np.float64)


def checked_start(space: ConvexSet, start: ArrayLike | None) -> Array:
    """Return the start point as a read-only vector: by default the centre."""
    point = frozen(space._point("start", start))
    if not space.admits(point):
        raise ParameterError(f"start lies outside {space!r}: {space.complaint(point)}.")
    return point
