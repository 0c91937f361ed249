"""The loop over rows of the binned audit. Numba compiles it, so this module is imported only when an audit runs.

Sums are kept in whole numbers, so they depend neither on the order of rows nor on how rows come in chunks. A number
from 0 to 2 is rounded to a multiple of 2^-51 by adding 2 to it: the digits of such a float, read as an integer, count
these multiples. What an integer cannot hold any more is carried over to another one, which counts ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from treecal._typing import Integers

DIGITS = 51
_TWO = int(np.float64(2.0).view(np.int64))
_FULL, _REST = 1 << 62, (1 << DIGITS) - 1
_BLOCK = 1024  # rows at a time, so that what is known of them stays in the cache


def _inttoptr(context: Any, address: Any) -> Any:
    return types.voidptr(address), lambda _, builder, __, args: builder.inttoptr(args[0], cgutils.voidptr_t)


_pointer: Any = intrinsic(_inttoptr)  # an address as a pointer, for `carray`


@njit(cache=True, nogil=True)
def tally(
    forecasts: Integers,
    outcomes: Integers,
    groups: Integers,
    tolerance: float,
    bins: int,
    table: Integers,
    scores: Integers,
) -> int:
    """Add rows to the tallies, up to the first thousand that holds a bad one; return how many.

    Parameters
    ----------
    forecasts
        Addresses of the probabilities of each class, `(d,)`: Arrow's own columns, without a copy.
    outcomes
        Class of each row, `(n,)`; a row of any other is bad.
    groups
        Group of each row, `(n,)`.
    tolerance
        How far from 1 a row's probabilities may sum.
    bins
        Number of bins, all of one width.
    table
        Rows, rows in which the class happened, and the sum of its probabilities in ones and in multiples of 2^-51; of
        each group, class and bin. In the place of one more class stands the likeliest one: `(4, g, d + 1, b)`.
    scores
        The sum of halved Brier scores of each group, in ones and in multiples of 2^-51: `(2, g)`.
    """
    # No function is called with an array in here: counting references to it would take longer than the work.
    d, n = len(forecasts), len(outcomes)
    count, last = float(bins), bins - 1.0
    cells = table.reshape(4, -1)
    rows, hits, ones, rest = cells[0], cells[1], cells[2], cells[3]
    score_ones, score_rest = scores[0], scores[1]
    most, top, squares = np.empty(_BLOCK), np.empty(_BLOCK, np.int64), np.empty(_BLOCK)
    sums, cell, above = np.empty(_BLOCK), np.empty(_BLOCK, np.uint64), np.empty(_BLOCK)
    digits = above.view(np.int64)
    for start in range(0, n, _BLOCK):
        size = min(_BLOCK, n - start)
        group, outcome = groups[start : start + size], outcomes[start : start + size]
        most[:], top[:], squares[:], sums[:] = -1.0, 0, 0.0, 0.0
        bad = 0  # rows as `Outcomes.read` finds them; NaN compares as False
        for k in range(d):
            row = carray(_pointer(forecasts[k] + 8 * start), (size,), np.float64)
            for i in range(size):
                larger = row[i] > most[i]  # of equal ones the first is the likeliest
                most[i] = row[i] if larger else most[i]
                top[i] = k if larger else top[i]
                squares[i] += row[i] * row[i]
                sums[i] += row[i]
                bad += row[i] < 0
        for i in range(size):
            bad += not ((abs(sums[i] - 1) <= tolerance) & (outcome[i] >= 0) & (outcome[i] < d))
        if bad:
            return start
        for k in range(d + 1):
            row = carray(_pointer(forecasts[k] + 8 * start), (size,), np.float64) if k < d else most[:size]
            for i in range(size):  # without looking anything up, so that several rows are worked on at once
                above[i] = row[i] + 2.0
                b = np.int64(min(row[i] * count, last))
                b -= row[i] < b / count  # the product may have been rounded up to an edge
                cell[i] = (group[i] * (d + 1) + k) * bins + b
            for i in range(size):
                at = cell[i]
                rows[at] += 1
                total = rest[at] + (digits[i] - _TWO)
                if total >= _FULL:
                    ones[at] += total >> DIGITS
                    total &= _REST
                rest[at] = total
        for i in range(size):
            p = carray(_pointer(forecasts[outcome[i]] + 8 * start), (size,), np.float64)[i]
            b = np.int64(min(p * count, last))
            b += group[i] * (d + 1) * bins - (p < b / count)
            hits[np.uint64(b + outcome[i] * bins)] += 1
            hits[np.uint64(b + d * bins)] += outcome[i] == top[i]  # p is then the largest, and in its bin
            above[i] = (squares[i] + 1.0) / 2 - p + 2.0  # Σ(p − y)² / 2
        for i in range(size):
            at = np.uint64(group[i])
            total = score_rest[at] + (digits[i] - _TWO)
            if total >= _FULL:
                score_ones[at] += total >> DIGITS
                total &= _REST
            score_rest[at] = total
    return n
