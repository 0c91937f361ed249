"""Sample weights of an audit as whole numbers, so that their sums depend on no order, chunk or engine.

Each weight is multiplied by one power of two and rounded down. The power depends only on the number of weights and the
largest: all together stay below 2^61 and each below 2^53. So weights that are whole numbers stay exact (up to 2^60 in
all), and any other loses less than `largest * max(rows, 128) / 2^59`.
"""

from __future__ import annotations

import math

import numpy as np

from treecal._typing import Array, Integers

_TOTAL, _EACH = 61, 53


def scale_of(rows: int, largest: float) -> float:
    """Return the power of two, for so many weights above 0.

    Examples
    --------
    >>> scale_of(1000, 3.0) == 2.0 ** 49
    True
    """
    return math.ldexp(1.0, min(_EACH, _TOTAL - rows.bit_length()) - math.frexp(largest)[1])


def whole_weights(weights: Array, scale: float) -> Integers:
    """Return valid weights as whole numbers."""
    return np.floor(weights * scale).astype(np.int64)


def whole_sql(scale: float) -> str:
    """Return SQL for the same, of a column `w`, for DuckDB and Spark."""
    return f"CAST(FLOOR({_scaled(scale)}) AS BIGINT)"


def counts_sql(scale: float) -> str:
    """Return SQL for whether it is above 0: rows of weight 0 are read and checked, and then left out."""
    return f"{_scaled(scale)} >= 1"


def _scaled(scale: float) -> str:
    return f"w * CAST('{scale!r}' AS DOUBLE)"
