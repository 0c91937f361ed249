"""How many outcomes it takes: the formula against the bettor it is about."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.measures.worlds import draw_classes
from treecal._typing import Array, Integers
from treecal.exceptions import TreeCalError
from treecal.measures import sample_size, smallest_effect
from treecal.measures._sample_size import _passage

SIZES = np.linspace(-2, 2, 33)
PRIOR = np.exp(-2 * SIZES**2) / np.exp(-2 * SIZES**2).sum()


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    found: Array = e / e.sum(axis=1, keepdims=True)
    return found


def truth(P: Array, temperature: float | None, shift: tuple[int, float] | None) -> Array:
    z = np.log(P)
    return softmax(z / temperature if temperature else z + np.eye(P.shape[1])[shift[0]] * shift[1])  # type: ignore[index]


def log_capital(P: Array, y: Integers) -> Array:
    """The bettor: the mean of a temperature and a shift of each class, of all sizes, by their prior."""
    rows, d = np.arange(len(y)), P.shape[1]
    z, hit = np.log(P), np.log(P)[np.arange(len(y)), y]
    heats = [np.cumsum(np.log(softmax(z * math.exp(-s))[rows, y]) - hit) for s in SIZES]
    shifts = [[np.cumsum(s * (y == k) - np.log1p(P[:, k] * np.expm1(s))) for s in SIZES] for k in range(d)]
    each = np.array([heats, *shifts]) + np.log(PRIOR)[:, None]
    found: Array = np.logaddexp.reduce(each.reshape(-1, len(y)), axis=0) - np.log(d + 1)
    return found


def seen(base: Array, runs: int, power: float, limit: int, effect: dict[str, Any]) -> float:
    """The outcomes after which this share of runs has convicted the model."""
    rng, times = np.random.default_rng(0), []
    for _ in range(runs):
        P = base[rng.integers(len(base), size=limit)]
        y = draw_classes(truth(P, effect.get("temperature"), effect.get("shift")), rng)
        reached = log_capital(P, y) >= math.log(20)
        times.append(1 + int(np.argmax(reached)) if reached.any() else math.inf)
    return float(np.quantile(times, power, method="inverted_cdf"))


EFFECTS: list[tuple[int, dict[str, Any]]] = [
    (3, {"temperature": 2.0}),
    (3, {"temperature": 1.25}),
    (10, {"temperature": 2.0}),
    (10, {"temperature": 1.25}),
    (3, {"temperature": 0.5}),
    (3, {"shift": (0, 0.5)}),
    (10, {"shift": (0, 1.0)}),
    (2, {"temperature": 1.5}),
]


@pytest.mark.heavy
@pytest.mark.parametrize(("d", "effect"), EFFECTS)
def test_the_formula_agrees_with_the_bettor(d: int, effect: dict[str, Any]) -> None:
    base = np.random.default_rng(d).dirichlet(np.ones(d), 2000)
    line = []
    for power, slack in (0.5, 0.2), (0.8, 0.2), (0.95, 0.35):
        said = sample_size(base, power=power, **effect)
        got = seen(base, 400, power, 2 * said.outcomes, effect)
        line += [said.outcomes, round(got)]
        assert 1 - slack <= said.outcomes / got <= 1 + slack
    print(f"| {d} | {effect} | {said.information:.3g} |", " | ".join(map(str, line)))


def test_the_formula_agrees_with_the_bettor_about() -> None:
    base = np.random.default_rng(3).dirichlet(np.ones(3), 2000)
    said = sample_size(base, temperature=2, power=0.5).outcomes
    assert 0.6 <= said / seen(base, 60, 0.5, 3 * said, {"temperature": 2.0}) <= 1.6


def test_the_bettor_convicts_few_right_models() -> None:
    rng = np.random.default_rng(0)
    base = rng.dirichlet(np.ones(3), 500)
    alarms = [(log_capital(base, draw_classes(base, rng)) >= math.log(20)).any() for _ in range(100)]
    assert np.mean(alarms) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 100)


def test_information_and_mean_are_what_they_say() -> None:
    p, q = np.array([0.7, 0.2, 0.1]), truth(np.array([[0.7, 0.2, 0.1]]), 2.0, None)[0]
    found = tc.sample_size(p, temperature=2, regret=0)
    assert found.information == pytest.approx(float(np.sum(q * np.log(q / p))))
    assert found.mean == pytest.approx(math.log(20) / found.information)
    learned = sample_size(p, temperature=2)
    assert learned.regret > math.log(4)
    assert learned.outcomes > found.outcomes


def test_passage_is_that_of_brownian_motion() -> None:
    rng = np.random.default_rng(0)
    steps = rng.normal(0.05 / 25, 0.3 / 5, size=(1000, 25 * 80))  # 25 to a unit of time
    # Siegmund's correction for the steps, as in the planner.
    reached = np.cumsum(steps, axis=1).max(axis=1) >= 2 - 0.583 * 0.3 / 5
    assert _passage(80, 2, 0.05, 0.09) == pytest.approx(reached.mean(), abs=0.05)
    assert _passage(10, 2, 0.1, 0) == 0
    assert _passage(30, 2, 0.1, 0) == 1


def test_what_a_log_can_show_is_what_takes_as_many_outcomes() -> None:
    base = np.random.default_rng(0).dirichlet(np.ones(3), 100)
    for n in (300, 3000):
        found = smallest_effect(base, outcomes=n)
        assert sample_size(base, temperature=found).outcomes <= n
        assert sample_size(base, temperature=1 + 0.98 * (found - 1)).outcomes > n
        logit = smallest_effect(base, outcomes=n, of=1)
        assert sample_size(base, shift=(1, logit)).outcomes <= n < sample_size(base, shift=(1, 0.98 * logit)).outcomes
    assert smallest_effect(base, outcomes=1) == math.inf


def test_more_is_needed_for_less() -> None:
    base = [0.6, 0.3, 0.1]
    counts = [sample_size(base, temperature=t).outcomes for t in (3, 2, 1.5, 1.2, 1.1, 1.01)]
    assert counts == sorted(counts)
    assert sample_size(base, temperature=2, alpha=0.001).outcomes > sample_size(base, temperature=2).outcomes
    assert sample_size(base, temperature=2, power=0.99).outcomes > sample_size(base, temperature=2).outcomes
    assert sample_size([1.0, 0.0], temperature=2).outcomes == 10**15  # certain forecasts have no temperature


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give one of a temperature, a shift"),
        ({"temperature": 2, "shift": (0, 1)}, "give one of a temperature, a shift"),
        ({"temperature": 1}, "temperature is 1, expected a positive number other than 1"),
        ({"temperature": -1}, "temperature is -1"),
        ({"shift": (3, 1.0)}, "the class of shift is 3, expected at most 2"),
        ({"shift": (0, 0.0)}, "expected a class and how far its logit is too low"),
        ({"temperature": 2, "alpha": 0}, "alpha is 0, expected a number between 0 and 1"),
        ({"temperature": 2, "power": 1}, "power is 1"),
        ({"temperature": 2, "regret": -1}, "regret is -1"),
    ],
)
def test_invalid_options(options: dict[str, object], words: str) -> None:
    with pytest.raises(TreeCalError) as error:
        sample_size([0.6, 0.3, 0.1], **options)  # type: ignore[arg-type]
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shift": 0.5}, "shift=(2, 0.5)"),
        ({"shift": (0, "1")}, "expected a class and how far"),
        ({"shift": (0, 1, 2)}, "expected a class and how far"),
        ({"temperature": "2"}, "temperature is '2', expected a positive number"),
        ({"temperature": 2, "regret": "a"}, "regret is 'a'"),
        ({"temperature": 2, "alpha": None}, "alpha is None"),
    ],
)
def test_what_is_no_number_is_named(options: dict[str, object], words: str) -> None:
    with pytest.raises(TreeCalError) as error:
        sample_size([0.6, 0.3, 0.1], **options)  # type: ignore[arg-type]
    assert words in str(error.value)


def test_an_effect_that_changes_nothing_is_said_to_be_one() -> None:
    found = sample_size([1.0, 0.0], temperature=2)
    assert "No log is long enough" in str(found)
    assert "1,000,000,000" not in str(found)
    assert math.isinf(found.mean)


@pytest.mark.parametrize(
    ("effect", "divergence"),
    [({"stretch": 2.0}, 1.5 - math.log(2)), ({"stretch": 0.5}, math.log(2) - 0.375), ({"offset": -0.4}, 0.08)],
)
def test_of_numbers_an_outcome_tells_the_divergence_of_two_normal_laws(
    effect: dict[str, float], divergence: float
) -> None:
    found = tc.sample_size(**effect, regret=0.0)  # type: ignore[arg-type] # of one name
    assert found.information == pytest.approx(divergence, rel=0.05)
    assert found.mean == pytest.approx(math.log(20) / found.information)
    for wrong in ({"stretch": 1.0}, {"stretch": -1.0}, {"offset": 0.0}, {"offset": math.nan}):
        with pytest.raises(TreeCalError):
            tc.sample_size(**wrong)  # type: ignore[arg-type] # of one name
    with pytest.raises(TreeCalError, match="no forecasts"):
        tc.sample_size([0.5, 0.5], **effect)  # type: ignore[arg-type] # of one name
