"""The commands that can give their work to Spark."""

from __future__ import annotations

import csv
import json
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


@pytest.mark.xdist_group("spark")
def test_spark_says_what_the_others_say(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = {"a": [0.5, 0.5, 0.25, 1.0] * 50, "b": [0.5, 0.5, 0.75, 0.0] * 50, "label": ["a", "b", "b", "a"] * 50}
    path = str(tmp_path / "log.parquet")
    pq.write_table(pa.table(log), path)
    audit = ("audit", path, "--forecast", "a,b", "--outcome", "label", "--classes", "a,b")
    here, there = said(capsys, *audit), said(capsys, *audit, "--engine", "spark")
    assert here["whole"] == there["whole"]


SKY, CITIES = ("fog", "rain", "sun"), ("Oslo", "Paris", "Rome, old")
REPLAY = ("--outcome", "sky", "--key", "city", "--seq", "day")


@pytest.fixture
def days(tmp_path: Path) -> pa.Table:
    rng = np.random.default_rng(0)
    day, city = rng.permutation(400), rng.integers(3, size=400)
    return pa.table({"city": np.array(CITIES)[city], "day": day, "sky": np.array(SKY)[rng.integers(3, size=400)]})


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


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize(
    "kind", ["csv", *(pytest.param(kind, marks=pytest.mark.heavy) for kind in ("parquet", "jsonl"))]
)
def test_keys_are_replayed_alike_on_spark(
    kind: str, cluster: Any, days: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = days.to_pylist()
    rows += [
        {"city": "Oslo", "day": 1000, "sky": "hail"},  # no class
        {"city": "Bonn", "day": 1, "sky": "sun"},
        {"city": "Bonn", "day": 1, "sky": "fog"},  # two outcomes for one number
        {"city": "Bern", "day": None, "sky": "sun"},
        {"city": None, "day": 1, "sky": "sun"},
        {"city": "Rome, old", "day": rows[0]["day"] + 5000, "sky": "sun"},
    ]
    path = tmp_path / f"days.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["city", "day", "sky"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tables = []
    words = ("replay", str(path), *REPLAY, "--classes", ",".join(SKY), "--on-error", "skip", "--forecaster", "treecal")
    for engine in ("local", "spark"):
        out = tmp_path / f"{engine}.csv"
        found = said(capsys, *words, "--engine", engine, "--csv", str(out), code=1)
        tables.append((found | {"invalid_rows": None}, out.read_text()))
    assert tables[0] == tables[1]
    assert tables[0][0]["invalid"] == 1
    assert [text.partition(":")[0] for text in tables[0][0]["problems"]] == [
        "a row",
        "key 'Bern'",
        "key 'Bonn', number 1",
    ]


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
