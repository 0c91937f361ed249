"""Intervals where events are rare: never of width 0, and right as often as they say."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from treecal._typing import Array, Integers
from treecal.measures import Payoff, brier, interval, payoff_loss

LOSS = np.array([[0.0, 5.0], [1.0, 1.0]])
LOGS = 120


def rows(count: int, rng: np.random.Generator) -> tuple[Array, Integers]:
    """Return forecasts of a rare event: of those of 0.4, one row of 500, the true rate is 0.125; 0.5 % come at all."""
    high = rng.random(count) < 0.002
    p = np.where(high, 0.4, 0.00475)
    y = rng.random(count) < np.where(high, 0.125, 0.00475)
    return p, y.astype(int)


TRUTH = 0.002 * (1 - 5 * 0.125)
BRIER = 2 * (0.002 * (0.125 - 2 * 0.4 * 0.125 + 0.16) + 0.998 * (0.00475 - 0.00475**2))


@pytest.mark.parametrize("count", [200, 2000])
def test_rare_events_are_covered(count: int) -> None:
    held = np.zeros(3)
    for seed in range(LOGS):
        rng = np.random.default_rng(seed)
        p, y = rows(count, rng)
        act = (p > 0.2).astype(int)
        counts = np.zeros((2, 2))
        np.add.at(counts, (act, y), 1)
        expected = np.array([[((1 - p) * (act == a)).sum(), (p * (act == a)).sum()] for a in (0, 1)])
        intervals = (
            Payoff(LOSS, counts, expected).interval(),
            interval(partial(payoff_loss, loss=LOSS), p, y, draws=200, rng=rng),
            interval(brier, p, y, draws=200, rng=rng),
        )
        assert all(found.high > found.low for found in intervals)
        truths = (TRUTH, TRUTH, BRIER)
        held += [found.low <= truth <= found.high for found, truth in zip(intervals, truths, strict=True)]
    assert held.min() >= 0.85 * LOGS, held / LOGS


def test_scores_that_are_all_the_same_are_not_certain() -> None:
    found = interval(brier, np.full(200, 0.5), np.zeros(200, int), rng=np.random.default_rng(0))
    assert found.low < 0.5 < found.high
