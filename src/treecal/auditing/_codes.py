"""The audit of rows whose probabilities are codes of a few distinct numbers: count the codes, not the rows.

Sums over rows are counts times values, in whole numbers, as those of `_kernels` are: the cells are the same. What
depends on a whole row is looked up: how far from 1 it sums, its squares, its most likely class. A row group with a row
that is invalid, or nearly so, is not counted here at all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from treecal._typing import Array, Integers
from treecal.auditing._counts import Cells, Rows
from treecal.io._outcomes import CodedRows
from treecal.io._valid import valid_forecasts

if TYPE_CHECKING:
    from treecal.auditing._code_kernels import Tables

_COMBINED = 1 << 14  # combinations of all codes
_MOST = 1 << 10  # entries of a table
_KEYS = 1 << 22


def count_codes(rows: CodedRows, tolerance: float, cells: Cells) -> bool:
    """Add rows to the cells of one group; return False, and add none, unless all of them are clearly valid."""
    by_column = dict(zip(rows.columns, rows.values, strict=True))
    sizes = [*(len(by_column[c]) for c in range(len(rows.codes) - 1)), len(rows.outcomes)]
    if math.prod(sizes) <= min(_COMBINED, rows.codes.shape[1]):
        return _count_combined(rows, sizes, tolerance, cells)
    return _count_looked_up(rows, sizes, tolerance, cells)


def _count_combined(rows: CodedRows, sizes: list[int], tolerance: float, cells: Cells) -> bool:
    """Count the combinations of all codes, where these are few: each is a row, of a weight."""
    from treecal.auditing._code_kernels import count_combinations
    from treecal.auditing._kernels import tally

    d, (_, _, bins) = len(rows.values), cells.weight.shape
    stride = np.cumprod([1, *sizes])
    counts = np.zeros(stride[-1], np.int64)
    count_combinations(rows.codes, stride, counts)
    there = np.flatnonzero(counts)
    codes = [there // step % size for step, size in zip(stride, sizes, strict=False)]
    forecasts = np.stack([values[codes[c]] for values, c in zip(rows.values, rows.columns, strict=True)])
    outcomes = rows.outcomes[codes[-1]]
    if (outcomes < 0).any() or not valid_forecasts(forecasts, tolerance).all():
        return False
    own = Cells.empty(classes=d, bins=bins)
    tally(Rows(forecasts, outcomes, np.zeros(len(there), np.int64), counts[there]), own)
    own.score_ones[:, -1] = own.score_rest[:, -1] = 0  # rows have no weights, really
    for table, total in zip(cells, cells.plus(own), strict=True):
        table[...] = total
    return True


def _count_looked_up(rows: CodedRows, sizes: list[int], tolerance: float, cells: Cells) -> bool:
    """Count the codes of each column, and look up what each row has in tables."""
    from treecal.auditing._code_kernels import SUM_DIGITS, Found, collect, count_rows, fill

    d, value = len(rows.values), np.concatenate(rows.values)
    if not value.min() >= 0 or value.max() > 2 or rows.outcomes.min() < 0:
        return False
    ranks, rank = np.unique(value, return_inverse=True)
    if len(ranks) * d > _KEYS:
        return False
    lengths = [len(own) for own in rows.values]
    key = rank * d + (d - 1) - np.repeat(np.arange(d), lengths)
    tables = _tables(rows.columns, sizes[:-1], value, np.cumsum([0, *lengths]), key)
    found = Found(*(np.zeros(shape, np.int64) for shape in (len(value), 2 * len(ranks) * d, (2, 2), 2)))
    found.sums[:] = 1 << 62, -(1 << 62)
    fill(tables)
    count_rows(rows.codes, rows.outcomes, tables, found)
    doubt = len(tables.start) * 2.0**-SUM_DIGITS + 4 * d * 2.0**-52  # roundings in tables, and where rows are added up
    if (np.abs(np.ldexp(found.sums, -SUM_DIGITS) - 1) > tolerance - doubt).any():
        return False
    collect(tables, found, ranks, cells)
    return True


def _tables(columns: list[int], sizes: list[int], value: Array, offset: Integers, key: Integers) -> Tables:
    """Return the tables that rows are looked up in, still without what they say."""
    from treecal.auditing._code_kernels import Tables

    lengths, first, stride = list[int](), list[int](), list[int]()
    for c, size in enumerate(sizes):
        if lengths and lengths[-1] * size <= _MOST:
            stride.append(lengths[-1])
            lengths[-1] *= size
        else:
            stride.append(1)
            first.append(c)
            lengths.append(size)
    if len(lengths) % 2:  # one more, of no column
        lengths.append(1)
        first.append(len(sizes))
    start, classes = np.cumsum([0, *lengths]), np.searchsorted(columns, range(len(sizes) + 1))
    entries, shape = np.empty((start[-1], 3), np.int64), ([*first, len(sizes)], stride, sizes, columns)
    firsts, strides, number, column = map(np.array, shape)
    return Tables(entries, start, firsts, strides, number, column, classes, value, offset, key)
