from __future__ import annotations

import operator
from collections.abc import Callable
from copy import copy
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.swap import adversaries
from tests.swap.test_losses import MAKERS, Maker
from treecal.exceptions import HorizonError, LossError, ParameterError, UnsupportedError
from treecal.geometry import PNorm, QuadraticForm, Regularizer
from treecal.swap import (
    BeTheLeader,
    BregmanLoss,
    FollowTheLeader,
    FollowTheRegularizedLeader,
    Hedge,
    InternalRegretMatching,
    LazyGradientDescent,
    Learner,
    LinearLoss,
    Loss,
    QuadraticLoss,
    RegretMatching,
    external_regret,
)

FINITE: dict[str, Callable[[int, int], Learner]] = {
    "hedge": lambda n, rounds: Hedge(n, rounds=rounds),
    "hedge, anytime": lambda n, rounds: Hedge(n),
    "hedge, tuned wrongly": lambda n, rounds: Hedge(n, rounds=7),
    "regret matching": lambda n, rounds: RegretMatching(n),
    "internal": lambda n, rounds: InternalRegretMatching(n),
    "lazy": lambda n, rounds: LazyGradientDescent(n, rounds=rounds, lipschitz=np.sqrt(n)),
    "lazy, anytime": lambda n, rounds: LazyGradientDescent(n, lipschitz=np.sqrt(n)),
}


@pytest.mark.parametrize("make", FINITE.values(), ids=FINITE)
@pytest.mark.parametrize("adversary", adversaries.ALL, ids=lambda a: a.__name__)
@pytest.mark.parametrize("n", [2, 5])
def test_external_regret_is_within_its_bound_in_every_round(
    make: Callable[[int, int], Learner], adversary: Callable[[int, int], adversaries.Adversary], n: int
) -> None:
    rounds = 150
    learner, losses_of = make(n, rounds), adversary(n, 1)
    paid, total = 0.0, np.zeros(n)
    for t in range(rounds):
        x = learner.act()
        assert x.min() >= 0
        assert abs(x.sum() - 1) <= 1e-12
        loss = losses_of(t, x)
        learner.observe(loss)
        paid += float(x @ loss)
        total += loss
        assert paid - total.min() <= learner.regret_bound(t + 1) + 1e-9


def test_hedge_bounds_are_the_textbook_ones() -> None:
    assert Hedge(10, rounds=100).regret_bound(100) == pytest.approx(np.sqrt(100 * np.log(10) / 2))
    assert Hedge(10).regret_bound(100) == pytest.approx(np.sqrt(100 * np.log(10)))
    assert LazyGradientDescent(tc.Ball(3, radius=2), rounds=25, lipschitz=3).regret_bound(25) == pytest.approx(30)
    assert LazyGradientDescent(tc.Ball(3, radius=2), lipschitz=3).regret_bound(8) == pytest.approx(24)


def test_hedge_bound_is_nearly_met() -> None:
    """On fair coins, n large and T larger, the best action is √(T ln n/2) ahead: the bound cannot be much smaller."""
    n, rounds = 2000, 4000
    learner, rng = Hedge(n, rounds=rounds), np.random.default_rng(0)
    losses = rng.integers(0, 2, (rounds, n)).astype(float)
    paid = 0.0
    for loss in losses:
        paid += float(learner.act() @ loss)
        learner.observe(loss)
    regret = paid - losses.sum(axis=0).min()
    assert 0.6 * learner.regret_bound(rounds) <= regret <= learner.regret_bound(rounds)


@pytest.mark.parametrize("space", [tc.Ball(3), tc.Box(-1, 1, dim=3), tc.Simplex(3)], ids=repr)
@pytest.mark.parametrize("anytime", [False, True])
def test_lazy_gradient_descent_is_within_its_bound(space: tc.ConvexSet, anytime: bool) -> None:
    rounds, rng = 200, np.random.default_rng(0)
    learner = LazyGradientDescent(space, rounds=None if anytime else rounds)
    plays, losses = [], []
    for t in range(rounds):
        p = learner.act()
        assert space.contains(p)
        v = p - space.centre if t % 3 else rng.normal(size=3)
        v = v / max(1e-9, float(np.linalg.norm(v)))
        learner.observe(v)
        plays.append(p)
        losses.append(LinearLoss(v))
    assert external_regret(np.array(plays), losses, space=space) <= learner.regret_bound(rounds) + 1e-9


REGULARIZERS: list[Regularizer] = [
    tc.NegativeEntropy(),
    tc.SmoothedEntropy(3),
    tc.SquaredEuclidean(),
    PNorm(1.5),
    QuadraticForm(np.diag([1.0, 2.0, 3.0])),
]


