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
from treecal.engine._compile import carries, digits, weigh
from treecal.engine._kernels import after_round, place
from treecal.engine._state import Mix, TreeArgs
from treecal.engine._tree_records import COST, SCALE, Records
from treecal.forecasters._weighting import Weighting


def part(outcomes: Any, i: int, k: int) -> float:
    """Return coordinate `k` of outcome `i`, a row of numbers or a class."""
    raise NotImplementedError


@overload(part)
def _part(outcomes: Any, i: Any, k: Any) -> Any:
    if outcomes.ndim == 1:

        def found(outcomes: Any, i: Any, k: Any) -> Any:
            return 1.0 if outcomes[i] == k else 0.0

    else:

        def found(outcomes: Any, i: Any, k: Any) -> Any:
            return outcomes[i, k]

    return found


@strict
def learn(rows: Integers, outcomes: Any, at: int, tree: TreeArgs, records: Records) -> int:
    """Add outcomes from `at` on to their streams' sums; return the first that needs more heights, or their number."""
    near, whole, arity, dim = records.near, records.whole, tree.arity, len(tree.first)
    for i in range(at, len(rows)):
        row = rows[i]
        now = whole[row, 0] + 1
        if now % arity != 0:
            for k in range(dim):
                near[row, 1 + k] += part(outcomes, i, k)
        elif tree.depth == 0 and digits(now, arity) > records.heights:
            return i
        else:
            for k in range(dim):
                near[row, 1 + k] += part(outcomes, i, k)
            risen = carries(now, arity)
            if risen != tree.depth:  # when a tree of fixed depth is full, nothing is carried
                for k in range(1, 1 + risen * dim):
                    near[row, k + dim] += near[row, k]
                    near[row, k] = 0.0
        whole[row, 0] = now
    return len(rows)


@strict
def places(rows: Integers, records: Records, tree: TreeArgs, mix: Mix | None, points: Array) -> None:
    """Write the points on each stream's path, `points[i, height]`."""
    near, dim, arity = records.near, points.shape[2], tree.arity
    higher, offset = (near, records.head) if records.stakes.shape[1] == 0 else (records.far, -dim)
    for i in range(len(rows)):
        row, now, length = rows[i], records.whole[rows[i], 0], 1
        place(near[row, records.head : records.head + dim], now % arity, tree, mix, points[i, 0])
        for height in range(1, points.shape[1]):
            now //= arity
            length *= arity
            at = offset + height * dim
            place(higher[row, at : at + dim], now % arity * length, tree, mix, points[i, height])


# Norms that are not compiled: gaps are noted, and NumPy computes their norms.


@inlined
def _sums(records: Records, row: int, height: int, dim: int) -> Array:
    """Return the sum of a stream at a weighted height, as a part of its record."""
    return records.near[row, records.head :] if height == 0 else records.far[row, (height - 1) * dim : height * dim]


@inlined
def _carry(row: int, risen: int, outcomes: Any, i: int, tree: TreeArgs, records: Records) -> None:
    """Add an outcome with which nodes of so many weighted heights end: finished sums go one height up."""
    near, far, head, dim = records.near, records.far, records.head, len(tree.first)
    for k in range(dim):
        near[row, head + k] += part(outcomes, i, k)
    if risen > 0 and risen != tree.depth:  # when a tree of fixed depth is full, nothing is carried
        for k in range(dim):
            far[row, k] += near[row, head + k]
            near[row, head + k] = 0.0
        for k in range((risen - 1) * dim):
            far[row, dim + k] += far[row, k]
            far[row, k] = 0.0


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
    used, dim = 0, gaps.shape[1]
    total, point = np.empty(dim), np.empty(dim)
    for i in range(at, min(len(rows), at + len(nows))):
        row = rows[i]
        now = records.whole[row, 0] + 1
        heights, ended = after_round(now, tree.arity, tree.depth)
        if heights > records.heights or used + ended > len(gaps):
            return i, used
        for k in range(dim):
            total[k] = part(outcomes, i, k)
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
        _carry(row, carries(now, tree.arity), outcomes, i, tree, records)
        records.whole[row, 0] = nows[i - at] = now
    return min(len(rows), at + len(nows)), used


@strict
def weigh_row(
    row: int, now: int, heights: int, ended: Array, rule: Weighting, records: Records, costs: Array, weights: Array
) -> None:
    """Update the weights of a stream's heights, given what the nodes that ended cost; two arrays are room to do it."""
    near, stakes = records.near, records.stakes
    costs[0], weights[0] = near[row, COST], stakes[row, 0]
    for height in range(1, heights):
        costs[height], weights[height] = stakes[row, 2 * height - 1], stakes[row, 2 * height]
    near[row, SCALE] = weigh(rule, now, heights, ended, near[row, SCALE], costs, weights)
    near[row, COST], stakes[row, 0] = costs[0], weights[0]
    for height in range(1, heights):
        stakes[row, 2 * height - 1], stakes[row, 2 * height] = costs[height], weights[height]


@strict
def weigh_rows(rows: Integers, nows: Integers, node_costs: Array, rule: Weighting, records: Records) -> None:
    """Update weights, outcome by outcome, given the costs of the nodes that ended."""
    costs, weights, used = np.empty(len(rule.rates)), np.empty(len(rule.rates)), 0
    for i in range(len(rows)):
        heights, ended = after_round(nows[i], rule.arity, rule.depth)
        weigh_row(rows[i], nows[i], heights, node_costs[used : used + ended], rule, records, costs, weights)
        used += ended
