"""When to read an error as rounds go by, about ten times a decade: of so many rounds, or of a stream that goes on."""

from __future__ import annotations

import math

import numpy as np

from treecal._typing import Integers


def checkpoints(rounds: int) -> Integers:
    """Return about ten numbers of rounds per decade, evenly spaced on a logarithmic scale, from 1 to `rounds`.

    Examples
    --------
    >>> checkpoints(20)
    array([ 1,  2,  3,  4,  6,  7,  8, 11, 13, 16, 20])
    """
    last = max(rounds, 1)
    marks = np.geomspace(1, last, int(10 * np.log10(last)) + 2)
    return np.unique(np.rint(marks).astype(np.int64))[:rounds]


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
