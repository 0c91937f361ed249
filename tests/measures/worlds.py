"""Logs whose truth is known, and their measures transcribed literally."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from treecal._typing import Array, Integers


def draw_classes(q: Array, rng: np.random.Generator) -> Integers:
    below: Integers = (rng.random(len(q))[:, None] > np.cumsum(q[:, :-1], axis=1)).sum(axis=1)
    return below


def world(d: int, *, sharp: float = 1.0, shift: float = 0.0) -> Callable[[int, np.random.Generator], Any]:
    """Return a source of logs: truths are uniform on the simplex; the model's forecasts are sharper, and shifted."""

    def draw(n: int, rng: np.random.Generator) -> tuple[Array, Integers]:
        q = rng.dirichlet(np.ones(d), n)
        P = q**sharp * np.exp(shift * (np.arange(d) == 0))
        return P / P.sum(axis=1, keepdims=True), draw_classes(q, rng)

    return draw


def gaps_by_bin(p: Array, hit: Array, bins: Integers) -> list[tuple[int, Array]]:
    return [(int((bins == b).sum()), (hit - p)[bins == b]) for b in np.unique(bins)]


def literal_ece(p: Array, hit: Array, bins: Integers) -> float:
    return float(sum(n * abs(g.mean()) for n, g in gaps_by_bin(p, hit, bins)) / len(p))


def literal_square(p: Array, hit: Array, bins: Integers) -> float:
    total = 0.0
    for n, g in gaps_by_bin(p, hit, bins):
        if n > 1:
            total += n * sum(g[i] * g[j] for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    return float(total / len(p))


def literal_atb(p: Array, y: Array) -> float:
    """The integral, exactly: between two neighbours among 0, the forecasts and 1, the sums do not change."""
    edges = np.unique(np.concatenate([[0, 1], p]))
    total = 0.0
    for low, high in pairwise(edges):
        below = p < (low + high) / 2
        total += (high - low) * (np.sum((p - y)[below]) ** 2 + np.sum((p - y)[~below]) ** 2)
    return float(total / len(p) ** 2)
