"""Norms of many gaps at once, rounded as `AdaptiveTreeCal` rounds that of one.

A gap is a column, so that processors take as many of them at a time as they can. It is sorted first: then the rounding
of its norm does not depend on the order of the classes.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from treecal._compile import strict
from treecal._typing import Array, Integers

L1, L2, LINF = 1, 2, 3
"""The norms that are compiled."""


@lru_cache
def network(dim: int) -> Integers:
    """Return the pairs of coordinates that, put in order one after the other, sort all of them.

    Batcher's merge exchange (Knuth, "The Art of Computer Programming", 5.2.2, Algorithm M).
    """
    most = 1 << max(dim - 1, 0).bit_length() >> 1  # a power of 2
    pairs, apart = [], most
    while apart:
        jump, remainder, step = most, 0, apart
        while step:
            pairs += [(i, i + step) for i in range(dim - step) if i & apart == remainder]
            jump, remainder, step = jump >> 1, apart, jump - apart
        apart >>= 1
    return np.array(pairs, np.int64).reshape(-1, 2)


@strict
def _sort(gaps: Array, count: int, pairs: Integers) -> None:
    for n in range(len(pairs)):
        j, k = pairs[n, 0], pairs[n, 1]
        for i in range(count):  # without branches
            a, b = gaps[j, i], gaps[k, i]
            gaps[j, i], gaps[k, i] = min(a, b), max(a, b)


@strict
def _add_up(gaps: Array, count: int, dim: int, sizes: Array) -> None:
    """Add up at most 128 coordinates in the order in which NumPy does: eight sums, if there are as many."""
    last = dim - dim % 8
    if last == 0:
        sizes[:count] = 0.0
    else:
        for k in range(8, last):
            for i in range(count):
                gaps[k % 8, i] += gaps[k, i]
        for i in range(count):
            low = (gaps[0, i] + gaps[1, i]) + (gaps[2, i] + gaps[3, i])
            sizes[i] = low + ((gaps[4, i] + gaps[5, i]) + (gaps[6, i] + gaps[7, i]))
    for k in range(last, dim):
        for i in range(count):
            sizes[i] += gaps[k, i]


@strict
def norms(gaps: Array, count: int, dim: int, norm: int, pairs: Integers, sizes: Array) -> None:
    """Write the norms of so many gaps, the columns of the first `dim` rows, which are overwritten."""
    if norm != LINF:
        _sort(gaps, count, pairs)
    for k in range(dim):
        for i in range(count):
            gaps[k, i] = abs(gaps[k, i])
    if norm != L1:
        sizes[:count] = 0.0
        for k in range(dim):
            for i in range(count):
                sizes[i] = max(sizes[i], gaps[k, i])
    if norm == L1:
        _add_up(gaps, count, dim, sizes)
    elif norm == L2:
        scales = np.empty(count)
        for i in range(count):
            scales[i] = math.ldexp(1.0, min(max(math.frexp(sizes[i])[1], -1021), 1022))
        for k in range(dim):
            for i in range(count):
                scaled = gaps[k, i] / scales[i]
                gaps[k, i] = scaled * scaled
        _add_up(gaps, count, dim, sizes)
        for i in range(count):
            sizes[i] = scales[i] * math.sqrt(sizes[i])
