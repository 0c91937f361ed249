"""Exact sums, and rows grouped by exact value."""

from __future__ import annotations

import numpy as np

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
