"""The verdict: its yardstick, its words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.strategies import one_hot
from treecal import report
from treecal.ledger import Reading
from treecal.measures import Verdict
from treecal.report._verdict import norm_in_words

TWO = tc.Simplex(2)


def verdict(ledger: tc.Ledger | Reading, classes: Sequence[str] | None = None) -> report.Verdict:
    return report.Section("x", [report.Entry("x", ledger)], classes).verdicts[0]


def level(ledger: tc.Ledger | Reading) -> str:
    return verdict(ledger).level


def test_who_is_exactly_right_is_seldom_blamed() -> None:
    rng = np.random.default_rng(3)
    points, count = rng.dirichlet(np.ones(3), size=12), np.arange(10, 130, 10)
    blamed = []
    for _ in range(60):
        happened = rng.multinomial(count, points) / count[:, None]
        blamed.append(level(Reading(points, count.astype(float), happened, int(count.sum()), None)) != "calibrated")
    assert np.mean(blamed) < 0.15  # one in twenty is to be expected; 9 or more of 60 happen once in a thousand


def test_a_distribution_is_judged_by_its_points_with_their_weights() -> None:
    """Weight on several points is no more evidence than on one."""
    rng, spread, one = np.random.default_rng(0), tc.Ledger(TWO), tc.Ledger(TWO)
    for _ in range(500):
        y = np.eye(2)[rng.integers(2)]
        spread.record(tc.Forecast([[0.55, 0.45], [0.45, 0.55]], space=TWO), y)
        one.record([0.5, 0.5], y)
    chances = [verdict(ledger).chance for ledger in (spread, one)]
    assert chances[0] is not None
    assert chances[1] is not None
    assert chances[0] > chances[1]


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


@given(seed=st.integers(0, 2**32), rounds=st.integers(1, 400), sharp=st.sampled_from([0.5, 1.0, 2.0]))
@settings(deadline=None, max_examples=12)
def test_ledger_audit_and_report_agree(seed: int, rounds: int, sharp: float) -> None:
    """One rule: the same rows have the same verdict, however they came."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(3), size=rounds)
    y = np.array([rng.choice(3, p=p) for p in P])
    P = P**sharp / (P**sharp).sum(axis=1, keepdims=True)
    ledger = tc.Ledger(tc.Simplex(3))
    ledger.record_many(P, y)
    found = tc.audit(P, y, exact=False)
    ours = [verdict(ledger, found.classes), verdict(ledger.exact(), found.classes), *report.audited(found).verdicts]
    assert len({each.level for each in ours}) == 1
    assert len({each.advice for each in ours}) == 1
    for each in ours:
        assert each.judged is not None
        assert each.error == pytest.approx(found.whole.classwise_ece, abs=1e-9)
        assert each.judged.share == pytest.approx(found.whole.verdict.share, abs=1e-6)


@pytest.mark.parametrize(
    ("forecast", "rate", "rounds", "word"),
    [(0.0, 0.04, 20_000, "far off"), (0.08, 0.04, 20_000, "far off"), (0.04, 0.04, 20_000, "calibrated")],
)
def test_rare_classes_are_judged_by_their_base_rate(forecast: float, rate: float, rounds: int, word: str) -> None:
    ledger = tc.Ledger(TWO)
    ledger.record_many(np.tile([1 - forecast, forecast], (rounds, 1)), (np.arange(rounds) < rate * rounds).astype(int))
    assert level(ledger) == word


def test_an_entry_is_judged_by_itself() -> None:
    """Whoever stands beside it changes nothing."""
    coins = one_hot(2, 500, np.random.default_rng(0))
    grid, mean = report.play(tc.BinaryGrid(bins=7), coins), report.play(tc.RunningMean(TWO), coins)
    (alone,) = report.Section("x", [grid]).verdicts
    together, other = report.Section("x", [grid, mean]).verdicts
    assert (alone.level, alone.error, alone.exact_error) == (together.level, together.error, together.exact_error)
    assert alone.exact_error == grid.exact.error("l1")
    assert alone.reading.resolution is None
    assert other.reading.resolution == 0.1  # what hardly repeats is shown in bins
    assert isinstance(mean.ledger, tc.Ledger)
    binned = mean.ledger.binned(resolution=0.1)
    assert len(other.reading) == len(binned)
    assert other.reading.error("l1") == pytest.approx(binned.error("l1"))
    assert other.reading.weights.sum() == pytest.approx(500)


