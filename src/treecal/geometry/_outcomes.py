"""Reading one outcome, forecast or start point: as float64 and inside the set, or an error that says what to do.

On a `Cdf` an outcome is a number, and a forecast has one of several forms: see `treecal.geometry._distributions`. An
outcome on a simplex may also be a class: its index (an integer), its name (text) where the classes have names, or
for two classes without names True or False. There a scalar is always a class and a sequence always a point, so that on
`Simplex(1)` the class is `0` and the point `[1.0]`. On other sets of one coordinate a number is a point. An integer is
always an index; one that is also the name of another class is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike, NDArray

from treecal._typing import Array
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.geometry._cdf import Cdf
from treecal.geometry._convex import ROUNDING, TOLERANCE, ConvexSet, frozen
from treecal.geometry._distributions import read_distribution, read_number
from treecal.geometry._pairing import Refusal, by_entry, listed, order_of
from treecal.geometry._sets import SIGNS, Product, Simplex

FLOAT64 = np.dtype(np.float64)
MOST_ROUNDING = 0.1
"""The largest such tolerance: anything farther away is not rounding."""
SAMPLE = 1000
"""Rows of a log that tell to what its probabilities were rounded."""
_SAME = 1e-7  # as float32 has it
_CLEARLY = 1.001  # by that much more, so that rounding cannot matter


def own_point(space: ConvexSet, value: object) -> Array | None:
    """Return a copy of what is already a float64 vector of the set, else None.

    It is copied before it is checked, so that no other writer to the caller's memory comes in between.
    """
    if type(value) is ndarray and value.dtype is FLOAT64 and value.shape == (space.dim,):
        own: Array = value.copy()
        if space.admits(own):
            return own
    return None


def read_outcome(space: ConvexSet, value: Any, round_: int) -> Array:
    """Return the outcome as a float64 vector of the set, in memory of its own.

    It is a point of the set, or on a simplex a class. The error names the 1-based round.

    Examples
    --------
    >>> read_outcome(Simplex(classes=["rain", "snow", "sun"]), "snow", 1)
    array([0., 1., 0.])
    >>> read_outcome(Simplex(2), True, 1)
    array([0., 1.])
    """
    if (own := own_point(space, value)) is not None:
        return own
    if isinstance(space, Simplex) and (at := _class_index(space, value, round_)) is not None:
        outcome = np.zeros(space.dim)
        outcome[at] = 1.0
        return outcome
    if isinstance(space, Cdf) and (number := read_number(space, value, round_)) is not None:
        return space.steps(number)
    return read_point(space, value, round_)


def read_point(space: ConvexSet, value: Any, round_: int) -> Array:
    """Return a point as a float64 vector of the set, in memory of its own; a class is refused."""
    if (own := own_point(space, value)) is not None:
        return own
    point = _coerce(space, value, round_, OutcomeError)
    if space.admits(point):
        return point
    _check_finite(point, round_, OutcomeError)
    hint = f"normalise the outcome, or use Box(0, 1, dim={space.dim})." if isinstance(space, Simplex) else None
    raise OutcomeError.at(round_, f"lies outside {space!r}: {_complaint(space, point)}.", hint=hint)


def rounding(tolerance: float, dim: int) -> float:
    """Return how far from 1 probabilities of `dim` classes may sum, each of which was rounded to the tolerance.

    Each is off by half of it at most. For two classes that is the tolerance itself.

    Examples
    --------
    >>> rounding(0.01, 2), rounding(0.01, 10)
    (0.01, 0.05)
    """
    return tolerance * max(1.0, dim / 2)


def written_to(probabilities: Array) -> float:
    """Return to what probabilities were rounded, as far as these tell: 0.01 to 1e-5 if all are multiples of it.

    Examples
    --------
    >>> written_to(np.array([0.3333, 0.25])), written_to(np.array([0.333333, 0.25])), written_to(np.array([0.5, 0.1]))
    (0.0001, 1e-06, 1e-06)
    """
    p = probabilities[np.abs(probabilities) <= 2]  # others are none
    for digits in range(1, 6):
        if (np.abs(p - np.rint(p * 10**digits) / 10**digits) < _SAME).all():
            return 10.0**-digits if digits > 1 else ROUNDING  # sums of tenths are exact, or are off by a tenth
    return ROUNDING


def valid_forecasts(p: Array, tolerance: float = ROUNDING) -> NDArray[np.bool_]:
    """Return which columns of `p`, of shape `(d, n)`, are probabilities of `d` classes: the one rule for all entrances.

    The entries sum to 1 or more, and their absolute values to 1 or less, within what rounding them to the tolerance may
    change (`rounding`: the tolerance for two classes, d/2 times as much for d): so negative ones, as rounding leaves
    them, are no more than that together. They count as 0 (`without_negatives`). Arrays,
    files (in SQL: `treecal.io.valid_sql`), measures, ledgers, correctors and monitors accept and refuse the same
    forecasts. Ledgers, correctors and monitors divide one that is off by more than `TOLERANCE` by its sum; audits and
    measures do not: they are about the forecasts as they were made.

    Examples
    --------
    >>> valid_forecasts(np.array([[0.2, -0.5, np.nan, 0.5, -1e-12], [0.8, 1.5, 1.0, 0.6, 1.000000000001]]))
    array([ True, False, False, False,  True])
    """
    total = np.zeros(p.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):
        for row in p:  # from left to right, as SQL adds; `np.add.reduce` adds pairwise where there is a single column
            total += row
        size = total
        if (p < 0).any():
            size = np.zeros(p.shape[1])
            for row in p:
                size += np.abs(row)
        within = rounding(tolerance, len(p))
        return np.asarray((total >= 1 - within) & (size <= 1 + within))


def without_negatives(space: ConvexSet, points: Array) -> Array:
    """Return valid forecasts, `(..., d)`, with negative probabilities at 0; without any, the same array.

    Examples
    --------
    >>> without_negatives(Simplex(2), np.array([-1e-12, 1.000000000001]))
    array([0., 1.])
    """
    if isinstance(space, Simplex):
        return np.maximum(points, 0.0) if (points < 0).any() else points
    if isinstance(space, Product) and any(isinstance(part, Simplex | Product) for part in space.sets):
        parts = zip(space.sets, space._split(points), strict=True)
        return np.concatenate([without_negatives(part, own) for part, own in parts], axis=-1)
    return points


def read_forecast(space: ConvexSet, value: Any, round_: int, tolerance: float = ROUNDING) -> Array:
    """Return a point forecast as a float64 vector of the set, in memory of its own.

    A point of the set is returned as it is, bit for bit, but for negative probabilities, which become 0. On a simplex,
    or a part of a product that is one, a point that lies outside by at most `tolerance` was rounded, to float32 or to
    some decimals: it is divided by its sum. Where the classes have names, a dictionary or a series of pandas may give
    the probability of each.

    Examples
    --------
    >>> read_forecast(Simplex(3), [0.3333333, 0.3333333, 0.3333333], 1)
    array([0.33333333, 0.33333333, 0.33333333])
    >>> read_forecast(Simplex(classes=["rain", "sun"]), {"sun": 0.75, "rain": 0.25}, 1)
    array([0.25, 0.75])
    """
    if (own := own_point(space, value)) is not None:
        return own if _has_no_sign(own) else without_negatives(space, own)
    if isinstance(space, Cdf):
        return read_distribution(space, value, round_, tolerance)
    if isinstance(value, Mapping) and isinstance(space, Simplex) and space.classes is not None:
        order = order_of(space.classes, list(value))
        if order is None:
            found = f"has entries for {listed(list(value))}, expected {listed(space.classes)}."
            raise ForecastError.at(round_, found)
        value = [value[name] for name in order]
    point = _coerce(space, value, round_, ForecastError)
    if space.admits(point):
        return without_negatives(space, point)
    with np.errstate(over="ignore", invalid="ignore"):  # of numbers so large that their sum is infinite
        near = _nearest(space, point, tolerance)
        if space.admits(near):
            return near
    _check_finite(point, round_, ForecastError)
    raise _too_far(space, near, tolerance, round_)


def _nearest(space: ConvexSet, point: Array, tolerance: float) -> Array:
    """Return a point outside the set, moved onto it where it was rounded off a simplex by at most the tolerance."""
    if isinstance(space, Product):
        parts = zip(space.sets, space._split(point), strict=True)
        near = (p if part.admits(p) else _nearest(part, p, tolerance) for part, p in parts)
        return without_negatives(space, np.concatenate(list(near)))
    if isinstance(space, Simplex) and valid_forecasts(point[:, None], tolerance).all():
        return renormalised(point)
    return point


def _has_no_sign(point: Array) -> bool:
    """Return whether no entry has a sign bit: faster than comparing them with 0."""
    return point.tobytes()[SIGNS].isascii()


def renormalised(points: Array) -> Array:
    """Return points, `(..., d)`, with negative entries at 0, divided by their sums."""
    positive = np.maximum(points, 0.0)
    # From left to right, so that one row and many are rounded alike.
    return np.asarray(positive / np.add.accumulate(positive, axis=-1)[..., -1:])


def checked_tolerance(value: Any) -> float:
    """Return a tolerance for forecasts, or raise."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= value <= MOST_ROUNDING:
        raise ParameterError.expected("tolerance", value, f"a number from 0 to {MOST_ROUNDING:g}")
    return float(value)


