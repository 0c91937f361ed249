"""A measure as sums over rows and what is read from them: so a bootstrap resamples sums, not rows."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from treecal._typing import Array, Integers


class Parts(Protocol):
    """A measure of given forecasts and weights, that depends on the outcomes through sums over rows only.

    Attributes
    ----------
    bounds
        The least and the largest value there can be.
    debiased
        Whether `value` has no bias to first order, though what `read` says may have one.
    """

    bounds: tuple[float, float]
    debiased: bool

    def value(self, y: Integers) -> float:
        """Return the measure."""

    def sums(self, y: Integers, chunk: Integers, chunks: int) -> Array:
        """Return the sums of the rows of each chunk, `(chunks, s)`."""

    def read(self, sums: Array) -> Array:
        """Return the measure, or its plain version, from sums over all rows, `(r, s)`: one value for each."""


def sum_by(group: Integers, values: Array, groups: int = 0) -> Array:
    """Return the sum of the values of each group."""
    found: Array = np.bincount(group, values, groups)  # type: ignore[assignment] # floats, since values are
    return found


def whole(parts: Parts, y: Integers) -> float:
    """Return what is read from the sums of all rows."""
    return float(parts.read(parts.sums(y, np.zeros(len(y), np.int64), 1))[0])
