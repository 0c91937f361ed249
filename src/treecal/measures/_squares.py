"""The law of an estimated square, and the interval that follows: resampling fails for squares near 0."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from treecal._typing import Array, Integers


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
    # An estimate below 0 is an estimate of 0: a smaller one is no evidence for a smaller square.
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
