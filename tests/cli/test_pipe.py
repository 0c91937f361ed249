"""Outcomes by id, snapshots of correctors, files that grow, and tables that can be audited."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.cli.support import TREECAL, Done, refused, run, start, unhurried
from treecal import state
from treecal.cli._recalibrate import METHODS

RNG = np.random.default_rng(0)
NAMES = ("rain", "sun")
TWO = ("--classes", "rain,sun")
SPACE = tc.Simplex(classes=NAMES)
P = RNG.dirichlet([2, 2], size=40).round(3)
Y = [NAMES[k] for k in (RNG.random(40) < 0.2 + 0.3 * P[:, 1]).astype(int)]

Rows = list[dict[str, Any]]


def text(rows: Rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def recalibrate(*arguments: object, stdin: str = "") -> Done:
    return run("recalibrate", *arguments, *TWO, stdin=stdin)


def opening(i: int) -> dict[str, Any]:
    return {"id": str(i), "p_rain": P[i, 0], "p_sun": P[i, 1], "city": f"c{i % 3}"}


def closing(i: int) -> dict[str, Any]:
    return {"outcome_for": str(i), "outcome": Y[i]}


def interleaved(seed: int) -> Rows:
    """Return rounds opened in order, and closed in any: some at once, some never, some beside another's forecast."""
    chance, rows, waiting = random.Random(seed), Rows(), list[int]()
    for i in range(len(P)):
        row = opening(i)
        kind = "late" if i + 1 == len(P) else chance.choice(["at once", "late", "late", "both"])
        if kind == "at once":
            row |= {"outcome": Y[i]}
        else:
            if kind == "both" and waiting:
                row |= closing(waiting.pop(chance.randrange(len(waiting))))
            waiting.append(i)
        rows.append(row)
        while waiting and chance.random() < 0.4 and i + 1 < len(P):
            rows.append(closing(waiting.pop(chance.randrange(len(waiting)))))
    return rows


@pytest.mark.parametrize(
    ("method", "made"),
    [
        ("mean", tc.Recalibrator(SPACE)),
        ("vector", tc.VectorScaling(SPACE)),
        ("guarded", tc.GuardedCorrector(SPACE)),
    ],
)
def test_rounds_by_id_are_the_library_s(method: str, made: Any) -> None:
    rows = interleaved(0)
    done = recalibrate("--method", method, "--json", stdin=text(rows))
    assert (done.code, done.err) == (0, "")
    *lines, last = done.lines
    late, announced = tc.Late(made), iter(lines)
    for row in rows:
        if "p_rain" in row:
            x = late.predict([row["p_rain"], row["p_sun"]], id=row["id"])
            line = next(announced)
            assert line["mean"] == dict(zip(NAMES, x.mean.tolist(), strict=True))
            assert (line["id"], line["row"]) == (row["id"], {"city": row["city"]})
        if "outcome" in row:
            late.update(row["outcome_for"] if "outcome_for" in row else row["id"], row["outcome"])
    assert [line["round"] for line in lines] == list(range(1, len(P) + 1))
    assert last["scores"]["after"]["brier"] == late.report().after.brier
    assert last["waiting"] == len(late.pending) > 0


