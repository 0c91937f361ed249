"""The loops of many streams on trees. One record holds all that a stream keeps, so that a round finds it in one place.

A record is the stream's rounds (the bits of an integer, read through `whole`), for weighted heights the scale of costs,
and then of each height, lowest first, the carried sum and, if heights are weighted, cost and weight. Sums, divisions
and norms are those of the forecasters, in their order and never fused, so that all is the same bit for bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from treecal._compile import inlined, strict
from treecal._typing import Array, Integers
from treecal.engine._compile import carries, digits, weigh
from treecal.engine._kernels import after_round, place
from treecal.engine._state import Mix, TreeArgs
from treecal.forecasters._weighting import Weighting

L1, L2, LINF = 1, 2, 3
"""The norm of costs. Others, and those of more than 128 coordinates, are computed by NumPy, between two kernels."""
_FEW = 8


class Records(NamedTuple):
    """The records of all streams, `(rows, head + heights·width)`, as numbers and as the integers of the same bits."""

    numbers: Array
    whole: Integers
    head: int
    width: int
    heights: int


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


@inlined
def _carry(row: int, risen: int, outcomes: Any, i: int, tree: TreeArgs, records: Records) -> None:
    """Add an outcome with which nodes of so many heights end: finished sums go one height up."""
    numbers, head, width, dim = records.numbers, records.head, records.width, len(tree.first)
    for k in range(dim):
        numbers[row, head + k] += part(outcomes, i, k)
    if risen != tree.depth:  # when a tree of fixed depth is full, nothing is carried
        for height in range(risen):
            at = head + height * width
            for k in range(at, at + dim):
                numbers[row, k + width] += numbers[row, k]
                numbers[row, k] = 0.0


@strict
def learn(rows: Integers, outcomes: Any, at: int, tree: TreeArgs, records: Records) -> int:
    """Add outcomes from `at` on to their streams' sums; return the first that needs more heights, or their number."""
    numbers, whole, arity, dim = records.numbers, records.whole, tree.arity, len(tree.first)
    for i in range(at, len(rows)):
        row = rows[i]
        now = whole[row, 0] + 1
        if now % arity != 0:
            for k in range(dim):
                numbers[row, 1 + k] += part(outcomes, i, k)
        elif tree.depth == 0 and digits(now, arity) > records.heights:
            return i
        else:
            _carry(row, carries(now, arity), outcomes, i, tree, records)
        whole[row, 0] = now
    return len(rows)


@strict
def places(rows: Integers, records: Records, tree: TreeArgs, mix: Mix | None, points: Array) -> None:
    """Write the points on each stream's path, `points[i, height]`."""
    head, width, dim = records.head, records.width, points.shape[2]
    for i in range(len(rows)):
        now, length = records.whole[rows[i], 0], 1
        for height in range(points.shape[1]):
            at = head + height * width
            place(records.numbers[rows[i], at : at + dim], now % tree.arity * length, tree, mix, points[i, height])
            now //= tree.arity
            length *= tree.arity


# Costs.


@strict
def _added(entries: Array) -> float:
    """Add up at most 128 entries in the order in which NumPy does.

    More would be halved: but a function that calls itself crashes when it comes from Numba's cache.
    """
    total, last = 0.0, len(entries) - len(entries) % 8
    if last > 0:
        a, b, c, d = entries[0], entries[1], entries[2], entries[3]
        e, f, g, h = entries[4], entries[5], entries[6], entries[7]
        for i in range(8, last, 8):
            a += entries[i]
            b += entries[i + 1]
            c += entries[i + 2]
            d += entries[i + 3]
            e += entries[i + 4]
            f += entries[i + 5]
            g += entries[i + 6]
            h += entries[i + 7]
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for i in range(last, len(entries)):
        total += entries[i]
    return total


@inlined
def _size(gap: Array, norm: int) -> float:
    """Return the norm of a gap, rounded as `AdaptiveTreeCal` rounds it; the gap is overwritten."""
    dim, largest, size = len(gap), 0.0, 0.0
    if norm != LINF and dim > _FEW:
        gap.sort()
    elif norm != LINF:  # without branches, which random gaps would make the processor guess wrong
        for last in range(dim - 1, 0, -1):
            for k in range(last):
                low, high = min(gap[k], gap[k + 1]), max(gap[k], gap[k + 1])
                gap[k], gap[k + 1] = low, high
    if norm == L1 and dim < 8:  # as many as NumPy adds up from left to right
        for k in range(dim):
            size += abs(gap[k])
    else:
        for k in range(dim):
            gap[k] = abs(gap[k])
            largest = max(largest, gap[k])
        if norm == LINF:
            size = largest
        elif norm == L1:
            size = _added(gap)
        else:
            scale = math.ldexp(1.0, min(max(math.frexp(largest)[1], -1021), 1022))
            for k in range(dim):
                scaled = gap[k] / scale
                gap[k] = scaled * scaled
            size = scale * math.sqrt(_added(gap))
    return size


