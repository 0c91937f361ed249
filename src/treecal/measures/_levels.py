"""A value with its interval, and what chance alone would show."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from treecal._typing import Array

AT_ZERO = "not told from 0: there an interval covers more often than its level"


@dataclass(frozen=True)
class Interval:
    """A measure of a log, and where its value for infinitely many such rows lies.

    Attributes
    ----------
    value
        The measure of these rows.
    low, high
        The interval. It can lie below `value` where noise counts as error, as in `ece`.
    level
        How often such an interval holds the true value, in the long run.
    note
        What to know about this interval; empty if there is nothing.
    """

    value: float
    low: float
    high: float
    level: float
    note: str = ""

    def __str__(self) -> str:
        words = f"{self.value:.4g}, {100 * self.level:g} % interval {self.low:.4g} to {self.high:.4g}"
        return words + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True, eq=False)
class Chance:
    """What a measure would be if the forecasts were right: its values on outcomes drawn from them.

    Attributes
    ----------
    draws
        The values, in order.
    """

    draws: Array

    @property
    def mean(self) -> float:
        """Mean of the draws: the chance level."""
        return float(self.draws.mean())

    def quantile(self, q: float) -> float:
        """Return the value that a share `q` of the draws does not exceed."""
        return float(np.quantile(self.draws, q))

    def p_value(self, value: float) -> float:
        """Return `(1 + draws that reach value)/(1 + draws)`: a valid p-value of "the forecasts are right"."""
        reached = len(self.draws) - np.searchsorted(self.draws, value - 1e-12 * abs(value), side="left")
        return float((1 + reached) / (1 + len(self.draws)))


def mean_interval(value: float, square: float, rows: float, *, level: float = 0.9, most: float = math.inf) -> Interval:
    """Return a mean of independent rows from 0 to `most` with its interval, given the mean of their squares.

    Examples
    --------
    >>> print(mean_interval(0.25, 0.1, 400))
    0.25, 90 % interval 0.2341 to 0.2659
    """
    if not math.isfinite(value):
        return Interval(value, value, value, level, "an outcome had forecast 0")
    from scipy.special import ndtri

    if rows < 2:
        return Interval(value, 0.0, most, level, "one row")
    half = ndtri((1 + level) / 2) * math.sqrt(max(square - value**2, 0.0) / max(rows - 1, 1.0))
    return Interval(value, max(value - half, 0.0), min(value + half, most), level)
