"""Models whose forecasts are right, or wrong in known ways, and what goes inside a recalibrator's groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import treecal as tc
from treecal._typing import Array
from treecal.correctors import Corrector, Scaling
from treecal.forecasters import Forecaster

INSIDE: dict[str, Callable[[tc.ConvexSet], Forecaster]] = {
    "TreeCal": lambda space: tc.TreeCal(space, arity=3),
    "AdaptiveTreeCal": tc.AdaptiveTreeCal,
    "Harmonic": tc.Harmonic,
    "BinaryGrid": lambda space: tc.BinaryGrid(bins=12),
    "RunningMean": tc.RunningMean,
}


def run(f: Corrector, forecasts: Array, outcomes: Array) -> list[tc.Forecast]:
    announced = []
    for b, y in zip(forecasts, outcomes, strict=True):
        announced.append(f.predict(b))
        f.update(y)
    return announced


def some_rounds(dim: int, rounds: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(dim), rounds), np.eye(dim)[rng.integers(dim, size=rounds)]


def softmax(scores: Array) -> Array:
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def model(kind: str, dim: int, rounds: int, seed: int) -> tuple[Array, Array]:
    """A model's forecasts and what came: what it knows is right, and what it makes of it is not, or is."""
    rng, time = np.random.default_rng(seed), np.linspace(0, 1, rounds)[:, None]
    scores = rng.normal(0, 1.2, (rounds, dim))
    truth = softmax(scores)
    outcomes = np.eye(dim)[(rng.random((rounds, 1)) > np.cumsum(truth, axis=1)).sum(axis=1).clip(max=dim - 1)]
    said = {
        "right": scores,
        "overconfident": 3 * scores,
        "drifting": (1.5 + 2 * time) * scores + 1.5 * time * np.eye(dim)[0],
    }
    return softmax(said[kind]), outcomes


def features(f: Scaling, b: Array) -> Array:
    """Return `F(b)`, `(dim, parameters)`, as the classes' docstrings have it."""
    least = 1e-15 if isinstance(f, tc.TemperatureScaling) else 1e-6
    logs = np.log(np.clip(b, least, None))
    if isinstance(f, tc.PlattScaling):
        return np.array([[0.0, 0.0], [logs[1] - logs[0], 1.0]])
    if isinstance(f, tc.BetaCalibration):
        return np.array([[0.0, 0.0, 0.0], [logs[1], -logs[0], 1.0]])
    return logs[:, None] if isinstance(f, tc.TemperatureScaling) else np.hstack([np.diag(logs), np.eye(len(logs))])


def laws(f: Scaling, thetas: Array, b: Array) -> Array:
    """Return `softmax(F(b)·θ)` for each `θ`."""
    scores = thetas @ features(f, b).T
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))
