"""Pay-off loss: the swap regret of who believes the forecasts, by brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.measures.worlds import world
from treecal.exceptions import LossError, ParameterError
from treecal.measures import payoff_loss


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 3), st.integers(2, 4))
def test_it_is_the_best_replacement_of_actions(seed: int, d: int, actions: int) -> None:
    rng = np.random.default_rng(seed)
    P, y = world(d, sharp=2, shift=1)(25, rng)
    loss = rng.normal(size=(actions, d))
    taken = [int(np.argmin(loss @ p)) for p in P]
    cost = sum(loss[a, k] for a, k in zip(taken, y, strict=True))
    plans = product(range(actions), repeat=actions)  # for each action, the one that is taken instead
    best = min(sum(loss[plan[a], k] for a, k in zip(taken, y, strict=True)) for plan in plans)
    assert payoff_loss(P, y, loss) == pytest.approx((cost - best) / 25, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_by_forecast_it_is_read_from_the_ledger(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.dirichlet(np.ones(3), 4)
    P, y = points[rng.integers(0, 4, 60)], rng.integers(0, 3, 60)
    loss = rng.normal(size=(3, 3))
    ledger = tc.Ledger(tc.Simplex(3))
    for p, k in zip(P, y, strict=True):
        ledger.record(p, np.eye(3)[k])
    table = ledger.table("l1")
    regret = [
        w * (loss[np.argmin(loss @ p)] @ nu - (loss @ nu).min())
        for p, w, nu in zip(table.forecast, table.weight, table.outcome, strict=True)
    ]
    exact = payoff_loss(P, y, loss, by="forecast")
    assert exact == pytest.approx(sum(regret) / 60, abs=1e-12)
    assert payoff_loss(P, y, loss) <= exact + 1e-12
    assert payoff_loss(P, y, loss, weights=np.full(60, 2.0)) == pytest.approx(payoff_loss(P, y, loss))


def test_right_forecasts_cost_nothing_in_the_end() -> None:
    P, y = world(3)(40_000, np.random.default_rng(0))
    loss = 1 - np.eye(3)
    assert payoff_loss(P, y, loss) < 1e-3
    wrong = np.roll(P, 1, axis=1)
    assert payoff_loss(wrong, y, loss) > 0.2


@pytest.mark.parametrize(
    ("loss", "by", "kind", "words"),
    [
        ([[0, 1]], "action", LossError, r"loss has shape \(1, 2\), expected \(actions, 2\)"),
        ([[0, 1, 2], [1, 1, 1]], "action", LossError, r"expected \(actions, 2\)"),
        ([[0, np.nan], [1, 1]], "action", ParameterError, "loss holds nan"),
        ([[0, 1], [1, 0]], "row", ParameterError, "by is 'row', expected 'action' or 'forecast'"),
    ],
)
def test_invalid_losses(loss: object, by: object, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        payoff_loss([0.5], [1], loss, by=by)  # type: ignore[arg-type]
