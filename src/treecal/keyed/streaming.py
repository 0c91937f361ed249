"""Forecasts of an unbounded stream of outcomes, on Spark Structured Streaming."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from treecal._validate import whole_number
from treecal.exceptions import SnapshotError, UnsupportedError
from treecal.keyed._packing import PACKED, dumps, loads, pack_rows, unpack_rows
from treecal.keyed._shard import advance, no_state
from treecal.keyed._tables import (
    RESULTS,
    Keyed,
    arrow_schema,
    as_one,
    check_columns,
    check_new,
    columns,
    one_schema,
    pyspark,
    recipe,
    spark_schema,
)
from treecal.keyed.session import PROVIDER, ROCKSDB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATE = "forecaster string, shards int, blob binary"


def forecasts(outcomes: DataFrame, forecaster: Keyed, *, shards: int = 32, announced: bool = False) -> DataFrame:
    """Return the stream of forecasts and problems for a stream of outcomes.

    Every micro-batch is an epoch of `treecal.keyed.advance`. State is kept in Spark's state store, one entry for each
    shard. With a checkpoint, a query that was killed resumes and neither loses nor repeats an outcome; micro-batches
    may then be merged. An outcome in a later micro-batch than its successor is *late*: outcomes of a key should arrive
    in order, or together.

    Parameters
    ----------
    outcomes
        A streaming DataFrame of `key`, `seq` and `outcome`, and `forecast` for a corrector.
    forecaster
        The forecaster of each stream, or a corrector, as for `advance`.
    shards
        Number of parts the keys are split into. A query that resumes from its checkpoint can change neither this nor
        the forecaster.
    announced
        Return what a forecaster announced in every round that is learned, too.

    Returns
    -------
    A streaming DataFrame with the columns of `Step.forecasts`, `Step.announced` and `Step.problems`, and `table`, which
    names the one a row belongs to.
    """
    shards = whole_number("shards", shards, least=1)
    check_new(forecaster)
    check_columns(arrow_schema(outcomes), forecaster)
    pyspark("google.protobuf")  # Spark needs it for state in Python, and would fail late
    if outcomes.sparkSession.conf.get(PROVIDER) != ROCKSDB:
        raise UnsupportedError(
            "streaming keeps its state in RocksDB, and this session does not.",
            hint=f"set {PROVIDER} to {ROCKSDB}, or let treecal.keyed.session.session start the session.",
        )
    rows = outcomes.select(columns(forecaster)).mapInArrow(partial(pack_rows, shards=shards), PACKED)
    play = partial(_play, forecaster=forecaster, shards=shards, announced=announced)
    stepped = rows.groupBy("shard").transformWithStateInPandas(
        statefulProcessor=_processor(play), outputStructType=PACKED, outputMode="append", timeMode="none"
    )
    return stepped.mapInArrow(unpack_rows, spark_schema(one_schema(*RESULTS)))


def _processor(play: Callable[..., Any]) -> Any:
    """Return Spark's processor of shards. Its class is made here, since its base needs Spark.

    Spark asks it for its state on the driver, in a process that knows nothing of `--py-files`: so what needs treecal is
    packed, and unpacked where the rows are.
    """
    base = pyspark("pyspark.sql.streaming").StatefulProcessor
    packed = pyspark("pyspark.cloudpickle").dumps(play)

    def init(self: Any, handle: Any) -> None:
        self.state = handle.getValueState("shard", STATE)

    def handle(self: Any, key: tuple[int], rows: Iterator[Any], timers: Any) -> Iterator[Any]:
        yield pickle.loads(packed)(self.state, key[0], rows)

    methods = {"init": init, "handleInputRows": handle, "close": lambda self: None}
    return type("Shards", (base,), methods)()


def _play(state: Any, shard: int, rows: Iterator[Any], *, forecaster: Keyed, shards: int, announced: bool) -> Any:
    """Advance one shard."""
    kept = state.get()
    mine = recipe(forecaster)
    if kept is not None and kept[:2] != (mine["arguments"], shards):
        raise SnapshotError(
            f"the checkpoint is not one of {shards} shards of {mine['shown']}.",
            hint="resume with the forecaster and shards it was started with, or use another checkpoint.",
        )
    before = no_state() if kept is None else loads([kept[2]])
    step = advance(before, loads(blob for part in rows for blob in part["blob"]), forecaster, announced=announced)
    state.update((mine["arguments"], shards, dumps(step.state)))
    blob = dumps(as_one(**{name: getattr(step, name) for name in RESULTS}))
    return pyspark("pandas").DataFrame({"shard": [shard], "blob": [blob]})
