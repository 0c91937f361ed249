"""Distributions of a number: the set of distribution functions on an interval, and what can be read off one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecal._optional import require
from treecal._typing import Array
from treecal._validate import finite_array, fraction, whole_number
from treecal.exceptions import GeometryError, ParameterError
from treecal.geometry._convex import TOLERANCE, ConvexSet, Extent, frozen, within_reach
from treecal.geometry._norms import Crps, Norm, as_norm, as_points

POINTS = 100
"""Thresholds, where their number is not given."""
_MOST = 2**20  # thresholds
_LISTED = 1024  # thresholds whose steps are listed


class Cdf(ConvexSet):
    """Distributions of a number in an interval: outcomes are numbers, and forecasts distribution functions `F`.

    A point of the set is the values of `F` at the thresholds, which rise from 0 or more to 1 or less. The outcome `y`
    is the step `1{y <= z}`, so the mean of outcomes is their empirical distribution, and a forecast is calibrated if
    the numbers that followed it are distributed as it says: auto-calibration, for every distinct forecast.

    The norm "crps", the set's own, is that of L²: `‖F − G‖² = Σ_i w_i·(F(z_i) − G(z_i))²`, with the widths `w` of the
    cells around the thresholds, so that `‖F − 1{y <= ·}‖²` is the continuous ranked probability score of `F`, as the
    thresholds see it. Every step is at the distance `√(high − low)/2` from the centre, the constant ½: certificates are
    those of a ball of that radius, for any number of thresholds. A constant forecast has an error of up to that much.

    A forecast may be given as quantiles by level, as members of an ensemble, as mean and standard deviation, as
    anything with a method `cdf`, or as values at the thresholds: `treecal.geometry.read_distributions` has the rules.

    Parameters
    ----------
    low, high
        The interval that outcomes lie in. Others are refused, or with `clip` count as its nearer end.
    points
        Number of thresholds, by default 100: the middles of so many cells of equal width.
    thresholds
        Instead, the thresholds: increasing, from `low` on, and below `high`. Cells end halfway between two of them.
    clip
        Whether numbers outside, in outcomes and in forecasts, count as the nearer end.

    Examples
    --------
    >>> load = Cdf(0, 500, points=4)
    >>> load.thresholds, load.steps(200)
    (array([ 62.5, 187.5, 312.5, 437.5]), array([0., 0., 1., 1.]))
    >>> load.radius("crps") ** 2, load.diameter("crps") ** 2
    (125.00000000000001, 500.00000000000006)
    >>> load.distribution([0.2, 0.4, 0.6, 0.8]).interval(0.5)
    (93.75, 406.25)

    References
    ----------
    Matheson and Winkler, "Scoring Rules for Continuous Probability Distributions", 1976.
    Tsyplakov, "Evaluation of Probabilistic Forecasts: Proper Scoring Rules and Moments", 2013, for auto-calibration.
    """

    _fields = ("low", "high", "points", "thresholds", "clip")

    def __init__(
        self,
        low: float,
        high: float,
        *,
        points: int | None = None,
        thresholds: ArrayLike | None = None,
        clip: bool = False,
    ) -> None:
        self.low = float(within_reach("low", low, ndim=0))
        self.high = float(within_reach("high", high, ndim=0))
        if not self.low < self.high:
            raise GeometryError(f"low is {self.low:g} and high {self.high:g}, expected a number and a greater one.")
        if points is not None and thresholds is not None:
            raise ParameterError("Cdf takes either the number of points or the thresholds, not both.")
        if not isinstance(clip, bool):
            raise ParameterError.expected("clip", clip, "True or False")
        self.clip = clip
        self.points = None
        if thresholds is None:
            self.points = whole_number("points", POINTS if points is None else points, least=1, most=_MOST)
            shares = (np.arange(self.points) + 0.5) / self.points
            self.thresholds = frozen(self.low + (self.high - self.low) * shares)
        else:
            self.thresholds = finite_array("thresholds", thresholds, ndim=1)
        z = self.thresholds
        if not (z.size and self.low <= z[0] and z[-1] < self.high and (np.diff(z) > 0).all()):
            raise GeometryError(
                f"thresholds are {len(z)} numbers from {z.min(initial=self.high):g} on, expected increasing ones, "
                f"at least {self.low:g} and below {self.high:g}, that float64 can distinguish."
            )
        self.dim = len(z)
        self.centre = frozen(np.full(self.dim, 0.5))
        edges = np.concatenate([[self.low], z[:-1] + np.diff(z) / 2, [self.high]])
        self.widths = frozen(np.diff(edges))
        self.knots = frozen(np.concatenate([[self.low], z, [self.high]]))

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments: either the number of points or the thresholds."""
        grid = {"thresholds": self.thresholds} if self.points is None else {"points": self.points}
        return {"low": self.low, "high": self.high, **grid, "clip": self.clip}

    @cached_property
    def crps(self) -> Crps:
        """The norm of the set, by the name "crps": its square is the continuous ranked probability score."""
        return Crps(self.widths)

    @property
    def default_norm(self) -> Norm:  # type: ignore[override] # depends on the widths
        """The norm of errors on the set where none is named."""
        return self.crps

    def contains(self, points: ArrayLike, *, tol: float = TOLERANCE) -> NDArray[np.bool_]:
        """Return whether each vector rises from 0 or more to 1 or less, within `tol`."""
        p = as_points(self, points)
        with np.errstate(invalid="ignore", over="ignore"):
            rises = (p[..., 1:] - p[..., :-1] >= -tol).all(axis=-1)
            return np.asarray((p[..., 0] >= -tol) & (p[..., -1] <= 1 + tol) & rises)[()]

    def complaint(self, outcome: Array) -> str:
        """Return where the vector falls, or which end is not a probability."""
        if outcome[0] < -TOLERANCE:
            return f"its first value is {outcome[0]:.6g}, expected 0 or more"
        if outcome[-1] > 1 + TOLERANCE:
            return f"its last value is {outcome[-1]:.6g}, expected 1 or less"
        at = int(np.argmin(np.diff(outcome))) if self.dim > 1 else 0
        return f"it falls from {outcome[at]:.6g} to {outcome[min(at + 1, self.dim - 1)]:.6g} at threshold {at + 1}"

    def steps(self, numbers: ArrayLike) -> Array:
        """Return the steps `1{y <= z_i}` of numbers, along a new last axis; numbers are not checked."""
        return (np.asarray(numbers, dtype=np.float64)[..., None] <= self.thresholds).astype(np.float64)

    def corners(self) -> Array:
        """Return all steps, the vertices of the set: that of the greatest number first."""
        return np.tri(self.dim + 1, self.dim, -1)[:, ::-1]

    def distribution(self, points: ArrayLike) -> Distribution:
        """Return the distributions that points of the set stand for, to be read: one, or an array of them."""
        return Distribution(self, as_points(self, points))

    def minimise(self, direction: ArrayLike) -> Array:
        """Return the step of the least inner product: that of the greatest number where several tie."""
        v = as_points(self, direction)
        after = np.cumsum(v[..., ::-1], axis=-1)  # over the last k thresholds
        sums = np.concatenate([np.zeros((*v.shape[:-1], 1)), after], axis=-1)
        return np.asarray(np.arange(self.dim)[::-1] < np.argmin(sums, axis=-1)[..., None], np.float64)

    def project(self, points: ArrayLike) -> Array:
        """Return the nearest distribution function: isotonic regression, clipped to 0 and 1."""
        from scipy.optimize import isotonic_regression

        p = as_points(self, points)
        rows = [isotonic_regression(row).x for row in p.reshape(-1, self.dim)]
        return np.clip(np.reshape(rows, p.shape), 0.0, 1.0)

    def sample(self, rng: np.random.Generator, size: int | None = None) -> Array:
        """Draw uniformly from the set: uniform numbers, sorted."""
        return np.sort(rng.random(self.dim if size is None else (size, self.dim)), axis=-1)

    def bounds(self) -> tuple[Array, Array]:
        """Return 0 and 1."""
        return np.zeros(self.dim), np.ones(self.dim)

    def radius(self, norm: Norm | str, *, about: ArrayLike | None = None) -> Extent:
        """Return the distance of the farthest step: exact in every norm."""
        point = self._point("about", about)
        measure = as_norm(norm, self)
        if measure.absolute and (self.dim > _LISTED or (point == 0.5).all()):  # the farther end at every threshold
            return Extent(measure(np.maximum(point, 1 - point)), exact=bool((point == 0.5).all()))
        return Extent(np.max(measure(self.corners() - point)))

    def circumradius(self, norm: Norm | str) -> Extent:
        """Return the radius about the constant ½: exact in norms that depend on the sizes of coordinates only."""
        measure = as_norm(norm, self)
        return Extent(self.radius(measure), exact=measure.absolute)

    def diameter(self, norm: Norm | str) -> Extent:
        """Return the distance of the steps at both ends: exact in norms that depend on the sizes of coordinates."""
        measure = as_norm(norm, self)
        return Extent(measure(np.ones(self.dim))) if measure.absolute else super().diameter(measure)

    def __repr__(self) -> str:
        grid = "" if self.points == POINTS else f", {'points' if self.points else 'thresholds'}={self.points or '…'}"
        return f"Cdf({self.low:g}, {self.high:g}{grid}{', clip=True' if self.clip else ''})"


