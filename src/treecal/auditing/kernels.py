"""The loop over rows of the binned audit. Numba compiles it, so this module is imported only when an audit runs.

Sums are kept in whole numbers, so they depend neither on the order of rows nor on how rows come in chunks. A number
from 0 to 2 is rounded to a multiple of 2^-51 by adding 2 to it: the digits of such a float, read as an integer, count
these multiples. What an integer cannot hold any more is carried over to another one, which counts ones.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from treecal._exact import Array, Labels

DIGITS = 51
_TWO = int(np.float64(2.0).view(np.int64))
_FULL, _REST = 1 << 62, (1 << DIGITS) - 1
_BLOCK = 1024  # rows at a time, so that what is known of them stays in the cache


@njit(cache=True, nogil=True)
def tally(forecasts: Array, outcomes: Labels, groups: Labels, edges: Array, table: Labels, scores: Labels) -> None:
    """Add a chunk of rows to the tallies.

    Parameters
    ----------
    forecasts
        Probabilities, `(d, n)`.
    outcomes
        Class of each row, `(n,)`.
    groups
        Group of each row, `(n,)`.
    edges
        Lower edges of the bins, `(b,)`.
    table
        Rows, rows in which the class happened, and the sum of its probabilities in ones and in multiples of 2^-51; of
        each group, class and bin. In the place of one more class stands the likeliest one: `(4, g, d + 1, b)`.
    scores
        The sum of halved Brier scores of each group, in ones and in multiples of 2^-51: `(2, g)`.
    """
    # No function is called with an array in here: counting references to it would take longer than the work.
    d, n = forecasts.shape
    bins, last = float(len(edges)), len(edges) - 1.0
    cells = table.reshape(4, -1)
    rows, hits, ones, rest = cells[0], cells[1], cells[2], cells[3]
    score_ones, score_rest = scores[0], scores[1]
    most, top, squares = np.empty(_BLOCK), np.empty(_BLOCK, np.int64), np.empty(_BLOCK)
    first, above = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK)
    digits = above.view(np.int64)
    for start in range(0, n, _BLOCK):
        size = min(_BLOCK, n - start)
        group, outcome = groups[start : start + size], outcomes[start : start + size]
        most[:], top[:], squares[:] = -1.0, 0, 0.0
        for k in range(d + 1):
            row = forecasts[k, start : start + size] if k < d else most[:size]
            if k < d:
                for i in range(size):
                    larger = row[i] > most[i]  # of equal ones the first is the likeliest
                    most[i] = row[i] if larger else most[i]
                    top[i] = k if larger else top[i]
                    squares[i] += row[i] * row[i]
            for i in range(size):
                above[i] = row[i] + 2.0
                first[i] = (group[i] * (d + 1) + k) * len(edges)
            for i in range(size):
                b = np.uint64(min(row[i] * bins, last))
                at = first[i] + b - np.uint64(row[i] < edges[b])  # the product may have been rounded up to an edge
                rows[at] += 1
                total = rest[at] + (digits[i] - _TWO)
                if total >= _FULL:
                    ones[at] += total >> DIGITS
                    total &= _REST
                rest[at] = total
        for i in range(size):
            p, at = forecasts[outcome[i], start + i], np.uint64(group[i] * (d + 1) * len(edges))
            b = np.uint64(min(p * bins, last))
            at += b - np.uint64(p < edges[b])
            hits[at + np.uint64(outcome[i] * len(edges))] += 1
            hits[at + np.uint64(d * len(edges))] += outcome[i] == top[i]  # p is then the largest, and in its bin
            above[i] = (squares[i] + 1.0) / 2 - p + 2.0  # Σ(p − y)² / 2
        for i in range(size):
            at = np.uint64(group[i])
            total = score_rest[at] + (digits[i] - _TWO)
            if total >= _FULL:
                score_ones[at] += total >> DIGITS
                total &= _REST
            score_rest[at] = total
