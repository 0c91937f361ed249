"""What a report is made of."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.strategies import one_hot
from treecal import report, streams
from treecal.auditing import Audit, audit
from treecal.exceptions import ParameterError

COINS = one_hot(2, 300, np.random.default_rng(0))
TWO = tc.Simplex(2)


@pytest.mark.parametrize("make", [tc.TreeCal, tc.AdaptiveTreeCal, tc.BinaryGrid, tc.RunningMean])
def test_playing_is_streams_play_and_a_curve(make: Any) -> None:
    entry, ledger = report.play(make(TWO), COINS), streams.play(make(TWO), COINS)
    assert entry.exact.weights.sum() == pytest.approx(300)
    assert entry.exact.error("l1") == pytest.approx(ledger.error("l1"))
    assert entry.name == make.__name__
    assert entry.curve is not None
    assert set(entry.curve.rounds.tolist()) <= set(streams.checkpoints(300).tolist())
    assert entry.curve.rounds[-1] == 300
    for t, error, exact in zip(*entry.curve[:3], strict=True):
        reading = streams.play(make(TWO), COINS[: int(t)]).exact()
        assert exact == pytest.approx(reading.error("l1"))
        assert error == pytest.approx(reading.verdict().views[1].luck.value)


@pytest.mark.parametrize(
    "forecaster",
    [
        tc.TreeCal(tc.Simplex(3), arity=4),
        tc.TreeCal(tc.Simplex(3), arity=7, depth=4, mix=0.1),
        tc.AdaptiveTreeCal(tc.Simplex(3)),
        tc.Guarded(tc.Simplex(3)),
        tc.Guarded(tc.Simplex(3), error=0.5, budget=0),
        tc.TreeCal(tc.Box(0, 1, dim=2)),
    ],
    ids=repr,
)
def test_what_is_replayed_at_once_is_what_rounds_give(forecaster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, space = np.random.default_rng(5), forecaster.space
    classes = isinstance(space, tc.Simplex)
    outcomes = rng.choice(3, p=[0.6, 0.3, 0.1], size=700) if classes else rng.random((700, 2))

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was played round by round")

    with monkeypatch.context() as patch:
        patch.setattr("treecal.report._entries.streams.play", never)
        quick = report.play(deepcopy(forecaster), outcomes)
    monkeypatch.setattr("treecal.report._entries.can_replay", lambda _: False)
    slow = report.play(deepcopy(forecaster), outcomes)
    assert isinstance(slow.ledger, tc.Ledger)
    assert not isinstance(quick.ledger, tc.Ledger)
    assert quick.guard == slow.guard
    assert (quick.made, quick.advice, quick.squares) == (slow.made, slow.advice, slow.squares)
    for measure in ("l1", "l2"):
        assert quick.exact.error(measure) == pytest.approx(slow.exact.error(measure))
    assert quick.curve is not None
    assert slow.curve is not None
    at = np.searchsorted(slow.curve.rounds, quick.curve.rounds)
    assert len(at) >= 7  # three a decade
    assert slow.curve.rounds[at].tolist() == quick.curve.rounds.tolist()
    np.testing.assert_allclose(quick.curve.errors, slow.curve.errors[at], atol=1e-9)
    np.testing.assert_allclose(quick.curve.exact, slow.curve.exact[at], atol=1e-9)
    if slow.curve.bounds is not None:
        assert quick.curve.bounds is not None
        assert quick.curve.bounds.tolist() == slow.curve.bounds[at].tolist()
    else:
        assert quick.curve.bounds is None
    pages = [report.Section("x", [entry]).verdicts[0] for entry in (quick, slow)]
    assert pages[0].level == pages[1].level
    assert pages[0].error == pytest.approx(pages[1].error)


def test_the_curve_ends_at_the_verdict() -> None:
    """A reader who looks at the picture concludes what the words say: of the corrector, and of the model before it."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(3), size=2000)
    outcomes = np.array([rng.choice(3, p=p) for p in P])
    model = P**3 / (P**3).sum(axis=1, keepdims=True)
    entry = report.play(tc.TemperatureScaling(tc.Simplex(3)), outcomes, forecasts=model)
    assert entry.before is not None
    before, after = (report.Section("x", [each]).verdicts[0] for each in (entry.before, entry))
    for verdict in (before, after):
        assert verdict.entry.curve is not None
        assert verdict.entry.curve.errors[-1] == verdict.error
    assert before.level == "far off"
    assert after.level != "far off"
    assert after.error < before.error / 3
    assert entry.curve is not None
    assert entry.curve.exact[-1] > 5 * entry.curve.errors[-1]  # which no picture shows beside it


