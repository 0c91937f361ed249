"""The monitor of numbers: its bets are bets, on levels that are known; false alarms and power; what an alarm says."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from treecal._typing import Array
from treecal.exceptions import OutcomeError, RepairWarning, TreeCalError, UnsupportedError
from treecal.monitor import Watched
from treecal.monitor._bets import CAPITAL, family
from treecal.monitor._levels import read_levels
from treecal.state import dumps, loads
from treecal.testing import check_corrector

SPACE = tc.Cdf(-10, 10, points=40)
WHOLE = tc.Cdf(0, 20, thresholds=np.arange(20.0))


def quantiles_of(mean: Array, sd: float, levels: tuple[float, ...] = (0.1, 0.5, 0.9)) -> dict[float, Array]:
    ends = {0.05: -1.645, 0.1: -1.2816, 0.25: -0.6745, 0.5: 0.0, 0.75: 0.6745, 0.9: 1.2816, 0.95: 1.645}
    return {level: mean + sd * ends[level] for level in levels}


def law_of_binomial(count: int, share: float) -> Array:
    return np.array([math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(count + 1)])


def capitals_after(before: tc.Monitor, forecast: Any, outcome: float) -> Array:
    m = copy.deepcopy(before)
    m.update(forecast, outcome)
    rounds = m.rounds
    return np.asarray(m._now.evidence.cells[0, :, CAPITAL] - 1 / ((rounds + 1) * (rounds + 2)))


@given(st.integers(1, 6), st.floats(0.2, 0.8), st.integers(0, 99))
@settings(max_examples=8, deadline=None)
def test_no_bet_gains_on_average_on_discrete_outcomes(count: int, share: float, seed: int) -> None:
    """One round after any past, in every form: exactly 1 for the law itself, at most 1 for quantiles and members."""
    before = tc.Monitor(WHOLE)
    rng = np.random.default_rng(seed)
    before.update_many({"mean": np.full(20, 9.0), "sd": np.full(20, 3.0)}, rng.integers(0, 20, 20).astype(float))
    was = before._now.evidence.cells[0, :, CAPITAL]
    law = law_of_binomial(count, share)
    F = np.minimum(np.append(law.cumsum()[:-1], np.ones(20))[:20], 1.0)
    forms: dict[str, Any] = {
        "law": F,
        "quantiles": {q: float((law.cumsum() < q).sum()) for q in (0.1, 0.25, 0.5, 0.9)},
    }
    for name, forecast in forms.items():
        mean = sum(law[k] * capitals_after(before, forecast, float(k)) for k in range(count + 1))
        assert (mean <= was * (1 + 1e-9)).all()
        if name == "law":
            np.testing.assert_allclose(mean, was, rtol=1e-9)


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_no_bet_gains_on_average_on_members_and_an_outcome_that_are_alike(drawn: list[int]) -> None:
    """Members and outcome in every order: the law of exchangeable numbers, tied or not."""
    before = tc.Monitor(WHOLE)
    was = before._now.evidence.cells[0, :, CAPITAL]
    mean = sum(capitals_after(before, {"members": drawn[:i] + drawn[i + 1 :]}, float(drawn[i])) for i in range(4)) / 4
    assert (mean <= was * (1 + 1e-9)).all()
    if len(set(drawn)) == 4:
        np.testing.assert_allclose(mean, was, rtol=1e-9)


def test_the_levels_that_are_known() -> None:
    def levels(forecasts: Any, outcomes: Any) -> tuple[list[float], bool]:
        found, tied = read_levels(SPACE, forecasts, outcomes, before=0, tolerance=1e-6)
        return found[0].tolist(), bool(tied[0, 0])

    known: dict[float, list[float]] = {0.1: [1.0], 0.5: [2.0], 0.9: [3.0]}
    assert levels(known, [1.5]) == ([0.1, 0.5], False)
    assert levels(known, [-5.0]) == ([0.0, 0.1], False)
    assert levels(known, [9.0]) == ([0.9, 1.0], False)
    assert levels(known, [2.0]) == ([0.1, 0.9], True)
    assert levels({"members": [[3.0, 1.0, 2.0]]}, [1.5]) == ([0.25, 0.5], False)
    assert levels({"members": [[3.0, 1.0, 1.0]]}, [1.0]) == ([0.0, 0.75], True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepairWarning)
        assert levels({"members": [[3.0, np.nan, 1.0]]}, [4.0]) == ([2 / 3, 1.0], False)
        assert levels({0.1: [3.0], 0.9: [1.0]}, [2.0]) == ([0.1, 0.9], False)
    # A step of the law within a cell: what is known is the cell.
    assert levels(np.linspace(0.0, 1.0, 40)[None], [-10.0])[0][0] == 0.0


def false_alarms(kind: str, streams: int, rounds: int) -> float:
    """Return the share of streams of right forecasts with an alarm at 5 %."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(streams):
        mean = np.cumsum(rng.normal(size=rounds) * 0.05) % 4 - 2
        space = SPACE
        forecasts: Any = {"mean": mean, "sd": np.full(rounds, 1.5)}
        outcomes = rng.normal(mean, 1.5)
        if kind == "quantiles":
            forecasts = quantiles_of(mean, 1.5, (0.05, 0.25, 0.5, 0.75, 0.95))
        elif kind == "members":
            forecasts = {"members": rng.normal(mean[:, None], 1.5, (rounds, 9)).clip(-10, 10)}
        elif kind == "mixture":
            near = tc.Recalibrator(SPACE).predict_many({"mean": mean - 2, "sd": np.full(rounds, 0.7)})
            far = tc.Recalibrator(SPACE).predict_many({"mean": mean + 2, "sd": np.full(rounds, 1.2)})
            forecasts = 0.4 * near + 0.6 * far
            first = rng.random(rounds) < 0.4
            outcomes = np.where(first, rng.normal(mean - 2, 0.7), rng.normal(mean + 2, 1.2))
        elif kind == "discrete":
            space = WHOLE
            F = law_of_binomial(20, 0.4).cumsum()[:20]
            forecasts = np.tile(F, (rounds, 1))
            outcomes = rng.binomial(20, 0.4, rounds).astype(float)
        m = tc.Monitor(space)
        m.update_many(forecasts, outcomes.clip(space.low, space.high))
        alarms += m.alarm is not None
    return alarms / streams


