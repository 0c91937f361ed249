"""AutoCorrector: within its guarantee on every sequence, of use where the model is off, harmless where it is right."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq

import treecal as tc
from tests.correctors.models import some_rounds
from tests.some import some
from treecal._typing import Array
from treecal.correctors import MatrixScaling
from treecal.correctors._mixing import ENOUGH, LEAST, Mixing, mix, stack
from treecal.exceptions import ParameterError, SnapshotError
from treecal.state import dumps, loads


def brier(points: Array, outcomes: Array) -> float:
    return float(((outcomes - points) ** 2).sum())


@given(st.integers(2, 5), st.integers(1, 5), st.floats(0.05, 3.0), st.integers(0, 999))
def test_no_outcome_costs_more_than_the_weights_allow(dim: int, count: int, sure: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.dirichlet(np.full(dim, sure), count)
    weights = rng.dirichlet(np.ones(count))
    mean = np.empty((1, dim))
    mix(points[None], weights, Mixing(False, np.ones(dim), weights), mean)
    p = mean[0]
    average = weights @ points
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert (p >= LEAST * average * (1 - 1e-9)).all()
    lifted = np.isclose(p, LEAST * average, rtol=1e-6).any()
    for y in (*np.eye(dim), rng.dirichlet(np.ones(dim))):
        allowed = -math.log(sum(w * math.exp(-brier(each, y)) for w, each in zip(weights, points, strict=True)))
        assert brier(p, y) <= allowed + (2 * LEAST if lifted else 1e-9)


@given(st.integers(3, 10), st.integers(2, 5), st.floats(0.05, 0.5), st.integers(0, 999))
def test_a_class_that_is_nearly_excluded_has_what_the_guarantee_allows(
    dim: int, count: int, sure: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    points = rng.dirichlet(np.full(dim, sure), count)
    weights = rng.dirichlet(np.ones(count))
    mean = np.empty((1, dim))
    mix(points[None], weights, Mixing(False, np.ones(dim), weights), mean)
    allowed = np.array([-math.log(sum(weights * np.exp(-((y - points) ** 2).sum(axis=1)))) for y in np.eye(dim)])
    least = brentq(lambda s: np.maximum(s - allowed, 0).sum() / 2 - 1, 0, 4, xtol=1e-14)
    inner = np.maximum(least - allowed, 0) / 2
    average = weights @ points
    if (inner >= LEAST * average).all():
        assert_allclose(mean[0], inner, atol=1e-9)
        return
    away = average - inner
    share = (mean[0] - inner) @ away / (away @ away)
    assert_allclose(mean[0], inner + share * away, atol=1e-9)
    further = inner + min(share + 1e-6, 1.0) * away
    assert LEAST * (1 - 1e-6) <= share <= 1 + 1e-9
    assert share > 1 - 1e-9 or (((np.eye(dim) - further) ** 2).sum(axis=1) > allowed).any()


def test_a_class_that_all_forecasts_all_but_exclude_is_mixed_too() -> None:
    points = np.array([[[1.0, 1e-200], [1.0, 1e-200]]])
    mean = np.empty((1, 2))
    mix(points, np.array([0.5, 0.5]), Mixing(False, np.ones(2), np.array([0.5, 0.5])), mean)
    assert mean[0, 0] == 1
    assert 0 < mean[0, 1] < 1e-200


def against_it(p: Array, b: Array) -> int:
    """Return the class for which the corrected forecast is worst beside the model's."""
    return int((b - p).argmax())


def by_turns(p: Array, b: Array) -> int:
    return int(p.argmin())


