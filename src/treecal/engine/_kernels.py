"""The tree's hot loops over whole levels of one stream, and over the streams of a bank.

Sums and divisions are those of `Path`, in its order and never fused, so that points are the same bit for bit. Only
norms may be added up in another order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from treecal._compile import inlined, loose, strict
from treecal._typing import Array, Integers
from treecal.engine._compile import carries, digits, weigh
from treecal.engine._state import Mix, TreeArgs
from treecal.forecasters._weighting import Weighting


class Span(NamedTuple):
    """Consecutive nodes of one height: the number of the first, a first child; rounds in each, and in the last."""

    height: int
    start: int
    length: int
    last: int


@loose
def first_off_simplex(rows: Array, tol: float) -> int:
    """Return the first row that is not a probability vector, or −1."""
    for i in range(rows.shape[0]):
        total, size = 0.0, 0.0
        for k in range(rows.shape[1]):
            total += rows[i, k]
            size += abs(rows[i, k])
        if not (total >= 1 - tol and size <= 1 + tol):  # NaN fails both
            return i
    return -1


# Points.


@inlined
def place(total: Array, count: int, tree: TreeArgs, mix: Mix | None, point: Array) -> None:
    """Write the mean of a node's finished siblings; for a first child the start point."""
    if count == 0:
        for k in range(len(point)):
            point[k] = tree.first[k]
        return
    divisor = float(count)
    for k in range(len(point)):
        point[k] = total[k] / divisor
        if mix is not None:
            point[k] *= mix.share
            point[k] += mix.pull[k]


@strict
def place_rows(rows: Array, count: int, tree: TreeArgs, mix: Mix | None, points: Array, parents: Array) -> None:
    """Write the points of nodes of one height, the first of them a first child, and the sums of their parents."""
    for parent in range(len(parents)):
        eldest = parent * tree.arity
        parents[parent, :] = 0.0
        for i in range(eldest, min(len(rows), eldest + tree.arity)):
            place(parents[parent], (i - eldest) * count, tree, mix, points[i])
            for k in range(rows.shape[1]):
                parents[parent, k] += rows[i, k]


# A bank.


@strict
def after_round(now: int, arity: int, depth: int) -> tuple[int, int]:
    """Return the heights of the tree after a round, and how many nodes ended with the round."""
    if depth > 0:
        return depth, min(carries(now, arity) + 1, depth)
    return digits(now, arity), min(carries(now, arity) + 1, digits(now - 1, arity))


def add_outcome(total: Array, outcomes: Any, i: int) -> None:
    """Add outcome `i`, a row of numbers or a class, to a sum."""


@overload(add_outcome, inline="always")
def _add_outcome(total: Any, outcomes: Any, i: Any) -> Any:
    if outcomes.ndim == 1:

        def add(total: Any, outcomes: Any, i: Any) -> None:
            total[outcomes[i]] += 1.0

    else:

        def add(total: Any, outcomes: Any, i: Any) -> None:
            for k in range(len(total)):
                total[k] += outcomes[i, k]

    return add


@inlined
def _learn(stream: int, outcomes: Any, i: int, arity: int, depth: int, rounds: Integers, sums: Array) -> None:
    """Add outcome `i` to a stream; `sums` has all the heights that are needed."""
    now = rounds[stream] + 1
    rounds[stream] = now
    add_outcome(sums[0, stream], outcomes, i)
    if now % arity == 0:
        risen = carries(now, arity)
        if risen != depth:  # when a tree of fixed depth is full, nothing is carried
            for height in range(risen):
                for k in range(sums.shape[2]):
                    sums[height + 1, stream, k] += sums[height, stream, k]
                    sums[height, stream, k] = 0.0


@strict
def bank_learn(keys: Integers, outcomes: Any, tree: TreeArgs, rounds: Integers, sums: Array) -> None:
    """Add one outcome after another to the streams of a bank."""
    arity, depth = tree.arity, tree.depth
    for i in range(len(keys)):
        _learn(keys[i], outcomes, i, arity, depth, rounds, sums)


# Weights of the heights.


