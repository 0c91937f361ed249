"""What watching costs: one update, an array, and a file as long as asked for, with the memory it takes.

`python benchmarks/monitor.py --classes 10 --rows 100000 1000000 10000000`
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import treecal as tc

_CHUNK = 100_000


def drawn(rows: int, classes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return forecasts that are right, and outcomes."""
    forecasts = rng.dirichlet(np.ones(classes), rows)
    return forecasts, (rng.random((rows, 1)) > forecasts[:, :-1].cumsum(axis=1)).sum(axis=1)


def update(classes: int, rounds: int = 20_000) -> float:
    """Return the seconds that one `update` takes."""
    monitor = tc.Monitor(tc.Simplex(classes))
    P, y = drawn(rounds, classes, np.random.default_rng(0))
    monitor.update_many(P[:100], y[:100])  # compiles
    begin = process_time()
    for p, k in zip(P, y.tolist(), strict=True):
        monitor.update(p, k)
    return (process_time() - begin) / rounds


def update_many(classes: int, rows: int = 300_000) -> float:
    """Return the seconds that a row of `update_many` takes."""
    monitor = tc.Monitor(tc.Simplex(classes))
    P, y = drawn(rows, classes, np.random.default_rng(0))
    monitor.update_many(P[:100], y[:100])
    begin = process_time()
    monitor.update_many(P, y)
    return (process_time() - begin) / rows


def write(path: Path, rows: int, classes: int) -> None:
    """Write a log, chunk by chunk."""
    rng = np.random.default_rng(1)
    names = [f"p_{k}" for k in range(classes)]
    schema = pa.schema([*((name, pa.float64()) for name in names), ("outcome", pa.int64())])
    make = pyarrow.parquet.ParquetWriter if path.suffix == ".parquet" else pyarrow.csv.CSVWriter
    with make(path, schema) as file:
        for at in range(0, rows, _CHUNK):
            P, y = drawn(min(_CHUNK, rows - at), classes, rng)
            file.write_table(pa.table([*P.T, y], schema=schema))


class Cost(NamedTuple):
    """Seconds on the clock, seconds of the processors, and the largest memory, in GB."""

    seconds: float
    spent: float
    peak: float


def watched(path: Path, classes: int) -> Cost:
    """Return what `treecal monitor` takes for a file."""
    columns = ",".join(f"p_{k}" for k in range(classes))
    args = ["monitor", path, "--forecast", columns, "--classes", ",".join(map(str, range(classes)))]
    begin = perf_counter()
    code = "from treecal.cli import main; main()"
    with subprocess.Popen([sys.executable, "-c", code, *map(str, args)], stdout=subprocess.DEVNULL) as job:
        _, status, used = os.wait4(job.pid, 0)
        job.returncode = os.waitstatus_to_exitcode(status)
    if job.returncode not in (0, 3):  # no alarm, alarm
        raise SystemExit(f"treecal monitor failed on {path}.")
    return Cost(perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--kind", choices=["parquet", "csv"], default="parquet")
    given = parser.parse_args()
    print(f"update, {given.classes} classes: {1e6 * update(given.classes):.1f} µs")
    print(f"update_many, {given.classes} classes: {1e6 * update_many(given.classes):.2f} µs a row")
    with TemporaryDirectory() as folder:
        for rows in given.rows:
            path = Path(folder) / f"{rows:,} rows.{given.kind}"
            write(path, rows, given.classes)
            cost = watched(path, given.classes)
            path.unlink()
            print(f"{path.name}: {cost.seconds:.1f} s, {cost.spent:.1f} s of the processors, peak {cost.peak:.2f} GB")


if __name__ == "__main__":
    main()
