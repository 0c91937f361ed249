"""How a bank keeps streams on trees: what every round of one needs is in one place, and the rest in another."""

from __future__ import annotations

from typing import NamedTuple

from treecal._typing import Array, Integers

SCALE, COST = 1, 2
"""Where near records of weighted heights have the scale of costs, and the cost of leaves."""


class Records(NamedTuple):
    """The records of all streams.

    A near one is the stream's rounds (the bits of an integer, read through `whole`), with weighted heights the scale of
    costs and the cost of leaves, and from `head` on the sum that leaves are added to. A far one, which one of `arity`
    rounds needs, has the carried sums of the higher heights, from `(height − 1)·dim` on. With weighted heights,
    `stakes` have the weight of each at `2·height`, and before it the cost of each higher one.
    """

    near: Array
    whole: Integers
    far: Array
    stakes: Array
    head: int
    heights: int
