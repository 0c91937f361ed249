"""A race of forecasters on Spark, one task for each run: the table of `treecal.arena.race`.

python examples/race_on_spark.py
"""

from __future__ import annotations

from itertools import product

import pyarrow as pa

import treecal as tc
from treecal import arena, streams
from treecal.keyed.session import session

FORECASTERS = {"tree": tc.TreeCal, "adaptive": tc.AdaptiveTreeCal, "mean": tc.RunningMean}
STREAMS = {"iid": streams.iid, "drift": streams.drift}
SPACES = [tc.Simplex(2), tc.Simplex(5)]


def run(forecaster: str, stream: str, space: tc.ConvexSet, seed: int) -> pa.Table:
    """Race one forecaster on one stream."""
    ours, theirs = {forecaster: FORECASTERS[forecaster]}, {stream: STREAMS[stream]}
    return arena.race(ours, theirs, [space], rounds=1_000, seeds=[seed], workers=1)


if __name__ == "__main__":
    runs = list(product(FORECASTERS, STREAMS, SPACES, range(3)))
    tasks = session("local[2]").sparkContext.parallelize(runs, len(runs))
    print(pa.concat_tables(tasks.map(lambda each: run(*each)).collect()).to_pandas().to_string())
