"""The loops of many streams on trees: see `Records`.

Sums, divisions and norms are those of the forecasters, in their order and never fused, so that all is the same bit for
bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload

from treecal._compile import inlined, strict
from treecal._typing import Array, Integers
from treecal.engine import _lanes as lanes
from treecal.engine._compile import carries, remainder, weigh
from treecal.engine._kernels import add_outcome, after_round, place
from treecal.engine._state import Mix, TreeArgs
from treecal.engine._tree_records import COST, SCALE, Records
from treecal.forecasters._weighting import Weighting

AHEAD = 16
"""Records of outcomes so far ahead are fetched meanwhile."""


@inlined
def fetch(array: Any, start: int, size: int) -> None:
    """Fetch so many entries of an array, which will be needed soon."""
    for k in range(0, size + 7, 8):  # a line of memory holds eight, and may start at any
        lanes.prefetch(array, start + k)


def add_at(sums: Array, at: int, outcomes: Any, i: int, dim: int) -> None:
    """Add outcome `i` to the sum that starts at `at`: `add_outcome`, without a slice, which counts references."""
    raise NotImplementedError


@overload(add_at)
def _add_at(sums: Any, at: Any, outcomes: Any, i: Any, dim: Any) -> Any:
    if outcomes.ndim == 1:

        def add(sums: Any, at: Any, outcomes: Any, i: Any, dim: Any) -> None:
            place = at + lanes.get(outcomes, i)
            lanes.put(sums, place, lanes.get(sums, place) + 1.0)

    else:

        def add(sums: Any, at: Any, outcomes: Any, i: Any, dim: Any) -> None:
            last = dim - dim % lanes.WIDTH
            for k in range(0, last, lanes.WIDTH):
                total = lanes.plus(lanes.load(sums, at + k), lanes.load(outcomes, i * dim + k))
                lanes.store(sums, at + k, total)
            for k in range(last, dim):
                lanes.put(sums, at + k, lanes.get(sums, at + k) + lanes.get(outcomes, i * dim + k))

    return add


@inlined
def _carry(below: Array, start: int, sums: Array, at: int, count: int) -> None:
    """Add so many entries, from `start` on, to those from `at` on, and set them to 0: one height after the other."""
    for k in range(count):
        lanes.put(sums, at + k, lanes.get(sums, at + k) + lanes.get(below, start + k))
        lanes.put(below, start + k, 0.0)


@strict
def learn(rows: Integers, outcomes: Any, at: int, limit: int, tree: TreeArgs, records: Records) -> int:
    """Add outcomes from `at` on to their streams' sums; return the first that needs more heights, or their number.

    A growing tree needs them after `limit` rounds.
    """
    sums, whole, arity, dim = records.near, records.whole, tree.arity, len(tree.first)
    for i in range(at, len(rows)):
        start = rows[i] * whole.shape[1]
        now = lanes.get(whole, start) + 1
        if now > limit and tree.depth == 0:
            return i
        fetch(whole, rows[min(i + AHEAD, len(rows) - 1)] * whole.shape[1], whole.shape[1])
        first = start + records.head
        add_at(sums, first, outcomes, i, dim)
        if remainder(now, arity) == 0:
            risen = carries(now, arity)
            if risen != tree.depth:  # when a tree of fixed depth is full, nothing is carried
                _carry(sums, first, sums, first + dim, risen * dim)
        lanes.put(whole, start, now)
    return len(rows)


@strict
def places(rows: Integers, records: Records, tree: TreeArgs, mix: Mix | None, points: Array) -> None:
    """Write the points on each stream's path, `points[i, height]`."""
    near, head, dim, arity = records.near, records.head, points.shape[2], tree.arity
    higher, offset = (near, head) if records.far.shape[1] == 0 else (records.far, records.top - dim)
    for i in range(len(rows)):
        row, now, length = rows[i], records.whole[rows[i], 0], 1
        place(near[row, head : head + dim], now % arity, tree, mix, points[i, 0])
        for height in range(1, points.shape[1]):
            now //= arity
            length *= arity
            at = offset + height * dim
            place(higher[row, at : at + dim], now % arity * length, tree, mix, points[i, height])


# Norms that are not compiled: gaps are noted, and NumPy computes their norms.


@inlined
def _sums(records: Records, row: int, height: int, dim: int) -> Array:
    """Return the sum of a stream at a weighted height, as a part of its records."""
    at = records.top + (height - 1) * dim
    return records.near[row, records.head :] if height == 0 else records.far[row, at : at + dim]


@strict
def learn_gaps(
    rows: Integers,
    outcomes: Any,
    at: int,
    tree: TreeArgs,
    mix: Mix | None,
    records: Records,
    nows: Integers,
    gaps: Array,
) -> tuple[int, int]:
    """Add outcomes from `at` on, as `learn` does; note the rounds of each stream, and the gaps of the nodes that ended.

    A gap is the outcome sum of a node less its point times its rounds. Return the first outcome that needs more heights
    or whose nodes do not fit, and how many gaps there are.
    """
    used, dim, near, far = 0, gaps.shape[1], records.near, records.far
    total, point = np.empty(dim), np.empty(dim)
    for i in range(at, min(len(rows), at + len(nows))):
        row = rows[i]
        now = records.whole[row, 0] + 1
        heights, ended = after_round(now, tree.arity, tree.depth)
        if heights > records.heights or used + ended > len(gaps):
            return i, used
        total[:] = 0.0
        add_outcome(total, outcomes, i)
        length, nodes = 1, now - 1
        for height in range(ended):
            own = _sums(records, row, height, dim)
            place(own, nodes % tree.arity * length, tree, mix, point)
            for k in range(dim):
                gaps[used, k] = total[k] - length * point[k]
                total[k] = own[k] + total[k]
            length *= tree.arity
            nodes //= tree.arity
            used += 1
        risen, start, above = carries(now, tree.arity), row * near.shape[1] + records.head, row * far.shape[1]
        add_at(near, start, outcomes, i, dim)
        if 0 < risen != tree.depth:
            _carry(near, start, far, above + records.top, dim)
            _carry(far, above + records.top, far, above + records.top + dim, (risen - 1) * dim)
        records.whole[row, 0] = nows[i - at] = now
    return min(len(rows), at + len(nows)), used


@strict
def weigh_row(
    row: int, now: int, heights: int, ended: Array, rule: Weighting, records: Records, costs: Array, weights: Array
) -> None:
    """Update the weights of a stream's heights, given what the nodes that ended cost; two arrays are room to do it."""
    near, far = records.near[row], records.far[row]
    costs[0], weights[0] = near[COST], far[0]
    for height in range(1, heights):
        costs[height], weights[height] = far[2 * height - 1], far[2 * height]
    near[SCALE] = weigh(rule, now, heights, ended, near[SCALE], costs, weights)
    near[COST], far[0] = costs[0], weights[0]
    for height in range(1, heights):
        far[2 * height - 1], far[2 * height] = costs[height], weights[height]


@strict
def weigh_rows(rows: Integers, nows: Integers, node_costs: Array, rule: Weighting, records: Records) -> None:
    """Update weights, outcome by outcome, given the costs of the nodes that ended."""
    costs, weights, used = np.empty(len(rule.rates)), np.empty(len(rule.rates)), 0
    for i in range(len(rows)):
        heights, ended = after_round(nows[i], rule.arity, rule.depth)
        weigh_row(rows[i], nows[i], heights, node_costs[used : used + ended], rule, records, costs, weights)
        used += ended
