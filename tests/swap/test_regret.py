from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from treecal._typing import Array
from treecal.exceptions import LossError, ParameterError, TreeCalError, UnsupportedError
from treecal.swap import (
    ActionRegret,
    BregmanLoss,
    FollowTheLeader,
    Hedge,
    LinearLoss,
    Loss,
    PointRegret,
    QuadraticLoss,
    TreeSwap,
    external_regret,
    swap_regret,
)


def _brute_force(plays: Array, losses: Array) -> float:
    n = plays.shape[1]
    return max(
        float(sum(x[a] * (loss[a] - loss[swap[a]]) for x, loss in zip(plays, losses, strict=True) for a in range(n)))
        for swap in itertools.product(range(n), repeat=n)
    )


@given(n=st.integers(2, 4), rounds=st.integers(1, 7), seed=st.integers(0, 10**6), pure=st.booleans())
@settings(max_examples=60, deadline=None)
def test_swap_regret_is_that_of_the_best_swap_function(n: int, rounds: int, seed: int, pure: bool) -> None:
    rng = np.random.default_rng(seed)
    losses = rng.normal(size=(rounds, n))
    drawn = rng.integers(n, size=rounds)
    plays = np.eye(n)[drawn] if pure else rng.dirichlet(np.full(n, 0.5), size=rounds)
    expected = _brute_force(plays, losses)
    assert swap_regret(plays, losses) == pytest.approx(expected, abs=1e-12)
    best = max(float((plays * losses).sum() - losses[:, b].sum()) for b in range(n))
    assert external_regret(plays, losses) == pytest.approx(best, abs=1e-12)
    assert expected >= best - 1e-12
    if pure:
        assert swap_regret(drawn, losses) == swap_regret(plays, losses)
        assert external_regret(drawn, losses) == external_regret(plays, losses)


def test_streaming_is_batch_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    plays, losses = rng.dirichlet(np.ones(5), size=300), rng.normal(size=(300, 5))
    stream = ActionRegret(5)
    for t, (x, loss) in enumerate(zip(plays, losses, strict=True), start=1):
        stream.record(x, loss)
        if t % 50 == 0:
            assert stream.swap() == swap_regret(plays[:t], losses[:t])
            assert stream.external() == external_regret(plays[:t], losses[:t])
            assert stream.rounds == t


def _points(space: tc.ConvexSet, rng: np.random.Generator) -> list[tc.Forecast]:
    corners = space.project(np.round(rng.normal(size=(4, space.dim)), 1))
    labels = rng.integers(0, 2, size=(40, 2, 2))
    return [
        tc.Forecast(corners[rng.integers(4, size=2)], weights=[0.25, 0.75], nodes=label, space=space)
        for label in labels
    ]


@pytest.mark.parametrize("per_node", [False, True])
@pytest.mark.parametrize("space", [tc.Ball(2), tc.Box(-1, 1, dim=2), tc.Simplex(2)], ids=repr)
def test_linear_swap_regret_is_that_of_its_definition(space: tc.ConvexSet, per_node: bool) -> None:
    rng = np.random.default_rng(0)
    plays = _points(space, rng)
    vectors = rng.normal(size=(len(plays), 2))
    sums: dict[tuple[object, ...], Array] = {}
    for x, v in zip(plays, vectors, strict=True):
        assert x.nodes is not None
        for p, w, label in zip(x.points, x.weights, x.nodes, strict=True):
            key = (tuple(p), tuple(label) if per_node else ())
            sums[key] = sums.get(key, np.zeros(2)) + w * v
    expected = sum(v @ np.array(key[0]) - v @ space.minimise(v) for key, v in sums.items())
    losses = [LinearLoss(v) for v in vectors]
    assert swap_regret(plays, losses, per_node=per_node) == pytest.approx(expected)
    stream = PointRegret(space)
    for x, loss in zip(plays, losses, strict=True):
        stream.record(x, loss)
    assert stream.swap(per_node=per_node) == swap_regret(plays, losses, per_node=per_node)
    assert stream.external() == external_regret(plays, losses)
    total = vectors.sum(axis=0)
    paid = sum(x.mean @ v for x, v in zip(plays, vectors, strict=True))
    assert stream.external() == pytest.approx(paid - total @ space.minimise(total))
    assert swap_regret(plays, losses) <= swap_regret(plays, losses, per_node=True) + 1e-12
    assert stream.external() <= stream.swap() + 1e-12


@pytest.mark.parametrize("regularizer", [tc.SquaredEuclidean(), tc.SmoothedEntropy(3)], ids=repr)
def test_bregman_swap_regret_is_calibration_error(regularizer: tc.SquaredEuclidean | tc.SmoothedEntropy) -> None:
    """Lemma 2.2; and, from the definition, no swap of points does better."""
    space, rng = tc.Simplex(3), np.random.default_rng(1)
    forecaster, ledger, plays, losses = tc.TreeCal(space, arity=3), tc.Ledger(space), [], []
    for y in np.eye(3)[rng.integers(3, size=50)]:
        x = forecaster.predict()
        ledger.record(x, y)
        plays.append(x)
        losses.append(BregmanLoss(regularizer, y))
        forecaster.update(y)
    for per_node in (False, True):
        found = swap_regret(plays, losses, per_node=per_node)
        assert found == ledger.error(regularizer, per_node=per_node, total=True)
    table = ledger.table(regularizer)
    to = {tuple(p): q for p, q in zip(table.forecast, table.outcome, strict=True)}

    def gain(target: dict[tuple[float, ...], Array]) -> float:
        return float(
            sum(
                w * (loss.value(p) - loss.value(target[tuple(p)]))
                for x, loss in zip(plays, losses, strict=True)
                for p, w in zip(x.points, x.weights, strict=True)
            )
        )

    assert gain(to) == pytest.approx(swap_regret(plays, losses))
    for _ in range(20):
        other = {p: space.project(q + 0.1 * rng.normal(size=3)) for p, q in to.items()}
        assert gain(other) <= swap_regret(plays, losses) + 1e-9
    assert external_regret(plays, losses) <= swap_regret(plays, losses) + 1e-9


