"""The certified parts of guarded streams, compiled: TreeCal or BinaryGrid, and the error of what they announce.

Each stream has a row in the arrays. A part speaks, which changes nothing, and then learns what came of it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numba.extending import overload

from treecal._compile import inlined, strict
from treecal._typing import Array, Integers
from treecal.forecasters import TreeArgs, carry_up, choose_points, place, rises
from treecal.tree import carries, digits


class TreeParts(NamedTuple):
    """TreeCal as a part: the tree; and of each stream its errors, carried sums, and the bias of each node of its path.

    The errors are that of the nodes that ended, and that of the path's.
    """

    tree: TreeArgs
    errors: Array
    sums: Array
    path: Array


class GridParts(NamedTuple):
    """BinaryGrid as a part: of each stream its error and 0, the biases that it goes by, and those of its points."""

    errors: Array
    bias: Array
    biases: Array


class Spoken(NamedTuple):
    """What a part announces: points, their weights, and the rows of the grid they are on."""

    points: Array
    weights: Array
    rows: Integers


@inlined
def size(bias: Array, squared: bool) -> float:
    """Return the ℓ1 or ℓ2 norm, added from left to right."""
    total = 0.0
    for j in range(len(bias)):
        total += bias[j] * bias[j] if squared else abs(bias[j])
    return math.sqrt(total) if squared else total


@strict
def _tree_speak(part: TreeParts, stream: int, rounds: int, spoken: Spoken) -> int:
    """Write the points on the path and their weights; return how many they are."""
    tree, now, length = part.tree, rounds, 1
    heights = tree.depth if tree.depth > 0 else digits(rounds, tree.arity)
    for h in range(heights):
        place(part.sums[stream, h], now % tree.arity * length, tree, None, spoken.points[h])
        spoken.weights[h] = 1 / heights
        now //= tree.arity
        length *= tree.arity
    return heights


@strict
def _tree_learn(
    part: TreeParts, stream: int, rounds: int, spoken: Spoken, count: int, outcome: Array, squared: bool
) -> None:
    """Learn the outcome of a path."""
    tree, path, sums, errors = part.tree, part.path[stream], part.sums[stream], part.errors[stream]
    if rounds > 0:
        left, heights = 0.0, tree.depth if tree.depth > 0 else digits(rounds - 1, tree.arity)
        for h in range(min(carries(rounds, tree.arity) + 1, heights)):
            left += size(path[h], squared)
            path[h] = 0.0
        errors[0] += left
    total = 0.0
    for h in range(count):
        for j in range(len(outcome)):
            path[h, j] += spoken.weights[h] * (outcome[j] - spoken.points[h, j])
        total += size(path[h], squared)
    errors[1] = total
    for j in range(len(outcome)):
        sums[0, j] += outcome[j]
    carry_up(part.sums, stream * sums.size, len(outcome), rises(rounds + 1, tree.arity, tree.depth))


@strict
def _grid_speak(part: GridParts, stream: int, rounds: int, spoken: Spoken) -> int:
    """Write the grid points to play, and their weights; return how many they are."""
    bins, rows = part.bias.shape[1] - 1, spoken.rows
    count = choose_points(part.bias[stream], rows, spoken.weights)
    for c in range(count):
        spoken.points[c, 0], spoken.points[c, 1] = (bins - rows[c]) / bins, rows[c] / bins
    return count


@strict
def _grid_learn(
    part: GridParts, stream: int, rounds: int, spoken: Spoken, count: int, outcome: Array, squared: bool
) -> None:
    """Learn the outcome of some grid points."""
    bias, biases, before, after = part.bias[stream], part.biases[stream], 0.0, 0.0
    for c in range(count):
        i, weight, point = spoken.rows[c], spoken.weights[c], spoken.points[c]
        gap = ((outcome[1] - point[1]) - (outcome[0] - point[0])) / 2
        bias[i] += weight * min(max(gap, -point[1]), point[0])
        before += size(biases[i], squared)
        for j in range(2):
            biases[i, j] += weight * (outcome[j] - point[j])
        after += size(biases[i], squared)
    part.errors[stream, 0] += after - before


def speak(part: Any, stream: int, rounds: int, spoken: Spoken) -> int:
    """Write what a part announces after so many rounds; return the number of points."""
    return 0


@overload(speak)
def _speak(part: Any, stream: Any, rounds: Any, spoken: Any) -> Any:
    own = _tree_speak if part.instance_class is TreeParts else _grid_speak

    def play(part: Any, stream: Any, rounds: Any, spoken: Any) -> Any:
        return own(part, stream, rounds, spoken)

    return play


def learn(part: Any, stream: int, rounds: int, spoken: Spoken, count: int, outcome: Array, squared: bool) -> None:
    """Learn the outcome of what a part announced; its errors add up to its total error."""


@overload(learn)
def _learn(part: Any, stream: Any, rounds: Any, spoken: Any, count: Any, outcome: Any, squared: Any) -> Any:
    own = _tree_learn if part.instance_class is TreeParts else _grid_learn

    def play(part: Any, stream: Any, rounds: Any, spoken: Any, count: Any, outcome: Any, squared: Any) -> None:
        own(part, stream, rounds, spoken, count, outcome, squared)

    return play
