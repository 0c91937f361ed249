"""Every engine corrects many keyed streams as one corrector for each key does, bit for bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import treecal as tc
from tests.keyed.streams import Row, epochs, rows_of, write_day
from treecal.exceptions import FileError, ParameterError, SnapshotError
from treecal.keyed import advance, correct, errors, forecasts, local, no_state, spark, streaming

SPACE = tc.Simplex(3)
CORRECTORS: dict[str, tc.Corrector] = {
    "temperature": tc.TemperatureScaling(SPACE, forget=False, scores=None),
    "shifts": tc.Recalibrator(SPACE, make="shift", forget=False, scores=None),
    "forgets": tc.VectorScaling(SPACE, scores=None),
    "objects": tc.Chain([tc.TemperatureScaling(SPACE, scores=None), tc.Recalibrator(SPACE, scores=None)], scores=None),
}


@pytest.fixture(scope="module")
def days() -> list[pa.Table]:
    rng, tables = np.random.default_rng(2), epochs(60, 3, seed=1, longest=12)
    forecasts = [list(rng.dirichlet(np.ones(3), len(table))) for table in tables]
    return [table.append_column("forecast", pa.array(each)) for table, each in zip(tables, forecasts, strict=True)]


@pytest.fixture(scope="module", params=CORRECTORS)
def corrector(request: pytest.FixtureRequest) -> tc.Corrector:
    return CORRECTORS[request.param]


@pytest.fixture(scope="module")
def alone(days: list[pa.Table], corrector: tc.Corrector) -> tuple[list[list[Row]], dict[str, tc.Corrector]]:
    own: dict[str, tc.Corrector] = {}
    said = []
    for day in days:
        rows = []
        for row in sorted(day.to_pylist(), key=lambda row: row["seq"]):
            f = own.setdefault(row["key"], type(corrector)(**corrector.arguments()))
            x = f.predict(row["forecast"])
            rows.append((row["key"], f.rounds + 1, row["seq"], x.mean.tolist(), [1.0]))
            f.update(row["outcome"])
        said.append(sorted(rows))
    return said, own


def test_in_one_shard(days: list[pa.Table], corrector: tc.Corrector, alone: Any) -> None:
    state = no_state()
    for day, said in zip(days, alone[0], strict=True):
        step = advance(state, day, corrector)
        assert rows_of(step.announced) == said
        assert len(step.problems) == 0
        state = step.state
    keys, b = [*alone[1], "new"], [0.2, 0.3, 0.5]
    new = pa.table({"key": keys, "forecast": [b] * len(keys), "id": range(len(keys))})
    found = correct(state, new, corrector)
    assert found.column_names == ["key", "forecast", "id", "corrected"]
    expected = [f.predict_many([b])[0].tolist() for f in (*alone[1].values(), corrector)]
    assert found["corrected"].to_pylist() == expected


@pytest.mark.parametrize("shards", [1, 7])
def test_in_a_pool(days: list[pa.Table], corrector: tc.Corrector, alone: Any, shards: int) -> None:
    state = no_state()
    with ThreadPoolExecutor(2) as pool:
        for day, said in zip(days, alone[0], strict=True):
            step = local.epoch(state, day, corrector, shards=shards, pool=pool)
            assert rows_of(step.announced) == said
            state = step.state


@pytest.mark.heavy
def test_in_epochs_of_spark(
    days: list[pa.Table], corrector: tc.Corrector, alone: Any, cluster: Any, tmp_path: Path
) -> None:
    if corrector not in (CORRECTORS["temperature"], CORRECTORS["objects"]):
        pytest.skip("the engine is the same")
    path = str(tmp_path / "state")
    for number, (day, said) in enumerate(zip(days, alone[0], strict=True)):
        rows = cluster.createDataFrame(day).repartition(3)
        done = spark.epoch(cluster, path, number, rows, corrector, shards=3 + number)
        assert rows_of(done.announced.toArrow()) == said
        assert done.problems.count() == 0
    with pytest.raises(SnapshotError, match="is of"):
        spark.epoch(cluster, path, 9, rows, tc.PlattScaling(tc.Simplex(2), forget=False))


@pytest.mark.heavy
def test_in_a_stream_of_spark(
    days: list[pa.Table], corrector: tc.Corrector, alone: Any, cluster: Any, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number, day in enumerate(days):
        write_day(day, tmp_path / "in", number)
    rows = cluster.readStream.schema("key string, seq long, forecast array<double>, outcome array<double>")
    rows = rows.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    query = streaming.forecasts(rows, corrector, shards=4).writeStream.trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).format("parquet")
    query.start(str(tmp_path / "out")).awaitTermination()
    found = cluster.read.parquet(str(tmp_path / "out")).where("table = 'announced'").toArrow()
    assert rows_of(found) == sorted(row for said in alone[0] for row in said)


def table(*rows: tuple[Any, Any, Any, Any]) -> pa.Table:
    key, seq, forecast, outcome = (list(column) for column in zip(*rows, strict=True))
    kinds = [pa.string(), pa.int64(), pa.list_(pa.float64()), pa.int64()]
    values = [pa.array(column, kind) for column, kind in zip((key, seq, forecast, outcome), kinds, strict=True)]
    return pa.table(values, names=["key", "seq", "forecast", "outcome"])


def test_an_invalid_forecast_fails_its_key_alone() -> None:
    f, good = CORRECTORS["temperature"], [0.2, 0.3, 0.5]
    day = table(
        ("a", 1, good, 0),
        ("a", 2, [0.2, 0.3, 0.6], 0),
        ("b", 1, good, 0),
        ("b", 1, good, 0),
        ("c", 1, good, 0),
        ("c", 1, [0.3, 0.2, 0.5], 0),
        ("d", 1, None, 0),
        ("e", 1, [0.2, 0.3, 0.4999999], 1),
        ("f", 1, good, 3),
    )
    step = advance(no_state(), day, f)
    assert sorted(step.state["key"].to_pylist()) == ["b", "e"]
    problems = {(row["key"], row["seq"], row["kind"]) for row in step.problems.to_pylist()}
    expected = {("a", 2, "forecast"), ("b", 1, "duplicate"), ("c", 1, "conflict"), ("d", 1, "forecast")}
    assert problems == expected | {("f", 1, "outcome")}
    detail = {row["key"]: row["detail"] for row in step.problems.to_pylist()}
    assert "sum to 1.1" in detail["a"]
    assert "forecasts" in detail["c"]


def test_what_cannot_be_advanced() -> None:
    f, day = CORRECTORS["temperature"], table(("a", 1, [0.2, 0.3, 0.5], 0))
    with pytest.raises(FileError, match="no column 'forecast'"):
        advance(no_state(), day.drop_columns(["forecast"]), f)
    with pytest.raises(ParameterError, match="new one"):
        advance(no_state(), day, tc.TemperatureScaling(SPACE, forget=False).fit([[0.2, 0.3, 0.5]], [[1, 0, 0]]))
    state = advance(no_state(), day, f).state
    with pytest.raises(SnapshotError, match="is of"):
        advance(state, day, CORRECTORS["shifts"])
    with pytest.raises(SnapshotError, match="kind or size"):
        advance(state.replace_schema_metadata(None), day, CORRECTORS["shifts"])


def test_what_cannot_be_corrected() -> None:
    f, day = CORRECTORS["temperature"], table(("a", 1, [0.2, 0.3, 0.5], 0), (None, 1, [0.2, 0.3, 0.5], 0))
    state = advance(no_state(), day, f).state
    with pytest.raises(FileError, match="row 2 of the table has no key"):
        correct(state, day, f)
    with pytest.raises(FileError, match="no column 'forecast'; their columns are key, seq"):
        correct(state, day.select(["key", "seq"]), f)
    with pytest.raises(ParameterError, match=r"corrector is TreeCal.*, expected a corrector"):
        correct(state, day, tc.TreeCal(SPACE))  # type: ignore[arg-type] # what is refused
    with pytest.raises(ParameterError, match="expected a forecaster"):
        forecasts(state, f)  # type: ignore[arg-type] # what is refused
    with pytest.raises(ParameterError, match="expected a forecaster"):
        errors(day, f)  # type: ignore[arg-type] # what is refused
