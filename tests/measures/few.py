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
    p, rate, sure, right = _grid(200_000)
    return {
        "accuracy": float(right.mean()),
        "too_sure": float((sure - right).mean()),
        "brier": float(2 * (rate * (1 - p) ** 2 + (1 - rate) * p**2).mean()),
        "log_score": float(-(rate * np.log(p) + (1 - rate) * np.log1p(-p)).mean()),
    }


def true_calibration_error(log: FewLog) -> float:
    """Return what the error of infinitely many rows is in the cells of a log: 15 at most, of 25 labels each or more."""
    labelled = np.sort(np.maximum(log.p, 1 - log.p)[~np.isnan(log.y)])
    cells = min(max(len(labelled) // 25, 1), 15)
    cuts = np.unique(labelled[np.arange(1, cells) * len(labelled) // cells])
    _, _, sure, right = _grid(20_000)
    home = np.searchsorted(cuts, sure, side="right")
    size = np.bincount(home, minlength=len(cuts) + 1)
    gap = np.bincount(home, right - sure, len(cuts) + 1) / np.maximum(size, 1)
    return float(np.sqrt(size @ gap**2 / size.sum()))


def _grid(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return forecasts by quantiles, how often they come, how sure they are, and how often the likelier class comes."""
    from scipy.special import ndtri

    z = ndtri((np.arange(rows) + 0.5) / rows)
    p, rate = _rate(SHARPNESS * z), _rate(z)
    return p, rate, np.maximum(p, 1 - p), np.where(p > 0.5, rate, 1 - rate)


def _rate(logit: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-logit))
    return found
