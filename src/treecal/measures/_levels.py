"""A value with its interval, what chance alone would show, and the law of an estimated square.

Squares have a law of their own, and an interval that follows from it, because resampling fails for squares near 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from treecal._typing import Array, Integers

AT_ZERO = "not distinguishable from 0, where an interval covers more often than its level"
IMPOSSIBLE = "an outcome with forecast 0 is possible"


def unseen(level: float) -> float:
    """Return in how many of n rows something never seen in them may occur: three at a level of 90 %."""
    return -math.log((1 - level) / 2)


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

    Where rows have no largest value, `most` is one that the next row may have: the interval then covers what is rare up
    to there. Its default says nothing of rare rows, unless all rows were alike: then there is no upper end.

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
    if half <= 1e-12 * abs(value) and not math.isfinite(most):
        return Interval(value, 0.0, most, level, IMPOSSIBLE)
    low, high = with_rare(value, value - half, value + half, rows, level=level, most=most)
    return Interval(value, max(low, 0.0), min(high, most), level)


def largest_surprise(top: Array, classes: int) -> float:
    """Return the largest log loss of a row whose likeliest class has one of these probabilities and does not come.

    Those of 1 are left out: their loss is infinite, and so is the answer if there are no others.

    Examples
    --------
    >>> round(largest_surprise(np.array([0.5, 0.99, 1.0]), 2), 3)
    4.605
    """
    rest = 1 - top[top < 1]
    return -math.log(rest.min() / (classes - 1)) if len(rest) else math.inf


def with_rare(value: float, low: float, high: float, rows: float, *, level: float, most: float) -> tuple[float, float]:
    """Return the ends of the interval of a mean from 0 to `most`, also where what moves it is rare, or was never seen.

    What comes in one of n rows, or in none, may come in `ln(2/(1 − level))/n` of them: three of n at a level of 90 %.
    An interval that is not wider than that is the one of the rows and of one more, at the one bound or the other.

    Examples
    --------
    >>> low, high = with_rare(0.0, 0.0, 0.0, 200, level=0.9, most=1.0)
    >>> low, round(high, 3)
    (0.0, 0.013)
    """
    half = max(high - value, value - low)
    if not math.isfinite(most) or half >= unseen(level) * most / rows:
        return low, high
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    square = (half / z) ** 2 * rows + value**2
    ends = []
    for bound in (0.0, most):
        mean = (rows * value + bound) / (rows + 1)
        spread = (rows * square + bound**2) / (rows + 1) - mean**2
        ends.append(mean + math.copysign(z, bound - value) * math.sqrt(max(spread, 0.0) / rows))
    return min(low, ends[0]), max(high, ends[1])


class Law(NamedTuple):
    """An estimated square: `value ~ β·χ'²_k(square/β) − β·k`, approximately.

    Its mean is the square, and its variance `2β²k + 4β·square`: noise that does not vanish at 0, and noise that grows
    with the square.

    Attributes
    ----------
    value
        The unbiased estimate.
    plain
        The estimate with its noise.
    scale, freedom
        β and k.
    """

    value: float
    plain: float
    scale: float
    freedom: float


class Square(ABC):
    """A measure that is the squared length of a vector of sums over rows, or the root of it."""

    @abstractmethod
    def law(self, y: Integers, chunk: Integers, chunks: int, *, rows: bool) -> Law:
        """Return the law of the square, chunks of rows being independent; with `rows`, even the rows are."""


def law_of(value: float, whole: Array, added: Array, moved: Array | float = 0.0) -> Law:
    """Return the law of the squared length of a vector that is a sum over independent chunks.

    Parameters
    ----------
    value
        The unbiased estimate of the squared length.
    whole
        The vector as estimated, `(f,)`.
    added
        What each chunk adds to it, less its mean, `(chunks, f)`.
    moved
        What each chunk adds to the square otherwise, to first order, `(chunks,)`.
    """
    chunks = len(added)
    plain = float(whole @ whole)
    spread = added.T @ added if added.shape[1] <= chunks else added @ added.T  # the same traces
    # Of a covariance estimated from m chunks, the trace of the square is too large by (trace)²/m (Wishart).
    noise = float(np.sum(spread**2))
    noise = max(noise - float(np.trace(spread)) ** 2 / chunks, 0.01 * noise)
    first = 2 * added @ whole + moved
    scale = float(first @ first) / (4 * plain) if plain > 0 else 0.0
    return Law(value, plain, scale, noise / scale**2 if scale > 0 else 0.0)


def square_interval(law: Law, level: float) -> tuple[float, float]:
    """Return the interval of the squares under which the estimate is not unusual."""
    tail = (1 - level) / 2
    # An estimate below 0 is an estimate of 0: a smaller estimate is no evidence for a smaller square.
    return _square_at(law, law.value, 1 - tail), _square_at(law, max(law.value, 0.0), tail)


def _square_at(law: Law, seen: float, share: float) -> float:
    """Return the square under which the estimate is at most `seen` in this share of logs; 0 if there is none."""
    if law.scale <= 0 or _below(law, seen, 0.0) <= share:
        return 0.0
    low = 0.0
    high = max(law.plain, seen, law.scale)
    while _below(law, seen, high) > share:
        low = high
        high = 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(law, seen, middle) > share else (low, middle)
    return high


def _below(law: Law, seen: float, square: float) -> float:
    """Return how often the estimate is at most `seen` where the square is this."""
    from scipy.special import chndtr, ndtr  # imported when needed: SciPy takes long

    x = seen / law.scale + law.freedom
    shift = square / law.scale
    if law.freedom + shift > 3000:  # where they agree to three digits, and the series is slow
        return float(ndtr((x - law.freedom - shift) / math.sqrt(2 * law.freedom + 4 * shift)))
    return float(chndtr(x, law.freedom, shift)) if x > 0 else 0.0
