"""Stated confidences: exact tests, false discoveries, and what to say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from treecal.auditing import advice, stated
from treecal.exceptions import ForecastError, OutcomeError, ParameterError


@given(seed=st.integers(0, 10**6), rows=st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_equals_scipy(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.integers(0, 11, rows) / 10
    y = (rng.random(rows) < rng.random()).astype(float)
    found = stated(p, y)
    assert [each.value for each in found] == sorted({*p.tolist()})
    p_values = []
    for each in found:
        own = y[p == each.value]
        test = stats.binomtest(int(own.sum()), len(own), each.value)
        interval = test.proportion_ci(0.9)
        assert (each.rows, each.labels, each.right) == (len(own), len(own), own.mean())
        assert (each.low, each.high) == pytest.approx((interval.low, interval.high), abs=1e-9)
        tails = [stats.binomtest(int(own.sum()), len(own), each.value, side).pvalue for side in ("less", "greater")]
        p_values.append(min(1.0, 2 * min(tails)))
    off = stats.false_discovery_control(p_values) <= 0.05
    assert [each.off for each in found] == off.tolist()


def test_what_to_say_is_near_what_was_right_and_never_falls() -> None:
    rng = np.random.default_rng(0)
    p = rng.choice([0.5, 0.6, 0.7, 0.8, 0.9, 0.99], 6000)
    found = stated(p, rng.random(6000) < 0.4 + p / 3)
    says = [each.say for each in found]
    assert says == sorted(says)
    assert says == pytest.approx([each.right for each in found], abs=0.04)
    assert all(each.off for each in found[2:])


def test_whoever_follows_the_advice_says_what_the_table_says() -> None:
    """What is not off by itself, between values that are, moves with these: else 0.8 would be stated above 0.9."""
    p = np.repeat([0.7, 0.8, 0.9], [400, 20, 400])
    found = stated(p, np.concatenate([np.arange(400) < 220, np.arange(20) < 13, np.arange(400) < 260]))
    assert [each.off for each in found] == [True, False, True]
    assert [each.say for each in found] == [0.55, 0.65, 0.65]
    assert advice(found) == "Say 55 % when you mean 70 %; 65 % when you mean 90 %; 65 % when you mean 80 %."
    by_little = stated(np.full(20_000, 0.7), np.arange(20_000) < 14_300)
    assert by_little[0].off
    assert advice(by_little) == "What is off is off by too little to state anything else."


def test_right_confidences_are_left_alone() -> None:
    rng = np.random.default_rng(1)
    p = rng.choice([0.5, 0.7, 0.9], 3000)
    assert [each.say for each in stated(p, rng.random(3000) < p)] == [0.5, 0.7, 0.9]


def test_where_all_labels_agree_a_value_is_not_off_for_certain() -> None:
    p = np.repeat([0.9, 0.5], [12, 400])
    right = np.concatenate([np.ones(12), np.arange(400) % 2])
    found = stated(p, right, probability=1.0)[1]
    assert found.right == 1
    assert found.low < 0.9
    assert not found.off


@pytest.mark.parametrize("judged", [False, True])
def test_few_labels_of_right_confidences_call_few_off(judged: bool) -> None:
    """A value of 97 % has twenty labels, which mostly agree; an interval without what was not seen called it off."""
    rng = np.random.default_rng(1)
    called = 0
    for _ in range(100):
        p = rng.choice([0.5, 0.7, 0.8, 0.9, 0.97], 2000)
        y = (rng.random(2000) < p).astype(float)
        judge = np.where(rng.random(2000) < 0.93, y, 1 - y) if judged else None
        found = stated(p, np.where(rng.random(2000) < 0.05, y, np.nan), probability=0.05, proxy=judge)
        called += any(each.off for each in found)
    assert called <= 10


def test_few_labels_have_the_estimate_of_each_value() -> None:
    rng = np.random.default_rng(0)
    p = rng.choice([0.5, 0.9], 20_000)
    y = (rng.random(20_000) < np.where(p == 0.9, 0.7, 0.5)).astype(float)
    judge = np.where(rng.random(20_000) < 0.9, y, 1 - y)
    few = np.where(rng.random(20_000) < 0.03, y, np.nan)
    half, ninety = stated(p, few, probability=0.03, proxy=judge)
    assert half.low < 0.5 < half.high
    assert not half.off
    assert ninety.off
    assert ninety.say == pytest.approx(0.7)
    alone = stated(p, few, probability=0.03)[1]
    assert ninety.high - ninety.low < 0.8 * (alone.high - alone.low)


def test_invalid_input_is_named() -> None:
    with pytest.raises(ForecastError, match="in row 1"):
        stated([0.5, 1.5], [1, 0])
    with pytest.raises(OutcomeError, match="in row 0"):
        stated([0.5, 0.5], [2, 0])
    with pytest.raises(ParameterError, match="one of each a row"):
        stated([0.5], [1, 0])
    with pytest.raises(ForecastError, match="real numbers"):
        stated(["90%", "70%"], [1, 0])
    with pytest.raises(OutcomeError, match="real numbers"):
        stated([0.9, 0.7], ["yes", "no"])
    hidden = np.arange(40) % 4 == 0
    p, y = np.full(40, 0.9), np.ones(40)
    assert stated(p, np.ma.masked_array(y, hidden)) == stated(p, np.where(hidden, np.nan, y))
    with pytest.raises(ParameterError, match="distinct confidences"):
        stated(np.linspace(0, 1, 300), np.ones(300))


def _false_discoveries(logs: int, few: bool) -> float:
    """Return the mean share of false discoveries where half of ten stated values are right."""
    rng = np.random.default_rng(3)
    shares = []
    values = np.arange(1, 11) / 11
    for _ in range(logs):
        p = rng.choice(values, 4000)
        rate = np.where(p > 0.5, p * 0.8, p)
        y = (rng.random(4000) < rate).astype(float)
        judge = np.where(rng.random(4000) < 0.9, y, 1 - y)
        known = np.where(rng.random(4000) < 0.2, y, np.nan)
        found = stated(p, known, probability=0.2, proxy=judge) if few else stated(p, y)
        off = [each for each in found if each.off]
        shares.append(sum(each.value < 0.5 for each in off) / max(len(off), 1))
    return float(np.mean(shares))


def test_false_discoveries_are_few() -> None:
    assert _false_discoveries(60, few=False) <= 0.05


@pytest.mark.heavy
@pytest.mark.parametrize("few", [False, True])
def test_false_discoveries_are_few_in_a_thousand_logs(few: bool) -> None:
    found = _false_discoveries(1000, few)
    print("few labels" if few else "all labels", found)
    assert found <= 0.05
