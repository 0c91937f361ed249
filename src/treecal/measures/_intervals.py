"""Intervals for measures, and what chance alone would show."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal._validate import finite_array, whole_number
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
from treecal.measures._levels import AT_ZERO, Chance, Interval, Square, square_interval, with_rare
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
_NOISE = 0.1  # share of the value that resampling adds to it: less wherever the intervals of ece and mce covered


def interval(
    measure: Measure,
    P: ArrayLike,
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
        As in `brier`.
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
    0, 90 % interval 0 to 0.02936 (not distinguishable from 0, where an interval covers more often than its level)
    """
    if not 0 < level < 1:
        raise ParameterError.expected("level", level, "a number between 0 and 1")
    log = read_log(P, y, weights)
    chunk, chunks = _chunks(len(log.outcomes), blocks, rng)
    parts = _parts(measure, log.forecasts, log.weights)
    if isinstance(parts, Square):
        low, high = square_interval(parts.law(log.outcomes, chunk, chunks, rows=blocks is None), level)
        if isinstance(parts, SquareParts) and not parts.squared:
            low = math.sqrt(low)
            high = math.sqrt(high)
        return Interval(parts.value(log.outcomes), low, high, level, AT_ZERO if low <= 0 else "")
    counts = _resampled(chunks, whole_number("draws", draws, least=100), rng)
    if parts is None:
        return _of_any(measure, log, chunk, counts, level)
    sums = parts.sums(log.outcomes, chunk, chunks)
    value = parts.value(log.outcomes)
    base = float(parts.read(sums.sum(axis=0)[None])[0])
    if not math.isfinite(value):
        return Interval(value, value, value, level, "an outcome had forecast 0")
    found = parts.read(counts @ sums)
    low, high = _ends(value, base, found, (1 - level) / 2, debiased=parts.debiased)
    if isinstance(parts, ScoreParts):
        low, high = with_rare(value, low, high, chunks, level=level, most=parts.bounds[1])
    if isinstance(parts, PayoffParts):
        high = parts.rare_end(value, high, log.outcomes, chunks, level, rng)
    least, most = parts.bounds
    note = AT_ZERO if low <= least == 0 else ""
    if isinstance(parts, EceParts) and found.mean() - base > _NOISE * base:
        note = f"not distinguishable from 0: {_NOISY}" if note else _NOISY
    return Interval(value, max(low, least), max(min(high, most), least), level, note)


def chance(
    measure: Measure,
    P: ArrayLike,
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
        As in `brier`.
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
    forecasts = read_forecasts(P)
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


def _resampled(chunks: int, draws: int, rng: np.random.Generator) -> Array:
    """Return how often each chunk is drawn, `(draws, chunks)`."""
    at = rng.integers(chunks, size=(draws, chunks)) + chunks * np.arange(draws)[:, None]
    return np.bincount(at.ravel(), minlength=draws * chunks).reshape(draws, chunks).astype(np.float64)


def _ends(value: float, base: float, draws: Array, tail: float, *, debiased: bool) -> tuple[float, float]:
    """Return the ends of the interval; `base` is what draws of the rows as they are would be."""
    low, high = (float(q) for q in np.quantile(draws, [tail, 1 - tail]))
    mean = float(draws.mean())
    if debiased:
        return value - (high - mean), value - (low - mean)
    return value - max(high - base, base - low), value + max(high - base, base - low)


def _of_any(measure: Measure, log: Log, chunk: Integers, counts: Array, level: float) -> Interval:
    """Return the interval of a function we know nothing of: biased, as far as we know, and without bounds."""
    P, y, w = log
    value = float(measure(P, y, weights=w))
    found = finite_array("the measure of a draw", [measure(P, y, weights=w * count[chunk]) for count in counts])
    return Interval(value, *_ends(value, value, found, (1 - level) / 2, debiased=False), level)
