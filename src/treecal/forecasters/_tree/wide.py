"""The loops of many streams on trees, by the vectors and the memory of the processor.

This module imports the compiler, so it is imported when a bank learns. Sums, divisions and norms are those of the
forecasters, in their order and never fused, so that all is the same bit for bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from treecal import _lanes as lanes
from treecal._compile import inlined, strict
from treecal._typing import Array, Integers
from treecal.forecasters._tree.steps import Mix, TreeArgs, carry_up, coordinate, place, remainder, rises
from treecal.forecasters._tree.weighting import Weighting, weigh

AHEAD = 16
"""The memory of outcomes so far ahead is fetched meanwhile."""
L1 = 1
L2 = 2
LINF = 3
"""The norms that are compiled, of as many coordinates as NumPy adds up without halving them."""
MOST = 128


class Trees(NamedTuple):
    """The columns of streams: rounds, and of each height the carried sum, `(streams, heights, dim)`.

    There is room for the heights of `limit` rounds; a growing tree needs more then.
    """

    rounds: Integers
    sums: Array
    limit: int


class Weights(NamedTuple):
    """The columns of streams whose heights are weighted: `(streams, heights)`, and the scale of costs `(streams,)`."""

    costs: Array
    weights: Array
    scale: Array


@inlined
def fetch(array: Any, start: int, size: int) -> None:
    """Fetch so many entries of an array, which will be needed soon."""
    for k in range(0, size + 7, 8):  # a line of memory holds eight, and may start at any
        lanes.prefetch(array, start + k)


@strict
def add_at(sums: Array, at: int, outcomes: Any, i: int, dim: int) -> None:
    """Add outcome `i` to the sum that starts at `at`: `add_outcome`, without a slice, which counts references."""
    if outcomes.ndim == 1:  # known to the compiler, which leaves out the other branch
        place = at + lanes.get(outcomes, i)
        lanes.put(sums, place, lanes.get(sums, place) + 1.0)
    else:
        last = dim - dim % lanes.WIDTH
        for k in range(0, last, lanes.WIDTH):
            total = lanes.plus(lanes.load(sums, at + k), lanes.load(outcomes, i * dim + k))
            lanes.store(sums, at + k, total)
        for k in range(last, dim):
            lanes.put(sums, at + k, lanes.get(sums, at + k) + lanes.get(outcomes, i * dim + k))


@strict
def learn(rows: Integers, outcomes: Any, at: int, tree: TreeArgs, trees: Trees) -> int:
    """Add outcomes from `at` on to their streams' sums; return the first that needs more heights, or their number."""
    rounds, sums, limit = trees
    arity = tree.arity
    depth = tree.depth
    dim = sums.shape[2]
    width = sums.shape[1] * dim
    for i in range(at, len(rows)):
        row = rows[i]
        now = lanes.get(rounds, row) + 1
        if now > limit and depth == 0:
            return i
        soon = rows[min(i + AHEAD, len(rows) - 1)]
        lanes.prefetch(rounds, soon)
        fetch(sums, soon * width, width)
        add_at(sums, row * width, outcomes, i, dim)
        risen = rises(now, arity, depth)
        if risen > 0:
            carry_up(sums, row * width, dim, risen)
        lanes.put(rounds, row, now)
    return len(rows)


@strict
def places(rows: Integers, trees: Trees, tree: TreeArgs, mix: Mix | None, points: Array) -> None:
    """Write the points on each stream's path, `points[i, height]`."""
    for i in range(len(rows)):
        row = rows[i]
        now = trees.rounds[row]
        length = 1
        for height in range(points.shape[1]):
            place(trees.sums[row, height], now % tree.arity * length, tree, mix, points[i, height])
            now //= tree.arity
            length *= tree.arity


# Weighted heights: first the gaps of the nodes that end, then their norms, then weights.


class Gaps(NamedTuple):
    """What is noted of some rounds: the outcome that was learned, the rounds after it, and how many nodes ended.

    They are rounds of the streams from row `low` to row `high`. The gaps of these nodes, each a column, are outcome
    sums less points times rounds.
    """

    low: int
    high: int
    places: Integers
    nows: Integers
    ended: Integers
    gaps: Array


