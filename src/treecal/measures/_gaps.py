"""Measures without bins, from sums by distinct forecast: the smooth calibration error, and ATB."""

from __future__ import annotations

import heapq
import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.exceptions import ParameterError
from treecal.measures._levels import Law, Square, law_of
from treecal.measures._log import Parts, measured, read_log, sum_by


@dataclass(frozen=True, eq=False)
class GapSums:
    """For every distinct probability of a class: the weight of its rows, and of those whose outcome is the class.

    Sums of two parts of a log add up to those of the whole, exactly if weights are whole numbers; rounded forecasts
    keep them short.

    Attributes
    ----------
    points
        The distinct probabilities, in order, `(m,)`.
    weight, hits
        The two sums, `(m,)`.

    Examples
    --------
    >>> p, y = [0.25, 0.5, 0.75, 0.25], [0, 1, 1, 1]
    >>> parts = GapSums.of(p[:2], y[:2]) + GapSums.of(p[2:], y[2:])
    >>> parts.weight, parts.atb() == atb(p, y)
    (array([2., 1., 1.]), True)
    """

    points: Array
    weight: Array
    hits: Array

    @classmethod
    def of(
        cls, P: ArrayLike, y: ArrayLike, *, view: int = 1, decimals: int | None = None, weights: ArrayLike | None = None
    ) -> GapSums:
        """Return the sums of some rows.

        Parameters
        ----------
        P, y, weights
            As in `brier`.
        view
            The class.
        decimals
            Round forecasts to this many decimals.
        """
        log = read_log(P, y, weights)
        view = whole_number("view", view, least=0, most=log.forecasts.shape[1] - 1)
        p = np.clip(log.forecasts[:, view], 0, 1)
        points, at = np.unique(p if decimals is None else np.round(p, decimals), return_inverse=True)
        return cls(points, sum_by(at, log.weights), sum_by(at, log.weights * (log.outcomes == view)))

    def __add__(self, other: GapSums) -> GapSums:
        points, at = np.unique(np.concatenate([self.points, other.points]), return_inverse=True)
        weight = sum_by(at, np.concatenate([self.weight, other.weight]))
        return GapSums(points, weight, sum_by(at, np.concatenate([self.hits, other.hits])))

    def atb(self) -> float:
        """Return the averaged two-bin error of these rows: see `atb`."""
        gap = (self.points * self.weight - self.hits) / self.weight.sum()
        return float(_two_bins(self.points, gap[None])[0])

    def smooth(self) -> float:
        """Return the smooth calibration error of these rows: see `smooth_calibration_error`."""
        points = self.points
        gap = (self.hits - self.points * self.weight) / self.weight.sum()
        if len(points) > _FINE:  # a Lipschitz function changes by at most half a step
            points, at = np.unique(np.rint(points * _FINE) / _FINE, return_inverse=True)
            gap = sum_by(at, gap)
        return _lipschitz(points, gap)