@pytest.mark.parametrize("kind", ["normal", "mixture", "discrete", "members", "quantiles"])
def test_right_forecasts_rarely_alarm(kind: str) -> None:
    # At 5 % and 60 streams, more than 8 alarms have a probability below 1 %.
    assert false_alarms(kind, 60, 300) <= 8 / 60


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["normal", "mixture", "discrete", "members", "quantiles"])
def test_right_forecasts_alarm_in_one_stream_of_twenty_at_most(kind: str) -> None:
    # Two standard errors of 2,000 streams are 1 %.
    assert false_alarms(kind, 2000, 2000) <= 0.06


@pytest.mark.parametrize(
    ("bias", "spread", "words", "rounds"),
    [
        (0.0, 1.5, "too narrow", 150),
        (0.0, 0.6, "too wide", 150),
        (0.6, 1.0, "too low", 150),
        (-0.6, 1.0, "too high", 150),
    ],
)
@pytest.mark.parametrize("form", ["moments", "quantiles"])
def test_what_is_off_is_found_and_named(bias: float, spread: float, words: str, rounds: int, form: str) -> None:
    found = []
    for seed in range(11):
        rng = np.random.default_rng(seed)
        mean = rng.uniform(-3, 3, 500)
        forecasts: Any = {"mean": mean, "sd": np.ones(500)} if form == "moments" else quantiles_of(mean, 1.0)
        m = tc.Monitor(SPACE)
        m.update_many(forecasts, rng.normal(mean + bias, spread))
        found.append((501, "") if m.alarm is None else (m.alarm.round, m.alarm.direction))
    assert np.median([at for at, _ in found]) <= rounds
    assert sum(direction == words for _, direction in found) >= 8