@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 1000),
    cuts=st.lists(st.integers(0, 60), max_size=3),
    kind=st.sampled_from(["jsonl", "csv", "parquet"]),
    method=st.sampled_from(["mean", "platt", "guarded"]),
    table=st.sampled_from([None, "csv", "jsonl"]),
)
def test_any_split_over_several_nights_is_one_run(
    seed: int, cuts: list[int], kind: str, method: str, table: str | None
) -> None:
    rows = interleaved(seed)

    def play(folder: Path, cuts: list[int]) -> tuple[bytes, list[Any], list[Any]]:
        path, snapshot, lines, closed = folder / f"log.{kind}", folder / "s.treecal", list[Any](), list[Any]()
        ends = [*sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
        for night, end in enumerate(ends):
            if end == 0:
                continue
            write(path, rows[:end])
            output = folder / f"night-{night}.{table}"
            arguments = [] if table is None else ["--output", output]
            done = recalibrate(path, "--method", method, "--snapshot", snapshot, "--every", 7, *arguments)
            assert done.code == 0, done.err
            lines += done.lines
            closed += [] if table is None else read(output)
        return snapshot.read_bytes(), lines, closed

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as many:
        assert play(Path(one), []) == play(Path(many), cuts)


@settings(max_examples=8, deadline=None)
@given(
    cuts=st.lists(st.floats(0, 1), min_size=1, max_size=3),
    kind=st.sampled_from(["jsonl", "csv"]),
    newline=st.sampled_from(["\n", "\r\n"]),
    skip=st.booleans(),
)
def test_a_log_may_be_read_while_it_is_written(cuts: list[float], kind: str, newline: str, skip: bool) -> None:
    """Whatever byte it ends with at night: in a number, within quotes, within a letter."""
    rows = [row | ({"city": 'Malmö\nand, "Lund"'} if "city" in row else {}) for row in interleaved(2)[:12]]

    def play(folder: Path, cuts: list[float]) -> tuple[bytes, list[Any]]:
        path, snapshot, lines = folder / f"log.{kind}", folder / "s.treecal", list[Any]()
        write(path, rows)
        content = path.read_bytes().replace(b"\r\n", b"\n")
        if kind == "csv":  # whose line break within quotes stays
            content = content.replace(b"\n", newline.encode())
        for cut in [*sorted(cuts), 1.0]:
            end = int(cut * len(content))
            path.write_bytes(content[:end])
            done = recalibrate(path, "--snapshot", snapshot, *(["--on-error", "skip"] if skip else []))
            begun = kind == "jsonl" or newline.encode() in content[:end]
            assert done.code == 0 or not begun, done.err
            if begun and end and not content[:end].endswith(b"\n"):
                assert "left for the next run" in done.err
            lines += done.lines
        return snapshot.read_bytes(), lines

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as many:
        assert play(Path(one), []) == play(Path(many), cuts)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_last_line_without_end_is_left_only_where_it_can_be_read_again(snapshot: bool, tmp_path: Path) -> None:
    log, saved = tmp_path / "log.jsonl", ["--snapshot", tmp_path / "s.treecal"] if snapshot else []
    log.write_text(text([opening(1), opening(2)])[:-1])
    done = recalibrate(log, *saved)
    assert [line["id"] for line in done.lines] == (["1"] if snapshot else ["1", "2"])
    left = "treecal: log.jsonl, line 2 (row 2): the file ends before this row does"
    assert done.err.startswith(left) == snapshot
    assert len(recalibrate(*saved, stdin=text([opening(3)])[:-1]).lines) == 1  # a pipe does not bring it again


def test_quotes_that_are_never_closed_are_a_mistake(tmp_path: Path) -> None:
    """Else all that follows would be left for the next run, night after night."""
    log, saved = tmp_path / "log.csv", ["--snapshot", tmp_path / "s.treecal"]
    row = "{},Oslo,0.5,0.5\n"
    log.write_text('id,city,p_rain,p_sun\n1,Oslo,0.5,0.5\n2,"Oslo,0.5,0.5\n' + row.format(3) * 3)
    done = recalibrate(log, *saved)
    assert (done.code, "line 3 (row 2): the file ends before this row does" in done.err) == (0, True)
    with log.open("a") as file:
        file.write(row.format(4) * 100)
    refused(recalibrate(log, *saved), "line 3 (row 2): it is not CSV")


def test_a_command_that_followed_no_row_leaves_no_snapshot(tmp_path: Path) -> None:
    """It would bind the next one to its classes and method."""
    snapshot, log = tmp_path / "s.treecal", tmp_path / "log.jsonl"
    log.write_text(text([{"forecast": [0.3, 0.8], "outcome": "sun"}, {"day": 1}]))
    for command in ("recalibrate", "forecast"):
        for arguments, stdin in (
            ((log,), ""),
            ((log, "--on-error", "skip"), ""),
            ((tmp_path / "missing.csv",), ""),
            ((), "hail"),
            ((), ""),
        ):
            run(command, *arguments, *TWO, "--id", "id", "--snapshot", snapshot, stdin=stdin)
            assert os.listdir(tmp_path) == ["log.jsonl"], (command, arguments)
    run("forecast", *TWO, "--snapshot", snapshot)
    assert os.listdir(tmp_path) == ["log.jsonl"]
    assert run("recalibrate", "--classes", "a,b", "--snapshot", snapshot, stdin='{"forecast": [0.3, 0.7]}').code == 0
    before = snapshot.read_bytes()
    run("recalibrate", "--classes", "a,b", "--snapshot", snapshot, "--on-error", "skip", stdin='{"forecast": 7}')
    assert snapshot.read_bytes() == before


def write(path: Path, rows: Rows) -> None:
    columns = ["id", "p_rain", "p_sun", "city", "outcome_for", "outcome"]
    if path.suffix == ".jsonl":
        path.write_text(text(rows), encoding="utf-8")
        return
    full = [{name: row.get(name) for name in columns} for row in rows]
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema({name: pa.float64() if name.startswith("p_") else pa.string() for name in columns})
        pq.write_table(pa.Table.from_pylist(full, schema), path)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(full)


def read(path: Path) -> list[Any]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return list(pq.read_table(path).to_pylist())
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "tsv", "txt"])
def test_the_table_has_what_was_announced_and_what_followed(kind: str, tmp_path: Path) -> None:
    """As far as the outcome is known; an audit of it is that of the corrector's own scores, and of the input."""
    path, output = tmp_path / "log.jsonl", tmp_path / f"closed.{kind}"
    path.write_text(text(interleaved(3)))
    done = recalibrate(path, "--output", output, "--json")
    report, announced = done.lines[-1]["scores"], {line["id"]: line["mean"] for line in done.lines[:-1]}
    if kind != "tsv":
        found = read(output)
        assert len(found) == report["rounds"]
        for row in found:
            i = int(row["id"])
            assert (float(row["p_rain"]), row["outcome"], row["city"]) == (P[i, 0], Y[i], f"c{i % 3}")
            if row["id"] in announced:
                assert [float(row["corrected_rain"]), float(row["corrected_sun"])] == list(
                    announced[row["id"]].values()
                )
    for columns, role in (("corrected_rain,corrected_sun", "after"), ("p_rain,p_sun", "before")):
        whole = run("audit", output, "--forecast", columns, "--outcome", "outcome", "--by", "city", "--json").lines[0]
        assert whole["whole"]["brier"] == pytest.approx(report[role]["brier"], abs=1e-12)


def test_standard_output_has_what_the_table_has_not(tmp_path: Path) -> None:
    rows = interleaved(4)
    done = recalibrate("--output", tmp_path / "closed.csv", stdin=text(rows))
    at_once = [row["id"] for row in rows if row.get("outcome") and "outcome_for" not in row]
    asked = [row["id"] for row in rows if "p_rain" in row]
    assert [line["id"] for line in done.lines] == [name for name in asked if name not in at_once]


