"""The loops of many running means, and of many grids of two outcomes: those of the forecasters, stream by stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from treecal._compile import strict
from treecal._typing import Array, Integers
from treecal.engine._kernels import add_outcome


@strict
def add(rows: Integers, outcomes: Any, sums: Array, lost: Array, rounds: Integers) -> None:
    """Add outcomes to their streams' sums, and what rounding drops to what it lost (Knuth's error-free addition)."""
    dim = sums.shape[1]
    outcome = np.empty(dim)
    for i in range(len(rows)):
        row = rows[i]
        outcome[:] = 0.0
        add_outcome(outcome, outcomes, i)
        for k in range(dim):
            a, b = sums[row, k], outcome[k]
            total = a + b
            seen = total - a
            sums[row, k] = total
            lost[row, k] += (a - (total - seen)) + (b - seen)
        rounds[row] += 1


@strict
def _middlemost(rows: Integers, count: int, last: int) -> int:
    """Keep those rows that are nearest to the middle, one or two; return how many."""
    least = abs(2 * rows[0] - last)
    for i in range(1, count):
        least = min(least, abs(2 * rows[i] - last))
    kept = 0
    for i in range(count):
        if abs(2 * rows[i] - last) == least:
            rows[kept] = rows[i]
            kept += 1
    return kept


@strict
def choose_points(bias: Array, chosen: Integers, weights: Array) -> int:
    """Write the points of a grid to play, and their weights; return how many. `chosen` has room for all points."""
    bins, found = len(bias) - 1, 0
    for i in range(bins + 1):
        if bias[i] == 0:
            chosen[found] = i
            found += 1
    if found:
        count = _middlemost(chosen, found, bins)
        for c in range(count):
            weights[c] = 1 / count
        return count
    for i in range(bins):
        if bias[i] > 0 and bias[i + 1] < 0:
            chosen[found] = i
            found += 1
    cells = _middlemost(chosen, found, bins - 1)
    for c in range(cells - 1, -1, -1):
        i = chosen[c]
        both = abs(bias[i + 1]) + abs(bias[i])
        chosen[2 * c], chosen[2 * c + 1] = i, i + 1
        weights[2 * c], weights[2 * c + 1] = abs(bias[i + 1]) / both / cells, abs(bias[i]) / both / cells
    return 2 * cells


@strict
def announce_grids(rows: Integers, biases: Array, points: Array, weights: Array, sizes: Integers) -> None:
    """Write the points of each stream's forecast, their weights, and how many there are."""
    bins = biases.shape[1] - 1
    chosen = np.empty(bins + 4, np.int64)
    for i in range(len(rows)):
        sizes[i] = choose_points(biases[rows[i]], chosen, weights[i])
        for c in range(sizes[i]):
            points[i, c, 0], points[i, c, 1] = (bins - chosen[c]) / bins, chosen[c] / bins


@strict
def play_grids(rows: Integers, outcomes: Any, biases: Array, rounds: Integers) -> None:
    """Play a round of each row's stream, in order."""
    bins = biases.shape[1] - 1
    chosen, weights, outcome = np.empty(bins + 4, np.int64), np.empty(4), np.empty(2)
    for i in range(len(rows)):
        bias = biases[rows[i]]
        count = choose_points(bias, chosen, weights)
        outcome[:] = 0.0
        add_outcome(outcome, outcomes, i)
        for c in range(count):
            high = chosen[c] / bins
            low = (bins - chosen[c]) / bins
            gap = ((outcome[1] - high) - (outcome[0] - low)) / 2
            bias[chosen[c]] += weights[c] * min(max(gap, -high), low)
        rounds[rows[i]] += 1
