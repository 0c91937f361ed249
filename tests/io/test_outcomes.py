"""Rows come in order, bad ones are named, and nothing is dropped silently."""

from __future__ import annotations

import csv
import os
import shutil
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from treecal.exceptions import FileError, UnsupportedError
from treecal.io import open_source, read_outcomes

cells = st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)


def test_rows_come_in_order_and_classes_are_found(tmp_path: Path) -> None:
    n = 300_000
    y = np.random.default_rng(0).integers(3, size=n)
    pq.write_table(
        pa.table({"at": np.arange(n), "y": np.array(["sun", "fog", "rain"])[y]}),
        tmp_path / "a.parquet",
        row_group_size=7000,
    )
    outcomes = read_outcomes(tmp_path / "a.parquet", outcome="y", keep=["at"])
    assert outcomes.classes == ("fog", "rain", "sun")
    assert outcomes.space == tc.Simplex(classes=["fog", "rain", "sun"])
    for _ in range(2):  # it can be read again
        chunks = list(outcomes)
        assert np.array_equal(np.concatenate([chunk.rows for chunk in chunks]), np.arange(1, n + 1))
        assert np.array_equal(np.concatenate([chunk.kept["at"].to_numpy() for chunk in chunks]), np.arange(n))
        assert np.array_equal(np.concatenate([chunk.outcomes for chunk in chunks]), np.array([2, 0, 1])[y])


def test_vectors_and_sets(tmp_path: Path) -> None:
    points = np.array([[0.5, -0.5], [0.25, 1.0], [2.0, 0.0]])
    (chunk,) = read_outcomes(points, space=tc.Box(-2, 2, dim=2))
    assert np.array_equal(chunk.outcomes, points)
    with pytest.raises(FileError, match=r"the array, row 3: the outcome lies outside Ball"):
        list(read_outcomes(points, space=tc.Ball(2, radius=1.5)))
    lists = pa.table({"v": points.tolist()})
    (chunk,) = read_outcomes(lists, outcome="v", space=tc.Box(-2, 2, dim=2))
    assert np.array_equal(chunk.outcomes, points)
    (chunk,) = read_outcomes(np.array([0.5, 0.25]), space=tc.Box(0, 1, dim=1))
    assert np.array_equal(chunk.outcomes, [[0.5], [0.25]])


def test_labels_of_many_kinds() -> None:
    for labels, classes in [
        (np.array([10, 9, -1]), ("-1", "9", "10")),
        (np.array([2, 0, 2]), ("0", "2")),
        (np.array(["10", "9", "9"]), ("9", "10")),
        (np.array([True, False, True]), ("0", "1")),
        (np.array([1.0, 0.0, 1.0]), ("0", "1")),
        (np.array(["it's", 'a "b"', "; DROP"]), ("; DROP", 'a "b"', "it's")),
    ]:
        outcomes = read_outcomes(labels)
        assert outcomes.classes is not None
        assert sorted(outcomes.classes) == sorted(classes)
        (chunk,) = outcomes
        assert len(chunk.outcomes) == 3
    assert read_outcomes(np.array([0, 1]), space=tc.Simplex(5)).classes == ("0", "1", "2", "3", "4")


def test_collect_keeps_all_and_skip_the_first_few(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = ["y", *("ab"[i % 2] if i % 10 else "?" for i in range(200))]
    path.write_text("\n".join(lines))
    for on_error, kept in (("skip", 5), ("collect", 20)):
        outcomes = read_outcomes(path, classes=["a", "b"], on_error=on_error)  # type: ignore[arg-type]
        assert sum(len(chunk.rows) for chunk in outcomes) == 180
        problems = list(outcomes.problems)
        assert outcomes.problems.count == 20
        assert [problem.line for problem in problems] == [2 + 10 * i for i in range(kept)]
        assert all(lines[problem.line - 1] == "?" for problem in problems if problem.line)
    assert "20 invalid rows left out" in str(outcomes.problems)
    assert "and 15 more" in str(outcomes.problems)


@given(
    rows=st.lists(st.tuples(cells, st.sampled_from(["a", "b", "bad"]), st.integers(1, 3)), min_size=1, max_size=30),
    blank=st.sets(st.integers(0, 29)),
    delimiter=st.sampled_from([",", ";", "\t"]),
)
@settings(max_examples=20, deadline=None)
def test_lines_are_those_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, int]], blank: set[int], delimiter: str
) -> None:
    """Notes with line breaks and quotes, blank lines, and rows with a cell too many: every bad row is on its line."""
    path = tmp_path_factory.mktemp("lines") / "log.csv"
    expected, line = [], 2
    rows = [("", "a", 2), *rows]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(["note", "y"])
        for i, (note, y, width) in enumerate(rows):
            if i in blank:
                file.write("\n")
                line += 1
            note = note.replace("\r", " ")
            if y == "bad" or width == 3:
                expected.append((i + 1, line))
            writer.writerow([note, y, "more"] if width == 3 else [note, y])
            line += 1 + note.count("\n")
    outcomes = read_outcomes(path, outcome="y", classes=["a", "b"], on_error="collect")
    good = sum(len(chunk.rows) for chunk in outcomes)
    assert [(problem.row, problem.line) for problem in outcomes.problems] == expected
    assert good + len(expected) == len(rows)