def test_pure_regret_of_points() -> None:
    space = tc.Ball(2)
    points = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    losses = [LinearLoss(p) for p in points]
    assert swap_regret(points, losses, space=space) == pytest.approx(2 * 2 + 1 * 2)
    assert external_regret(points, losses, space=space) == pytest.approx(3 + np.sqrt(5))


@pytest.mark.parametrize("depth", [3, None])
def test_per_node_regret_is_that_by_node_and_action(depth: int | None) -> None:
    n, rng = 4, np.random.default_rng(0)
    learner = TreeSwap(lambda: Hedge(n, rounds=4), arity=4, depth=depth)
    path, mixture, parts, losses, weights = PointRegret(tc.Simplex(n)), ActionRegret(n), [], [], []
    for loss in rng.random((64, n)):
        parts.append(learner.parts())
        weights.append(learner.act())
        losses.append(LinearLoss(loss))
        path.record(parts[-1], loss)
        mixture.record(weights[-1], loss)
        learner.observe(loss)
        assert path.swap(per_node=True) == pytest.approx(swap_regret(parts, losses, per_node=True))
    # By label and action, as by label and weights: a node's weights do not change while it lives.
    by_node: dict[tuple[int, ...], Array] = {}
    for x, loss in zip(parts, losses, strict=True):
        assert x.nodes is not None
        for p, w, label in zip(x.points, x.weights, x.nodes, strict=True):
            by_node[tuple(label)] = by_node.get(tuple(label), np.zeros((n, n))) + w * np.outer(p, loss.vector)
    by_action = sum(float((np.diagonal(s) - s.min(axis=1)).sum()) for s in by_node.values())
    assert path.swap(per_node=True) == pytest.approx(by_action)
    assert mixture.swap() <= path.swap(per_node=True) + 1e-12
    assert mixture.swap() == swap_regret(weights, losses)


def test_large_action_sets_are_refused_with_a_way_out() -> None:
    with pytest.raises(UnsupportedError, match=r"80 GB(.|\n)*swap=False"):
        ActionRegret(100_000)
    regret = ActionRegret(100_000, swap=False)
    regret.record(np.full(100_000, 1e-5), np.r_[0.0, np.ones(99_999)])
    assert regret.external() == pytest.approx(1 - 1e-5)
    with pytest.raises(UnsupportedError, match="not recorded"):
        regret.swap()


@pytest.mark.parametrize(
    ("play", "loss"),
    [
        ([0.5, 0.5], [0.0, np.nan]),
        ([0.5, 0.5], [0.0, 1.0, 2.0]),
        ([0.5, 0.6], [0.0, 1.0]),
        ([1.0], [0.0, 1.0]),
        (2, [0.0, 1.0]),
        (-1, [0.0, 1.0]),
        ([0.5, 0.5], BregmanLoss(tc.SquaredEuclidean(), [0.5, 0.5])),
    ],
)
def test_bad_rounds_are_not_recorded(play: list[float], loss: Loss | list[float]) -> None:
    regret = ActionRegret(2)
    regret.record(0, [1.0, 0.0])
    with pytest.raises(TreeCalError):
        regret.record(play, loss)
    assert (regret.rounds, regret.external(), regret.swap()) == (1, 1.0, 1.0)


def test_bad_points_are_not_recorded() -> None:
    space = tc.Simplex(2)
    regret = PointRegret(space)
    good = BregmanLoss(tc.SquaredEuclidean(), [1.0, 0.0])
    regret.record([0.5, 0.5], good)
    for play, loss in [
        ([0.5, 0.6], good),
        ([0.5, 0.5], LinearLoss([0.0, 1.0])),
        ([0.5, 0.5], BregmanLoss(tc.SquaredEuclidean(), [1.0, 0.1])),
        ([0.5, 0.5], good / 2),
    ]:
        with pytest.raises(TreeCalError):
            regret.record(play, loss)
    assert (regret.rounds, regret.swap()) == (1, 0.5)
    with pytest.raises(LossError, match="no closed form"):
        PointRegret(space).record([0.5, 0.5], QuadraticLoss(np.eye(2)))


def test_runs_must_match() -> None:
    with pytest.raises(ParameterError, match="expected one of each a round"):
        swap_regret([[1.0, 0.0]], [[0.0, 1.0]] * 2)
    with pytest.raises(ParameterError, match="weights have no nodes"):
        swap_regret([[1.0, 0.0]], [[0.0, 1.0]], per_node=True)
    learner = TreeSwap(lambda: FollowTheLeader(2), arity=2)
    with pytest.raises(LossError):
        swap_regret([learner.parts()], [QuadraticLoss(np.eye(2))])
