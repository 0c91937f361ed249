"""`treecal forecast`: pipes, snapshots, and everything that can be wrong with a line."""

from __future__ import annotations

import gzip
import json
import os
import select
import signal
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.cli.support import TREECAL, refused, run, start

COINS = np.random.default_rng(0).integers(3, size=60).tolist()
NAMES = ("rain", "snow", "sun")
WORDS = [NAMES[k] for k in COINS]


def means(lines: list[dict[str, Any]]) -> list[Any]:
    return [line["mean"] for line in lines]


def test_forecasts_are_those_of_the_library() -> None:
    done = run("forecast", "--classes", "rain,snow,sun", stdin="\n".join(WORDS))
    assert done.code == 0
    assert done.err == ""
    f = tc.Guarded(tc.Simplex(3))
    for t, line in enumerate(done.lines):
        x = f.predict()
        assert line["round"] == t + 1
        assert line["part"] == ("eager" if f.eager_speaks else "safe")
        assert [list(point.values()) for point in line["points"]] == x.points.tolist()
        assert line["weights"] == x.weights.tolist()
        assert line["mean"] == dict(zip(NAMES, x.mean.tolist(), strict=True))
        if t < len(COINS):
            f.update(np.eye(3)[COINS[t]])
    assert len(done.lines) == len(COINS) + 1  # one for the round to come


@pytest.mark.parametrize(
    ("name", "options", "made"),
    [
        (
            "treecal",
            ["--arity", "3", "--depth", "2", "--mix", "0.1"],
            lambda s: tc.TreeCal(s, arity=3, depth=2, mix=0.1),
        ),
        ("adaptive", [], tc.AdaptiveTreeCal),
        ("adaptive", ["--forecaster-norm", "linf"], lambda s: tc.AdaptiveTreeCal(s, norm="linf")),
        ("guarded", [], tc.Guarded),
        ("guarded", ["--budget", "0.2"], lambda s: tc.Guarded(s, budget=0.2)),
        ("guarded", ["--error", "9", "--forecaster-norm", "l2"], lambda s: tc.Guarded(s, error=9, norm="l2")),
        ("tracker", [], tc.Tracker),
        ("harmonic", [], tc.Harmonic),
        ("running-mean", [], tc.RunningMean),
        ("binary-grid", ["--bins", "7"], lambda s: tc.BinaryGrid(s, bins=7)),
        ("simplex-grid", ["--resolution", "3"], lambda s: tc.SimplexGrid(s, resolution=3)),
        ("adaptive", ["--rule", "block"], lambda s: tc.AdaptiveTreeCal(s, rule="block")),
        (
            "sampled",
            ["--block", "2", "--seed", "5"],
            lambda s: tc.SampleTreeCal(s, block=2, rng=np.random.default_rng(5)),
        ),
    ],
)
def test_every_forecaster(name: str, options: list[str], made: Any) -> None:
    outcomes = [0, 1, 1, 0, 1, 1, 1, 0]
    lines = run("forecast", "--dim", 2, "--forecaster", name, *options, stdin="\n".join(map(str, outcomes))).lines
    f = made(tc.Simplex(2))
    for line, k in zip(lines, outcomes, strict=False):
        assert line["mean"] == f.predict().mean.tolist()
        f.update(np.eye(2)[k])


@pytest.mark.parametrize(
    "lines",
    [
        ['"sun"', "sun", '{"outcome": "sun"}', '{"outcome": "sun", "day": 1}'],
        ['{"outcome": [0, 0, 1]}', '{"outcome": {"rain": 0, "snow": 0, "sun": 1}}'],
        ['{"only": "sun"}', '{"only": [0, 0, 1], "day": 2}'],
        ["[0, 0, 1]", "", "  sun  "],
    ],
)
def test_an_outcome_may_be_written_in_many_ways(lines: list[str]) -> None:
    done = run("forecast", "--classes", "rain,snow,sun", "--forecaster", "running-mean", stdin="\n".join(lines))
    assert done.code == 0, done.err
    assert done.lines[-1]["mean"] == {"rain": 0.0, "snow": 0.0, "sun": 1.0}


def test_classes_in_another_order_are_the_same_stream() -> None:
    one = run("forecast", "--classes", "rain,snow,sun", stdin="sun\nrain\n[0.5,0.25,0.25]\n").lines
    two = run("forecast", "--classes", "sun,rain,snow", stdin="sun\nrain\n[0.25,0.5,0.25]\n").lines
    assert one == two
    assert list(two[0]["mean"]) == ["sun", "rain", "snow"]


