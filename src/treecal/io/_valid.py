"""What a valid row is: a known label, probabilities that sum to 1 within a tolerance, and a weight, if any.

The rule for probabilities is `treecal.geometry.valid_forecasts`; here it is as SQL, for DuckDB and Spark. Both add from
left to right, so they agree about every row; missing numbers (NaN, NULL) satisfy neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treecal._typing import Array
from treecal._validate import HEAVIEST


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
    """Return SQL for a valid row: columns `p0`, `p1`, … and perhaps `w`, and that there is a `label`.

    Examples
    --------
    >>> valid_sql(classes=2, tolerance=1e-6)
    'label IS NOT NULL AND p0 + p1 >= 0.999999e0 AND ABS(p0) + ABS(p1) <= 1.000001e0'
    """
    names = [f"p{k}" for k in range(classes)]
    least = f"{' + '.join(names)} >= {1 - tolerance!r}e0"
    most = f"{' + '.join(f'ABS({name})' for name in names)} <= {1 + tolerance!r}e0"  # of NaN this is false
    own = [valid_weight_sql()] if weight else []
    return " AND ".join(["label IS NOT NULL", least, most, *own])