def test_a_table_is_not_overwritten_and_its_columns_are_free(tmp_path: Path) -> None:
    rows, output = [opening(0) | {"outcome": Y[0]}], tmp_path / "closed.csv"
    assert recalibrate("--output", output, stdin=text(rows)).code == 0
    refused(recalibrate("--output", output, stdin=text(rows)), "closed.csv exists and is not overwritten", "--force")
    assert recalibrate("--output", output, "--force", stdin=text(rows)).code == 0
    refused(recalibrate("--output", tmp_path / "closed.xls", stdin=text(rows)), "CSV as .csv, .tsv or .txt")
    again = recalibrate(output, "--forecast", "p_rain,p_sun", "--output", tmp_path / "again.csv")
    refused(again, "closed.csv has a column corrected_rain, which the output needs", "rename it")
    refused(recalibrate(output), "p_rain, p_sun and corrected_rain, corrected_sun may all be", "--forecast")


def test_a_run_does_not_write_over_what_it_reads(tmp_path: Path) -> None:
    log, link = tmp_path / "log.jsonl", tmp_path / "link.jsonl"
    log.write_text(text([opening(0), closing(0)]))
    link.symlink_to(log)
    for options, words in (
        (("--output", link, "--force"), "link.jsonl, the same file as the input"),
        (("--snapshot", log), "log.jsonl, the same file as the input"),
        (("--output", tmp_path / "x.csv", "--snapshot", tmp_path / "x.csv"), "the same file as --output"),
    ):
        refused(recalibrate(log, *options), words)
    assert log.read_text() == text([opening(0), closing(0)])
    assert not (tmp_path / "x.csv").exists()


def test_lists_objects_and_formulas_in_a_table(tmp_path: Path) -> None:
    rows: Rows = [
        {"forecast": {"sun": 0.75, "rain": 0.25}, "outcome": "sun", "note": "=1+1", "t": "-3.5", "tags": ["a", 1]},
        {"forecast": {"sun": 0.5, "rain": 0.5}, "outcome": "rain", "note": None, "t": 2, "more": True},
    ]
    for kind in ("csv", "parquet"):
        output = tmp_path / f"closed.{kind}"
        assert recalibrate("--output", output, stdin=text(rows)).code == 0
        audit = run("audit", output, "--forecast", "forecast", "--outcome", "outcome", "--json", *TWO)
        assert audit.code == 0, audit.err
    first, second = read(tmp_path / "closed.csv")
    assert (first["forecast"], first["note"], first["t"], first["tags"]) == (
        "[0.25, 0.75]",
        "'=1+1",
        "-3.5",
        '["a", 1]',
    )
    assert (second["note"], second["t"], second["more"]) == ("", "2", "true")
    first, second = read(tmp_path / "closed.parquet")
    assert (first["forecast"], first["t"], first["tags"], first["more"]) == ([0.25, 0.75], "-3.5", '["a", 1]', None)
    assert (second["t"], second["more"]) == ("2", True)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"outcome_for": "7", "outcome": "sun"}', "it has an outcome for '7', and no forecast of that id awaits one"),
        ('{"outcome_for": "1", "outcome": "sun"}', "it has an outcome for '1', and no forecast of that id awaits one"),
        ('{"outcome_for": "2"}', "outcome is missing, expected one of rain, sun"),
        ('{"outcome_for": "2", "outcome": "hail"}', "outcome is 'hail', expected one of rain, sun"),
        ('{"outcome_for": [2], "outcome": "sun"}', "outcome_for is [2], expected text or a number"),
        ('{"outcome": "sun"}', "does not say for which forecast; waiting: '2'"),
        ('{"id": 2, "forecast": [0.5, 0.5]}', "id '2' awaits the outcome of another forecast"),
        ('{"id": 1, "forecast": [0.5, 0.5]}', "id '1' was used before, and its round is closed"),
        ('{"forecast": [0.5, 0.5], "outcome_for": "2", "outcome": "sun"}', "no id of its own"),
        (
            '{"id": 3, "forecast": [0.5, 0.5], "outcome_for": "7", "outcome": "sun"}',
            "no forecast of that id awaits one",
        ),
        ('{"id": 3, "forecast": [0.5, 0.6], "outcome_for": "2", "outcome": "sun"}', "sum to 1.1"),
    ],
)
def test_an_invalid_row_changes_nothing(row: str, words: str, tmp_path: Path) -> None:
    first = text([opening(1), opening(2), closing(1)])
    refused(recalibrate(stdin=first + row + "\n"), "line 4 (row 4): ", words)
    kept = []
    for i, middle in enumerate((row + "\n", "")):
        snapshot = tmp_path / f"{i}.treecal"
        done = recalibrate("--on-error", "skip", "--snapshot", snapshot, stdin=first + middle + text([closing(2)]))
        assert done.code == 1 - i, done.err
        kept.append(snapshot.read_bytes())
    assert kept[0] == kept[1]


def test_a_row_may_be_repeated_with_its_outcome() -> None:
    """As a log does that is written once the outcome is known, too."""
    done = recalibrate(stdin=text([opening(1), opening(2), opening(1) | {"outcome": Y[1]}]))
    assert (done.code, [line["round"] for line in done.lines]) == (0, [1, 2, 1])
    assert done.lines[0] == done.lines[2]
    assert "1 forecast awaits its outcome." in done.err


