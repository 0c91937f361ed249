"""Epochs on Spark: the state of all keys in Parquet, advanced by one job an epoch, exactly once."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from treecal._validate import whole_number
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecasters import Forecaster
from treecal.geometry import Distance, as_distance
from treecal.keyed._packing import PACKED, dumps, loads, pack_rows, repack, unpack_rows
from treecal.keyed._replay import Replayed, replay
from treecal.keyed._shard import Errors, advance, errors as measure_errors, no_state
from treecal.keyed._tables import (
    FORMAT,
    OTHER_FORMAT,
    RESULTS,
    Keyed,
    arrow,
    arrow_schema,
    as_one,
    check_columns,
    check_new,
    columns,
    one_schema,
    recipe,
    schemas,
    spark_schema,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Epoch", "Replayed", "epoch", "errors", "read", "replay"]

OUTPUT = ("shards", *RESULTS)


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
    store = _Store(spark, path)
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
    store = _Store(spark, path)
    finished = store.finished()
    if not finished or number not in (None, *finished):
        has = f"its epochs are {', '.join(map(str, finished[-9:]))}" if finished else "it has none"
        raise ParameterError(f"{path} has no {'finished epoch' if number is None else f'epoch {number}'}: {has}.")
    number = finished[-1] if number is None else number
    data = store.data(number)
    whole = _whole(spark, data)
    tables = {name: whole.where(whole["table"] == name).select(*schemas()[name].names) for name in RESULTS}
    state = _packed_state(spark, data).mapInArrow(unpack_rows, spark_schema(schemas()["state"]))
    return Epoch(number, data, state, **tables)


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
    measure = as_distance(distance, forecaster.space)
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
    pa = arrow()
    before, new = (part.column("blob").to_pylist() for part in (state, rows))
    if not new:
        return as_one(shards=state, **{name: schemas()[name].empty_table() for name in RESULTS})
    step = advance(loads(before) if before else no_state(), loads(new), forecaster, announced=announced)
    blob = pa.table([pa.array(shard), pa.array([dumps(step.state)])], schema=schemas()["shards"])
    return as_one(shards=blob, **{name: getattr(step, name) for name in RESULTS})


def _whole(spark: SparkSession, data: str) -> DataFrame:
    return spark.read.schema(spark_schema(one_schema(*OUTPUT))).parquet(data)


def _packed_state(spark: SparkSession, data: str) -> DataFrame:
    whole = _whole(spark, data)
    return whole.where(whole["table"] == "shards").select("shard", "blob")


class _Store:
    """The epochs under a path that Spark can write to: a folder, HDFS, or an object store.

    An epoch's data are written under a unique name. The manifest appears when they are complete, in one rename; without
    it they do not count. So an epoch is finished or not, wherever a process was killed, and earlier ones stay.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        hadoop: Any = spark._jvm
        self._path = hadoop.org.apache.hadoop.fs.Path
        root = self._path(str(path))
        self._files = root.getFileSystem(spark._jsc.hadoopConfiguration())
        self.path = str(self._files.makeQualified(root).toString())

    def finished(self) -> list[int]:
        """Return the epochs that are finished, in order."""
        folder = self._path(f"{self.path}/manifests")
        if not self._files.exists(folder):
            return []
        names = [str(status.getPath().getName()) for status in self._files.listStatus(folder)]
        return sorted(int(name.removesuffix(".json")) for name in names if name.endswith(".json"))

    def manifest(self, epoch: int) -> dict[str, Any]:
        """Return the manifest of a finished epoch."""
        with closing(self._files.open(self._path(self._manifest(epoch)))) as stream:
            content = json.loads(bytes(stream.readAllBytes()))
        if content["format"] != FORMAT:
            raise SnapshotError(
                f"epoch {epoch} in {self.path} has format {content['format']}, and this treecal reads {FORMAT}.",
                hint=OTHER_FORMAT,
            )
        return dict(content)

    def data(self, epoch: int) -> str:
        """Return the directory of a finished epoch's data."""
        return f"{self.path}/{self.manifest(epoch)['data']}"

    def fresh(self, epoch: int) -> str:
        """Return a new name for an epoch's data, relative to the store."""
        return f"data/{epoch:020d}/{uuid4().hex}"

    def commit(self, epoch: int, data: str, content: dict[str, Any]) -> None:
        """Write the manifest, which finishes the epoch, and remove what killed attempts have left."""
        target = self._path(self._manifest(epoch))
        draft = self._path(f"{self.path}/manifests/.{uuid4().hex}")
        with closing(self._files.create(draft)) as stream:
            stream.write(json.dumps({"format": FORMAT, "epoch": epoch, "data": data, **content}, indent=1).encode())
        if self._files.exists(target) or not self._files.rename(draft, target):
            raise SnapshotError(f"epoch {epoch} in {self.path} was finished by another driver in the meantime.")
        for attempt in self._files.listStatus(self._path(f"{self.path}/{data}").getParent()):
            if str(attempt.getPath().getName()) != data.rpartition("/")[2]:
                self._files.delete(attempt.getPath(), True)

    def _manifest(self, epoch: int) -> str:
        return f"{self.path}/manifests/{epoch:020d}.json"
