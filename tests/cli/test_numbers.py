"""Columns of quantiles, members, or mean and sd in `treecal recalibrate` and `treecal monitor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import treecal as tc
from tests.cli.support import refused, run
from treecal._typing import Array
from treecal.geometry import Cdf


def log_of(rounds: int = 300) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    mean = rng.uniform(40, 60, rounds)
    members = rng.normal(mean[:, None], 5, (rounds, 4))
    return {
        "q10": mean - 6.4,
        "q50": mean,
        "q90": mean + 6.4,
        "m": mean,
        "s": np.full(rounds, 5.0),
        **{f"e{k}": members[:, k] for k in range(4)},
        "lead": np.arange(rounds) % 2,
        "load": rng.normal(mean + 4, 10),
    }


@pytest.fixture
def log(tmp_path: Path) -> Path:
    pd.DataFrame(log_of()).to_csv(path := tmp_path / "log.csv", index=False)
    return path


def read(path: Path) -> Any:
    return pd.read_csv(path)


def test_recalibrated_quantiles_are_those_of_python(log: Path, tmp_path: Path) -> None:
    columns = log_of()
    given = ["--quantiles", "q10,q50,q90", "--outcome", "load", "--low", "-50", "--high", "150"]
    done = run("recalibrate", log, *given, "--by", "lead", "--output", tmp_path / "out.csv")
    assert done.code == 0
    assert "CRPS = calibration" in done.err
    found = read(tmp_path / "out.csv")
    assert [*found] == ["lead", "q10", "q50", "q90", "load", "corrected_q10", "corrected_q50", "corrected_q90"]
    space = Cdf(-50, 150, points=int(25 * 200 / 12.8), clip=True)
    f = tc.ByGroup(tc.AutoCorrector(space))
    forecasts = {0.1: columns["q10"], 0.5: columns["q50"], 0.9: columns["q90"]}
    law = space.distribution(f.update_many(forecasts, columns["load"], groups=columns["lead"].tolist()))
    for name, level in (("corrected_q10", 0.1), ("corrected_q90", 0.9)):
        np.testing.assert_allclose(found[name], law.quantile(level), rtol=1e-9)
    *lines, scores = run("recalibrate", log, *given, "--method", "location-scale", "--json").lines
    assert lines[0]["row"].keys() == {"load"}
    assert lines[-1].keys() == {"round", "corrected_q10", "corrected_q50", "corrected_q90", "row"}
    assert scores["scores"]["after"]["brier"] < scores["scores"]["before"]["brier"]


@pytest.mark.parametrize(
    "form", [["--quantiles", "low=0.1,high=0.9"], ["--members", "e0,e1,e2,e3"], ["--mean", "m", "--sd", "s"]]
)
def test_a_monitor_of_a_file_is_that_of_python(form: list[str], log: Path) -> None:
    columns = log_of()
    if "low=" in form[1]:
        read(log).rename(columns={"q10": "low", "q90": "high"}).to_csv(log, index=False)
    done = run("monitor", log, *form, "--outcome", "load", "--json")
    assert done.code == 3
    (found,) = done.lines
    assert found["alarm"]["direction"] in ("too narrow", "too low")
    if form[0] == "--members":
        m = tc.Monitor(Cdf(-100, 200))
        m.update_many({"members": np.column_stack([columns[f"e{k}"] for k in range(4)])}, columns["load"])
        assert found["statistic"] == pytest.approx(m.e_value)


def test_what_cannot_be_is_refused(log: Path, tmp_path: Path) -> None:
    numbers = ["--quantiles", "q10,q90", "--outcome", "load"]
    for command in ("recalibrate", "monitor"):
        refused(run(command, "-", *numbers), "from a file")
        refused(run(command, log, *numbers, "--classes", "a,b"), "no --classes")
        refused(run(command, log, *numbers, "--snapshot", tmp_path / "s.treecal"), "--snapshot")
    refused(run("monitor", log, "--quantiles", "q11,q90", "--outcome", "load"), "q11")
    columns = log_of(30)
    columns["q50"][3] = np.nan
    pd.DataFrame(columns).to_csv(log, index=False)
    given = ["--quantiles", "q10,q50,q90", "--outcome", "load"]
    refused(run("recalibrate", log, *given), "row 4")
    assert run("monitor", log, *given, "--on-error", "skip").code in (1, 3)


def test_a_replay_of_a_number_forecasts_its_distribution(log: Path, tmp_path: Path) -> None:
    space = tc.Cdf(-50, 150)
    expected = tc.replay(log_of()["load"], tc.Guarded(space)).error("crps")
    page = tmp_path / "load.html"
    given = ["replay", log, "--outcome", "load", "--cdf", "-50", "150"]
    found = json.loads(run(*given, "--report", page, "--json").out)
    assert found["errors"]["crps"]["exact"] == pytest.approx(expected, rel=1e-12)
    assert "F(49)" in page.read_text("utf-8")
    assert "F(49)" in run(*given, "--top", "100").out
    refused(run(*given[:-1], "0"), "expected -50 to 0")
    refused(run(*given, "--dim", "2"), "--cdf is a set of outcomes")