def test_vectors_in_boxes_and_balls() -> None:
    done = run("forecast", "--dim", 2, "--box", -1, 1, "--forecaster", "running-mean", stdin="[-1, 0.5]\n")
    assert done.lines[-1]["mean"] == [-1.0, 0.5]
    done = run("forecast", "--dim", 1, "--ball", 3, "--forecaster", "running-mean", stdin='2.5\n{"outcome": -3}\n')
    assert done.lines[-1]["mean"] == [-0.25]


def write_files(folder: Path) -> list[Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    csv, parquet, jsonl = (folder / f"days.{ending}" for ending in ("csv", "parquet", "jsonl"))
    csv.write_bytes(b"\xef\xbb\xbfday,weather\r\n" + "".join(f"{i},{w}\r\n" for i, w in enumerate(WORDS)).encode())
    pq.write_table(pa.table({"day": range(len(WORDS)), "weather": WORDS}), parquet)
    jsonl.write_text("".join(json.dumps({"day": i, "weather": w}) + "\n" for i, w in enumerate(WORDS)))
    return [csv, parquet, jsonl]


def test_files_of_every_kind_hold_the_same(tmp_path: Path) -> None:
    expected = run("forecast", "--classes", "rain,snow,sun", stdin="\n".join(WORDS)).out
    for path in write_files(tmp_path):
        done = run("forecast", path, "--outcome", "weather", "--classes", "rain,snow,sun")
        assert (done.code, done.out, done.err) == (0, expected, ""), path
    csv = (tmp_path / "days.csv").read_bytes()
    arguments = ["--kind", "csv", "--outcome", "weather", "--classes", "rain,snow,sun"]
    assert run("forecast", "-", *arguments, stdin=csv).out == expected


def test_other_delimiters_and_gzip(tmp_path: Path) -> None:
    arguments = ["--outcome", "weather", "--classes", "rain,snow,sun"]
    expected = run("forecast", write_files(tmp_path)[0], *arguments).out
    text = (tmp_path / "days.csv").read_bytes()
    (tmp_path / "days.tsv").write_bytes(text.replace(b",", b"\t"))
    (tmp_path / "days.csv.gz").write_bytes(gzip.compress(text.replace(b",", b";")))
    assert run("forecast", tmp_path / "days.tsv", *arguments).out == expected
    assert run("forecast", tmp_path / "days.csv.gz", *arguments).out == expected
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(text)[:-20])
    refused(run("forecast", tmp_path / "cut.csv.gz", *arguments), "cut.csv.gz cannot be read")