@settings(max_examples=12, deadline=None)
@given(
    dim=st.integers(2, 4),
    rounds=st.integers(1, 120),
    adversary=st.sampled_from([None, against_it, by_turns]),
    sure=st.sampled_from([0.05, 1.0]),
    points=st.booleans(),
    seed=st.integers(0, 999),
)
def test_the_score_is_within_the_guarantee_on_every_sequence(
    dim: int, rounds: int, adversary: Any, sure: float, points: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    f = tc.AutoCorrector(tc.Simplex(dim), scores=None)
    model = announced = 0.0
    for _ in range(rounds):
        b = rng.dirichlet(np.full(dim, sure))
        b /= b.sum()
        p = f.predict(b).mean
        y = np.eye(dim)[rng.integers(dim) if adversary is None else adversary(p, b)]
        if points and adversary is None:
            y = rng.dirichlet(np.ones(dim))
        f.update(y)
        model += brier(b, y)
        announced += brier(p, y)
    assert announced <= model + f.excess() + 1e-9


def test_the_guarantee_is_small_and_grows_like_a_logarithm() -> None:
    f = tc.AutoCorrector(tc.Simplex(2), scores=None)
    assert f.excess() == pytest.approx(math.log(1 / 0.9))
    P, Y = some_rounds(2, 4000, 0)
    f.update_many(P, Y)
    assert 0.3 < f.excess() < 0.5


def test_a_model_that_is_right_is_left_alone_and_one_that_is_off_is_corrected() -> None:
    rng = np.random.default_rng(1)
    truth = rng.dirichlet(np.ones(3), 3000)
    y = np.array([rng.choice(3, p=p) for p in truth])
    Y = np.eye(3)[y]
    right = tc.AutoCorrector(tc.Simplex(3), scores=None)
    assert brier(right.update_many(truth, y), Y) < 1.001 * brier(truth, Y)
    assert right.weights["model"] > 0.5
    sure = truth**3 / (truth**3).sum(axis=1, keepdims=True)
    off = tc.AutoCorrector(tc.Simplex(3), scores=None)
    assert brier(off.update_many(sure, y), Y) < 0.97 * brier(sure, Y)
    assert off.weights["model"] < 0.01


@pytest.mark.parametrize("dim", [2, 3, 9])
def test_batches_are_the_loop_and_snapshots_resume(dim: int) -> None:
    P, Y = some_rounds(dim, 90, 3)
    weights = np.where(np.arange(90) % 7 == 3, 0.0, 1.0)
    one, many = tc.AutoCorrector(tc.Simplex(dim)), tc.AutoCorrector(tc.Simplex(dim))
    means = []
    for t, (b, y, w) in enumerate(zip(P, Y, weights, strict=True)):
        means.append(one.predict(b).mean)
        one = loads(dumps(one)) if t in (0, 50) else one
        one.update(y, weight=w)
    assert_array_equal(many.update_many(P, Y, weights=weights), means)
    assert dumps(many) == dumps(one)
    assert_array_equal(many.predict_many(P[:1]), [one.predict(P[0]).mean])


@pytest.mark.parametrize("in_order", some([False, True], every=2))
@pytest.mark.parametrize("power", [3, 1])
def test_a_fit_trusts_what_is_good_on_rows_that_it_has_not_seen(in_order: bool, power: int) -> None:
    """Whether the model is three times as sure as it should be, or right, which the corrections only are about."""
    rng = np.random.default_rng(2)
    truth = rng.dirichlet(np.ones(3), 20_700)
    y = (rng.random((len(truth), 1)) > truth.cumsum(axis=1)).sum(axis=1).clip(max=2)
    model = truth**power / (truth**power).sum(axis=1, keepdims=True)
    f = tc.AutoCorrector(tc.Simplex(3)).fit(model[:700], y[:700], in_order=in_order)

    def loss(announced: Array) -> float:
        return float(-np.log(announced[np.arange(20_000), y[700:]]).mean())

    parts, _ = f._now
    losses = dict(zip(f.weights, map(loss, f._given_by(parts, model[700:]).swapaxes(0, 1)), strict=True))
    best = min(losses.values())
    assert loss(f.predict_many(model[700:])) <= 1.005 * best  # of what is known by hindsight
    good = [name for name, each in losses.items() if each <= 1.01 * best]
    assert sum(f.weights[name] for name in good) > 2 / 3
    if power == 3:
        assert f.weights["model"] < (0.25 if in_order else 0.1)  # by 175 rows, or by 700
        assert losses["model"] > 1.3 * best
    else:
        assert f.weights["model"] > 0.5


def test_of_one_row_nothing_is_learned_of_the_weights() -> None:
    few = tc.AutoCorrector(tc.Simplex(2)).fit([[0.5, 0.5]], [1])
    assert few.weights["model"] == pytest.approx(0.5, abs=0.002)
    assert few.rounds == 1


@given(st.integers(2, 6), st.integers(1, 40), st.floats(0.1, 10.0), st.integers(0, 999))
def test_no_weights_have_a_better_score_than_those_of_a_fit(count: int, rows: int, spread: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = spread * rng.random((count, rows))
    counts = rng.choice([0.0, 0.5, 1.0, 7.0], rows)
    prior = 0.9 * rng.dirichlet(np.ones(count)) + 0.1 / count

    def score(weights: Array) -> float:
        return float(counts @ np.log(weights @ np.exp(-costs)) + prior @ np.log(weights))

    found = stack(costs, counts, prior)
    assert found.sum() == pytest.approx(1, abs=1e-12)
    allowed = score(found) + ENOUGH * (counts.sum() + 1) + 1e-9
    for away in (1.0, 0.3, 0.1, 0.01):
        for other in rng.dirichlet(np.ones(count), 20):
            assert score((1 - away) * found + away * other) <= allowed
        for vertex in np.eye(count):
            assert away == 1.0 or score((1 - away) * found + away * vertex) <= allowed


def test_a_fit_does_not_depend_on_the_order_of_the_rows() -> None:
    rng = np.random.default_rng(4)
    P = rng.dirichlet(np.ones(3), 400).round(2)
    P[:, 2] = 1 - P[:, 0] - P[:, 1]
    y = rng.integers(3, size=400)
    ranked = np.argsort(y, kind="stable")
    one = tc.AutoCorrector(tc.Simplex(3)).fit(P, y)
    other = tc.AutoCorrector(tc.Simplex(3)).fit(P[ranked], y[ranked])
    assert dumps(one) == dumps(other)


def test_matrix_scaling_undoes_a_confusion_of_classes_that_vector_scaling_cannot() -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(3, size=3000)
    named = np.where(rng.random(3000) < 0.7, (y + 1) % 3, y)  # the model names the next class
    P = np.full((3000, 3), 0.1) + 0.7 * np.eye(3)[named]
    scores = {
        kind: brier(kind(tc.Simplex(3), scores=None).update_many(P, y)[2000:], np.eye(3)[y][2000:]) / 1000
        for kind in (MatrixScaling, tc.VectorScaling)
    }
    assert scores[MatrixScaling] < 0.48
    assert scores[tc.VectorScaling] > 0.6


def test_sets_and_states_that_cannot_be() -> None:
    with pytest.raises(ParameterError, match="expected a Simplex"):
        tc.AutoCorrector(tc.Ball(2))
    f = tc.AutoCorrector(tc.Simplex(2))
    good = f.get_state()
    weighed = good["own"]["weighed"]
    for changed in (
        {"weights": -weighed["weights"]},
        {"weights": np.zeros(5)},
        {"seen": 1},
        {"model": 0.0},
    ):
        with pytest.raises(SnapshotError):
            f.set_state(good | {"own": good["own"] | {"weighed": weighed | changed}})
    f.set_state(good)
