"""Norms of many gaps at once, rounded as `AdaptiveTreeCal` rounds that of one.

A gap is a column, so that processors take as many of them at a time as they can. It is sorted first: then the rounding
of its norm does not depend on the order of the classes.
"""

from __future__ import annotations

import math

import numpy as np

from treecal._compile import strict
from treecal._typing import Array, Integers
from treecal.engine import _lanes as lanes

L1, L2, LINF = 1, 2, 3
"""The norms that are compiled."""


@strict
def _sort(gaps: Array, count: int, pairs: Integers) -> None:
    for n in range(len(pairs)):
        j, k = pairs[n, 0], pairs[n, 1]
        for i in range(count):  # without branches
            a, b = gaps[j, i], gaps[k, i]
            gaps[j, i], gaps[k, i] = a if a < b else b, b if a < b else a


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
    """Write the norms of so many gaps, the columns of the first `dim` rows, which are overwritten.

    Four are sorted at a time, so there must be room for whole fours.
    """
    if norm != LINF and dim <= lanes.SORTED:
        for i in range(0, count, lanes.WIDTH):
            lanes.sort_columns(gaps, i, gaps.shape[1], dim)
    else:
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