def class_indices(
    space: ConvexSet, raw: NDArray[Any], *, before: int = 0, indices: bool = False
) -> NDArray[Any] | None:
    """Return the class of each row, if the array holds classes: indices, names, or for two True and False.

    None if it holds something else. `before` is the number of earlier rounds, for the error. Integers that may be meant
    as names that are numbers are refused, unless they are known to be `indices`.
    """
    if raw.ndim != 1 or not isinstance(space, Simplex) or not raw.size:
        return None
    kind = raw.dtype.kind
    if kind in "OUT":
        names = raw.tolist()
        if not all(isinstance(name, str) for name in names):
            return None
        index = space._index
        found = [index[name] if name in index else _named(space, name, before + k + 1) for k, name in enumerate(names)]
        return np.array(found, np.int64)
    if kind == "b":
        _boolean(space, raw[0], before + 1)
        return raw.astype(np.int64)
    if kind not in "iu":
        return None
    doubtful = (raw < 0) | (raw >= space.dim) if raw.min() < 0 or raw.max() >= space.dim else None
    if space._digits and not indices:
        other = [k for name, k in space._index.items() if str(k) in space._index and name != str(k)]
        doubtful = np.isin(raw, other) | (False if doubtful is None else doubtful)
    if doubtful is not None and doubtful.any():
        first = int(np.argmax(doubtful))
        _at(space, int(raw[first]), before + first + 1)
    return raw.astype(np.int64, copy=False)


