from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.swap import adversaries, oracle_treeswap
from tests.swap.test_losses import REGULARIZERS
from treecal._typing import Array
from treecal.exceptions import HorizonError, LossError, ParameterError, UnsupportedError
from treecal.geometry import Lp, PNorm, Regularizer
from treecal.swap import (
    ActionRegret,
    BregmanLoss,
    CallableLoss,
    FollowTheLeader,
    Hedge,
    LazyGradientDescent,
    Learner,
    LinearLoss,
    PointRegret,
    QuadraticLoss,
    RegretMatching,
    TreeSwap,
    treeswap_bound,
)

SHAPES: list[tuple[int, int | None]] = [(2, 1), (2, 6), (3, 4), (4, 3), (7, 2), (2, None), (3, None), (8, None)]


def _agree(space: tc.ConvexSet, regularizer: Regularizer, outcomes: Array, arity: int, depth: int | None) -> None:
    forecaster = tc.TreeCal(space, arity=arity, depth=depth)
    learner = TreeSwap(lambda: FollowTheLeader(space), arity=arity, depth=depth)
    for y in outcomes:
        x, z = forecaster.predict(), learner.parts()
        assert x.points.tobytes() == z.points.tobytes()
        assert x == z  # weights and nodes too
        np.testing.assert_allclose(learner.act(), x.mean, rtol=1e-12, atol=1e-14)
        forecaster.update(y)
        learner.observe(BregmanLoss(regularizer, y))