def test_bounds_are_the_certificates_and_hold() -> None:
    def last(forecaster: tc.Forecaster, norm: str = "l1") -> float | None:
        curve = report.play(forecaster, COINS, norm=norm).curve
        assert curve is not None
        if curve.bounds is None:
            return None
        assert (curve.exact <= curve.bounds).all()
        assert (curve.errors <= curve.bounds / TWO.dim + 1e-12).all()  # class-wise ECE is a mean over classes
        return float(curve.bounds[-1])

    assert last(tc.TreeCal(TWO, arity=4)) == tc.certificate(TWO, "l1", rounds=300, arity=4).bound
    assert last(tc.TreeCal(TWO, arity=7, depth=3)) == tc.certificate(TWO, "l1", rounds=300, arity=7, depth=3).bound
    away = tc.TreeCal(TWO, start=[1, 0])
    assert last(away, "l2") == tc.certificate(TWO, "l2", rounds=300, start=[1, 0]).bound
    block = tc.certificate(TWO, "l1", rounds=300, arity=32, rule="block").bound
    assert last(tc.AdaptiveTreeCal(TWO, arity=32, rule="block")) == min(block, 2)
    choices = tc.recommend(TWO, "l1", rounds=300).table
    grid = next(choice for choice in choices if choice.forecaster.startswith("BinaryGrid"))
    bins = int(grid.forecaster.split("=")[1].strip(")"))
    assert last(tc.BinaryGrid(bins=bins)) == grid.bound
    assert grid.bound is not None
    assert last(tc.Guarded(TWO, safe=tc.BinaryGrid(bins=bins), error=0.2)) == pytest.approx(0.2 + grid.bound)
    # What no certificate covers has none.
    assert last(tc.AdaptiveTreeCal(TWO)) is None
    assert last(tc.Guarded(TWO), "l2") is None  # guarded in ℓ1
    assert last(tc.AdaptiveTreeCal(TWO, rule="block"), "l2") is None
    assert last(tc.TreeCal(TWO, mix=0.1)) is None
    assert last(tc.RunningMean(TWO)) is None


def test_how_it_was_made_can_be_typed_and_does_not_change() -> None:
    def made(forecaster: Any, **more: Any) -> str | None:
        return report.play(forecaster, COINS, **more).made

    assert made(tc.TreeCal(TWO)) == "TreeCal(Simplex(2))"
    assert made(tc.TreeCal(TWO, arity=3, mix=0.5)) == "TreeCal(Simplex(2), arity=3, mix=0.5)"
    assert made(tc.AdaptiveTreeCal(TWO, rule="block")) == "AdaptiveTreeCal(Simplex(2), norm=l1, rule='block')"
    assert "start=array([1., 0.])" in str(made(tc.TreeCal(TWO, start=[1, 0])))
    corrector = tc.Recalibrator(TWO, make=lambda: tc.TreeCal(TWO))
    assert "0x" not in str(made(corrector, forecasts=np.full((300, 2), 0.5)))


def test_a_corrector_is_played_on_the_models_forecasts() -> None:
    forecasts = np.column_stack([np.linspace(0, 1, 300), np.linspace(1, 0, 300)])
    corrector = tc.Recalibrator(TWO, scores="exact")
    entry = report.play(corrector, COINS, forecasts=forecasts)
    assert isinstance(entry.ledger, tc.Ledger)
    assert entry.ledger.error("l1") == corrector.ledgers["after"].error("l1")
    assert entry.tree is None
    assert entry.before is not None
    assert entry.before.exact.error("l1") == pytest.approx(corrector.ledgers["before"].error("l1"))
    assert entry.before.scores is not None
    assert entry.before.scores.score == pytest.approx(np.square(forecasts - COINS).sum(axis=1).mean())
    adverse = streams.MeanAdversary(TWO)
    assert report.play(tc.Recalibrator(TWO), adverse, rounds=9, forecasts=forecasts[:9]).before is None


def test_a_guarded_corrector_has_a_guarantee() -> None:
    entry = report.play(tc.GuardedCorrector(TWO), COINS, forecasts=np.full((300, 2), 0.5))
    certificate = tc.GuardedCorrector(TWO).certificate("l1", rounds=300)
    assert entry.curve is not None
    assert entry.curve.bounds is not None
    assert certificate is not None
    assert entry.curve.bounds[-1] == certificate.bound


def test_an_adversary_is_played_like_a_stream() -> None:
    entry = report.play(tc.TreeCal(TWO), streams.LedgerAdversary(TWO), rounds=50, note="why")
    assert entry.exact.rounds == 50
    assert entry.exact.error("l1") == streams.play(tc.TreeCal(TWO), streams.LedgerAdversary(TWO), rounds=50).error("l1")
    assert entry.tree is None
    assert entry.note == "why"


def test_a_guarded_corrector_has_a_bound_and_says_what_the_guard_did() -> None:
    forecasts = np.tile([0.9, 0.1], (300, 1))
    corrector = tc.GuardedCorrector(TWO)
    entry = report.play(corrector, COINS, forecasts=forecasts)
    assert entry.guard == corrector.guard()
    assert entry.guard is not None
    assert entry.guard.safe_rounds > 0
    certificate = corrector.certificate("l1", rounds=300)
    assert certificate is not None
    assert entry.curve is not None
    assert entry.curve.bounds is not None
    assert entry.curve.bounds[-1] == certificate.bound
    assert (entry.curve.exact <= entry.curve.bounds).all()
    assert report.play(tc.Recalibrator(TWO), COINS, forecasts=forecasts).guard is None
    assert report.play(tc.TreeCal(TWO), COINS).guard is None


