"""A driver to be killed: `python -m tests.keyed.driver batch|stream FOLDER` plays the files in FOLDER/in."""

from __future__ import annotations

import sys
from pathlib import Path

import treecal as tc
from treecal.keyed import spark, streaming
from treecal.keyed.session import session

FORECASTER, SHARDS = tc.TreeCal(tc.Simplex(3), arity=3), 4


def main(kind: str, folder: Path) -> None:
    kept = {"spark.sql.streaming.minBatchesToRetain": "1000"}  # for the tests to read
    cluster = session(settings={"spark.sql.shuffle.partitions": "4", "spark.log.level": "ERROR", **kept})
    if kind == "batch":
        for number, day in enumerate(sorted((folder / "in").glob("*.parquet"))):
            outcomes = cluster.read.parquet(str(day))
            spark.epoch(cluster, str(folder / "state"), number, outcomes, FORECASTER, shards=SHARDS)
    else:
        files = cluster.readStream.schema("key string, seq long, outcome array<double>").option("maxFilesPerTrigger", 1)
        outcomes = files.parquet(str(folder / "in"))
        query = streaming.forecasts(outcomes, FORECASTER, shards=SHARDS).writeStream.trigger(availableNow=True)
        query = query.option("checkpointLocation", str(folder / "checkpoint")).format("parquet")
        query.start(str(folder / "out")).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
