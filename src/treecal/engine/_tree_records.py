"""How a bank keeps streams on trees."""

from __future__ import annotations

from typing import NamedTuple

from treecal._typing import Array, Integers

SCALE, COST = 1, 2
"""Where near records of weighted heights have the scale of costs, and the cost of leaves."""


class Records(NamedTuple):
    """The records of all streams.

    A near one is the stream's rounds (the bits of an integer, read through `whole`) and, from `head` on, the carried
    sum of each height, lowest first. With weighted heights it has before them the scale of costs and the cost of
    leaves, and of the sums that of leaves alone, which is what most rounds need. The far one has the weight of each
    height at `2·height`, before it the cost of each higher one, and from `top` on the sums of the higher heights.
    """

    near: Array
    whole: Integers
    far: Array
    head: int
    top: int
    heights: int