def _class_index(space: Simplex, value: Any, round_: int) -> int | None:
    """Return the index of a class, if the value is a scalar that can be one; unknown classes raise."""
    if type(value) is int:
        return _at(space, value, round_)
    if isinstance(value, str):
        return _named(space, value, round_)
    if isinstance(value, list | tuple | bytes | None) or np.ma.is_masked(value):
        return None
    try:
        raw = np.asarray(value)
    except Exception:  # a foreign object may raise anything; `read_point` reports that it is not a vector
        return None
    if raw.ndim or raw.dtype.kind not in "biuUT":
        return None
    return _class_index(space, raw.item(), round_) if raw.dtype.kind != "b" else _boolean(space, raw, round_)


def _at(space: Simplex, index: int, round_: int) -> int:
    name = str(index)
    meant = space._index.get(name)
    if space.classes is not None and meant is not None and meant != index:
        raise OutcomeError.at(
            round_,
            f"is the integer {index}, and {name!r} is the name of class {meant} of {space!r}.",
            hint=f"pass the name: {name!r}" + (f" or {space.classes[index]!r}." if 0 <= index < space.dim else "."),
        )
    if not 0 <= index < space.dim:
        raise OutcomeError.at(
            round_,
            f"is the class {index}, expected 0 to {space.dim - 1} for {space!r}.",
            hint="the only point of Simplex(1) is [1.0], and its only class 0." if space.dim == 1 else None,
        )
    return index


def _named(space: Simplex, name: str, round_: int) -> int:
    if (at := space._index.get(name)) is not None:
        return at
    if space.classes is None:
        raise OutcomeError.at(
            round_,
            f"is {name!r}, and the classes of {space!r} have no names.",
            hint=f"Simplex(classes=[...]) names them; or pass the index of the class, 0 to {space.dim - 1}.",
        )
    plain = name.strip().lower()
    close = [known for known in space.classes if known.lower() == plain]
    close += difflib.get_close_matches(name, space.classes, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]!r}?" if close else None
    raise OutcomeError.at(round_, f"is {name!r}, expected one of {listed(space.classes)}.", hint=hint)


