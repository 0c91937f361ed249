"""The loops of the audit over codes, compiled by Numba: rows are looked up in tables, and values are counted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treecal._compile import strict
from treecal._typing import Array, Integers
from treecal.auditing._counts import DIGITS, MAGIC, Cells
from treecal.auditing._kernels import BLOCK, REST, TWO, bin_in, log_score, times

SUM_DIGITS, SQUARE_DIGITS = 30, 58
"""In tables, sums of probabilities are multiples of 2^-30, and of squares, which are exact, of 2^-58."""
_SQUARE = 2.0**SQUARE_DIGITS


class Tables(NamedTuple):
    """What a row's codes stand for. The codes of neighbouring columns are combined, as long as tables stay short.

    Attributes
    ----------
    entries
        For each combination of codes: how many rows have it; the sum of its probabilities, times 2^32, plus the
        largest of its keys; the sum of its squares, `(e, 3)`.
    start, first
        Of each table, where its entries begin, and its first column: `(t + 1,)`. Their number is even.
    stride, size
        Of each column, how many entries its codes are apart, and how many codes it has.
    column, classes
        The column of each class; and the first class of each column, `(columns + 1,)`.
    value, offset
        The probabilities that the codes of each class stand for, and where they begin, `(d + 1,)`.
    key
        Their rank among all of them, times the number of classes, plus the number of classes that come later: the
        largest is that of the most likely class.
    """

    entries: Integers
    start: Integers
    first: Integers
    stride: Integers
    size: Integers
    column: Integers
    classes: Integers
    value: Array
    offset: Integers
    key: Integers


class Found(NamedTuple):
    """How many outcomes had each value, `(v,)`; rows for each key, wrong ones and right ones, `(2 * keys,)`.

    The sums of half the Brier scores and of their squares, each in ones and the rest, `(2, 2)`; and the least and the
    largest sum of a row's probabilities.
    """

    hits: Integers
    top: Integers
    brier: Integers
    sums: Integers


@strict
def fill(tables: Tables) -> None:
    """Fill in what each combination of codes stands for."""
    value, offset = tables.value, tables.offset
    for t in range(len(tables.start) - 1):
        for e in range(tables.start[t], tables.start[t + 1]):
            total, most, squares = 0.0, np.int64(0), np.int64(0)
            for c in range(tables.first[t], tables.first[t + 1]):
                code = (e - tables.start[t]) // tables.stride[c] % tables.size[c]
                for k in range(tables.classes[c], tables.classes[c + 1]):
                    p, key = value[offset[k] + code], tables.key[offset[k] + code]
                    total += p
                    most = max(most, key)
                    large = (p * p + 2.0) - 2.0  # as `tally` rounds it
                    small = ((p * p - large) + MAGIC) - MAGIC
                    squares += np.int64(large * _SQUARE) + np.int64(small * _SQUARE)
            tables.entries[e, 0] = 0
            tables.entries[e, 1] = (np.int64(np.rint(total * 2.0**SUM_DIGITS)) << 32) + most
            tables.entries[e, 2] = squares


@strict
def collect(tables: Tables, found: Found, ranks: Array, cells: Cells) -> None:
    """Add what was found to the cells of one group: counts times values."""
    counts, offset, value = np.zeros(len(tables.value), np.int64), tables.offset, tables.value
    for t in range(len(tables.start) - 1):
        for e in range(tables.start[t], tables.start[t + 1]):
            for c in range(tables.first[t], tables.first[t + 1]):
                code = (e - tables.start[t]) // tables.stride[c] % tables.size[c]
                for k in range(tables.classes[c], tables.classes[c + 1]):
                    counts[offset[k] + code] += tables.entries[e, 0]
    d, bins, top = len(tables.column), cells.weight.shape[2], found.top.reshape(len(ranks), len(tables.column), 2)
    weight, hits = cells.weight.ravel(), cells.hits.ravel()
    ones, rest, scores = cells.ones.ravel(), cells.rest.ravel(), np.empty((2, 1))
    digits = scores.view(np.int64)
    for k in range(d + 1):
        for v in range(offset[k] if k < d else 0, offset[k + 1] if k < d else len(ranks)):
            p = value[v] if k < d else ranks[v]
            n = counts[v] if k < d else top[v].sum()
            right = found.hits[v] if k < d else top[v, :, 1].sum()
            at = k * bins + np.int64(bin_in(p, float(bins)))
            weight[at] += n
            hits[at] += right
            scores[0, 0] = p + 2.0
            whole, amount = times(digits[0, 0] - TWO, n)
            amount += rest[at]
            ones[at] += whole + (amount >> DIGITS)
            rest[at] = amount & REST
            if k == d or right == 0:
                continue
            if p == 0:
                cells.impossible[0] += right
                continue
            log = log_score(p)
            scores[0, 0], scores[1, 0] = log + 2.0, log * log + 2.0
            for s in range(2):
                whole, amount = times(digits[s, 0] - TWO, right)
                amount += cells.score_rest[0, 2 + s]
                cells.score_ones[0, 2 + s] += whole + (amount >> DIGITS)
                cells.score_rest[0, 2 + s] = amount & REST
    for s in range(2):
        amount = cells.score_rest[0, s] + found.brier[s, 1]
        cells.score_ones[0, s] += found.brier[s, 0] + (amount >> DIGITS)
        cells.score_rest[0, s] = amount & REST


@strict
def count_combinations(codes: Any, stride: Integers, counts: Integers) -> None:
    """Count rows by all their codes, those of each column being so many places apart."""
    columns, n = codes.shape
    at = np.empty(BLOCK, np.int32)
    for begin in range(0, n, BLOCK):
        size = min(BLOCK, n - begin)
        at[:] = 0
        for c in range(columns):
            row, step = codes[c, begin : begin + size], np.int32(stride[c])
            for i in range(size):
                at[i] += np.int32(row[i]) * step
        for i in range(size):
            counts[np.uint64(at[i])] += 1


@strict
def count_rows(codes: Any, outcomes: Integers, tables: Tables, found: Found) -> None:
    """Count rows, given the codes of each column and last those of the label, and the class of each of these."""
    columns, n, entries = codes.shape[0] - 1, codes.shape[1], tables.entries
    one, other = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.int32)
    total, key, squares = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    given, above = np.empty(BLOCK), np.empty(BLOCK)
    digits = above.view(np.int64)
    for begin in range(0, n, BLOCK):
        size = min(BLOCK, n - begin)
        total[:], key[:], squares[:] = 0, 0, 0
        for t in range(0, len(tables.start) - 1, 2):  # two at a time, to read and write the sums less often
            for at, table in ((one, t), (other, t + 1)):
                at[:] = tables.start[table]
                for c in range(tables.first[table], tables.first[table + 1]):
                    row, stride = codes[c, begin : begin + size], np.int32(tables.stride[c])
                    for i in range(size):
                        at[i] += np.int32(row[i]) * stride
            for i in range(size):
                a, b = np.uint64(one[i]), np.uint64(other[i])
                entries[a, 0] += 1
                entries[b, 0] += 1
                word, more = entries[a, 1], entries[b, 1]
                total[i] += (word >> 32) + (more >> 32)
                key[i] = max(key[i], max(word & 0xFFFFFFFF, more & 0xFFFFFFFF))
                squares[i] += entries[a, 2] + entries[b, 2]
        low, high = found.sums
        for i in range(size):
            low, high = min(low, total[i]), max(high, total[i])
        found.sums[0], found.sums[1] = low, high
        labels = codes[columns, begin : begin + size]
        for i in range(size):
            k = np.uint64(outcomes[np.uint64(labels[i])])
            v = np.uint64(tables.offset[k] + codes[np.uint64(tables.column[k]), np.uint64(begin + i)])
            found.hits[v] += 1
            found.top[np.uint64(2 * key[i] + (tables.key[v] == key[i]))] += 1
            given[i] = tables.value[v]
        for s in range(2):
            for i in range(size):
                half = (squares[i] / _SQUARE + 1.0) / 2 - given[i]
                above[i] = (half if s == 0 else half * half) + 2.0
            amount = found.brier[s, 1]
            for i in range(size):
                amount += digits[i] - TWO
            found.brier[s, 0] += amount >> DIGITS
            found.brier[s, 1] = amount & REST
