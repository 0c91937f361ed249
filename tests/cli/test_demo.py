"""The main job, as a person runs it, on shorter streams."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import treecal as tc
from tests.cli.support import unhurried
from treecal.cli import main
from treecal.cli._app import app
from treecal.streams import ClassStream, ModelStream, iid, seattle_weather

demo: Any = importlib.import_module("treecal.cli._demo")  # the module; `treecal.cli._demo` is the command
TREECAL = str(Path(sys.executable).with_name("treecal"))


@pytest.fixture(scope="module")
def short() -> Iterator[None]:
    """A season of each stream, and a model that a shuffle has put wrong."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        shorten(monkeypatch)
        yield


@pytest.fixture(scope="module")
def played(short: None) -> Any:
    """What the job plays, once for all tests that look at it."""
    return list(demo.play_all())


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    weather, rng = seattle_weather(), np.random.default_rng(0)
    classes = ("early", "on time", "late")
    said = rng.dirichlet(np.ones(3), size=300)
    outcomes = np.array([rng.multinomial(1, p[[1, 2, 0]]) for p in said]) * 1.0
    season = ClassStream(weather.title, weather.classes, weather.outcomes[:120])
    storms = ClassStream("Storms", ("calm", "storm"), iid(tc.Simplex(2), 120, rng))
    monkeypatch.setattr(demo, "seattle_weather", lambda: season)
    monkeypatch.setattr(demo, "atlantic_storms", lambda: storms)
    monkeypatch.setattr(demo, "new_york_flights_model", lambda days: ModelStream("Flights", classes, outcomes, said))
    monkeypatch.setattr(demo, "FLIGHTS", 300)
    monkeypatch.setattr(demo, "ADVERSARY", 100)


@pytest.mark.usefixtures("short")
def test_demo_prints_both_tables_and_writes_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "demo.html"
    assert app(["demo", "--report", str(report)], result_action="return_value") == 0
    out, err = capsys.readouterr()
    for word in ("1. A real model, corrected", "2. Four real streams", "Guarded is the default", "An adversary"):
        assert word in out
    for stream in ("Seattle's weather", "wet or dry", "Storms", "New York's departures"):
        assert stream in out
    assert out.splitlines()[-1].startswith("Next: ")
    assert out.splitlines()[-1].endswith("recalibrate --help")
    assert err == f"treecal: report written to {report}.\n"
    page = report.read_text(encoding="utf-8")
    assert page.count("<img") > 10
    assert page.index("Before and after the correction.") < page.index("Verdict")


def test_what_is_far_off_says_why_it_is_there(played: Any) -> None:
    for section in played:
        for verdict in section.verdicts:
            assert verdict.entry.note or verdict.level != "far off", (section.title, verdict.entry.name)


def test_demo_as_data_has_the_ledgers_figures(played: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["demo", "--json"], result_action="return_value") == 0
    found = json.loads(capsys.readouterr().out)
    for section, told in zip(played, found, strict=True):
        assert told["stream"] == section.title
        for verdict, line in zip(section.verdicts, told["entries"], strict=True):
            assert line["forecaster"] == verdict.entry.name
            assert line["errors"]["l1"]["exact"] == pytest.approx(verdict.entry.exact.error("l1"))
            assert line["classwise_ece"] == pytest.approx(verdict.error)
            assert line["verdict"]["level"] == verdict.level
            assert line["rounds"] == verdict.entry.rounds


def test_words_tables_and_guarantees_are_in_the_verdicts_measure(played: Any) -> None:
    model, *streams = played
    raw, corrected = model.verdicts
    assert raw.entry.curve.errors[-1] == raw.error  # the model is on the curve, too
    for text in (model.summary, demo.model_conclusion(model)):
        assert f"{raw.error:.3f}" in text
        assert f"{corrected.error:.3f}" in text
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(demo.streams_table(streams))
    lines = console.export_text().splitlines()
    for section in streams:
        guarded = section.verdicts[0]
        (line,) = [line for line in lines if section.title in line]
        assert f" {guarded.error:.3f} " in line
        for verdict in section.verdicts:
            assert f"{verdict.error:.3f}" in section.summary
        assert guarded.level in line
        if guarded.bound < guarded.worst:
            assert guarded.error <= guarded.bound / guarded.entry.space.dim
            assert f" {guarded.bound / guarded.entry.space.dim:.2f} " in line
        assert f"forecast {guarded.entry.guard.safe_rounds:,} of the {guarded.entry.rounds:,} rounds" in section.summary
    assert f"an ECE of {streams[-1].verdicts[1].error:.3f}" in demo.streams_conclusion(streams)


@pytest.mark.usefixtures("short")
def test_a_report_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "demo.html"
    report.write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--report", str(report)])
    assert report.read_text() == "mine"
    assert "--force" in capsys.readouterr().err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    app(["--help"], result_action="return_value")
    assert "Correct a real model" in capsys.readouterr().out
    app(["--version"], result_action="return_value")
    assert tc.__version__ in capsys.readouterr().out


def test_missing_data_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vega_datasets", None)
    with pytest.raises(tc.TreeCalError, match=r"the extra data"):
        seattle_weather()


def test_a_mistake_of_ours_is_a_paragraph_and_not_a_traceback() -> None:
    script = (
        "import sys; sys.modules['vega_datasets'] = None; sys.argv[1:] = ['demo']; import treecal.cli as c; c.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("treecal: this stream needs vega_datasets, which is not installed")
    assert "Traceback" not in done.stderr


@pytest.mark.heavy
def test_the_whole_demo_is_quiet_in_a_pipe() -> None:
    done = subprocess.run([TREECAL, "demo"], capture_output=True, text=True, check=True)
    assert "19,537" in done.stdout
    assert unhurried(done.stderr) == ""
