from __future__ import annotations

import math
import sys
from typing import Any

import pytest

import treecal as tc
from treecal.exceptions import TreeCalError
from treecal.theory import log_rounds_ball, log_rounds_simplex


@pytest.mark.parametrize("space", [tc.Ball(3), tc.Simplex(2), tc.Simplex(20)], ids=repr)
@pytest.mark.parametrize("rounds", [1, 2, 7, 100, 4096, 10**6])
def test_the_plan_is_certified_and_no_common_tree_beats_it(space: tc.ConvexSet, rounds: int) -> None:
    best = tc.plan(space, "l2", rounds=rounds)
    again = tc.certificate(space, "l2", rounds=rounds, arity=best.arity, depth=best.depth)
    assert best.bound == again.bound
    for arity in (2, 4, 8, 16):
        depth = max(1, math.ceil(math.log(rounds, arity) - 1e-9))
        for d in (None, depth):
            assert best.bound <= tc.certificate(space, "l2", rounds=rounds, arity=arity, depth=d).bound


def test_more_rounds_promise_no_less() -> None:
    for space in (tc.Ball(3), tc.Simplex(10)):
        bounds = [tc.plan(space, "l2", rounds=10**k).bound for k in range(2, 9)]
        assert bounds == sorted(bounds, reverse=True)


@pytest.mark.parametrize("error", [1.2, 0.6, 0.5, 0.45])
def test_a_target_within_reach_is_kept_by_the_tree_named(error: float) -> None:
    p = tc.plan(tc.Ball(3), "l2", error=error)
    assert p.depth is not None
    rounds = p.arity**p.depth
    assert math.log10(rounds) == pytest.approx(p.log10_rounds)
    assert tc.certificate(tc.Ball(3), "l2", rounds=rounds, arity=p.arity, depth=p.depth).bound <= error * (1 + 1e-9)


def test_astronomical_targets_are_said_in_logarithms() -> None:
    before = 0.0
    for error in (0.1, 0.01, 0.001):
        p = tc.plan(tc.Simplex(10), "l1", error=error)
        assert before < p.log10_rounds < math.inf
        assert "10^" in str(p)
        assert "at 10^6 rounds the guarantee is 1.25" in str(p)
        assert p.bound <= error
        before = p.log10_rounds


def test_planning_a_tree_certifies_no_other_forecaster(monkeypatch: pytest.MonkeyPatch) -> None:
    space = tc.Simplex(3)
    expected = tc.plan(space, "l1", rounds=9000)
    for name in [name for name in sys.modules if name.endswith("._recommend")]:
        monkeypatch.setitem(sys.modules, name, None)
    assert tc.plan(space, "l1", rounds=9000) == expected


def test_lower_bounds_are_their_formulas() -> None:
    assert log_rounds_simplex(10**6, 0.5, c=2.0) == pytest.approx(2 * min((10**6) ** (1 / 14), 0.5 ** (-1 / 6)))
    assert log_rounds_ball(3, 1e-9, c=1.0) == pytest.approx(3 ** (1 / 14))
    assert log_rounds_simplex(10**4000, 1e-6, c=1.0) == pytest.approx(10)  # dimensions beyond float64


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: log_rounds_simplex(0, 0.1, c=1), "dim is 0"),
        (lambda: log_rounds_simplex(3, -0.1, c=1), "error is -0.1"),
        (lambda: log_rounds_ball(3, 0.1, c=math.nan), "c is nan"),
        (lambda: tc.plan(tc.Ball(2), "l2", rounds=5, error=0.1), "not both or neither"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(TreeCalError, match=message):
        call()
