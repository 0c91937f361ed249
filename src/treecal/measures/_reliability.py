"""Rows in bins of equal width, and all that follows from them: errors, their intervals, and what chance would show.

Every sum below is one over bins, so it makes no difference how the rows were counted: in one file, in parts, on Spark.
Forecasts of a bin are taken as equal to their mean. Since `p(1 − p)` is concave, chance is never underestimated by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.measures._cells import bin_edges, bin_of
from treecal.measures._levels import AT_ZERO, Interval, Law, square_interval, unseen
from treecal.measures._log import sum_by

THIN = 30
"""A bin of fewer rows is thin: its gap is mostly chance."""
_DRAWS = 500
_FEW = 10  # rows a class


@dataclass(frozen=True)
class Luck:
    """What chance alone would show: an error of forecasts that are right.

    Attributes
    ----------
    value
        The error that was measured.
    mean, deviation
        Mean and standard deviation of the error, had each outcome been drawn from its forecast.
    step
        How much one outcome moves the error, halved: errors lie on a grid, where the gamma law below has none.
    """

    value: float
    mean: float
    deviation: float
    step: float = 0.0

    @property
    def high(self) -> float:
        """What 95 % of the errors of calibrated forecasts stay below."""
        if self.deviation <= 1e-9 * self.mean or self.mean <= 0:
            return self.mean
        from scipy.special import gammaincinv  # imported when needed: SciPy takes long

        shape, scale = self._gamma
        return float(scale * gammaincinv(shape, 0.95))

    @property
    def p_value(self) -> float:
        """How often chance alone shows an error as large."""
        if self.deviation <= 1e-9 * self.mean or self.mean <= 0:
            return 1.0 if self.value <= self.mean + 1e-9 else 0.0
        if self.value <= self.step:  # no outcome where hardly any was expected
            return 1.0
        from scipy.special import gammaincc

        shape, scale = self._gamma
        return float(gammaincc(shape, (self.value - self.step) / scale))

    def to_dict(self) -> dict[str, float]:
        """Return mean, high and p-value as JSON values."""
        return {"mean": self.mean, "high": self.high, "p_value": self.p_value}

    @property
    def _gamma(self) -> tuple[float, float]:
        # A sum of a few absolute values of normal variables is close to a gamma variable with the same moments.
        variance = self.deviation**2
        return self.mean**2 / variance, variance / self.mean


@dataclass(frozen=True, eq=False)
class Bins:
    """Rows in bins of equal width by a probability: a reliability diagram. A bin holds its lower edge, the last also 1.

    Attributes
    ----------
    forecast
        Mean probability in each bin; NaN in an empty one.
    weight
        Rows in each bin, as integers; or their total weight, if they have weights.
    outcome
        Mean outcome in each bin, the share of rows whose outcome is the class; NaN in an empty one.
    worth
        How many rows of equal weight a weight of 1 is worth: `Σw/Σw²` (Kish), 1 without weights.

    Examples
    --------
    >>> bins = Bins(np.array([0.25, 0.75]), np.array([100, 60]), np.array([0.35, 0.75]))
    >>> round(bins.ece, 4), round(bins.mce, 3), round(bins.chance.mean, 3), round(bins.chance.p_value, 2)
    (0.0625, 0.1, 0.038, 0.15)
    >>> print(bins.interval())
    0.06018, 90 % interval 0 to 0.1351 (not distinguishable from 0, where an interval covers more often than its level)
    """

    forecast: Array
    weight: Integers | Array
    outcome: Array
    worth: float = 1.0

    @property
    def edges(self) -> Array:
        """Edges of the bins, from 0 to 1."""
        return bin_edges(len(self.weight))

    @property
    def gap(self) -> Array:
        """Distance between mean outcome and mean probability in each bin."""
        return np.abs(self.outcome - self.forecast)

    @property
    def rows(self) -> Array:
        """Rows of equal weight that each bin is worth."""
        return np.asarray(self.weight * self.worth, np.float64)

    @property
    def thin(self) -> NDArray[np.bool_]:
        """Which bins hold rows, but fewer than 30: what they show is mostly chance."""
        rows = self.rows
        return (rows > 0) & (rows < THIN)

    @property
    def ece(self) -> float:
        """Expected calibration error: the mean over rows of the gap of their bin. Noise counts as error."""
        return self._mean(self.gap)

    @property
    def mce(self) -> float:
        """Maximum calibration error: the largest gap of a bin that is not thin; NaN if all are thin."""
        return float(np.max(self.gap[self.rows >= THIN], initial=-1.0)) if (self.rows >= THIN).any() else math.nan

    @property
    def debiased_ece(self) -> float:
        """Root mean square gap of the bins, without what noise adds to it; 0 if noise explains all of it.

        The square of a gap less `ō(1 − ō)/(n − 1)` is the square of the true gap on average (Bröcker 2012, Ferro and
        Fricker 2012).
        """
        return math.sqrt(max(self._cells.moments().square, 0.0))

    @property
    def resolution(self) -> float:
        """How far the mean outcomes of the bins lie from that of all rows, squared, without what noise adds to it."""
        full = self.weight > 0
        rows = self.rows
        share = self.weight[full] / math.fsum(self.weight)
        outcome = self.outcome[full]
        n = rows[full]
        mean = self.mean_outcome
        noise = np.where(n > 1, outcome * (1 - outcome) / np.maximum(n - 1, 1e-9), 0.0)
        total = math.fsum(rows)
        own = mean * (1 - mean) / (total - 1) if total > 1 else 0.0
        return max(math.fsum(share * ((outcome - mean) ** 2 - noise)) + own, 0.0)

    @property
    def chance(self) -> Luck:
        """What the ECE would be if the forecasts were right."""
        return chance_of([self])

    def interval(self, level: float = 0.9) -> Interval:
        """Return `debiased_ece` with an interval for its value over infinitely many such rows.

        Rows are taken as independent; `measures.interval` has blocks for those that are not.
        """
        return interval_of([self], level)

    @property
    def mean_forecast(self) -> float:
        """Mean probability of all rows."""
        return self._mean(self.forecast)

    @property
    def mean_outcome(self) -> float:
        """Mean outcome of all rows."""
        return self._mean(self.outcome)

    @property
    def base(self) -> float:
        """The base rate that errors are compared with: how often the class, or its opposite, is forecast or occurs.

        `min(max(p̄, ō), 1 − min(p̄, ō))`: an error of 0.04 is nothing for a class of every second row, and all there is
        for a class of 4 %.
        """
        forecast = self.mean_forecast
        outcome = self.mean_outcome
        return min(max(forecast, outcome), 1 - min(forecast, outcome))

    def merged(self, count: int) -> Bins:
        """Return about `count` bins of nearly equal weight: neighbours are joined until they hold their share.

        Counted in many bins, such as 200, rows so give bins of equal mass. The new bins no longer have equal widths:
        `edges` and `filled` are those of the numbers of the new ones.

        Examples
        --------
        >>> bins = Bins(np.array([0.05, 0.15, 0.95]), np.array([10, 30, 40]), np.array([0.0, 0.2, 0.9]))
        >>> bins.merged(2).weight, bins.merged(2).forecast
        (array([40, 40]), array([0.125, 0.95 ]))
        """
        count = whole_number("count", count, least=1)
        full = np.flatnonzero(self.weight > 0)
        weight = self.weight[full]
        middle = np.cumsum(weight) - weight / 2
        home = np.minimum((middle * count / weight.sum()).astype(np.int64), count - 1)
        _, home = np.unique(home, return_inverse=True)
        total = np.zeros(home[-1] + 1, weight.dtype)
        np.add.at(total, home, weight)
        means = [np.bincount(home, weight * values[full]) / total for values in (self.forecast, self.outcome)]
        return Bins(means[0], total, means[1], self.worth)

    def _mean(self, values: Array) -> float:
        return math.fsum((self.weight * values)[self.weight > 0]) / math.fsum(self.weight)

    @cached_property
    def _cells(self) -> _Cells:
        full = np.flatnonzero(self.weight > 0)
        share = self.weight[full] / math.fsum(self.weight)
        return _Cells(full, share, self.rows[full], self.forecast[full], self.outcome[full])

    def to_dict(self) -> dict[str, Any]:
        """Return errors and bins as JSON values; empty bins are left out."""
        interval = self.interval()
        return {
            "ece": self.ece,
            "chance": self.chance.to_dict(),
            "debiased_ece": interval.value,
            "interval": [interval.low, interval.high],
            "mce": None if math.isnan(self.mce) else self.mce,
            "mean_forecast": self.mean_forecast,
            "mean_outcome": self.mean_outcome,
            "bins": list(self.filled()),
        }

    def filled(self) -> Iterator[dict[str, Any]]:
        """Yield `low` and `high` edge, `forecast`, `weight`, `outcome` and `gap` of each bin that is not empty."""
        names = ("low", "high", "forecast", "weight", "outcome", "gap")
        columns = (self.edges[:-1], self.edges[1:], self.forecast, self.weight, self.outcome, self.gap)
        for values in zip(*(column[self.weight > 0].tolist() for column in columns), strict=True):
            yield dict(zip(names, values, strict=True))


def bin_rows(forecasts: Array, outcomes: Array, weights: Array) -> tuple[Bins, list[Bins]]:
    """Return ten bins of the most likely class of each row, and of each class.

    Parameters
    ----------
    forecasts, outcomes
        Probabilities, and the outcomes or their means, `(n, d)`.
    weights
        The weight of each row, `(n,)`.

    Examples
    --------
    >>> top, classes = bin_rows(np.array([[0.9, 0.1], [0.7, 0.3]]), np.array([[1.0, 0.0], [0.0, 1.0]]), np.ones(2))
    >>> round(top.mean_forecast, 2), top.mean_outcome, classes[1].weight[[1, 3]]
    (0.8, 0.5, array([1., 1.]))
    """
    rows = np.arange(len(forecasts))
    top = forecasts.argmax(axis=1)
    each = [bin_class(p, y, weights, 10) for p, y in zip(forecasts.T, outcomes.T, strict=True)]
    return bin_class(forecasts[rows, top], outcomes[rows, top], weights, 10), each


def bin_class(forecast: Array, outcome: Array, weights: Array, count: int, worth: float = 1.0) -> Bins:
    """Return the bins of one class; `worth` as in `Bins`."""
    p = np.clip(forecast, 0, 1)
    home = bin_of(p, count).astype(np.int64)
    weight = np.bincount(home, weights, count)
    with np.errstate(invalid="ignore"):
        means = [np.bincount(home, weights * values, count) / weight for values in (p, outcome)]
    return Bins(np.minimum(means[0], 1.0), weight, np.clip(means[1], 0, 1), worth)


class _Moments(NamedTuple):
    """The mean square gap of some cells without its noise, and with it; and what its law needs, in rows."""

    square: float
    plain: float
    noise: float
    moved: float
    total: float


class _Cells(NamedTuple):
    """Bins that hold rows: their numbers, their shares of all weight, rows, mean forecasts and outcomes."""

    place: Integers
    share: Array
    rows: Array
    forecast: Array
    outcome: Array

    def of(self, chosen: Any) -> _Cells:
        """Return some of them."""
        return _Cells(*(column[chosen] for column in self))

    def moments(self) -> _Moments:
        """Return the moments of the mean square gap."""
        rows = self.rows
        gap = self.outcome - self.forecast
        others = np.maximum(rows - 1, 1e-9)
        # One row says nothing of its gap.
        lost = np.where(rows > 1, self.outcome * (1 - self.outcome) / others, gap**2)
        # As if half a row of each kind had been seen besides: no bin is certain.
        rate = (rows * self.outcome + 0.5) / (rows + 1)
        variance = rate * (1 - rate)
        plain = math.fsum(self.share * gap**2)
        return _Moments(
            square=math.fsum(self.share * (gap**2 - lost)),
            plain=plain,
            noise=math.fsum(variance**2 * np.where(rows > 1, rows / others, 1.0)),
            moved=4 * math.fsum(self.share * gap**2 * variance) + max(math.fsum(self.share * gap**4) - plain**2, 0.0),
            total=math.fsum(variance),
        )


def _with_single_rows_joined(classes: list[_Cells]) -> list[_Cells]:
    """Return the cells of several classes, those of one row joined with such of other classes in the same bin.

    They are as good as all that is known of high probabilities where there are a hundred classes, and say nothing of
    their gaps one by one. Joined they do, as far as classes have gaps in common.
    """
    if len(classes) == 1:
        return classes
    single = _Cells(*map(np.concatenate, zip(*(cells.of(cells.rows < 2) for cells in classes), strict=True)))
    place, home = np.unique(single.place, return_inverse=True)
    share, rows = (sum_by(home, column, len(place)) for column in (single.share, single.rows))
    means = (sum_by(home, single.share * column, len(place)) / share for column in single[3:])
    return [*(cells.of(cells.rows >= 2) for cells in classes), _Cells(place, share, rows, *means)]


def classwise_ece(classes: Sequence[Bins]) -> float:
    """Return the mean over classes of their expected calibration errors."""
    return math.fsum(bins.ece for bins in classes) / len(classes)


def classwise_base(classes: Sequence[Bins]) -> float:
    """Return the mean over classes of their base rates."""
    return math.fsum(bins.base for bins in classes) / len(classes)


def chance_of(classes: Sequence[Bins]) -> Luck:
    """Return what the mean ECE of some classes would be if the forecasts were right."""
    means = []
    variances = []
    for bins in classes:
        full = bins.weight > 0
        share = bins.weight[full] / math.fsum(bins.weight)
        p = np.clip(bins.forecast[full], 0, 1)
        mean, variance = _absolute_gap(np.maximum(np.rint(bins.rows[full]), 1), p)
        means.append(math.fsum(share * mean))
        variances.append(math.fsum(share**2 * variance))
    count = len(classes)
    spread = math.sqrt(math.fsum(variances) * together(classes)) / count
    step = 1 / (max(count, 2) * math.fsum(classes[0].rows))  # an outcome that is another one moves two classes
    return Luck(classwise_ece(classes), math.fsum(means) / count, spread, step)


def law_of_bins(classes: Sequence[Bins]) -> Law:
    """Return the law of the mean square gap of the bins of some classes, whose rows are independent."""
    count = len(classes)
    times = math.fsum(classes[0].rows) * count
    factor = together(classes)
    moments = [cells.moments() for cells in _with_single_rows_joined([bins._cells for bins in classes])]
    square, plain, noise, moved, total = (math.fsum(column) for column in zip(*moments, strict=True))
    square /= count
    plain /= count
    total /= times
    noise *= factor / times**2
    first = moved / times / count * factor
    # With no gap at all: β and k of a sum of squares of normal variables (Welch and Satterthwaite).
    scale = max(first / (4 * plain) if plain > 0 else 0.0, 1e-6 * noise / total)
    if plain <= 1e-12 * total:
        scale = noise / total
    return Law(square, plain, scale, noise / scale**2)


def interval_of(classes: Sequence[Bins], level: float = 0.9) -> Interval:
    """Return the root mean square gap of the bins of some classes, without noise, with its interval."""
    law = law_of_bins(classes)
    low, high = square_interval(law, level)
    low = math.sqrt(low)
    value = math.sqrt(max(law.value, 0.0))
    high = min(max(math.sqrt(high), _rare_end(classes, value, math.sqrt(high), level)), 1.0)
    if math.fsum(classes[0].rows) < _FEW * len(classes):  # all noise may be gaps of classes by themselves
        plain = math.fsum(bins._cells.moments().plain for bins in classes) / len(classes)
        high = max(high, math.sqrt(plain))
    return Interval(value, low, high, level, AT_ZERO if low <= 0 else "")


def _rare_end(classes: Sequence[Bins], value: float, high: float, level: float) -> float:
    """Return the upper end of an interval where what moves the error is rare, or was never seen.

    As in `interval`: rows are drawn again, together with an exponential number that had another outcome.
    """
    others = max(len(classes) - 1, 1)
    parts = []
    for bins in classes:
        full = bins.weight > 0
        came = bins.outcome[full]
        share = bins.weight[full] / math.fsum(bins.weight)
        parts.append((share, bins.rows[full], bins.forecast[full], came, (1 - came) / others - came))

    def error(extra: Any, hits: Sequence[Array]) -> Any:
        """Return the error where outcomes moved by this share of the rows."""
        squares = 0.0
        for (share, _, forecast, _, moves), came in zip(parts, hits, strict=True):
            squares += (came + extra * moves - forecast) ** 2 @ share
        return np.sqrt(squares / len(classes))

    rows = math.fsum(classes[0].rows)
    seen = [came for *_, came, _ in parts]
    if error(unseen(level) / rows, seen) - error(0.0, seen) <= high - value:
        return high
    rng = np.random.default_rng(0)
    extra = rng.exponential(1 / rows, (_DRAWS, 1))
    drawn = []
    for _, count, _, came, _ in parts:
        whole = np.maximum(np.rint(count), 1).astype(np.int64)
        drawn.append(rng.binomial(whole, came, (_DRAWS, len(whole))) / whole)
    return float(np.quantile(error(extra, drawn), (1 + level) / 2))


def together(classes: Sequence[Bins]) -> float:
    """Return how much the variance of a sum over classes grows because one row's outcome moves several of them.

    With one forecast p for all rows the covariance is `diag(p) − ppᵀ`; this is its squared norm over that of its
    diagonal. 2 for two classes, whose gaps are the same, and nearly 1 for many.
    """
    if len(classes) == 1:
        return 1.0
    rate = np.sort([bins.mean_outcome for bins in classes])
    own = float(np.sum((rate * (1 - rate)) ** 2))
    pairs = float(rate[1:] ** 2 @ np.cumsum(rate**2)[:-1])  # the smallest first: nothing cancels
    return 1 + 2 * pairs / own if own > 0 else 2.0


def _absolute_gap(n: Array, p: Array) -> tuple[Array, Array]:
    """Return mean and variance of `|X/n − p|`, X binomial."""
    mean = mean_gap(n, p)
    return mean, np.maximum(p * (1 - p) / n - mean**2, 0.0)


def mean_gap(n: Array | Integers, p: Array) -> Array:
    """Return the mean of `|X/n − p|`, X binomial, by De Moivre's formula.

    Examples
    --------
    >>> mean_gap(np.array([1, 2, 100]), np.array([0.3, 0.5, 0.1])).round(4)
    array([0.42  , 0.25  , 0.0237])
    """
    from scipy.special import gammaln, xlog1py, xlogy

    m = np.minimum(np.floor(n * p), n - 1)
    log = xlogy(m + 1, p) + xlog1py(n - m, -p) + gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m)
    # Where logarithms lose digits: the normal law, or for what is rare that of Poisson.
    rare = n * np.minimum(p, 1 - p)
    few = 2 * np.exp(xlogy(np.floor(rare) + 1, rare) - rare - gammaln(np.floor(rare) + 1)) / n
    many = np.where(rare < 1000, few, np.sqrt(2 / np.pi * p * (1 - p) / n))
    found: Array = np.where((p > 0) & (p < 1), np.where(n < 1e6, 2 * np.exp(log) / n, many), 0.0)
    return found
