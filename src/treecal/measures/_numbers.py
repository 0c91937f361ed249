"""Honest measures of forecasts of a number: scores, coverage, sharpness, and where the outcomes lay in the forecasts.

Forecasts are given as quantiles by level, `{0.1: …, 0.5: …, 0.9: …}` or a table with such columns; as ensembles,
`{"members": (n, members)}`; as moments, `{"mean": …, "sd": …}` with perhaps a `"family"`; or as a `Distribution`, an
array of laws on a `tc.Cdf`. Errors name the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import fraction, whole_number
from treecal.exceptions import ParameterError
from treecal.geometry import Cdf, from_members, from_quantiles, quantile_level
from treecal.measures._laws import Curves, Forecasts, Laws, Members, Quantiles, pinball_losses, read_laws, read_outcomes
from treecal.measures._levels import Interval, mean_interval
from treecal.measures._log import read_weights

_PARTS = 50  # thresholds at which a score is taken apart
_BINS = 20


def _mean(each: Array, weights: Array) -> float:
    return float((weights * each).sum() / weights.sum())


def crps(forecasts: Forecasts, y: ArrayLike, *, weights: ArrayLike | None = None, fair: bool = False) -> float:
    """Return the mean continuous ranked probability score, `∫ (F(z) − 1{y <= z})² dz`: 0 at best, in units of `y`.

    For a point forecast it is the absolute error. Of quantiles it is twice the mean pinball loss over their levels (the
    weighted interval score); of ensembles that of their empirical distribution, or the fair estimate for an ensemble of
    any size; of families and of curves it is exact.

    Parameters
    ----------
    forecasts
        Forecasts of numbers: see `treecal.measures`.
    y
        The outcomes, `(n,)`.
    weights
        The weight of each row; all 1 by default.
    fair
        Whether to estimate the score that an ensemble of infinitely many members would have.

    Examples
    --------
    >>> crps({"members": [[1, 2, 3]]}, [2.5]), round(crps({"mean": [0.0], "sd": [1.0]}, [0.5]), 4)
    (0.3888..., 0.3314)
    >>> crps({0.25: [1], 0.5: [2], 0.75: [4]}, [2])
    0.5
    """
    laws, outcomes, w = read_outcomes(forecasts, y, weights, fair=fair)
    return _mean(laws.crps(outcomes), w)


@dataclass(frozen=True)
class CrpsParts:
    """A continuous ranked probability score, taken apart: `score = reliability − resolution + uncertainty`.

    Attributes
    ----------
    reliability
        How far the forecast probabilities are from how often it happened, squared: 0 at best.
    resolution
        How far what happened after different forecasts differs from the climatology, squared: much is good.
    uncertainty
        The score of the climatology of these outcomes, whatever was forecast.
    """

    reliability: float
    resolution: float
    uncertainty: float

    @property
    def score(self) -> float:
        """The score of forecasts rounded to their bins."""
        return self.reliability - self.resolution + self.uncertainty

    @property
    def skill(self) -> float:
        """`1 − score/uncertainty`: 1 at best, 0 for what knows the climatology only, negative if worse."""
        return 1 - self.score / self.uncertainty if self.uncertainty > 0 else 0.0


def crps_parts(forecasts: Forecasts, y: ArrayLike, *, weights: ArrayLike | None = None, bins: int = _BINS) -> CrpsParts:
    """Return the parts of the score: those of the Brier score of `y <= z`, added up over 50 thresholds `z`.

    Parameters
    ----------
    forecasts, y, weights
        As in `crps`.
    bins
        Bins of equal width that the probabilities of `y <= z` are put in: by their mean in a bin.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> mean = rng.normal(size=4000)
    >>> y = rng.normal(mean)
    >>> parts = crps_parts({"mean": mean, "sd": np.full(4000, 0.5)}, y)  # too sure
    >>> round(parts.reliability, 2), round(parts.resolution, 2), round(parts.uncertainty, 2), round(parts.score, 2)
    (0.05, 0.23, 0.83, 0.65)
    """
    laws, outcomes, w = read_outcomes(forecasts, y, weights)
    whole_number("bins", bins, least=1, most=1000)
    low = float(outcomes.min())
    high = float(outcomes.max())
    if low == high:
        return CrpsParts(0.0, 0.0, 0.0)
    z = np.unique(np.quantile(outcomes, (np.arange(_PARTS) + 0.5) / _PARTS))
    space = Cdf(low, high, thresholds=z[z < high] if z[0] < high else [low], clip=True)
    P = _at(laws, space)
    happened = space.steps(outcomes)
    total = w.sum()
    reliability = 0.0
    resolution = 0.0
    uncertainty = 0.0
    for width, p, came in zip(space.widths.tolist(), P.T, happened.T, strict=True):
        cell = np.minimum((p * bins).astype(int), bins - 1)
        n, forecast, outcome = (np.bincount(cell, w * each, bins) for each in (np.ones(len(p)), p, came))
        used = n > 0
        rate = outcome[used] / n[used]
        base = float(outcome.sum()) / float(total)
        reliability += width * float((n[used] * (forecast[used] / n[used] - rate) ** 2).sum() / total)
        resolution += width * float((n[used] * (rate - base) ** 2).sum() / total)
        uncertainty += width * base * (1 - base)
    return CrpsParts(reliability, resolution, float(uncertainty))


def _at(laws: Laws, space: Cdf) -> Array:
    """Return the probabilities of numbers up to each threshold."""
    if isinstance(laws, Quantiles):
        return from_quantiles(space, laws.levels, laws.values)
    if isinstance(laws, Members):
        return from_members(space, laws.values)
    law: Any = laws.law if isinstance(laws, Curves) else laws._law  # type: ignore[attr-defined]
    return np.column_stack([law.cdf(z) for z in space.thresholds])


def pinball(
    forecasts: Forecasts,
    y: ArrayLike,
    *,
    levels: Sequence[float] | None = None,
    weights: ArrayLike | None = None,
) -> dict[float, float]:
    """Return the mean pinball loss of the quantile of each level, `max(τ(y − q), (1 − τ)(q − y))`: 0 at best.

    Parameters
    ----------
    forecasts, y, weights
        As in `crps`.
    levels
        The levels: by default those of the forecasts, or nine tenths where all are known.

    Examples
    --------
    >>> pinball({0.1: [1.0, 1.0], 0.9: [4.0, 4.0]}, [2.0, 5.0])
    {0.1: 0.25, 0.9: 0.55}
    """
    laws, outcomes, w = read_outcomes(forecasts, y, weights)
    return {tau: _mean(pinball_losses(tau, laws.quantile(tau), outcomes), w) for tau in _levels(laws, levels)}


def interval_score(
    forecasts: Forecasts, y: ArrayLike, *, coverage: float = 0.8, weights: ArrayLike | None = None
) -> float:
    """Return the mean interval (Winkler) score: the width, and `2/α` times what outcomes outside miss it by.

    Parameters
    ----------
    forecasts, y, weights
        As in `crps`.
    coverage
        That of the central interval, `1 − α`.

    Examples
    --------
    >>> interval_score({0.1: [1.0, 1.0], 0.9: [4.0, 4.0]}, [2.0, 5.0], coverage=0.8)
    8.0
    """
    laws, outcomes, w = read_outcomes(forecasts, y, weights)
    low, high = _ends(laws, coverage)
    missed = np.maximum(low - outcomes, 0) + np.maximum(outcomes - high, 0)
    return _mean(high - low + 2 / (1 - coverage) * missed, w)


def sharpness(forecasts: Forecasts, *, coverage: float = 0.8, weights: ArrayLike | None = None) -> float:
    """Return the mean width of the central intervals: less is better, among forecasts that cover as they say.

    Parameters
    ----------
    forecasts, weights
        As in `crps`.
    coverage
        That of the intervals.

    Examples
    --------
    >>> sharpness({0.1: [1.0, 1.0], 0.9: [4.0, 6.0]})
    4.0
    """
    laws = read_laws(forecasts)
    low, high = _ends(laws, coverage)
    return _mean(high - low, read_weights(weights, laws.rows))


def coverage(
    forecasts: Forecasts,
    y: ArrayLike,
    *,
    levels: Sequence[float] | None = None,
    weights: ArrayLike | None = None,
    level: float = 0.9,
) -> dict[float, Interval]:
    """Return how often outcomes were up to the quantile of each level, with intervals: of right forecasts, so often.

    Where outcomes equal several quantiles of a forecast, or members, they count in part.

    Parameters
    ----------
    forecasts, y, weights
        As in `crps`; rows count by their weights, and intervals are those of rows that are independent.
    levels
        As in `pinball`.
    level
        How often the intervals hold the truth.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = coverage({"mean": np.zeros(1000), "sd": np.ones(1000)}, 2 * rng.normal(size=1000), levels=[0.05, 0.95])
    >>> print(found[0.05])
    0.205, 90 % interval 0.184 to 0.226
    """
    laws, outcomes, w = read_outcomes(forecasts, y, weights)
    low, high = laws.pit(outcomes)
    found = {}
    for tau in _levels(laws, levels):
        each = up_to(low, high, tau)
        held = _mean(each, w)
        found[tau] = mean_interval(held, _mean(each**2, w), w.sum() ** 2 / (w**2).sum(), level=level, most=1.0)
    return found


def up_to(low: Array, high: Array, level: float) -> Array:
    """Return which part of each PIT, uniform from `low` to `high`, is up to a level: 0 or 1 where it is one number."""
    width = high - low
    part = np.divide(level - low, width, out=np.where(low <= level, 1.0, 0.0), where=width > 0)
    return np.clip(part, 0.0, 1.0)


def pit(forecasts: Forecasts, y: ArrayLike, *, rng: np.random.Generator | None = None) -> Array:
    """Return where each outcome lay in its forecast, the probability integral transform: uniform if that was right.

    Where the forecast jumps, or only some of its quantiles are known, that is an interval: `(n, 2)` its ends,
    `P(Y < y)` and `P(Y <= y)` as far as they are known; or with `rng` a number drawn from it, `(n,)`.

    Parameters
    ----------
    forecasts, y
        As in `crps`.
    rng
        Draws a number in place of the interval.

    Examples
    --------
    >>> pit({0.1: [1.0, 1.0], 0.9: [4.0, 4.0]}, [2.0, 5.0])
    array([[0.1, 0.9],
           [0.9, 1. ]])
    """
    laws, outcomes, _ = read_outcomes(forecasts, y, None)
    low, high = laws.pit(outcomes)
    if rng is not None:
        return low + rng.random(len(low)) * (high - low)
    return np.column_stack([low, high])


def _levels(laws: Laws, levels: Sequence[float] | None) -> list[float]:
    if levels is None:
        return list(laws.levels) or [k / 10 for k in range(1, 10)]
    found = [quantile_level(level) for level in levels]
    for level in found:
        if laws.levels and level not in laws.levels:
            known = ", ".join(f"{each:g}" for each in laws.levels)
            raise ParameterError(f"the quantile of level {level:g} is not among those forecast: {known}.")
    return found


def _ends(laws: Laws, coverage: float) -> tuple[Array, Array]:
    """Return the ends of the central intervals."""
    inside = fraction("coverage", coverage)
    tails = [round((1 - inside) / 2, 12), round((1 + inside) / 2, 12)]
    low, high = (laws.quantile(tau) for tau in _levels(laws, tails))
    return low, high
