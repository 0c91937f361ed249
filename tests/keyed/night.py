"""A driver for a cluster: `spark-submit … night.py FOLDER KINDS WORK…` does the works named, one after another.

Those that play the days in FOLDER/in do it for each kind, of which FOLDER/KIND keeps what comes of it. It imports
nothing but treecal, from wherever `spark-submit` puts it.
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

SPACE, SHARDS = tc.Simplex(3), 8
KINDS: dict[str, tc.Forecaster | tc.Corrector] = {
    "adaptive": tc.AdaptiveTreeCal(SPACE, arity=3),
    "guarded": tc.Guarded(SPACE),
    "mean": tc.RunningMean(SPACE),
    "corrector": tc.VectorScaling(SPACE, scores=None),
    "chain": tc.Chain([tc.TemperatureScaling(SPACE, scores=None), tc.Recalibrator(SPACE, scores=None)], scores=None),
}
LOG: dict[str, Any] = {"forecast": ["p", "q"], "outcome": "y", "classes": ["yes", "no"], "by": ["model"]}


def where(cluster: Any, folder: Path) -> None:
    """Note down what the executors import, and where they run."""

    def look(numbers: Iterator[int]) -> Iterator[tuple[str, ...]]:
        import treecal

        time.sleep(len(list(numbers)) / 10)  # so that no executor gets all tasks
        yield tuple(map(os.path.abspath, (treecal.__file__, "", sys.executable)))

    found = cluster.sparkContext.parallelize(range(8), 8).mapPartitions(look).distinct().collect()
    (folder / "where.json").write_text(json.dumps(found))


def epochs(cluster: Any, folder: Path, kind: str) -> None:
    """Play each day as it comes, until the end is there."""
    number, state = 0, str(folder / kind / "state")
    while True:
        day = folder / "in" / f"{number:03d}.parquet"
        while not day.exists():
            if (folder / "in" / "end").exists():
                return
            time.sleep(0.05)
        outcomes = cluster.read.parquet(str(day))
        spark.epoch(cluster, state, number, outcomes, KINDS[kind], shards=SHARDS, announced=True)
        number += 1


def stream(cluster: Any, folder: Path, kind: str) -> None:
    """Play each day in a micro-batch, until the end is there."""
    days = cluster.readStream.schema("key string, seq long, forecast array<double>, outcome array<double>")
    days = days.option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    found = streaming.forecasts(days, KINDS[kind], shards=SHARDS, announced=True)
    writer = found.writeStream.option("checkpointLocation", str(folder / kind / "checkpoint")).format("parquet")
    query = writer.start(str(folder / kind / "out"))
    while query.isActive and not (folder / "in" / "end").exists():
        time.sleep(0.05)
    query.processAllAvailable()
    query.stop()


def log(cluster: Any, folder: Path) -> None:
    """Audit a log."""
    found = audit(cluster.read.parquet(str(folder / "log.parquet")), **LOG)
    (folder / "log.json").write_text(json.dumps(found.to_dict()))


if __name__ == "__main__":
    given, kinds, *works = sys.argv[1:]
    running = session(name="night")
    for work in works:
        if work in ("where", "log"):
            {"where": where, "log": log}[work](running, Path(given))
            continue
        for each in kinds.split(","):
            {"epochs": epochs, "stream": stream}[work](running, Path(given), each)
    running.stop()
