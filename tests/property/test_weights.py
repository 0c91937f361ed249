"""Sample weights of a ledger, and many rounds at once."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.strategies import one_hot, play
from treecal import ledger as ledger_module
from treecal.exceptions import ParameterError, SnapshotError
from treecal.state import dumps, loads

THREE = tc.Simplex(3)
seeds = st.integers(0, 2**32 - 1)


def same(one: tc.Ledger, other: tc.Ledger) -> bool:
    ours, theirs = one.get_state(), other.get_state()
    return all(np.array_equal(ours[name], theirs[name]) for name in ours)


def rounds(seed: int, size: int = 60) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    points = np.array([[0.25, 0.25, 0.5], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])[rng.integers(3, size=size)]
    return points, rng.integers(3, size=size), rng.integers(0, 4, size=size)


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_whole_weights_are_repeated_rounds(seed: int) -> None:
    points, classes, weights = rounds(seed)
    weighed, repeated = tc.Ledger(THREE), tc.Ledger(THREE)
    for p, y, w in zip(points, classes.tolist(), weights.tolist(), strict=True):
        weighed.record(p, y, weight=w)
        for _ in range(w):
            repeated.record(p, y)
    assert (weighed.rounds, weighed.weight, repeated.weight) == (60, weights.sum(), weights.sum())
    for distance in ("l1", tc.l2.squared, tc.NegativeEntropy()):
        assert weighed.error(distance) == repeated.error(distance)
    squares = float(weights.sum())
    assert weighed.exact().brier(squares) == repeated.exact().brier(squares)
    assert weighed.binned(resolution=0.3).error("l2") == repeated.binned(resolution=0.3).error("l2")
    assert len(weighed.exact()) == len(repeated.exact())


@given(seeds, st.integers(0, 60), st.booleans())
@settings(max_examples=30, deadline=None)
def test_many_rounds_are_the_loop_bit_for_bit(seed: int, cut: int, single: bool) -> None:
    points, classes, _ = rounds(seed)
    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=60) * (rng.random(60) < 0.8)
    if single:
        points = rng.dirichlet(np.ones(3), 60).astype(np.float32)
    outcomes = np.where(rng.random((60, 1)) < 0.5, np.eye(3)[classes], rng.dirichlet(np.ones(3), 60))
    loop, many = tc.Ledger(THREE), tc.Ledger(THREE)
    for p, y, w in zip(points, outcomes, weights, strict=True):
        loop.record(p, y, weight=w)
    for p, y, w in zip(points[:cut], outcomes[:cut], weights[:cut], strict=True):
        many.record(p, y, weight=w)
    many.record_many(points[cut:], outcomes[cut:], weights=weights[cut:])
    assert same(loop, many)
    assert many.rounds == 60
    names, indices = tc.Ledger(tc.Simplex(classes=["a", "b", "c"])), tc.Ledger(THREE)
    names.record_many(points, np.array(["a", "b", "c"])[classes])
    indices.record_many(points, classes)
    assert names.error("l1") == indices.error("l1")
    unweighed = tc.Ledger(THREE)
    for p, k in zip(points, classes, strict=True):
        unweighed.record(p, k)
    assert same(unweighed, indices)


def test_sums_of_weights_are_those_of_fractions() -> None:
    rng = np.random.default_rng(0)
    weights, classes = rng.exponential(size=400), rng.integers(3, size=400)
    ledger, point = tc.Ledger(THREE), [0.25, 0.25, 0.5]
    ledger.record_many([point] * 400, classes, weights=weights)
    total = sum(map(Fraction, weights.tolist()))
    shares = [sum(map(Fraction, weights[classes == k].tolist()), Fraction(0)) for k in range(3)]
    exact = sum((abs(share / total - Fraction(p)) for share, p in zip(shares, point, strict=True)), Fraction(0))
    assert ledger.error("l1") == pytest.approx(float(exact), rel=1e-15)
    assert ledger.weight == float(total)


def test_forecasts_with_several_points_have_weights_too(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = one_hot(3, 40, np.random.default_rng(0))
    forecasts, _ = play(tc.TreeCal(THREE, arity=2), outcomes)
    adaptive, _ = play(tc.AdaptiveTreeCal(THREE), outcomes)
    for batch in (4096, 8):
        monkeypatch.setattr(ledger_module, "_BATCH", batch)
        weighed, repeated = tc.Ledger(THREE), tc.Ledger(THREE)
        for k, (x, y) in enumerate(zip([*forecasts, *adaptive], [*outcomes, *outcomes], strict=True)):
            weighed.record(x, y, weight=k % 3)
            for _ in range(k % 3):
                repeated.record(x, y)
        for per_node in (False, True):
            ours, theirs = (one.error("l1", per_node=per_node) for one in (weighed, repeated))
            assert ours == pytest.approx(theirs, rel=1e-14)
        assert weighed.rounds == 80


def test_merges_and_snapshots_keep_weights() -> None:
    points, classes, weights = rounds(3)
    whole, halves = tc.Ledger(THREE, tolerance=1e-4), [tc.Ledger(THREE, tolerance=1e-4) for _ in range(2)]
    whole.record_many(points, classes, weights=weights)
    for half, part in zip(halves, (slice(0, 25), slice(25, None)), strict=True):
        half.record_many(points[part], classes[part], weights=weights[part])
    merged = halves[0].merge(halves[1])
    assert same(merged, whole)
    assert merged.tolerance == 1e-4
    again = loads(dumps(whole))
    assert same(again, whole)
    assert (again.tolerance, again.weight) == (1e-4, weights.sum())
    state = whole.get_state()
    for bad in (np.array([-1.0, 0.0]), np.array([1e15, 0.0]), np.array([np.nan, 0.0]), 60.0):
        with pytest.raises(SnapshotError):
            tc.Ledger(THREE).set_state(state | {"weight": bad})


def test_a_round_of_weight_0_is_one_that_does_not_count() -> None:
    ledger = tc.Ledger(THREE)
    ledger.record([0.2, 0.3, 0.5], 1, weight=0)
    assert (ledger.rounds, ledger.weight, len(ledger.exact())) == (1, 0.0, 0)
    assert ledger.error("l1", total=True) == 0.0
    with pytest.raises(ParameterError, match="all rounds have weight 0, so there is no error per round"):
        ledger.error("l1")
    ledger.record_many([[0.2, 0.3, 0.5]] * 2, [0, 0], weights=[0, 0.5])
    assert (ledger.rounds, ledger.weight) == (3, 0.5)
    assert ledger.error("l1") == pytest.approx(1.6)


@pytest.mark.parametrize("weight", [-1, np.nan, np.inf, 1e13, 1e-13, "1", None, True, [1.0]])
def test_other_weights_are_refused_and_nothing_recorded(weight: Any) -> None:
    ledger = tc.Ledger(THREE)
    ledger.record([0.2, 0.3, 0.5], 1)
    before = ledger.get_state()
    with pytest.raises(ParameterError, match="weight is"):
        ledger.record([0.2, 0.3, 0.5], 1, weight=weight)
    if weight is not None and weight is not True:
        with pytest.raises(ParameterError, match="weights"):
            ledger.record_many([[0.2, 0.3, 0.5]] * 2, [1, 1], weights=[1.0, weight])
    assert all(np.array_equal(before[name], value) for name, value in ledger.get_state().items())


def test_many_rounds_are_all_recorded_or_none() -> None:
    ledger = tc.Ledger(THREE)
    good, bad = [0.2, 0.3, 0.5], [0.2, 0.3, 0.6]
    for points, outcomes, weights, message in (
        ([good, bad], [0, 1], None, "forecast at round 2 lies outside"),
        ([good, good], [0, 3], None, "outcome at round 2 is the class 3"),
        ([good, good], [0], None, "2 forecasts and 1 outcomes"),
        ([good, good], [0, 1], [1], "2 rounds and 1 weights"),
        ([good, good], [0.5, 1.0], None, "outcomes from round 1 on are float64 of shape"),
        ([[0.5, 0.5]] * 2, [0, 1], None, "forecasts from round 1 on are"),
        (np.ma.masked_array([good, good], mask=[[False] * 3, [True] * 3]), [0, 1], None, "round 2 has masked entries"),
    ):
        with pytest.raises(tc.TreeCalError, match=message):
            ledger.record_many(points, outcomes, weights=weights)
    assert ledger.rounds == 0
    ledger.record_many(np.empty((0, 3)), [])
    ledger.record_many([], [])
    assert (ledger.rounds, ledger.weight) == (0, 0.0)


def test_a_reading_counts_weights_of_mean_1_as_independent_rounds() -> None:
    ledger = tc.Ledger(THREE)
    ledger.record_many([[0.2, 0.3, 0.5]] * 4 + [[1, 0, 0]], [0, 1, 2, 2, 0], weights=[1000.0] * 5)
    light = tc.Ledger(THREE)
    light.record_many([[0.2, 0.3, 0.5]] * 4 + [[1, 0, 0]], [0, 1, 2, 2, 0])
    from treecal.plots import reliability

    assert reliability(ledger, 2).low.tolist() == pytest.approx(reliability(light, 2).low.tolist())
