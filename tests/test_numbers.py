"""Outcomes that are one number each: a set of two bounds, and bare numbers wherever points are taken."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import treecal as tc
from tests.cli.support import refused, run
from treecal import report
from treecal.exceptions import FileError, ForecastError, OutcomeError, ParameterError
from treecal.streams import play

LOAD = tc.Box(0, 500)
Y = np.random.default_rng(0).uniform(0, 500, 60)
ROWS = Y[:, None]
GROUPS = tc.correctors.Cells(width=50)


def test_two_numbers_are_the_bounds_of_one_coordinate() -> None:
    assert LOAD.dim == 1
    assert tc.Box(0, 500, dim=1) == LOAD


@pytest.mark.parametrize("make", [tc.TreeCal, tc.Guarded, tc.Harmonic, tc.RunningMean], ids=lambda make: make.__name__)
def test_forecasters_learn_numbers(make: type[tc.Forecaster]) -> None:
    one, other = make(LOAD), make(LOAD)
    for y in Y[:20]:
        one.update(float(y))
        other.update([y])
    one.update(12)
    other.update([12.0])
    assert one.predict() == other.predict()


def test_everything_else_takes_numbers() -> None:
    assert tc.replay(Y, LOAD).error("l2") == tc.replay(ROWS, LOAD).error("l2")
    assert play(tc.TreeCal(LOAD), Y).error("l2") == play(tc.TreeCal(LOAD), ROWS).error("l2")
    assert report.play(tc.TreeCal(LOAD), Y).exact.error("l2") == report.play(tc.TreeCal(LOAD), ROWS).exact.error("l2")
    ledger = tc.Ledger(LOAD)
    ledger.record(100.0, 120.0)
    assert ledger.error("l2") == 20
    bank = tc.Bank(tc.RunningMean(LOAD), streams=2)
    bank.update([0, 1, 0], Y[:3])
    assert bank.predict([1]).points.tolist() == [[[Y[1]]]]
    late = tc.Late(tc.RunningMean(LOAD))
    late.predict(id="a")
    late.update("a", 7.0)
    assert late.predict(id="b").mean == 7
    for watched in (tc.Monitor(LOAD), tc.Monitor(LOAD)):
        watched.update(90.0, 100)
        watched.update_many(Y - Y / 3, Y)
        assert watched.rounds == len(Y) + 1
    corrector = tc.Recalibrator(LOAD, groups=GROUPS)
    assert corrector.predict(80.0).mean == 80
    corrector.update(70.0)
    assert corrector.update_many(Y / 2, Y).shape == (len(Y), 1)
    assert corrector.predict_many(Y / 2).shape == (len(Y), 1)


def test_a_report_of_numbers_speaks_of_coordinates() -> None:
    corrector = tc.Recalibrator(LOAD, groups=GROUPS)
    corrector.update_many(Y / 2, Y)
    words = str(corrector.report())
    assert "each coordinate in bins of a tenth" in words
    assert "Brier" not in words


def test_points_that_are_biased_are_corrected_in_cells_by_default() -> None:
    rng = np.random.default_rng(0)
    model = rng.uniform(50, 400, 800)
    outcomes = np.clip(1.1 * model + 10 + rng.normal(0, 20, 800), 0, 500)
    corrector = tc.Recalibrator(LOAD)
    corrected = corrector.update_many(model, outcomes)[:, 0]
    assert np.abs(corrected - outcomes)[200:].mean() < 0.55 * np.abs(model - outcomes)[200:].mean()
    assert corrector.make == "shift"
    assert tc.Recalibrator(LOAD, groups=GROUPS).make == "mean"
    watch = tc.Monitor(LOAD)
    watch.update_many(model, outcomes)
    assert watch.alarm is not None
    assert watch.alarm.where is None
    assert "forecasts are too low, by" in str(watch.alarm)
    square = tc.Monitor(tc.Box(0, 500, dim=2))
    square.update_many(np.column_stack([outcomes, model]), np.column_stack([outcomes, outcomes]))
    assert "forecasts of coordinate 1 are too low" in str(square.alarm)


def test_many_numbers_are_no_classes(tmp_path: Path) -> None:
    path = tmp_path / "flow.csv"
    path.write_text("y\n" + "".join(f"{y:.2f}\n" for y in Y))
    refused(
        run("replay", path),
        "holds 60 different numbers: are they classes or numbers?",
        "--box 0 500",
        "--quantiles",
        "--classes",
    )
    assert json.loads(run("replay", path, "--box", 0, 500, "--json").out)["rounds"] == len(Y)
    path.write_text("y\n" + "".join(f"{y}\n" for y in range(300)))
    refused(run("replay", path), "300 different numbers")
    assert json.loads(run("replay", path, "--dim", 300, "--forecaster", "running-mean", "--json").out)["rounds"] == 300
    with pytest.raises(FileError, match="60 different numbers"):
        tc.audit(np.full(60, 0.5), Y)
    counts = np.arange(60)
    assert tc.audit(np.full((60, 60), 1 / 60), counts, exact=False).whole.rounds == 60


def test_functions_are_no_streams() -> None:
    with pytest.raises(ParameterError, match="expected outcomes or an Adversary"):
        play(tc.TreeCal(LOAD), lambda forecast: 3.0)  # type: ignore[arg-type]


def test_what_is_no_point_is_refused_and_classes_stay_classes() -> None:
    with pytest.raises(OutcomeError, match="600, expected 0 to 500"):
        tc.TreeCal(LOAD).update(600)
    with pytest.raises(OutcomeError, match="round 3 lies outside"):
        tc.Monitor(LOAD).update_many(Y[:3], [1, 2, 501])
    with pytest.raises(OutcomeError, match="is the scalar"):
        tc.TreeCal(tc.Box(0, 1, dim=2)).update(0.5)
    with pytest.raises(ForecastError, match="is the scalar"):
        tc.Ledger(tc.Simplex(2)).record(0.5, 1)
    single = tc.TreeCal(tc.Simplex(1))
    single.update(0)
    with pytest.raises(OutcomeError):
        single.update(1.0)
