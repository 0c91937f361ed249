"""Forecasts of numbers in the form in which they were given: quantiles, ensembles, moments, or curves on a `tc.Cdf`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal.exceptions import OutcomeError, ParameterError
from treecal.geometry import Distribution, read_columns
from treecal.measures._log import read_weights

Forecasts = Mapping[Any, ArrayLike] | Distribution | Any
"""Forecasts of numbers, in one of the forms of this module."""


def pinball_losses(level: float, q: Array, y: Array) -> Array:
    """Return the pinball loss of each quantile of a level."""
    return np.where(y >= q, level * (y - q), (1 - level) * (q - y))


class Laws:
    """Forecasts of numbers, one for each of n rows, in the form in which they were given."""

    rows: int
    levels: tuple[float, ...] = ()
    """The levels that are known, where others are not."""

    def crps(self, y: Array) -> Array:
        """Return the continuous ranked probability score of each row."""
        raise NotImplementedError

    def pit(self, y: Array) -> tuple[Array, Array]:
        """Return the ends of the interval in which the forecast has each outcome: `P(Y < y)` and `P(Y <= y)`."""
        raise NotImplementedError

    def quantile(self, level: float) -> Array:
        """Return the quantile of each row."""
        raise NotImplementedError

    def draw(self, rng: np.random.Generator) -> Array:
        """Return an outcome of each row, drawn from its forecast."""
        raise NotImplementedError


class Quantiles(Laws):
    """Quantiles of some levels: between and beyond them nothing is known."""

    def __init__(self, levels: Sequence[float], values: Array) -> None:
        self.levels = tuple(levels)
        self.values = values
        self.rows = len(values)

    def crps(self, y: Array) -> Array:
        """Twice the mean pinball loss over the levels: also the weighted interval score."""
        losses = [pinball_losses(tau, q, y) for tau, q in zip(self.levels, self.values.T, strict=True)]
        return np.asarray(2 * np.mean(losses, axis=0))

    def pit(self, y: Array) -> tuple[Array, Array]:
        """The interval between two known levels; where several quantiles equal the outcome, all between them."""
        tau = np.array([0.0, *self.levels, 1.0])
        below = (self.values < y[:, None]).sum(axis=1)
        upto = np.maximum((self.values <= y[:, None]).sum(axis=1), below + 1)
        return tau[below], tau[upto]

    def quantile(self, level: float) -> Array:
        if level in self.levels:
            return np.asarray(self.values[:, self.levels.index(level)])
        return self._quantiles(np.full(self.rows, level))

    def draw(self, rng: np.random.Generator) -> Array:
        return self._quantiles(rng.random(self.rows))

    def _quantiles(self, u: Array) -> Array:
        """Return quantiles of any levels: linear between the known ones, with exponential tails, as in a `Cdf`."""
        tau, q = np.array(self.levels), self.values
        cell = np.clip(np.searchsorted(tau, u, side="right"), 1, max(len(tau) - 1, 1))
        if len(tau) == 1:
            return q[:, 0]
        each = np.arange(len(q))
        share = (u - tau[cell - 1]) / (tau[cell] - tau[cell - 1])
        inner = q[each, cell - 1] + np.clip(share, 0, 1) * (q[each, cell] - q[each, cell - 1])
        low = (q[:, 1] - q[:, 0]) * tau[0] / (tau[1] - tau[0]) * np.log(np.minimum(u / tau[0], 1.0))
        rest = (1 - tau[-1]) / (tau[-1] - tau[-2])
        high = (q[:, -1] - q[:, -2]) * rest * np.log(np.minimum((1 - u) / (1 - tau[-1]), 1.0))
        return np.asarray(inner + low - high)


class Members(Laws):
    """Ensembles: each member that is not missing has the same weight."""

    def __init__(self, values: Array, *, fair: bool = False) -> None:
        self.values = np.sort(values, axis=1)  # missing ones last
        self.count = (~np.isnan(values)).sum(axis=1)
        self.rows = len(values)
        self.fair = fair

    def crps(self, y: Array) -> Array:
        """`E|X − y| − ½·E|X − X'|`; of the fair estimate the second mean is over pairs of different members."""
        k = self.count[:, None]
        near = np.nansum(np.abs(self.values - y[:, None]), axis=1) / self.count
        rank = np.arange(1, self.values.shape[1] + 1)
        pairs = np.nansum((2 * rank - k - 1) * self.values, axis=1)  # Σ_{i<j} (x_j − x_i)
        others = self.count - 1 if self.fair else self.count
        spread = np.divide(pairs, self.count * others, out=np.zeros(self.rows), where=others > 0)
        return np.asarray(near - spread)

    def pit(self, y: Array) -> tuple[Array, Array]:
        below = (self.values < y[:, None]).sum(axis=1)
        upto = (self.values <= y[:, None]).sum(axis=1)
        # An outcome is as likely in each of the gaps between the members as in another, and ties are divided.
        return below / (self.count + 1), (upto + 1) / (self.count + 1)

    def quantile(self, level: float) -> Array:
        place = np.clip(np.ceil(level * self.count - 1e-9).astype(int) - 1, 0, self.count - 1)
        return np.take_along_axis(self.values, place[:, None], axis=1)[:, 0]

    def draw(self, rng: np.random.Generator) -> Array:
        """Return a number in one of the gaps between members, all as likely; beyond the outer ones, of mean width."""
        gap = np.minimum((rng.random(self.rows) * (self.count + 1)).astype(int), self.count)
        each = np.arange(self.rows)
        low = self.values[each, np.maximum(gap - 1, 0)]
        high = self.values[each, np.minimum(gap, self.count - 1)]
        spread = (self.values[each, self.count - 1] - self.values[:, 0]) / np.maximum(self.count - 1, 1)
        beyond = spread * rng.exponential(size=self.rows)
        inner = low + rng.random(self.rows) * (high - low)
        return np.asarray(np.where(gap == 0, high - beyond, np.where(gap == self.count, low + beyond, inner)))


class Moments(Laws):
    """Means and standard deviations of a family of distributions."""

    def __init__(self, mean: Array, sd: Array, family: str = "normal") -> None:
        self.mean = mean
        self.sd = sd
        self.family = family
        self.rows = len(mean)

    @property
    def _law(self) -> Any:
        from scipy import stats  # imported when needed: SciPy takes long

        sd = np.maximum(self.sd, np.finfo(float).tiny)
        if self.family == "lognormal":
            square = np.log1p((sd / self.mean) ** 2)
            return stats.lognorm(np.sqrt(square), scale=self.mean * np.exp(-square / 2))
        return stats.norm(self.mean, sd)

    def crps(self, y: Array) -> Array:
        """In closed form (Gneiting, Raftery, Westveld and Goldman 2005; Jordan, Krüger and Lerch 2019)."""
        from scipy.special import ndtr

        sd = np.maximum(self.sd, np.finfo(float).tiny)
        if self.family == "lognormal":
            s = np.sqrt(np.log1p((sd / self.mean) ** 2))
            z = (np.log(np.maximum(y, np.finfo(float).tiny)) - np.log(self.mean)) / s + s / 2
            return y * (2 * ndtr(z) - 1) - 2 * self.mean * (ndtr(z - s) + ndtr(s / math.sqrt(2)) - 1)
        z = (y - self.mean) / sd
        density = np.exp(-np.square(np.minimum(np.abs(z), 1e3)) / 2) / math.sqrt(2 * math.pi)
        return sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))

    def pit(self, y: Array) -> tuple[Array, Array]:
        found = np.asarray(self._law.cdf(y))
        return np.where((self.sd == 0) & (y == self.mean), 0.0, found), np.where(self.sd == 0, y >= self.mean, found)

    def quantile(self, level: float) -> Array:
        from scipy.special import ndtri

        if self.family == "normal":
            return self.mean + self.sd * ndtri(level)
        return np.asarray(self._law.ppf(level))

    def draw(self, rng: np.random.Generator) -> Array:
        return np.asarray(self._law.ppf(rng.random(self.rows)))


class Curves(Laws):
    """Distribution functions on a `Cdf`."""

    def __init__(self, law: Distribution) -> None:
        self.law = law
        self.rows = len(law.values)

    def crps(self, y: Array) -> Array:
        return np.asarray(self.law.crps(y))

    def pit(self, y: Array) -> tuple[Array, Array]:
        found = np.asarray(self.law.cdf(y))
        return found, found

    def quantile(self, level: float) -> Array:
        return np.asarray(self.law.quantile(level))

    def draw(self, rng: np.random.Generator) -> Array:
        return np.asarray(self.law.quantile(rng.random(self.rows)))


def read_laws(forecasts: Forecasts, *, fair: bool = False, before: int = 0) -> Laws:
    """Return forecasts of numbers in the form they have, checked; anything invalid raises, and names its row."""
    if isinstance(forecasts, Laws):
        return forecasts
    if isinstance(forecasts, Distribution):
        if forecasts.values.ndim != 2:
            raise ParameterError("forecasts are one Distribution, expected an array of them, one for each row.")
        return Curves(forecasts)
    form, levels, columns = read_columns(forecasts, before=before)
    if form == "members":
        return Members(columns, fair=fair)
    if form == "quantiles":
        return Quantiles(levels, columns)
    return Moments(columns[:, 0], columns[:, 1], form)


def says_numbers(forecasts: Any) -> bool:
    """Return whether forecasts are in one of the forms of numbers, and not probabilities of classes."""
    return isinstance(forecasts, Mapping | Distribution | Laws)


def read_outcomes(
    forecasts: Forecasts, y: ArrayLike, weights: ArrayLike | None, *, fair: bool = False
) -> tuple[Laws, Array, Array]:
    """Return forecasts, outcomes and weights, checked; anything invalid raises, and names its row."""
    laws = read_laws(forecasts, fair=fair)
    raw = np.asarray(y)
    if raw.shape != (laws.rows,) or raw.dtype.kind not in "iuf":
        raise OutcomeError(f"outcomes have shape {raw.shape}, expected a number for each of {laws.rows} forecasts.")
    outcomes = raw.astype(np.float64)
    if not np.isfinite(outcomes).all():
        row = int(np.argmin(np.isfinite(outcomes)))
        raise OutcomeError.at(row + 1, f"is {outcomes[row]}, expected a number.")
    return laws, outcomes, read_weights(weights, laws.rows)
