"""The cells in which an engine counts rows, in whole numbers: of each group, class and bin."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from treecal._typing import Array, Integers
from treecal.auditing._groups import Groups
from treecal.exceptions import ParameterError

DIGITS = 51
"""Sums of probabilities are multiples of 2^-51."""
SCORES = ("brier", "brier squared", "log", "log squared", "weight")
"""Summed for each row: half its Brier score, its log score over 1,024, their squares, and its weight over 2^53.

All lie between 0 and 1. The second moments are for intervals; the last one is for rows that differ in weight.
"""
LOG_SCALE = 1024.0
WEIGHT_SCALE = 2.0**53
MAGIC = 1.5 * 2.0**-6
"""Added to a number of at most 2^-7, it rounds it to a multiple of 2^-58: the unit of squares."""
_MEMORY = 1 << 29


class AuditRows(NamedTuple):
    """Valid rows: the probability of each class, `(d, n)`, and the class and the group of each row, `(n,)`.

    If rows have weights, they are whole numbers, `(n,)`; otherwise that array is empty.
    """

    forecasts: Array
    outcomes: Integers
    groups: Integers
    weights: Integers


class BinCounts(NamedTuple):
    """The counts of each group, class and bin; as one more class, those of the most likely class of each row.

    All are whole numbers, so they depend neither on the order of the rows nor on their chunks. A sum is
    `ones + rest / 2^51`.

    Attributes
    ----------
    weight, hits
        Number of rows, and of those whose outcome is the class, `(g, d + 1, b)`: a row counts as often as its weight.
    ones, rest
        The sum of the probabilities, `(g, d + 1, b)`.
    score_ones, score_rest
        The sums of the `SCORES` of each group, `(g, 5)`.
    impossible
        Number of rows of each group whose outcome had forecast 0, `(g,)`: a row counts as often as its weight.
    rows
        Number of rows of each group, `(g,)`, if they have weights; otherwise 0.
    """

    weight: Integers
    hits: Integers
    ones: Integers
    rest: Integers
    score_ones: Integers
    score_rest: Integers
    impossible: Integers
    rows: Integers

    @classmethod
    def empty(cls, *, classes: int, bins: int) -> BinCounts:
        """Return the empty cells of one group."""
        shapes = [(1, classes + 1, bins)] * 4 + [(1, len(SCORES))] * 2 + [(1,)] * 2
        return cls(*(np.zeros(shape, np.int64) for shape in shapes))

    def emptied(self) -> BinCounts:
        """Return empty cells of the same groups."""
        return BinCounts(*map(np.zeros_like, self))

    def with_room(self, groups: Groups) -> BinCounts:
        """Return the same cells with room for all groups, up to a limit of memory."""
        (room, *shape) = self.weight.shape
        count = len(groups.index)
        if count <= room:
            return self
        most = max(1, _MEMORY // (32 * math.prod(shape)))
        if count > most:
            raise ParameterError(
                f"there are more than {most:,} groups by {', '.join(groups.by)}.",
                hint="group by columns with fewer distinct values.",
            )
        more = max(count, min(2 * room, most)) - room  # double, so that groups cost O(1) each
        return BinCounts(*(np.concatenate([old, np.zeros((more, *old.shape[1:]), np.int64)]) for old in self))

    def plus(self, other: BinCounts) -> BinCounts:
        """Return the cells of the rows of both, of the same groups."""
        weight, hits, ones, rest, *scores, impossible, rows = (a + b for a, b in zip(self, other, strict=True))
        return BinCounts(weight, hits, *_carried(ones, rest), *_carried(*scores), impossible, rows)


def _carried(ones: Integers, rest: Integers) -> tuple[Integers, Integers]:
    """Return a sum in two parts, the second of them less than one."""
    return ones + (rest >> DIGITS), rest & ((1 << DIGITS) - 1)
