"""The arrays of the package, float64 numbers and int64 integers, and what its states are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Outcomes = NDArray[Any]
"""Rows `(n, d)` of float64, or `(n,)` classes, which stand for the corners of a simplex."""

Saved = dict[str, Any]
"""A state: arrays, JSON values, and dictionaries of them, by name."""
Changes = dict[str, Any]
"""The attributes that differ afterwards, by name."""
