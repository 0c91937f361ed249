"""Exact sums, rows grouped by exact value, and totals of such groups, which carry what rounding loses of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array, Integers


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return `a + b` rounded, and exactly what the rounding lost (Knuth's error-free addition)."""
    total = a + b
    b_seen = total - a
    return total, (a - (total - b_seen)) + (b - b_seen)


def group_rows(rows: Integers) -> tuple[Integers, Integers]:
    """Return where each distinct row first appears, and the group of each row, numbered in order of appearance.

    Rows are sorted by a hash of 64 bits, and then compared in full.
    """
    code = np.full(len(rows), 0x9E3779B97F4A7C15, np.uint64)
    for column in rows.view(np.uint64).T:
        code = (code ^ column) * np.uint64(0xFF51AFD7ED558CCD)
        code ^= code >> np.uint64(32)
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    if not np.array_equal(rows[first[group]], rows):  # two rows have one hash
        _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[group]


class Totals:
    """A table of sums, which grows by the names that it is asked for.

    Attributes
    ----------
    names
        The name of each row, as integers, `(n, width)`.
    totals
        The sums of each row, and what rounding lost of them, `(n, 2, sums)`.
    size
        Number of rows in use: the arrays may be longer.

    Examples
    --------
    >>> table = Totals(np.empty((0, 1), np.int64), np.empty((0, 2, 1)))
    >>> rows, totals = table.added(np.array([[7], [5], [7]]), np.array([[1.0], [2.0], [4.0]]))
    >>> table.totals[rows] = totals  # until then nothing has changed, but for new rows of zeros
    >>> table.names[:, 0], table.totals[:, 0, 0]
    (array([7, 5]), array([5., 2.]))
    """

    def __init__(self, names: Integers, totals: Array) -> None:
        self.names = names
        self.totals = totals
        self.size = len(names)
        self._index: dict[bytes, int] | None = None  # the row of each name, made when first needed

    def rows(self) -> tuple[Integers, Array]:
        """Return the names and totals of all rows, which never change afterwards."""
        return self.names[: self.size], self.totals[: self.size].copy()

    def added(self, names: Integers, amounts: Array) -> tuple[Integers, Array]:
        """Return the rows of these names, and their totals with the amounts added one after the other."""
        first, group = group_rows(names)
        rows = self._find(names[first])
        totals = self.totals[rows]
        order = np.argsort(group, kind="stable")
        times = np.bincount(group, minlength=len(rows))
        start = np.cumsum(times) - times
        for count in np.unique(times):  # rows that appear equally often are added up together
            those = np.flatnonzero(times == count)
            steps = amounts[order[start[those] + np.arange(count)[:, None]]]
            partial = np.add.accumulate(np.concatenate([totals[None, those, 0], steps]))
            _, lost = two_sum(partial[:-1], steps)
            totals[those, 0] = partial[-1]
            totals[those, 1] = np.add.accumulate(np.concatenate([totals[None, those, 1], lost]))[-1]
        return rows, totals

    def _find(self, names: Integers) -> Integers:
        """Return the row of each name, making those that are new."""
        index = self._index
        self._index = None  # if interrupted, the index is made again
        if index is None:
            index = {name: row for row, name in enumerate(_as_bytes(self.names[: self.size]))}
        rows = np.array([index.setdefault(name, len(index)) for name in _as_bytes(names)], np.int64)
        size = len(index)
        new = rows >= self.size
        if size > len(self.totals):  # double, so that rows cost O(1) each
            room = max(2 * self.size, size)
            self.names, self.totals = _longer(self.names, room), _longer(self.totals, room)
        self.names[rows[new]] = names[new]
        self.size = size
        self._index = index
        return rows


def _as_bytes(names: Integers) -> list[bytes]:
    raw = names.tobytes()
    width = 8 * names.shape[1]
    return [raw[i : i + width] for i in range(0, len(raw), width)]


def _longer(rows: NDArray[Any], room: int) -> NDArray[Any]:
    """Return the rows, followed by zeros up to `room` of them."""
    return np.concatenate([rows, np.zeros((room - len(rows), *rows.shape[1:]), rows.dtype)])