def atb(P: ArrayLike, y: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Return the averaged two-bin calibration error, which is least in expectation for the truth.

    For two classes, with gaps `g = p − y` of the rows,
    `∫₀¹ [(Σ_{p<q} g)² + (Σ_{p≥q} g)²] dq / n² = Σ_ij g_i·g_j·(1 − |p_i − p_j|) / n²`:
    the squared errors of the two bins that a threshold makes, on average over thresholds. Outcomes that are
    independent with chances μ have the expectation `[Σ μ(1 − μ) + Σ_ij (p_i − μ_i)(p_j − μ_j)(1 − |p_i − p_j|)] / n²`:
    the first sum does not depend on the forecasts, and the second is at least 0, and 0 for `p = μ`. So nobody gains
    by a forecast other than the truth, which is false of `ece`. (Weighted rows have `w·g` for g, and with unequal
    weights this holds too.) For more classes: the mean over classes.

    Its root is on the scale of a gap. It takes a sort, and `GapSums` adds it up over parts of a log.

    Parameters
    ----------
    P, y, weights
        As in `brier`.

    References
    ----------
    Hartline, Hu, Wu: A perfectly truthful calibration measure. COLT 2026.

    Examples
    --------
    >>> atb([0.5, 0.5], [1, 1])
    0.25
    >>> from treecal.measures import ece
    >>> rng = np.random.default_rng(0)
    >>> logs = [(mu, (rng.random(500) < mu).astype(int)) for mu in rng.random((200, 500))]
    >>> for measure, name in (atb, "ATB"), (ece, "ECE"):
    ...     truth = np.mean([measure(mu, y) for mu, y in logs])
    ...     half = np.mean([measure(np.full(500, 0.5), y) for _, y in logs])
    ...     print(f"{name} of the truth {truth:.2g}, of always 1/2 {half:.2g}")
    ATB of the truth 0.00033, of always 1/2 0.00054
    ECE of the truth 0.039, of always 1/2 0.019
    """
    return measured(AtbParts, P, y, weights)


def smooth_calibration_error(P: ArrayLike, y: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Return the smooth calibration error: the most that a Lipschitz function of the forecast wins against it.

    For two classes, `sup_w |Σ w(p)·(y − p)| / n` over all `w: [0, 1] → [−1, 1]` with `|w(p) − w(q)| ≤ |p − q|`. It is
    continuous in the forecasts, has no bins, and bounds the distance to the nearest calibrated forecast:
    half of it is at most the lower distance to calibration, which is at most twice it (Błasiok, Gopalan, Hu and
    Nakkiran 2023). It is computed exactly, by dynamic programming over the sorted forecasts; of more than 8,192
    distinct forecasts, w sees multiples of 2⁻¹³, which changes it by at most `6.2·10⁻⁵` times the mean of `|y − p|`.
    (The kernel version, smECE, is another number of the same order.) For more classes: the mean over classes.

    Parameters
    ----------
    P, y, weights
        As in `brier`.

    Examples
    --------
    >>> smooth_calibration_error([0.75, 0.75, 0.75, 0.75], [1, 1, 0, 0])
    0.25
    >>> round(smooth_calibration_error([0.49, 0.51], [1, 0]), 4)          # nearly the same forecast
    0.0051
    """
    return measured(SmoothParts, P, y, weights)


_GRID = 256
_COARSE = 64
_FINE = 1 << 13


class _GapParts(Parts):
    """A mean over classes: exact in `value`; from gaps by forecasts rounded to a grid in `read`, which draws need."""

    def __init__(self, forecasts: Array, weights: Array) -> None:
        classes = forecasts.shape[1]
        # Of two classes, one says it all.
        self._classes = [1] if classes == 2 else list(range(classes))
        self._p = np.clip(forecasts, 0, 1)
        self._weights = weights
        self._distinct: list[tuple[Array, Integers, Array]] = []

    def value(self, y: Integers) -> float:
        if not self._distinct:  # once for all, since outcomes are drawn again and again
            for k in self._classes:
                points, at = np.unique(self._p[:, k], return_inverse=True)
                self._distinct.append((points, at, sum_by(at, self._weights)))
        each = []
        for k, (points, at, weight) in zip(self._classes, self._distinct, strict=True):
            each.append(self._of(GapSums(points, weight, sum_by(at, self._weights * (y == k)))))
        return math.fsum(each) / len(each)

    def sums(self, y: Integers, chunk: Integers, chunks: int) -> Array:
        width = _GRID + 1
        parts = [sum_by(chunk, self._weights, chunks)[:, None]]
        for k in self._classes:
            p = self._p[:, k]
            at = chunk * width + np.rint(p * _GRID).astype(np.int64)
            parts.append(sum_by(at, self._weights * (p - (y == k)), chunks * width).reshape(chunks, width))
        return np.concatenate(parts, axis=1)

    def read(self, sums: Array) -> Array:
        gaps = sums[:, 1:].reshape(len(sums), len(self._classes), _GRID + 1) / sums[:, :1, None]
        found: Array = np.mean([self._from(gaps[:, j]) for j in range(len(self._classes))], axis=0)
        return found

    @abstractmethod
    def _of(self, sums: GapSums) -> float:
        """Return the measure of one class."""

    @abstractmethod
    def _from(self, gaps: Array) -> Array:
        """Return the measure of one class from gaps on the grid, `(r, m)` to `(r,)`."""


class AtbParts(_GapParts, Square):
    """ATB as sums."""

    def _of(self, sums: GapSums) -> float:
        return sums.atb()

    def law(self, y: Integers, chunk: Integers, chunks: int, *, rows: bool) -> Law:
        """Return the law of ATB less its diagonal, which is noise and vanishes with more rows."""
        sums = self.sums(y, chunk, chunks)
        count = len(self._classes)
        share = sums[:, 0] / sums[:, 0].sum()
        total = sums[:, 0].sum()
        gaps = sums[:, 1:].reshape(chunks, count, _GRID + 1) / (total * math.sqrt(count))
        coarse = np.add.reduceat(gaps, np.arange(0, _GRID + 1, _GRID // _COARSE), axis=2)
        # The sums below and above each threshold, times the root of its share of [0, 1]: ATB is their squared length.
        below = np.cumsum(coarse, axis=2)
        parts = np.concatenate([below, below[..., -1:] - below], axis=2) / math.sqrt(_COARSE)
        parts = parts.reshape(chunks, -1)
        if rows:
            w = self._weights / total
            each = [float(w**2 @ (self._p[:, k] - (y == k)) ** 2) for k in self._classes]
            diagonal = math.fsum(each) / count
        else:
            diagonal = float(np.sum(parts**2))
        whole = parts.sum(axis=0)
        return law_of(self.value(y) - diagonal, whole, parts - share[:, None] * whole)

    def _from(self, gaps: Array) -> Array:
        return _two_bins(np.arange(_GRID + 1) / _GRID, gaps)


class SmoothParts(_GapParts):
    """The smooth calibration error as sums."""

    def _of(self, sums: GapSums) -> float:
        return sums.smooth()

    def _from(self, gaps: Array) -> Array:
        points = np.arange(_GRID + 1) / _GRID
        return np.array([_lipschitz(points, gap) for gap in gaps])


def _two_bins(points: Array, gaps: Array) -> Array:
    """Return the integral over thresholds of the squared sums of gaps below and above, `(r, m)` to `(r,)`."""
    below = np.concatenate([np.zeros((len(gaps), 1)), np.cumsum(gaps, axis=1)], axis=1)
    above = below[:, -1:] - below
    widths = np.diff(points, prepend=0.0, append=1.0)
    found: Array = (below**2 + above**2) @ widths
    return found


def _lipschitz(points: Array, gaps: Array) -> float:
    """Return `max Σ gap·w` over `|w| ≤ 1` with `|w_i − w_j| ≤ |p_i − p_j|`; points are in order.

    `f_i(w)`, the most that the first i points win with `w_i = w`, is concave and piecewise linear. Its breakpoints left
    and right of its maximum are kept in two heaps, with the drop of the slope at each. A step to the next point moves
    the left ones to the left by the distance, and the right ones to the right: two shifts.
    """
    if not np.isfinite(gaps).all():
        raise ParameterError("gaps are not finite.")
    steps = np.diff(points, prepend=points[:1]).tolist()
    # (position − shift, drop); on the left the negative position, so that both move by the shift, and pop the nearest.
    left: list[tuple[float, float]] = []
    right: list[tuple[float, float]] = []
    shift = 0.0
    peaks = []
    for step, gap in zip(steps, gaps.tolist(), strict=True):
        shift += step
        rest = abs(gap)
        # A slope of gap is added: the maximum moves over breakpoints until their drops have used it up. Past the last
        # one, the end of [−1, 1] is a breakpoint without limit; one that has been moved out counts as the end.
        source, target = (right, left) if gap > 0 else (left, right)
        while rest > 0:
            if source:
                at, drop = heapq.heappop(source)
                at = min(at + shift, 1.0)
                if drop > rest:
                    heapq.heappush(source, (at - shift, drop - rest))
                    drop = rest
            else:
                at = 1.0
                drop = rest
            heapq.heappush(target, (-at - shift, drop))
            rest -= drop
        peaks.append(max(-(left[0][0] + shift), -1.0) if left else -1.0)
    # The best function, backwards: as near to each peak as the next value allows.
    value = peaks[-1]
    wins = []
    for i in range(len(peaks) - 1, -1, -1):
        wins.append(value * float(gaps[i]))
        if i:
            value = min(max(peaks[i - 1], value - steps[i]), value + steps[i])
    return max(math.fsum(wins), 0.0)
