"""The weights of many streams' heights at once: `weigh`, step by step for all of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from treecal._compile import strict
from treecal._elementary import exp
from treecal._typing import Array, Integers
from treecal.engine import _lanes as lanes
from treecal.engine._compile import remainder
from treecal.engine._kernels import after_round
from treecal.engine._tree_kernels import weigh_row
from treecal.engine._tree_records import COST, SCALE, Records
from treecal.forecasters._weighting import Weighting


class Rising(NamedTuple):
    """Streams of which higher nodes end, those with most of them first, and room for what is computed of them."""

    rows: Integers
    nows: Integers
    """The rounds of each."""
    reach: Integers
    """How many of them, the first ones, carry a sum to each height: a node of it ends, or the first one starts."""
    ended: Array
    """The costs of these nodes, `(heights, streams)`."""
    costs: Array
    """`(heights, streams)`, as are the weights."""
    weights: Array
    scales: Array
    """The scales of costs; then what costs are divided by."""
    least: Array
    free: Array
    """The weight of the nodes that go on; then that of those that start."""
    tops: Array
    """The rounds of the top nodes."""
    totals: Array


@strict
def new_rising(size: int, heights: int) -> Rising:
    """Return room for so many streams."""
    return Rising(
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(heights + 2, np.int64),
        np.empty((heights + 1, size)),
        np.empty((heights, size)),
        np.empty((heights, size)),
        np.empty(size),
        np.empty(size),
        np.empty(size),
        np.empty(size),
        np.empty(size),
    )


@strict
def put_in_order(count: int, rising: Rising, arity: int) -> None:
    """Put first the streams whose nodes of most heights end: loops over the nodes of a height then need not ask."""
    rows, nows, reach, leaves = rising.rows, rising.nows, rising.reach, rising.ended[0]
    height, length = 0, arity
    reach[0] = count
    while count > 0:
        height += 1
        reach[height] = count
        length *= arity
        count = 0
        for p in range(reach[height]):
            ends = remainder(nows[p], length) == 0
            q = count if ends else p
            rows[p], rows[q] = rows[q], rows[p]
            nows[p], nows[q] = nows[q], nows[p]
            leaves[p], leaves[q] = leaves[q], leaves[p]
            count += ends
    reach[height + 1] = 0


@strict
def weigh_one_by_one(count: int, rising: Rising, rule: Weighting, records: Records) -> None:
    """Update the weights as the block rule does, which seldom changes them."""
    nows, costs, weights = rising.nows, np.empty(records.heights), np.empty(records.heights)
    for p in range(count):
        heights, ended = after_round(nows[p], rule.arity, rule.depth)
        weigh_row(rising.rows[p], nows[p], heights, rising.ended[:ended, p].copy(), rule, records, costs, weights)


@strict
def weigh_rising(count: int, rising: Rising, rule: Weighting, records: Records) -> None:
    """Update the weights of streams, given what their nodes that ended cost."""
    rows, nows, reach, ended, costs, weights, scales, least, free, tops, totals = rising
    near, far, longest, wide = records.near, records.far, rule.longest, records.far.shape[1]
    for p in range(count):
        start = rows[p] * near.shape[1]
        cost = lanes.get(near, start + COST) + ended[0, p]
        lanes.put(near, start + COST, cost)
        costs[0, p], least[p] = cost, cost
        scales[p] = max(lanes.get(near, start + SCALE), ended[0, p])
    ends, length = 1, rule.arity
    while reach[ends] > 0:
        at = 2 * ends - 1
        for p in range(reach[ends]):
            if nows[p] == length and rule.depth == 0:  # the tree has grown: no node of this height has ended
                total = 0.0
                for height in range(ends):
                    total += costs[height, p]
                cost = 1.5 * least[p] - 0.5 * (total / ends)
            else:
                cost = lanes.get(far, rows[p] * wide + at) + ended[ends, p]
                scales[p] = max(scales[p], ended[ends, p] / length)
            lanes.put(far, rows[p] * wide + at, cost)
            costs[ends, p], least[p] = cost, min(least[p], cost)
        ends += 1
        length *= rule.arity
    for p in range(count):
        lanes.put(near, rows[p] * near.shape[1] + SCALE, scales[p])
    free[:count] = 0.0
    for height in range(1, records.heights):  # those that no node has yet weigh nothing
        for p in range(reach[height] if height < ends else 0, count):
            free[p] += lanes.get(far, rows[p] * wide + 2 * height)
    tops[:count] = longest[max(rule.depth, 1)]
    if rule.depth == 0:
        for height in range(2, records.heights + 1):
            for p in range(count):
                tops[p] = longest[height] if nows[p] >= longest[height] else tops[p]
    for p in range(count):
        unit = scales[p] * (1 + math.sqrt(float(nows[p]) * tops[p]))
        scales[p] = 1.0 if unit == 0 else unit
        free[p] = max(0.0, 1.0 - free[p])
    totals[:count] = 0.0
    for height in range(ends):
        for p in range(reach[height]):
            weights[height, p] = rule.rates[1] * ((least[p] - costs[height, p]) / scales[p])
        for p in range(reach[height]):
            weights[height, p] = exp(weights[height, p])
        for p in range(reach[height]):
            totals[p] += weights[height, p]
    for height in range(ends):
        for p in range(reach[height]):
            lanes.put(far, rows[p] * wide + 2 * height, free[p] * (weights[height, p] / totals[p]))
