"""Bins of equal width from 0 to 1: the rule of audits, in all their engines, and of reliability diagrams.

Bin `k` of `bins` holds a probability `p` if `k/bins <= p < (k + 1)/bins`, where the edges are the floats that the
divisions give; the last bin holds 1 as well. So 0.29 lies in bin 29 of 100, though `0.29 * 100` is less than 29.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treecal._typing import Array


def bin_edges(bins: int) -> Array:
    """Return the edges, from 0 to 1.

    Examples
    --------
    >>> bin_edges(10)[3] == 0.3, np.linspace(0, 1, 11)[3] == 0.3
    (np.True_, np.False_)
    """
    return np.arange(bins + 1) / bins


MOST_BINS = 1_000_000
"""More are no bins: forecasts hardly share one, and their counts take memory."""


def bin_of(p: Any, bins: float) -> Any:
    """Return the bin of each probability, as a float: for arrays, and for a number inside a compiled kernel.

    Examples
    --------
    >>> bin_of(np.array([0.0, 0.29, np.nextafter(0.29, 0), 1.0]), 100)
    array([ 0., 29., 28., 99.])
    """
    # The product is rounded, and so is each edge: the guess may be one too low or one too high.
    guess = np.floor(p * bins)
    return np.minimum(guess + (p >= (guess + 1) / bins) - (p < guess / bins), bins - 1)


def bin_sql(p: str, bins: int) -> str:
    """Return SQL for `bin_of`, for DuckDB and Spark."""
    guess = f"FLOOR({p} * {bins}e0)"
    count = f"{bins}e0"
    up = f"CASE WHEN {p} >= ({guess} + 1) / {count} THEN 1 ELSE 0 END"
    down = f"CASE WHEN {p} < {guess} / {count} THEN 1 ELSE 0 END"
    return f"CAST(LEAST({guess} + {up} - {down}, {bins - 1}) AS BIGINT)"
