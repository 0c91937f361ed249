"""A driver for a cluster: `spark-submit … night.py FOLDER WORK…` does the works named, one after another.

It imports nothing but treecal, from wherever `spark-submit` puts it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import treecal as tc
from treecal.auditing.spark import audit
from treecal.keyed import spark, streaming
from treecal.keyed.session import session

FORECASTER, SHARDS = tc.AdaptiveTreeCal(tc.Simplex(3), arity=3), 8
LOG: dict[str, Any] = {"forecast": ["p", "q"], "outcome": "y", "classes": ["yes", "no"], "by": ["model"]}


def where(cluster: Any, folder: Path) -> None:
    """Note down what the executors import, and where they run."""

    def look(numbers: Iterator[int]) -> Iterator[tuple[str, ...]]:
        import treecal

        time.sleep(len(list(numbers)) / 10)  # so that no executor gets all tasks
        yield tuple(map(os.path.abspath, (treecal.__file__, "", sys.executable)))

    found = cluster.sparkContext.parallelize(range(8), 8).mapPartitions(look).distinct().collect()
    (folder / "where.json").write_text(json.dumps(found))


def epochs(cluster: Any, folder: Path) -> None:
    """Play each day as it comes, until the end is there."""
    number = 0
    while True:
        day = folder / "in" / f"{number:03d}.parquet"
        while not day.exists():
            if (folder / "in" / "end").exists():
                return
            time.sleep(0.05)
        outcomes = cluster.read.parquet(str(day))
        spark.epoch(cluster, str(folder / "state"), number, outcomes, FORECASTER, shards=SHARDS, announced=True)
        number += 1


def stream(cluster: Any, folder: Path) -> None:
    """Play each day in a micro-batch, until the end is there."""
    files = cluster.readStream.schema("key string, seq long, outcome array<double>").option("maxFilesPerTrigger", 1)
    found = streaming.forecasts(files.parquet(str(folder / "in")), FORECASTER, shards=SHARDS, announced=True)
    writer = found.writeStream.option("checkpointLocation", str(folder / "checkpoint")).format("parquet")
    query = writer.start(str(folder / "out"))
    while query.isActive and not (folder / "in" / "end").exists():
        time.sleep(0.05)
    query.processAllAvailable()
    query.stop()


def log(cluster: Any, folder: Path) -> None:
    """Audit a log."""
    found = audit(cluster.read.parquet(str(folder / "log.parquet")), **LOG)
    (folder / "log.json").write_text(json.dumps(found.to_dict()))


if __name__ == "__main__":
    given = Path(sys.argv[1])
    running = session(name="night")
    for work in sys.argv[2:]:
        {"where": where, "epochs": epochs, "stream": stream, "log": log}[work](running, given)
    running.stop()
