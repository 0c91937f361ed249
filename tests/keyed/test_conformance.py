"""Every engine makes the same forecasts of many keyed streams as one forecaster for each key, bit for bit."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

import treecal as tc
from tests.keyed.streams import Row, announced, epochs, one_by_one, rows_of, write_day
from treecal.keyed import advance, forecasts, local, no_state, spark, streaming

KEYS, EPOCHS = 120, 3
FEW = epochs(12, 3, seed=2, longest=9)
SPACE = tc.Simplex(3)
FORECASTERS = {"tree": tc.TreeCal(SPACE, arity=3), "adaptive": tc.AdaptiveTreeCal(SPACE, arity=3)}
OTHERS = {
    "mean": tc.RunningMean(SPACE),
    "guarded": tc.Guarded(SPACE),
    "grid": tc.SimplexGrid(SPACE, resolution=3),
    "sampled": tc.Sampled(tc.TreeCal(SPACE), block=2, rng=np.random.default_rng(1)),
}


@pytest.fixture(scope="module")
def days() -> list[pa.Table]:
    return epochs(KEYS, EPOCHS, seed=1)


@pytest.fixture(scope="module", params=FORECASTERS)
def forecaster(request: pytest.FixtureRequest) -> Any:
    return FORECASTERS[request.param]


@pytest.mark.parametrize("name", [*OTHERS, "binary"])
def test_any_forecaster_in_a_pool(name: str) -> None:
    two = epochs(12, 3, seed=2, longest=9, classes=2)
    days, forecaster = (two, tc.BinaryGrid(tc.Simplex(2))) if name == "binary" else (FEW, OTHERS[name])
    state = no_state()
    with ThreadPoolExecutor(2) as pool:
        for day, after, said in zip(days, one_by_one(days, forecaster), announced(days, forecaster), strict=True):
            step = local.epoch(state, day, forecaster, shards=3, pool=pool, announced=True)
            assert rows_of(step.forecasts) == after
            assert rows_of(step.announced) == said
            state = step.state
    assert advance(state, days[0], forecaster).state.sort_by("key") == state.sort_by("key")  # all of them duplicates


@pytest.mark.heavy
def test_guarded_ones_on_spark(cluster: Any, tmp_path: Path) -> None:
    forecaster, path = OTHERS["guarded"], str(tmp_path / "state")
    both = one_by_one(FEW, forecaster), announced(FEW, forecaster)
    for number, (day, after, said) in enumerate(zip(FEW, *both, strict=True)):
        done = spark.epoch(
            cluster, path, number, cluster.createDataFrame(day), forecaster, shards=2 + number, announced=True
        )
        assert rows_of(done.forecasts.toArrow()) == after
        assert rows_of(done.announced.toArrow()) == said


def test_a_part_with_a_last_round_is_refused() -> None:
    with pytest.raises(tc.TreeCalError, match="trees without depth"):
        advance(no_state(), FEW[0], tc.Sampled(tc.TreeCal(SPACE, depth=2), block=2, rng=np.random.default_rng(1)))


@pytest.fixture(scope="module")
def expected(days: list[pa.Table], forecaster: Any) -> list[list[Row]]:
    return one_by_one(days, forecaster)


@pytest.fixture(scope="module")
def before(days: list[pa.Table], forecaster: Any) -> list[list[Row]]:
    return announced(days, forecaster)


def test_in_one_shard(
    days: list[pa.Table], forecaster: Any, expected: list[list[Row]], before: list[list[Row]]
) -> None:
    state = no_state()
    for day, after, said in zip(days, expected, before, strict=True):
        step, plain = (advance(state, day, forecaster, announced=asked) for asked in (True, False))
        assert rows_of(step.forecasts) == after
        assert rows_of(step.announced) == said
        assert len(step.problems) == 0
        assert plain.announced.num_rows == 0
        assert plain._replace(announced=step.announced) == step
        state = step.state
    assert set(map(str, after)) <= set(map(str, rows_of(forecasts(state, forecaster))))


@pytest.mark.parametrize("shards", [1, 7])
def test_in_a_pool(
    days: list[pa.Table], forecaster: Any, expected: list[list[Row]], before: list[list[Row]], shards: int
) -> None:
    state = no_state()
    with ProcessPoolExecutor(2) as pool:
        for day, after, said in zip(days, expected, before, strict=True):
            step = local.epoch(state, day, forecaster, shards=shards, pool=pool, announced=shards == 1)
            assert rows_of(step.forecasts) == after
            assert rows_of(step.announced) == (said if shards == 1 else [])
            state = step.state


@pytest.mark.heavy
def test_in_epochs_of_spark(
    days: list[pa.Table],
    forecaster: Any,
    expected: list[list[Row]],
    before: list[list[Row]],
    cluster: Any,
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "state")
    for number, (day, after, said) in enumerate(zip(days, expected, before, strict=True)):
        rows = cluster.createDataFrame(day).repartition(3)
        done = spark.epoch(cluster, path, number, rows, forecaster, shards=4 + number, announced=number > 0)
        assert rows_of(done.forecasts.toArrow()) == after
        assert rows_of(done.announced.toArrow()) == (said if number else [])
        assert done.problems.count() == 0
    there, here = done.state.toArrow(), in_one_shard(days, forecaster)
    assert sorted(map(str, there.to_pylist())) == sorted(map(str, here.to_pylist()))
    first = spark.epoch(cluster, path, 0, cluster.createDataFrame(days[1]), forecaster)  # finished, so nothing happens
    assert rows_of(first.forecasts.toArrow()) == expected[0]
    assert spark.read(cluster, path).number == EPOCHS - 1


def in_one_shard(days: list[pa.Table], forecaster: Any) -> pa.Table:
    state = no_state()
    for day in days:
        state = advance(state, day, forecaster).state
    return state


@pytest.mark.heavy
def test_in_a_stream_of_spark(
    days: list[pa.Table],
    forecaster: Any,
    expected: list[list[Row]],
    before: list[list[Row]],
    cluster: Any,
    tmp_path: Path,
) -> None:
    """Each file is a micro-batch; the query is stopped after the first and goes on from its checkpoint."""
    (tmp_path / "in").mkdir()

    def play(files: range) -> pa.Table:
        for number in files:
            write_day(days[number], tmp_path / "in", number)
        outcomes = cluster.readStream.schema("key string, seq long, outcome array<double>")
        outcomes = outcomes.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        stream = streaming.forecasts(outcomes, forecaster, shards=4, announced=True)
        query = stream.writeStream.trigger(availableNow=True)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).format("parquet")
        query.start(str(tmp_path / "out")).awaitTermination()
        return cluster.read.parquet(str(tmp_path / "out")).toArrow()

    for files in (range(1), range(1, EPOCHS)):
        found = play(files)
        for name, rows in (("forecasts", expected), ("announced", before)):
            mine = found.filter(pa.compute.equal(found["table"], name))
            assert rows_of(mine) == sorted(row for after in rows[: files.stop] for row in after)