def write_csv(path: Path, rows: int, bad: int) -> None:
    """Write a log with `nil` for a probability in one row."""
    block = 50_000
    with path.open("w", encoding="utf-8") as file:
        file.write("day,p_a,p_b,y\n")
        for start in range(1, rows + 1, block):
            lines = [f"{i},0.25,0.75,{'ab'[i % 2]}\n" for i in range(start, min(start + block, rows + 1))]
            if start <= bad < start + block:
                lines[bad - start] = f"{bad},0.25,nil,a\n"
            file.writelines(lines)


def check_csv(path: Path, rows: int) -> None:
    bad = rows // 2 + 7
    write_csv(path, rows, bad)
    where = rf"line {bad + 1:,} \(row {bad:,}\): p_b is 'nil', expected a number"
    with pytest.raises(FileError, match=where):
        deque(read_outcomes(path, outcome="y", forecast=["p_a", "p_b"], classes=["a", "b"]), maxlen=0)
    outcomes = read_outcomes(path, outcome="y", forecast=["p_a", "p_b"], classes=["a", "b"], on_error="skip")
    assert sum(len(chunk.rows) for chunk in outcomes) == rows - 1
    assert [(problem.row, problem.line) for problem in outcomes.problems] == [(bad, bad + 1)]


def test_one_bad_row_in_a_csv(tmp_path: Path) -> None:
    check_csv(tmp_path / "log.csv", 100_000)


@pytest.mark.heavy
def test_one_bad_row_in_a_csv_of_5_gb(tmp_path: Path) -> None:
    rows = int(os.environ.get("TREECAL_CSV_ROWS", 240_000_000))  # some 21 bytes each
    if shutil.disk_usage(tmp_path).free < 40 * rows:
        pytest.fail(f"{rows:,} rows need {40 * rows / 1e9:.0f} GB in {tmp_path}: set TREECAL_CSV_ROWS to fewer.")
    check_csv(tmp_path / "log.csv", rows)


def test_a_loop_may_be_left_and_the_source_asked_again(tmp_path: Path) -> None:
    write_csv(tmp_path / "log.csv", 100_000, 0)
    outcomes = read_outcomes(tmp_path / "log.csv", outcome="y")
    for chunk in outcomes:
        assert len(chunk.rows)
        break
    assert sum(len(chunk.rows) for chunk in outcomes) == 100_000


def test_what_spills_is_cleared_away(tmp_path: Path) -> None:
    source = open_source({"x": np.arange(2_000_000)}, memory_limit="40MB", temp_directory=tmp_path / "spill")
    total = sum(len(batch) for batch in source.batches("SELECT x FROM treecal_log ORDER BY hash(x)", rows=10_000))
    assert total == 2_000_000
    assert (tmp_path / "spill").exists()
    del source
    assert not (tmp_path / "spill").exists()


@pytest.mark.parametrize("name", ["duckdb", "pyarrow", "narwhals"])
def test_missing_libraries_say_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"y": [1]})
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        UnsupportedError, match=rf"{name}, which is not installed.\n\nHint: pip install .*\(the extra files\)"
    ):
        read_outcomes(table)


def test_a_notebook_without_widgets_has_no_progress_and_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """There DuckDB refuses to switch its progress bar on, be it one that prints nothing."""
    connect = duckdb.connect

    class Notebook:
        def __init__(self, **options: Any) -> None:
            self._connection = connect(**options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def execute(self, query: str, *more: Any) -> Any:
            if "enable_progress_bar" in query:
                raise duckdb.InvalidInputException("required package 'ipywidgets' is missing")
            return self._connection.execute(query, *more)

    monkeypatch.setattr(duckdb, "connect", Notebook)
    rows = list(read_outcomes(pa.table({"y": ["a", "b", "a"]}), outcome="y"))
    assert rows


def test_batches_that_nobody_wants_may_be_collected_by_the_thread_that_fetches_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[ThreadPoolExecutor] = []

    def noted(workers: int) -> ThreadPoolExecutor:
        made.append(ThreadPoolExecutor(workers))
        return made[-1]

    monkeypatch.setattr("treecal.io._source.ThreadPoolExecutor", noted)
    batches = open_source({"p": np.arange(100)}).batches("SELECT * FROM treecal_log", rows=10)
    next(batches)
    made[0].submit(batches.close).result()
    with pytest.raises(StopIteration):
        next(batches)
