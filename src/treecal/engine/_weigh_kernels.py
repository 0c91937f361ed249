"""The weights of many streams' heights at once: `weigh`, step by step for all of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._compile import strict
from treecal._typing import Array, Integers
from treecal.engine._compile import digits
from treecal.engine._tree_kernels import weigh_row
from treecal.engine._tree_records import COST, SCALE, Records
from treecal.forecasters._weighting import Weighting


class Rising(NamedTuple):
    """Streams of which higher nodes end, and room for what is computed of them."""

    rows: Integers
    nows: Integers
    """The rounds of each."""
    ends: Integers
    """How many nodes of each end."""
    grown: NDArray[np.bool_]
    """Whether the tree of each has grown."""
    ended: Array
    """The costs of these nodes, `(heights, streams)`."""
    climbing: Integers
    """Of some streams, which they are."""
    costs: Array
    """`(heights, streams)`, as are the weights."""
    weights: Array
    units: Array
    """What costs are divided by."""
    least: Array
    free: Array
    """The weight that starting nodes share."""
    totals: Array
    rates: Array


@strict
def new_rising(size: int, heights: int) -> Rising:
    """Return room for so many streams."""
    return Rising(
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.bool_),
        np.empty((heights, size)),
        np.empty(size, np.int64),
        np.empty((heights, size)),
        np.empty((heights, size)),
        np.empty(size),
        np.empty(size),
        np.empty(size),
        np.empty(size),
        np.empty(size),
    )


@strict
def weigh_rising(count: int, rising: Rising, rule: Weighting, records: Records) -> None:
    """Update the weights of streams, given what their nodes that ended cost."""
    rows, nows, ends, grown, ended, some, costs, weights, units, least, free, totals, rates = rising
    near, stakes, most = records.near, records.stakes, records.heights
    arity, rule_rates, longest, left = rule.arity, rule.rates, rule.longest, 0
    for j in range(count):
        if rule.block or grown[j]:  # seldom
            own = ended[: ends[j], j].copy()
            heights = rule.depth if rule.depth > 0 else digits(nows[j], arity)
            weigh_row(rows[j], nows[j], heights, own, rule, records, np.empty(most), np.empty(most))
        else:
            some[left] = j
            left += 1
    for c in range(left):
        j = some[c]
        row, now, length = rows[j], float(nows[j]), arity
        cost = near[row, COST] + ended[0, j]
        near[row, COST], costs[0, c], lowest = cost, cost, cost
        scale = max(near[row, SCALE], ended[0, j])
        for height in range(1, ends[j]):
            cost = stakes[row, 2 * height - 1] + ended[height, j]
            stakes[row, 2 * height - 1], costs[height, c], lowest = cost, cost, min(lowest, cost)
            scale = max(scale, ended[height, j] / length)
            length *= arity
        near[row, SCALE] = scale
        heights = most
        if rule.depth == 0:
            for height in range(1, most + 1):
                heights -= now < longest[height]
        held = 0.0
        for height in range(ends[j], heights):
            held += stakes[row, 2 * height]
        least[c], free[c], totals[c], rates[c] = lowest, max(0.0, 1.0 - held), 0.0, rule_rates[heights]
        units[c] = scale * (1 + math.sqrt(now * longest[heights]))
        if units[c] == 0:
            units[c] = 1.0
    for height in range(most):
        for c in range(left):
            if height < ends[some[c]]:
                weights[height, c] = math.exp(rates[c] * ((least[c] - costs[height, c]) / units[c]))
                totals[c] += weights[height, c]
    for height in range(most):
        for c in range(left):
            if height < ends[some[c]]:
                stakes[rows[some[c]], 2 * height] = free[c] * (weights[height, c] / totals[c])