def test_an_alarm_says_what_was_counted() -> None:
    rng = np.random.default_rng(0)
    m = tc.Monitor(SPACE, alpha=1e-6)
    m.update_many({"mean": np.zeros(400), "sd": np.ones(400)}, rng.normal(0, 1.6, 400))
    assert m.alarm is not None
    assert m.alarm.kind in ("spread", "interval")
    assert -0.35 < m.alarm.gap < -0.1
    assert "too narrow: the " in str(m.alarm)
    assert " % interval held " in str(m.alarm)
    m = tc.Monitor(SPACE, alpha=1e-6)
    m.update_many({"mean": np.zeros(400), "sd": np.ones(400)}, rng.normal(1, 1, 400))
    assert "too low: " in str(m.alarm)
    m = tc.Monitor(SPACE)
    m.update({"members": [1.0, 2.0]}, 1.5)
    m.update(np.r_[np.zeros(20), np.ones(20)], -9.0)
    assert m.alarm is not None
    assert m.alarm.e_value > 1e200
    assert str(m.alarm).endswith(": the outcome was a number, to which the forecast gave the probability 0")


@pytest.mark.parametrize(("levels", "share"), [((0.1, 0.5, 0.9), 0.8), ((0.05, 0.5, 0.95), 0.9)])
def test_an_alarm_speaks_of_an_interval_that_is_known(levels: tuple[float, ...], share: float) -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(0, 1.8, 300)
    forecasts = quantiles_of(np.zeros(300), 1.0, levels)
    m = tc.Monitor(SPACE, alpha=1e-6)
    m.update_many(forecasts, y)
    assert m.alarm is not None
    assert m.alarm.kind in ("spread", "interval")
    assert m.alarm.where == share
    inside = ((y >= forecasts[levels[0]]) & (y <= forecasts[levels[-1]]))[m.alarm.onset - 1 : m.alarm.round].mean()
    assert share + m.alarm.gap == pytest.approx(inside, abs=0.05)
    assert f"the {share:.0%} interval held".replace("%", " %") in str(m.alarm)


def test_one_by_one_at_once_in_groups_and_from_a_snapshot() -> None:
    rng = np.random.default_rng(0)
    mean = rng.normal(size=60)
    outcomes = rng.normal(mean, 1.5)
    one, many = (tc.Monitor(SPACE, by_group=True) for _ in range(2))
    for t in range(60):
        one.update({q: column[t] for q, column in quantiles_of(mean, 1.0).items()}, outcomes[t], group=t % 2)
    many.update_many(quantiles_of(mean, 1.0), outcomes, groups=[t % 2 for t in range(60)])
    assert dumps(one) == dumps(many)
    assert loads(dumps(one)).e_value == many.e_value
    assert len(many.e_values) == 2
    check_corrector(lambda: Watched(tc.Monitor(tc.Cdf(-1, 1, points=3))))
    bank = tc.Bank(SPACE, streams=1, monitor=tc.Monitor(SPACE))
    bank.update([0, 0], [0.5, 1.5])
    assert bank.evidence().rounds.tolist() == [2]


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    m = tc.Monitor(SPACE)
    before = dumps(m)
    with pytest.raises(UnsupportedError, match="a revised forecast is none"):
        m.revise(SPACE.centre, SPACE.centre)
    for outcome in (np.nan, 11.0, "much"):
        with pytest.raises(OutcomeError):
            m.update({0.1: 0, 0.9: 1}, outcome)
    with pytest.raises(TreeCalError):
        m.update_many({0.1: [0, 0], 0.9: [1, 1]}, [0.5])
    with pytest.raises(TreeCalError):
        m.update_many({"mean": [0, 0], "sd": [1, 1]}, [0.5])
    with pytest.raises(TreeCalError):
        m.update({10: 0, 90: 1}, 0.5)
    assert dumps(m) == before
    assert {bet.kind for bet in family(SPACE).bets} == {"shift", "spread", "interval", "level"}
