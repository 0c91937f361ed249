"""Monitors of which only some rows are labelled, each drawn with a known probability."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.monitor import oracle
from treecal import state
from treecal.exceptions import ParameterError, UnsupportedError

Labelled = tuple[np.ndarray, np.ndarray, np.ndarray]


@given(dim=st.integers(2, 4), rounds=st.integers(1, 30), seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_equals_the_oracle(dim: int, rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    P = np.maximum(rng.dirichlet(np.full(dim, 0.5), rounds), 1e-100)
    P /= P.sum(axis=1, keepdims=True)
    y = rng.integers(dim, size=rounds)
    pi = rng.uniform(0.1, 1, rounds)
    m, found = tc.Monitor(tc.Simplex(dim), least_probability=0.1), []
    for p, k, own in zip(P, y, pi, strict=True):
        m.update(p, int(k), probability=own)
        found.append(m.e_value)
    np.testing.assert_allclose(found, oracle.e_values(P, np.eye(dim)[y], 0.1 / pi), rtol=1e-9)
    many = tc.Monitor(tc.Simplex(dim), least_probability=0.1)
    many.update_many(P, y, probabilities=pi)
    assert state.dumps(many) == state.dumps(m)


def test_where_all_are_drawn_alike_not_a_bit_differs() -> None:
    P, y, _ = judged(np.random.default_rng(0), 500)
    plain, few = tc.Monitor(tc.Simplex(2)), tc.Monitor(tc.Simplex(2), least_probability=0.05)
    plain.update_many(P, y)
    few.update_many(P, y, probabilities=np.full(len(y), 0.05))
    for name, part in plain.get_state()["evidence"].items():
        assert part.tobytes() == few.get_state()["evidence"][name].tobytes()


def judged(rng: np.random.Generator, rounds: int, *, least: float = 0.02, sure: float = 1.0) -> Labelled:
    """Return the rows that are labelled: forecasts of 0.3 to 0.7 of what a judge who knows more is asked to review.

    The judge sees whether the outcome will be 0.3 more or less likely than forecast, and asks for labels mostly where
    it is less: among those drawn, the forecasts are too high, though over all rows they are right.
    """
    truth = rng.uniform(0.3, 0.7, rounds)
    more = rng.random(rounds) < 0.5
    y = rng.random(rounds) < truth + np.where(more, 0.3, -0.3)
    pi = np.where(more, least, 10 * least)
    drawn = rng.random(rounds) < pi
    p = 1 / (1 + (1 / truth - 1) ** sure)
    return np.column_stack([1 - p, p])[drawn], y[drawn].astype(int), pi[drawn]


def alarms(streams: int, rounds: int, *, weighted: bool = True, alpha: float = 0.05, sure: float = 1.0) -> float:
    """Return the share of streams in which a monitor raised an alarm."""
    found = 0
    for seed in range(streams):
        P, y, pi = judged(np.random.default_rng(seed), rounds, sure=sure)
        m = tc.Monitor(tc.Simplex(2), alpha=alpha, least_probability=0.02 if weighted else None)
        m.update_many(P, y, probabilities=pi if weighted else None)
        found += m.alarm is not None
    return found / streams


def test_what_is_drawn_for_a_judge_is_no_reason_for_an_alarm() -> None:
    assert alarms(40, 5000, alpha=0.2) <= 0.2
    assert alarms(40, 5000, alpha=0.2, weighted=False) >= 0.9
    assert alarms(10, 40_000, alpha=0.2, sure=4.0) >= 0.9


@pytest.mark.heavy
def test_false_alarms() -> None:
    share = alarms(2000, 20_000)
    print(f"false alarms {share:.4f}")
    assert share <= 0.05


def test_what_is_refused_changes_nothing() -> None:
    m = tc.Monitor(tc.Simplex(2), least_probability=0.1)
    m.update([0.5, 0.5], 1, probability=0.5)
    before = state.dumps(m)
    for wrong in (0.0, 0.05, 1.1, np.nan, -1.0):
        with pytest.raises(ParameterError):
            m.update([0.5, 0.5], 1, probability=wrong)
        with pytest.raises(ParameterError):
            m.update_many([[0.5, 0.5]] * 2, [1, 1], probabilities=[0.5, wrong])
    with pytest.raises(ParameterError):
        m.update_many([[0.5, 0.5]] * 2, [1, 1], probabilities=[0.5])
    assert state.dumps(m) == before
    assert state.dumps(state.loads(before)) == before
    with pytest.raises(UnsupportedError, match="least_probability"):
        tc.Monitor(tc.Simplex(2)).update([0.5, 0.5], 1, probability=0.5)
    for options in ({"least_probability": 0}, {"least_probability": 1.5}):
        with pytest.raises(ParameterError):
            tc.Monitor(tc.Simplex(2), **options)
    with pytest.raises(ParameterError, match="few labels"):
        tc.Bank(tc.Simplex(2), streams=2, monitor=tc.Monitor(tc.Simplex(2), least_probability=0.1))
