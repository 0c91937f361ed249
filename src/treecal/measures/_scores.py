"""Scores of forecasts, and skill against climatology."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal.exceptions import ParameterError
from treecal.measures._levels import largest_surprise
from treecal.measures._log import Parts, measured, read_forecasts, read_log, sum_by

Score = Literal["brier", "log", "accuracy"]


def brier(P: ArrayLike, y: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Return the Brier score, the mean of `Σ_k (p_k − [y = k])²`: 0 at best, 2 at worst.

    The sum runs over all classes, so with two classes it is twice `(p − y)²`.

    Parameters
    ----------
    P
        Forecasts, `(n, d)`; or the probability of class 1 of two, `(n,)`.
    y
        The class of each outcome, `(n,)`.
    weights
        The weight of each row; all 1 by default.

    Examples
    --------
    >>> brier([[0.5, 0.5], [1, 0]], [0, 0])
    0.25
    """
    return measured(ScoreParts, P, y, weights, "brier")


def rps(P: ArrayLike, y: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Return the ranked probability score of ordered classes, the mean of `Σ_k (p_1 + … + p_k − [y <= k])²`.

    It is the Brier score of every "up to this class", added up: 0 at best, one less than the classes at worst.

    Parameters
    ----------
    P, y, weights
        As in `brier`.

    Examples
    --------
    >>> rps([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], [0, 0])  # the second is farther off
    0.75
    """
    log = read_log(P, y, weights)
    up_to = np.cumsum(log.forecasts, axis=1) - (log.outcomes[:, None] <= np.arange(log.forecasts.shape[1]))
    return float(log.weights @ np.square(up_to[:, :-1]).sum(axis=1) / log.weights.sum())


def log_score(P: ArrayLike, y: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Return the log score (log loss), the mean of `−ln p_y`: infinite where an outcome had forecast 0.

    Parameters
    ----------
    P, y, weights
        As in `brier`.

    Examples
    --------
    >>> round(log_score([[0.5, 0.5], [1, 0]], [0, 0]), 4)
    0.3466
    """
    return measured(ScoreParts, P, y, weights, "log")


def accuracy(P: ArrayLike, y: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Return the share of rows whose most likely class was the outcome; of equally likely classes the first counts.

    Parameters
    ----------
    P, y, weights
        As in `brier`.

    Examples
    --------
    >>> accuracy([[0.7, 0.3], [1, 0]], [1, 0])
    0.5
    """
    return measured(ScoreParts, P, y, weights, "accuracy")


def skill(
    P: ArrayLike,
    y: ArrayLike,
    *,
    score: Literal["brier", "log"] = "brier",
    climatology: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> float:
    """Return `1 − score/score of climatology`: 1 at best, 0 for what knows the base rates only, negative if worse.

    Parameters
    ----------
    P, y, weights
        As in `brier`.
    score
        The score: Brier or log.
    climatology
        The constant forecast to compare with, `(d,)`. By default the frequencies of the classes in these rows, the
        best constant in hindsight: on n rows it is flattered by about `(d − 1)/n` of its score.

    Examples
    --------
    >>> skill([0.9, 0.9, 0.2, 0.2], [1, 1, 0, 0])
    0.9
    >>> skill([0.5, 0.5, 0.5, 0.5], [1, 1, 0, 0])
    0.0
    """
    return measured(SkillParts, P, y, weights, score, climatology)


class _Each:
    """The score of each row, for outcomes that may be drawn again and again."""

    def __init__(self, forecasts: Array, score: Score) -> None:
        self._forecasts = forecasts
        self._score = score
        self._rows = np.arange(len(forecasts))
        if score == "brier":
            self._squares = np.einsum("nk,nk->n", forecasts, forecasts)
        elif score == "accuracy":
            self._top = np.argmax(forecasts, axis=1)

    def __call__(self, y: Integers) -> Array:
        if self._score == "accuracy":
            right: Array = (self._top == y).astype(np.float64)
            return right
        hit = self._forecasts[self._rows, y]
        if self._score == "brier":
            # Σ p² − 2p_y + 1 would lose digits where p_y is nearly 1.
            scores: Array = np.maximum(self._squares - hit**2, 0) + (1 - hit) ** 2
            return scores
        with np.errstate(divide="ignore"):
            logs: Array = -np.log(np.maximum(hit, 0)) + 0.0
        return logs


class ScoreParts(Parts):
    """The mean of a score: its sum and the weight."""

    debiased = True

    def __init__(self, forecasts: Array, weights: Array, score: Score) -> None:
        self._each = _Each(forecasts, score)
        self._weights = weights
        self.bounds = (0.0, {"brier": 2.0, "log": np.inf, "accuracy": 1.0}[score])
        self.most = self.bounds[1]
        """The largest value that the next row may have."""
        if score == "log":
            self.most = largest_surprise(forecasts.max(axis=1), forecasts.shape[1])

    def sums(self, y: Integers, chunk: Integers, chunks: int) -> Array:
        each = self._weights * self._each(y)
        return np.stack([sum_by(chunk, v, chunks) for v in (each, self._weights)], axis=1)

    def read(self, sums: Array) -> Array:
        found: Array = sums[..., 0] / sums[..., 1]
        return found


class SkillParts(Parts):
    """Skill: the sum of a score, and the weight of each class."""

    bounds = (-np.inf, 1.0)

    def __init__(
        self, forecasts: Array, weights: Array, score: Score = "brier", climatology: ArrayLike | None = None
    ) -> None:
        if score not in ("brier", "log"):
            raise ParameterError.expected("score", score, "'brier' or 'log'")
        self._each = _Each(forecasts, score)
        self._weights = weights
        self._score = score
        self._classes = forecasts.shape[1]
        self._base = None if climatology is None else read_forecasts(np.atleast_2d(climatology))[0]
        if self._base is not None and len(self._base) != forecasts.shape[1]:
            raise ParameterError(f"climatology has {len(self._base)} classes, the forecasts {forecasts.shape[1]}.")

    def sums(self, y: Integers, chunk: Integers, chunks: int) -> Array:
        width = self._classes
        each = self._weights * self._each(y)
        counts = sum_by(chunk * width + y, self._weights, chunks * width).reshape(chunks, width)
        return np.column_stack([sum_by(chunk, each, chunks), counts])

    def read(self, sums: Array) -> Array:
        share = sums[..., 1:] / sums[..., 1:].sum(axis=-1, keepdims=True)
        score = sums[..., 0] / sums[..., 1:].sum(axis=-1)
        base = share if self._base is None else np.broadcast_to(self._base, share.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self._score == "brier":
                against = 1 - 2 * (share * base).sum(axis=-1) + (base**2).sum(axis=-1)
            else:
                against = -np.where(share > 0, share * np.log(base), 0).sum(axis=-1)
            # Where climatology is perfect, so is a forecast without error, and any other is infinitely worse.
            return np.where(against > 0, 1 - score / against, np.where(score > 0, -np.inf, 0.0))