@pytest.mark.parametrize("regularizer", REGULARIZERS, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("space", [tc.Simplex(3), tc.Box(0, 1, dim=3)], ids=repr)
def test_ftrl_plays_the_regularized_leader(regularizer: Regularizer, space: tc.ConvexSet) -> None:
    rng = np.random.default_rng(0)
    for rate in (0.1, 1.0, 10.0):
        learner = FollowTheRegularizedLeader(space, regularizer=regularizer, rate=rate)
        total = np.zeros(3)
        for _ in range(4):
            p = learner.act()
            others = np.concatenate([space.sample(rng, 300), space.project(p + 1e-3 * rng.normal(size=(100, 3)))])
            goal = regularizer.value(p) + rate * p @ total
            assert (regularizer.value(others) + rate * others @ total >= goal - 1e-9 * (1 + abs(goal))).all()
            v = rng.normal(size=3)
            learner.observe(v)
            total += v


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
@given(seed=st.integers(0, 10**6), rounds=st.integers(1, 8))
@settings(max_examples=12, deadline=None)
def test_be_the_leader_never_regrets(maker: Maker, seed: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    space = tc.Simplex(3)
    losses = [maker(rng) for _ in range(rounds)]
    learner = BeTheLeader(space, losses=losses)
    paid = 0.0
    for loss in losses:
        paid += float(loss.value(learner.act()))
        learner.observe(loss)
    total = reduce(operator.add, losses) / rounds
    least = rounds * float(total.value(total.minimise(space)))
    assert paid - least <= learner.regret_bound(rounds) + 1e-9 * (1 + abs(paid))


def test_follow_the_leader_does_regret() -> None:
    losses = [[0.5, 0.0]] + [[0.0, 1.0], [1.0, 0.0]] * 20
    learner = FollowTheLeader(2)
    plays = []
    for loss in losses:
        plays.append(learner.act())
        learner.observe(loss)
    assert external_regret(plays, losses) >= 19
    with pytest.raises(UnsupportedError):
        learner.regret_bound(41)


def test_be_the_leader_is_offline() -> None:
    with pytest.raises(ParameterError, match="in advance"):
        BeTheLeader(2, losses=[])
    learner = BeTheLeader(2, losses=[[0.0, 1.0]])
    with pytest.raises(LossError, match="given in advance"):
        learner.observe([1.0, 0.0])
    learner.observe([0.0, 1.0])
    with pytest.raises(HorizonError, match=r"one too many(.|\n)*needs the losses in advance"):
        learner.act()
    with pytest.raises(HorizonError):
        learner.observe([0.0, 1.0])


@pytest.mark.parametrize("make", FINITE.values(), ids=FINITE)
@pytest.mark.parametrize(
    "bad",
    [
        [np.nan, 0.0, 1.0],
        [np.inf, 0.0, 1.0],
        [0.0, 1.0],
        [[0.0, 1.0, 0.5]],
        0.5,
        None,
        "abc",
        BregmanLoss(tc.SquaredEuclidean(), [0.0, 0.5, 0.5]),
        QuadraticLoss(np.eye(3)),
        LinearLoss([0.0, 1.0]),
    ],
    ids=repr,
)
def test_bad_losses_change_nothing(make: Callable[[int, int], Learner], bad: Loss | list[float]) -> None:
    learner, twin = make(3, 10), make(3, 10)
    for good in ([1.0, 0.0, 0.3], [0.2, 0.4, 0.1]):
        with pytest.raises(LossError):
            learner.observe(bad)
        learner.observe(good)
        twin.observe(good)
        assert learner.rounds == twin.rounds
        assert np.array_equal(learner.act(), twin.act())


def test_kinds_do_not_mix_and_outcomes_lie_inside() -> None:
    learner = FollowTheLeader(tc.Simplex(2))
    with pytest.raises(LossError, match=r"round 1 has an outcome outside Simplex\(2\)"):
        learner.observe(BregmanLoss(tc.SquaredEuclidean(), [0.5, 0.6]))
    learner.observe(BregmanLoss(tc.SquaredEuclidean(), [0.5, 0.5]))
    with pytest.raises(LossError, match="not of the same kind"):
        learner.observe(LinearLoss([0.0, 1.0]))
    with pytest.raises(LossError, match="not of the same kind"):
        learner.observe(BregmanLoss(tc.NegativeEntropy(), [0.5, 0.5]))
    assert learner.rounds == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Hedge(1),
        lambda: Hedge(2, rounds=0),
        lambda: Hedge(2.5),  # type: ignore[arg-type]
        lambda: RegretMatching(1),
        lambda: InternalRegretMatching(1),
        lambda: FollowTheLeader(1),
        lambda: LazyGradientDescent(tc.Ball(2), lipschitz=0),
        lambda: LazyGradientDescent(tc.Ball(2, radius=0)),
        lambda: FollowTheRegularizedLeader(2, regularizer=tc.SquaredEuclidean(), rate=-1),
        lambda: FollowTheRegularizedLeader(2, regularizer="l2", rate=1),  # type: ignore[arg-type]
    ],
)
def test_bad_parameters_are_named(make: Callable[[], Learner]) -> None:
    with pytest.raises(ParameterError):
        make()


def test_plays_cannot_be_changed_from_outside() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Hedge(2).act()[0] = 1.0


def test_a_copy_is_made_while_another_thread_learns() -> None:
    """What another thread might do in the midst of it, an attribute does here."""
    learner = Hedge(2, rounds=9)

    class Meanwhile:
        def __deepcopy__(self, memo: dict[int, object]) -> None:
            vars(learner)["new"] = 1

    vars(learner)["meanwhile"] = Meanwhile()
    assert copy(learner).rounds == 0
