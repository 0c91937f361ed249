from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from treecal.exceptions import OutcomeError, ParameterError
from treecal.swap import (
    BestResponse,
    L1BallForecaster,
    LinearLoss,
    l1_ball_to_simplex,
    simplex_to_l1_ball,
    swap_regret,
)

FORECASTERS = [lambda s: tc.TreeCal(s, arity=3), lambda s: tc.TreeCal(s, arity=4, depth=3), tc.RunningMean]


@pytest.mark.parametrize("make", FORECASTERS)
@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize(
    ("outcomes", "actions"),
    [
        (tc.Box(0, 1, dim=3), np.eye(3)),
        (tc.Simplex(3), np.array([[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 0.0], [0.1, 0.1, 0.1]])),
        (tc.Simplex(3), tc.Ball(3)),
        (tc.Ball(3, norm="l1"), tc.Box(-1, 1, dim=3)),
        (tc.Box(-1, 1, dim=3), tc.Simplex(3)),
    ],
    ids=repr,
)
def test_best_response_is_within_the_lemmas_bound(
    make: type[tc.RunningMean], adaptive: bool, outcomes: tc.ConvexSet, actions: tc.ConvexSet | np.ndarray
) -> None:
    rng = np.random.default_rng(0)
    learner, ledger = BestResponse(make(outcomes), actions=actions), tc.Ledger(outcomes)
    plays, parts, losses = [], [], []
    for _ in range(60):
        x = learner.parts()
        mean = x.mean if learner.matrix is None else learner.act() @ learner.matrix
        v = outcomes.minimise(-mean) if adaptive else outcomes.sample(rng)
        ledger.record(learner.forecaster.predict(), v)
        plays.append(learner.act())
        parts.append(x)
        losses.append(LinearLoss(v if learner.matrix is None else learner.matrix @ v))
        learner.observe(v)
    for norm in (tc.l1, tc.l2, tc.linf):
        bound = learner.swap_bound(ledger, norm=norm)
        assert learner.matrix is None or swap_regret(plays, losses) <= bound + 1e-9
        assert swap_regret(parts, losses) <= bound + 1e-9
    assert learner.rounds == 60


def test_best_responses_are_best() -> None:
    rng = np.random.default_rng(0)
    learner = BestResponse(tc.TreeCal(tc.Box(0, 1, dim=4), arity=3), actions=np.eye(4))
    for loss in rng.random((20, 4)):
        forecast, play = learner.forecaster.predict(), learner.act()
        expected = np.zeros(4)
        for p, w in zip(forecast.points, forecast.weights, strict=True):
            expected[np.argmin(p)] += w
        np.testing.assert_allclose(play, expected)
        np.testing.assert_allclose(play, learner.parts().mean)
        assert learner.parts().nodes is forecast.nodes
        learner.observe(loss)
    with pytest.raises(OutcomeError):
        learner.observe([0.0, 1.0, np.nan, 0.0])
    assert learner.rounds == 20


def test_bad_best_responses_are_named() -> None:
    forecaster = tc.TreeCal(tc.Simplex(3))
    for actions in (np.eye(2), np.eye(3)[:1], tc.Ball(2)):
        with pytest.raises(ParameterError):
            BestResponse(forecaster, actions=actions)
    with pytest.raises(ParameterError, match="Forecaster"):
        BestResponse(None, actions=np.eye(3))  # type: ignore[arg-type]


@given(dim=st.integers(1, 5), seed=st.integers(0, 10**6), size=st.sampled_from([0.0, 0.3, 1.0, 1 + 5e-10]))
@settings(max_examples=60, deadline=None)
def test_ball_and_simplex_map_onto_each_other(dim: int, seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    ball, simplex = tc.Ball(dim, norm="l1"), tc.Simplex(2 * dim + 1)
    y = rng.normal(size=(3, dim))
    y *= size / tc.l1(y)[:, None]
    z = l1_ball_to_simplex(y)
    assert simplex.contains(z).all()
    np.testing.assert_allclose(simplex_to_l1_ball(z), y, atol=1e-9)
    if size <= 1:
        np.testing.assert_allclose(simplex_to_l1_ball(z), y, atol=1e-15)
    a, b = simplex.sample(rng, 5), simplex.sample(rng, 5)
    assert ball.contains(simplex_to_l1_ball(a)).all()
    assert (tc.l1(simplex_to_l1_ball(a) - simplex_to_l1_ball(b)) <= tc.l1(a - b) + 1e-12).all()


@pytest.mark.parametrize("make", FORECASTERS)
def test_the_balls_error_is_at_most_the_simplexs(make: type[tc.RunningMean]) -> None:
    rng = np.random.default_rng(0)
    ball, simplex = tc.Ball(2, norm="l1"), tc.Simplex(5)
    inner, outer = make(simplex), L1BallForecaster(make(simplex))
    on_ball, on_simplex = tc.Ledger(ball), tc.Ledger(simplex)
    for t in range(64):
        y = ball.sample(rng) if t % 3 else ball.minimise(outer.predict().mean)
        assert np.array_equal(outer.predict().points, simplex_to_l1_ball(inner.predict().points))
        on_ball.record(outer.predict(), y)
        on_simplex.record(inner.predict(), l1_ball_to_simplex(y))
        outer.update(y)
        inner.update(l1_ball_to_simplex(y))
        for per_node in (False, True):
            assert on_ball.error("l1", per_node=per_node) <= on_simplex.error("l1", per_node=per_node) + 1e-12
    assert outer.rounds == 64
    with pytest.raises(OutcomeError, match="round 65"):
        outer.update([1.0, 1.0])
    again = L1BallForecaster(make(simplex))
    again.set_state(outer.get_state())
    if outer.rounds < 64 or not isinstance(inner, tc.TreeCal) or inner.depth is None:
        assert again.predict() == outer.predict()


def test_bad_maps_are_named() -> None:
    with pytest.raises(ParameterError):
        simplex_to_l1_ball([0.5, 0.5])
    with pytest.raises(ParameterError, match="2d"):
        L1BallForecaster(tc.TreeCal(tc.Simplex(4)))