@strict
def learn_gaps(
    rows: Integers,
    outcomes: Any,
    at: int,
    tree: TreeArgs,
    mix: Mix | None,
    trees: Trees,
    noted: Gaps,
) -> tuple[int, int, int]:
    """Add outcomes from `at` on, as `learn` does, to the streams whose gaps are noted as they arise.

    Return the first outcome that needs more heights or that there is no room for, and how many rounds and gaps were
    noted.
    """
    rounds, sums, limit = trees
    low, high, places, nows, ended, gaps = noted
    arity = tree.arity
    depth = tree.depth
    first = tree.first
    dim = sums.shape[2]
    width = sums.shape[1] * dim
    total = np.empty(dim)
    room = gaps.shape[1]
    count = 0
    used = 0
    for i in range(at, len(rows)):
        row = rows[i]
        if row < low or row >= high:
            continue
        now = lanes.get(rounds, row) + 1
        if (now > limit and depth == 0) or count == len(places) or used + sums.shape[1] > room:
            return i, count, used
        soon = rows[min(i + AHEAD, len(rows) - 1)]
        lanes.prefetch(rounds, soon)
        fetch(sums, soon * width, dim)
        for k in range(dim):
            lanes.put(total, k, 0.0)
        add_at(total, 0, outcomes, i, dim)
        start = row * width
        length = 1
        nodes = now - 1
        height = 0
        risen = 0
        while True:
            siblings = remainder(nodes, arity)
            for k in range(dim):
                own = lanes.get(sums, start + k)
                other = lanes.get(total, k)
                point = coordinate(own, siblings * length, k, lanes.get(first, k), mix)
                lanes.put(gaps, k * room + used, other - length * point)
                lanes.put(total, k, own + other)
            used += 1
            height += 1
            if siblings + 1 < arity:
                break
            risen = height if height != depth else 0  # of a full tree nothing is carried up
            if height == depth:
                break
            nodes //= arity
            if nodes == 0 and depth == 0:  # the top node has ended
                break
            start += dim
            length *= arity
        add_at(sums, row * width, outcomes, i, dim)
        if risen > 0:
            carry_up(sums, row * width, dim, risen)
        lanes.put(rounds, row, now)
        places[count] = i
        nows[count] = now
        ended[count] = height
        count += 1
    return len(rows), count, used


@strict
def costs_of(gaps: Array, norm: int, costs: Array) -> None:
    """Write the norms of gaps, rounded as `AdaptiveTreeCal` rounds them; the gaps are overwritten.

    They are sorted first: then the rounding does not depend on the order of the classes. All gaps take each step
    together, so that processors take several at a time.
    """
    dim = len(gaps)
    count = len(costs)
    if norm != LINF:
        for last in range(dim - 1, 0, -1):
            for k in range(last):
                for n in range(count):  # without branches
                    one = gaps[k, n]
                    other = gaps[k + 1, n]
                    gaps[k, n], gaps[k + 1, n] = (one, other) if one < other else (other, one)
    costs[:] = 0.0
    for k in range(dim):
        for n in range(count):
            gaps[k, n] = abs(gaps[k, n])
            costs[n] = max(costs[n], gaps[k, n])
    if norm == L1:
        _add_up(gaps, costs)
    elif norm == L2:  # scaled by a power of two, as `Lp` does: no square overflows
        scales = np.empty(count)
        for n in range(count):
            scales[n] = math.ldexp(1.0, min(max(math.frexp(costs[n])[1], -1021), 1022))
        for k in range(dim):
            for n in range(count):
                scaled = gaps[k, n] / scales[n]
                gaps[k, n] = scaled * scaled
        _add_up(gaps, costs)
        for n in range(count):
            costs[n] = scales[n] * math.sqrt(costs[n])


@strict
def _add_up(rows: Array, sums: Array) -> None:
    """Add up at most 128 rows in the order in which NumPy adds up numbers: eight sums, if there are as many."""
    last = len(rows) - len(rows) % 8
    sums[:] = 0.0
    for k in range(8, last):
        for n in range(len(sums)):
            rows[k % 8, n] += rows[k, n]
    if last > 0:
        for n in range(len(sums)):
            low = (rows[0, n] + rows[1, n]) + (rows[2, n] + rows[3, n])
            sums[n] = low + ((rows[4, n] + rows[5, n]) + (rows[6, n] + rows[7, n]))
    for k in range(last, len(rows)):
        for n in range(len(sums)):
            sums[n] += rows[k, n]


@strict
def weigh_rows(rows: Integers, count: int, noted: Gaps, costs: Array, rule: Weighting, weighted: Weights) -> None:
    """Update weights, round by round, given the costs of the nodes that ended."""
    _, _, places, nows, ended, _ = noted
    own, weights, scale = weighted
    arity = rule.arity
    depth = rule.depth
    most = own.shape[1]
    used = 0
    for n in range(count):
        row = rows[places[n]]
        now = nows[n]
        soon = rows[places[min(n + AHEAD, count - 1)]]
        lanes.prefetch(scale, soon)
        lanes.prefetch(own, soon * most)
        lanes.prefetch(weights, soon * most)
        if remainder(now, arity) != 0:  # only a leaf has ended: heights keep their weights, see `weigh`
            own[row, 0] += costs[used]
            if not rule.block:
                scale[row] = max(scale[row], costs[used])
        else:
            heights = max(depth, 1)
            longest = arity
            while depth == 0 and heights < most and now >= longest:
                heights += 1
                longest *= arity
            now_ended = costs[used : used + ended[n]]
            scale[row] = weigh(rule, now, heights, now_ended, scale[row], own[row], weights[row])
        used += ended[n]