def test_several_columns_are_one_vector(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text("x,y\n0.25,1\n0.75,0\n")
    arguments = ["--outcome", "x,y", "--dim", 2, "--box", 0, 1, "--forecaster", "running-mean"]
    assert run("forecast", path, *arguments).lines[-1]["mean"] == [0.5, 0.5]


def test_draws_come_from_the_distribution_and_can_be_repeated() -> None:
    tree = ["forecast", "--dim", 3, "--forecaster", "treecal"]
    arguments = [*tree, "--announce", "draw"]
    stdin = "\n".join(map(str, COINS))
    full = run(*tree, stdin=stdin).lines
    drawn = run(*arguments, stdin=stdin)
    assert all(d["drawn"] in line["points"] for d, line in zip(drawn.lines, full, strict=True))
    assert run(*arguments, stdin=stdin).out == drawn.out != run(*arguments, "--seed", 1, stdin=stdin).out


def test_a_live_process_reads_each_forecast_before_it_writes_the_outcome() -> None:
    """The other side here is an adversary, who waits for each forecast and then does what was thought less likely."""
    with start("forecast", "--classes", "heads,tails", "--announce", "mean") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        f = tc.Guarded(tc.Simplex(2))
        for _ in range(50):
            assert select.select([process.stdout], [], [], 20)[0], "no forecast came"
            mean = json.loads(process.stdout.readline())["mean"]
            assert mean == dict(zip(("heads", "tails"), f.predict().mean.tolist(), strict=True))
            outcome = min(mean, key=mean.__getitem__)
            process.stdin.write(outcome + "\n")
            process.stdin.flush()
            f.update([outcome == "heads", outcome == "tails"])
        process.stdin.close()
        assert len(process.stdout.readlines()) == 1
        assert process.wait() == 0


@pytest.mark.parametrize("name", ["guarded", "tracker", "adaptive", "harmonic", "sampled"])
def test_a_resumed_stream_is_an_unbroken_one(name: str, tmp_path: Path) -> None:
    arguments = ["forecast", "--dim", 3, "--forecaster", name]
    whole = run(*arguments, stdin="\n".join(map(str, COINS))).lines
    snapshot, parts = tmp_path / "s.treecal", []
    for piece in (COINS[:17], COINS[17:18], COINS[18:18], COINS[18:]):
        done = run(*arguments, "--snapshot", snapshot, stdin="\n".join(map(str, piece)))
        assert done.code == 0, done.err
        parts.append(done.lines)
    assert all(left[-1] == right[0] for left, right in pairwise(parts))
    joined = {line["round"]: line for part in parts for line in part}
    assert [joined[t] for t in sorted(joined)] == whole
    assert tc.load(snapshot).rounds == len(COINS)


def test_a_snapshot_of_something_else_is_refused(tmp_path: Path) -> None:
    snapshot = tmp_path / "s.treecal"
    assert run("forecast", "--dim", 3, "--snapshot", snapshot, stdin="1\n").code == 0
    before = snapshot.read_bytes()
    refused(run("forecast", "--dim", 3, "--budget", 1, "--snapshot", snapshot), "budget=0.1", "budget=1.0", "Hint: ")
    refused(
        run("forecast", "--dim", 3, "--forecaster", "adaptive", "--snapshot", snapshot), "Guarded(", "AdaptiveTreeCal("
    )
    refused(run("forecast", "--dim", 2, "--snapshot", snapshot), "Simplex(3)", "Simplex(2)")
    assert snapshot.read_bytes() == before
    other = tmp_path / "notes.txt"
    other.write_text("my only copy")
    refused(run("forecast", "--dim", 3, "--snapshot", other), "not a snapshot")
    assert other.read_text() == "my only copy"
    refused(run("forecast", "--dim", 3, "--snapshot", tmp_path / "nowhere" / "s"), "there is no folder", "nowhere")
    snapshot.write_bytes(before[:-3])
    refused(run("forecast", "--dim", 3, "--snapshot", snapshot), "damaged")


def test_a_snapshot_of_other_classes_is_refused_by_name(tmp_path: Path) -> None:
    """One written for rain and sun resumed as wet and sun, or as sun and rain, and mixed up their probabilities."""
    snapshot = tmp_path / "s.treecal"
    arguments = ["forecast", "--forecaster", "running-mean", "--snapshot", snapshot]
    assert run(*arguments, "--classes", "rain,sun", stdin="rain\n" * 4 + "sun\n").code == 0
    before = snapshot.read_bytes()
    classes = f"the classes of {snapshot} are rain, sun, not "
    refused(run(*arguments, "--classes", "wet,sun"), classes + "wet, sun.", "--classes rain,sun resumes it")
    refused(run(*arguments, "--classes", "sun,rain"), classes + "sun, rain.")
    refused(run(*arguments, "--dim", 2), classes + "0, 1.")
    refused(run(*arguments, "--classes", "rain,snow,sun"), "['rain', 'sun']", "['rain', 'snow', 'sun']")
    assert snapshot.read_bytes() == before
    assert tc.load(snapshot).space.classes == ("rain", "sun")
    assert run(*arguments, "--classes", "rain,sun").lines[0]["mean"] == {"rain": 0.8, "sun": 0.2}


def test_a_snapshot_without_class_names_is_resumed_by_number(tmp_path: Path) -> None:
    snapshot = tmp_path / "s.treecal"
    tc.save(tc.Guarded(tc.Simplex(2)), snapshot)
    refused(run("forecast", "--snapshot", snapshot, "--classes", "rain,sun"), "no class names", "--dim 2 resumes it")
    assert run("forecast", "--snapshot", snapshot, "--dim", 2, stdin="1\n").code == 0


def forecast_some(process: subprocess.Popen[str], count: int) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    for _ in range(count):
        process.stdin.write("1\n")
        process.stdin.flush()
        process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_saves_and_says_one_line(number: signal.Signals, tmp_path: Path) -> None:
    snapshot = tmp_path / "s.treecal"
    with start("forecast", "--dim", 2, "--snapshot", snapshot) as process:
        forecast_some(process, 5)
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == 130
    assert err == f"treecal: interrupted after 5 rounds, saved in {snapshot}.\n"
    assert tc.load(snapshot).rounds == 5
    assert os.listdir(tmp_path) == ["s.treecal"]


def test_killed_it_leaves_the_last_snapshot(tmp_path: Path) -> None:
    snapshot = tmp_path / "s.treecal"
    with start("forecast", "--dim", 2, "--snapshot", snapshot, "--every", 10) as process:
        forecast_some(process, 25)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert tc.load(snapshot).rounds == 20
    again = run("forecast", "--dim", 2, "--snapshot", snapshot, stdin="1\n" * 5)
    assert again.lines == run("forecast", "--dim", 2, stdin="1\n" * 25).lines[20:]


def test_a_reader_that_has_enough_ends_it_silently(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text("1\n" * 20_000)
    script = f"'{TREECAL}' forecast '{path}' --dim 2 --snapshot '{tmp_path / 's'}' | head -n 2; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert [line[:9] for line in done.stdout.splitlines()[:2]] == ['{"round":'] * 2
    assert done.stdout.splitlines()[2:] == ["141"]
    assert not (tmp_path / "s").exists()  # the file is read again


def test_a_list_of_words_is_not_a_table(tmp_path: Path) -> None:
    """Its first line would be the header, and lost."""
    path = tmp_path / "days.txt"
    path.write_text("rain\nsun\nsun\n")
    refused(run("forecast", path, "--classes", "rain,sun"), "days.txt begins with rain, a class", "standard input")
    assert len(run("forecast", "--classes", "rain,sun", stdin=path.read_text()).lines) == 4
    path.write_text("outcome\nrain\nsun\nsun\n")
    assert len(run("forecast", path, "--classes", "rain,sun").lines) == 4


BAD_LINES = {
    "hail": "it is 'hail', expected one of rain, sun",
    '"hail"': "it is 'hail', expected one of rain, sun",
    "1": "it is 1, expected one of rain, sun",
    "[0.5, 0.47]": "entries sum to 0.97",
    "[0.5, NaN]": "the outcome holds nan, expected finite numbers",
    "[0.5, 1e999]": "the outcome holds inf, expected finite numbers",
    "[0.5]": "it is [0.5], expected a list of 2 numbers",
    '[0.5, "x"]': "it[1] is 'x', expected a number",
    "[0.5, true]": "it[1] is True, expected a number",
    "null": "it is missing, expected one of rain, sun",
    "true": "it is True, expected one of rain, sun",
    '{"weather": "sun", "day": 1}': "it has the columns weather, day, none named outcome",
    '{"outcome": null}': "outcome is missing, expected one of rain, sun",
    '{"outcome": {"rain": 1}}': "entries for rain, expected rain, sun",
    "[" * 100_000: "nested too deeply",
    "0.5": "it is 0.5, expected one of rain, sun",
    '{"outcome": "sun"': "it is not JSON",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:20])
def test_a_bad_line_is_named(line: str) -> None:
    done = run("forecast", "--classes", "rain,sun", stdin=f"sun\n\n{line}\nrain\n")
    refused(done, "standard input, line 3 (row 2): ", BAD_LINES[line])
    assert len(done.lines) == 2  # what came before is forecast


def test_bytes_that_are_no_text_are_named() -> None:
    refused(run("forecast", "--dim", 2, stdin=b"1\n\xff\xfe\n"), "line 2 (row 2): it is not text in UTF-8")
    refused(run("forecast", "--dim", 2, stdin=b"PAR1\xff\n"), "--kind parquet")
    refused(run("forecast", "--dim", 2, stdin=b"\x1f\x8b\xff\n"), "gzip")


def test_bad_lines_are_skipped_or_collected_and_counted() -> None:
    stdin = "sun\nhail\nrain\n[1]\nsun\n"
    good = run("forecast", "--classes", "rain,sun", stdin="sun\nrain\nsun\n").out
    skipped = run("forecast", "--classes", "rain,sun", "--on-error", "skip", stdin=stdin)
    listed = (
        "treecal: 2 invalid rows left out:\n"
        "  line 2 (row 2): it is 'hail', expected one of rain, sun.\n"
        "  line 4 (row 4): it is [1], expected a list of 2 numbers.\n"
    )
    assert (skipped.code, skipped.out, skipped.err) == (1, good, listed)
    collected = run("forecast", "--classes", "rain,sun", "--on-error", "collect", stdin=stdin)
    assert (collected.code, collected.out, collected.err) == (1, good, listed)
    many = run("forecast", "--classes", "rain,sun", "--on-error", "skip", stdin="hail\n" * 7)
    assert many.err.startswith("treecal: 7 invalid rows left out:\n")
    assert many.err.endswith("  and 2 more\n")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("weather\nsun\nsun,rain\n", ["line 3", "2 cells, expected 1"]),
        ("weather,weather\nsun,sun\n", ["two columns named 'weather'"]),
        ("", ["first line", "is empty"]),
        ("\nsun\n", ["first line", "is empty"]),
        ("day,sky\n1,sun\n", ["x.csv has the columns day, sky, none named outcome"]),
        ('weather\n"sun\n', ["line 2", "not CSV"]),
        ("outcome,day\nsun,1\n\nhail,2\n", ["line 4", "outcome is 'hail', expected one of rain, sun"]),
        ("weather\nsun\n\nrain\n", ["line 3", "weather is missing"]),
        ("weather\nsun\n\udcff\n", ["line 3", "UTF-8"]),
    ],
)
def test_a_bad_row_of_csv_is_named(content: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content.encode(errors="surrogateescape"))
    refused(run("forecast", path, "--classes", "rain,sun"), *words)