class Distribution:
    """A distribution of a number, or an array of them: its function is linear between the thresholds of a `Cdf`.

    Made by `Cdf.distribution` and `Forecast.distribution`. Below the first threshold it rises from 0 at the low end,
    above the last one to 1 at the high end. What it answers has the shape of the array; one distribution gives plain
    numbers.

    Attributes
    ----------
    space
        The set.
    values
        The distribution function at the thresholds, `(..., dim)`.

    Examples
    --------
    >>> forecast = Cdf(0, 10, points=5).distribution([0.0, 0.25, 0.75, 1.0, 1.0])  # at 1, 3, 5, 7 and 9
    >>> forecast.cdf(4), forecast.quantile(0.5), forecast.interval(0.5)
    (0.5, 4.0, (3.0, 5.0))
    >>> forecast.mean, round(forecast.sd, 3), round(forecast.crps(4), 3)
    (4.0, 1.528, 0.375)
    """

    def __init__(self, space: Cdf, values: Array) -> None:
        self.space = space
        self.values = values
        ends = np.zeros((*values.shape[:-1], 1))
        # Rounding may leave a value a little below the one before it.
        inner = np.maximum.accumulate(np.clip(values, 0.0, 1.0), axis=-1)
        self._levels = np.concatenate([ends, inner, ends + 1], axis=-1)

    def cdf(self, z: ArrayLike) -> Any:
        """Return the probability of numbers up to `z`; of an array of distributions, one `z` for each or for all."""
        at = np.asarray(z, dtype=np.float64)
        knots = self.space.knots
        cell = np.clip(np.searchsorted(knots, at, side="right"), 1, len(knots) - 1)
        cell = np.broadcast_to(cell, np.broadcast_shapes(cell.shape, self._levels.shape[:-1]))
        with np.errstate(divide="ignore", invalid="ignore"):  # below a first threshold at the low end
            share = np.clip((at - knots[cell - 1]) / (knots[cell] - knots[cell - 1]), 0.0, 1.0)
        below, above = self._pair(cell)
        return _plain(np.where(at < self.space.low, 0.0, below + share * (above - below)))

    def quantile(self, level: ArrayLike) -> Any:
        """Return the least number that is not exceeded with this probability, 0 to 1: the median for 0.5."""
        tau = finite_array("level", level)
        if tau.size and not (tau.min() >= 0 and tau.max() <= 1):
            raise ParameterError.expected("level", level, "0 to 1", hint="a level in percent is divided by 100.")
        knots = self.space.knots
        cell = np.minimum((self._levels < tau[..., None]).sum(axis=-1), len(knots) - 1)
        below, above = self._pair(np.maximum(cell, 1))
        share = np.where(above > below, (tau - below) / np.where(above > below, above - below, 1.0), 0.0)
        start = knots[np.maximum(cell, 1) - 1]
        found = start + np.clip(share, 0.0, 1.0) * (knots[np.maximum(cell, 1)] - start)
        return _plain(np.where(cell > 0, found, self.space.low))

    def interval(self, coverage: float) -> tuple[Any, Any]:
        """Return the central interval of this probability: both tails outside it are equally likely."""
        coverage = fraction("coverage", coverage, hint="0.9 for 90 %.")
        return self.quantile((1 - coverage) / 2), self.quantile((1 + coverage) / 2)

    @property
    def mean(self) -> Any:
        """The mean."""
        return _plain(self.space.high - self._integrals(self._levels[..., :-1], self._levels[..., 1:]))

    @property
    def sd(self) -> Any:
        """The standard deviation."""
        # E(X − low)² = (high − low)² − ∫ 2(z − low)·F(z) dz, and F is linear in each cell.
        knots = self.space.knots - self.space.low
        width = np.diff(knots)
        a, b = self._levels[..., :-1], self._levels[..., 1:]
        second = knots[-1] ** 2 - (width * (knots[:-1] * (a + b) + width * (a + 2 * b) / 3)).sum(axis=-1)
        first = knots[-1] - self._integrals(a, b)
        return _plain(np.sqrt(np.maximum(second - first * first, 0.0)))

    def crps(self, outcome: ArrayLike) -> Any:
        """Return the continuous ranked probability score of an outcome: `∫ (F(z) − 1{y <= z})² dz`, exactly."""
        y = np.asarray(outcome, dtype=np.float64)
        low, high, knots = self.space.low, self.space.high, self.space.knots
        beyond = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
        inside = np.clip(y, low, high)[..., None]
        middle = np.asarray(self.cdf(inside[..., 0]))[..., None]
        a, b = self._levels[..., :-1], self._levels[..., 1:]
        left = np.clip(inside - knots[:-1], 0.0, np.diff(knots))
        right = np.diff(knots) - left
        # In the cell that holds y both parts have a width; F is `middle` between them.
        up = np.where(right > 0, np.minimum(b, middle), b)
        down = np.where(left > 0, np.maximum(a, middle), a)
        below = left * (a * a + a * up + up * up)
        above = right * ((1 - down) ** 2 + (1 - down) * (1 - b) + (1 - b) ** 2)
        return _plain((below + above).sum(axis=-1) / 3 + beyond)

    def to_frame(self, levels: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)) -> Any:
        """Return a pandas table with a row for each distribution: quantiles `q0.05`, …, and the mean.

        Parameters
        ----------
        levels
            The levels of the quantiles.

        Examples
        --------
        >>> print(Cdf(0, 10, points=5).distribution([[0.0, 0.25, 0.75, 1.0, 1.0]]).to_frame([0.1, 0.9]))
           q0.1  q0.9  mean
        0   1.8   6.2   4.0
        """
        pandas = require("pandas", extra="data", what="a table of forecasts")
        found = {f"q{level:g}": np.ravel(self.quantile(level)) for level in levels}
        return pandas.DataFrame(found | {"mean": np.ravel(self.mean)})

    def _integrals(self, a: Array, b: Array) -> Array:
        return np.asarray((np.diff(self.space.knots) * (a + b) / 2).sum(axis=-1))

    def _pair(self, cell: Any) -> tuple[Array, Array]:
        """Return the function at both ends of a cell of each distribution."""
        cell = np.asarray(cell)
        levels = np.broadcast_to(self._levels, (*cell.shape, self._levels.shape[-1]))
        below, above = (np.take_along_axis(levels, (cell - k)[..., None], axis=-1)[..., 0] for k in (1, 0))
        return below, above

    def __repr__(self) -> str:
        if self.values.ndim > 1:
            return f"Distribution(array of {self.values.shape[:-1]} on {self.space!r})"
        low, high = self.interval(0.9)
        return f"Distribution(median {self.quantile(0.5):.4g}, 90 % from {low:.4g} to {high:.4g})"


def _plain(found: Any) -> Any:
    """Return a plain number in place of an array without axes."""
    return float(found) if np.ndim(found) == 0 and math.isfinite(found) else found
