"""Losses in [0, 1] that are random, cyclic, or chosen against the play."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treecal._typing import Array

Adversary = Callable[[int, Array], Array]  # (round from 0, the weights about to be played) -> losses


def random(n: int, seed: int) -> Adversary:
    rng = np.random.default_rng(seed)
    return lambda t, x: rng.random(n)


def coins(n: int, seed: int) -> Adversary:
    rng = np.random.default_rng(seed)
    return lambda t, x: rng.integers(0, 2, n).astype(float)


def cyclic(n: int, seed: int) -> Adversary:
    return lambda t, x: 1.0 - np.eye(n)[(t // (1 + seed % 3)) % n]


def heaviest(n: int, seed: int) -> Adversary:
    """The action with the most weight loses."""
    return lambda t, x: np.eye(n)[int(np.argmax(x))]


def heavier_half(n: int, seed: int) -> Adversary:
    """All actions with more than their share of the weight lose."""
    return lambda t, x: (x >= np.median(x)).astype(float)


def drifting(n: int, seed: int) -> Adversary:
    """One good action, for long stretches, and what is played besides it loses."""
    rng = np.random.default_rng(seed)
    return lambda t, x: np.where(np.arange(n) == (t // 7) % n, 0.0, (x > rng.random(n) / n).astype(float))


ALL = [random, coins, cyclic, heaviest, heavier_half, drifting]