def test_bad_files_and_options() -> None:
    for arguments, words in {
        ("nowhere.csv", "--dim", "2"): "there is no file nowhere.csv",
        ("notes.md", "--dim", "2"): "--kind csv or jsonl or parquet",
        ("/", "--dim", "2", "--kind", "csv"): "/ is a folder",
        (): "no outcome set given",
        ("--classes", "a"): "two or more names",
        ("--classes", "a,a"): "distinct names",
        ("--classes", "a,\udcff"): "distinct names",
        ("--classes", "a,b", "--dim", "3"): "--dim is 3, but --classes names 2",
        ("--dim", "2", "--box", "0", "1", "--ball", "1"): "--box and --ball",
        ("--dim", "2", "--box", "1", "0"): "above high",
        ("--dim", "0"): "dim is 0",
        ("--dim", "1" + "0" * 12): "out of memory",
        ("--dim", "1" + "0" * 15): "expected at most",
        ("--dim", "3", "--forecaster", "binary-grid"): "Simplex(2)",
        ("--dim", "2", "--bins", "3"): "does not take --bins",
        ("--dim", "2", "--arity", "3"): "--forecaster adaptive or sampled or treecal takes --arity",
        ("--dim", "2", "--forecaster", "treecal", "--arity", "1"): "arity is 1",
        ("--dim", "2", "--forecaster", "treecal", "--forecaster-norm", "l2"): "does not take --forecaster-norm",
        ("--dim", "2", "--forecaster-norm", "l0.5"): "--forecaster-norm is 'l0.5'",
        ("--dim", "2", "--budget", "-1"): "budget is -1",
        ("--dim", "2", "--seed", "-1"): "--seed is -1",
        ("--dim", "2", "--every", "0"): "--every is 0",
        ("--dim", "two"): "two",
        ("--dimm", "2"): "Unknown option: --dimm",
        ("-", "--kind", "parquet", "--dim", "2"): "standard input",
    }.items():
        refused(run("forecast", *arguments), words)


def test_a_bad_row_of_parquet_is_named(tmp_path: Path) -> None:
    path = write_files(tmp_path)[1]
    done = run("forecast", path, "--classes", "rain,sun", "--outcome", "weather")
    refused(done, f"row {WORDS.index('snow') + 1}: weather is 'snow', expected one of rain, sun")


def test_truncated_parquet(tmp_path: Path) -> None:
    path = write_files(tmp_path)[1]
    path.write_bytes(path.read_bytes()[:-20])
    refused(run("forecast", path, "--classes", "rain,snow,sun", "--outcome", "weather"), "truncated or damaged")


def test_the_horizon_is_an_end_and_not_a_bad_line() -> None:
    arguments = ["forecast", "--dim", 2, "--forecaster", "treecal", "--arity", 2, "--depth", 2, "--on-error", "skip"]
    full = run(*arguments, stdin="1\n" * 4)
    assert (full.code, len(full.lines)) == (0, 4)  # there is no fifth round to forecast
    refused(run(*arguments, stdin="1\n" * 5), "line 5 (row 5): ", "4 rounds")
