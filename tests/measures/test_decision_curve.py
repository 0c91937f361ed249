"""Deciding by thresholds: curves and the greatest regret, by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from treecal.exceptions import LossError, ParameterError
from treecal.measures import decision_curve, payoff_loss, v_calibration_error


def regret_at(v: float, p: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    """What the other answer would have saved, after yes and after no, to whoever says yes above v."""
    cost_yes, cost_no = v * (1 - y), (1 - v) * y
    yes = p > v
    saved = max(float(w[yes] @ (cost_yes - cost_no)[yes]), 0) + max(float(w[~yes] @ (cost_no - cost_yes)[~yes]), 0)
    return saved / float(w.sum())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_the_greatest_regret_is_that_of_some_threshold_and_no_other_is_greater(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    p, y, w = rng.integers(0, 6, n) / 5, rng.integers(0, 2, n), rng.integers(1, 4, n).astype(float)
    found = v_calibration_error(p, y, weights=w)
    grid = np.concatenate([np.linspace(0, 1, 301), np.unique(p), np.maximum(np.unique(p) - 1e-12, 0)])
    every = [regret_at(v, p, y, w) for v in grid]
    assert max(every) == pytest.approx(found, abs=1e-9)


def test_it_is_the_greatest_over_classes_and_near_zero_for_right_forecasts() -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(3), 20_000)
    y = (rng.random((len(P), 1)) > P.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    assert v_calibration_error(P, y) < 0.01
    wrong = P[:, [1, 0, 2]]
    each = [v_calibration_error(wrong[:, k], (y == k).astype(int)) for k in range(3)]
    assert v_calibration_error(wrong, y) == pytest.approx(max(each))
    assert max(each) > 0.05


def test_curves_are_what_each_threshold_pays() -> None:
    rng = np.random.default_rng(1)
    p = rng.random(300)
    y = (rng.random(300) < p**2).astype(int)
    curve = decision_curve(p, y, points=9)
    for i, v in enumerate(curve.threshold):
        loss = [[0.0, 1 - v], [v, 0.0]]  # no, yes
        yes = p > v
        assert curve.cost[i] == pytest.approx(np.where(yes, v * (1 - y), (1 - v) * y).mean())
        assert curve.regret[i] == pytest.approx(payoff_loss(p, y, loss))
        assert curve.net_benefit[i] == pytest.approx((yes * y).mean() - (yes * (1 - y)).mean() * v / (1 - v))
        assert curve.net_benefit_of_all[i] == pytest.approx(y.mean() - (1 - y.mean()) * v / (1 - v))
    assert curve.regret.max() <= v_calibration_error(p, y) + 1e-12
    with pytest.raises(ParameterError, match="at most 1"):
        decision_curve(p, y, of=2)


def test_an_audit_says_what_was_done_with_each_action() -> None:
    rng = np.random.default_rng(0)
    p = np.where(rng.random(4000) < 0.3, 0.9, 0.05)
    y = (rng.random(4000) < np.where(p > 0.5, 0.9, 0.25)).astype(int)
    day = np.arange(4000) // 1000
    log = {"p": p, "fraud": y, "day": day, "shop": day % 2}
    losses = {"pass": {"0": 0, "1": 10}, "block": [1, 0], "never": [20, 20]}
    found = tc.audit(log, forecast="p", outcome="fraud", loss=losses, time="day", by="shop")
    payoff = found.whole.payoff
    assert payoff is not None
    passed, blocked, never = payoff.actions
    assert (passed.better, blocked.better, never.rows) == ("block", "block", 0)
    assert passed.rows + blocked.rows == 4000
    assert passed.saved.value == pytest.approx(payoff.value * 4000 / passed.rows)
    assert passed.saved.low > 1
    assert passed.chance.p_value(passed.saved.value) < 0.01
    assert blocked.saved.value == 0
    assert found.windows is not None
    assert {key: part.payoff is not None for key, part in found.windows.groups.items()} == {
        (k,): True for k in range(4)
    }
    for text in (str(found), found._repr_html_()):
        assert "Action by action" in text
        assert "regret" in text
    assert found.whole.to_dict()["payoff"]["actions"][0]["better"] == "block"
    with pytest.raises(LossError, match="no difference"):
        tc.audit(p, y, loss=[[1, 1], [1, 1]])
    with pytest.raises(ParameterError, match="one decision"):
        tc.audit(p, y, loss={"a": [[0, 1], [1, 0]], "b": [[0, 1], [1, 0]]})