def _boolean(space: Simplex, value: Any, round_: int) -> int:
    # Of the classes "yes" and "no" True would be the second.
    if space.dim != 2 or space.classes not in (None, ("0", "1")):
        raise OutcomeError.at(
            round_,
            f"is {bool(value)}, expected a class of {space!r}.",
            hint="True and False are the classes 1 and 0 of Simplex(2); elsewhere pass the index or the name.",
        )
    return int(value)


def _check_finite(point: Array, round_: int, error: Refusal) -> None:
    if not np.isfinite(point).all():
        at = int(np.argmin(np.isfinite(point)))
        problem = f"holds {point[at]} at entry {at}, expected finite numbers."
        raise error.at(round_, problem, hint="drop or impute missing values.")


def _too_far(space: ConvexSet, point: Array, tolerance: float, round_: int) -> ForecastError:
    """Return the error of a forecast that lies outside."""
    if not isinstance(space, Simplex):
        return ForecastError.at(round_, f"lies outside {space!r}: {_complaint(space, point)}.")
    within = max(rounding(tolerance, space.dim), TOLERANCE)
    with np.errstate(over="ignore"):
        total = float(point.sum())
        off = max(1 - total, float(np.abs(point).sum()) - 1)
    if point.min() < -within:
        how = f"entry {point.argmin()} is {point.min():.6g}, expected 0 or more, within {within:g}"
    else:
        how = f"entries sum to {total:.10g}, expected 1 within {within:g}"
    hint = "pass probabilities that sum to 1, such as p / p.sum()."
    above = next((10.0**k for k in range(-8, -1) if rounding(10.0**k, space.dim) > off * _CLEARLY), None)
    if above is not None:
        hint = f"if they were rounded, tolerance={above:g} accepts and renormalises them."
    error = ForecastError.at(round_, f"lies outside {space!r} by {off:.3g}: {how}.", hint=hint)
    error.tolerance = above
    return error


def _complaint(space: ConvexSet, point: Array) -> str:
    with np.errstate(over="ignore"):  # of numbers so large that their sum is infinite
        return space.complaint(point)


def _coerce(space: ConvexSet, value: Any, round_: int, error: Refusal) -> Array:
    expected = f"expected {space.dim} real numbers, a point of {space!r}"
    if isinstance(space, Cdf) and not isinstance(value, list | tuple | np.ndarray):
        expected = f"expected a number from {space.low:g} to {space.high:g}"
    if value is None or isinstance(value, str | bytes):
        raise error.at(round_, f"is {value!r}, {expected}.", hint=_no_class(space, value, error))
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise error.at(round_, f"has masked entries, {expected}.", hint="drop or impute missing values.")
    if isinstance(space, Simplex):
        value = by_entry(space.classes, value, error, round_)
    try:
        raw = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as problem:
        raise error.at(round_, f"is not a vector ({problem}), {expected}.") from None
    if raw.ndim == 0 and takes_numbers(space):
        raw = raw[None]
    if raw.shape != (space.dim,):
        found = f"is the scalar {raw[()]!r}" if raw.ndim == 0 else f"has shape {raw.shape}"
        raise error.at(round_, f"{found}, {expected}.", hint=_no_class(space, raw[()], error) if not raw.ndim else None)
    if raw.dtype.kind not in "biuf":
        kinds = sorted({type(entry).__name__ for entry in raw.tolist()})
        too_large = raw.dtype == object and kinds == ["int"]
        what = "an integer too large for float64" if too_large else f"values of type {', '.join(kinds)}"
        raise error.at(round_, f"holds {what}, {expected}.")
    with np.errstate(over="ignore"):
        return raw.astype(np.float64)


def takes_numbers(space: ConvexSet) -> bool:
    """Return whether a bare number is a point of the set: of one coordinate, where it cannot be a class."""
    return space.dim == 1 and not isinstance(space, Simplex | Cdf)


def _no_class(space: ConvexSet, value: Any, error: Refusal) -> str | None:
    """Return a hint for a scalar that is not read as a class."""
    if not isinstance(space, Simplex) or value is None:
        return None
    if error is ForecastError:
        return "a forecast is the probability of each class: of a classifier predict_proba, not predict."
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return f"for a class pass its index as an integer: {int(value)}." if whole else None


def checked_start(space: ConvexSet, start: ArrayLike | None) -> Array:
    """Return the start point as a read-only vector: by default the centre."""
    point = frozen(space._point("start", start))
    if not space.admits(point):
        raise ParameterError(f"start lies outside {space!r}: {space.complaint(point)}.")
    return point
