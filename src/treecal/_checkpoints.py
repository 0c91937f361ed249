"""When to read an error as rounds go by: after ten numbers of rounds a decade, the same wherever it is read."""

from __future__ import annotations

import math

import numpy as np

from treecal._typing import Integers


def checkpoints(rounds: int) -> Integers:
    """Return ten numbers of rounds a decade, evenly spaced on a logarithmic scale, from 1 on, and `rounds`.

    Examples
    --------
    >>> checkpoints(20)
    array([ 1,  2,  3,  4,  5,  6,  8, 10, 13, 16, 20])
    """
    found: list[int] = []
    mark = 0
    while mark < rounds:
        mark = min(next_checkpoint(mark), rounds)
        found.append(mark)
    return np.array(found, np.int64)


def next_checkpoint(rounds: int) -> int:
    """Return the first of ten numbers a decade that is greater.

    Examples
    --------
    >>> [next_checkpoint(n) for n in (0, 1, 2, 10, 11, 1000)]
    [1, 2, 3, 13, 13, 1259]
    """
    k = 0 if rounds < 1 else max(0, math.floor(10 * math.log10(rounds)) - 1)
    while (mark := round(10 ** (k / 10))) <= rounds:
        k += 1
    return mark
