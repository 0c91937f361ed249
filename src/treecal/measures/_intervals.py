"""Intervals for measures, and what chance alone would show."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal._validate import finite_array, fraction, whole_number
from treecal.exceptions import ParameterError
from treecal.measures._calibration import (
    EceParts,
    MceParts,
    ResolutionParts,
    SquareParts,
    debiased_ece,
    ece,
    mce,
    resolution,
)
from treecal.measures._gaps import AtbParts, SmoothParts, atb, smooth_calibration_error
from treecal.measures._laws import Forecasts, read_laws, read_outcomes, says_numbers
from treecal.measures._levels import (
    AT_ZERO,
    IMPOSSIBLE,
    Chance,
    Interval,
    Square,
    square_interval,
    unseen,
    with_rare,
)
from treecal.measures._log import Log, Parts, read_forecasts, read_log, read_weights
from treecal.measures._payoff import PayoffParts, payoff_loss
from treecal.measures._scores import ScoreParts, SkillParts, accuracy, brier, log_score, skill

Measure = Callable[..., float]
"""A function of forecasts, outcomes and `weights=`."""

_FROM_SUMS: dict[Measure, Callable[..., Parts]] = {
    accuracy: partial(ScoreParts, score="accuracy"),
    atb: AtbParts,
    brier: partial(ScoreParts, score="brier"),
    debiased_ece: SquareParts,
    ece: EceParts,
    log_score: partial(ScoreParts, score="log"),
    mce: MceParts,
    payoff_loss: PayoffParts,
    resolution: ResolutionParts,
    skill: SkillParts,
    smooth_calibration_error: SmoothParts,
}
_CHUNKS = 4000
_LEAST_BLOCKS = 20
_NOISY = "much of it may be noise, and then an interval can miss the truth: use debiased_ece"
_NEAR_ZERO = 0.05
_NOISE = 0.1  # share of the value that resampling adds to it: less wherever the intervals of ece and mce covered


def interval(
    measure: Measure,
    P: ArrayLike | Forecasts,
    y: ArrayLike,
    *,
    level: float = 0.9,
    blocks: int | ArrayLike | None = None,
    draws: int = 1000,
    weights: ArrayLike | None = None,
    rng: np.random.Generator,
) -> Interval:
    """Return the measure of a log with an interval for its true value: that of infinitely many rows of the kind.

    - The measures of this room are functions of sums over rows. The sums are resampled, in at most 4,000 random
      chunks of rows: 10⁶ rows take seconds. Any other function is called once for each draw, with resampled
      `weights=`.
    - *Measures without bias* (scores, resolution): the errors of the draws about their mean stand for the error of the
      measure about the truth, `[value − (q_high − mean), value − (q_low − mean)]` with quantiles q of the draws.
    - *Measures with bias* (`payoff_loss`, `skill`, `ece`, `mce`, `smooth_calibration_error`, any function): draws are
      biased twice, so the interval holds both their quantiles and the reflected ones, which remove the bias. Where
      there is no bias they agree; near 0 or a tie between actions, the interval is wider than its level asks for.
      For `ece` and `mce` of nearly calibrated forecasts it can still miss the truth, since their noise cannot be told
      from error; the note says so. `debiased_ece` has no such trouble.
    - *Squares* (`debiased_ece`, `atb`), for which resampling fails near 0: the estimate is taken as a scaled
      non-central χ², of the mean and the variance that the covariance of the sums gives, and the interval holds the
      squares under which what was seen is not unusual. Where it starts at 0 it covers more often than its level (93 to
      95 % for 90 %): no interval for a quantity at its bound can do otherwise, and the note says so. That of `atb` is
      for infinitely many rows, without the noise `Σ μ(1 − μ)/n²` that the value for a log has.
    - *Streams*: rows that depend on their neighbours need blocks, longer than the dependence reaches. `blocks=50`
      resamples stretches of 50 rows; ids resample all rows of an id together (users, days).

    Parameters
    ----------
    measure
        A measure; options are set by `functools.partial(payoff_loss, loss=loss)`.
    P, y, weights
        As in `brier`; or forecasts of numbers, as in `crps`, for scores of these.
    level
        Coverage.
    blocks
        Rows in a block, or an id for each row; by default rows are resampled one by one.
    draws
        Number of draws.
    rng
        Source of randomness.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> p = rng.random(3000)
    >>> y = (rng.random(3000) < p).astype(int)
    >>> print(interval(brier, p, y, rng=rng))                              # in truth 1/3
    0.3452, 90 % interval 0.3323 to 0.358
    >>> wrong = p**2 / (p**2 + (1 - p) ** 2)
    >>> print(interval(partial(debiased_ece, view=1), wrong, y, rng=rng))  # in truth 0.106
    0.1148, 90 % interval 0.1017 to 0.1283
    >>> print(interval(partial(debiased_ece, view=1), p, y, rng=rng))      # in truth 0
    0, 90 % interval 0 to 0.0294 (not distinguishable from 0, where an interval covers more often than its level)
    """
    level = fraction("level", level)
    if says_numbers(P):
        return _of_numbers(measure, P, y, level, blocks, draws, weights, rng)
    log = read_log(cast("ArrayLike", P), y, weights)
    chunk, chunks = _chunks(len(log.outcomes), blocks, rng)
    size = whole_number("draws", draws, least=100)
    parts = _parts(measure, log.forecasts, log.weights)
    sums = _Sums(measure, log, parts, chunk, chunks)
    value = float(measure(*log[:2], weights=log.weights)) if parts is None else parts.value(log.outcomes)
    if not math.isfinite(value):
        return Interval(value, value, value, level, "an outcome had forecast 0")
    if isinstance(parts, Square):
        low, high = square_interval(parts.law(log.outcomes, chunk, chunks, rows=blocks is None), level)
        if isinstance(parts, SquareParts) and not parts.squared:
            low = math.sqrt(low)
            high = math.sqrt(high)
        low, high = _with_unseen(sums, value, low, high, level, size, rng)
        return Interval(value, low, high, level, AT_ZERO if low <= 0 else "")
    found = sums.resampled(size, rng)
    base = sums.read(np.ones((1, chunks)))[0]
    low, high = _ends(value, base, found, (1 - level) / 2, debiased=parts is not None and parts.debiased)
    if isinstance(parts, ScoreParts):
        low, high = with_rare(value, low, high, chunks, level=level, most=parts.most)
    elif isinstance(parts, PayoffParts):
        high = parts.rare_end(value, high, log.outcomes, chunks, level, rng)
    else:
        low, high = _with_unseen(sums, value, low, high, level, size, rng)
    least, most = (-math.inf, math.inf) if parts is None else parts.bounds
    note = AT_ZERO if low <= least == 0 else ""
    if isinstance(parts, EceParts) and found.mean() - base > _NOISE * base:
        note = f"not distinguishable from 0: {_NOISY}" if note else _NOISY
    if low == high and isinstance(parts, ScoreParts):  # all rows have the same log loss, and no other is possible
        high = math.inf
        note = IMPOSSIBLE
    return Interval(value, max(low, least), max(min(high, most), least), level, note)


def chance(
    measure: Measure,
    P: ArrayLike | Forecasts,
    *,
    draws: int = 200,
    weights: ArrayLike | None = None,
    rng: np.random.Generator,
) -> Chance:
    """Return what a measure would be had the forecasts been right, by drawing outcomes from them.

    A calibration error of 0.2 on 300 rows of 9 classes may be chance alone; this tells. For forecasts that are
    distributions over points, pass the means that were announced: the outcome is drawn from the mean.

    Parameters
    ----------
    measure
        As in `interval`.
    P, weights
        As in `brier`; or forecasts of numbers, as in `crps`.
    draws
        Number of times all outcomes are drawn.
    rng
        Source of randomness.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> P = rng.dirichlet(np.ones(9), size=300)
    >>> luck = chance(ece, P, rng=rng)
    >>> round(luck.mean, 3), round(luck.quantile(0.95), 3), luck.p_value(0.2) < 0.01
    (0.052, 0.077, True)
    """
    if says_numbers(P):
        laws = read_laws(P)
        w = read_weights(weights, laws.rows)
        drawn = (laws.draw(rng) for _ in range(whole_number("draws", draws, least=1)))
        return Chance(np.sort([measure(laws, y, weights=w) for y in drawn]))
    forecasts = read_forecasts(cast("ArrayLike", P))
    w = read_weights(weights, len(forecasts))
    parts = _parts(measure, forecasts, w)
    edges = np.ascontiguousarray(np.cumsum(forecasts[:, :-1], axis=1).T)
    found = np.empty(whole_number("draws", draws, least=1))
    for i in range(len(found)):
        y = np.zeros(len(forecasts), np.int64)
        u = rng.random(len(forecasts))
        for edge in edges:
            y += u >= edge
        found[i] = parts.value(y) if parts is not None else measure(forecasts, y, weights=w)
    found.sort()
    return Chance(found)


def _of_numbers(
    measure: Measure,
    P: Any,
    y: ArrayLike,
    level: float,
    blocks: int | ArrayLike | None,
    draws: int,
    weights: ArrayLike | None,
    rng: np.random.Generator,
) -> Interval:
    """Return a mean of rows of forecasts of numbers with its interval, by resampling their weights."""
    laws, outcomes, w = read_outcomes(P, y, weights)
    chunk, chunks = _chunks(len(outcomes), blocks, rng)
    value = measure(laws, outcomes, weights=w)
    found = np.empty(whole_number("draws", draws, least=100))
    for i in range(len(found)):
        counts = np.bincount(rng.integers(chunks, size=chunks), minlength=chunks)
        found[i] = measure(laws, outcomes, weights=w * counts[chunk])
    return Interval(value, *_ends(value, value, found, (1 - level) / 2, debiased=True), level)


def _parts(measure: Measure, forecasts: Array, weights: Array) -> Parts | None:
    """Return the measure as sums, if it is one of ours."""
    options: dict[str, Any] = {}
    while isinstance(measure, partial) and not measure.args:
        bound = cast("partial[float]", measure)
        measure = bound.func
        options = bound.keywords | options
    make = _FROM_SUMS.get(measure)
    return None if make is None else make(forecasts, weights, **options)


def _chunks(n: int, blocks: int | ArrayLike | None, rng: np.random.Generator) -> tuple[Integers, int]:
    """Return the chunk of each row, rows or blocks being put together at random where there are very many."""
    if blocks is None:
        own = np.arange(n)
    elif np.ndim(blocks) == 0:
        own = np.arange(n) // whole_number("blocks", blocks, least=1)
        if own[-1] >= _CHUNKS:  # longer blocks of neighbours are blocks as well
            own = np.arange(n) // -(-n // _CHUNKS)
    else:
        ids = np.asarray(blocks)
        if ids.shape != (n,):
            raise ParameterError(f"blocks have shape {ids.shape}, expected a number, or an id for each of {n} rows.")
        own = np.unique(ids, return_inverse=True)[1]
    count = int(own.max()) + 1
    if count < _LEAST_BLOCKS:
        raise ParameterError(
            f"there are {count} {'rows' if blocks is None else 'blocks'}, expected {_LEAST_BLOCKS} or more to resample."
        )
    if count > _CHUNKS:
        return (rng.permutation(count) % _CHUNKS)[own], _CHUNKS
    return own.astype(np.int64), count


def _ends(value: float, base: float, draws: Array, tail: float, *, debiased: bool) -> tuple[float, float]:
    """Return the ends of the interval; `base` is what draws of the rows as they are would be."""
    low, high = (float(q) for q in np.quantile(draws, [tail, 1 - tail]))
    mean = float(draws.mean())
    if debiased:
        return value - (high - mean), value - (low - mean)
    return value - max(high - base, base - low), value + max(high - base, base - low)


class _Sums:
    """A measure of resampled rows, also with rows that were not seen: each with its likeliest class but the outcome.

    One of ours is read from sums over chunks of rows; any other is called with weights.
    """

    def __init__(self, measure: Measure, log: Log, parts: Parts | None, chunk: Integers, chunks: int) -> None:
        self._measure = measure
        self._log = log
        self._parts = parts
        self._chunk = chunk
        self.chunks = chunks
        self._sums = np.empty((chunks, 0)) if parts is None else parts.sums(log.outcomes, chunk, chunks)

    @cached_property
    def _others(self) -> Integers:
        left = self._log.forecasts.copy()
        left[np.arange(len(left)), self._log.outcomes] = -1
        found: Integers = left.argmax(axis=1)
        return found

    def resampled(self, draws: int, rng: np.random.Generator, unseen: Array | None = None) -> Array:
        """Return the measure of chunks that are drawn again, and of so many that were not seen."""
        at = rng.integers(self.chunks, size=(draws, self.chunks)) + self.chunks * np.arange(draws)[:, None]
        counts = np.bincount(at.ravel(), minlength=draws * self.chunks).reshape(draws, self.chunks)
        return self.read(counts.astype(np.float64), unseen)

    def read(self, counts: Array, unseen: Array | None = None) -> Array:
        """Return the measure where chunks count as often as `counts` says, `(r, chunks)`, and `(r,)` were not seen."""
        if self._parts is not None:
            sums = counts @ self._sums
            if unseen is not None:
                other = self._parts.sums(self._others, self._chunk, self.chunks).sum(axis=0)
                sums += unseen[:, None] * (other / self.chunks)
            return self._parts.read(sums)
        P, y, w = self._log
        rows = (w * count[self._chunk] for count in counts)
        if unseen is None:
            found = [self._measure(P, y, weights=own) for own in rows]
            return finite_array("the measure of a draw", found)
        P, y = np.concatenate([P, P]), np.concatenate([y, self._others])
        more = (w * (each / self.chunks) for each in unseen)
        return np.array([self._measure(P, y, weights=np.concatenate(both)) for both in zip(rows, more, strict=True)])


def _with_unseen(
    sums: _Sums, value: float, low: float, high: float, level: float, draws: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the ends of an interval, also for what is rare or was never seen.

    A share whose event occurred in k rows has the upper end of a gamma variable of k + 1 rows (Clopper and Pearson). So
    rows are resampled together with an exponential number of rows that had another outcome, if three of them could move
    the measure further than the interval reaches.
    """
    every = np.ones((1, sums.chunks))
    with np.errstate(divide="ignore"):
        far = sums.read(every, np.array([unseen(level)]))[0] - sums.read(every)[0]
        reach = max(high - value, value - low)
        if reach > 0 and not reach < abs(far) < math.inf:
            return low, high
        found = sums.resampled(draws, rng, rng.exponential(size=draws))
    ends = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    high = max(high, float(ends[1]))
    # An error of one kind that turns into one of the other has passed through 0.
    crossed = low > 0 and found.min() <= _NEAR_ZERO * high
    low = 0.0 if crossed else min(low, float(ends[0]))
    if low == high:
        high += unseen(level) / sums.chunks
    return low, high
