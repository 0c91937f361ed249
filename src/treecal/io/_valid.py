"""What a valid row is: a known label, probabilities from 0 that sum to 1 within a tolerance, and a weight, if any.

The rules for probabilities and weights stand here twice, side by side: for NumPy, and as SQL for DuckDB and Spark. Both
add from left to right, so they agree about every row; missing numbers (NaN, NULL) satisfy neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treecal._typing import Array
from treecal._validate import HEAVIEST


def valid_forecasts(p: Array, tolerance: float) -> Any:
    """Return which columns of `p`, of shape `(d, n)`, are probabilities of the `d` classes.

    Examples
    --------
    >>> valid_forecasts(np.array([[0.2, -0.5, np.nan, 0.5], [0.8, 1.5, 1.0, 0.6]]), 1e-6)
    array([ True, False, False, False])
    """
    total = np.zeros(p.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):
        for row in p:  # `np.add.reduce` adds pairwise where there is a single column
            total += row
        return (np.abs(total - 1) <= tolerance) & (np.minimum.reduce(p, axis=0) >= 0)


def valid_weights(w: Array) -> Any:
    """Return which of these are weights: 0, or neither too large nor too small to be added up.

    Examples
    --------
    >>> valid_weights(np.array([0.0, 0.5, -1.0, np.nan, np.inf]))
    array([ True,  True, False, False, False])
    """
    with np.errstate(invalid="ignore"):
        return (w == 0) | ((w >= 1 / HEAVIEST) & (w <= HEAVIEST))


def valid_weight_sql(*, positive: bool = False) -> str:
    """Return SQL for the same, on a column `w`; or for those above 0."""
    counted = f"w >= {1 / HEAVIEST!r} AND w <= {HEAVIEST!r}"
    return counted if positive else f"(w = 0 OR ({counted}))"


def valid_sql(*, classes: int, tolerance: float, weight: bool = False) -> str:
    """Return SQL for the same, on columns `p0`, `p1`, … and perhaps `w`, and that there is a `label`.

    Examples
    --------
    >>> valid_sql(classes=2, tolerance=1e-6)
    'label IS NOT NULL AND p0 >= 0 AND p1 >= 0 AND ABS(p0 + p1 - 1) <= 1e-06'
    """
    names = [f"p{k}" for k in range(classes)]
    total = f"ABS({' + '.join(names)} - 1) <= {tolerance!r}"
    own = [valid_weight_sql()] if weight else []
    return " AND ".join(["label IS NOT NULL", *(f"{name} >= 0" for name in names), total, *own])
