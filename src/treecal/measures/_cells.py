"""Rows in cells: bins of equal width or equal mass, of the most likely class, of one class or of every class.

Bins of equal width are those of audits, in all their engines, and of reliability diagrams: bin `k` of `bins` holds a
probability `p` if `k/bins <= p < (k + 1)/bins`, where the edges are the floats that the divisions give; the last bin
holds 1 as well. So 0.29 lies in bin 29 of 100, though `0.29 * 100` is less than 29.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.exceptions import ParameterError
from treecal.measures._log import sum_by


def bin_edges(bins: int) -> Array:
    """Return the edges, from 0 to 1.

    Examples
    --------
    >>> bin_edges(10)[3] == 0.3, np.linspace(0, 1, 11)[3] == 0.3
    (np.True_, np.False_)
    """
    return np.arange(bins + 1) / bins


MOST_BINS = 1_000_000
"""With more, forecasts hardly share a bin, and the counts take memory."""


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


View = Literal["top", "classes"] | int
Kind = Literal["mass", "width"]


class CellSums(NamedTuple):
    """For each chunk of rows and each cell: its weight, and the sums of outcomes and of forecasts, `(chunks, c)`."""

    weight: Array
    outcome: Array
    forecast: Array


class Cells:
    """The cell of each row in each column of a view; a column is the most likely class, or a class.

    Attributes
    ----------
    columns
        Number of columns: an error is the mean over them.
    count
        Number of cells, of all columns together.
    rows
        The number of rows in each cell.
    """

    def __init__(self, forecasts: Array, weights: Array, view: View, bins: int, kind: Kind) -> None:
        self._bins = whole_number("bins", bins, least=1, most=MOST_BINS)
        if kind not in ("mass", "width"):
            raise ParameterError.expected("kind", kind, "'mass' or 'width'")
        n, classes = forecasts.shape
        self._forecasts = forecasts
        self._weights = weights
        self._every = view == "classes"
        self._label: Integers | int = 0  # the class of each row whose probability and outcome are compared
        if view == "classes":
            self._probabilities = list(forecasts.T)
        elif view == "top":
            self._label = np.argmax(forecasts, axis=1)
            self._probabilities = [forecasts[np.arange(n), self._label]]
        elif isinstance(view, int) and not isinstance(view, bool) and 0 <= view < classes:
            self._label = view
            self._probabilities = [forecasts[:, view]]
        else:
            raise ParameterError.expected("view", view, f"'top', 'classes' or a class from 0 to {classes - 1}")
        self.columns = len(self._probabilities)
        self.count = self.columns * self._bins
        self._cells = np.empty((n, self.columns), np.int64)
        for j, p in enumerate(self._probabilities):
            own = bin_of(np.clip(p, 0, 1), self._bins) if kind == "width" else _by_mass(p, weights, self._bins)
            self._cells[:, j] = own + j * self._bins
        self.rows = np.bincount(self._cells.ravel(), minlength=self.count)
        self._fixed: tuple[Array, Array] | None = None
        self._fixed_squares: tuple[Array, Array] | None = None

    def sums(self, y: Integers, chunk: Integers, chunks: int) -> CellSums:
        """Return the sums of each chunk."""
        size = chunks * self.count
        if chunks == 1:  # once for all, since outcomes are drawn again and again
            self._fixed = self._fixed or self._without_outcomes(chunk, size)
            weight, forecast = self._fixed
        else:
            weight, forecast = self._without_outcomes(chunk, size)
        right, hits, _ = self._right(y)
        outcome = sum_by(chunk * self.count + right, hits, size)
        shape = (chunks, self.count)
        return CellSums(weight.reshape(shape), outcome.reshape(shape), forecast.reshape(shape))

    def squares(self, y: Integers) -> tuple[Array, Array, Array]:
        """Return, for each cell, the sums over rows of `w²`, of `(w·(o − p))²` and of `(w·o)²`, o the outcome."""
        if self._fixed_squares is None:
            weight = np.zeros(self.count)
            forecast = np.zeros(self.count)
            for j, p in enumerate(self._probabilities):
                at = self._cells[:, j]
                square = self._weights**2
                weight += sum_by(at, square, self.count)
                forecast += sum_by(at, square * p**2, self.count)
            self._fixed_squares = weight, forecast
        weight, forecast = self._fixed_squares
        right, hits, p = self._right(y)
        square = hits**2
        gap = forecast + sum_by(right, square * (1 - 2 * p), self.count)
        return weight, gap, sum_by(right, square, self.count)

    def _right(self, y: Integers) -> tuple[Integers, Array, Array]:
        """Return the one cell of each row that its outcome may count in, how much, and the probability there."""
        rows = np.arange(len(y))
        if self._every:
            return self._cells[rows, y], self._weights, self._forecasts[rows, y]
        return self._cells[:, 0], self._weights * (y == self._label), self._probabilities[0]

    def _without_outcomes(self, chunk: Integers, size: int) -> tuple[Array, Array]:
        weight = np.zeros(size)
        forecast = np.zeros(size)
        for j, p in enumerate(self._probabilities):
            at = chunk * self.count + self._cells[:, j]
            weight += sum_by(at, self._weights, size)
            forecast += sum_by(at, self._weights * p, size)
        return weight, forecast


def _by_mass(p: Array, weights: Array, bins: int) -> Integers:
    """Return the bin of each probability, bins of nearly equal weight; equal probabilities share one."""
    order = np.argsort(p, kind="stable")
    total = np.cumsum(weights[order])
    # A cut is the first probability at which the weight below it reaches k/bins of all.
    cuts = np.searchsorted(total, total[-1] * np.arange(1, bins) / bins * (1 - 1e-12))
    edges = np.unique(p[order[np.minimum(cuts + 1, len(p) - 1)]])
    found: Integers = np.searchsorted(edges, p, side="right")
    return found
