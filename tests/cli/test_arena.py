"""`treecal arena`: the race as a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import treecal as tc
from tests.cli.support import refused, run
from treecal import arena
from treecal.forecasters import REGISTRY

SMALL = ["arena", "--dim", 3, "--rounds", 30, "--workers", 1]
TWO = ["--forecasters", "running-mean, treecal", "--streams", "drift, against the mean"]


def test_the_table_is_the_race_s() -> None:
    chosen = {name: REGISTRY[name] for name in ("running-mean", "treecal")}
    streams = {name: arena.STREAMS[name] for name in ("drift", "against the mean")}
    race = arena.race(chosen, streams, [tc.Simplex(3)], rounds=30, norms=["l2"], seeds=range(2), workers=1)
    document = json.loads(run(*SMALL, *TWO, "--norm", "l2", "--seeds", 2, "--json").out)
    assert document["norm"] == "l2"
    keys = ("forecaster", "stream", "seed", "rounds")
    for row, run_ in zip(race.to_pylist(), document["runs"], strict=True):
        assert [run_[key] for key in keys] == [row[key] for key in keys]
        assert run_["errors"] == {"l2": {"exact": row["error"], "per_node": row["per_node"]}}
    done = run(*SMALL, *TWO, "--norm", "l2", "--seeds", 2)
    assert done.err == ""
    for error in arena.final(race, norm="l2").values():
        assert f"{error:.3f}" in done.out


def test_who_refuses_says_why() -> None:
    done = run(*SMALL, "--forecasters", "binary-grid,running-mean", "--streams", "drift")
    assert "binary-grid did not take part: space is Simplex(3), expected Simplex(2)." in done.out


def test_a_race_goes_on_in_its_folder(tmp_path: Path) -> None:
    first = run(*SMALL, *TWO, "--folder", tmp_path / "race")
    kept = sorted((tmp_path / "race").iterdir())
    assert len(kept) == 4
    times = [path.stat().st_mtime_ns for path in kept]
    assert run(*SMALL, *TWO, "--folder", tmp_path / "race").out == first.out
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "race").iterdir())] == times


def test_bad_options() -> None:
    refused(run(*SMALL, "--streams", "weather"), "--streams is 'weather', expected one of i.i.d., ")
    refused(run(*SMALL, "--forecasters", ","), "--forecasters is ',', expected distinct names")
    refused(run(*SMALL, "--seeds", 0), "--seeds is 0")
    refused(run("arena", "--rounds", 0), "rounds is 0")


def test_real_streams_and_scores() -> None:
    two = ["arena", "--real", "--streams", "wet or dry", "--forecasters", "running-mean,treecal", "--workers", 1]
    dry = arena.REAL["wet or dry"]
    chosen = {name: REGISTRY[name] for name in ("running-mean", "treecal")}
    race = arena.race(chosen, {"wet or dry": dry}, [dry.space], rounds=dry.rounds, workers=1)
    document = json.loads(run(*two, "--json").out)
    assert set(document) == {"norm", "runs"}
    for row, run_ in zip(race.to_pylist(), document["runs"], strict=True):
        keys = ("length", "rounds", "brier", "resolution", "uncertainty", "forecasts")
        assert [run_[key] for key in keys] == [row[key] for key in keys]
    for measure, title in (("brier", "Brier score"), ("resolution", "resolution")):
        shown = run(*two, "--measure", measure).out
        assert shown.startswith(f"{title} per round on real streams")
        for value in arena.final(race, measure=measure).values():
            assert f"{value:.3f}" in shown
    refused(run("arena", "--real", "--streams", "drift"), "--streams is 'drift', expected one of Seattle, ")


def test_held_out_streams_together(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("nottem value in 4 bins", "auscafe value in 2 signs")
    some = {name: (arena.CHOSEN | arena.HELD_OUT)[name] for name in names}
    monkeypatch.setattr(arena, "HELD_OUT", some)
    shown = run("arena", "--real", "--forecasters", "guarded,binary-grid", "--workers", 1).out
    assert shown.startswith("2 real streams that were held out, beside guarded")
    rows = [[cell.strip() for cell in line.split("│")[1:8]] for line in shown.splitlines() if "│" in line]
    figures = {name: cells for name, *cells in rows}
    assert figures["guarded"][0] == "2"
    assert figures["guarded"][3:5] == ["1.000", "1.000"]
    assert figures["binary-grid"][0] == "1"
    assert any(name.startswith("average in tenths") for name in figures)


def test_who_is_too_slow_is_told() -> None:
    done = run(*SMALL, *TWO, "--limit", 1e-9)
    assert "treecal did not take part: too slow: 30 rounds would take " in done.out