def test_a_forecast_without_id_while_another_waits_is_refused() -> None:
    """Its outcome was credited to the second, and nothing said so."""
    rows: Rows = [{"forecast": [0.1, 0.9]}, {"forecast": [0.8, 0.2]}, {"outcome": "rain"}]
    done = recalibrate(stdin=text(rows))
    refused(done, "line 2 (row 2)", "while the one before, without an id, still awaits", "outcome_for")
    assert "tc.Late" not in done.err


@pytest.mark.parametrize("method", ["adaptive", "guarded", "vector-then-guarded"])
def test_guarantees_need_ids_from_the_first_round_on(method: str) -> None:
    without: Rows = [{"forecast": [0.1, 0.9], "outcome": "rain"}]
    late = [opening(1), closing(1)]
    refused(recalibrate("--method", method, stdin=text(without + late)), "1 rounds were learned in order")
    with_ids = [row | {"id": f"x{i}"} for i, row in enumerate(without * 3)]
    assert recalibrate("--method", method, stdin=text(with_ids + late + without + late)).code == 2  # id 1 again
    assert recalibrate("--method", method, stdin=text(with_ids + late + without)).code == 0


@pytest.mark.parametrize("method", sorted({*METHODS} - {"location-scale", "pit-map"}))  # which are of numbers
def test_every_method_resumes_with_rounds_that_wait(method: str, tmp_path: Path) -> None:
    rows = interleaved(1)[:30]
    whole = recalibrate("--method", method, stdin=text(rows)).lines
    arguments = ["--method", method, "--snapshot", tmp_path / "s.treecal"]
    parts = [recalibrate(*arguments, stdin=text(part)).lines for part in (rows[:11], rows[11:])]
    assert parts[0] + parts[1] == whole


def grow(path: Path, rows: int) -> Path:
    path.write_text(
        "day,p_rain,p_sun,weather\n" + "".join(f"{i},{P[i, 0]},{P[i, 1]},{Y[i]}\n" for i in range(rows)),
        encoding="utf-8",
    )
    return path


def test_a_file_that_grows_is_learned_once(tmp_path: Path) -> None:
    arguments = ["--outcome", "weather", "--snapshot", tmp_path / "s.treecal"]
    log = grow(tmp_path / "log.csv", 10)
    assert len(recalibrate(log, *arguments).lines) == 10
    again = recalibrate(log, *arguments)
    assert again.lines == []
    assert again.err.startswith(
        "treecal: log.csv: the first 10 rows were learned before; resuming after them.\n10 rounds"
    )
    assert len(recalibrate(grow(log, 15), *arguments).lines) == 5
    log.rename(tmp_path / "renamed.csv")
    assert recalibrate(tmp_path / "renamed.csv", *arguments).lines == []
    changed = grow(log, 15)
    changed.write_text(log.read_text().replace("\n3,", "\n33,"))
    before = (tmp_path / "s.treecal").read_bytes()
    words = ("log.csv does not begin with the 15 rows of log.csv", "--new-file", f"remove {tmp_path / 's.treecal'}")
    refused(recalibrate(changed, *arguments, "--output", tmp_path / "closed.csv"), *words)
    assert not (tmp_path / "closed.csv").exists()
    refused(recalibrate(grow(log, 14), *arguments), *words)  # it has shrunk
    assert (tmp_path / "s.treecal").read_bytes() == before
    other = tmp_path / "other.csv"
    other.write_text(changed.read_text().replace("\n3,", "\n333,"))
    assert len(recalibrate(other, *arguments, "--new-file").lines) == 14
    assert len(recalibrate(other, *arguments, "--new-file").lines) == 0  # it is known by now
    assert recalibrate(grow(log, 15), *arguments).lines == []  # and so is the first
    assert tc.load(tmp_path / "s.treecal").rounds == 29


def test_what_comes_through_a_pipe_is_new(tmp_path: Path) -> None:
    arguments = ["--outcome", "weather", "--snapshot", tmp_path / "s.treecal"]
    log = grow(tmp_path / "log.csv", 10)
    for _ in range(2):
        assert len(recalibrate(*arguments, "--kind", "csv", stdin=log.read_text()).lines) == 10
    refused(recalibrate(log, *arguments), "holds 20 rounds, and no note of files they came from", "--new-file")
    assert len(recalibrate(log, *arguments, "--new-file").lines) == 10
    assert recalibrate(log, *arguments).lines == []


def test_a_snapshot_may_be_used_from_python(tmp_path: Path) -> None:
    snapshot, output = tmp_path / "s.treecal", tmp_path / "closed.jsonl"
    assert recalibrate("--snapshot", snapshot, stdin=text([opening(1), opening(2)])).code == 0
    late = tc.load(snapshot)
    late.update("1", Y[1])
    x = late.predict([0.5, 0.5], id="9")
    tc.save(late, snapshot)
    refused(recalibrate("--snapshot", snapshot, stdin=text([closing(1)])), "no forecast of that id awaits one")
    done = recalibrate("--snapshot", snapshot, "--output", output, stdin=text([closing(9), closing(2)]))
    assert (done.code, tc.load(snapshot).pending) == (0, [])
    first, second = read(output)
    assert (first["outcome"], first["corrected_rain"], second["outcome"]) == (Y[9], x.mean[0], Y[2])


def test_forecasts_of_a_file_that_grows(tmp_path: Path) -> None:
    """Two rows one night and three the next were five rounds."""
    arguments = ["forecast", tmp_path / "log.csv", *TWO, "--outcome", "weather", "--snapshot", tmp_path / "s.treecal"]
    whole = [line["round"] for line in run(*arguments).lines] if grow(tmp_path / "log.csv", 2) else []
    assert whole == [1, 2, 3]
    grow(tmp_path / "log.csv", 3)
    assert [line["round"] for line in run(*arguments).lines] == [3, 4]
    tc.save(tc.load(tmp_path / "s.treecal"), tmp_path / "s.treecal")  # without the notes
    refused(run(*arguments), "holds 3 rounds, and no note of files they came from")


