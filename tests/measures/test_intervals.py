"""Intervals cover, chance is chance, and both are quick."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.measures.worlds import world
from treecal.exceptions import ParameterError
from treecal.measures import (
    accuracy,
    atb,
    brier,
    chance,
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

UMBRELLA = np.array([[0, 4, 2], [1, 1, 1], [3, 0, 0.5]])
NEAREST = [[(a / 5 - k) ** 2 for k in range(2)] for a in range(6)]  # say one of six probabilities
ABSTAIN = np.vstack([1 - np.eye(10), np.full((1, 10), 0.5)])


class Case(NamedTuple):
    measure: Callable[..., float]
    draw: Callable[[int, np.random.Generator], Any]
    rows: int
    least: float = 0.87
    most: float = 0.93


CLASSES = partial(debiased_ece, view="classes")
CASES = {
    "debiased ECE, top label of 3 classes, 1,000 rows": Case(debiased_ece, world(3, sharp=2), 1000),
    "debiased ECE, top label of 10 classes, 1,000 rows": Case(debiased_ece, world(10, sharp=2), 1000),
    "debiased ECE, one of 2 classes, 2,000 rows": Case(partial(debiased_ece, view=1), world(2, sharp=1.5), 2000),
    "class-wise error, 3 classes, 1,000 rows": Case(CLASSES, world(3, sharp=1.5), 1000),
    "class-wise error, 10 classes, 1,000 rows": Case(CLASSES, world(10, sharp=2), 1000),
    "Brier, 3 classes, 300 rows": Case(brier, world(3, sharp=1.5), 300),
    "Brier, 10 classes, 1,000 rows": Case(brier, world(10), 1000),
    "pay-off loss, 3 actions, 1,000 rows": Case(partial(payoff_loss, loss=UMBRELLA), world(3, shift=1.2), 1000),
    "pay-off loss, 11 actions, 1,000 rows": Case(partial(payoff_loss, loss=ABSTAIN), world(10, sharp=2.5), 1000),
    "ATB, 3 classes, 1,000 rows": Case(atb, world(3, shift=0.5), 1000),
    # Where it cannot be the level, it is more.
    "debiased ECE of the truth, 1,000 rows": Case(debiased_ece, world(3), 1000, most=1),
    "class-wise error of the truth, 1,000 rows": Case(CLASSES, world(3), 1000, most=1),
    "pay-off loss of the truth, 1,000 rows": Case(partial(payoff_loss, loss=UMBRELLA), world(3), 1000, most=1),
    "pay-off loss near ties, 1,000 rows": Case(partial(payoff_loss, loss=NEAREST), world(2, sharp=2), 1000, most=1),
}


def coverage(case: Case, logs: int, large: int = 1_000_000) -> float:
    rng = np.random.default_rng(0)
    truth = case.measure(*case.draw(large, rng))
    truth = 0.0 if truth < 2e-3 and case.most == 1 else truth  # of infinitely many rows
    held = 0
    for _ in range(logs):
        found = interval(case.measure, *case.draw(case.rows, rng), draws=300, rng=rng)
        held += found.low <= truth <= found.high
    return held / logs


@pytest.mark.heavy
@pytest.mark.parametrize("name", CASES)
def test_intervals_cover(name: str) -> None:
    case = CASES[name]
    found = coverage(case, 1000)
    print(f"| {name} | {100 * found:.1f} |")
    assert case.least <= found <= case.most


@pytest.mark.parametrize("name", [name for name in CASES if "3" in name.split(",")[-2] or "truth" in name])
def test_intervals_cover_about(name: str) -> None:
    case = CASES[name]
    assert case.least - 0.1 <= coverage(case, 50, 200_000) <= case.most + 0.08


def chain(n: int, rng: np.random.Generator, stay: float = 0.95) -> Any:
    """A stream: the class changes seldom, and the forecast is always 0.7."""
    y = np.cumsum(rng.random(n) > stay) % 2
    return np.full(n, 0.7), (y + rng.integers(2)) % 2


@pytest.mark.heavy
@pytest.mark.parametrize(("measure", "truth"), [(brier, 0.58), (partial(debiased_ece, view=1), 0.2)])
def test_streams_need_blocks(measure: Callable[..., float], truth: float) -> None:
    rng = np.random.default_rng(0)
    held = np.zeros(3)
    for _ in range(100):
        p, y = chain(4000, rng)
        days = np.arange(4000) // 150
        for i, blocks in enumerate((None, 150, days)):
            found = interval(measure, p, y, blocks=blocks, draws=200, rng=rng)
            held[i] += found.low <= truth <= found.high
    assert held[0] < 50
    assert (held[1:] >= 78).all()


@pytest.mark.parametrize(
    "measure",
    [
        accuracy,
        atb,
        brier,
        debiased_ece,
        ece,
        log_score,
        mce,
        resolution,
        skill,
        smooth_calibration_error,
        partial(payoff_loss, loss=UMBRELLA),
        partial(partial(ece, bins=5), view="classes"),
    ],
)
def test_a_measure_from_sums_is_the_measure_of_resampled_rows(measure: Callable[..., float]) -> None:
    """What chance draws is what the function says; and resampling sums is resampling rows, called one by one."""
    rng = np.random.default_rng(0)
    P, y = world(3, sharp=1.5, shift=0.5)(400, rng)

    def plain(P: Any, y: Any, weights: Any = None) -> float:
        return measure(P, y, weights=weights)

    ours, theirs = (chance(m, P, draws=5, rng=np.random.default_rng(1)).draws for m in (measure, plain))
    assert ours == pytest.approx(theirs)
    if measure not in (atb, debiased_ece):
        quick, slow = (interval(m, P, y, draws=100, rng=np.random.default_rng(1)) for m in (measure, plain))
        assert quick.value == pytest.approx(slow.value)
        width = slow.high - slow.low
        assert quick.low == pytest.approx(max(slow.low, 0), abs=0.35 * width)
        assert quick.high == pytest.approx(slow.high, abs=0.35 * width)


def test_more_rows_than_chunks() -> None:
    rng = np.random.default_rng(0)
    P, y = world(3, sharp=1.5)(30_000, rng)
    scores = ((P - np.eye(3)[y]) ** 2).sum(axis=1)
    error = 1.645 * scores.std() / np.sqrt(30_000)
    found = interval(brier, P, y, rng=rng)
    assert (found.low, found.high) == pytest.approx((scores.mean() - error, scores.mean() + error), abs=0.1 * error)
    square = interval(partial(debiased_ece, squared=True), P, y, rng=rng)
    root = interval(debiased_ece, P, y, rng=rng)
    assert (root.low, root.high) == pytest.approx((np.sqrt(square.low), np.sqrt(square.high)), rel=0.02)


def test_chance_is_the_measure_of_drawn_outcomes() -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), 200)
    luck = chance(brier, P, draws=400, rng=rng)
    expected = 1 - (P**2).sum(axis=1).mean()
    assert luck.mean == pytest.approx(expected, abs=4 * luck.draws.std() / 20)
    assert luck.p_value(np.inf) == 1 / 401
    assert luck.p_value(-np.inf) == 1
    assert luck.p_value(luck.draws[-1]) == 2 / 401
    assert luck.quantile(0.5) == np.median(luck.draws)


def test_p_values_of_right_forecasts_are_uniform() -> None:
    rng = np.random.default_rng(0)
    draw, found = world(3), []
    for _ in range(120):
        P, y = draw(100, rng)
        found.append(chance(ece, P, draws=39, rng=rng).p_value(ece(P, y)))
    assert np.mean(np.array(found) <= 0.1) <= 0.1 + 3 * np.sqrt(0.09 / 120)
    assert np.mean(np.array(found) <= 0.5) == pytest.approx(0.5, abs=0.15)


def test_impossible_outcomes_have_no_interval() -> None:
    found = interval(log_score, [0.0] * 30, [1] * 30, rng=np.random.default_rng(0))
    assert (found.value, found.note) == (np.inf, "an outcome had forecast 0")


def test_perfect_and_constant_logs() -> None:
    rng = np.random.default_rng(0)
    found = interval(brier, [1.0] * 30, [1] * 30, rng=rng)  # an outcome that never came may come in one row of ten
    assert (found.value, found.low) == (0, 0)
    assert 0.1 < found.high < 0.2
    for measure in (debiased_ece, atb, ece, smooth_calibration_error, mce, resolution):
        found = interval(measure, [1.0] * 30, [1] * 30, rng=rng)
        assert found.value == found.low == 0 < found.high
    found = interval(skill, [1.0] * 30, [1] * 30, rng=rng)
    assert found.low < found.value == 0
    found = interval(log_score, [1.0] * 30, [1] * 30, rng=rng)
    assert (found.value, found.low, found.high, found.note) == (0, 0, np.inf, "an outcome with forecast 0 is possible")
    assert "not distinguishable from 0" in str(interval(ece, [0.5] * 30, [0, 1] * 15, rng=rng))


@pytest.mark.parametrize("measure", [ece, mce])
def test_where_an_interval_can_miss_it_says_so(measure: Callable[..., float]) -> None:
    """Perfect forecasts: the interval often lies above the truth, 0. It never does without a word."""
    rng, missed, silent = np.random.default_rng(0), 0, 0
    for _ in range(60):
        found = interval(measure, *world(3)(1000, rng), draws=200, rng=rng)
        missed += found.low > 0
        silent += "debiased_ece" not in found.note
    assert missed >= 6
    assert silent <= 6
    far = interval(ece, *world(3, sharp=3)(1000, rng), rng=rng)
    assert far.note == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"level": 1.0}, "level is 1.0, expected a number between 0 and 1"),
        ({"blocks": 10}, "there are 3 blocks, expected 20 or more"),
        ({"blocks": [1, 2]}, r"blocks have shape \(2,\), expected a number, or an id for each of 30 rows"),
        ({"draws": 5}, "draws is 5, expected a whole number of 100 or more"),
    ],
)
def test_invalid_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        interval(brier, [0.5] * 30, [1] * 30, rng=np.random.default_rng(0), **options)


def test_many_distinct_forecasts_are_not_resampled_by_forecast() -> None:
    P, y = world(3)(9000, np.random.default_rng(0))
    with pytest.raises(ParameterError, match="9,000 distinct forecasts are too many to resample"):
        interval(partial(payoff_loss, loss=UMBRELLA, by="forecast"), P, y, rng=np.random.default_rng(0))


@pytest.mark.heavy
def test_a_million_rows_take_seconds() -> None:
    rng = np.random.default_rng(0)
    P, y = world(10)(1_000_000, rng)
    for measure in (brier, ece, debiased_ece, CLASSES, partial(payoff_loss, loss=ABSTAIN), atb):
        begin = time.process_time()
        interval(measure, P, y, rng=rng)
        assert time.process_time() - begin < 15
