"""Tracker: what it is described to be, and its regret against sequences of experts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.forecasters.oracle_guarded import GAMMA, LiteralTracker
from tests.some import some
from tests.strategies import spaces, streams
from treecal._typing import Array
from treecal.exceptions import ParameterError
from treecal.streams import drift, iid, random_walk, regime_switches


def literal(space: tc.ConvexSet) -> LiteralTracker:
    classes = isinstance(space, tc.Simplex)
    return LiteralTracker(space.centre.tolist(), classes=classes, diameter=float(space.diameter("l2")))


def markov(dim: int, rounds: int, rng: np.random.Generator) -> Array:
    """Classes that depend on the one before."""
    law, classes = rng.dirichlet(np.ones(dim) / 2, dim), [0]
    while len(classes) < rounds:
        classes.append(int(rng.choice(dim, p=law[classes[-1]])))
    outcomes: Array = np.eye(dim)[classes]
    return outcomes


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_it_is_what_it_is_described_to_be(data: st.DataObject) -> None:
    space = data.draw(spaces())
    outcomes = streams(space, data.draw(st.integers(1, 60)), data.draw(st.integers(0, 10**6)))
    f, slow, size = tc.Tracker(space), literal(space), max(1.0, float(np.abs(outcomes).max()))
    for y in outcomes:
        np.testing.assert_allclose(f.mean_forecast, slow.q(), rtol=1e-12, atol=1e-12 * size)
        assert space.contains(f.mean_forecast)
        f.update(y)
        slow.learn(y.tolist())
    np.testing.assert_allclose(f.get_state()["weights"], slow.weights, rtol=1e-9)


@pytest.mark.parametrize("dim", [2, 3, 10, 100, 101])
def test_it_is_what_it_is_described_to_be_for_classes(dim: int) -> None:
    """Beyond 100 classes without laws and seasons."""
    f, slow = tc.Tracker(tc.Simplex(dim)), literal(tc.Simplex(dim))
    for y in markov(dim, 600 if dim < 100 else 120, np.random.default_rng(dim)):
        np.testing.assert_allclose(f.mean_forecast, slow.q(), rtol=1e-12, atol=1e-15)
        f.update(y)
        slow.learn(y.tolist())
    assert len(f.get_state()["weights"]) == 8 + 6 * (dim <= 100)


def least_losses(losses: Array, most: int) -> list[float]:
    """The least total loss of a sequence of experts with at most 0, 1, …, `most` changes."""
    best = np.full((most + 1, losses.shape[1]), np.inf)
    best[:] = losses[0]
    for row in losses[1:]:
        changed = np.vstack([np.full(losses.shape[1], np.inf), np.tile(best.min(axis=1)[:-1, None], losses.shape[1])])
        best = np.minimum(best, changed) + row
    return [float(each.min()) for each in best]


def assert_regret(space: tc.ConvexSet, outcomes: Array, most: int = 6) -> None:
    f, slow, lost, losses = tc.Tracker(space), literal(space), 0.0, []
    for y in outcomes:
        lost -= math.log(slow.factor(f.mean_forecast.tolist(), y.tolist()))
        losses.append([-math.log(slow.factor(expert, y.tolist())) for expert in slow.experts()])
        f.update(y)
        slow.learn(y.tolist())
    experts, rounds = slow.count, len(outcomes)
    for k, least in enumerate(least_losses(np.array(losses), most)):
        assert lost <= least + math.log(experts) + k * math.log(experts / GAMMA) - (rounds - 1 - k) * math.log(
            1 - GAMMA
        )


@pytest.mark.parametrize("dim", [2, 3, 7])
@pytest.mark.parametrize("seed", some(range(3), every=3))
def test_regret_against_the_best_sequence_of_experts(dim: int, seed: int) -> None:
    space, rng = tc.Simplex(dim), np.random.default_rng(seed)
    halves = np.concatenate([markov(dim, 100, rng), iid(space, 100, rng), markov(dim, 50, rng)])
    for outcomes in (iid(space, 200, rng), regime_switches(space, 250, rng, every=60), halves):
        assert_regret(space, outcomes)
    assert_regret(space, np.eye(dim)[(np.arange(150) // 30) % dim])  # each change is a surprise


@pytest.mark.parametrize("space", [tc.Ball(2), tc.Box([-1.0, 0.0], [1.0, 5.0]), tc.Simplex(3)], ids=repr)
def test_regret_where_outcomes_are_not_classes(space: tc.ConvexSet) -> None:
    rng = np.random.default_rng(0)
    for outcomes in (drift(space, 200, rng), random_walk(space, 200, rng), streams(space, 200, 1)):
        assert_regret(space, outcomes)
    if isinstance(space, tc.Simplex):
        assert_regret(space, space.sample(rng, 200))


def test_it_survives_a_surprise_after_a_long_silence() -> None:
    """Averages of 0 in the last place, and weights of 0, would never come back."""
    f = tc.Tracker(tc.Simplex(2))
    for y in np.eye(2)[[0] * 6000 + [1] * 60]:
        f.update(y)
        assert np.isfinite(f.get_state()["weights"]).all()
        assert f.mean_forecast.min() > 0
    assert f.mean_forecast[1] > 0.9


LAWS, SEASONS = [8, 9, 10, 11], [12, 13]


def test_it_finds_what_suits_the_stream() -> None:
    short, long = [0], [4, 5, 6, 7, *LAWS]  # a law is a long average where the last classes say nothing
    for outcomes, suited in (
        (np.eye(2)[np.arange(500) % 2], LAWS),
        (iid(tc.Simplex(2), 5000, np.random.default_rng(0), mean=[0.3, 0.7]), long),
        (np.eye(2)[(np.arange(2000) // 25) % 2], short + LAWS),
    ):
        f = tc.Tracker(tc.Simplex(2))
        for y in outcomes:
            f.update(y)
        assert f.get_state()["weights"][suited].sum() > 0.85


def seasonal(period: int, rounds: int, rng: np.random.Generator) -> Array:
    """Classes of a season that is repeated, nine times out of ten; its own are drawn at random."""
    season = rng.integers(4, size=period)
    classes = np.where(rng.random(rounds) < 0.9, season[np.arange(rounds) % period], rng.integers(4, size=rounds))
    outcomes: Array = np.eye(4)[classes]
    return outcomes


@pytest.mark.parametrize(("period", "given"), [(7, None), (12, None), (48, None), (41, 41), (168, None)])
def test_it_finds_a_season_or_is_told_of_it(period: int, given: int | None) -> None:
    f, losses = tc.Tracker(tc.Simplex(4), period=given), []
    for y in seasonal(period, 8 * period + 400, np.random.default_rng(period)):
        losses.append(((f.mean_forecast - y) ** 2).sum())
        f.update(y)
    assert f.get_state()["weights"][SEASONS].sum() > 0.8
    assert np.mean(losses[-300:]) < 0.3  # 0.75 for an average


@pytest.mark.parametrize("period", [None, 3, 30])
def test_seasons_are_what_they_are_described_to_be(period: int | None) -> None:
    space = tc.Simplex(4)
    f = tc.Tracker(space, period=period)
    slow = LiteralTracker(space.centre.tolist(), classes=True, diameter=math.sqrt(2), period=period)
    for y in seasonal(12, 420, np.random.default_rng(1)):
        np.testing.assert_allclose(f.mean_forecast, slow.q(), rtol=1e-12, atol=1e-15)
        f.update(y)
        slow.learn(y.tolist())
    holds = [slow.holds[lag] for lags in slow.periods for lag in lags]
    np.testing.assert_allclose(f.get_state()["holds"], holds, rtol=1e-12)


@pytest.mark.parametrize("dim", [2, 4])
def test_streams_without_structure_do_not_pay(dim: int) -> None:
    """Laws and seasons cost an independent stream at most 0.002 of the Brier score of averages alone."""
    rng, space = np.random.default_rng(dim), tc.Simplex(dim)
    for outcomes in (iid(space, 3000, rng), regime_switches(space, 3000, rng, every=300)):
        f, slow, scores = tc.Tracker(space), LiteralTracker(space.centre.tolist(), classes=True, diameter=1.0), []
        slow.with_laws, slow.count, slow.weights = False, 8, [1 / 8] * 8
        for y in outcomes:
            scores.append([((f.mean_forecast - y) ** 2).sum(), ((np.array(slow.q()) - y) ** 2).sum()])
            f.update(y)
            slow.learn(y.tolist())
        whole, averages = np.mean(scores, axis=0)
        assert whole <= averages + 0.002


def test_memory_is_bounded() -> None:
    rng = np.random.default_rng(0)
    for dim, contexts in ((2, 31), (30, 136), (90, 91)):
        f = tc.Tracker(tc.Simplex(dim))
        for k in rng.integers(dim, size=2500 if dim > 2 else 1500):
            f.update(np.eye(dim)[k])
        assert contexts / 2 < len(f.get_state()["sums"]) <= contexts


def test_periods_that_cannot_be_are_refused() -> None:
    for period in (0, 1, 2.5, 10**6):
        with pytest.raises(ParameterError, match="period"):
            tc.Tracker(tc.Simplex(2), period=period)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="period"):
        tc.Tracker(tc.Ball(2), period=7)
    assert repr(tc.Tracker(tc.Simplex(2), period=7)) == "Tracker(Simplex(2), period=7)"