def test_an_invalid_row_is_met_again_and_may_be_mended(tmp_path: Path) -> None:
    arguments = ["--outcome", "weather", "--snapshot", tmp_path / "s.treecal", "--output"]
    log = grow(tmp_path / "log.csv", 10)
    right = log.read_text()
    log.write_text(right.replace(f"\n7,{P[7, 0]},", "\n7,0.9999,"))
    refused(recalibrate(log, *arguments, tmp_path / "1.csv"), "line 9 (row 8): ")
    assert len(read(tmp_path / "1.csv")) == tc.load(tmp_path / "s.treecal").rounds == 7
    refused(recalibrate(log, *arguments, tmp_path / "2.csv"), "line 9 (row 8): ")
    log.write_text(right)
    assert recalibrate(log, *arguments, tmp_path / "3.csv").code == 0
    assert [row["day"] for row in read(tmp_path / "3.csv")] == ["7", "8", "9"]
    refused(recalibrate("--output", tmp_path / "4.csv", stdin='{"forecast": 2}'), "line 1")
    assert not (tmp_path / "4.csv").exists()  # nothing remembers its rounds


def test_two_runs_do_not_share_a_snapshot(tmp_path: Path) -> None:
    snapshot = tmp_path / "s.treecal"
    (tmp_path / "link.treecal").symlink_to(snapshot)
    with start("forecast", *TWO, "--snapshot", snapshot) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        for command, name in (("forecast", "s.treecal"), ("recalibrate", "s.treecal"), ("forecast", "link.treecal")):
            done = run(command, *TWO, "--snapshot", tmp_path / name)
            refused(done, f"{name} is in use by another treecal, process {process.pid}.", "Hint: ")
        process.stdin.close()
        process.wait()
    assert run("forecast", *TWO, "--snapshot", snapshot).code == 0
    assert os.listdir(tmp_path) == ["link.treecal"]


def test_a_killed_run_locks_nothing(tmp_path: Path) -> None:
    snapshot = tmp_path / "s.treecal"
    with start("forecast", *TWO, "--snapshot", snapshot) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    assert run("forecast", *TWO, "--snapshot", snapshot).code == 0


def test_a_signal_leaves_table_and_snapshot_that_agree(tmp_path: Path) -> None:
    snapshot, output = tmp_path / "s.treecal", tmp_path / "closed.csv"
    with start("recalibrate", *TWO, "--snapshot", snapshot, "--output", output) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for row in (opening(1), opening(2), closing(1)):
            process.stdin.write(json.dumps(row) + "\n")
            process.stdin.flush()
        assert [json.loads(process.stdout.readline())["id"] for _ in range(2)] == ["1", "2"]
        process.stdin.write(json.dumps(opening(3)) + "\n")  # once this is answered, the outcome was learned
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
    assert process.returncode == 130
    assert "2 forecasts await their outcomes." in err
    assert f"interrupted after 1 round, saved in {snapshot}." in err
    assert [row["id"] for row in read(output)] == ["1"]
    done = recalibrate("--snapshot", snapshot, "--output", tmp_path / "later.csv", stdin=text([closing(3), closing(2)]))
    assert done.code == 0, done.err
    assert [row["id"] for row in read(tmp_path / "later.csv")] == ["3", "2"]


def test_a_reader_that_has_enough_loses_no_round(tmp_path: Path) -> None:
    """Nobody knows what it has read: a file is read again, and what came through a pipe is kept."""
    log, snapshot = tmp_path / "log.jsonl", tmp_path / "s"
    log.write_text(text([{"forecast": [0.3, 0.7], "outcome": "sun"}] * 2500))
    unbuffered = os.environ | {"PYTHONUNBUFFERED": "1"}  # as in containers
    for begin in (f"'{TREECAL}' recalibrate '{log}'", f"cat '{log}' | '{TREECAL}' recalibrate"):
        script = (
            f"{begin} --classes rain,sun --snapshot '{snapshot}' --every 3000 | head -n 2; echo ${{PIPESTATUS[-2]}}"
        )
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=unbuffered)
        assert (done.stdout.splitlines()[2:], unhurried(done.stderr)) == (["141"], "")
        assert snapshot.exists() == begin.startswith("cat")
    rounds = tc.load(snapshot).rounds
    assert 0 < rounds < 2500
    assert recalibrate("--snapshot", snapshot, stdin=text([opening(1)])).lines[0]["round"] == rounds + 1


def test_a_reader_that_has_enough_leaves_the_last_snapshot(tmp_path: Path) -> None:
    log, snapshot = tmp_path / "log.jsonl", tmp_path / "s"
    log.write_text(text([{"forecast": [0.3, 0.7], "outcome": "sun"}] * 20))
    read_end, write_end = os.pipe()
    command = [TREECAL, "recalibrate", str(log), *TWO, "--snapshot", str(snapshot), "--every", "1"]
    os.close(read_end)
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert (done.returncode, unhurried(done.stderr), os.listdir(tmp_path)) == (141, "", ["log.jsonl"])