def test_progress_is_told_and_ends_at_the_end() -> None:
    told: list[tuple[int, int]] = []
    report.play(tc.RunningMean(TWO), COINS, progress=lambda *counts: told.append(counts))
    assert told == sorted(set(told))
    assert told[-1] == (300, 300)
    assert len(told) <= 300


def test_play_refuses() -> None:
    used = tc.TreeCal(TWO)
    used.update([1, 0])
    with pytest.raises(ParameterError, match="1 rounds already, expected a new one"):
        report.play(used, COINS)
    with pytest.raises(ParameterError, match="need the model's forecasts"):
        report.play(tc.Recalibrator(TWO), COINS)
    with pytest.raises(ParameterError, match="need the model's forecasts"):
        report.play(tc.TreeCal(TWO), COINS, forecasts=COINS)
    with pytest.raises(ParameterError, match="299 forecasts for 300 rounds"):
        report.play(tc.Recalibrator(TWO), COINS, forecasts=COINS[1:])
    with pytest.raises(ParameterError, match="has no rounds"):
        report.play(tc.TreeCal(TWO), COINS[:0])
    with pytest.raises(tc.TreeCalError, match="outcome at round 2"):
        report.play(tc.TreeCal(TWO), [[1.0, 0.0], [0.5, 0.6]])


def test_sections_and_entries_refuse() -> None:
    entry = report.play(tc.TreeCal(TWO), COINS)
    with pytest.raises(ParameterError, match="no entries"):
        report.Section("x", [])
    with pytest.raises(ParameterError, match="distinct names"):
        report.Section("x", [entry, entry])
    with pytest.raises(ParameterError, match="3 classes were named, expected 2"):
        report.Section("x", [entry], ["a", "b", "c"])
    with pytest.raises(ParameterError, match="'other' is measured on Simplex\\(2\\) in l2"):
        report.Section("x", [entry, report.play(tc.TreeCal(TWO), COINS, name="other", norm="l2")])
    ball = tc.Ledger(tc.Ball(2))
    ball.record([0.1, 0.2], [0, 0])
    assert report.Entry("ball", ball).space == tc.Ball(2)
    with pytest.raises(ParameterError, match="not probabilities"):
        report.Entry("ball", ball.exact())


def log(groups: int, rows: int, seed: int = 0, off: tuple[int, ...] = ()) -> Audit:
    """Audit a calibrated log, of which some groups are off."""
    rng = np.random.default_rng(seed)
    site, p = rng.integers(groups, size=rows), rng.random(rows)
    clicked = rng.random(rows) < np.where(np.isin(site, off), p**2, p)
    return audit({"p": p, "clicked": clicked, "site": site}, forecast="p", outcome="clicked", by="site", exact=False)


def test_an_audits_section_has_its_verdicts() -> None:
    found = log(groups=5, rows=5000, off=(1, 3))
    section = report.audited(found, title="A log")
    assert section.title == "A log"
    assert section.names == found.classes
    whole, *groups = section.verdicts
    assert whole.judged is found.whole.verdict
    assert whole.entry.name == "all rows"
    assert sorted(verdict.entry.name for verdict in groups) == ["1", "3"]
    for verdict in groups:
        part = found.groups[int(verdict.entry.name),]
        assert verdict.judged is part.verdict
        assert verdict.error == pytest.approx(part.classwise_ece)
        assert verdict.entry.rounds == part.rounds
        assert verdict.entry.scores is not None
        assert verdict.entry.scores.score == part.brier
    assert [row.part for row in section.groups] == list(found.groups.values())
    assert report.audited(found).title == found.source


@pytest.mark.heavy
def test_groups_that_are_off_allow_for_how_many_there_are() -> None:
    """Some of 300 calibrated groups are off by themselves; together they are what chance shows."""
    alone = together = 0
    for seed in range(3):
        section = report.audited(log(groups=300, rows=30_000, seed=seed))
        alone += sum(row.part.verdict.p_value < 0.05 for row in section.groups)
        together += bool(section.off)
    assert alone > 5
    assert together <= 1
    section = report.audited(log(groups=60, rows=30_000, off=tuple(range(30))))
    off = [row.name for row in section.off]
    assert len({*off} & {str(k) for k in range(30)}) >= 25
    assert len({*off} - {str(k) for k in range(30)}) <= 5
    assert [entry.name for entry in section.entries] == ["all rows", *off[:12]]  # pictures of the worst only
    shares = [row.part.verdict.share for row in section.off]
    assert shares == sorted(shares, reverse=True)


def test_groups_of_one_name_are_kept_apart() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(2000)
    found = audit({"p": p, "y": rng.random(2000) < p**3, "s": np.arange(2000) % 2}, forecast="p", outcome="y", by="s")
    twins = replace(found, groups={(1,): found.groups[0,], ("1",): found.groups[1,]})
    names = [entry.name for entry in report.audited(twins).entries]
    assert len(set(names)) == 3
