"""Bets are bets, an e-process is the average over its starts, and it is above 1/α as rarely as it should be."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from treecal._evidence import MOST, EProcess, brier_bet, log_bet
from treecal._typing import Array
from treecal.exceptions import SnapshotError

ROOT_2 = math.sqrt(2)
ENTRIES = st.floats(0, 1).map(lambda x: 0.0 if x < 0.2 else x) | st.sampled_from([1e-320, 1e-200, 1e-12, 1e-9])


@st.composite
def laws(draw: st.DrawFn, count: int = 2) -> list[Array]:
    """Draw so many laws of the same classes, with zeros and tiny probabilities among them."""
    classes = draw(st.integers(2, 5))
    rows = st.lists(ENTRIES, min_size=classes, max_size=classes).map(np.array).filter(lambda row: row.sum() > 0.1)
    return [row / row.sum() for row in draw(st.lists(rows, min_size=count, max_size=count))]


def expectation(bet: Callable[[Array], float], law: Array) -> float:
    """Return the mean of the factor, over classes that the law allows."""
    return math.fsum(law[k] * math.exp(bet(np.eye(len(law))[k])) for k in np.flatnonzero(law))


@given(laws())
def test_for_classes_no_bet_has_an_expectation_above_1(drawn: list[Array]) -> None:
    p, q = drawn
    bets: list[Callable[[Array], float]] = [
        lambda y: log_bet(p, q, y),
        lambda y: brier_bet(p, q, y, diameter=ROOT_2),
    ]
    for bet in bets:
        assert expectation(bet, p) <= 1 + 1e-12


@given(laws(4), st.floats(1e-100, 1))  # a mean that underflows to 0 is not that of the outcomes
def test_outcomes_that_are_points_may_have_any_law_with_the_right_mean(drawn: list[Array], share: float) -> None:
    one, other, q, _ = (np.where(law < 1e-100, 0.0, law) for law in drawn)
    p = share * one + (1 - share) * other
    mean = sum(s * math.exp(log_bet(p, q, y)) for s, y in ((share, one), (1 - share, other)) if s > 0)
    assert mean <= 1 + 1e-9


@given(st.lists(st.floats(-1, 1), min_size=5, max_size=5), st.floats(0, 1))
def test_on_a_box_too(numbers: list[float], share: float) -> None:
    a, b = np.array(numbers[:2]), np.array(numbers[2:4])
    p, q = share * a + (1 - share) * b, np.array([numbers[4], -numbers[4]])
    factors = [math.exp(brier_bet(p, q, y, diameter=2 * ROOT_2)) for y in (a, b)]
    assert share * factors[0] + (1 - share) * factors[1] <= 1 + 1e-12


def test_the_brier_bet_is_as_large_as_can_be() -> None:
    # A little more than the difference of the scores is no bet: its expectation exceeds 1.
    p, q = np.array([0.5, 0.5]), np.array([0.501, 0.499])
    assert expectation(lambda y: 1.01 * brier_bet(p, q, y, diameter=ROOT_2), p) > 1


@given(laws(3))
def test_bets_are_finite_within_their_limits_and_never_nan(drawn: list[Array]) -> None:
    p, q, y = drawn
    for outcome in (y, *np.eye(len(p))):
        assert abs(log_bet(p, q, outcome)) <= math.log(1e9) + 1e-6
        assert abs(brier_bet(p, q, outcome, diameter=ROOT_2)) <= 2


def test_evidence_stays_finite_whatever_the_bets() -> None:
    e = EProcess()
    for bet in [MOST, -math.inf, MOST, math.inf, -5.0]:
        e = e.after(bet)
        assert math.isfinite(e.capital)
        assert 0 < e.value < math.inf
    assert e.log_value > MOST


@given(st.lists(st.floats(-3, 3), max_size=40))
def test_it_is_the_average_over_all_starts(bets: list[float]) -> None:
    e = EProcess()
    assert e.value == 1
    for t, bet in enumerate(bets, 1):
        e = e.after(bet)
        started = [math.exp(math.fsum(bets[k - 1 : t])) / (k * (k + 1)) for k in range(1, t + 1)]
        assert e.value == pytest.approx(math.fsum(started) + 1 / (t + 1), rel=1e-9)
        sums = [math.fsum(bets[k - 1 : t]) for k in range(1, t + 1)] + [0.0]
        assert e.run == pytest.approx(max(sums), abs=1e-9)
        assert sums[e.onset - 1] == pytest.approx(max(sums), abs=1e-9)


@pytest.mark.parametrize("quiet", [0, 100, 5000])
def test_a_change_after_a_long_good_stretch_is_found_soon(quiet: int) -> None:
    e = EProcess()
    for _ in range(quiet):
        e = e.after(-0.1)
    late = 0
    while e.value < 20:
        e, late = e.after(0.1), late + 1
    assert e.onset == quiet + 1
    assert late <= (math.log(20) + math.log((quiet + 1) * (quiet + 2))) / 0.1 + 1  # from the first it takes 37 or less


def test_false_alarms_are_as_rare_as_they_should_be_and_not_much_rarer() -> None:
    rng, alarms = np.random.default_rng(0), 0
    p, q = np.array([0.5, 0.5]), np.array([0.6, 0.4])
    bets = [log_bet(p, q, y) for y in np.eye(2)]
    for classes in rng.integers(2, size=(300, 400)):
        e = EProcess()
        for k in classes:
            e = e.after(bets[k])
            if e.value >= 4:
                alarms += 1
                break
    assert 0.05 < alarms / 300 <= 0.25


@pytest.mark.parametrize(
    "change",
    [{"rounds": -1}, {"rounds": 11}, {"capital": -1e6}, {"capital": 1e9}, {"run": -1.0}, {"run": 1e9}, {"onset": -1}],
)
def test_a_state_that_cannot_be_is_refused(change: dict[str, float]) -> None:
    e = EProcess()
    for bet in [0.5, -0.2] * 5:
        e = e.after(bet)
    assert EProcess.checked(vars(e), most=10) == e
    with pytest.raises(SnapshotError, match="the evidence's"):
        EProcess.checked(vars(e) | change, most=10)
