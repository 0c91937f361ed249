"""The lanes that kernels leave to the CPU: the first one, and those that are not whole. Compiled by Numba."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from treecal._compile import strict
from treecal._typing import Array, Integers
from treecal.forecasters import TreeArgs, coordinate
from treecal.tree import digits


class Lane(NamedTuple):
    """Consecutive nodes of some heights: the number of the first lowest one, its height, and how many heights."""

    start: int
    height: int
    heights: int


@strict
def measure_slices(held: Array, slices: Integers, rounds: int, tree: TreeArgs, errors: Array, carried: Array) -> None:
    """Add the errors of all slices, and write what is carried at the end of the stream.

    Each slice is `(height, start, heights, count, whole)`, and its rows follow one after the other in `held`. The sum
    of the one node of a slice that is not whole is the last row of the next such slice.
    """
    dim = len(tree.first)
    at = 0
    left = 0
    room = np.empty((carried.shape[0], dim))
    last = np.empty(dim)
    for i in range(len(slices)):
        height, start, heights, count, whole = slices[i]
        lane = Lane(start, height, heights)
        rows = np.empty((count + left, dim))
        rows[:count] = held[at : at + count]
        at += count
        if whole:
            measure(rows[:count], lane, rounds, tree, errors, room)
            continue
        if left:
            rows[count] = last
        measure(rows, lane, rounds, tree, errors, carried[height:])
        left = min(len(rows), 1)
        if left:
            last[:] = rows[0]


@strict
def measure(rows: Array, lane: Lane, rounds: int, tree: TreeArgs, errors: Array, carried: Array) -> None:
    """Add the errors of the nodes of a lane in ℓ1, ℓ2 and ℓ2²; write what it carries at the end of the stream.

    `rows` are the sums of its lowest nodes, and become those of the nodes above.
    """
    start, height, heights = lane
    arity, depth, first = tree
    count, dim = rows.shape
    length = arity**height
    for step in range(heights):
        total = np.zeros(dim)
        for i in range(count):
            number = start + i
            digit = number % arity
            own = min(rounds - number * length, length)
            if digit == 0:
                total[:] = 0.0
            one = 0.0
            two = 0.0
            for k in range(dim):
                gap = rows[i, k] - own * coordinate(total[k], digit * length, k, first[k], None)
                one += abs(gap)
                two += gap * gap
            if depth > 0 or number > 0 or height + step == 0:
                share = 1.0 / (depth if depth > 0 else height + step + digits(number, arity))
                errors[0] += share * one
                errors[1] += share * math.sqrt(two)
                errors[2] += share * two / own
            for k in range(dim):
                value = rows[i, k]
                if own == length:
                    carried[step, k] = total[k] + value if digit < arity - 1 else 0.0
                else:
                    carried[step, k] = total[k]
                total[k] += value
                rows[i // arity, k] = total[k]  # its own row has been read, and so have those before
        count = (count + arity - 1) // arity
        start //= arity
        length *= arity
