"""What float64 does to long streams and extreme numbers."""

from __future__ import annotations

import numpy as np
import pytest

import treecal as tc
from treecal.exceptions import GeometryError, OutcomeError


def drift(rounds: int, forecaster: tc.Forecaster) -> float:
    """Return the greatest relative distance from 0.1 of any point forecast, looked at in a hundred rounds."""
    outcome, worst = np.array([0.1]), 0.0
    for t in range(rounds):
        forecaster.update(outcome)
        if t % (rounds // 100) == 0 or t == rounds - 1:
            points = forecaster.predict().points
            points = points[points != forecaster.space.centre]  # first children stand at the centre
            worst = max(worst, float(np.abs(points / 0.1 - 1).max(initial=0.0)))
    return worst


@pytest.mark.parametrize("make", [tc.TreeCal, tc.RunningMean])
def test_a_constant_does_not_drift(make: type[tc.Forecaster]) -> None:
    assert drift(20_000, make(tc.Box(0, 1, dim=1))) < 1e-12


@pytest.mark.heavy
@pytest.mark.parametrize("make", [tc.TreeCal, tc.RunningMean])
def test_a_constant_does_not_drift_in_ten_million_rounds(make: type[tc.Forecaster]) -> None:
    assert drift(10_000_000, make(tc.Box(0, 1, dim=1))) < 1e-12


def test_minus_zero_is_zero() -> None:
    space = tc.Box(-1, 1, dim=2)
    a, b = tc.TreeCal(space, arity=2), tc.TreeCal(space, arity=2)
    ledger = tc.Ledger(space)
    for _ in range(7):
        ledger.record(a.predict(), [0.0, -0.0])
        a.update([0.0, -0.0])
        b.update([-0.0, 0.0])
        assert a.predict() == b.predict()
    assert len(ledger.exact()) == 1


def test_subnormals_keep_their_bits() -> None:
    least = 5e-324
    f = tc.TreeCal(tc.Box(0, 1, dim=1), arity=2)
    f.update([0.5])
    f.update([0.5])
    f.update([3 * least])
    assert f.predict().points[0].tolist() == [3 * least]
    assert tc.l2([3 * least, 4 * least]) == 5 * least
    assert tc.Lp(3)([least, 0.0]) == least


def test_numbers_too_large_to_add_are_refused_where_they_come_from() -> None:
    for make in (
        lambda: tc.Box(0, 1e308, dim=2),
        lambda: tc.Ball(2, radius=1e308),
        lambda: tc.Polytope(vertices=[[1e308], [0.0]]),
    ):
        with pytest.raises(GeometryError, match="sums and squares overflow"):
            make()
    f = tc.TreeCal(tc.Box(0, 1e150, dim=1))
    with pytest.raises(OutcomeError, match=r"entry 0 is 1e\+308, expected 0 to 1e\+150"):
        f.update([1e308])
    with np.errstate(all="raise"):
        ledger = tc.Ledger(tc.Box(0, 1e150, dim=1))
        for _ in range(100):
            ledger.record(f.predict(), [1e150])
            f.update([1e150])
        assert ledger.error(tc.l2.squared) < np.inf


def test_norms_neither_overflow_nor_underflow() -> None:
    with np.errstate(all="raise"):
        assert tc.l2([3e200, 4e200]) == pytest.approx(5e200, rel=1e-15)
        assert tc.l2([3e-200, 4e-200]) == pytest.approx(5e-200, rel=1e-15)
        assert tc.Lp(50)([1e-100, 1e-100]) == pytest.approx(1e-100 * 2**0.02, rel=1e-14)
    assert tc.l2([np.inf, 1.0]) == np.inf
    assert tc.l2([1e308, 1e308]) == pytest.approx(2**0.5 * 1e308, rel=1e-15)