@strict
def weigh_piece(
    before: int,
    offsets: Integers,
    node_costs: Array,
    above: Array,
    rule: Weighting,
    scale: float,
    costs: Array,
    weights: Array,
    given: Array,
) -> float:
    """Update the weights over one piece of a stream; return the scale after it.

    `node_costs` are the costs of the nodes within the piece, height by height from `offsets[height]` on, and `above` of
    those above that end with it. Write the weight of each node within to `given`; update `costs` and `weights`.
    """
    inner, size, ended = len(offsets) - 1, offsets[1], np.empty(len(costs))
    for i in range(size):
        count = 1
        for height in range(inner):  # the nodes that start with this leaf
            if i % count != 0:
                break
            given[offsets[height] + i // count] = weights[height]  # 0 above the tree
            count *= rule.arity
        now, count = before + i + 1, 1
        heights, ends = after_round(now, rule.arity, rule.depth)
        for height in range(ends):
            ended[height] = node_costs[offsets[height] + i // count] if height < inner else above[height - inner]
            count *= rule.arity
        scale = weigh(rule, now, heights, ended[:ends], scale, costs, weights)
    return scale


# Errors of whole levels.


@strict
def _epoch_of(index: int, height: int, arity: int) -> tuple[int, int]:
    """Return the heights of a growing tree when this node starts, and the first later node with more."""
    limit = arity
    while limit <= index:
        limit *= arity
    return height + digits(index, arity), limit


# The sums stored here, `total + value`, are one addition each, so there is nothing to reorder. Only the norms are sums
# that the compiler may reorder.
@loose
def climb(
    rows: Array,
    span: Span,
    tree: TreeArgs,
    mix: Mix | None,
    tol: float | None,
    parents: Array,
    totals: Array,
    few: tuple[int, ...],
) -> bool:
    """Go up one height: add errors to `totals[heights of the tree]`, and write the sums of the nodes above.

    `rows` are the outcome sums of the nodes of a span. The errors of a node are `‖g‖₁`, `‖g‖₂` and `‖g‖₂²/rounds`, `g`
    being its sum less its point times its rounds: with `total` its finished siblings' sum and `digit` their number,
    that is `(f·row − share·total − f·rounds·pull) / f` with `f = digit·length/rounds`: no division by coordinate.

    With `tol`, for leaves only, return whether all rows are probability vectors: sums within `tol` of 1, none negative.
    With few coordinates, `few` has one entry for each, otherwise none: the compiler knows the length of a tuple and
    unrolls the loops.
    """
    dim = len(few) or rows.shape[1]
    grows, arity, first = tree.depth == 0, tree.arity, tree.first
    share, pull = (1.0, first) if mix is None else (mix.share, mix.pull)
    inverse = 1.0 / np.maximum(1, np.arange(arity))  # a table, as divisions take longer
    epoch, limit = 0, 2**62
    if grows:
        epoch, limit = _epoch_of(span.start, span.height, arity)
    least, off = np.zeros(dim), 0
    for parent in range(len(parents)):
        eldest = parent * arity
        if span.start + eldest == limit:
            epoch += 1
            limit *= arity
        one, two, square, rounds = 0.0, 0.0, 0.0, 1.0
        if tol is None:
            rounds = float(span.last if eldest == len(rows) - 1 else span.length)
        size, squares, weight = 0.0, 0.0, 0.0
        for k in range(dim):
            value = rows[eldest, k]
            gap = value - rounds * first[k]
            size += abs(gap)
            squares += gap * gap
            parents[parent, k] = 0.0 + value
            if tol is not None:
                weight += value
                least[k] = min(least[k], value)
        if tol is not None:
            off += not abs(weight - 1.0) <= tol  # NaN compares as False
        if not (grows and span.height > 0 and span.start + eldest == 0):  # it had ended when the tree grew
            one, two, square = size, np.sqrt(squares), squares / rounds
        for i in range(eldest + 1, min(len(rows), eldest + arity)):
            rounds, factor, scale = 1.0, float(i - eldest), inverse[i - eldest]
            if tol is None:  # not leaves
                rounds = float(span.last if i == len(rows) - 1 else span.length)
                factor *= span.length / rounds
                scale = 1.0 / factor
            size, squares, weight = 0.0, 0.0, 0.0
            for k in range(dim):
                value, total = rows[i, k], parents[parent, k]
                if mix is None:
                    gap = factor * value - total
                else:
                    gap = factor * value - share * total - factor * rounds * pull[k]
                size += abs(gap)
                squares += gap * gap
                parents[parent, k] = total + value
                if tol is not None:
                    weight += value
                    least[k] = min(least[k], value)
            if tol is not None:
                off += not abs(weight - 1.0) <= tol
            one += size * scale
            two += np.sqrt(squares) * scale
            square += squares * scale * scale / rounds
        totals[epoch, 0] += one
        totals[epoch, 1] += two
        totals[epoch, 2] += square
    return off == 0 and least.min() >= 0


@strict
def climb_classes(classes: Integers, index: int, tree: TreeArgs, parents: Array, totals: Array) -> None:
    """Go up from leaves whose outcomes are given as classes, without mixing: `O(1)` a leaf, whatever the dimension."""
    first, arity = tree.first, tree.arity
    start_size, start_squares = 0.0, 0.0
    for k in range(len(first)):
        start_size += abs(first[k])
        start_squares += first[k] * first[k]
    epoch, limit = 0, 2**62
    if tree.depth == 0:
        epoch, limit = _epoch_of(index, 0, arity)
    for parent in range(len(parents)):
        eldest, counts = parent * arity, parents[parent]
        if index + eldest == limit:
            epoch += 1
            limit *= arity
        counts[:] = 0.0
        k = classes[eldest]
        squares = max(start_squares + 1.0 - 2.0 * first[k], 0.0)
        one, two, square = start_size - abs(first[k]) + abs(1.0 - first[k]), np.sqrt(squares), squares
        counts[k] = 1.0
        length = 1.0  # ‖counts‖²
        for i in range(eldest + 1, min(len(classes), eldest + arity)):
            k, seen = classes[i], float(i - eldest)
            share = counts[k] / seen
            squares = max(1.0 - 2.0 * share + length / (seen * seen), 0.0)
            one += 2.0 * (1.0 - share)
            two += np.sqrt(squares)
            square += squares
            length += 2.0 * counts[k] + 1.0
            counts[k] += 1.0
        totals[epoch, 0] += one
        totals[epoch, 1] += two
        totals[epoch, 2] += square


@strict
def climb_inner(
    size: int, index: int, tree: TreeArgs, mix: Mix | None, nodes: Array, totals: Array, few: tuple[int, ...]
) -> None:
    """Climb on from height 1 in a piece of `size` leaves: `nodes` holds its sums, and takes those of heights above."""
    offset, count = 0, tree.arity
    for height in range(1, len(totals)):
        here = (size + count - 1) // count
        above = (here + tree.arity - 1) // tree.arity
        span = Span(height, index // count, count, size - (here - 1) * count)
        rows, parents = nodes[offset : offset + here], nodes[offset + here : offset + here + above]
        climb(rows, span, tree, mix, None, parents, totals[height], few)
        offset += here
        count *= tree.arity
