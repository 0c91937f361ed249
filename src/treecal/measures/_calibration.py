"""Calibration errors of binned forecasts, and resolution."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.exceptions import ParameterError
from treecal.measures._cells import Cells, Kind, View
from treecal.measures._levels import Law, Square, law_of
from treecal.measures._log import Parts, measured
from treecal.measures._reliability import Bins, law_of_bins


def ece(
    P: ArrayLike,
    y: ArrayLike,
    *,
    view: View = "top",
    bins: int = 15,
    kind: Kind = "width",
    weights: ArrayLike | None = None,
) -> float:
    """Return the expected calibration error as everyone computes it: the mean over rows of the gap of their bin.

    `Σ_b w_b·|ō_b − p̄_b|`, with the share `w_b` of the rows in bin b, its mean outcome and its mean forecast. Noise
    counts as error: perfect forecasts have about `√(2/π)·Σ_b √(w_b·σ_b²/n)` and not 0. `debiased_ece` has not.

    Parameters
    ----------
    P
        Forecasts, `(n, d)`; or the probability of class 1 of two, `(n,)`.
    y
        The class of each outcome, `(n,)`.
    view
        `"top"`: the most likely class of each row, and whether it was right. `"classes"`: every class separately, and
        the mean over them. A number: that class.
    bins
        Number of bins.
    kind
        Bins of equal `"width"`, as in audits; or of equal `"mass"`, about the same number of rows in each.
    weights
        The weight of each row; all 1 by default.

    Examples
    --------
    >>> ece([0.75, 0.75, 0.75, 0.75], [1, 1, 0, 0], view=1)
    0.25
    """
    return measured(EceParts, P, y, weights, view, bins, kind)


def debiased_ece(
    P: ArrayLike,
    y: ArrayLike,
    *,
    view: View = "top",
    bins: int = 15,
    kind: Kind = "mass",
    squared: bool = False,
    weights: ArrayLike | None = None,
) -> float:
    """Return the root mean square gap of the bins, without what noise adds to it.

    With the gaps `g_i = o_i − p_i` of the rows of a bin, `(Σ_{i≠j} g_i·g_j)/(n_b(n_b − 1))` is the square of the bin's
    true gap on average: two different rows have independent noise. (So it is a U-statistic, unbiased for whatever
    bins are fixed by the forecasts. Where all forecasts of a bin are equal it is the estimate of Bröcker 2012, Ferro
    and Fricker 2012, and Kumar, Liang and Ma 2019. The absolute gap of `ece` has no unbiased estimate.) The
    mean of it over rows is unbiased, may be negative, and is returned with `squared=True`; otherwise its root is,
    or 0. By Jensen's inequality the root is at least the ECE of infinitely many rows.

    A bin of one row says nothing about its gap and counts as 0; bins of equal mass avoid such bins.

    Parameters
    ----------
    P, y, view, bins, weights
        As in `ece`.
    kind
        Bins of equal `"mass"` or `"width"`.
    squared
        Return the unbiased square.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> p = rng.random(2000)
    >>> y = (rng.random(2000) < p).astype(int)
    >>> round(ece(p, y, view=1), 3), round(debiased_ece(p, y, view=1), 3)      # perfect forecasts
    (0.026, 0.011)
    >>> wrong = p**2 / (p**2 + (1 - p) ** 2)                                   # too sure
    >>> round(ece(wrong, y, view=1), 3), round(debiased_ece(wrong, y, view=1), 3)
    (0.103, 0.109)
    """
    return measured(SquareParts, P, y, weights, view, bins, kind, squared)


def mce(
    P: ArrayLike,
    y: ArrayLike,
    *,
    view: View = "top",
    bins: int = 15,
    kind: Kind = "width",
    least: int = 30,
    weights: ArrayLike | None = None,
) -> float:
    """Return the maximum calibration error: the largest gap of a bin with enough rows.

    Without a least number of rows, the largest gap is that of a bin with a row or two, and says nothing.

    Parameters
    ----------
    P, y, view, bins, kind, weights
        As in `ece`.
    least
        Bins with fewer rows are left out; if all have fewer, that is an error.

    Examples
    --------
    >>> p, y = [0.8] * 40 + [0.3], [1] * 30 + [0] * 10 + [1]
    >>> round(mce(p, y, view=1), 2), round(mce(p, y, view=1, least=1), 2)
    (0.05, 0.7)
    """
    return measured(MceParts, P, y, weights, view, bins, kind, least)


def resolution(
    P: ArrayLike, y: ArrayLike, *, bins: int = 15, kind: Kind = "mass", weights: ArrayLike | None = None
) -> float:
    """Return how far the mean outcomes of the bins lie from the mean of all, without what noise adds to it.

    `Σ_k Σ_b w_kb·(ō_kb − ō_k)²` over classes k and the bins b of their probabilities; the squares are estimated from
    pairs of different rows, as in `debiased_ece`. A constant forecast has 0; the most there can be is the Brier
    score of climatology. Where forecasts do not vary within bins, the Brier score is calibration (the square of
    `debiased_ece`, summed over classes) − resolution + uncertainty, without bias (Ferro and Fricker 2012).

    Parameters
    ----------
    P, y, bins, weights
        As in `ece`.
    kind
        Bins of equal `"mass"` or `"width"`.

    Examples
    --------
    >>> resolution([0.9, 0.9, 0.1, 0.1] * 50, [1, 1, 0, 0] * 50)
    0.5025...
    """
    return measured(ResolutionParts, P, y, weights, bins, kind)


class EceParts(Parts):
    """Plain errors: the weight and the summed gap of each cell."""

    def __init__(
        self, forecasts: Array, weights: Array, view: View = "top", bins: int = 15, kind: Kind = "width"
    ) -> None:
        self.cells = Cells(forecasts, weights, view, bins, kind)

    def sums(self, y: Integers, chunk: Integers, chunks: int) -> Array:
        weight, outcome, forecast = self.cells.sums(y, chunk, chunks)
        return np.concatenate([weight, outcome - forecast], axis=1)

    def read(self, sums: Array) -> Array:
        weight, gap = np.split(sums, 2, axis=-1)
        found: Array = np.abs(gap).sum(axis=-1) / weight.sum(axis=-1)
        return found


class MceParts(EceParts):
    """The largest gap of the cells with enough rows."""

    def __init__(
        self,
        forecasts: Array,
        weights: Array,
        view: View = "top",
        bins: int = 15,
        kind: Kind = "width",
        least: int = 30,
    ) -> None:
        super().__init__(forecasts, weights, view, bins, kind)
        self._thick = self.cells.rows >= whole_number("least", least, least=1)
        if not self._thick.any():
            raise ParameterError(
                f"no bin has {least} rows; the fullest of {self.cells.count} has {self.cells.rows.max()}.",
                hint="fewer bins, or kind='mass'.",
            )

    def read(self, sums: Array) -> Array:
        weight, gap = np.split(sums, 2, axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Array = np.where(weight > 0, np.abs(gap) / weight, 0)[..., self._thick].max(axis=-1)
        return found


class SquareParts(EceParts, Square):
    """Mean squared gaps: the weight and the summed gap of each cell."""

    debiased = True

    def __init__(
        self,
        forecasts: Array,
        weights: Array,
        view: View = "top",
        bins: int = 15,
        kind: Kind = "mass",
        squared: bool = False,
    ) -> None:
        super().__init__(forecasts, weights, view, bins, kind)
        self.squared = squared
        self._worth = float(weights.sum() / (weights @ weights))  # Kish

    def value(self, y: Integers) -> float:
        square = self._square(y)
        return square if self.squared else math.sqrt(max(square, 0.0))

    def _square(self, y: Integers) -> float:
        weight, outcome, forecast = (s[0] for s in self.cells.sums(y, np.zeros_like(y), 1))
        twice, gaps, _ = self.cells.squares(y)
        return _unbiased(weight, twice, outcome - forecast, gaps) / float(weight.sum())

    def read(self, sums: Array) -> Array:
        weight, gap = np.split(sums, 2, axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            square: Array = np.where(weight > 0, gap**2 / weight, 0).sum(axis=-1) / weight.sum(axis=-1)
        return square if self.squared else np.sqrt(square)

    def law(self, y: Integers, chunk: Integers, chunks: int, *, rows: bool) -> Law:
        """Return the law of the mean squared gap: of independent rows from their bins, otherwise from the chunks."""
        if rows:
            return law_of_bins(self._bins(y))._replace(value=self._square(y))
        weight, gap = np.split(self.sums(y, chunk, chunks), 2, axis=1)
        used = weight.any(axis=0)
        weight = weight[:, used]
        gap = gap[:, used]
        whole = weight.sum(axis=0)
        total = gap.sum(axis=0)
        twice = (weight**2).sum(axis=0)
        everything = float(whole.sum())
        value = _unbiased(whole, twice, total, (gap**2).sum(axis=0)) / everything
        mean = total / whole
        root = np.sqrt(whole / everything)
        added = (gap - mean * weight) * (root / whole)
        # A cell of n chunks lost one of them to its mean.
        added *= np.sqrt(whole**2 / np.maximum(whole**2 - twice, whole**2 / chunks))
        # A chunk moves the shares of the cells, too.
        moved = (weight @ mean**2 - weight.sum(axis=1) * float(np.sum((root * mean) ** 2))) / everything
        return law_of(value, root * mean, added, moved)

    def _bins(self, y: Integers) -> list[Bins]:
        """Return the cells of each column as bins."""
        sums = self.cells.sums(y, np.zeros_like(y), 1)
        weight, outcome, forecast = (part[0].reshape(self.cells.columns, -1) for part in sums)
        with np.errstate(invalid="ignore"):
            outcome, forecast = outcome / weight, forecast / weight
        return [Bins(*each, self._worth) for each in zip(forecast, weight, outcome, strict=True)]


class ResolutionParts(Parts):
    """Resolution: the weight and the summed outcome of each cell."""

    debiased = True

    def __init__(self, forecasts: Array, weights: Array, bins: int = 15, kind: Kind = "mass") -> None:
        self._weights = weights
        self._cells = Cells(forecasts, weights, "classes", bins, kind)

    def value(self, y: Integers) -> float:
        columns = self._cells.columns
        weight, outcome, _ = (s[0] for s in self._cells.sums(y, np.zeros_like(y), 1))
        twice, _, hits = self._cells.squares(y)
        within = _unbiased(weight, twice, outcome, hits)
        per = [part.reshape(columns, -1).sum(axis=1) for part in (weight, twice, outcome, hits)]
        return columns * (within - _unbiased(*per)) / float(weight.sum())

    def sums(self, y: Integers, chunk: Integers, chunks: int) -> Array:
        weight, outcome, _ = self._cells.sums(y, chunk, chunks)
        return np.concatenate([weight, outcome], axis=1)

    def read(self, sums: Array) -> Array:
        columns = self._cells.columns
        weight, outcome = (part.reshape(*part.shape[:-1], columns, -1) for part in np.split(sums, 2, axis=-1))
        with np.errstate(invalid="ignore", divide="ignore"):
            within = np.where(weight > 0, outcome**2 / weight, 0).sum(axis=(-2, -1))
        total = weight.sum(axis=-1)
        right = outcome.sum(axis=-1)
        found: Array = (within - (right**2 / total).sum(axis=-1)) / total[..., 0]
        return found


def _unbiased(weight: Array, twice: Array, total: Array, squares: Array) -> float:
    """Return `Σ weight·square`, the square of each cell's mean estimated from pairs of different rows."""
    pairs = weight**2 - twice
    enough = pairs > 1e-12 * weight**2
    return math.fsum(weight[enough] * (total[enough] ** 2 - squares[enough]) / pairs[enough])
