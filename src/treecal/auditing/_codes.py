"""The audit of rows whose probabilities are codes of a few distinct numbers: count the codes, not the rows.

Sums over rows are counts times values, in whole numbers, as those of `_kernels` are: the cells are the same. What
depends on a whole row is looked up: how far from 1 it sums, its squares, its most likely class. A row group with a row
that is invalid, or nearly so, is not counted here at all.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from treecal._bins import bin_of
from treecal._typing import Array, Integers
from treecal.auditing._counts import DIGITS, MAGIC, Cells, Rows
from treecal.io._outcomes import CodedRows
from treecal.io._valid import valid_forecasts

_COMBINED = 1 << 14  # combinations of all codes
_MOST = 1 << 10  # entries of a table
_KEYS = 1 << 22
_LOW = (1 << 26) - 1


def count_codes(rows: CodedRows, tolerance: float, cells: Cells) -> bool:
    """Add rows to the cells of one group; return False, and add none, unless all of them are clearly valid."""
    by_column = dict(zip(rows.columns, rows.values, strict=True))
    sizes = [*(len(by_column[c]) for c in range(len(rows.codes) - 1)), len(rows.outcomes)]
    if math.prod(sizes) <= min(_COMBINED, rows.codes.shape[1]):
        return _count_combined(rows, sizes, tolerance, cells)
    return _count_looked_up(rows, tolerance, cells)


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


def _count_looked_up(rows: CodedRows, tolerance: float, cells: Cells) -> bool:
    """Count the codes of each column, and look up what each row has in tables."""
    from treecal.auditing._code_kernels import SUM_DIGITS, Found, count_rows

    d, value = len(rows.values), np.concatenate(rows.values)
    if not (value >= 0).all() or value.max() > 2 or (rows.outcomes < 0).any():
        return False
    ranks, rank = np.unique(value, return_inverse=True)
    if len(ranks) * d > _KEYS:
        return False
    sizes = [len(own) for own in rows.values]
    key = rank * d + (d - 1) - np.repeat(np.arange(d), sizes)
    tables = _tables(rows, value, key, np.cumsum([0, *sizes[:-1]]))
    found = Found(*(np.zeros(shape, np.int64) for shape in (len(value), (len(ranks) * d, 2), (2, 2), 2)))
    found.sums[:] = 1 << 62, -(1 << 62)
    count_rows(rows.codes, rows.outcomes, tables, found)
    doubt = len(tables.start) * 2.0**-SUM_DIGITS + 4 * d * 2.0**-52  # roundings in tables, and where rows are added up
    if (np.abs(np.ldexp(found.sums, -SUM_DIGITS) - 1) > tolerance - doubt).any():
        return False
    _add(rows, tables, found, ranks, cells)
    return True


def _tables(rows: CodedRows, value: Array, key: Integers, offset: Integers) -> Any:
    """Return the tables that rows are looked up in."""
    from treecal.auditing._code_kernels import SQUARE_DIGITS, SUM_DIGITS, Tables

    squares = value * value
    large = squares + 2.0 - 2.0
    small = squares - large + MAGIC - MAGIC
    units = np.ldexp(large, SQUARE_DIGITS).astype(np.int64) + np.ldexp(small, SQUARE_DIGITS).astype(np.int64)
    columns = [_Column.of(c, rows, value, key, units, offset) for c in range(len(rows.codes) - 1)]
    joined, first, stride = list[_Column](), list[int](), list[int]()
    for c, column in enumerate(columns):
        if joined and joined[-1].total.size * column.total.size <= _MOST:
            stride.append(joined[-1].total.size)
            joined[-1] = column.after(joined[-1])
        else:
            stride.append(1)
            joined.append(column)
            first.append(c)
    first.append(len(columns))
    start = np.cumsum([0, *(table.total.size for table in joined)])
    total, keys, square = (np.concatenate(parts) for parts in zip(*joined, strict=True))
    entries = np.zeros((len(total), 3), np.int64)
    entries[:, 1] = (np.rint(np.ldexp(total, SUM_DIGITS)).astype(np.int64) << 32) + keys
    entries[:, 2] = square
    places = np.array(rows.columns)
    return Tables(entries, start, np.array(first), np.array(stride), value, key, places, offset)


class _Column(NamedTuple):
    """For each code of a column, or of several: the sum of its probabilities, the largest key, the sum of squares."""

    total: Array
    key: Integers
    square: Integers

    @classmethod
    def of(cls, c: int, rows: CodedRows, value: Array, key: Integers, units: Integers, offset: Integers) -> _Column:
        own = [k for k, column in enumerate(rows.columns) if column == c]
        parts = [slice(offset[k], offset[k] + len(rows.values[k])) for k in own]
        return cls(
            np.sum([value[part] for part in parts], axis=0),
            np.max([key[part] for part in parts], axis=0),
            np.sum([units[part] for part in parts], axis=0),
        )

    def after(self, other: _Column) -> _Column:
        """Return both together, the codes of the other first."""
        return _Column(
            np.add.outer(self.total, other.total).ravel(),
            np.maximum.outer(self.key, other.key).ravel(),
            np.add.outer(self.square, other.square).ravel(),
        )


def _add(rows: CodedRows, tables: Any, found: Any, ranks: Array, cells: Cells) -> None:
    """Add what was found to the cells."""
    from treecal.auditing._kernels import REST, log_scores

    d, (_, _, bins) = len(rows.values), cells.weight.shape
    counts = _by_column(tables)
    weight = np.concatenate([counts[c] for c in rows.columns])
    home = np.repeat(np.arange(d), [len(own) for own in rows.values]) * bins
    _put(cells, home, tables.value, weight, found.hits)
    top = found.top.reshape(-1, d, 2).sum(axis=1)
    _put(cells, np.full(len(ranks), d * bins), ranks, top[:, 0], top[:, 1])
    log, scores = log_scores(tables.value), np.repeat([2, 3], len(tables.value))
    ones, rest = _sum(np.concatenate([log, log * log]), np.tile(found.hits, 2), scores, cells.score_ones.size)
    ones[:2], rest[:2] = found.brier.T
    rest += cells.score_rest[0]
    cells.score_ones[0] += ones + (rest >> DIGITS)
    cells.score_rest[0] = rest & REST
    cells.impossible[0] += found.hits[tables.value == 0].sum()


def _by_column(tables: Any) -> list[Integers]:
    """Return how many rows have each code of each column."""
    counts = []
    for start, end, first, last in zip(tables.start, tables.start[1:], tables.first, tables.first[1:], strict=False):
        apart = [*tables.stride[first:last], end - start]
        sizes = [after // before for before, after in pairwise(apart)]
        table = tables.entries[start:end, 0].reshape(sizes[::-1])
        axes = range(len(sizes))
        counts += [table.sum(axis=tuple(a for a in axes if a != len(sizes) - 1 - c)) for c in axes]
    return counts


def _put(cells: Cells, home: Integers, value: Array, weight: Integers, hits: Integers) -> None:
    """Add values, so often each, to the cells of their bins, `home` being the first bin of their class."""
    from treecal.auditing._kernels import REST

    at = home + bin_of(value, cells.weight.shape[2]).astype(np.int64)
    size = cells.weight.size
    ones, rest = _sum(value, weight, at, size)
    rest += cells.rest.reshape(-1)
    more = _counted(at, weight, size), _counted(at, hits, size), ones + (rest >> DIGITS)
    for table, counted in zip((cells.weight, cells.hits, cells.ones), more, strict=True):
        table.reshape(-1)[:] += counted
    cells.rest.reshape(-1)[:] = rest & REST


def _counted(at: Integers, counts: Integers, size: int) -> Integers:
    found = np.zeros(size, np.int64)
    np.add.at(found, at, counts)
    return found


def _sum(amount: Array, count: Integers, at: Integers, size: int) -> tuple[Integers, Integers]:
    """Return the sum of amounts of at most 2, so often each, at each place: in ones, and the rest in units of 2^-51."""
    from treecal.auditing._kernels import TWO

    digits = (amount + 2.0).view(np.int64) - TWO
    # In two halves of 26 bits, which counts of at most 2^25 rows do not make overflow.
    high, low = (_counted(at, half * count, size) for half in (digits >> 26, digits & _LOW))
    return high >> 25, ((high & (_LOW >> 1)) << 26) + low