@inlined
def _gap(
    row: int,
    count: int,
    length: int,
    at: int,
    total: Array,
    tree: TreeArgs,
    mix: Mix | None,
    numbers: Array,
    gap: Array,
) -> None:
    """Write the gap of a node that ends: outcome sum less point times rounds. The total becomes that of its parent."""
    divisor = float(max(count, 1))
    for k in range(len(gap)):
        own = numbers[row, at + k]
        point = own / divisor
        if mix is not None:
            point = point * mix.share
            point = point + mix.pull[k]
        if count == 0:
            point = tree.first[k]
        gap[k] = total[k] - length * point
        total[k] = own + total[k]


@inlined
def _weigh(
    row: int, now: int, heights: int, ended: Array, rule: Weighting, records: Records, costs: Array, weights: Array
) -> None:
    """Update the weights of a stream's heights, given what the nodes that ended cost; two arrays are room to do it."""
    numbers, width = records.numbers, records.width
    at = records.head + width - 2
    for height in range(heights):
        costs[height], weights[height] = numbers[row, at + height * width], numbers[row, at + height * width + 1]
    numbers[row, 1] = weigh(rule, now, heights, ended, numbers[row, 1], costs, weights)
    for height in range(heights):
        numbers[row, at + height * width], numbers[row, at + height * width + 1] = costs[height], weights[height]


@strict
def learn_weighted(
    rows: Integers,
    outcomes: Any,
    at: int,
    tree: TreeArgs,
    mix: Mix | None,
    rule: Weighting,
    norm: int,
    records: Records,
) -> int:
    """Add outcomes and update weights, as `learn` does, with costs in a norm that is compiled."""
    numbers, whole, arity, dim, most = records.numbers, records.whole, tree.arity, len(tree.first), len(rule.rates)
    gap, total, sizes, costs, weights = np.empty(dim), np.empty(dim), np.empty(most), np.empty(most), np.empty(most)
    for i in range(at, len(rows)):
        row = rows[i]
        now = whole[row, 0] + 1
        heights, ended, risen = 0, 1, 0
        if now % arity == 0:
            heights, ended = after_round(now, arity, tree.depth)
            risen = carries(now, arity)
            if heights > records.heights:
                return i
        for k in range(dim):
            total[k] = part(outcomes, i, k)
        length, nodes = 1, now - 1
        for height in range(ended):
            start = records.head + height * records.width
            _gap(row, nodes % arity * length, length, start, total, tree, mix, numbers, gap)
            sizes[height] = _size(gap, norm)
            length *= arity
            nodes //= arity
        _carry(row, risen, outcomes, i, tree, records)
        if heights > 0:
            _weigh(row, now, heights, sizes[:ended], rule, records, costs, weights)
        else:  # only a leaf ends, and heights keep their weights
            numbers[row, 2 + dim] += sizes[0]
            if not rule.block:
                numbers[row, 1] = max(numbers[row, 1], sizes[0])
        whole[row, 0] = now
    return len(rows)


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

    Return the first outcome that needs more heights or whose nodes do not fit, and how many gaps there are.
    """
    used, numbers, total = 0, records.numbers, np.empty(gaps.shape[1])
    for i in range(at, min(len(rows), at + len(nows))):
        row = rows[i]
        now = records.whole[row, 0] + 1
        heights, ended = after_round(now, tree.arity, tree.depth)
        if heights > records.heights or used + ended > len(gaps):
            return i, used
        for k in range(len(total)):
            total[k] = part(outcomes, i, k)
        length, nodes = 1, now - 1
        for height in range(ended):
            start = records.head + height * records.width
            _gap(row, nodes % tree.arity * length, length, start, total, tree, mix, numbers, gaps[used])
            length *= tree.arity
            nodes //= tree.arity
            used += 1
        _carry(row, carries(now, tree.arity), outcomes, i, tree, records)
        records.whole[row, 0] = nows[i - at] = now
    return min(len(rows), at + len(nows)), used


@strict
def weigh_rows(rows: Integers, nows: Integers, node_costs: Array, rule: Weighting, records: Records) -> None:
    """Update weights, outcome by outcome, given the costs of the nodes that ended."""
    costs, weights, used = np.empty(len(rule.rates)), np.empty(len(rule.rates)), 0
    for i in range(len(rows)):
        heights, ended = after_round(nows[i], rule.arity, rule.depth)
        _weigh(rows[i], nows[i], heights, node_costs[used : used + ended], rule, records, costs, weights)
        used += ended