def test_the_words_carry_the_numbers() -> None:
    entry = report.play(tc.TreeCal(TWO, arity=4), one_hot(2, 2000, np.random.default_rng(0)))
    (found,) = report.Section("x", [entry]).verdicts
    assert found.judged is not None
    text, view = " ".join(found.sentences), found.judged.worst
    for figure in (view.luck.value, view.luck.mean, view.error.value):
        assert f"{figure:.3f}" in text
    bound = tc.certificate(TWO, "l1", rounds=2000, arity=4).bound
    assert f"an exact error of at most {bound:.3f}. It was {entry.exact.error('l1'):.3f}" in str(found.guarantee)
    early = report.play(tc.AdaptiveTreeCal(TWO, rule="block"), one_hot(2, 20, np.random.default_rng(0)))
    (found,) = report.Section("x", [early]).verdicts
    assert "vacuous" in str(found.guarantee)


def test_advice_fits_what_is_advised() -> None:
    """A forecaster without a model is not told to use a scaling: it knows no more than the outcomes."""
    rng = np.random.default_rng(0)
    drifting = (rng.random(3000) < np.linspace(0.05, 0.95, 3000)).astype(int)
    off = report.play(tc.TreeCal(TWO), drifting)
    (found,) = report.Section("x", [off]).verdicts
    assert found.level not in ("calibrated", "cannot tell")
    assert "Guarded" in str(found.advice)
    given_away = report.Entry("the same, as a log", off.exact)
    assert "Guarded" not in str(verdict(off.exact).advice)
    assert report.Section("x", [given_away]).verdicts[0].level == found.level
    coins = one_hot(2, 2000, rng)
    (fine,) = report.Section("x", [report.play(tc.RunningMean(TWO), coins)]).verdicts
    assert fine.level == "calibrated"
    assert fine.judged is not None
    assert fine.advice == fine.judged.advice


def test_the_words_say_what_the_guard_did() -> None:
    entry = report.play(tc.Guarded(TWO), one_hot(2, 2000, np.random.default_rng(0)))
    (found,) = report.Section("x", [entry]).verdicts
    did, text = entry.guard, " ".join(found.sentences)
    assert did is not None
    assert f"the eager part forecast {did.eager_rounds:,} rounds" in text
    assert f"the safe part {did.safe_rounds:,}, which add at most {did.safe_bound / 2000:.3f}" in text
    assert entry.ahead is not None
    assert found.guarantee is not None
    assert f"After 200 outcomes more, whatever they are, it is at most {entry.ahead[1]:.3f}." in found.guarantee
    assert found.exact_error is not None
    assert found.exact_error < entry.ahead[1] < found.worst


def test_off_the_simplex_there_is_no_talk_of_probability_or_chance() -> None:
    space = tc.Ball(2)
    entry = report.play(tc.TreeCal(space, arity=2), np.tile([[0.1, 0.2], [0.3, 0.1]], (200, 1)))
    (found,) = report.Section("x", [entry]).verdicts
    text = " ".join(found.sentences)
    assert found.chance is None
    assert found.judged is None
    assert found.advice is None
    assert "chance" not in text.lower()
    assert "probability" not in text


def test_norms_in_words() -> None:
    assert "sum of the differences" in norm_in_words(tc.l1)
    assert norm_in_words(tc.Lp(3)) == repr(tc.Lp(3))


def test_a_verdict_is_reached_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables, the page and the sentences all read the same verdicts: rows are binned once per entry."""
    judged, reach = [], Reading.verdict

    def counted(reading: Reading, classes: Sequence[str] | None = None) -> Verdict:
        judged.append(reading)
        return reach(reading, classes)

    coins = one_hot(2, 200, np.random.default_rng(0))
    section = report.Section("Coins", [report.play(make(TWO), coins) for make in (tc.TreeCal, tc.BinaryGrid)])
    monkeypatch.setattr(Reading, "verdict", counted)
    report.render([section], title="once")
    report.render([section], title="twice")
    assert [found.level for found in section.verdicts]
    assert len(judged) == 2
