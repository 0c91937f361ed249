"""Harmonic averaging and replay in rationals, as the paper writes it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from treecal._typing import Array

Point = tuple[Fraction, ...]


def h(t: int) -> Fraction:
    return sum((Fraction(1, 2 * j + 1) for j in range(t)), Fraction(0))


def stored(outcomes: list[Point], t: int) -> Point:
    """Return `p_t = Σ_{s≤t} y_s / (h_{t+1}(2(t−s)+1))`."""
    weights = [1 / (h(t + 1) * (2 * (t - s) + 1)) for s in range(t + 1)]
    return tuple(sum((w * outcomes[s][k] for s, w in enumerate(weights)), Fraction(0)) for k in range(len(outcomes[0])))


def announced(outcomes: list[Point], t: int) -> list[tuple[Point, Fraction]]:
    """Return `μ_t`, for t >= 1: the points stored before round t with their weights `1 / (h_t(2(t−s)−1))`."""
    return [(stored(outcomes, s), 1 / (h(t) * (2 * (t - s) - 1))) for s in range(t)]


def stored_in_floats(outcomes: Array) -> Array:
    """Return all stored points `p_0, p_1, …` in float64, each summed anew from all outcomes, term by term."""
    reciprocals = 1 / (2 * np.arange(len(outcomes)) + 1)
    points, columns = np.empty_like(outcomes), np.ascontiguousarray(outcomes.T)
    for t in range(len(outcomes)):
        weights = reciprocals[t::-1]
        points[t] = np.add.reduce(columns[:, : t + 1] * weights, axis=1) / np.add.reduce(weights)  # pairwise
    return points
