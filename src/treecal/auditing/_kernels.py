"""The loop over rows of the binned audit. Numba compiles it, so this module is imported only when an audit runs.

A number from 0 to 2 is rounded to a multiple of 2^-51 by adding 2 to it: the bits of that float, read as an integer,
count these multiples. Before an integer overflows, it is carried over to another one, which counts ones.

The squares of a row are rounded to multiples of 2^-58 and summed in two parts, each without rounding: so their sum does
not depend on the order of the classes either, which engines that add them up in parallel choose for themselves.
"""

from __future__ import annotations

import numpy as np

from treecal._compile import inlined, strict
from treecal._elementary import log
from treecal.auditing._cells import DIGITS, LOG_SCALE, MAGIC, WEIGHT_SCALE, AuditRows, BinCounts
from treecal.measures import bin_of

TWO = int(np.float64(2.0).view(np.int64))
"""The bits of 2.0: added to an amount of at most 1, it leaves so many multiples of 2^-51 above them."""
REST = (1 << DIGITS) - 1
BLOCK = 1024
"""AuditRows at a time, so that intermediate arrays stay in the cache."""
_FULL = 1 << 62

bin_in = inlined(bin_of)


def _product(amount: int, weight: int) -> tuple[int, int]:
    """Return an amount, below 2^52 in units of 2^-51, times a weight below 2^53: in ones, and the rest in units.

    The rest is less than three ones.
    """
    high = amount >> 26
    low = amount & ((1 << 26) - 1)
    upper = weight >> 27
    lower = weight & ((1 << 27) - 1)
    up = high * lower
    across = low * upper
    down = low * lower  # times 2^26, 2^27 and 1; below 2^53, 2^52 and 2^53
    ones = (high * upper << 2) + (up >> 25) + (across >> 24) + (down >> DIGITS)
    rest = ((up & ((1 << 25) - 1)) << 26) + ((across & ((1 << 24) - 1)) << 27) + (down & REST)
    return ones, rest


times = inlined(_product)


def _scaled_log(p: float) -> float:
    """Return the log score of a probability above 0, over 1,024."""
    return max(min(-log(p), LOG_SCALE) / LOG_SCALE, 0.0)  # one above 1, within the tolerance, counts as 1


log_score = inlined(_scaled_log)


@strict
def tally(rows: AuditRows, cells: BinCounts) -> None:
    """Add valid rows to the cells."""
    # No function is called with an array: reference counting would take longer than the work.
    d, n = rows.forecasts.shape
    bins = cells.weight.shape[2]
    width = (d + 1) * bins
    count = float(bins)
    weight = cells.weight.ravel()
    hits = cells.hits.ravel()
    ones = cells.ones.ravel()
    rest = cells.rest.ravel()
    most = np.empty(BLOCK)
    top = np.empty(BLOCK, np.int64)
    squares = np.empty(BLOCK)
    small = np.empty(BLOCK)
    cell = np.empty(BLOCK, np.uint64)
    above = np.empty(BLOCK)
    digits = above.view(np.int64)
    scores = np.empty((5, BLOCK))
    weighted = rows.weights.size > 0
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        group = rows.groups[start : start + size]
        outcome = rows.outcomes[start : start + size]
        most[:] = -1.0
        top[:] = 0
        squares[:] = 0.0
        small[:] = 0.0
        for k in range(d):
            row = rows.forecasts[k, start : start + size]
            for i in range(size):
                larger = row[i] > most[i]  # of equal ones the first is the most likely
                most[i] = row[i] if larger else most[i]
                top[i] = k if larger else top[i]
                square = row[i] * row[i]
                large = (square + 2.0) - 2.0
                squares[i] += large
                small[i] += ((square - large) + MAGIC) - MAGIC
        for k in range(d + 1):
            row = rows.forecasts[k, start : start + size] if k < d else most[:size]
            for i in range(size):  # no lookups, so that it vectorises
                above[i] = row[i] + 2.0
                cell[i] = group[i] * width + k * bins + np.int64(bin_in(row[i], count))
            for i in range(size):
                at = cell[i]
                amount = digits[i] - TWO
                if weighted:
                    w = rows.weights[start + i]
                    weight[at] += w
                    whole, amount = times(amount, w)
                    ones[at] += whole
                else:
                    weight[at] += 1
                total = rest[at] + amount
                if total >= _FULL:
                    ones[at] += total >> DIGITS
                    total &= REST
                rest[at] = total
        for i in range(size):
            p = rows.forecasts[outcome[i], start + i]
            b = group[i] * width + np.int64(bin_in(p, count))
            w = rows.weights[start + i] if weighted else 1
            hits[np.uint64(b + outcome[i] * bins)] += w
            hits[np.uint64(b + d * bins)] += w * (outcome[i] == top[i])  # p is then the largest, and in its bin
            brier = ((squares[i] + small[i]) + 1.0) / 2 - p
            log = 0.0  # Σ(p − y)² / 2
            if p > 0:
                log = log_score(p)
            else:
                cells.impossible[group[i]] += w
            scores[0, i] = brier
            scores[1, i] = brier * brier
            scores[2, i] = log
            scores[3, i] = log * log
            scores[4, i] = w / WEIGHT_SCALE if weighted else 0.0
        for s in range(5 if weighted else 4):
            for i in range(size):
                above[i] = scores[s, i] + 2.0
            for i in range(size):
                at = np.uint64(group[i])
                amount = digits[i] - TWO
                if weighted:
                    whole, amount = times(amount, rows.weights[start + i])
                    cells.score_ones[at, s] += whole
                total = cells.score_rest[at, s] + amount
                if total >= _FULL:
                    cells.score_ones[at, s] += total >> DIGITS
                    total &= REST
                cells.score_rest[at, s] = total
