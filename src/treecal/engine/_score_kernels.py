"""The sums that scores are made of, for many streams, compiled: each is added in the order of `Tallies`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treecal._compile import strict
from treecal._typing import Array, Integers
from treecal.engine._kernels import add_outcome


class Points(NamedTuple):
    """Forecasts of rounds: points `(n, most, d)`, their weights, how many they are, and their log scores."""

    points: Array
    weights: Array
    sizes: Integers
    logs: Array


@strict
def add_scores(
    rows: Integers, forecasts: Points, outcomes: Any, low: Array, width: Array, totals: Array, cells: Array
) -> None:
    """Add rounds to the sums of their streams: `totals[row]`, and `cells[row, coordinate, bin]`."""
    y, bins = np.empty(len(low)), cells.shape[2] - 1
    for i in range(len(rows)):
        y[:] = 0.0
        add_outcome(y, outcomes, i)
        own, sums = cells[rows[i]], totals[rows[i]]
        for c in range(forecasts.sizes[i]):
            point, share, miss = forecasts.points[i, c], forecasts.weights[i, c], 0.0
            for j in range(len(y)):
                miss += (y[j] - point[j]) ** 2
                at = int(min(max(np.rint((point[j] - low[j]) / width[j]), 0.0), float(bins)))
                own[j, at, 0] += 1.0 * share
                own[j, at, 1] += point[j] * share
                own[j, at, 2] += y[j] * share
            sums[0] += miss * share
            sums[1] += forecasts.logs[i, c] * share
