"""Correctors of distributions of numbers: right arithmetic, one arithmetic, of use where the model is off, harmless."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import treecal as tc
from treecal._evidence import crps_bet
from treecal._typing import Array
from treecal.correctors import Corrector, LocationSpread, Together
from treecal.correctors._auto import Pool
from treecal.correctors._number_kernels import interpolate, pool_one, rises, score
from treecal.exceptions import ParameterError, SnapshotError
from treecal.state import dumps, loads
from treecal.testing import check_corrector

SPACE = tc.Cdf(0, 100, points=50)
KINDS: dict[str, Callable[[tc.Cdf], Corrector]] = {
    "LocationScale": tc.LocationScale,
    "PitMap": tc.PitMap,
    "Recalibrator": tc.Recalibrator,
    "AutoCorrector": tc.AutoCorrector,
    "Gated": lambda space: tc.Gated(tc.LocationScale(space)),
    "ByGroup": lambda space: tc.ByGroup(tc.LocationScale(space)),
    "Chain": lambda space: tc.Chain([tc.LocationScale(space), tc.Recalibrator(space), tc.PitMap(space)]),
    "GuardedCorrector": lambda space: tc.GuardedCorrector(space, corrector=tc.LocationScale(space)),
}
ONLINE = [name for name in KINDS if name != "GuardedCorrector"]


def stream(rounds: int, *, bias: float = 0.0, spread: float = 1.0, seed: int = 0) -> tuple[dict[str, Array], Array]:
    """A model of normal outcomes that is too low by a bias, and whose sd is too small by a factor."""
    rng = np.random.default_rng(seed)
    mean = rng.uniform(30, 70, rounds)
    return {"mean": mean, "sd": np.full(rounds, 5.0)}, rng.normal(mean + bias, 5 * spread).clip(0, 100)


def mean_score(space: tc.Cdf, points: Array, outcomes: Array) -> float:
    return float((space.widths * (points - space.steps(outcomes)) ** 2).sum(axis=1).mean())


def held(space: tc.Cdf, points: Array, outcomes: Array, share: float) -> float:
    low, high = space.distribution(points).interval(share)
    return float(((outcomes >= low) & (outcomes <= high)).mean())


@pytest.mark.parametrize("name", KINDS)
def test_keeps_the_contract(name: str) -> None:
    check_corrector(lambda: KINDS[name](tc.Cdf(-3, 5, thresholds=[-3.0, -1.0, 0.5, 4.0])))


@pytest.mark.parametrize("name", ONLINE)
def test_many_rounds_are_what_single_ones_are(name: str) -> None:
    forecasts, outcomes = stream(40, bias=4, spread=2)
    one, many = KINDS[name](SPACE), KINDS[name](SPACE)
    rows = [{"mean": mean, "sd": 5.0} for mean in forecasts["mean"]]
    found = []
    for forecast, outcome in zip(rows, outcomes, strict=True):
        found.append(one.predict(forecast).mean)
        one.update(outcome)
    assert_array_equal(many.update_many(forecasts, outcomes), found)
    assert_array_equal(many.predict_many(forecasts), one.predict_many(forecasts))
    assert dumps(one) == dumps(many)
    again = loads(dumps(one))
    assert_array_equal(again.update_many(forecasts, outcomes), many.update_many(forecasts, outcomes))


def test_a_round_by_itself_is_a_row_of_a_batch_whatever_its_weight() -> None:
    """Up to a weight of 1 all parts learn in one compiled call; heavier rounds are learned part by part."""
    forecasts, outcomes = stream(60, bias=4, spread=2)
    weights = np.resize([1.0, 0.3, 2.0, 0.0, 1.0, 3.7], 60)
    one, many = tc.AutoCorrector(SPACE), tc.AutoCorrector(SPACE)
    found = []
    for mean, outcome, weight in zip(forecasts["mean"], outcomes, weights.tolist(), strict=True):
        found.append(one.predict({"mean": mean, "sd": 5.0}).mean)
        one.update(outcome, weight=weight)
    assert_array_equal(many.update_many(forecasts, outcomes, weights=weights), found)
    assert dumps(one) == dumps(many)


@pytest.mark.parametrize("name", ["LocationScale", "PitMap", "Recalibrator", "AutoCorrector", "Chain", "Gated"])
def test_corrects_a_model_that_is_off_and_leaves_one_that_is_right(name: str) -> None:
    forecasts, outcomes = stream(3000, bias=4, spread=2)
    f = KINDS[name](SPACE)
    found = f.update_many(forecasts, outcomes)
    last = slice(1500, None)
    raw = tc.Recalibrator(SPACE).predict_many(forecasts)
    assert mean_score(SPACE, found[last], outcomes[last]) < 0.93 * mean_score(SPACE, raw[last], outcomes[last])
    if name != "PitMap":
        assert held(SPACE, found[last], outcomes[last], 0.8) == pytest.approx(0.8, abs=0.03)
    report = f.report()
    assert report.score == "CRPS"
    assert report.before.brier == pytest.approx(mean_score(SPACE, raw, outcomes))
    assert report.after.brier == pytest.approx(mean_score(SPACE, found, outcomes))
    assert "CRPS" in str(report)
    forecasts, outcomes = stream(3000)
    found = KINDS[name](SPACE).update_many(forecasts, outcomes)
    raw = tc.Recalibrator(SPACE).predict_many(forecasts)
    most = 1.003 if name in ("AutoCorrector", "Gated") else 1.015
    assert mean_score(SPACE, found, outcomes) < most * mean_score(SPACE, raw, outcomes)


@pytest.mark.parametrize("make", [tc.LocationScale, tc.Recalibrator, tc.AutoCorrector])
def test_the_unit_and_the_origin_of_numbers_do_not_matter(make: Callable[[tc.Cdf], Corrector]) -> None:
    # What the plain form F((z − a)/b) does depends on where 0 is: that is why the stretch is about the mean.
    forecasts, outcomes = stream(300, bias=4, spread=2)
    found = make(SPACE).update_many(forecasts, outcomes)
    far = tc.Cdf(-1000, -800, points=50)
    moved = {"mean": 2 * forecasts["mean"] - 1000, "sd": 2 * forecasts["sd"]}
    assert_allclose(make(far).update_many(moved, 2 * outcomes - 1000), found, atol=1e-6)


def test_location_scale_finds_shift_and_stretch_and_follows_them() -> None:
    f = tc.LocationScale(SPACE)
    f.update_many(*stream(3000, bias=4, spread=2))
    spread = 5 / math.sqrt(math.pi)
    assert f.shift == pytest.approx(4 / spread, abs=0.15)
    assert f.stretch == pytest.approx(2, abs=0.15)
    f.update_many(*stream(300, bias=-4, spread=0.7, seed=1))
    assert -3 < f.shift < -0.7
    assert f.stretch < 1.1


@given(st.integers(1, 6), st.integers(1, 7), st.integers(0, 999))
def test_interpolation_is_that_of_numpy_and_jumps_to_the_right(knots: int, points: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    xs = np.sort(rng.integers(0, 5, knots)).astype(float)
    levels = np.sort(rng.random(knots))
    at = np.sort(rng.uniform(-1, 6, points))
    found, slopes = np.empty(points), np.empty(points)
    steep = np.empty(knots - 1)
    rises(xs, levels, steep)
    interpolate(xs, levels, steep, at, found, slopes)
    for x, value in zip(at, found, strict=True):
        if x < xs[0]:
            assert value == levels[0]
        elif x >= xs[-1]:
            assert value == levels[-1]
        else:
            cell = np.flatnonzero(xs <= x)[-1]
            share = (x - xs[cell]) / (xs[cell + 1] - xs[cell])
            assert value == pytest.approx(levels[cell] + share * (levels[cell + 1] - levels[cell]))


@given(st.integers(1, 5), st.integers(1, 8), st.floats(0.05, 3), st.integers(0, 9999))
@settings(max_examples=200)
def test_no_outcome_costs_a_pool_more_than_its_weights_allow(count: int, dim: int, sure: float, seed: int) -> None:
    """The inequality on which the guarantees of `AutoCorrector` and `Mixture` stand, at every step and in between."""
    rng = np.random.default_rng(seed)
    points = np.sort(rng.beta(sure, sure, (count, dim)), axis=1)
    widths = rng.uniform(0.1, 2, dim)
    weights = rng.dirichlet(np.ones(count))
    mean = np.empty(dim)
    scale = pool_one(points, weights, widths, mean)
    assert (np.diff(mean) >= 0).all()
    assert (points.min(axis=0) - 1e-9 <= mean.max()).all()
    for outcome in (*np.tri(dim + 1, dim, -1)[:, ::-1], np.sort(rng.random(dim))):
        costs = np.array([score(point, outcome, widths) for point in points])
        allowed = costs.min()
        if scale > 0:
            allowed -= scale * math.log(weights @ np.exp((costs.min() - costs) / scale))
        assert score(mean, outcome, widths) <= allowed + 1e-9


@pytest.mark.parametrize("adversary", ["random", "against it"])
def test_the_excess_over_the_model_is_within_the_guarantee(adversary: str) -> None:
    rng = np.random.default_rng(0)
    space = tc.Cdf(0, 1, points=8)
    f = tc.AutoCorrector(space, scores=None)
    total = 0.0
    for _ in range(150):
        b = np.sort(rng.random(8))
        x = f.predict(b).mean
        given_ = f._known(np.asarray(b)).given
        steps = np.vstack([np.tri(9, 8, -1)[:, ::-1]])
        gaps = [score(x, y, space.widths) - score(b, y, space.widths) for y in steps]
        at = int(np.argmax(gaps)) if adversary == "against it" else int(rng.integers(9))
        scale = pool_one(np.array(given_), f._now[1].weights.copy(), np.array(space.widths), np.empty(8))
        total += gaps[at] / scale if scale > 0 else 0.0
        f.update(steps[at])
    assert total <= f.excess() + 1e-9


@given(st.integers(1, 9), st.integers(0, 9999))
def test_a_bet_on_scores_gains_nothing_if_the_forecast_is_right(dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, q = np.sort(rng.random((2, dim)), axis=1)
    widths = rng.uniform(0.1, 2, dim)
    # The step that is 1 at the last k thresholds: of an outcome above the other ones.
    bets = [crps_bet(p, q, y, widths) for y in np.tri(dim + 1, dim, -1)[:, ::-1]]
    law = np.diff(np.concatenate([[0.0], p, [1.0]]))[::-1]
    assert (np.abs(bets) <= 2).all()
    assert law @ np.exp(bets) <= 1 + 1e-9


def test_pit_map_gives_intervals_their_coverage() -> None:
    forecasts, outcomes = stream(4000, spread=2)
    found = tc.PitMap(SPACE).update_many(forecasts, outcomes)
    last = slice(2000, None)
    for share in (0.5, 0.8, 0.9):
        assert held(SPACE, found[last], outcomes[last], share) == pytest.approx(share, abs=0.03)


def test_intervals_hold_enough_where_short_memories_are_trusted() -> None:
    """The errors of an autoregression ask for short memories, and few outcomes do not reach as far as the next one."""
    space = tc.Cdf(-15, 15, points=300, clip=True)
    rows = 1200
    last = slice(rows // 2, None)
    shares = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        errors = rng.normal(size=rows)
        for t in range(1, rows):
            errors[t] = 0.99 * errors[t - 1] + 0.14 * errors[t]
        forecasts = {"mean": np.zeros(rows), "sd": np.full(rows, 3.0)}
        outcomes = 3 * errors
        found = tc.AutoCorrector(space, scores=None).update_many(forecasts, outcomes)
        shares.append([held(space, found[last], outcomes[last], share) for share in (0.8, 0.9)])
    assert np.mean(shares, axis=0) == pytest.approx([0.8, 0.9], abs=0.015)


def test_an_unmet_group_announces_the_forecast_itself() -> None:
    f = tc.Recalibrator(SPACE)
    forecasts, outcomes = stream(3, bias=4)
    raw = f.predict_many(forecasts)
    assert_array_equal(f.update_many(forecasts, outcomes, weights=[0, 0, 0]), raw)
    assert_array_equal(f.update_many(forecasts, outcomes)[0], raw[0])
    keys = LocationSpread(locations=4).fresh(SPACE).keys(raw)
    assert len(set(keys)) <= 3
    assert Together().key(raw[0]) == 0


def test_a_forecast_that_is_sure_gets_a_spread() -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform(30, 70, 3000)
    outcomes = rng.normal(points + 2, 3).clip(0, 100)
    space = tc.Cdf(0, 100)
    found = tc.AutoCorrector(space).update_many(points, outcomes)
    assert mean_score(space, found[1500:], outcomes[1500:]) < 0.6 * np.abs(points - outcomes).mean()
    assert held(space, found[1500:], outcomes[1500:], 0.8) == pytest.approx(0.8, abs=0.04)


def test_a_mixture_follows_the_better_model_and_is_corrected() -> None:
    forecasts, outcomes = stream(2000)
    worse = {"mean": forecasts["mean"] + 6, "sd": forecasts["sd"]}
    f = tc.Mixture(SPACE, ["a", "b"], corrector=tc.AutoCorrector(SPACE))
    found = f.update_many({"a": worse, "b": forecasts}, outcomes)
    assert f.weights["b"] > 0.95
    raw = tc.Recalibrator(SPACE).predict_many(forecasts)
    assert mean_score(SPACE, found, outcomes) < 1.01 * mean_score(SPACE, raw, outcomes)
    alone = tc.Mixture(SPACE, 2)
    regret = 0.0
    for t in range(200):
        means = [worse["mean"][t], forecasts["mean"][t]]
        given_ = tc.Recalibrator(SPACE).predict_many({"mean": means, "sd": [5.0, 5.0]})
        weights = np.array(list(alone.weights.values()))
        scale = pool_one(given_, weights, np.array(SPACE.widths), np.empty(50))
        x = alone.predict(given_).mean
        alone.update(outcomes[t])
        y = SPACE.steps(outcomes[t])
        regret += (score(x, y, SPACE.widths) - score(given_[1], y, SPACE.widths)) / scale
    assert regret <= alone.regret() + 1e-9


def test_horizons_are_corrected_each_by_itself() -> None:
    f = tc.ByGroup(tc.AutoCorrector(SPACE))
    forecast = {0.1: 40, 0.5: 50, 0.9: 60}
    for _ in range(40):
        for lead, outcome in ((1, 50.0), (24, 60.0)):
            f.predict(forecast, group=lead)
            f.update(outcome)
    ahead, now = (f[lead].predict(forecast).quantile(0.5) for lead in (24, 1))
    assert ahead > 57 > 53 > now


def test_late_outcomes_do_not_mislead() -> None:
    # The error of a round says much of the next one, and nothing of the one 20 rounds later.
    rng = np.random.default_rng(0)
    error = 0.0
    book = tc.Late(tc.LocationScale(SPACE))
    totals = np.zeros(2)
    outcomes = np.empty(300)
    forecast = {"mean": 50.0, "sd": 9.0}
    raw = tc.LocationScale(SPACE).predict(forecast)
    for t in range(300):
        error = 0.9 * error + rng.normal() * 9 * math.sqrt(1 - 0.81)
        outcomes[t] = 50 + error
        x = book.predict(forecast, id=str(t))
        totals += raw.crps(outcomes[t]), x.crps(outcomes[t])
        if t >= 20:
            book.update(str(t - 20), outcomes[t - 20])
    assert totals[1] < 1.06 * totals[0]


def test_fit_learns_a_log_in_any_order_or_in_time() -> None:
    forecasts, outcomes = stream(600, bias=4, spread=2)
    new, then = stream(600, bias=4, spread=2, seed=1)
    raw = mean_score(SPACE, tc.Recalibrator(SPACE).predict_many(new), then)
    for in_order in (False, True):
        f = tc.AutoCorrector(SPACE).fit(forecasts, outcomes, in_order=in_order)
        assert mean_score(SPACE, f.predict_many(new), then) < 0.95 * raw
        assert f.weights["model"] < 0.1


def test_weights_count_as_rounds() -> None:
    forecasts, outcomes = stream(50, bias=4)
    f, g = tc.LocationScale(SPACE), tc.LocationScale(SPACE)
    before = f.predict_many(forecasts)
    assert_array_equal(f.update_many(forecasts, outcomes, weights=np.zeros(50)), before)
    assert f.shift == 0
    f.update_many(forecasts, outcomes, weights=np.full(50, 3.0))
    g.update_many(forecasts, outcomes)
    assert f.shift > g.shift > 0


def test_what_cannot_be_is_refused() -> None:
    for make in (tc.LocationScale, tc.PitMap):
        with pytest.raises(ParameterError, match=r"expected a Cdf"):
            make(tc.Simplex(3))
    with pytest.raises(ParameterError, match="needs distributions of a number"):
        tc.Recalibrator(tc.Simplex(2), groups=LocationSpread())
    f = tc.LocationScale(SPACE)
    f.update_many(*stream(20))
    state = f.get_state()
    state["own"]["theta"][0, 1] = 40.0
    with pytest.raises(SnapshotError, match="shifts and stretches"):
        tc.LocationScale(SPACE).set_state(state)
    assert Pool.name is None
