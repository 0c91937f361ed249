"""The commands that can give their work to Spark."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from treecal.cli._app import app
from treecal.exceptions import FileError, ParameterError


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert app([*words, "--json"], result_action="return_value") == code
    return json.loads(capsys.readouterr().out)


SKY, CITIES = ("fog", "rain", "sun"), ("Oslo", "Paris", "Rome, old")
REPLAY = ("--outcome", "sky", "--key", "city", "--seq", "day")


@pytest.fixture
def days(tmp_path: Path) -> pa.Table:
    rng = np.random.default_rng(0)
    day, city = rng.permutation(400), rng.integers(3, size=400)
    return pa.table({"city": np.array(CITIES)[city], "day": day, "sky": np.array(SKY)[rng.integers(3, size=400)]})


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["city", "day", "sky"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.parametrize("options", [(), ("--forecaster", "adaptive", "--norm", "l2"), ("--forecaster", "harmonic")])
def test_a_key_is_replayed_as_a_file_of_its_own(
    options: tuple[str, ...], days: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(days, tmp_path / "days.parquet")
    more = ("--classes", ",".join(SKY), *options)
    found = said(capsys, "replay", str(tmp_path / "days.parquet"), *REPLAY, *more)
    assert (found["keys"], found["rounds"], found["invalid"]) == (3, 400, 0)
    total = {"exact": 0.0, "per_node": 0.0}
    for stream in found["streams"]:
        own = days.filter(pa.compute.equal(days["city"], stream["key"])).sort_by("day")
        pq.write_table(own, tmp_path / "own.parquet")
        alone = said(capsys, "replay", str(tmp_path / "own.parquet"), "--outcome", "sky", *more)
        assert (alone["rounds"], alone["forecasts"]) == (stream["rounds"], stream["forecasts"])
        assert stream["errors"] == {found["norm"]: alone["errors"][found["norm"]]}
        for kind in total:
            total[kind] += stream["rounds"] * stream["errors"][found["norm"]][kind]
    assert found["errors"][found["norm"]] == pytest.approx({kind: x / 400 for kind, x in total.items()}, rel=1e-14)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_keys_are_replayed_alike_on_spark(
    kind: str, cluster: Any, days: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = days.to_pylist()
    rows += [
        {"city": "", "day": 1, "sky": "sun"},  # a key in Parquet, and none in text
        {"city": "Oslo", "day": 1000, "sky": "hail"},  # no class
        {"city": "Bonn", "day": 1, "sky": "sun"},
        {"city": "Bonn", "day": 1, "sky": "fog"},  # two outcomes for one number
        {"city": "Bern", "day": None, "sky": "sun"},
        {"city": "Oslo", "day": None, "sky": "sun"},  # which has other rows
        {"city": None, "day": 1, "sky": "sun"},
        {"city": "Rome, old", "day": rows[0]["day"] + 5000, "sky": "sun"},
    ]
    path = tmp_path / f"days.{kind}"
    write(path, rows)
    tables = []
    words = ("replay", str(path), *REPLAY, "--classes", ",".join(SKY), "--on-error", "skip", "--forecaster", "treecal")
    for engine in ("local", "spark"):
        out = tmp_path / f"{engine}.csv"
        found = said(capsys, *words, "--engine", engine, "--csv", str(out), code=1)
        tables.append((found | {"invalid_rows": None}, out.read_text()))
    assert tables[0] == tables[1]
    stop = [word for word in words if word not in ("--on-error", "skip")]
    with pytest.raises(
        FileError, match=r"invalid rows?, such as city .*: expected a key, a whole number for day, and one"
    ):
        app([*stop, "--engine", "spark"], result_action="return_value")
    assert tables[0][0]["invalid"] == 4 + (kind != "parquet")
    assert tables[0][0]["problems"] == ["city 'Bonn', day 1 has two different outcomes."]


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_an_invalid_row_is_named_and_can_be_left_out(
    kind: str, days: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, path = days.to_pylist()[:9], tmp_path / f"days.{kind}"
    good = [{name: str(cell) for name, cell in row.items()} for row in good]
    bad: dict[str, dict[str, Any]] = {
        "city is missing, expected the key of a stream": {"city": None, "day": "500", "sky": "sun"},
        "day is missing, expected a whole number": {"city": "Oslo", "day": None, "sky": "sun"},
        "day is '3.5', expected a whole number, which orders the rows of city 'Oslo'": {
            "city": "Oslo",
            "day": "3.5",
            "sky": "sun",
        },
        "sky is 'hail', expected one of fog, rain, sun": {"city": "Oslo", "day": "+3", "sky": "hail"},
        "sky is missing": {"city": "Oslo", "day": "501", "sky": None},
    }
    words = ["replay", str(path), *REPLAY, "--classes", ",".join(SKY), "--forecaster", "treecal"]
    for message, row in bad.items():
        write(path, [*good, row])
        with pytest.raises(FileError, match=f"row 10.*{re.escape(message)}") as found:
            app(words, result_action="return_value")
        lines = {"csv": "line 11 (row 10)", "jsonl": "line 10 (row 10)", "parquet": "row 10"}
        assert f"days.{kind}, {lines[kind]}: " in str(found.value)
    write(path, [*good[:4], *bad.values(), *good[4:]])
    there = said(capsys, *words, "--on-error", "collect", code=1)
    assert [row["row"] for row in there["invalid_rows"]] == [5, 6, 7, 8, 9]
    write(path, good)
    here = said(capsys, *words)
    assert there["errors"] == here["errors"]


def test_a_key_with_two_outcomes_for_a_number_is_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "days.csv"
    path.write_text("city,day,sky\nRome,1,sun\nRome,1,fog\nOslo,1,sun\nOslo,1,sun\n")
    words = ["replay", str(path), *REPLAY, "--forecaster", "treecal"]
    with pytest.raises(FileError, match="city 'Rome', day 1 has two different outcomes"):
        app(words, result_action="return_value")
    capsys.readouterr()
    assert app([*words, "--on-error", "skip"], result_action="return_value") == 1
    told = capsys.readouterr()
    assert "1 key, 1 round." in told.out
    assert "1 key left out:\n  city 'Rome', day 1 has two different outcomes." in told.err
    assert "1 row repeated another, and counted once." in told.err
    with pytest.raises(FileError, match="'city' is the column of keys and of their numbers"):
        app(["replay", str(path), "--outcome", "sky", "--key", "city", "--seq", "city"], result_action="return_value")


def test_keys_are_text_or_whole_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"city": [0.5], "day": [1], "sky": ["sun"]}), tmp_path / "days.parquet")
    with pytest.raises(FileError, match="holds DOUBLE values, expected text or whole numbers"):
        app(["replay", str(tmp_path / "days.parquet"), *REPLAY, "--classes", "fog,sun"], result_action="return_value")


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "log.csv", "--forecast", "p", "--outcome", "y", "--master", "local[2]"),
        ("audit", "log.csv", "--forecast", "p", "--outcome", "y", "--engine", "spark"),
        ("replay", "log.csv", "--master", "local[2]"),
        ("replay", "log.csv", "--engine", "spark"),
        ("replay", "log.csv", "--engine", "spark", "--key", "k", "--seq", "t"),
        ("replay", "log.csv", "--key", "k"),
        ("replay", "log.csv", "--key", "k", "--seq", "t", "--report", "x.html"),
    ],
)
def test_options_that_do_not_go_together(words: tuple[str, ...]) -> None:
    with pytest.raises(ParameterError, match="spark"):
        app(list(words), result_action="return_value", exit_on_error=False)
