"""Limits on how often an action is taken: how often it is, in the worst case and on ordinary streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treecal as tc
from treecal.exceptions import ParameterError
from treecal.forecast import DecisionForecast
from treecal.state import dumps, loads
from treecal.testing import check_corrector, sample_outcomes

PAY = tc.Simplex(classes=["fine", "fraud"])
COSTS = {"pass": [0, 20], "ask": [1, 5], "block": [5, 0]}


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("model", ["sure", "random", "wave"])
def test_an_action_is_taken_no_more_often_than_it_may(model: str, rate: float) -> None:
    rng = np.random.default_rng(0)
    f = tc.Rationed(PAY, COSTS, at_most={"block": rate})
    for t in range(1, 601):
        p = {"sure": 1.0, "random": float(rng.random()), "wave": float(t % 100 < 50)}[model]
        x = f.predict([1 - p, p])
        assert isinstance(x, DecisionForecast)
        f.update(int(rng.random() < p))
        assert f.used["block"] <= rate * t + 21
    assert sum(f.used.values()) == 600
    if model == "sure" and rate == 0.3:
        assert f.used["block"] >= 0.3 * 600
        assert f.regret > 1


def test_it_blocks_where_most_is_saved() -> None:
    rng = np.random.default_rng(1)
    f, blocked = tc.Rationed(PAY, COSTS, at_most={"block": 0.05}), []
    for t in range(4000):
        p = float(rng.beta(2, 2))
        x = f.predict([1 - p, p])
        if t > 500 and x.action == "block":  # type: ignore[attr-defined] # it is a DecisionForecast
            blocked.append(p)
        f.update(int(rng.random() < p))
    assert len(blocked) == pytest.approx(175, abs=30)
    assert np.quantile(blocked, 0.2) > 0.8


@pytest.mark.parametrize(
    "at_most", [{}, {"refuse": 0.1}, {"pass": 0.1, "ask": 0.1, "block": 0.1}, {"block": 2}, {"block": "often"}], ids=str
)
def test_limits_that_cannot_be(at_most: Any) -> None:
    with pytest.raises(ParameterError, match="at_most"):
        tc.Rationed(PAY, COSTS, at_most=at_most)


def test_contract() -> None:
    space = tc.Simplex(3)
    rng = np.random.default_rng(0)
    outcomes, forecasts = sample_outcomes(space, 30, rng), sample_outcomes(space, 30, rng)

    def make() -> tc.Corrector:
        return tc.Rationed(space, 1 - np.eye(3), at_most={1: 0.1}, corrector=tc.TemperatureScaling(space))

    check_corrector(make, outcomes=outcomes, forecasts=forecasts)
    assert repr(loads(dumps(make()))) == repr(make())
