"""The arena's race on Spark: one task for each run, and the table that a race on one machine gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

from treecal.arena import Maker, Source
from treecal.arena import race as race_here
from treecal.exceptions import ParameterError
from treecal.geometry import ConvexSet, Norm
from treecal.keyed._packing import dumps, loads

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def race(
    spark: SparkSession,
    forecasters: Mapping[str, Maker],
    streams: Mapping[str, Source],
    spaces: Sequence[ConvexSet],
    *,
    rounds: int,
    norms: Sequence[Norm | str] = ("l1",),
    seeds: Sequence[int] = (0,),
) -> pa.Table:
    """Race every forecaster on every stream over every set and seed, and return one tidy table.

    It is the table of `treecal.arena.race`, row for row, but for the column of seconds.

    Parameters
    ----------
    spark
        The session; every run is one of its tasks.
    forecasters, streams, spaces, rounds, norms, seeds
        As for `treecal.arena.race`.
    """
    for name, entries in (("forecasters", forecasters), ("streams", streams), ("spaces", spaces), ("seeds", seeds)):
        if not entries:
            raise ParameterError(f"{name} is empty, expected one or more.")
    runs = list(product(spaces, streams.items(), seeds, forecasters.items()))  # in the order of the table

    def play(run: tuple[ConvexSet, tuple[str, Source], int, tuple[str, Maker]]) -> bytes:
        space, stream, seed, forecaster = run
        alone = dict([forecaster]), dict([stream]), [space]
        return dumps(race_here(*alone, rounds=rounds, norms=norms, seeds=[seed], workers=1))

    return loads(spark.sparkContext.parallelize(runs, len(runs)).map(play).collect())