def test_rounded_probabilities(tmp_path: Path) -> None:
    rows = [{"forecast": [0.333, 0.666], "outcome": "rain"}]
    refused(recalibrate(stdin=text(rows)), "sum to 0.999, expected 1 within 1e-06")
    mean = recalibrate("--tolerance", 0.01, stdin=text(rows)).lines[0]["mean"]
    assert sum(mean.values()) == pytest.approx(1, abs=1e-12)
    single = {"forecast": np.array([1 / 3, 2 / 3], np.float32).astype(float).tolist(), "outcome": "rain"}
    assert recalibrate(stdin=text([single])).code == 0
    refused(recalibrate("--tolerance", 2), "tolerance is 2")


def test_columns_of_probabilities_are_found_by_their_names(tmp_path: Path) -> None:
    log = grow(tmp_path / "log.csv", 5)
    expected = recalibrate(log, "--outcome", "weather").lines
    assert [line["row"] for line in expected] == [{"day": str(i)} for i in range(5)]
    renamed = tmp_path / "renamed.csv"
    for names in ("rain,sun", "model/rain,model/sun"):
        renamed.write_text(log.read_text().replace("p_rain,p_sun", names))
        assert recalibrate(renamed, "--outcome", "weather").lines == expected
    renamed.write_text(log.read_text().replace("p_rain,p_sun", "a,b"))
    done = recalibrate(renamed, "--outcome", "weather")
    refused(done, "looked for forecast, or rain and sun, or p_rain and p_sun; it has day, a, b, weather", "--forecast")
    refused(recalibrate(log, "--outcome", "sky"), "log.csv has no column 'sky'")
    refused(recalibrate(log, "--outcome", "weather", "--forecast", "p_rain,p_snow"), "no column 'p_snow'", "p_sun")
    row = {"a": 0.2, "b": 0.8, "weather": "sun"}
    done = recalibrate("--outcome", "weather", stdin=text([row]))
    refused(done, "neither it nor a row before has a forecast", "p_rain and p_sun; it has a, b, weather")
    assert "predict" not in done.err


LATE_LOG = "key,p_rain,p_sun,due_for,sky\n1,0.8,0.2,,\n2,0.6,0.4,,\n,,,1,rain\n,,,2,sun\n"
OPTIONS = {"--id": "key", "--outcome-for": "due_for", "--outcome": "sky"}


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("command", ["recalibrate", "forecast"])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"--id": "Key"}, ("'Key'", "did you mean key?")),
        ({"--outcome": "sly"}, ("'sly'", "did you mean sky?")),
        ({"--outcome-for": "due_to"}, ("'due_to'", "did you mean due_for?")),
        ({"--outcome": None}, ("'outcome'", "name it with --outcome.")),
        ({"--id": None}, ("'id'", "name it with --id.")),
    ],
)
def test_wrong_columns_are_noticed_before_the_first_row(
    command: str, kind: str, wrong: dict[str, str | None], words: tuple[str, ...], tmp_path: Path
) -> None:
    """Also where invalid rows are skipped: all of them would be."""
    log, rows = tmp_path / f"log.{kind}", list(csv.DictReader(LATE_LOG.splitlines()))
    log.write_text(LATE_LOG if kind == "csv" else text([{k: v for k, v in row.items() if v} for row in rows]))
    options = [part for name, value in (OPTIONS | wrong).items() if value for part in (name, value)]
    if command == "forecast" and wrong.get("--id", "") is None:
        return  # then rounds have no ids
    for policy in ("stop", "skip"):
        saved = ["--snapshot", tmp_path / "s.treecal", "--output", tmp_path / "closed.csv"]
        done = run(command, log, *TWO, *options, *saved, "--on-error", policy)
        refused(done, f"log.{kind} has no column", "It has key, p_rain, p_sun, due_for, sky.", *words)
        assert (done.out, os.listdir(tmp_path)) == ("", [log.name])
    assert run(command, log, *TWO, *(part for pair in OPTIONS.items() for part in pair)).code == 0


def test_forecasts_and_outcomes_may_be_in_files_of_their_own(tmp_path: Path) -> None:
    for kind, (first, second) in {
        "csv": ("id,p_rain,p_sun,city\n1,0.8,0.2,Oslo\n2,0.6,0.4,Oslo\n", "outcome_for,outcome\n2,sun\n1,rain\n"),
        "jsonl": (text([opening(1), opening(2)]), text([closing(2), closing(1)])),
    }.items():
        saved = ["--snapshot", tmp_path / f"{kind}.treecal", "--new-file", "--by", "city"]
        for name, content in (("forecasts", first), ("outcomes", second)):
            path = tmp_path / f"{name}.{kind}"
            path.write_text(content)
            done = recalibrate(path, *saved)
            assert done.code == 0, done.err
        assert done.err.startswith("2 rounds")
    asks, answers = tmp_path / "asks.csv", tmp_path / "outcomes.csv"
    asks.write_text("id,city\n1,Oslo\n2,Oslo\n")
    for path in (asks, answers):
        assert run("forecast", path, *TWO, "--id", "id", "--snapshot", tmp_path / "f", "--new-file").code == 0
    assert tc.load(tmp_path / "f").rounds == 2


