"""A replay is the forecaster, round by round: the same forecasts bit for bit, and the errors of the same ledger."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests import oracle
from tests.engine.support import (
    DISTANCES,
    Make,
    corners,
    groups_of,
    horizon,
    labelled_errors,
    makers,
    replay,
    rows_of,
)
from tests.strategies import play, spaces, streams
from treecal._typing import Array
from treecal.engine import Run
from treecal.exceptions import HorizonError, ParameterError
from treecal.forecasters import Rule
from treecal.geometry import Lp, Norm

ROUNDS = 100
PIECES = st.sampled_from([1, 12, 40, 2**20])  # pieces of one height, of a few, and one piece that holds all


def assert_same_forecasts(run: Run, make: Make, outcomes: Array) -> None:
    forecaster = make()
    forecasts, _ = play(forecaster, outcomes)
    assert run.rounds == len(outcomes)
    for t, x in enumerate(forecasts):
        assert run.forecast(t) == x
    if horizon(forecaster, len(outcomes) + 1) > len(outcomes):
        assert run.forecast(len(outcomes)) == forecaster.predict()
    else:
        with pytest.raises(HorizonError):
            run.forecast(len(outcomes))


def assert_same_errors(run: Run, ledger: tc.Ledger, size: float) -> None:
    """Every error of the run, and of its ledger, table and reading, is the ledger's within rounding."""
    again = run.ledger()
    assert again.rounds == ledger.rounds
    for distance in DISTANCES:
        for per_node in (False, True):
            error = pytest.approx(ledger.error(distance, per_node=per_node), abs=1e-12 * size**2)
            assert run.error(distance, per_node=per_node) == error
            assert again.error(distance, per_node=per_node) == error
        assert run.error(distance, total=True) == run.exact().error(distance, total=True)
        table = run.table(distance)
        assert table.weight @ table.gap / run.rounds == pytest.approx(ledger.error(distance), abs=1e-12 * size**2)
        assert (np.diff(table.weight * table.gap) <= 0).all()


