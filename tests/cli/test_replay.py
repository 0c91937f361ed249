"""`treecal replay`: errors, gaps, exports and reports of a file of outcomes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.cli.support import Done, refused, run
from tests.some import some

SKY = ("fog", "rain", "sun")
DAYS = np.random.default_rng(1).choice(3, p=[0.1, 0.5, 0.4], size=300)


@pytest.fixture
def days(tmp_path: Path) -> Path:
    path = tmp_path / "days.csv"
    path.write_text("day,sky\n" + "".join(f"{t},{SKY[k]}\n" for t, k in enumerate(DAYS)))
    return path


def played(forecaster: tc.Forecaster, outcomes: Any) -> tc.Ledger:
    ledger = tc.Ledger(forecaster.space)
    for y in outcomes:
        ledger.record(forecaster.predict(), y)
        forecaster.update(y)
    return ledger


@pytest.mark.parametrize(
    ("options", "forecaster"),
    [
        ([], tc.Guarded(tc.Simplex(3))),
        (["--forecaster", "adaptive"], tc.AdaptiveTreeCal(tc.Simplex(3))),
        (["--forecaster", "treecal", "--arity", "4"], tc.TreeCal(tc.Simplex(3), arity=4)),
        (["--forecaster", "harmonic"], tc.Harmonic(tc.Simplex(3))),
        (["--forecaster", "treecal", "--arity", "7", "--depth", "3", "--mix", "0.1"], None),
    ],
)
def test_errors_and_gaps_are_the_ledger_s(options: list[str], forecaster: tc.Forecaster | None, days: Path) -> None:
    forecaster = forecaster or tc.TreeCal(tc.Simplex(3), arity=7, depth=3, mix=0.1)
    ledger = played(forecaster, np.eye(3)[DAYS])
    done = run("replay", days, "--outcome", "sky", *options, "--json", "--top", 5)
    document = json.loads(done.out)
    assert (done.code, done.err, document["rounds"], document["classes"]) == (0, "", 300, list(SKY))
    distances = {repr(d): d for d in (tc.l1, tc.l2, tc.linf, tc.l2.squared, tc.NegativeEntropy())}
    assert set(document["errors"]) == set(distances)
    for name, distance in distances.items():
        for kind, per_node in (("exact", False), ("per_node", True)):
            assert float(document["errors"][name][kind]) == pytest.approx(ledger.error(distance, per_node=per_node))
    table = ledger.table("l1")
    assert document["forecasts"] == len(table.weight)
    assert [gap["gap"] for gap in document["gaps"]] == pytest.approx(table.gap[:5].tolist())
    assert list(document["gaps"][0]["forecast"].values()) == pytest.approx(table.forecast[0].tolist())
    shown = run("replay", days, "--outcome", "sky", *options, "--top", 5).out
    assert f"{ledger.error('l1'):.4f}" in shown
    assert f"{table.gap[0]:.3f}" in shown


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ([], {}),
        (["--error", 0.5, "--budget", 0], {"error": 0.5, "budget": 0}),
        (["--forecaster-norm", "linf"], {"norm": "linf"}),
    ],
)  # compiled, compiled and round by round
@pytest.mark.parametrize("reported", some([False, True], every=2))
def test_it_says_what_the_guard_did(options: list[Any], arguments: Any, reported: bool, days: Path) -> None:
    f = tc.Guarded(tc.Simplex(3), **arguments)
    played(f, np.eye(3)[DAYS])
    did, certificate = f.report(), f.certificate(f.norm, rounds=300)
    report = ["--report", days.parent / "r.html", "--force"] if reported else []
    document = json.loads(run("replay", days, "--outcome", "sky", *options, *report, "--json").out)
    guard = document["guard"]
    assert document["norm"] == guard["norm"] == repr(f.norm)
    assert (guard["eager"]["rounds"], guard["safe"]["rounds"]) == (did.eager_rounds, did.safe_rounds)
    assert guard["eager"]["error"] == pytest.approx(did.eager_error / 300)
    assert guard["safe"]["bound"] == pytest.approx(did.safe_bound / 300)
    assert (guard["budget"], guard["left"]) == pytest.approx((did.budget / 300, did.left / 300))
    assert certificate is not None
    assert guard["bound"] == certificate.bound
    shown = run("replay", days, "--outcome", "sky", *options, *report).out
    assert f"eager forecast {did.eager_rounds} rounds" in shown
    assert f"safe {did.safe_rounds} rounds" in shown
    assert f"guaranteed on every sequence: at most {certificate.bound:.4f}" in shown


def test_a_guarantee_that_says_nothing_is_called_vacuous(days: Path) -> None:
    few = days.with_name("few.csv")
    few.write_text("".join(days.read_text(encoding="utf-8").splitlines(keepends=True)[:9]))
    done = run("replay", few, "--outcome", "sky", "--classes", ",".join(SKY))
    assert "after 8 rounds the guarantee is still vacuous" in done.out


def test_without_a_guard_it_says_nothing_of_one(days: Path) -> None:
    done = run("replay", days, "--outcome", "sky", "--forecaster", "treecal", "--json")
    assert "guard" not in json.loads(done.out)
    assert "guard" not in run("replay", days, "--outcome", "sky", "--forecaster", "treecal").out


def test_named_classes_and_other_norms(days: Path) -> None:
    found = json.loads(run("replay", days, "--outcome", "sky", "--norm", "l3", "--json").out)
    named = json.loads(run("replay", days, "--outcome", "sky", "--classes", "sun,rain,fog", "--json").out)
    assert (found["norm"], named["norm"], named["classes"]) == ("Lp(p=3.0)", "l1", ["sun", "rain", "fog"])
    assert "Lp(p=3.0)" in found["errors"]
    for name in ("l1", "l2", "linf"):  # the order of classes is no matter
        assert named["errors"][name] == pytest.approx(found["errors"][name])


def test_classes_without_names_are_lists_as_in_forecasts(tmp_path: Path) -> None:
    path = tmp_path / "days.jsonl"
    path.write_text("0\n1\n1\n")
    options = [path, "--dim", 2, "--forecaster", "adaptive"]
    document = json.loads(run("replay", *options, "--json").out)
    assert document["classes"] == ["0", "1"]
    first = run("forecast", *options).lines[0]
    assert document["gaps"][-1]["forecast"] == first["points"][0] == [0.5, 0.5]


def test_vectors(tmp_path: Path) -> None:
    points = np.random.default_rng(0).random((100, 2)).round(3)
    path = tmp_path / "points.csv"
    path.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in points.tolist()))
    document = json.loads(run("replay", path, "--dim", 2, "--box", 0, 1, "--json").out)
    ledger = played(tc.Guarded(tc.Box(0, 1, dim=2)), points)
    assert document["errors"]["l2"]["exact"] == pytest.approx(ledger.error("l2"))
    assert document["classes"] is None
    assert "NegativeEntropy()" not in document["errors"]


def test_a_csv_of_all_forecasts_is_whole_and_inert(tmp_path: Path) -> None:
    path, out = tmp_path / "formulas.csv", tmp_path / "gaps.csv"
    path.write_text("outcome\n" + "=1+1\n@sum\n-2\n+3\n" * 8)
    assert run("replay", path, "--csv", out).code == 0
    header, *rows = csv.reader(out.read_text().splitlines())
    assert not any(name.startswith(("=", "+", "-", "@")) for name in header)
    assert header[2:4] == ["forecast +3", "forecast -2"]
    document = json.loads(run("replay", path, "--json", "--top", 1000).out)
    assert len(rows) == document["forecasts"]
    assert [float(row[1]) for row in rows] == [gap["gap"] for gap in document["gaps"]]
    refused(run("replay", path, "--csv", out), "gaps.csv exists", "--force")
    assert run("replay", path, "--csv", out, "--force").code == 0


def test_a_report(days: Path, tmp_path: Path) -> None:
    page = tmp_path / "days.html"
    done = run("replay", days, "--outcome", "sky", "--forecaster", "treecal", "--report", page, "--json")
    assert done.code == 0, done.err
    text = page.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "days.csv" in text
    plain = json.loads(run("replay", days, "--outcome", "sky", "--forecaster", "treecal", "--json").out)["errors"]
    for name, errors in json.loads(done.out)["errors"].items():
        assert {kind: float(error) for kind, error in errors.items()} == pytest.approx(
            {kind: float(error) for kind, error in plain[name].items()}
        )
    refused(run("replay", days, "--outcome", "sky", "--report", page), "days.html exists")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["days.csv", "days.html"]


@pytest.mark.parametrize("forecaster", ["guarded", "treecal", "adaptive"])
def test_a_report_leaves_the_compiled_path_alone(
    forecaster: str, days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a report, rounds are replayed at once as without, and the answers are the same."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was played round by round")

    monkeypatch.setattr("treecal.streams.play", never)
    options = ["--outcome", "sky", "--forecaster", forecaster, "--json"]
    plain = run("replay", days, *options)
    reported = run("replay", days, *options, "--report", tmp_path / "r.html")
    assert (reported.code, reported.err) == (0, "")
    assert reported.out == plain.out


def test_what_fails_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("outcome\nsun\nrain\nhail\n")
    arguments = ["--classes", "rain,sun", "--report", tmp_path / "r.html", "--csv", tmp_path / "g.csv"]
    refused(run("replay", path, *arguments), "line 4", "'hail'")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


def test_interrupted_while_it_writes_it_leaves_no_file(days: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> str:
        names = [path.name for path in days.parent.iterdir()]  # nothing is begun under the names asked for
        assert [name for name in names if not name.startswith(".treecal-")] == ["days.csv"]
        raise KeyboardInterrupt

    monkeypatch.setattr("treecal.report.render", interrupted)
    arguments = ["--report", days.parent / "r.html", "--csv", days.parent / "g.csv"]
    done = run("replay", days, "--outcome", "sky", *arguments)
    assert (done.code, done.out, done.err) == (130, "", "treecal: interrupted.\n")
    assert [path.name for path in days.parent.iterdir()] == ["days.csv"]


def flawed(done: Done, *words: str) -> None:
    assert done.code == 1
    for word in words:
        assert word in done.err


def test_bad_rows_are_skipped_or_collected(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("outcome\n" + "sun\nrain\nhail\n" * 7)
    skipped = run("replay", path, "--classes", "rain,sun", "--on-error", "skip", "--json")
    flawed(skipped, "7 invalid rows left out", "line 4", "and 2 more")
    assert json.loads(skipped.out)["rounds"] == 14
    collected = run("replay", path, "--classes", "rain,sun", "--on-error", "collect", "--json")
    flawed(collected, "line 4", "line 22")
    assert len(json.loads(collected.out)["invalid_rows"]) == 7


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", b"", "empty"),
        ("x.csv", b"sky\n", "no rows"),
        ("x.csv", b"day,sky\n1,sun\n", "--outcome"),
        ("x.csv", b"\x00\x01\x02\xff\xfe", "UTF-8"),
        ("x.parquet", b"PAR1 and then nothing", "Parquet"),
        ("x.jsonl", b"{]\n", "JSON"),
        ("x.dat", b"sun\n", "is unknown"),
    ],
)
def test_bad_files(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    refused(run("replay", tmp_path / name), words)


def test_bad_options(days: Path) -> None:
    refused(run("replay", "nowhere.csv"), "nowhere.csv")
    refused(run("replay", days, "--outcome", "wind"), "wind")
    refused(run("replay", days, "--outcome", "sky", "--top", -1), "--top is -1")
    refused(run("replay", days, "--outcome", "sky", "--dim", 2), "line 2")
    refused(run("replay", days, "--outcome", "sky", "--forecaster", "binary-grid"), "Simplex(2)")
    refused(run("replay", days, "--outcome", "sky", "--csv", days.parent / "no" / "x.csv"), "no folder")
    refused(run("replay"), "PATH")
    depth = ["--forecaster", "treecal", "--arity", 2, "--depth", 3]
    refused(run("replay", days, "--outcome", "sky", *depth), "beyond the horizon", "make 8")