def test_an_error_names_file_line_and_id(tmp_path: Path) -> None:
    """Also one of the library's, which knows a round by a number that no row has."""
    log = tmp_path / "log.jsonl"
    rows: Rows = [{"id": "a", "forecast": [0.5, 0.5]}, {"id": "b", "forecast": [0.5, 1.5]}]
    log.write_text(text(rows))
    box = ("--dim", 2, "--box", 0, 1, "--groups", "cells")
    done = run("recalibrate", log, *box)
    refused(done, "log.jsonl, line 2 (row 2): forecast of id 'b' lies outside")
    assert "round" not in done.err
    log.write_text(text([rows[0], {"outcome_for": "a", "outcome": [0.5, 7]}]))
    refused(run("recalibrate", log, *box), "log.jsonl, line 2 (row 2): outcome_for 'a': the outcome")
    done = run("forecast", *TWO, "--id", "id", "--on-error", "skip", stdin='{"id": 7}\n{"outcome_for": 7}')
    assert "line 2 (row 2): outcome_for '7': outcome is missing" in done.err


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    method=st.sampled_from(["mean", "guarded"]),
    limit=st.sampled_from([None, 1, 3]),
    due=st.sampled_from([None, 2, 5]),
    cut=st.integers(0, 60),
)
def test_rounds_that_are_given_up_are_those_of_the_library(
    seed: int, method: str, limit: int | None, due: int | None, cut: int
) -> None:
    """A round whose outcome is in its own row does not wait, so there is none here."""
    rows = [row | {"t": t} for t, row in enumerate(interleaved(seed))]
    for row in rows:
        if "outcome" in row and "outcome_for" not in row:
            del row["outcome"]
    if due is not None:
        rows = [row | ({"by": row["t"] + due} if "p_rain" in row else {}) for row in rows]
    late = tc.Late(tc.Recalibrator(SPACE) if method == "mean" else tc.GuardedCorrector(SPACE), limit=limit)
    expected = []
    for row in rows:
        if "p_rain" in row:
            x = late.predict([row["p_rain"], row["p_sun"]], id=row["id"], due=row.get("by"), now=row["t"])
            expected.append((row["id"], late.counts.opened, x.mean.tolist()))
        if "outcome" in row:
            with suppress(tc.exceptions.IdError):
                late.update(row["outcome_for"], row["outcome"], now=row["t"])
    options: list[object] = ["--method", method, "--now", "t", *([] if due is None else ["--due", "by"])]
    with tempfile.TemporaryDirectory() as folder:
        snapshot = Path(folder, "s")
        options += ["--snapshot", snapshot, *([] if limit is None else ["--limit", limit])]
        nights = [recalibrate(*options, "--json", stdin=text(part)) for part in (rows[:cut], rows[cut:])]
        assert [done.code for done in nights] == [0, 0], nights[-1].err
        lines = [line for done in nights for line in done.lines if "scores" not in line]
        assert [(line["id"], line["round"], list(line["mean"].values())) for line in lines] == expected
        saved = tc.load(snapshot)
        assert saved.pending == late.pending
        assert (saved.limit, saved.counts.void, saved.counts.too_late) == (limit, late.void, late.counts.too_late)
        assert [name for name, *_ in state.read_notes(snapshot.read_bytes()).get("open", [])] == late.pending


def test_times_and_limits(tmp_path: Path) -> None:
    def asked(i: int, day: object, due: object) -> dict[str, Any]:
        return opening(i) | {"day": day, "due": due}

    arguments = ["--now", "day", "--due", "due"]
    rows = [asked(1, "2026-10-01", "2026-10-08"), asked(2, "2026-10-07T09:30+02:00", "2026-10-14T00:00Z")]
    rows += [closing(2) | {"day": "2026-10-09"}, closing(1) | {"day": "2026-10-09"}]
    done = recalibrate(*arguments, stdin=text(rows))
    assert done.code == 0
    assert done.err.endswith("1 forecast is void; 1 outcome arrived too late.\n")
    found = recalibrate(*arguments, "--json", stdin=text(rows)).lines[-1]
    assert (found["waiting"], found["void"], found["too_late"]) == (0, 1, 1)
    for row, words in (
        (asked(1, "soon", 7), "line 1 (row 1): id '1': day is 'soon', expected a number, or a time such as"),
        (asked(1, 8, 7), "due is 7, expected a time from 8 on"),
        (opening(1) | {"due": 7}, "day is missing, expected what time it is"),
    ):
        refused(recalibrate(*arguments, stdin=text([row])), words)
    refused(recalibrate("--due", "due"), "--due needs the current time", "--now")
    refused(recalibrate("--limit", 0), "--limit is 0")
    refused(run("forecast", *TWO, "--limit", 7), "--limit are for forecasts with ids", "--id")
    done = run("forecast", *TWO, "--id", "id", "--limit", 1, stdin=text([{"id": 1}, {"id": 2}, closing(1)]))
    assert done.err == "treecal: 1 forecast awaits its outcome; 1 forecast is void; 1 outcome arrived too late.\n"
    snapshot = tmp_path / "s"
    for limit, code in ((None, 0), (1, 2), (7, 0), (None, 0)):  # given later, it holds from then on
        stdin = text([opening(1), opening(2)])
        chosen = [] if limit is None else ["--limit", limit]
        assert recalibrate("--snapshot", snapshot, *chosen, stdin=stdin).code == code
    assert tc.load(snapshot).limit == 7