@given(st.data(), PIECES, st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_replay_is_streaming(data: st.DataObject, piece: int, threads: int) -> None:
    space = data.draw(spaces())
    make = data.draw(makers(space))
    rounds = data.draw(st.integers(1, horizon(make(), ROUNDS)))
    outcomes = streams(space, rounds, data.draw(st.integers(0, 10**6)))
    run = replay(outcomes, make, piece=piece, threads=threads)
    _, ledger = play(make(), outcomes)
    assert_same_forecasts(run, make, outcomes)
    assert_same_errors(run, ledger, max(1.0, float(np.abs(outcomes).max())))


@given(st.data(), PIECES, st.integers(2, 5))
@settings(max_examples=25, deadline=None)
def test_one_hot_is_exact(data: st.DataObject, piece: int, dim: int) -> None:
    """TreeCal's masses and outcome sums are whole numbers then, so that nothing is rounded: not one bit differs."""
    space = tc.Simplex(dim)
    make = data.draw(makers(space, adaptive=False))
    rounds = data.draw(st.integers(1, horizon(make(), ROUNDS)))
    classes = np.random.default_rng(data.draw(st.integers(0, 10**6))).integers(dim, size=rounds)
    _, ledger = play(make(), corners(dim, classes))
    for outcomes in (classes, corners(dim, classes)):
        run = replay(outcomes, make, piece=piece)
        assert groups_of(run.exact()) == groups_of(ledger.exact())
        assert rows_of(run.ledger()) == rows_of(ledger)
        for distance in DISTANCES:
            assert run.error(distance) == ledger.error(distance)
            assert run.ledger().error(distance, per_node=True) == ledger.error(distance, per_node=True)


@given(st.data(), PIECES, st.integers(2, 6))
@settings(max_examples=25, deadline=None)
def test_classes_are_corners(data: st.DataObject, piece: int, dim: int) -> None:
    make = data.draw(makers(tc.Simplex(dim)))
    rounds = data.draw(st.integers(1, horizon(make(), ROUNDS)))
    classes = np.random.default_rng(data.draw(st.integers(0, 10**6))).integers(dim, size=rounds)
    run, dense = (replay(outcomes, make, piece=piece) for outcomes in (classes, corners(dim, classes)))
    assert_same_forecasts(run, make, corners(dim, classes))
    assert labelled_errors(run) == pytest.approx(labelled_errors(dense), abs=1e-12)
    for distance in DISTANCES:
        assert run.error(distance) == dense.error(distance)


@pytest.mark.parametrize("rule", ["stick", "block"])
@pytest.mark.parametrize("norm", [Lp(1.5), Lp(3), tc.Mahalanobis([[2.0, 0.5], [0.5, 1.0]])])
def test_weights_are_the_forecasters_own_in_any_norm(rule: Rule, norm: Norm) -> None:
    space = tc.Ball(2)

    def make() -> tc.AdaptiveTreeCal:
        return tc.AdaptiveTreeCal(space, arity=3, rule=rule, norm=norm, rate=20.0)

    outcomes = streams(space, 250, 3)
    assert_same_forecasts(replay(outcomes, make), make, outcomes)


@pytest.mark.parametrize("depth", [None, 4])
@pytest.mark.parametrize("piece", [1, 20])
def test_replay_is_the_paper(depth: int | None, piece: int) -> None:
    """Against the algorithm transcribed literally, in rationals."""
    classes = np.random.default_rng(7).integers(3, size=81)
    outcomes = [tuple(Fraction(int(k == j)) for j in range(3)) for k in classes]
    start = (Fraction(1, 3),) * 3
    played = oracle.growing(outcomes, 3, start) if depth is None else oracle.treecal(outcomes, 3, depth, start)
    run = replay(classes, lambda: tc.TreeCal(tc.Simplex(3), arity=3, depth=depth), piece=piece)
    for per_node in (False, True):
        for distance, exact in ((tc.l1, oracle.one_norm), (tc.l2.squared, oracle.squared_two_norm)):
            error = float(oracle.calibration(played, outcomes, exact, per_node=per_node))
            assert run.error(distance, per_node=per_node, total=True) == pytest.approx(error, rel=1e-13)
    for t, mixture in enumerate(played):
        x = run.forecast(t)
        assert x.nodes is not None
        ours = {tuple(node): point for node, point in zip(x.nodes.tolist(), x.points.tolist(), strict=True)}
        assert ours == {node: [float(entry) for entry in point] for node, point, _ in mixture}


@pytest.mark.parametrize("kind", [tc.TreeCal, tc.AdaptiveTreeCal])
def test_divergences_may_be_infinite(kind: Any) -> None:
    """An outcome that was given probability 0 costs an infinite score, in a replay as in a ledger."""
    classes, entropy = np.random.default_rng(0).integers(3, size=60), tc.NegativeEntropy()
    for mix in (0.0, 0.1):
        make = partial(kind, tc.Simplex(3), mix=mix)
        _, ledger = play(make(), corners(3, classes))
        run = replay(classes, make, distances=[entropy])
        chunked = replay(iter([classes[:20], classes[20:]]), make, distances=[entropy])
        assert np.isinf(ledger.error(entropy)) == (mix == 0)
        assert run.error(entropy) == pytest.approx(ledger.error(entropy), rel=1e-12)
        assert run.error(entropy, per_node=True) == pytest.approx(ledger.error(entropy, per_node=True), rel=1e-12)
        assert chunked.error(entropy, per_node=True) == run.error(entropy, per_node=True)


def test_a_set_stands_for_treecal() -> None:
    classes = np.random.default_rng(0).integers(3, size=500)
    run, same = tc.replay(classes, tc.Simplex(3), arity=5), tc.replay(classes, tc.TreeCal(tc.Simplex(3), arity=5))
    assert labelled_errors(run) == labelled_errors(same)
    assert run.forecast(321) == same.forecast(321)
    assert repr(run).startswith("Run(500 rounds of TreeCal(Simplex(3), arity=5")
    assert run.space == tc.Simplex(3)


@pytest.mark.parametrize("adaptive", [False, True])
def test_no_rounds(adaptive: bool) -> None:
    def make() -> tc.TreeCal | tc.AdaptiveTreeCal:
        return (tc.AdaptiveTreeCal if adaptive else tc.TreeCal)(tc.Simplex(3))

    nothing: list[Any] = [[], np.empty((0, 3)), np.empty(0, np.int64)]
    for outcomes in nothing:
        run = tc.replay(outcomes, make())
        assert (run.rounds, run.ledger().rounds, len(run.exact())) == (0, 0, 0)
        assert run.forecast(0) == make().predict()
        for per_node in (False, True):
            assert run.error("linf", per_node=per_node, total=True) == 0
            with pytest.raises(ParameterError, match="no round"):
                run.error("l1", per_node=per_node)
    run = tc.replay(iter([np.empty((0, 3))]), make())
    assert run.rounds == 0
    assert run.error("l1", per_node=True, total=True) == 0


def test_the_forecaster_is_left_alone() -> None:
    for forecaster in (tc.TreeCal(tc.Simplex(2)), tc.AdaptiveTreeCal(tc.Simplex(2))):
        run = tc.replay([0, 1, 1, 0] * 30, forecaster)
        run.forecast(100)
        assert forecaster.rounds == 0
        assert forecaster.predict() == run.forecast(0)


def test_arguments_that_make_no_sense() -> None:
    class Mine(tc.TreeCal):
        """One whose forecasts may be anything."""

    used = tc.TreeCal(tc.Simplex(2))
    used.update([0, 1])
    for forecaster in (Mine(tc.Simplex(2)), tc.RunningMean(tc.Simplex(2)), "simplex", None):
        with pytest.raises(ParameterError, match="a set, a TreeCal or an AdaptiveTreeCal"):
            tc.replay([0, 1], forecaster)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="has seen outcomes"):
        tc.replay([0, 1], used)
    for threads in (0, -1, 1.5, True):
        with pytest.raises(ParameterError, match="threads"):
            tc.replay([0, 1], tc.Simplex(2), threads=threads)  # type: ignore[arg-type]
    run = tc.replay([0, 1], tc.Simplex(2))
    for t in (-1, 3, 0.5, None):
        with pytest.raises(ParameterError, match="t is"):
            run.forecast(t)  # type: ignore[arg-type]
    with pytest.raises(tc.TreeCalError):
        run.error("l7")


@pytest.mark.parametrize("rule", ["stick", "block"])
def test_the_deepest_tree(rule: Rule) -> None:
    """Heights are sized by the tree; no number of them is taken for the greatest."""
    outcomes = corners(3, np.random.default_rng(0).integers(3, size=50))
    alone, run = (tc.AdaptiveTreeCal(tc.Simplex(3), arity=2, depth=63, rule=rule) for _ in range(2))
    replayed = tc.replay(outcomes, run)
    for t, y in enumerate(outcomes):
        assert replayed.forecast(t) == alone.predict()
        alone.update(y)
