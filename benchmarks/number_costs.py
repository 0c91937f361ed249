"""What forecasts of numbers cost: rounds and batches of the correctors, and audits of files of quantiles.

    python benchmarks/number_costs.py                   # the figures of docs/howto/correct-numbers.md
    python benchmarks/number_costs.py --rows 1000000    # a smaller file

Times are those of the processors, and the best of three. An audit is compared with DuckDB's sums of the same columns,
in turn and in processes of their own; how long these take to start, with a file of 1,000 rows, is apart.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import treecal as tc

LEVELS = [k / 10 for k in range(1, 10)]
NAMES = [f"q{round(100 * level)}" for level in LEVELS]
OFFSETS = [-1.2816, -0.8416, -0.5244, -0.2533, 0.0, 0.2533, 0.5244, 0.8416, 1.2816]
CHUNK = 500_000
AUDIT = f"import treecal as tc; tc.audit('log.parquet', quantiles={NAMES}, outcome='y')"
TOTALS = ", ".join(f"sum({name})" for name in [*NAMES, "y"])
SUMS = f"import duckdb; duckdb.sql(\"SELECT {TOTALS} FROM 'log.parquet'\").fetchall()"


def best(work: Callable[[Any], object], make: Callable[[], Any]) -> float:
    """Return the least seconds of three."""
    found = []
    for _ in range(3):
        given = make()
        begin = process_time()
        work(given)
        found.append(process_time() - begin)
    return min(found)


def correctors(rounds: int = 3000) -> None:
    """Print what a round and a row of a batch take, of quantiles at nine levels and a hundred thresholds."""
    space = tc.Cdf(0, 500)
    rng = np.random.default_rng(0)
    mean = rng.uniform(100, 400, rounds)
    y = rng.normal(mean, 45).clip(0, 500)
    table = {level: mean + 30 * offset for level, offset in zip(LEVELS, OFFSETS, strict=True)}
    rows = [dict(zip(table, each, strict=True)) for each in np.column_stack([*table.values()]).tolist()]

    def one_by_one(corrector: tc.Corrector) -> None:
        for row, outcome in zip(rows[:500], y.tolist(), strict=False):
            corrector.predict(row)
            corrector.update(outcome)

    print("| corrector of 100 thresholds | a round, µs | a row of a batch, µs |\n| --- | --- | --- |")
    for make in (tc.LocationScale, tc.PitMap, tc.Recalibrator, tc.GuardedCorrector, tc.AutoCorrector):
        learned = make(space)
        learned.update_many(table, y)  # compiles
        one_by_one(learned)
        one = best(one_by_one, lambda learned=learned: deepcopy(learned)) / 500
        many = (
            best(lambda corrector: corrector.update_many(table, y), lambda learned=learned: deepcopy(learned)) / rounds
        )
        print(f"| {make.__name__} | {1e6 * one:.0f} | {1e6 * many:.1f} |", flush=True)


def write(path: Path, rows: int) -> None:
    """Write a log of nine quantiles, chunk by chunk."""
    rng = np.random.default_rng(0)
    schema = pa.schema([(name, pa.float64()) for name in [*NAMES, "y"]])
    with pyarrow.parquet.ParquetWriter(path, schema) as file:
        for start in range(0, rows, CHUNK):
            mean = rng.uniform(100, 400, min(CHUNK, rows - start))
            columns = [mean + 30 * offset for offset in OFFSETS] + [rng.normal(mean, 30)]
            file.write_table(pa.table(columns, schema=schema))


def child(code: str, folder: Path) -> tuple[float, float]:
    """Return the seconds of the processors that a process takes, and its largest memory in GB."""
    with subprocess.Popen([sys.executable, "-c", code], cwd=folder) as job:
        _, status, used = os.wait4(job.pid, 0)
        job.returncode = os.waitstatus_to_exitcode(status)
    if job.returncode:
        raise SystemExit(job.returncode)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6


def audits(most: int) -> None:
    """Print what audits of files take, and sums."""
    print("\n| rows of nine quantiles | audit, s | DuckDB's sums, s | ratio | audit's start, s | audit's memory, GB |")
    print("| --- | --- | --- | --- | --- | --- |")
    with TemporaryDirectory() as name:
        folder = Path(name)
        for rows in (most // 10, most):
            write(folder / "log.parquet", rows)
            (folder / "few").mkdir(exist_ok=True)
            write(folder / "few" / "log.parquet", 1000)
            jobs = [(AUDIT, folder), (AUDIT, folder / "few"), (SUMS, folder), (SUMS, folder / "few")]
            found = np.array([[child(*job) for job in jobs] for _ in range(3)])
            audit, start, sums, few = found[:, :, 0].min(axis=0)
            ratio = (audit - start) / (sums - few)
            memory = found[:, 0, 1].max()
            print(
                f"| {rows:,} | {audit - start:.2f} | {sums - few:.2f} | {ratio:.1f} | {start:.2f} | {memory:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    correctors()
    audits(parser.parse_args().rows)