def test_forecasts_by_id(tmp_path: Path) -> None:
    arguments = ["forecast", *TWO, "--id", "id", "--announce", "mean"]
    rows: Rows = [
        {"id": 1, "city": "Oslo"},
        {"id": 2},
        closing(2),
        {"id": 3, **closing(1)},
        {"id": 4, "outcome": "sun"},
    ]
    done = run(*arguments, "--output", tmp_path / "closed.csv", stdin=text(rows))
    assert (done.code, done.err) == (0, "")
    late = tc.Late(tc.Guarded(SPACE))
    first, second = late.predict(id="1"), late.predict(id="2")
    late.update("2", Y[2])
    third = late.predict(id="3")
    assert [line["id"] for line in done.lines] == ["1", "2", "3"]
    assert [list(line["mean"].values()) for line in done.lines] == [x.mean.tolist() for x in (first, second, third)]
    assert done.lines[0]["row"] == {"city": "Oslo"}
    assert [(row["id"], row["city"], row["outcome"]) for row in read(tmp_path / "closed.csv")] == [
        ("2", "", Y[2]),
        ("1", "Oslo", Y[1]),
        ("4", "", "sun"),
    ]
    for row, words in (
        ({"day": 1}, "neither id nor outcome_for, only day"),
        ({"outcome_for": 9, "outcome": "sun"}, "no forecast of that id awaits one"),
        ("sun", "not an object"),
    ):
        refused(run(*arguments, stdin=json.dumps(row)), words)
    refused(
        run("forecast", *TWO, stdin=text([closing(1)])), "it has outcome_for, but rounds have no names here", "--id id"
    )


def test_forecasts_by_id_resume(tmp_path: Path) -> None:
    snapshot = tmp_path / "s.treecal"
    arguments = ["forecast", *TWO, "--announce", "mean", "--snapshot", snapshot]
    whole = run(*arguments[:-2], "--id", "id", stdin=text([{"id": 1}, {"id": 2}, closing(1), {"id": 3}])).lines
    parts = [
        run(*arguments, "--id", "id", stdin=text(rows)).lines
        for rows in ([{"id": 1}, {"id": 2}], [closing(1), {"id": 3}])
    ]
    assert parts[0] + parts[1] == whole
    refused(run(*arguments), "the rounds in", "have ids", "--id")
    other = tmp_path / "other.treecal"
    assert run("forecast", *TWO, "--snapshot", other, stdin="sun\n").code == 0
    refused(run("forecast", *TWO, "--snapshot", other, "--id", "id"), "1 rounds were learned in order")


def test_the_table_of_a_stream(tmp_path: Path) -> None:
    log, output = grow(tmp_path / "log.csv", 20), tmp_path / "closed.parquet"
    done = run("forecast", log, *TWO, "--outcome", "weather", "--announce", "mean", "--output", output)
    found = read(output)
    assert [row["day"] for row in found] == [str(i) for i in range(20)]
    assert [row["forecast_sun"] for row in found] == [line["mean"]["sun"] for line in done.lines[:-1]]
    audit = run("audit", output, "--forecast", "forecast_rain,forecast_sun", "--outcome", "weather", "--json")
    assert audit.lines[0]["whole"]["rounds"] == 20


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    refused(recalibrate("--new-file"), "--new-file is about what a snapshot has learned")
    refused(recalibrate("--every", 0), "--every is 0")
    refused(recalibrate("--snapshot", tmp_path), "is a folder")
    refused(recalibrate("--snapshot", "/dev/null"), "is a device")
    assert not Path("/dev/null.lock").exists()


@pytest.mark.parametrize(
    "notes", [{"files": 1}, {"files": [["a", -1, "b"]]}, {"open": [[1]]}, {"open": [["1", 1, {}, ["x"]]]}]
)
def test_notes_of_a_stranger_are_checked(notes: dict[str, Any], tmp_path: Path) -> None:
    snapshot = tmp_path / "s.treecal"
    state.save(tc.AutoCorrector(SPACE), snapshot, notes=notes)
    refused(recalibrate("--snapshot", snapshot), "the snapshot's notes on", "cannot be read")


@pytest.mark.parametrize("columns", ["city", "city,season"])
def test_groups_have_correctors_of_their_own(columns: str, tmp_path: Path) -> None:
    rows = [row | {"season": i % 2} if "p_rain" in row else row for i, row in enumerate(interleaved(5))]
    snapshot = tmp_path / "s.treecal"
    lines = []
    for part in (rows[:20], rows[20:]):
        done = recalibrate("--by", columns, "--snapshot", snapshot, stdin=text(part))
        assert done.code == 0, done.err
        lines += done.lines
    late = tc.Late(tc.ByGroup(tc.AutoCorrector(SPACE)))
    announced = iter(lines)
    for row in rows:
        if "p_rain" in row:
            found = tuple(str(row[name]) for name in columns.split(","))
            x = late.predict([row["p_rain"], row["p_sun"]], id=row["id"], group=found[0] if len(found) == 1 else found)
            assert list(next(announced)["mean"].values()) == x.mean.tolist()
        if "outcome" in row:
            late.update(row["outcome_for"] if "outcome_for" in row else row["id"], row["outcome"])
    refused(
        recalibrate("--by", "country", stdin=text(rows)),
        "line 1 (row 1): id '0': country is missing, expected the group",
    )
    refused(recalibrate("--snapshot", snapshot), "ByGroup(", "AutoCorrector(")
    refused(
        recalibrate(grow(tmp_path / "log.csv", 3), "--outcome", "weather", "--by", "country"), "no column 'country'"
    )


def test_overlapping_groups_are_those_of_each_column() -> None:
    rows = [opening(i) | {"season": i % 2, "outcome": Y[i]} for i in range(10)]
    lines = recalibrate("--by", "city,season", "--method", "multicalibrate", stdin=text(rows)).lines
    corrector = tc.Multicalibrator(SPACE)
    for i, line in enumerate(lines):
        x = corrector.predict(P[i], group=(f"city=c{i % 3}", f"season={i % 2}"))
        assert list(line["mean"].values()) == x.mean.tolist()
        corrector.update(Y[i])


def test_what_reads_twice_takes_no_pipe() -> None:
    refused(run("replay", "-", "--outcome", "y"), "replay reads a file", "audit, forecast and recalibrate read pipes")
