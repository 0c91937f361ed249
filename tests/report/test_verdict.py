"""The verdict: its yardstick, its words."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

import treecal as tc
from tests.strategies import one_hot
from treecal import report
from treecal.ledger import Reading
from treecal.report._verdict import chance_error, norm_in_words

TWO = tc.Simplex(2)


def level(ledger: tc.Ledger | Reading) -> str:
    return report.Section("x", [report.Entry("x", ledger)]).verdicts[0].level


@pytest.mark.parametrize(("p", "n"), [(0.5, 1), (0.3, 7), (0.9, 40)])
def test_chance_is_that_of_the_binomial(p: float, n: int) -> None:
    """One forecast said n times misses by `2·|k/n − p|` in ℓ1, k binomial."""
    reading = Reading(np.array([[1 - p, p]]), np.array([float(n)]), np.array([[1.0, 0.0]]), n, None)
    weight = np.array([comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])
    miss = 2 * np.abs(np.arange(n + 1) / n - p)
    mean, spread = weight @ miss, np.sqrt(weight @ miss**2 - (weight @ miss) ** 2)
    assert chance_error(reading, "l1") == pytest.approx(mean + 1.645 * spread, rel=0.15)


def test_who_is_exactly_right_is_seldom_blamed() -> None:
    rng = np.random.default_rng(3)
    points, count = rng.dirichlet(np.ones(3), size=12), np.arange(10, 130, 10)
    blamed = []
    for _ in range(60):
        happened = rng.multinomial(count, points) / count[:, None]
        blamed.append(level(Reading(points, count.astype(float), happened, int(count.sum()), None)) != "calibrated")
    assert np.mean(blamed) < 0.15  # one in twenty is to be expected; 9 or more of 60 happen once in a thousand


def test_chance_is_generous_to_distributions() -> None:
    """Half the weight on each of two forecasts: chance does less than the yardstick says, never more."""
    rng, ledger, one = np.random.default_rng(0), tc.Ledger(TWO), tc.Ledger(TWO)
    for _ in range(500):
        y = np.eye(2)[rng.integers(2)]
        ledger.record(tc.Forecast([[0.5, 0.5], [0.4, 0.6]], space=TWO), y)
        one.record([0.5, 0.5], y)
    assert chance_error(ledger.exact(), "l1") > chance_error(one.exact(), "l1")


@pytest.mark.parametrize(
    ("shift", "rounds", "word"),
    [
        (0.0, 1000, "calibrated"),
        (0.03, 20_000, "nearly calibrated"),
        (0.1, 1000, "somewhat off"),
        (0.3, 1000, "far off"),
        (0.3, 4, "cannot tell"),
    ],
)
def test_levels(shift: float, rounds: int, word: str) -> None:
    said, happened = np.array([[0.5 - shift, 0.5 + shift]]), np.array([[0.5, 0.5]])
    assert level(Reading(said, np.array([float(rounds)]), happened, rounds, None)) == word


def test_all_entries_are_read_the_same_way() -> None:
    """As soon as one of them hardly repeats, all are binned."""
    coins = one_hot(2, 500, np.random.default_rng(0))
    grid, mean = report.play(tc.BinaryGrid(bins=7), coins), report.play(tc.RunningMean(TWO), coins)
    (alone,) = report.Section("x", [grid]).verdicts
    assert alone.reading.resolution is None
    assert alone.error == alone.exact_error == grid.ledger.error("l1")
    assert isinstance(grid.ledger, tc.Ledger)
    together = report.Section("x", [grid, mean]).verdicts
    assert [verdict.reading.resolution for verdict in together] == [0.1, 0.1]
    assert together[0].error == grid.ledger.binned(resolution=0.1).error("l1")
    assert together[0].exact_error == alone.error


def test_the_words_carry_the_numbers() -> None:
    entry = report.play(tc.TreeCal(TWO, arity=4), one_hot(2, 2000, np.random.default_rng(0)))
    (verdict,) = report.Section("x", [entry]).verdicts
    text, error = " ".join(verdict.sentences), entry.ledger.error("l1")
    assert f"differed by {error:.3f}" in text
    assert f"{50 * error:.2g} % of the probability sat on the wrong classes" in text
    assert f"{verdict.chance:.3f}" in text
    bound = tc.certificate(TWO, "l1", rounds=2000, arity=4).bound
    assert f"an exact error of at most {bound:.3f}. It was {error:.3f}" in str(verdict.guarantee)
    early = report.play(tc.AdaptiveTreeCal(TWO, rule="block"), one_hot(2, 20, np.random.default_rng(0)))
    (verdict,) = report.Section("x", [early]).verdicts
    assert "vacuous" in str(verdict.guarantee)


def test_the_words_say_what_the_guard_did() -> None:
    entry = report.play(tc.Guarded(TWO), one_hot(2, 2000, np.random.default_rng(0)))
    (verdict,) = report.Section("x", [entry]).verdicts
    did, text = entry.guard, " ".join(verdict.sentences)
    assert did is not None
    assert f"the eager part forecast {did.eager_rounds:,} rounds" in text
    assert f"the safe part {did.safe_rounds:,}, which add at most {did.safe_error / 2000:.3f}" in text


def test_off_the_simplex_there_is_no_talk_of_probability_or_chance() -> None:
    space = tc.Ball(2)
    entry = report.play(tc.TreeCal(space, arity=2), np.tile([[0.1, 0.2], [0.3, 0.1]], (200, 1)))
    (verdict,) = report.Section("x", [entry]).verdicts
    text = " ".join(verdict.sentences)
    assert verdict.chance is None
    assert "chance" not in text.lower()
    assert "probability" not in text


def test_norms_in_words() -> None:
    assert "sum of the differences" in norm_in_words(tc.l1)
    assert norm_in_words(tc.Lp(3)) == repr(tc.Lp(3))


def test_a_verdict_is_reached_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables, the page and the sentences all read the same verdicts: chance is simulated once per entry."""
    simulated = []

    def counted(reading: Reading, norm: object) -> float:
        simulated.append(reading)
        return 0.1

    monkeypatch.setattr("treecal.report._verdict.chance_error", counted)
    coins = one_hot(2, 200, np.random.default_rng(0))
    section = report.Section("Coins", [report.play(make(TWO), coins) for make in (tc.TreeCal, tc.BinaryGrid)])
    report.render([section], title="once")
    report.render([section], title="twice")
    assert [verdict.level for verdict in section.verdicts]
    assert len(simulated) == 2
