"""The steps of trees on rows: points of nodes, sums that are carried, and the weights of heights along a piece.

Sums and divisions are those of `Path`, in its order and never fused, so that points are the same bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treecal._compile import inlined, loose, strict
from treecal._typing import Array, Integers
from treecal.forecasters._tree.path import Path
from treecal.forecasters._tree.weighting import Weighting, weigh
from treecal.tree import carries, digits


class TreeArgs(NamedTuple):
    """The tree, and the point of first children; `depth` is 0 for a growing tree."""

    arity: int
    depth: int
    first: Array


class Mix(NamedTuple):
    """Points are `share·point + pull`. Without mixing, kernels take None and are compiled without it."""

    share: float
    pull: Array


def kernel_args(path: Path) -> tuple[TreeArgs, Mix | None]:
    """Return the tree with its start point, and how points are mixed: None if they are not."""
    tree = TreeArgs(path.tree.arity, path.tree.depth or 0, path.first.copy())  # never locked: one compilation
    return tree, Mix(1 - path.mix, path.pull) if path.mix else None


@inlined
def remainder(number: int, length: int) -> int:
    """Return `number % length`, of numbers that are not negative; fast where lengths are powers of two."""
    return number & (length - 1) if length & (length - 1) == 0 else number % length


# Points.


@inlined
def coordinate(total: float, count: int, k: int, start: float, mix: Mix | None) -> float:
    """Return coordinate `k` of a node's point: of the mean of its finished siblings; for a first child the start."""
    point = start
    if count > 0:
        point = total / float(count)
        if mix is not None:
            point *= mix.share
            point += mix.pull[k]
    return point


@inlined
def place(total: Array, count: int, tree: TreeArgs, mix: Mix | None, point: Array) -> None:
    """Write a node's point, given the sum of its finished siblings and the count of their rounds."""
    for k in range(len(point)):
        point[k] = coordinate(total[k], count, k, tree.first[k], mix)


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


@loose
def first_off_simplex(rows: Array, tol: float) -> int:
    """Return the first row that is not a probability vector, or −1."""
    for i in range(rows.shape[0]):
        total = 0.0
        size = 0.0
        for k in range(rows.shape[1]):
            total += rows[i, k]
            size += abs(rows[i, k])
        if not (total >= 1 - tol and size <= 1 + tol):  # NaN fails both
            return i
    return -1


# Rounds.


@inlined
def rises(now: int, arity: int, depth: int) -> int:
    """Return of how many heights the sums are carried up after a round; of none when a tree of fixed depth is full."""
    risen = carries(now, arity) if remainder(now, arity) == 0 else 0
    return 0 if risen == depth else risen


@strict
def after_round(now: int, arity: int, depth: int) -> tuple[int, int]:
    """Return the heights of the tree after a round, and how many nodes ended with the round."""
    if depth > 0:
        return depth, min(carries(now, arity) + 1, depth)
    return digits(now, arity), min(carries(now, arity) + 1, digits(now - 1, arity))


@strict
def carry_up(sums: Array, start: int, dim: int, risen: int) -> None:
    """Carry sums one height up, from the lowest of so many heights on: those of the nodes that ended with a round.

    It is the odometer of `Path`. The sums lie one height after the other, from entry `start` of an array on.
    """
    flat = sums.reshape(sums.size)
    for k in range(start, start + risen * dim):
        flat[k + dim] += flat[k]
        flat[k] = 0.0


@strict
def carry(outcomes: Array, tree: TreeArgs, sums: Array) -> None:
    """Add outcomes, from the first round on, to the sums of the open nodes of a tree, `(heights, dim)`."""
    for i in range(len(outcomes)):
        for k in range(sums.shape[1]):
            sums[0, k] += outcomes[i, k]
        carry_up(sums, 0, sums.shape[1], rises(i + 1, tree.arity, tree.depth))


# Weights of the heights.


class Costs(NamedTuple):
    """Of the nodes that end with a piece or in it: within, height by height from `offsets[height]` on, and above."""

    offsets: Integers
    within: Array
    above: Array


class Weighed(NamedTuple):
    """Cost and weight of each height so far, which are updated, and of each node within a piece the weight it had."""

    costs: Array
    weights: Array
    given: Array


@strict
def weigh_piece(before: int, ended: Costs, rule: Weighting, scale: float, heights: Weighed) -> float:
    """Update the weights over one piece of a stream, which had so many rounds before; return the scale after it."""
    offsets, within, above = ended
    costs, weights, given = heights
    inner = len(offsets) - 1
    now_ended = np.empty(len(costs))
    for i in range(offsets[1]):
        count = 1
        for height in range(inner):  # the nodes that start with this leaf
            if i % count != 0:
                break
            given[offsets[height] + i // count] = weights[height]  # 0 above the tree
            count *= rule.arity
        now = before + i + 1
        count = 1
        most, ends = after_round(now, rule.arity, rule.depth)
        for height in range(ends):
            now_ended[height] = within[offsets[height] + i // count] if height < inner else above[height - inner]
            count *= rule.arity
        scale = weigh(rule, now, most, now_ended[:ends], scale, costs, weights)
    return scale
