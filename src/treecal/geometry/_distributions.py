"""Reading forecasts of a number as distribution functions: one rule for every form in which people have them.

- **Quantiles by level**: `{0.1: 80, 0.5: 120, 0.9: 200}`, or with names such as `q10`, `p90`, `0.5`. Between two of
  them the function is linear. Beyond the outer ones it is exponential, with the slope that it has between the outer
  two; where these are equal, nothing lies beyond. A single quantile says nothing of the slope: the function is then
  linear to both ends. Quantiles that cross are sorted, with a warning.
- **Members of an ensemble, or samples**: `{"members": [...]}`. Each has the same weight. Missing ones, NaN, are left
  out, with a warning.
- **Mean and standard deviation**: `{"mean": 5, "sd": 2}`: a normal distribution, or another `"family"`.
- **Anything with a method `cdf`**: the laws of `scipy.stats` and of `statistics`, a `Distribution`, a `Forecast`.
- **Values at the thresholds**, `(dim,)`; and **a number**, a forecast that is sure of it.

Tables hold many: columns in place of numbers, or an array `(n, dim)` of values at the thresholds. What lies beyond the
ends of the interval counts as the end.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import le
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal._compile import strict
from treecal._elementary import applied, exp, log, normal_cdfs
from treecal._typing import Array
from treecal._validate import fraction
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, RepairWarning
from treecal.geometry._cdf import Cdf
from treecal.geometry._convex import ROUNDING
from treecal.geometry._pairing import Refusal, columns, listed

FAMILIES = ("normal", "lognormal")
"""What `"family"` may name: distributions that a mean and a standard deviation determine."""
_LEVEL = re.compile(r"(?:q|p|quantile|percentile|level)?[\s_-]*(\d*\.?\d+)\s*(%?)", re.I)
_SUFFIX = re.compile(r"(?:.*[-_ ])?(?:(lo|hi)[-_](\d+\.?\d*)|ql?[-_]?(\d*\.?\d+)|(median))", re.I)
"""As of statsforecast (`-lo-90`), neuralforecast (`-median`, `_ql0.1`), TimeGPT (`-q-10`) and darts (`_q0.1`)."""
_FORMS = "quantiles by level, members, mean and sd, something with a cdf, or values at the {} thresholds"


def quantile_level(name: Any) -> float:
    """Return the level that a column or a key stands for: 0.1 for 0.1, "0.1", "q10", "p10", "10%" or "q0.1".

    Names may begin with that of a model, and ends of central intervals have the levels that these have.

    Examples
    --------
    >>> [quantile_level(name) for name in (0.5, "0.25", "q10", "P90", "quantile_0.975", "q025", "97.5%")]
    [0.5, 0.25, 0.1, 0.9, 0.975, 0.025, 0.975]
    >>> [quantile_level(name) for name in ("AutoARIMA-lo-90", "AutoARIMA-hi-90", "NHITS-median", "load_q0.25")]
    [0.05, 0.95, 0.5, 0.25]
    """
    level = name
    if isinstance(name, str):
        found = _LEVEL.fullmatch(name.strip())
        if found is None and (suffix := _SUFFIX.fullmatch(name.strip())):
            end, share, digits, _ = suffix.groups()
            if end is None:
                return quantile_level(f"q{digits}") if digits else 0.5
            inside = float(share) / 100
            level = round((1 - inside if end.lower() == "lo" else 1 + inside) / 2, 12)
        elif found is None:
            raise ParameterError.expected("level", name, "a number between 0 and 1, or a name such as q10 or p90")
        else:
            digits, percent = found.groups()
            named = not name.strip()[0].isdigit() and name.strip()[0] != "."
            level = float(digits)
            if percent or (named and "." not in digits):
                thousandths = named and len(digits) >= 3  # q025, q975
                level = float(f"0.{digits}") if thousandths else round(level / 100, 12)
    hint = "divide levels in percent by 100." if isinstance(level, int | float) and 1 <= level < 100 else None
    return fraction("level", level, hint=hint)


def quantile_levels(names: Iterable[Any]) -> dict[float, Any]:
    """Return the names of quantiles by their levels, in increasing order; a level that appears twice raises."""
    found: dict[float, Any] = {}
    for name in names:
        level = quantile_level(name)
        if level in found:
            raise ParameterError(f"{found[level]!r} and {name!r} are both the quantile of level {level:g}.")
        found[level] = name
    return dict(sorted(found.items()))


def read_number(space: Cdf, value: Any, round_: int, error: Refusal = OutcomeError) -> float | None:
    """Return a number of the interval, as `clip` has it; None if the value is not a number at all."""
    if type(value) is not float:
        if isinstance(value, str | bytes | list | tuple | Mapping | None):
            return None
        raw = np.asarray(value) if np.ndim(value) == 0 and not np.ma.is_masked(value) else np.empty(0, object)
        if raw.ndim or raw.dtype.kind not in "iuf":
            return None
        value = float(raw)
    return float(read_numbers(space, np.array([value]), round_ - 1, error)[0])


def read_numbers(space: Cdf, numbers: NDArray[Any], before: int = 0, error: Refusal = OutcomeError) -> Array:
    """Return numbers of the interval, clipped if the set says so; the first other one raises, and its round is named.

    Examples
    --------
    >>> read_numbers(Cdf(0, 10, clip=True), np.array([3, 11.5]))
    array([ 3., 10.])
    """
    with np.errstate(over="ignore"):
        found = np.array(np.ma.filled(numbers, np.nan) if np.ma.isMA(numbers) else numbers, np.float64)
    return _inside(space, found[:, None], before, ["is"], error)[:, 0]


def _refuse(space: Cdf | None, number: float, round_: int, error: Refusal, what: str = "is") -> None:
    if np.isnan(number):
        raise error.at(round_, f"{what} NaN, expected a number.", hint="drop or impute missing values.")
    if space is None:
        raise error.at(round_, f"{what} {number:g}, expected a finite number.")
    problem = f"{what} {number:g}, expected {space.low:g} to {space.high:g}."
    hint = f"tc.Cdf({space.low:g}, {space.high:g}, clip=True) counts numbers outside as the nearer end."
    raise error.at(round_, problem, hint=hint if np.isfinite(number) else None)


def read_distribution(space: Cdf, value: Any, round_: int, tolerance: float) -> Array:
    """Return one forecast as the values of its distribution function at the thresholds, or raise.

    Examples
    --------
    >>> load = Cdf(0, 10, points=5)  # thresholds 1, 3, 5, 7, 9
    >>> read_distribution(load, {0.25: 3, 0.75: 7}, 1, 1e-6).round(3)
    array([0.092, 0.25 , 0.5  , 0.75 , 0.908])
    >>> read_distribution(load, {"members": [2, 4, 4, 8]}, 1, 1e-6)
    array([0.  , 0.25, 0.75, 0.75, 1.  ])
    >>> read_distribution(load, {"mean": 5, "sd": 2}, 1, 1e-6).round(3)
    array([0.023, 0.159, 0.5  , 0.841, 0.977])
    """
    if (number := read_number(space, value, round_, ForecastError)) is not None:
        return space.steps(number)
    if isinstance(value, Mapping):
        if (found := _plain_quantiles(space, value)) is not None:
            return found
        single = {name: np.asanyarray(entry)[None] for name, entry in value.items()}
        return np.asarray(_from_columns(space, single, round_ - 1)[0])
    if callable(getattr(value, "cdf", None)):
        return np.asarray(_checked(space, _law_values(value, space)[None], round_ - 1, tolerance)[0])
    raw = _array(value)
    if raw is None or raw.shape != (space.dim,):
        raise _no_distribution(space, value, raw, round_)
    return np.asarray(_checked(space, raw[None], round_ - 1, tolerance)[0])


def _law_values(law: Any, space: Cdf) -> Array:
    try:
        return np.array(law.cdf(space.thresholds), np.float64)
    except TypeError:  # as of statistics.NormalDist, which takes one number at a time
        return np.array([law.cdf(z) for z in space.thresholds.tolist()], np.float64)


def read_distributions(space: Cdf, values: Any, *, before: int = 0, tolerance: float = ROUNDING) -> Array:
    """Return many forecasts as rows of values at the thresholds, `(n, dim)`, an array of our own; or raise.

    Parameters
    ----------
    space
        The set.
    values
        A table of quantiles, with columns named by level; a dictionary of columns, such as `{0.1: …, 0.9: …}`,
        `{"mean": …, "sd": …}` or `{"members": …}` with an array `(n, members)`; anything whose `cdf` gives `(dim, n)`
        of thresholds `(dim, 1)`; values at the thresholds, `(n, dim)`; numbers, `(n,)`; or a list of single forecasts.
    before
        Number of earlier rounds: errors name the round, and what is wrong in it.
    tolerance
        By how much values at thresholds may fall, or leave 0 to 1, as rounding does.

    Examples
    --------
    >>> load = Cdf(0, 10, points=4)
    >>> read_distributions(load, {"q25": [3, 4], "q75": [7, 8]}).round(2)
    array([[0.1 , 0.34, 0.66, 0.9 ],
           [0.06, 0.22, 0.53, 0.83]])
    """
    if isinstance(values, Mapping) or columns(values) is not None:
        return _from_columns(space, values, before)
    if callable(getattr(values, "cdf", None)):
        found = np.array(values.cdf(space.thresholds[:, None]), np.float64)
        return _checked(space, found.reshape(space.dim, -1).T, before, tolerance)
    raw = _array(values)
    if raw is not None and raw.ndim == 1 and len(raw):
        return space.steps(read_numbers(space, raw, before, ForecastError))
    if raw is not None and raw.ndim == 2 and raw.shape[1] == space.dim:
        return _checked(space, raw, before, tolerance)
    if isinstance(values, list | tuple):
        rows = [read_distribution(space, value, before + k + 1, tolerance) for k, value in enumerate(values)]
        return np.array(rows).reshape(-1, space.dim)
    raise _no_distribution(space, values, raw, before + 1)


def _array(values: Any) -> Array | None:
    """Return numbers as an array of our own; None if they are none."""
    parts = values if isinstance(values, list | tuple) else [values]
    if isinstance(values, str | bytes) or any(map(np.ma.is_masked, parts)):
        return None
    try:
        raw = np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        return None
    return np.array(raw, np.float64) if raw.dtype.kind in "biuf" else None


def _no_distribution(space: Cdf, value: Any, raw: Array | None, round_: int) -> ForecastError:
    what = f"is a {type(value).__name__}" if raw is None or not raw.ndim else f"has shape {raw.shape}"
    hint = 'an ensemble is given as {"members": values}.' if raw is not None and raw.ndim else None
    return ForecastError.at(round_, f"{what}, expected {_FORMS.format(space.dim)} of {space!r}.", hint=hint)


def _checked(space: Cdf, rows: Array, before: int, tolerance: float) -> Array:
    """Return rows of values at the thresholds, with what rounding did to them undone; the first other one raises."""
    if rows.shape[1:] != (space.dim,):
        raise ForecastError.at(before + 1, f"has a cdf of shape {rows.shape[1:]}, expected ({space.dim},).")
    inside = np.asarray(space.contains(rows))
    if not inside.all():
        rounded = np.asarray(space.contains(rows, tol=tolerance))
        if not rounded.all():
            at = int(np.argmin(rounded))
            if np.isnan(rows[at]).any():
                hint = "drop or impute missing values."
                raise ForecastError.at(before + at + 1, f"holds NaN at threshold {_missing(rows[at])}.", hint=hint)
            raise ForecastError.at(
                before + at + 1,
                f"is no distribution function on {space!r}: {space.complaint(rows[at])}.",
                hint='for an ensemble, {"members": values}; for quantiles, {level: value, …}.',
            )
    # Within 1e-9 a point counts as inside everywhere, and stays as it is, bit for bit.
    return np.where(inside[:, None], rows, np.maximum.accumulate(np.clip(rows, 0.0, 1.0), axis=1))


def _missing(row: Array) -> int:
    return int(np.argmax(np.isnan(row))) + 1


def read_columns(table: Any, *, space: Cdf | None = None, before: int = 0) -> tuple[str, tuple[float, ...], Array]:
    """Return the form of a table's forecasts, the levels of quantiles, and its columns, `(n, k)`, checked.

    The form is "quantiles", which are then in order; "members", of which some may be NaN; or the family whose means and
    standard deviations the two columns are. Numbers outside the set, if there is one, are clipped or refused.

    Examples
    --------
    >>> read_columns({"q90": [9.0], "q10": [3.0]})
    ('quantiles', (0.1, 0.9), array([[3., 9.]]))
    """
    if (names := columns(table)) is not None:
        table = {name: table[name] for name in names}
    if not isinstance(table, Mapping):
        expected = "a table or a dictionary of quantiles by level, of members, or of mean and sd"
        raise ForecastError(f"forecasts are a {type(table).__name__}, expected {expected}.")
    given = {name: np.asanyarray(column) for name, column in table.items()}
    named = {str(name).lower(): name for name in given}
    if not given:
        raise ForecastError.at(before + 1, "is empty, expected quantiles by level, or members, or mean and sd.")
    if named.keys() == {"members"}:
        return "members", (), _members(_numeric(given, named["members"], before, 2), space, before)
    if named.keys() - {"family"} == {"mean", "sd"}:
        family = str(given[named["family"]].ravel()[0]) if "family" in named else "normal"
        if family not in FAMILIES or (given[named["family"]] != family if "family" in named else np.False_).any():
            hint = "any law of scipy.stats can be passed itself to what has a tc.Cdf."
            raise ParameterError.expected("family", family, "one of " + ", ".join(FAMILIES), hint=hint)
        mean, sd = (_numeric(given, named[name], before, 1) for name in ("mean", "sd"))
        return family, (), _moments(mean, sd, family, space, before)
    try:
        levels = quantile_levels(given)
    except ParameterError as error:
        expected = "quantiles by level, or members, or mean and sd"
        problem = f"has entries for {listed(list(given))}, expected {expected}: {error.message}"
        raise ForecastError.at(before + 1, problem, hint=error.hint) from None
    found = [_numeric(given, name, before, 1) for name in levels.values()]
    if len({len(column) for column in found}) > 1:
        raise ForecastError.at(before + 1, f"has quantiles in columns of lengths {[*map(len, found)]}.")
    q = _inside(space, np.column_stack(found), before, [f"has the quantile {name} of" for name in levels.values()])
    crossing = np.asarray((q[:, 1:] < q[:, :-1]).any(axis=1))
    if crossing.any():
        _say("quantiles cross, and are sorted,", crossing, before)
        q = np.sort(q, axis=1)
    return "quantiles", tuple(levels), q


def _plain_quantiles(space: Cdf, value: Mapping[Any, Any]) -> Array | None:
    """Return the forecast of quantiles that need no look: floats in order, of the set; None where they are others."""
    if set(map(type, value.values())) != {float} or not set(map(type, value)) <= {float, str}:
        return None
    levels, names = _known_levels(tuple(value))
    q = [value[name] for name in names]
    if not q or not (space.low <= q[0] and q[-1] <= space.high and all(map(le, q, q[1:]))):
        return None
    return np.asarray(from_quantiles(space, levels, np.array([q]))[0])


@lru_cache(maxsize=64)
def _known_levels(names: tuple[float | str, ...]) -> tuple[tuple[float, ...], tuple[float | str, ...]]:
    """Return the levels of quantiles and their names, in order; none where that is not what the names say."""
    try:
        found = quantile_levels(names)
    except ParameterError:
        found = {}
    return tuple(found), tuple(found.values())


def _members(members: Array, space: Cdf | None, before: int) -> Array:
    missing = np.isnan(members)
    if (none := missing.all(axis=1)).any():
        problem = "has no member that is a number."
        raise ForecastError.at(before + int(none.argmax()) + 1, problem, hint="drop or impute such rounds.")
    if missing.any():
        _say("members are missing, and left out,", np.asarray(missing.any(axis=1)), before)
    first = members[np.arange(len(members)), missing.argmin(axis=1)]
    whole = _inside(space, np.where(missing, first[:, None], members), before, ["has the member"] * members.shape[1])
    return np.where(missing, np.nan, whole)


def _moments(mean: Array, sd: Array, family: str, space: Cdf | None, before: int) -> Array:
    if len(mean) != len(sd):
        raise ForecastError.at(before + 1, f"has {len(mean)} means and {len(sd)} standard deviations.")
    valid = (sd >= 0) & np.isfinite(sd)
    if not valid.all():
        at = int(np.argmin(valid))
        raise ForecastError.at(before + at + 1, f"has the sd {sd[at]:g}, expected a number of 0 or more.")
    centre = _inside(space, mean[:, None], before, ["has the mean"])
    if family == "lognormal" and not ((centre > 0).all() and (space is None or space.low >= 0)):
        at = int(np.argmin(centre > 0))
        expected = "expected a mean above 0, on a set without numbers below 0"
        raise ForecastError.at(before + at + 1, f"is lognormal with the mean {mean[at]:g}, {expected}.")
    return np.column_stack([centre, sd])


def _from_columns(space: Cdf, table: Mapping[Any, Any], before: int) -> Array:
    """Return the rows of a table whose columns say what they hold."""
    form, levels, found = read_columns(table, space=space, before=before)
    if form == "quantiles":
        return from_quantiles(space, levels, found)
    return from_members(space, found) if form == "members" else from_moments(space, *found.T, family=form)


def _numeric(table: dict[Any, NDArray[Any]], name: Any, before: int, ndim: int) -> Array:
    """Return a column as numbers, our own; one that holds anything else raises. What is missing is NaN."""
    column = table[name]
    if column.dtype == object:  # None and NaN among numbers
        try:
            column = np.array([np.nan if entry is None else entry for entry in column.ravel()], float).reshape(
                column.shape
            )
        except (ValueError, TypeError, OverflowError):  # as 10**400
            column = np.empty(0, "U1")
    if column.ndim != ndim or column.dtype.kind not in "iuf":
        expected = "numbers" if ndim == 1 else "an array of numbers, a row for each round"
        raise ForecastError.at(before + 1, f"holds no numbers in {str(name)!r}, expected {expected}.")
    return np.array(np.ma.filled(column, np.nan) if np.ma.isMA(column) else column, np.float64)


def from_quantiles(space: Cdf, levels: Sequence[float], q: Array) -> Array:
    """Return the distribution functions of rows of quantiles, `(n, levels)`, at the thresholds, `(n, dim)`."""
    tau = np.array(levels)
    if len(tau) == 1:
        q = np.column_stack([np.full(len(q), space.low), q, np.full(len(q), space.high)])
        tau = np.array([0.0, tau[0], 1.0])
    found = np.empty((len(q), space.dim))
    _between_quantiles.for_rows(len(q))(np.ascontiguousarray(q), tau, space.thresholds, found)
    return found


@strict
def _between_quantiles(q: Array, levels: Array, thresholds: Array, found: Array) -> None:
    """Write distribution functions: lines between quantiles, and exponentials with the slope of the outer lines beyond.

    Levels that reach from 0 to 1 leave nothing beyond.
    """
    last = len(levels) - 1
    for row in range(len(q)):
        place = 0  # quantiles up to the threshold
        for k in range(len(thresholds)):
            z = thresholds[k]
            while place <= last and q[row, place] <= z:
                place += 1
            right = min(max(place, 1), last)
            width = q[row, right] - q[row, right - 1]
            rise = levels[right] - levels[right - 1]
            if 0 < place <= last:
                share = (z - q[row, right - 1]) / width if width > 0.0 else 0.0
                found[row, k] = levels[right - 1] + rise * share
                continue
            outer = right - 1 if place == 0 else right
            beyond = levels[0] if place == 0 else 1.0 - levels[last]
            away = abs(z - q[row, outer])
            tail = 0.0 if width <= 0.0 else exp(max(-away * (rise / beyond / width), -1000.0)) if away > 0.0 else 1.0
            found[row, k] = beyond * tail if place == 0 else 1.0 - beyond * tail


def from_members(space: Cdf, members: Array) -> Array:
    """Return the empirical distribution functions of rows of members, `(n, members)`, at the thresholds, `(n, dim)`."""
    count = (~np.isnan(members)).sum(axis=1)
    inside = np.sort(members, axis=1)  # missing ones last
    found = np.array([np.searchsorted(row, space.thresholds, side="right") for row in inside])
    return np.asarray(found.reshape(-1, space.dim) / count[:, None])


def from_moments(space: Cdf, mean: Array, sd: Array, *, family: str = "normal") -> Array:
    """Return the distribution functions of a family with these means and standard deviations, at the thresholds."""
    centre = mean[:, None]
    z = np.broadcast_to(space.thresholds, (len(mean), space.dim))
    spread = sd[:, None]
    if family == "lognormal":
        square = applied(log, (1 + (spread / centre) ** 2).ravel())[:, None]
        centre = applied(log, centre.ravel())[:, None] - square / 2
        spread = np.sqrt(square)
        z = np.where(z > 0, applied(log, np.maximum(space.thresholds, 1e-300)), -1e300)
    away = z - centre
    with np.errstate(over="ignore"):
        scaled = np.divide(away, spread, out=np.where(away >= 0, np.inf, -np.inf), where=spread > 0)
    scaled = np.clip(scaled, -800.0, 800.0).ravel()
    found = np.empty_like(scaled)
    normal_cdfs.for_rows(len(scaled) // 64)(scaled, found)
    return found.reshape(z.shape)


def _inside(
    space: Cdf | None, values: Array, before: int, what: Sequence[str], error: Refusal = ForecastError
) -> Array:
    """Return rows of numbers, clipped if the set says so; the first other one raises, with its round."""
    valid = np.isfinite(values) if space is None else (values >= space.low) & (values <= space.high)
    if valid.all():
        return values
    if space is not None and space.clip:
        valid = np.isfinite(values)
    if not valid.all():
        row, column = np.unravel_index(int(np.argmin(valid)), values.shape)
        _refuse(space, float(values[row, column]), before + int(row) + 1, error, what[int(column)])
    assert space is not None
    return np.clip(values, space.low, space.high)


def _say(what: str, where: NDArray[np.bool_], before: int) -> None:
    count = int(np.count_nonzero(where))
    place = f"at round {before + int(where.argmax()) + 1}"
    text = f"{what} {place}." if len(where) == 1 else f"{what} in {count:,} of {len(where):,} forecasts, first {place}."
    warnings.warn(text, RepairWarning, stacklevel=6)
