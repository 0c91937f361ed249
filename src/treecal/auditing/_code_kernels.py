"""The loops of the audit over codes, compiled by Numba: rows are looked up in tables, and values are counted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treecal._compile import strict
from treecal._typing import Array, Integers
from treecal.auditing._counts import DIGITS
from treecal.auditing._kernels import BLOCK, REST, TWO

SUM_DIGITS, SQUARE_DIGITS = 30, 58
"""In tables, sums of probabilities are multiples of 2^-30, and of squares, which are exact, of 2^-58."""


class Tables(NamedTuple):
    """What a row's codes stand for. The codes of neighbouring columns are combined, as long as tables stay short.

    Attributes
    ----------
    entries
        For each combination of codes: how many rows have it; the sum of their probabilities, times 2^32, plus the
        largest of their `keys`; the sum of their squares, `(e, 3)`.
    start, first
        Of each table, where its entries begin, and its first column: `(t + 1,)`.
    stride
        Of each column, how many entries its codes are apart.
    value, key
        The distinct probabilities of each class, one after the other; and their rank among all of them, times the
        number of classes, plus the number of classes that come later: the largest is of the most likely class.
    column, offset
        Of each class, its column, and where its values begin.
    """

    entries: Integers
    start: Integers
    first: Integers
    stride: Integers
    value: Array
    key: Integers
    column: Integers
    offset: Integers


class Found(NamedTuple):
    """How many outcomes had each value, `(v,)`; rows and correct ones for each key, `(keys, 2)`.

    The sums of half the Brier scores and of their squares, each in ones and the rest, `(2, 2)`; and the least and the
    largest sum of a row's probabilities.
    """

    hits: Integers
    top: Integers
    brier: Integers
    sums: Integers


@strict
def count_combinations(codes: Any, stride: Integers, counts: Integers) -> None:
    """Count rows by all their codes, those of each column being so many places apart."""
    columns, n = codes.shape
    at = np.empty(BLOCK, np.int64)
    for begin in range(0, n, BLOCK):
        size = min(BLOCK, n - begin)
        at[:] = 0
        for c in range(columns):
            row, step = codes[c, begin : begin + size], stride[c]
            for i in range(size):
                at[i] += row[i] * step
        for i in range(size):
            counts[np.uint64(at[i])] += 1


@strict
def count_rows(codes: Any, outcomes: Integers, tables: Tables, found: Found) -> None:
    """Count rows, given the codes of each column and last those of the label, and the class of each of these."""
    columns, n, entries = codes.shape[0] - 1, codes.shape[1], tables.entries
    at, key = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    total, squares = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    half, above = np.empty(BLOCK), np.empty(BLOCK)
    digits = above.view(np.int64)
    for begin in range(0, n, BLOCK):
        size = min(BLOCK, n - begin)
        key[:], total[:], squares[:] = 0, 0, 0
        for t in range(len(tables.start) - 1):
            at[:] = tables.start[t]
            for c in range(tables.first[t], tables.first[t + 1]):
                row, stride = codes[c, begin : begin + size], tables.stride[c]
                for i in range(size):
                    at[i] += row[i] * stride
            for i in range(size):
                e = np.uint64(at[i])
                entries[e, 0] += 1
                word = entries[e, 1]
                total[i] += word >> 32
                key[i] = max(key[i], word & 0xFFFFFFFF)
                squares[i] += entries[e, 2]
        low, high = found.sums
        for i in range(size):
            low, high = min(low, total[i]), max(high, total[i])
        found.sums[0], found.sums[1] = low, high
        labels = codes[columns, begin : begin + size]
        for i in range(size):
            k, most = np.uint64(outcomes[np.uint64(labels[i])]), np.uint64(key[i])
            v = np.uint64(tables.offset[k] + codes[np.uint64(tables.column[k]), np.uint64(begin + i)])
            found.hits[v] += 1
            found.top[most, 0] += 1
            found.top[most, 1] += tables.key[v] == key[i]
            half[i] = (squares[i] * 2.0**-SQUARE_DIGITS + 1.0) / 2 - tables.value[v]
        for s in range(2):
            for i in range(size):
                above[i] = (half[i] if s == 0 else half[i] * half[i]) + 2.0
            amount = found.brier[s, 1]
            for i in range(size):
                amount += digits[i] - TWO
            found.brier[s, 0] += amount >> DIGITS
            found.brier[s, 1] = amount & REST
