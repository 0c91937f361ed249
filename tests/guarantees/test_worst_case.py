"""What the docstrings promise, against streams that try to break it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import treecal as tc
from tests.strategies import one_hot, play, streams
from treecal._typing import Array


def against_the_mean(forecaster: tc.Forecaster, rounds: int) -> tc.Ledger:
    """Play, each round, the class that the mean forecast finds least likely."""
    ledger = tc.Ledger(forecaster.space)
    for _ in range(rounds):
        x = forecaster.predict()
        y = np.eye(forecaster.space.dim)[np.argmin(x.mean)]
        ledger.record(x, y)
        forecaster.update(y)
    return ledger


def test_an_adversary_holds_the_running_mean_at_one() -> None:
    for rounds in (100, 1000, 4000):
        assert against_the_mean(tc.RunningMean(tc.Simplex(2)), rounds).error("l1") > 0.99


def bound(space: tc.ConvexSet, norm: str, jensen: float, arity: int, depth: int) -> float:
    """(√(J/L) + √(r²μ₀ + D²μ₁))² on a complete tree, where μ₀ = 1/H and μ₁ = (1/H) Σ_{h=2}^H 1/h²."""
    first, later = 1 / arity, sum(1 / h**2 for h in range(2, arity + 1)) / arity
    movement = space.radius(norm) ** 2 * first + space.diameter(norm) ** 2 * later
    return (math.sqrt(jensen / depth) + math.sqrt(movement)) ** 2


def alternating(dim: int, rounds: int, arity: int) -> Array:
    """Swing in step with the tree: every child interval contradicts the one before it, at every height."""
    t = np.arange(rounds)
    swing = sum((t // arity**height) % arity for height in range(1, 8)) + t % arity
    outcomes: Array = np.eye(dim)[swing % dim]
    return outcomes


@pytest.mark.parametrize(("arity", "depth"), [(2, 8), (3, 5), (4, 4), (8, 3)])
@pytest.mark.parametrize(
    ("space", "norm", "jensen"),
    [
        (tc.Simplex(3), "l1", 2 * math.log(3)),
        (tc.Simplex(3), "l2", 2 / 3),
        (tc.Simplex(3), "linf", 4 / 9),
        (tc.Ball(3), "l2", 1.0),
        (tc.Ball(2, norm="l1"), "l1", 2 * math.log(4)),
    ],
    ids=repr,
)
def test_the_squared_error_keeps_to_its_bound(
    space: tc.ConvexSet, norm: str, jensen: float, arity: int, depth: int
) -> None:
    rounds, limit = arity**depth, bound(space, norm, jensen, arity, depth)
    rng = np.random.default_rng(0)
    tried = [streams(space, rounds, 1)]
    if isinstance(space, tc.Simplex):
        tried += [one_hot(3, rounds, rng), alternating(3, rounds, arity), alternating(2, rounds, arity) @ np.eye(3)[:2]]
    distance = getattr(tc, norm).squared
    for outcomes in tried:
        _, ledger = play(tc.TreeCal(space, arity=arity, depth=depth), outcomes)
        assert ledger.error(distance, per_node=True) <= limit
        assert ledger.error(norm, per_node=True) <= math.sqrt(limit)


def test_sampling_costs_no_more_than_it_says() -> None:
    """E[pure error] <= error of the mixtures on block means + D·√(depth/block) in ℓ2, here over 30 seeds."""
    space, block, depth = tc.Simplex(2), 16, 4
    rounds = block * 2**depth
    outcomes = one_hot(2, rounds, np.random.default_rng(2))
    means = outcomes.reshape(-1, block, 2).mean(axis=1)
    _, mixtures = play(tc.TreeCal(space, arity=2, depth=depth), means)
    pure = [
        play(tc.SampleTreeCal(space, arity=2, depth=depth, block=block, rng=np.random.default_rng(seed)), outcomes)[
            1
        ].error("l2")
        for seed in range(30)
    ]
    assert np.mean(pure) <= mixtures.error("l2") + space.diameter("l2") * math.sqrt(depth / block)
