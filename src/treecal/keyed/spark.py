"""Epochs on Spark: the state of all keys in Parquet, advanced by one job an epoch, exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from treecal._validate import whole_number
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecasters import Forecaster
from treecal.geometry import Distance, as_distance
from treecal.keyed._errors import Errors
from treecal.keyed._errors import errors as measure_errors
from treecal.keyed._forecaster import Keyed, check_new, recipe
from treecal.keyed._packing import PACKED, dumps, loads, pack_rows, repack, unpack_rows
from treecal.keyed._pyspark import arrow_schema, spark_schema
from treecal.keyed._replay import Replayed, replay
from treecal.keyed._shard import advance, no_state
from treecal.keyed._store import Store
from treecal.keyed._tables import SAID, arrow, as_one, check_columns, columns, one_schema, schemas

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Epoch", "Replayed", "epoch", "errors", "read", "replay"]

OUTPUT = ("shards", *SAID)


@dataclass(frozen=True)
class Epoch:
    """A finished epoch.

    Attributes
    ----------
    number
        Its number.
    path
        The directory of its data, as Parquet.
    state, forecasts, announced, problems
        DataFrames with the columns of `treecal.keyed.Step`.
    """

    number: int
    path: str
    state: DataFrame
    forecasts: DataFrame
    announced: DataFrame
    problems: DataFrame


def epoch(
    spark: SparkSession,
    path: str,
    number: int,
    outcomes: DataFrame,
    forecaster: Keyed,
    *,
    shards: int = 32,
    announced: bool = False,
) -> Epoch:
    """Take all keys through an epoch, exactly once: one that is already finished is returned as it is.

    The state after the last epoch is read, every shard advances on its own, and state, forecasts and problems are
    written as a new version beside the old ones. A manifest, written last, commits it; an epoch killed before that can
    be run again. One driver at a time may write to a path.

    Parameters
    ----------
    spark
        The session.
    path
        The directory of the state, which Spark and all its workers can write to.
    number
        The epoch's number, larger than that of any earlier one: 1, 2, 3, or a date such as 20261115.
    outcomes
        Rows of `key`, `seq` and `outcome` (and `forecast`, for a corrector), as `treecal.keyed.advance` takes them, in
        any order and partitions.
    forecaster
        The forecaster of each stream, or a corrector, as for `advance`; the same in all epochs.
    shards
        Number of parts the keys are split into: several for each core, each small enough for a worker's memory. It can
        change from epoch to epoch.
    announced
        Write what a forecaster announced in every round that is learned, too: a row for each.
    """
    number = whole_number("number", number, least=0)
    shards = whole_number("shards", shards, least=1)
    check_new(forecaster)
    check_columns(arrow_schema(outcomes), forecaster)
    store = Store(spark, path)
    mine = recipe(forecaster)
    finished = store.finished()
    if finished and (made := store.manifest(finished[-1]))["forecaster"] != mine:
        raise SnapshotError(
            f"the state in {path} is of {made['forecaster']['shown']}, not of {mine['shown']}.",
            hint="resume with the same forecaster, or use another path.",
        )
    if number in finished:
        return read(spark, path, number)
    if finished and number < finished[-1]:
        raise ParameterError.expected("number", number, f"more than {finished[-1]}, the last epoch in {path}")

    rows = outcomes.select(columns(forecaster)).mapInArrow(partial(pack_rows, shards=shards), PACKED)
    before = _packed_state(spark, store.data(finished[-1])) if finished else spark.createDataFrame([], PACKED)
    if finished and made["shards"] != shards:
        before = before.mapInArrow(partial(repack, shards=shards), PACKED)
    # Blobs are few and small: without a number of partitions Spark would put them all into one task.
    left, right = (part.repartition(shards, "shard").groupBy("shard") for part in (before, rows))
    stepped = left.cogroup(right).applyInArrow(
        partial(_advance, forecaster=forecaster, announced=announced), spark_schema(one_schema(*OUTPUT))
    )
    data = store.fresh(number)
    stepped.write.partitionBy("table").parquet(f"{store.path}/{data}")
    store.commit(number, data, {"forecaster": mine, "shards": shards})
    return read(spark, path, number)


def read(spark: SparkSession, path: str, number: int | None = None) -> Epoch:
    """Return a finished epoch, by default the last one.

    Parameters
    ----------
    spark, path
        As for `epoch`.
    number
        The epoch.
    """
    store = Store(spark, path)
    finished = store.finished()
    if not finished or number not in (None, *finished):
        has = f"its epochs are {', '.join(map(str, finished[-9:]))}" if finished else "it has none"
        raise ParameterError(f"{path} has no {'finished epoch' if number is None else f'epoch {number}'}: {has}.")
    number = finished[-1] if number is None else number
    data = store.data(number)
    whole = _whole(spark, data)
    said = {name: whole.where(whole["table"] == name).select(*schemas()[name].names) for name in SAID}
    state = _packed_state(spark, data).mapInArrow(unpack_rows, spark_schema(schemas()["state"]))
    return Epoch(number, data, state, **said)


def errors(outcomes: DataFrame, forecaster: Forecaster, distance: Distance | str = "l1", *, shards: int = 32) -> Errors:
    """Replay each key alone, as `treecal.keyed.errors` does: the same digits, as tables on the driver.

    Parameters
    ----------
    outcomes, forecaster, distance
        As for `treecal.keyed.errors`, the outcomes in any order and partitions.
    shards
        Number of parts the keys are split into.
    """
    shards = whole_number("shards", shards, least=1)
    check_new(forecaster, Forecaster)
    check_columns(arrow_schema(outcomes), forecaster)
    rows = outcomes.select(columns(forecaster)).mapInArrow(partial(pack_rows, shards=shards), PACKED)
    names = Errors._fields
    measure = as_distance(distance)
    found = (
        rows.repartition(shards, "shard")
        .groupBy("shard")
        .applyInArrow(
            # A lambda, because Spark inspects the types of signatures and warns about unknown ones.
            lambda table: _measure(table, forecaster, measure),
            spark_schema(one_schema(*names)),
        )
    )
    whole = found.toArrow()
    parts = (whole.filter(arrow().compute.equal(whole["table"], name)).select(schemas()[name].names) for name in names)
    measured, problems = parts
    return Errors(measured.sort_by("key"), problems)


def _measure(rows: pa.Table, forecaster: Forecaster, distance: Distance) -> pa.Table:
    """Measure the errors of one shard."""
    return as_one(**measure_errors(loads(rows.column("blob").to_pylist()), forecaster, distance)._asdict())


def _advance(shard: tuple[Any], state: pa.Table, rows: pa.Table, *, forecaster: Keyed, announced: bool) -> pa.Table:
    """Advance one shard."""
    pa, (before, new) = arrow(), (part.column("blob").to_pylist() for part in (state, rows))
    if not new:
        return as_one(shards=state, **{name: schemas()[name].empty_table() for name in SAID})
    step = advance(loads(before) if before else no_state(), loads(new), forecaster, announced=announced)
    blob = pa.table([pa.array(shard), pa.array([dumps(step.state)])], schema=schemas()["shards"])
    return as_one(shards=blob, **{name: getattr(step, name) for name in SAID})


def _whole(spark: SparkSession, data: str) -> DataFrame:
    return spark.read.schema(spark_schema(one_schema(*OUTPUT))).parquet(data)


def _packed_state(spark: SparkSession, data: str) -> DataFrame:
    whole = _whole(spark, data)
    return whole.where(whole["table"] == "shards").select("shard", "blob")
