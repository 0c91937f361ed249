from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.swap import adversaries
from treecal._typing import Array
from treecal.exceptions import LossError, ParameterError
from treecal.swap import (
    ActionRegret,
    BlumMansour,
    FollowTheLeader,
    Hedge,
    InternalRegretMatching,
    Learner,
    RegretMatching,
    stationary,
    swap_regret,
)


@given(n=st.integers(1, 12), seed=st.integers(0, 10**6), zeros=st.floats(0, 1), tiny=st.integers(0, 300))
@settings(max_examples=200, deadline=None)
def test_stationary_distributions_are_stationary(n: int, seed: int, zeros: float, tiny: int) -> None:
    rng = np.random.default_rng(seed)
    Q = rng.random((n, n)) * np.where(rng.random((n, n)) < 0.3, 10.0**-tiny, 1.0) * (rng.random((n, n)) >= zeros)
    Q[np.arange(n), rng.integers(n, size=n)] += 1e-3
    Q /= Q.sum(axis=1, keepdims=True)
    p = stationary(Q)
    assert p.min() >= 0
    assert abs(p.sum() - 1) <= 1e-12
    assert np.abs(p @ Q - p).sum() <= 1e-10


def test_stationary_of_known_chains() -> None:
    np.testing.assert_allclose(stationary([[0.9, 0.1], [0.5, 0.5]]), [5 / 6, 1 / 6], rtol=1e-14)
    np.testing.assert_allclose(stationary(np.roll(np.eye(5), 1, axis=1)), np.full(5, 0.2), rtol=1e-14)
    np.testing.assert_allclose(stationary([[1.0, 0.0], [1.0, 0.0]]), [1.0, 0.0], atol=1e-15)
    assert abs(stationary(np.eye(4)).sum() - 1) < 1e-14


@pytest.mark.parametrize("bad", [[[0.5, 0.4], [0.5, 0.5]], [[1.5, -0.5], [0.5, 0.5]], [[1.0, 0.0]], [[np.nan]], []])
def test_matrices_that_are_not_stochastic_are_named(bad: list[list[float]]) -> None:
    with pytest.raises(ParameterError):
        stationary(bad)


class _Recording(Learner):
    """A learner that notes what it played and what it was fed."""

    def __init__(self, inner: Learner) -> None:
        assert inner.actions is not None
        super().__init__(inner.actions)
        self.inner = inner
        self.paid, self.total = 0.0, np.zeros(inner.actions)

    def _choose(self) -> Array:
        return self.inner.act()

    def _learn(self, loss: object) -> None:
        vector = loss.vector  # type: ignore[attr-defined]
        self.paid += float(self.inner.act() @ vector)
        self.total += vector
        self.inner.observe(vector)


@pytest.mark.parametrize("inner", [lambda: Hedge(4, rounds=50), lambda: RegretMatching(4), lambda: FollowTheLeader(4)])
@pytest.mark.parametrize("adversary", adversaries.ALL, ids=lambda a: a.__name__)
def test_blum_mansour_swap_regret_is_at_most_the_sum_of_external_regrets(
    inner: Callable[[], Learner], adversary: Callable[[int, int], adversaries.Adversary]
) -> None:
    made: list[_Recording] = []

    def make() -> Learner:
        made.append(_Recording(inner()))
        return made[-1]

    learner, regret, losses_of = BlumMansour(make, actions=4), ActionRegret(4), adversary(4, 3)
    for t in range(120):
        x = learner.act()
        loss = losses_of(t, x)
        regret.record(x, loss)
        learner.observe(loss)
        external = sum(part.paid - part.total.min() for part in made)
        assert regret.swap() <= external + 1e-8


