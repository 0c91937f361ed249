"""Intervals where events are rare: never of width 0, and right as often as they say."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.some import some
from treecal._typing import Array, Integers
from treecal.measures import (
    Interval,
    Payoff,
    accuracy,
    atb,
    bin_rows,
    brier,
    debiased_ece,
    ece,
    interval,
    log_score,
    mce,
    payoff_loss,
    resolution,
    skill,
    smooth_calibration_error,
)

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


@pytest.mark.parametrize("count", some([200, 2000], every=2))
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


MEASURES: dict[str, Any] = {
    "accuracy": accuracy,
    "atb": atb,
    "Brier": brier,
    "class-wise error": partial(debiased_ece, view="classes"),
    "debiased ECE": debiased_ece,
    "ECE": ece,
    "log": log_score,
    "MCE": partial(mce, least=1),
    "resolution": resolution,
    "skill": skill,
    "smooth": smooth_calibration_error,
}


def nearly_perfect(classes: int, sure: float, right: float, count: int, rng: np.random.Generator) -> Any:
    """Return a log whose likeliest class has probability `sure`, and comes with probability `right`."""
    top = rng.integers(classes, size=count)
    P = np.full((count, classes), (1 - sure) / (classes - 1))
    P[np.arange(count), top] = sure
    other = (top + rng.integers(1, classes, size=count)) % classes
    return P, np.where(rng.random(count) < right, top, other)


def all_intervals(P: Array, y: Integers, rng: np.random.Generator) -> dict[str, Interval]:
    """Return the interval of every measure, of the bins of an audit, and of its log score."""
    found = {name: interval(measure, P, y, draws=200, rng=rng) for name, measure in MEASURES.items()}
    audit = tc.audit(P, y, exact=False, classes=[str(k) for k in range(P.shape[1])]).whole
    top, classes = audit.verdict.views
    return found | {"bins": top.error, "bins by class": classes.error, "log in an audit": audit.log_interval}


def coverage(classes: int, sure: float, right: float, count: int, logs: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    big = nearly_perfect(classes, sure, right, 200_000, rng)
    truth = {name: measure(*big) for name, measure in MEASURES.items()}
    if sure == right:
        truth |= dict.fromkeys(("atb", "class-wise error", "debiased ECE", "ECE", "MCE", "smooth"), 0.0)
    top, _ = bin_rows(big[0], np.eye(classes)[big[1]], np.ones(len(big[1])))
    each = truth["class-wise error"]
    truth |= {"bins": top.debiased_ece, "bins by class": each, "log in an audit": truth["log"]}
    held = dict.fromkeys(truth, 0.0)
    for _ in range(logs):
        P, y = nearly_perfect(classes, sure, right, count, rng)
        for name, found in all_intervals(P, y, rng).items():
            assert found.high > found.low or math.isinf(found.value), name
            held[name] += (found.low <= truth[name] + 1e-12 and truth[name] <= found.high + 1e-12) / logs
    return held


WORLDS = [(2, 0.999, 0.99, 100), (2, 0.999, 0.999, 500), (5, 0.99, 0.98, 500), (2, 1.0, 0.99, 500)]


def test_nearly_perfect_logs_are_covered_about() -> None:
    held = coverage(*WORLDS[0], logs=12)
    assert min(held.values()) >= 0.5, held


@pytest.mark.heavy
@pytest.mark.parametrize("world", WORLDS)
def test_nearly_perfect_logs_are_covered(world: tuple[int, float, float, int]) -> None:
    held = coverage(*world, logs=400)
    print(world, {name: round(100 * share) for name, share in held.items()})
    assert min(held.values()) >= 0.84, held
