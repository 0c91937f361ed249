"""Streams to race on, and adversaries that see each forecast before they answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import treecal as tc
from treecal._typing import Array

Adversary = Callable[[tc.Forecast], Array]


def iid(dim: int, rounds: int, rng: np.random.Generator) -> Array:
    """Draw classes from one distribution, itself drawn uniformly from the simplex."""
    outcomes: Array = np.eye(dim)[rng.choice(dim, size=rounds, p=rng.dirichlet(np.ones(dim)))]
    return outcomes


def regimes(dim: int, rounds: int, rng: np.random.Generator, every: int = 997) -> Array:
    """Draw classes from a distribution that is drawn anew after every so many rounds."""
    parts = [iid(dim, min(every, rounds - begin), rng) for begin in range(0, rounds, every)]
    return np.concatenate(parts)


class AgainstTheMean:
    """Sees the forecast and plays the class that its mean finds least likely, any where several tie."""

    def __init__(self, dim: int, rng: np.random.Generator) -> None:
        self._vertices, self._rng = np.eye(dim), rng

    def __call__(self, x: tc.Forecast) -> Array:
        return _largest(-x.mean, self._vertices, self._rng)


class AgainstTheLedger:
    """Sees the forecast and plays the vertex that raises the ledger's ℓ1 error most, any where several tie.

    Ties are many, and a run hangs on how they fall: so they fall at random, and seeds give a mean.
    """

    def __init__(self, dim: int, rng: np.random.Generator) -> None:
        self._vertices, self._rng = np.eye(dim), rng
        self._rows: dict[bytes, int] = {}
        self._bias = np.zeros((0, dim))  # Σ_t x_t(p)(y_t − p) of each point met

    def __call__(self, x: tc.Forecast) -> Array:
        points, home = _joined(x.points)
        weights = np.bincount(home, x.weights)
        rows = [self._rows.setdefault(p.tobytes(), len(self._rows)) for p in points]
        if len(self._rows) > len(self._bias):
            more = max(len(self._rows), 2 * len(self._bias))
            self._bias = np.concatenate([self._bias, np.zeros((more - len(self._bias), points.shape[1]))])
        steps = weights[:, None, None] * (self._vertices - points[:, None])
        after = np.abs(self._bias[rows][:, None] + steps).sum(axis=(0, 2))  # the points not forecast stay as they are
        outcome = _largest(after, self._vertices, self._rng)
        self._bias[rows] += weights[:, None] * (outcome - points)
        return outcome


def _largest(values: Array, vertices: Array, rng: np.random.Generator) -> Array:
    best = np.flatnonzero(values >= values.max() - 1e-9)
    outcome: Array = vertices[best[0] if len(best) == 1 else rng.choice(best)]
    return outcome


def _joined(points: Array) -> tuple[Array, list[int]]:
    """Return the distinct points, and which of them each point is."""
    first: dict[bytes, int] = {}
    home = [first.setdefault(p.tobytes(), len(first)) for p in points + 0.0]
    return np.array([np.frombuffer(name) for name in first]), home


def duel(forecaster: tc.Forecaster, adversary: Adversary, rounds: int) -> tc.Ledger:
    """Play so many rounds and return the ledger."""
    ledger = tc.Ledger(forecaster.space)
    for _ in range(rounds):
        x = forecaster.predict()
        y = adversary(x)
        ledger.record(x, y)
        forecaster.update(y)
    return ledger


def stream(outcomes: Array) -> Adversary:
    """Return an adversary that does not care: it plays these outcomes."""
    rest = iter(outcomes)
    return lambda x: next(rest)


def opponent(kind: str, dim: int, rounds: int, seed: int) -> Adversary:
    """Return the opponent of one of the four kinds: "iid", "regimes", "mean" or "ledger"."""
    rng = np.random.default_rng(seed)
    if kind == "iid":
        return stream(iid(dim, rounds, rng))
    if kind == "regimes":
        return stream(regimes(dim, rounds, rng))
    return AgainstTheMean(dim, rng) if kind == "mean" else AgainstTheLedger(dim, rng)
