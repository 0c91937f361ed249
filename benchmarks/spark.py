"""Keyed streams on Spark beside the local process pool, in one run: a million keys with five outcomes each.

    python benchmarks/spark.py --master local[2]
    python -m tests.keyed.cluster benchmarks/spark.py    # on a standalone cluster of two workers

Each engine reads an epoch's outcomes from Parquet, takes all keys through it, and writes state, forecasts and problems
to Parquet. They take turns; the first epoch is not counted, as it starts processes and compiles.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import treecal as tc
from treecal.keyed import local, no_state, spark
from treecal.keyed.session import session

OUTCOMES, CLASSES = 5, 3


def write_epoch(path: Path, keys: int, number: int) -> None:
    rng = np.random.default_rng(number)
    order = rng.permutation(keys * OUTCOMES)
    names = pa.array([f"key-{k:08d}" for k in range(keys)])
    seq = number * OUTCOMES + order % OUTCOMES
    outcome = rng.integers(CLASSES, size=len(order))
    table = pa.table({"key": names.take(pa.array(order // OUTCOMES)), "seq": seq, "outcome": outcome})
    pq.write_table(table, path, row_group_size=1 << 18)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--master", help="by default that of spark-submit")
    given = parser.parse_args()
    tree, state = tc.TreeCal(tc.Simplex(CLASSES)), no_state()
    settings = {"spark.driver.memory": "3g", "spark.driver.defaultJavaOptions": "-XX:+UseParallelGC"}  # of a local one
    cluster = session(given.master, settings={**settings, "spark.log.level": "ERROR"})
    seconds: dict[str, list[float]] = {"pool": [], "spark": []}
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor() as pool:
        folder = Path(name)

        for number in range(given.epochs):
            day = folder / f"{number}.parquet"
            write_epoch(day, given.keys, number)
            start = time.perf_counter()
            step = local.epoch(state, pq.read_table(day), tree, pool=pool)
            for part, table in step._asdict().items():
                pq.write_table(table, folder / f"{part}.parquet")
            state, middle = step.state, time.perf_counter()
            done = spark.epoch(cluster, str(folder / "state"), number, cluster.read.parquet(str(day)), tree)
            taken = {"pool": middle - start, "spark": time.perf_counter() - middle}
            print(f"epoch {number}: pool {taken['pool']:6.2f} s   spark {taken['spark']:6.2f} s", flush=True)
            if number:
                for engine, times in seconds.items():
                    times.append(taken[engine])
        assert done.forecasts.count() == len(step.forecasts)
    for engine, times in seconds.items():
        print(f"{engine:6} {given.keys * OUTCOMES / median(times):12,.0f} outcomes a second")
    print(f"spark takes {median(seconds['spark']) / median(seconds['pool']):.2f} times as long")
    cluster.stop()


if __name__ == "__main__":
    main()