@pytest.mark.parametrize("regularizer", REGULARIZERS, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize(("arity", "depth"), SHAPES)
def test_treeswap_of_the_leader_is_treecal(regularizer: Regularizer, arity: int, depth: int | None) -> None:
    rng = np.random.default_rng(arity)
    rounds = min(70, arity**depth if depth else 70)
    _agree(tc.Simplex(3), regularizer, rng.dirichlet(np.ones(3), size=rounds), arity, depth)
    _agree(tc.Simplex(3), regularizer, np.eye(3)[rng.integers(3, size=rounds)], arity, depth)


@pytest.mark.parametrize(
    ("space", "regularizer"),
    [
        (tc.Ball(3), tc.SquaredEuclidean()),
        (tc.Ball(2, norm=Lp(3)), PNorm(2.5)),
        (tc.Box(-3, 1, dim=2), PNorm(1.25)),
        (tc.Polytope(vertices=[[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), tc.SquaredEuclidean()),
    ],
    ids=repr,
)
def test_treeswap_of_the_leader_is_treecal_on_other_sets(space: tc.ConvexSet, regularizer: Regularizer) -> None:
    outcomes = space.sample(np.random.default_rng(0), 60) if not isinstance(space, tc.Polytope) else None
    if outcomes is None:
        outcomes = np.random.default_rng(0).dirichlet(np.ones(3), 60) @ np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    outcomes[::7] *= -0.0 if space.contains(-0.0 * outcomes[0]) else 1.0  # signed zeros
    _agree(space, regularizer, outcomes, 3, None)
    _agree(space, regularizer, outcomes, 4, 3)


@pytest.mark.parametrize("regularizer", REGULARIZERS, ids=lambda r: type(r).__name__)
def test_treeswap_of_the_leader_is_treecal_against_an_adversary(regularizer: Regularizer) -> None:
    space = tc.Simplex(3)
    forecaster, ledger = tc.TreeCal(space, arity=3), tc.Ledger(space)
    outcomes = []
    for _ in range(60):  # the vertex that hurts this round's mean forecast most
        x = forecaster.predict()
        y = space.minimise(x.mean)
        forecaster.update(y)
        ledger.record(x, y)
        outcomes.append(y)
    _agree(space, regularizer, np.array(outcomes), 3, None)


def _rate(n: int, arity: int, anytime: bool) -> Callable[[int], float]:
    return lambda step: 2 * np.sqrt(np.log(n) / step) if anytime else np.sqrt(8 * np.log(n) / arity)


@pytest.mark.parametrize(("arity", "depth"), SHAPES)
@pytest.mark.parametrize("anytime", [False, True])
def test_treeswap_of_hedge_is_the_literal_algorithm(arity: int, depth: int | None, anytime: bool) -> None:
    n, rounds = 3, min(100, arity**depth if depth else 100)
    losses = np.random.default_rng(arity).random((rounds, n))
    learner = TreeSwap(lambda: Hedge(n, rounds=None if anytime else arity), arity=arity, depth=depth)
    alg = oracle_treeswap.hedge(n, _rate(n, arity, anytime))
    given_losses = [tuple(map(float, loss)) for loss in losses]
    if depth is None:
        expected = oracle_treeswap.growing(given_losses, arity, alg)
    else:
        expected = oracle_treeswap.treeswap(given_losses, arity, depth, alg)
    for loss, path in zip(losses, expected, strict=True):
        parts = learner.parts()
        assert parts.nodes is not None
        assert [tuple(label) for label in parts.nodes] == [node for node, _ in path]
        points = np.array([play for _, play in path])
        np.testing.assert_allclose(parts.points, points, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(learner.act(), points.mean(axis=0), rtol=1e-12, atol=1e-13)
        learner.observe(loss)


def test_a_grown_tree_agrees_with_a_fixed_one_but_for_the_weights() -> None:
    """In its last epoch a tree that grew has the plays of the fixed tree of that depth, except for the new roots'."""
    losses = np.random.default_rng(0).random((27, 2))
    fixed, grown = (TreeSwap(lambda: Hedge(2, rounds=3), arity=3, depth=depth) for depth in (3, None))
    for t, loss in enumerate(losses):
        if t >= 9:
            assert fixed.parts() == grown.parts()
        fixed.observe(loss)
        grown.observe(loss)


@pytest.mark.parametrize("adversary", adversaries.ALL, ids=lambda a: a.__name__)
@pytest.mark.parametrize(("arity", "depth"), SHAPES)
@pytest.mark.parametrize("anytime", [False, True])
def test_swap_regret_is_within_the_bound_in_every_round(
    adversary: Callable[[int, int], adversaries.Adversary], arity: int, depth: int | None, anytime: bool
) -> None:
    n, b, rounds = 3, 2.0, min(130, arity**depth if depth else 130)
    learner = TreeSwap(lambda: Hedge(n, rounds=None if anytime else arity), arity=arity, depth=depth)
    unit = learner._make().regret_bound
    path, mixture, losses_of = PointRegret(tc.Simplex(n)), ActionRegret(n), adversary(n, 2)
    for t in range(rounds):
        x = learner.act()
        loss = losses_of(t, x)
        path.record(learner.parts(), b * loss)
        mixture.record(x, b * loss)
        learner.observe(loss)
        # Regret is homogeneous: the learner sees losses in [0, 1], the regret is that of b times as much.
        bound = treeswap_bound(t + 1, arity=arity, depth=depth, regret=lambda steps: b * unit(steps), scale=b)
        assert path.swap(per_node=True) <= bound + 1e-9
        assert mixture.swap() <= path.swap(per_node=True) + 1e-9
        assert bound == pytest.approx(b * learner.regret_bound(t + 1))
    if depth is not None and rounds == arity**depth:
        assert bound / rounds == pytest.approx(b * unit(arity) / arity + b / depth)


def test_the_bound_holds_with_the_learners_own_regrets() -> None:
    """Not only in the worst case: with E(n) the largest regret any node's learner had after n steps."""
    n, arity, depth = 4, 4, 3
    rng = np.random.default_rng(5)
    for _ in range(5):
        losses = rng.integers(0, 2, (arity**depth, n)).astype(float)
        learner, path = TreeSwap(lambda: Hedge(n, rounds=arity), arity=arity, depth=depth), PointRegret(tc.Simplex(n))
        for loss in losses:
            path.record(learner.parts(), loss)
            learner.observe(loss)
        worst = 0.0
        for height in range(depth):
            steps = losses.reshape(-1, arity, arity**height, n).mean(axis=2)
            for node in steps:
                inner = Hedge(n, rounds=arity)
                paid = 0.0
                for loss in node:
                    paid += float(inner.act() @ loss)
                    inner.observe(loss)
                worst = max(worst, paid - node.sum(axis=0).min())
        assert path.swap(per_node=True) / len(losses) <= worst / arity + 1 / depth + 1e-12


def test_the_papers_levels_term_is_nearly_needed() -> None:
    """A learner without regret at its own steps still pays the levels term: the bound's b/L is not slack to drop.

    With fair coins as losses and as many actions as it takes, the best action of a leaf has loss 0 and that of the
    whole is about ½ in every round, so the minima telescope over half of the range.
    """
    n, arity, depth = 400, 8, 2
    rng = np.random.default_rng(0)
    losses = rng.integers(0, 2, (arity**depth, n)).astype(float)
    learner, path = TreeSwap(lambda: Hedge(n, rounds=arity), arity=arity, depth=depth), PointRegret(tc.Simplex(n))
    for loss in losses:
        path.record(learner.parts(), loss)
        learner.observe(loss)
    assert path.swap(per_node=True) / len(losses) >= 0.25 / depth


def test_treeswap_works_with_every_learner_and_loss() -> None:
    rng = np.random.default_rng(0)
    ball = tc.Ball(2)
    cases: list[tuple[Callable[[], Learner], Callable[[], object]]] = [
        (lambda: RegretMatching(3), lambda: rng.random(3)),
        (lambda: FollowTheLeader(3), lambda: rng.random(3)),
        (lambda: TreeSwap(lambda: Hedge(3), arity=2), lambda: rng.random(3)),
        (lambda: LazyGradientDescent(ball, rounds=3), lambda: LinearLoss(rng.normal(size=2))),
        (lambda: LazyGradientDescent(ball, rounds=3), lambda: rng.normal(size=2)),
        (lambda: FollowTheLeader(ball), lambda: QuadraticLoss(np.diag([1.0, 3.0]), vector=rng.normal(size=2))),
        (
            lambda: FollowTheLeader(ball),
            lambda: CallableLoss(lambda p: (p**2).sum(-1), dim=2, gradient=lambda p: 2 * p),
        ),
    ]
    for make, loss in cases:
        learner = TreeSwap(make, arity=3)
        for _ in range(20):
            parts = learner.parts()
            assert learner.space.contains(parts.points).all()
            learner.observe(loss())  # type: ignore[arg-type]
        np.testing.assert_allclose(learner.act(), learner.parts().mean)


def test_a_tree_of_trees_on_a_convex_set() -> None:
    ball = tc.Ball(2)
    inner = partial(TreeSwap, lambda: LazyGradientDescent(ball, rounds=4), arity=2)
    learner = TreeSwap(inner, arity=2, depth=3)
    for loss in np.random.default_rng(0).normal(size=(8, 2)):
        assert ball.contains(learner.parts().points).all()
        learner.observe(loss)


def test_one_round_too_many() -> None:
    learner = TreeSwap(lambda: Hedge(2, rounds=2), arity=2, depth=2)
    for _ in range(4):
        learner.act()
        learner.observe([0.0, 1.0])
    for call in (learner.act, learner.parts, lambda: learner.observe([0.0, 1.0])):
        with pytest.raises(HorizonError, match="round 5 is beyond the horizon"):
            call()
    assert learner.rounds == 4


@pytest.mark.parametrize("bad", [[np.nan, 0.0], [0.0], [[0.0, 1.0]], None, BregmanLoss(PNorm(2), [0.0, 1.0])], ids=repr)
@pytest.mark.parametrize("depth", [3, None])
@given(seed=st.integers(0, 100))
@settings(max_examples=5, deadline=None)
def test_bad_losses_change_nothing(bad: list[float], depth: int | None, seed: int) -> None:
    learner, twin = (TreeSwap(lambda: Hedge(2, rounds=2), arity=2, depth=depth) for _ in range(2))
    for loss in np.random.default_rng(seed).random((8, 2)):
        with pytest.raises(LossError):
            learner.observe(bad)
        assert learner.parts() == twin.parts()
        learner.observe(loss)
        twin.observe(loss)
        assert learner.rounds == twin.rounds


def test_a_learner_that_fails_leaves_the_tree_as_it_was() -> None:
    class Fragile(Hedge):
        fail = False

        def _learn(self, loss: LinearLoss) -> None:
            if Fragile.fail:
                raise RuntimeError
            super()._learn(loss)

    learner, twin = (TreeSwap(lambda: Fragile(2, rounds=2), arity=2) for _ in range(2))
    for loss in np.random.default_rng(0).random((20, 2)):
        Fragile.fail = True
        with pytest.raises(RuntimeError):
            learner.observe(loss)
        Fragile.fail = False
        assert learner.parts() == twin.parts()
        learner.observe(loss)
        twin.observe(loss)


def test_bad_parameters_are_named() -> None:
    shared = Hedge(2)
    shared.observe([0.0, 1.0])
    for make in (shared, lambda: shared, lambda: None):
        with pytest.raises(ParameterError, match="make_learner"):
            TreeSwap(make, arity=2)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="arity"):
        TreeSwap(lambda: Hedge(2), arity=1)
    with pytest.raises(ParameterError, match="rounds"):
        treeswap_bound(9, arity=2, depth=3, regret=Hedge(2).regret_bound)
    with pytest.raises(UnsupportedError, match="regret bound"):
        TreeSwap(lambda: FollowTheLeader(2)).regret_bound(10)


def test_one_learner_for_all_nodes_is_refused() -> None:
    shared = Hedge(2)
    learner = TreeSwap(lambda: shared, arity=2)
    learner.observe([0.0, 1.0])
    with pytest.raises(ParameterError, match="new Learner each time"):
        learner.observe([0.0, 1.0])


@pytest.mark.parametrize("depth", [3, None])
def test_memory_is_depth_times_actions(depth: int | None) -> None:
    n, arity = 100_000, 4
    rng = np.random.default_rng(0)
    losses = rng.random((3, n))
    tracemalloc.start()
    try:
        learner = TreeSwap(lambda: Hedge(n, rounds=arity), arity=arity, depth=depth)
        for t in range(64):
            learner.act()
            learner.observe(losses[t % 3])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 10 * 4 * n * 8  # ten vectors for each of at most four heights


@pytest.mark.parametrize(("arity", "depth"), [(2, None), (4, None), (4, 4)])
def test_work_is_amortised_constant(arity: int, depth: int | None) -> None:
    """Counted in calls that touch all actions: a round costs one observe, and arity/(arity − 1) acts and makings."""
    calls = {"make": 0, "act": 0, "observe": 0}

    class Counting(Hedge):
        def __init__(self) -> None:
            calls["make"] += 1
            super().__init__(2, rounds=arity)

        def _choose(self) -> Array:
            calls["act"] += 1
            return super()._choose()

        def _learn(self, loss: LinearLoss) -> None:
            calls["observe"] += 1
            super()._learn(loss)

    rounds = 256
    learner = TreeSwap(Counting, arity=arity, depth=depth)
    for _ in range(rounds):
        learner.act()
        learner.observe([0.0, 1.0])
    assert calls["observe"] <= rounds
    assert calls["act"] <= rounds * arity / (arity - 1) + 10
    assert calls["make"] <= rounds / (arity - 1) + 10


def _clairvoyant_regret(losses: Array, arity: int, depth: int | None) -> float:
    """Labelled swap regret of TreeSwap with Be-The-Leader, from the definition, on a tree cut off after the losses."""
    rounds, total = len(losses), 0.0
    heights = [depth or next(m for m in range(1, 99) if t < arity**m) for t in range(rounds)]
    for height in range(max(heights)):
        size = arity**height
        for index in range(-(-rounds // size)):
            mine = range(index * size, min((index + 1) * size, rounds))
            mine_played = [t for t in mine if height < heights[t]]
            if not mine_played:
                continue
            parent = index // arity * arity * size
            play = int(np.argmin(losses[parent : mine[-1] + 1].sum(axis=0)))  # the leader, this child counted in
            own = losses[mine_played].sum(axis=0)
            total += float(own[play] - own.min()) / heights[mine_played[0]]
    return total


@pytest.mark.parametrize(("arity", "depth"), [(2, 5), (3, 3), (2, None), (3, None)])
def test_a_learner_without_regret_pays_for_the_levels_alone(arity: int, depth: int | None) -> None:
    rounds = arity**depth if depth else 40
    coins = np.random.default_rng(0).integers(0, 2, (rounds, 30)).astype(float)
    alternating = np.array([[t % 2, 1 - t % 2] for t in range(rounds)], dtype=float)
    all_new = 1.0 - np.eye(rounds)  # each round has a good action of its own: the minima span the whole range
    worst = 0.0
    for losses in (coins, alternating, all_new):
        for t in range(1, rounds + 1):
            bound = treeswap_bound(t, arity=arity, depth=depth, regret=lambda steps: 0.0)
            regret = _clairvoyant_regret(losses[:t], arity, depth)
            assert regret <= bound + 1e-9
            worst = max(worst, regret / bound)
    assert worst > 0.8


def test_without_a_horizon_the_levels_term_is_that_of_the_specification() -> None:
    arity = 3
    for rounds in (1, 2, 3, 4, 9, 10, 26, 27, 28, 1000):
        depth = next(m for m in range(1, 99) if rounds <= arity**m)
        kappa = (rounds / depth + sum(arity**m * (1 / m - 1 / (m + 1)) for m in range(1, depth))) / rounds
        bound = treeswap_bound(rounds, arity=arity, regret=lambda steps: 0.0, scale=5.0)
        assert bound == pytest.approx(5.0 * rounds * kappa)