@pytest.mark.parametrize("adversary", adversaries.ALL, ids=lambda a: a.__name__)
def test_swap_regrets_are_within_their_bounds(adversary: Callable[[int, int], adversaries.Adversary]) -> None:
    n, rounds = 4, 400

    def blum_mansour_bound(t: int) -> float:
        return float(np.sqrt(rounds * n * np.log(n) / 2))

    cases: list[tuple[Learner, Callable[[int], float]]] = [
        (BlumMansour(lambda: Hedge(n, rounds=rounds // n), actions=n), blum_mansour_bound),
        (InternalRegretMatching(n), InternalRegretMatching(n).regret_bound),
    ]
    for learner, bound in cases:
        regret, losses_of = ActionRegret(n), adversary(n, 4)
        for t in range(rounds):
            x = learner.act()
            loss = losses_of(t, x)
            regret.record(x, loss)
            learner.observe(loss)
            assert regret.swap() <= bound(t + 1) + 1e-8


def test_hedge_alone_does_not_have_small_swap_regret() -> None:
    """The rivals are needed: Hedge, with no external regret to speak of, can be led into much swap regret.

    Actions 0 and 1 take turns, 2k rounds each, so that Hedge is on 0 from the middle of one turn to the middle of the
    next, losing half of the time. Action 2 is better just then, and action 3 at all other times; neither is better
    throughout.
    """
    n, k, rounds = 4, 150, 6000
    swap, external = {}, {}
    learners: dict[str, Learner] = {
        "hedge": Hedge(n, rounds=rounds),
        "blum-mansour": BlumMansour(lambda: Hedge(n, rounds=rounds // n), actions=n),
        "internal": InternalRegretMatching(n),
    }
    for name, learner in learners.items():
        regret = ActionRegret(n)
        for t in range(rounds):
            first, on_zero = ((t + k) // (2 * k)) % 2 == 0, (t // (2 * k)) % 2 == 0
            loss = [0.0 + (not first), 0.0 + first, 0.3 if on_zero else 0.75, 0.75 if on_zero else 0.3]
            regret.record(learner.act(), loss)
            learner.observe(loss)
        swap[name], external[name] = regret.swap() / rounds, regret.external() / rounds
    assert external["hedge"] < 0.03
    assert swap["hedge"] > 0.1
    assert swap["blum-mansour"] < 0.05
    assert swap["internal"] < 0.05


@pytest.mark.parametrize("bad", [[np.nan, 0.0, 1.0], [0.0, 1.0], [[0.0, 1.0, 1.0]], None])
def test_bad_losses_change_nothing(bad: list[float]) -> None:
    make: list[Callable[[], Learner]] = [
        lambda: BlumMansour(lambda: Hedge(3, rounds=5), actions=3),
        lambda: InternalRegretMatching(3),
    ]
    for new in make:
        learner, twin = new(), new()
        for loss in np.random.default_rng(0).random((5, 3)):
            with pytest.raises(LossError):
                learner.observe(bad)
            assert np.array_equal(learner.act(), twin.act())
            learner.observe(loss)
            twin.observe(loss)


def test_bad_parameters_are_named() -> None:
    with pytest.raises(ParameterError, match="actions is 1"):
        BlumMansour(lambda: Hedge(2), actions=1)
    with pytest.raises(ParameterError, match="over 3 actions"):
        BlumMansour(lambda: Hedge(2), actions=3)
    shared = Hedge(2)
    with pytest.raises(ParameterError, match="same learner twice"):
        BlumMansour(lambda: shared, actions=2)


def test_internal_regret_matching_leaves_and_comes_in_balance() -> None:
    learner, rng = InternalRegretMatching(3), np.random.default_rng(0)
    plays, losses = [], []
    for _ in range(50):
        plays.append(learner.act())
        losses.append(rng.random(3))
        learner.observe(losses[-1])
    flow = np.maximum(learner._regrets, 0.0)
    p = learner.act()
    np.testing.assert_allclose(p @ flow, p * flow.sum(axis=1), atol=1e-9)
    expected = sum(np.outer(x, np.ones(3)) * np.subtract.outer(v, v) for x, v in zip(plays, losses, strict=True))
    np.testing.assert_allclose(learner._regrets, expected, atol=1e-12)
    assert swap_regret(plays, losses) == pytest.approx(np.maximum(expected, 0).max(axis=1).sum())
