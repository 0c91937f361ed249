"""Losses and Decisions: what may be given, what is advised, and the two systems that weights come from."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

import treecal as tc
from treecal._typing import Array
from treecal.exceptions import LossError, ParameterError, SnapshotError
from treecal.forecast import DecisionForecast
from treecal.forecasters import balanced, play_game
from treecal.measures import payoff_loss
from treecal.state import describe, dumps, loads
from treecal.testing import check_corrector, check_forecaster, sample_outcomes

SKY = tc.Simplex(classes=["dry", "rain"])
UMBRELLA = {"go": [0.0, 4.0], "take it": [1.0, 1.0]}
NUMBERS = st.sampled_from([0.0, 0.0, 1.0, 2.0, 1e-3, 1e3]) | st.floats(0, 10)


@pytest.mark.parametrize(
    "costs",
    [
        UMBRELLA,
        {"go": {"rain": 4, "dry": 0}, "take it": {"dry": 1, "rain": 1}},
        pd.DataFrame({"action": ["go", "take it"], "rain": [4.0, 1.0], "dry": [0.0, 1.0]}),
        pd.DataFrame({"dry": [0, 1], "rain": [4, 1]}, index=["go", "take it"]),
        pl.DataFrame({"what": ["go", "take it"], "cost_dry": [0, 1], "cost_rain": [4, 1]}),
        pl.DataFrame({"what": ["go", "take it"], "cost_dry": [0, 1], "cost_rain": [4, 1]}).to_arrow(),
    ],
    ids=["rows", "by class", "pandas", "index", "polars", "arrow"],
)
def test_what_losses_may_be(costs: Any) -> None:
    losses = tc.Losses(SKY, costs)
    assert losses == tc.Losses(SKY, [[0, 4], [1, 1]], actions=["go", "take it"])
    assert losses.advise([0.7, 0.3]) == "take it"
    both = tc.Losses(SKY, {"walk": costs, "picnic": [[0, 1], [1, 0]]})
    assert both.advise([0.7, 0.3]) == {"walk": "take it", "picnic": 0}
    assert both == tc.Losses(SKY, both.costs, actions=both.actions, names=both.names)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ([[0.0, np.nan], [1, 1]], "holds nan at [0, 1]"),
        ([[0.0, np.inf], [1, 1]], "holds inf at [0, 1]"),
        ([[0.0, 1.0]], "one action"),
        ({"only": [0, 1]}, "one action"),
        ([[0, 1, 2], [2, 1, 0]], "expected (actions, 2)"),
        ([0, 1], "expected 2 dimensions"),
        ([["a", "b"], ["c", "d"]], "expected real numbers"),
        ({"a": [0, 1], "b": [1, 0, 1]}, "losses['b'] has shape (3,)"),
        ({"a": {"dry": 1, "snow": 2}, "b": [1, 0]}, "losses['a'] has costs for ['dry', 'snow']"),
        ([[1, 2], [1, 2]], "no difference"),
        ([[1e308, 0], [-1e308, 1]], "more than a float holds"),
        ([[1e9, 0], [1e9 + 1, 0]], "no difference"),
        ({"x": {"a": [0, 1], "b": [1, 0]}, "y": [[1, 1]]}, "losses['y'] has one action"),
        ({1: [[0, 1], [1, 0]]}, "expected a name for each"),
        (pd.DataFrame({"a": ["x", "y"], "dry": [0, 1]}), "expected one of text"),
        (pd.DataFrame({"a": ["x", "x"], "dry": [0, 1], "rain": [1, 0]}), "different names"),
        (pd.DataFrame({"a": ["x", "y"], "dry": [0, 1], "snow": [1, 0]}), "expected ['dry', 'rain']"),
    ],
)
def test_losses_that_cannot_be(costs: Any, message: str) -> None:
    for make in (tc.Losses, tc.Decisions, lambda space, losses: tc.Guarded(space, losses=losses)):
        with pytest.raises(LossError) as found:
            make(SKY, costs)
        assert message in found.value.message


def test_what_losses_of_numbers_may_be() -> None:
    shelf = tc.Cdf(0, 10, points=4)  # cells from 0 to 1.25, 3.75, 6.25, 8.75, 10
    losses = tc.Losses(shelf, {"few": lambda sold: sold, "many": lambda sold: 10 - sold})
    assert losses.tables[0].costs[0].tolist() == [0.625, 2.5, 5.0, 7.5, 9.375]
    assert losses == tc.Losses(shelf, losses.costs, actions=losses.actions)
    assert losses == tc.Losses(
        shelf, lambda action, sold: sold if action == "few" else 10 - sold, actions=["few", "many"]
    )
    assert losses.advise({"q10": 1, "q90": 2}) == losses.advise(2.0) == "few"
    assert losses.advise({"mean": 8, "sd": 1}) == "many"
    f = tc.Decisions(shelf, losses)
    for _ in range(20):
        f.update(9.0)
    again = loads(dumps(f))
    for x in (again.predict(), f.predict()):
        assert isinstance(x, DecisionForecast)
        assert x.action == "many"
    for bad, message in (
        (lambda action, sold: sold, "a function of action and number"),
        ({"a": lambda sold: float("nan"), "b": lambda sold: sold}, "holds nan"),
        ({"a": lambda sold: "x", "b": lambda sold: sold}, "expected real numbers"),
        ([[1, 2], [2, 1]], "the cells of Cdf"),
        ({"x": [[0] * 5, [1] * 5], "y": [[0] * 5, [1] * 5]}, "one decision"),
    ):
        with pytest.raises(LossError) as found:
            tc.Losses(shelf, bad)
        assert message in found.value.message


def test_losses_are_of_classes_and_go_with_their_own_safe_part() -> None:
    with pytest.raises(ParameterError, match="a Simplex"):
        tc.Decisions(tc.Box(0, 1, dim=2), [[0, 1], [1, 0]])
    with pytest.raises(ParameterError, match="the losses are of"):
        tc.Decisions(tc.Simplex(2), tc.Losses(SKY, UMBRELLA))
    for kind in (tc.Guarded, tc.GuardedCorrector):
        with pytest.raises(ParameterError, match="none beside losses"):
            kind(SKY, losses=UMBRELLA, norm="l1")
        for safe in (tc.TreeCal(SKY), tc.Decisions(SKY, [[0, 1], [1, 0]])):
            with pytest.raises(ParameterError, match="the same losses"):
                kind(SKY, losses=UMBRELLA, safe=safe)
    with pytest.raises(ParameterError, match="expected 2"):
        tc.Losses(SKY, UMBRELLA).advise([1.0])


def test_dominated_actions_are_never_advised_and_of_equal_ones_the_first_is() -> None:
    costs = {"never": [2, 2], "a": [0, 1], "same as a": [0, 1], "b": [1, 0], "between": [0.5, 0.5]}
    f = tc.Decisions(SKY, costs)
    seen = set()
    for k in np.random.default_rng(0).integers(0, 2, 200).tolist():
        seen |= set(f.predict().actions)  # type: ignore[attr-defined] # it is a DecisionForecast
        f.update(k)
    assert seen == {"a", "b"}
    alone = tc.Decisions(SKY, {"best": [0, 0], "other": [1, 2]})
    assert alone.predict().action == "best"  # type: ignore[attr-defined]
    found = alone.certificate(rounds=10)
    assert found is not None
    assert found.bound == 0


def test_a_forecast_says_what_to_do() -> None:
    x = DecisionForecast(tc.Forecast([[0.9, 0.1], [0.2, 0.8]], weights=[0.25, 0.75]), tc.Losses(SKY, UMBRELLA))
    assert (x.action, x.actions) == ("take it", {"go": 0.25, "take it": 0.75})
    again = pickle.loads(pickle.dumps(x))
    assert again == x
    assert again.actions == x.actions
    rng = np.random.default_rng(0)
    drawn = [x.draw(rng) for _ in range(400)]
    assert 60 < drawn.count("go") < 140
    both = tc.Losses(SKY, {"walk": UMBRELLA, "picnic": [[0, 1], [1, 0]]})
    assert DecisionForecast(x, both).action == {"walk": "take it", "picnic": 1}


@settings(max_examples=60)
@given(st.integers(1, 6).flatmap(lambda n: arrays(float, (n, n), elements=NUMBERS)))
def test_as_much_flows_into_each_action_as_out_of_it(flow: Array) -> None:
    np.fill_diagonal(flow, 0.0)
    x = balanced(flow)
    assert x.min() >= 0
    assert x.sum() == pytest.approx(1)
    assert np.abs(x @ flow - x * flow.sum(axis=1)).max() <= 1e-9 * max(flow.max(), 1e-300)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 8), st.integers(1, 8)).flatmap(
        lambda shape: arrays(float, shape, elements=st.sampled_from([-1.0, 0.0, 0.5, 2.0]) | st.floats(-3, 3))
    )
)
def test_games_are_solved_as_by_highs(gains: Array) -> None:
    n, d = gains.shape
    p, x = play_game(gains)
    least = np.r_[np.zeros(d), -1.0]
    rows = np.c_[-gains, np.ones(n)]
    bounds = [(0, 1)] * d + [(None, None)]
    value = -(linprog(least, rows, np.zeros(n), np.r_[np.ones(d), 0.0][None], [1], bounds).fun or 0.0)
    assert p.sum() == pytest.approx(1)
    assert (gains @ p).min() == pytest.approx(value, abs=1e-8)
    assert (x @ gains).max() == pytest.approx(value, abs=1e-8)


def several(dim: int) -> dict[str, Any]:
    return {"guess": 1 - np.eye(dim), "bet": {"yes": -2 * np.eye(dim)[0] + 1, "no": np.zeros(dim)}}


@pytest.mark.parametrize("losses", [1 - np.eye(3), several(3)], ids=["one", "two"])
def test_contracts(losses: Any) -> None:
    space = tc.Simplex(3)
    outcomes = sample_outcomes(space, 30, np.random.default_rng(1))
    forecasts = sample_outcomes(space, 30, np.random.default_rng(2))
    check_forecaster(lambda: tc.Decisions(space, losses), outcomes=outcomes)
    check_corrector(lambda: tc.GuardedCorrector(space, losses=losses), outcomes=outcomes, forecasts=forecasts)


def test_points_call_for_their_actions_and_are_the_mean_outcomes_of_their_rounds() -> None:
    rng = np.random.default_rng(0)
    f = tc.Decisions(tc.Simplex(3), rng.random((4, 3)))
    ledger = tc.Ledger(f.space)
    for k in rng.choice(3, 2000, p=[0.5, 0.3, 0.2]).tolist():
        x = f.predict()
        ledger.record(x, k)
        f.update(k)
    assert len(ledger.exact()) <= 4 * 12  # renewed when the weight doubles
    assert ledger.regret(f.losses) == pytest.approx(f.regret, abs=1e-12)
    assert x.points[x.weights.argmax()] == pytest.approx([0.5, 0.3, 0.2], abs=0.1)


def test_the_ledgers_regret_is_the_payoff_loss() -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(3), 500)
    y = rng.integers(0, 3, 500)
    costs = rng.random((4, 3))
    ledger = tc.Ledger(tc.Simplex(3))
    ledger.record_many(P, y)
    assert ledger.regret(costs) == pytest.approx(payoff_loss(P, y, costs))


def test_what_is_saved_says_what_is_decided() -> None:
    for thing in (
        tc.Decisions(SKY, several(2)),
        tc.Guarded(SKY, losses=UMBRELLA),
        tc.GuardedCorrector(SKY, losses=tc.Losses(SKY, UMBRELLA), corrector=tc.PlattScaling(SKY)),
    ):
        again = loads(dumps(thing))
        assert repr(again) == repr(thing)
        assert describe(again) == describe(thing)
        assert again.losses == thing.losses


@pytest.mark.parametrize("change", ["regrets", "diagonal", "points", "sums"])
def test_states_that_cannot_be(change: str) -> None:
    f = tc.Decisions(SKY, UMBRELLA)
    for k in (0, 1, 1, 0):
        f.update(k)
    state = deepcopy(f.get_state())
    before = deepcopy(state)
    if change == "regrets":
        state["regrets"][1] = 5.0
    elif change == "diagonal":
        state["regrets"][0] = 1.0
    elif change == "points":
        state["points"] = state["points"][::-1].copy()
    else:
        state[change] = state[change] + 1.0
    with pytest.raises(SnapshotError):
        f.set_state(state)
    assert all(np.array_equal(f.get_state()[name], value) for name, value in before.items())


def test_certificates_are_in_the_losses_unit() -> None:
    one, ten = (tc.Decisions(SKY, scale * np.array([[0.0, 4.0], [1.0, 1.0]])) for scale in (1, 10))
    small, large = (f.certificate(rounds=1000) for f in (one, ten))
    assert small is not None
    assert large is not None
    assert large.bound == pytest.approx(10 * small.bound)
    assert one.certificate("l1", rounds=10) is None
    assert tc.Guarded(SKY, losses=UMBRELLA).certificate("l1", rounds=10) is None
    assert tc.Guarded(SKY).certificate(tc.Losses(SKY, UMBRELLA), rounds=10) is None
    assert tc.GuardedCorrector(SKY, losses=UMBRELLA).certificate("l1", rounds=10) is None
    # √(A(A − 1)/T) for three actions whose costs differ by 1 at most: 0.024 after 10,000 rounds, in any dimension.
    for dim in (3, 1000):
        found = tc.Decisions(tc.Simplex(dim), np.eye(3, dim)).certificate(rounds=10_000)
        assert found is not None
        assert found.bound <= np.sqrt(6 / 10_000) + 1e-9


def test_outcomes_may_come_late() -> None:
    rng = np.random.default_rng(0)
    late = tc.Late(tc.GuardedCorrector(SKY, losses=UMBRELLA, corrector=tc.PlattScaling(SKY)))
    pending: list[tuple[int, tc.Forecast]] = []
    ledger = tc.Ledger(SKY)
    for t in range(60):
        pending.append((t, late.predict([0.6, 0.4], id=t)))
        if t >= 5:
            number, x = pending.pop(0)
            assert isinstance(x, DecisionForecast)
            k = int(rng.integers(2))
            late.update(number, k)
            ledger.record(x, k)
    measure = tc.Losses(SKY, UMBRELLA)
    found = late.certificate(measure)
    ahead = late.certificate(measure, rounds=1000, outstanding=6)
    assert found is not None
    assert ahead is not None
    assert ledger.regret(measure) <= found.bound


def test_memory_does_not_grow_with_rounds() -> None:
    actions, dim = 5, 40
    f = tc.Decisions(tc.Simplex(dim), np.random.default_rng(0).random((actions, dim)))
    for k in np.random.default_rng(1).integers(0, dim, 300).tolist():
        f.update(k)
    numbers = sum(np.size(value) for value in f.get_state().values())
    assert numbers <= actions**2 + 2 * actions * dim + actions + 1


def test_one_guard_for_outcomes_that_come_late() -> None:
    rng = np.random.default_rng(0)
    measure = tc.Losses(SKY, UMBRELLA)
    late, ledger = tc.Late(tc.Guarded(SKY, losses=measure, budget=0)), tc.Ledger(SKY)
    eager = tc.Late(tc.Guarded(SKY, losses=measure))
    for t in range(80):
        x = late.predict(id=t)
        first = eager.predict(id=t)
        assert isinstance(x, DecisionForecast)
        assert isinstance(first, DecisionForecast)
        k = int(rng.integers(2))
        ledger.record(x, k)
        late.update(t, k)
        if t >= 5:
            eager.update(t - 5, k)
    found = late.certificate(measure)
    assert found is not None
    assert ledger.regret(measure) <= found.bound
