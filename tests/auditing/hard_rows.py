"""Rows on the edge of what is valid: every engine must agree with this table about each of them."""

from __future__ import annotations

import math

CLASSES = ["a", "b", "it's"]
TOLERANCE = 1e-6

Row = tuple[float | None, float | None, float | None, str | None]

VALID: list[Row] = [
    (0.2, 0.3, 0.5, "a"),
    (1.0, 0.0, 0.0, "it's"),
    (-0.0, 1.0, -0.0, "b"),
    (0.5, 0.5, 1.4e-6, "a"),
    (0.5, 0.5 - 1.4e-6, 0.0, "a"),
    (1 + 5e-7, 0.0, 0.0, "a"),
    (5e-324, 1.0, 0.0, "b"),
    (1 / 3, 1 / 3, 1 / 3, "b"),
    (-5e-324, 0.5, 0.5, "a"),
    (0.5, 0.5, -1e-12, "b"),
    (-1e-12, 1.000000000001, 0.0, "b"),
    (-3e-7, 0.5 + 6e-7, 0.5 - 3e-7, "a"),
]
INVALID: list[Row] = [
    (0.2, 0.3, 0.4, "a"),
    (0.2, 0.3, 0.6, "a"),
    (0.5, 0.5, 1.6e-6, "a"),
    (0.5, 0.5 - 1.6e-6, 0.0, "a"),
    (-0.25, 0.5, 0.75, "a"),
    (-9e-7, 1 + 9e-7, 0.0, "b"),
    (-1.6e-6, 0.5, 0.5, "a"),
    (1.5, 0.0, -0.5, "b"),
    (math.nan, 0.5, 0.5, "a"),
    (0.5, 0.5, math.nan, "a"),
    (math.inf, 0.0, 0.0, "a"),
    (math.inf, -math.inf, 1.0, "a"),
    (1e308, 1e308, 0.0, "a"),
    (None, 0.5, 0.5, "a"),
    (0.5, 0.5, None, "b"),
    (None, None, None, None),
    (0.5, 0.5, 0.0, None),
    (0.5, 0.5, 0.0, "c"),
    (0.5, 0.5, 0.0, ""),
    (0.5, 0.5, 0.0, "A"),
]
ROWS = [row for pair in zip(INVALID, [*VALID, *VALID, *VALID], strict=False) for row in pair]
"""All of them, mixed."""

# Without any tolerance the order of adding decides: from left to right, the first sum is 1 and the second is not.
ADDED_FROM_THE_LEFT: list[tuple[Row, bool]] = [((0.06, 0.08, 0.86, "a"), True), ((0.06, 0.86, 0.08, "a"), False)]


def is_valid(row: Row) -> bool:
    """What the table says of a row."""
    return any(row == other for other in VALID)
