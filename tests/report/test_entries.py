"""What a report is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.strategies import one_hot
from treecal import plots, report, streams
from treecal.auditing import audit
from treecal.exceptions import ParameterError

COINS = one_hot(2, 300, np.random.default_rng(0))
TWO = tc.Simplex(2)


@pytest.mark.parametrize("make", [tc.TreeCal, tc.AdaptiveTreeCal, tc.BinaryGrid, tc.RunningMean])
def test_playing_is_streams_play_and_a_curve(make: Any) -> None:
    entry, ledger = report.play(make(TWO), COINS), streams.play(make(TWO), COINS)
    assert isinstance(entry.ledger, tc.Ledger)
    assert entry.ledger.exact().weights.tolist() == ledger.exact().weights.tolist()
    assert entry.name == make.__name__
    assert entry.curve is not None
    assert entry.curve.rounds.tolist() == streams.checkpoints(300).tolist()
    for t, error in zip(*entry.curve[:2], strict=True):
        assert error == streams.play(make(TWO), COINS[: int(t)]).error("l1")


def test_bounds_are_the_certificates_and_hold() -> None:
    def last(forecaster: tc.Forecaster, norm: str = "l1") -> float | None:
        curve = report.play(forecaster, COINS, norm=norm).curve
        assert curve is not None
        if curve.bounds is None:
            return None
        assert (curve.errors <= curve.bounds).all()
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
    assert last(tc.Guarded(TWO, safe=tc.BinaryGrid(bins=bins), budget=0.2)) == pytest.approx(1.2 * grid.bound)
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
    assert entry.before.error("l1") == corrector.ledgers["before"].error("l1")
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
    assert (entry.curve.errors <= entry.curve.bounds).all()
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


def test_an_audits_section_has_its_errors() -> None:
    rng, names = np.random.default_rng(0), [f"class {k}" for k in range(10)]
    said = rng.dirichlet(np.ones(10), size=400)
    happened = np.array([rng.choice(10, p=p) for p in said])
    log = {name: said[:, k] for k, name in enumerate(names)} | {"outcome": np.array(names)[happened]}
    found = audit(log, forecast=names, outcome="outcome", classes=names, exact=False).whole
    section = report.audited(found, title="A log")
    assert section.title == "A log (the 8 most frequent of 10 classes)"
    rates = [found.classes[entry.name].mean_outcome for entry in section.entries]
    assert rates == sorted((bins.mean_outcome for bins in found.classes.values()), reverse=True)[:8]
    for entry in section.entries:
        assert entry.ledger.rounds == 400
        assert entry.ledger.error("l1") == pytest.approx(2 * found.classes[entry.name].ece)
        drawn, bins = plots.reliability(entry.ledger, 1), found.classes[entry.name]
        assert drawn.weight.tolist() == bins.weight[bins.weight > 0].tolist()
        assert drawn.outcome == pytest.approx(bins.outcome[bins.weight > 0])
