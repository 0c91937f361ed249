"""Keyed streams on Spark beside the local process pool, in one run: a million keys with five outcomes each.

    python benchmarks/spark.py --master local[2]
    python -m tests.keyed.cluster benchmarks/spark.py    # on a standalone cluster of two workers
    python -m tests.keyed.cluster benchmarks/spark.py --lose    # of which one is killed in the middle of some epochs
    python benchmarks/spark.py --sizes

Each engine reads an epoch's outcomes from Parquet, takes all keys through it, and writes state, forecasts and problems
to Parquet. They take turns; the first epoch is not counted, as it starts processes and compiles. After the last one all
forecasts are compared, bit for bit; so they are where a worker is killed. The other one plays the next epoch alone, and
the one after that, with a new worker, is not counted.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from threading import Timer

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import treecal as tc
from treecal.keyed import Step, advance, local, no_state, spark
from treecal.keyed._packing import dumps, packed
from treecal.keyed.session import session

OUTCOMES, CLASSES = 5, 3
SHARES = (1 / 3, 2 / 3)  # of an epoch's time, after which a worker is killed


def one_epoch(keys: int, number: int, *, classes: int = CLASSES) -> pa.Table:
    rng = np.random.default_rng(number)
    order = rng.permutation(keys * OUTCOMES)
    names = pa.array([f"key-{k:08d}" for k in range(keys)])
    seq = number * OUTCOMES + order % OUTCOMES
    outcome = rng.integers(classes, size=len(order))
    return pa.table({"key": names.take(pa.array(order // OUTCOMES)), "seq": seq, "outcome": outcome})


def sizes(epochs: int = 4) -> None:
    """Print the bytes of a key and of a row, and the speed of the step alone."""
    three = tc.Simplex(3)
    for thing in (tc.TreeCal(three), tc.AdaptiveTreeCal(three), tc.TreeCal(tc.Simplex(10)), tc.Guarded(three)):
        keys = 10_000 if isinstance(thing, tc.Guarded) else 100_000
        state, rates = no_state(), dict[bool, float]()
        for number in range(epochs):
            rows = one_epoch(keys, number, classes=thing.space.dim)
            for announced in (False, True):
                start = time.perf_counter()
                step = advance(state, rows, thing, announced=announced)
                rates[announced] = len(rows) / (time.perf_counter() - start)
            state = step.state
        blob = dumps(state)
        shuffled = sum(len(part.as_py()) for part in packed(rows, 8).column("blob"))
        figures = {
            "state of a key": len(blob) / keys,
            "in Parquet": _bytes(pa.table({"shard": [0], "blob": [blob]})) / keys,
            "its forecast": _bytes(step.forecasts) / keys,
            "a row announced": _bytes(step.announced) / len(rows),
            "a row in the shuffle": shuffled / len(rows),
            "rows a second": rates[False],
            "with announced": rates[True],
        }
        print(f"{thing!r}: " + ", ".join(f"{name} {value:,.0f}" for name, value in figures.items()), flush=True)


def _bytes(table: pa.Table) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return int(sink.getvalue().size)


def tell_cluster(number: int) -> None:
    os.kill(int(os.environ["CLUSTER"]), number)


def check(done: spark.Epoch, step: Step) -> None:
    """Raise unless every forecast is the pool's."""
    here = step.forecasts.sort_by("key").combine_chunks()
    there = pq.read_table(f"{done.path.removeprefix('file:')}/table=forecasts").select(here.column_names)
    assert there.sort_by("key").combine_chunks().cast(here.schema).equals(here)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--master", help="by default that of spark-submit")
    parser.add_argument("--lose", action="store_true", help="then kill a worker of the cluster in some more epochs")
    parser.add_argument("--sizes", action="store_true", help="print bytes of a key and of a row instead, without Spark")
    given = parser.parse_args()
    if given.sizes:
        sizes()
        return
    tree, state = tc.TreeCal(tc.Simplex(CLASSES)), no_state()
    settings = {"spark.driver.memory": "3g", "spark.driver.defaultJavaOptions": "-XX:+UseParallelGC"}  # of a local one
    cluster = session(given.master, settings={**settings, "spark.log.level": "ERROR"})
    seconds: dict[str, list[float]] = {"pool": [], "spark": []}
    lost, alone = dict[float, float](), list[float]()
    plan: list[str | float] = ["new", *["both"] * (given.epochs - 1)]
    plan += [kind for share in SHARES for kind in (share, "one", "new", "both")] if given.lose else []
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor() as pool:
        folder = Path(name)
        for number, kind in enumerate(plan):
            if number and kind == "new":
                tell_cluster(signal.SIGUSR2)
            day = folder / f"{number}.parquet"
            pq.write_table(one_epoch(given.keys, number), day, row_group_size=1 << 18)
            start = time.perf_counter()
            step = local.epoch(state, pq.read_table(day), tree, pool=pool)
            for part, table in step._asdict().items():
                pq.write_table(table, folder / f"{part}.parquet")
            if isinstance(kind, float):
                killer = Timer(kind * median(seconds["spark"]), tell_cluster, [signal.SIGUSR1])
                killer.start()
            state, middle = step.state, time.perf_counter()
            done = spark.epoch(cluster, str(folder / "state"), number, cluster.read.parquet(str(day)), tree)
            taken = {"pool": middle - start, "spark": time.perf_counter() - middle}
            named = kind if isinstance(kind, str) else f"one killed after {kind:.2f} of the time"
            print(f"epoch {number}: pool {taken['pool']:6.2f} s   spark {taken['spark']:6.2f} s   {named}", flush=True)
            if kind == "both":
                for engine, times in seconds.items():
                    times.append(taken[engine])
            elif kind == "one":
                alone.append(taken["spark"])
            elif isinstance(kind, float):
                assert killer.finished.is_set(), "the epoch ended before the worker"
                check(done, step)
                lost[kind] = taken["spark"]
        check(done, step)
    for engine, times in seconds.items():
        print(f"{engine:6} {given.keys * OUTCOMES / median(times):12,.0f} outcomes a second")
    print(f"spark takes {median(seconds['spark']) / median(seconds['pool']):.2f} times as long")
    both = median(seconds["spark"])
    for share, took in lost.items():
        print(f"with a worker killed after {share:.2f} of an epoch, {took / both:.2f} times as long as with both")
    if alone:
        print(f"with one worker, {median(alone) / both:.2f} times as long as with both")
    cluster.stop()


if __name__ == "__main__":
    main()
