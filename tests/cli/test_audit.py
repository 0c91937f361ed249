"""`treecal audit`: a log in, errors out, as a person runs it."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pexpect
import pyarrow.parquet as pq
import pytest

import treecal as tc
from tests.cli.support import TREECAL, heed_interrupts, refused, run
from treecal.auditing import audit

WIDE = ("--forecast", "p_a,p_b,p_c", "--outcome", "label")


def write_log(path: Path, rows: int = 300, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    p = rng.multinomial(10, [0.5, 0.3, 0.2], size=rows) / 10
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["p_a", "p_b", "p_c", "label", "model"])
        for i, row in enumerate(p.tolist()):
            writer.writerow([*row, rng.choice(list("abc")), "=cmd()" if i % 2 else "plain"])
    return path


def read_table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_json_is_the_audit(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv")
    done = run("audit", log, *WIDE, "--by", "model", "--bins", 7, "--norm", "l1,l3", "--json")
    assert (done.code, done.err) == (0, "")
    columns = ["p_a", "p_b", "p_c"]
    found = audit(log, forecast=columns, outcome="label", by="model", bins=7, norms=["l1", tc.Lp(3)])
    words = {"Infinity": "inf"}
    assert json.loads(done.out) == json.loads(json.dumps(found.to_dict()), parse_constant=words.get)
    assert [group["by"] for group in json.loads(done.out)["groups"]] == [{"model": "=cmd()"}, {"model": "plain"}]
    document = json.loads(run("audit", log, *WIDE, "--no-exact", "--json").out)
    assert (document["whole"]["forecasts"], document["whole"]["errors"]) == (None, {})
    assert document["whole"]["classes"]["a"]["exact"] is None


SAME = ("weight", "errors", "brier", "log_score", "accuracy", "skill", "classwise_ece")


def test_weights_are_a_column(tmp_path: Path) -> None:
    log, rng = tmp_path / "log.csv", np.random.default_rng(0)
    lines = write_log(tmp_path / "plain.csv").read_text().splitlines()
    weights = rng.integers(0, 3, size=300).tolist()
    rows = [lines[0] + ",w", *(f"{line},{w}" for line, w in zip(lines[1:], weights, strict=True))]
    log.write_text("\n".join(rows))
    repeated = [line for line, w in zip(lines[1:], weights, strict=True) for _ in range(w)]
    (tmp_path / "repeated.csv").write_text("\n".join([lines[0], *repeated]))
    weighed = json.loads(run("audit", log, *WIDE, "--weight", "w", "--json").out)["whole"]
    expected = json.loads(run("audit", tmp_path / "repeated.csv", *WIDE, "--json").out)["whole"]
    assert [weighed[name] for name in SAME] == [expected[name] for name in SAME]
    table = run("audit", log, *WIDE, "--weight", "w").out
    assert f"have a total weight of {len(repeated)}" in table
    refused(run("audit", log, *WIDE, "--weight", "x"), "has no column 'x'")


def test_the_table_is_for_people(tmp_path: Path) -> None:
    done = run("audit", write_log(tmp_path / "log.csv"), *WIDE, "--by", "model")
    assert (done.code, done.err) == (0, "")
    for word in ("300 rows", "by chance", "top-label ECE", "exact linf", "Class by class", "p_b", "=cmd()"):
        assert word in done.out
    assert "\x1b" not in done.out


def test_exports_are_inert_and_never_overwrite(tmp_path: Path) -> None:
    log, out = write_log(tmp_path / "log.csv"), tmp_path / "bins.csv"
    assert run("audit", log, *WIDE, "--by", "model", "--output", out).code == 0
    rows = read_table(out)
    assert {row["model"] for row in rows} == {"", "'=cmd()", "plain"}
    assert sum(int(row["weight"]) for row in rows if row["kind"] == "top label" and not row["model"]) == 300
    before = out.read_bytes()
    refused(run("audit", log, *WIDE, "--output", out), "bins.csv exists", "--force")
    assert out.read_bytes() == before
    assert run("audit", log, *WIDE, "--output", out, "--force").code == 0
    assert out.read_bytes() != before
    assert sorted(os.listdir(tmp_path)) == ["bins.csv", "log.csv"]


def test_a_report_is_the_audits_and_never_overwrites(tmp_path: Path) -> None:
    log, page = write_log(tmp_path / "log.csv"), tmp_path / "log.html"
    done = run("audit", log, *WIDE, "--by", "model", "--report", page, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.out == run("audit", log, *WIDE, "--by", "model", "--json").out
    text, found = page.read_text("utf-8"), json.loads(done.out)
    assert text.startswith("<!DOCTYPE html>")
    assert found["whole"]["verdict"]["level"] in text
    assert f"{found['whole']['classwise_ece']:.3f}" in text
    assert "All 2 groups by model" in text
    refused(run("audit", log, *WIDE, "--report", page), "log.html exists", "--force")
    assert page.read_text("utf-8") == text
    assert run("audit", log, *WIDE, "--report", page, "--force").code == 0
    assert "groups by model" not in page.read_text("utf-8")
    page.unlink()
    refused(run("audit", log, "--forecast", "p_a,p_x", "--outcome", "label", "--report", page), "no column 'p_x'")
    refused(run("audit", log, *WIDE, "--report", tmp_path / "no" / "log.html"), "no folder")
    assert sorted(os.listdir(tmp_path)) == ["log.csv"]


def test_bad_rows_stop_are_skipped_or_collected(tmp_path: Path) -> None:
    log, bad = write_log(tmp_path / "log.csv"), tmp_path / "bad.csv"
    log.write_text(log.read_text() + "0.5,0.5,0,z,m\n0.5,0.47,0,a,m\n0.5,0.5,0,a\n")
    options = (*WIDE, "--classes", "a,b,c")
    refused(run("audit", log, *options), "log.csv, line 302 (row 301): label is 'z', expected one of a, b, c")
    skipped = run("audit", log, *options, "--on-error", "skip")
    assert skipped.code == 1
    assert "3 invalid rows left out" in skipped.out
    collected = run("audit", log, *options, "--on-error", "collect", "--invalid-rows", bad, "--json")
    assert collected.code == 1
    assert "3 invalid rows left out" in collected.err
    assert json.loads(collected.out)["invalid"] == 3
    rows = read_table(bad)
    assert [(row["row"], row["line"]) for row in rows] == [("301", "302"), ("302", "303"), ("303", "304")]
    assert "sum to 0.97" in rows[1]["reason"]
    refused(run("audit", log, *options, "--on-error", "collect"), "--invalid-rows and --on-error collect go together")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--forecast", "p_a,p_x", "--outcome", "label"), ["no column 'p_x'", "did you mean p_"]),
        (("--forecast", "p_a,,p_c", "--outcome", "label"), ["--forecast is 'p_a,,p_c'"]),
        ((*WIDE, "--norm", "l7x"), ["--norm is 'l7x'"]),
        ((*WIDE, "--bins", "0"), ["bins is 0, expected a whole number of 1 or more"]),
        ((*WIDE, "--by", "modle"), ["no column 'modle'", "did you mean model?"]),
        ((*WIDE, "--memory", "much"), ["expected an amount of memory"]),
    ],
)
def test_mistakes_are_a_paragraph(tmp_path: Path, options: tuple[str, ...], words: list[str]) -> None:
    refused(run("audit", write_log(tmp_path / "log.csv", rows=20), *options), *words)


def test_a_terminal_shows_progress_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """All forecasts are different, so grouping takes long enough to be watched and stopped."""
    log, n = tmp_path / "log.parquet", 2_000_000
    duckdb.sql(
        f"COPY (SELECT p AS p_a, 1 - p AS p_b, i % 2 AS label FROM (SELECT i, random() AS p FROM range({n}) t(i))) "
        f"TO '{log}' (FORMAT parquet)"
    )
    arguments = ["audit", str(log), "--forecast", "p_a,p_b", "--outcome", "label", "--output", str(tmp_path / "o.csv")]
    child = pexpect.spawn(TREECAL, arguments, timeout=60, dimensions=(24, 120), preexec_fn=heed_interrupts)
    child.expect(r"reading.*\d+%.*rows.*/s")
    child.expect("grouping")
    time.sleep(0.05)
    child.kill(signal.SIGINT)
    child.expect("treecal: interrupted")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    assert os.listdir(tmp_path) == ["log.parquet"]


def test_missing_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    refused(run("audit", write_log(tmp_path / "log.csv"), *WIDE), 'pip install "duckdb>=2.0"', "(the extra files)")


def test_columns_are_found_by_the_labels(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv")
    found, named = run("audit", log, "--outcome", "label", "--json"), run("audit", log, *WIDE, "--json")
    assert json.loads(found.out) == json.loads(named.out)
    assert run("monitor", log, "--outcome", "label", "--json").out == run("monitor", log, *WIDE, "--json").out
    refused(run("audit", log), "has no column 'outcome'", "name it with --outcome")
    plain = tmp_path / "plain.csv"
    plain.write_text("p,outcome\n0.5,a\n0.5,b\n")
    refused(run("audit", plain), "looked for forecast, or a and b, or p_a and p_b; it has p, outcome", "--forecast")


def test_standard_input_is_read_whatever_it_is(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv")
    expected = json.loads(run("audit", log, *WIDE, "--by", "model", "--json").out) | {"source": "standard input"}
    table = duckdb.read_csv(str(log)).to_arrow_table()
    pq.write_table(table, tmp_path / "log.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
    parquet = (tmp_path / "log.parquet").read_bytes()
    for content in (log.read_bytes(), gzip.compress(log.read_bytes()), lines, gzip.compress(lines), parquet):
        done = run("audit", "-", *WIDE, "--by", "model", "--json", stdin=content)
        assert (done.code, done.err) == (0, "")
        assert json.loads(done.out) == expected
    assert run("audit", "-", "--outcome", "label", "--no-exact", stdin=log.read_bytes()).code == 0
    refused(run("audit", "-", *WIDE, stdin=log.read_text() + "0.5,0.4,0,a,m\n"), "standard input, line 302 (row 301): ")
    refused(run("audit", "-", *WIDE), "standard input is empty")
    refused(run("audit", "-", *WIDE, stdin=parquet[:2000]), "standard input cannot be read")
    refused(run("audit", "-", log, *WIDE, stdin=lines), "goes with no other file")
    refused(run("audit", *WIDE), "there is no log to audit")


def test_several_files_are_one_log(tmp_path: Path) -> None:
    lines = write_log(tmp_path / "whole.csv").read_text().splitlines()
    (tmp_path / "logs").mkdir()
    for k in range(3):
        text = "\n".join([lines[0], *lines[1 + 100 * k : 101 + 100 * k]])
        (tmp_path / "logs" / f"{k}.csv").write_text(text + "\n")
    whole = json.loads(run("audit", tmp_path / "whole.csv", *WIDE, "--json").out)
    several = [(tmp_path / "logs",), (tmp_path / "logs" / "*.csv",), tuple(sorted((tmp_path / "logs").iterdir()))]
    for paths in several:
        found = json.loads(run("audit", *paths, *WIDE, "--json").out)
        assert found | {"source": None} == whole | {"source": None}
    assert found["source"] == "0.csv and 2 other files"
    with (tmp_path / "logs" / "1.csv").open("a") as file:
        file.write("0.5,0.4,0,a,m\n")
    refused(run("audit", tmp_path / "logs", *WIDE), "1.csv, line 102 (row 101): the probabilities sum to 0.9")
    options = (*WIDE, "--on-error", "collect", "--invalid-rows", tmp_path / "bad.csv", "--report", tmp_path / "r.html")
    assert run("audit", tmp_path / "logs", *options).code == 1
    assert [(row["row"], row["file"]) for row in read_table(tmp_path / "bad.csv")] == [("101", "1.csv")]
    assert "Audit of logs" in (tmp_path / "r.html").read_text("utf-8")
    refused(run("audit", *several[2], *WIDE, "--classes", "a,b,c", "--engine", "spark"), "reads one file or folder")


def test_the_package_is_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "treecal", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == run("--version").out.strip() != ""


def test_csv_in_a_pipe_is_told_from_json() -> None:
    for command in ("recalibrate", "monitor"):
        refused(run(command, "--classes", "a,b", stdin="p_a,p_b,outcome\n0.5,0.5,a\n"), "if it is CSV, --kind csv")
