"""Logs of which few rows are labelled, with proxies of every kind."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

KINDS = ("good", "useless", "adversarial")
SHARPNESS = 1.6


class FewLog(NamedTuple):
    """Forecasts of class 1, outcomes, NaN where there is none, the judge's classes, and probabilities of a label."""

    p: np.ndarray
    y: np.ndarray
    judge: np.ndarray
    pi: np.ndarray


def draw(rows: int, labels: int, kind: str, neyman: bool, rng: np.random.Generator) -> FewLog:
    """Return a log of forecasts that are too sure, and a judge who is mostly right, guesses, or is mostly wrong.

    The good one's classes have a correlation of 0.9 with the outcomes.
    """
    z = rng.normal(size=rows)
    p = _rate(SHARPNESS * z)
    y = (rng.random(rows) < _rate(z)).astype(float)
    honest = {"good": 0.95, "useless": 0.5, "adversarial": 0.2}[kind]
    source = (rng.random(rows) < 0.5).astype(float) if kind == "useless" else y
    judge = np.where(rng.random(rows) < honest, source, 1 - source)
    spread = np.sqrt(p * (1 - p)) if neyman else np.ones(rows)
    pi = np.minimum(labels / rows * (0.8 * spread / spread.mean() + 0.2), 1.0)
    return FewLog(p, np.where(rng.random(rows) < pi, y, np.nan), judge, pi)


def truth() -> dict[str, float]:
    """Return what the measures of infinitely many rows are, by a fine grid of quantiles."""
    from scipy.special import ndtri

    z = ndtri((np.arange(200_000) + 0.5) / 200_000)
    p, rate = _rate(SHARPNESS * z), _rate(z)
    sure = np.maximum(p, 1 - p)
    right = np.where(p > 0.5, rate, 1 - rate)
    return {
        "accuracy": float(right.mean()),
        "too_sure": float((sure - right).mean()),
        "brier": float(2 * (rate * (1 - p) ** 2 + (1 - rate) * p**2).mean()),
        "log_score": float(-(rate * np.log(p) + (1 - rate) * np.log1p(-p)).mean()),
    }


def _rate(logit: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-logit))
    return found
