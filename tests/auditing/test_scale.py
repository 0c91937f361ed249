"""Logs larger than memory: binned in one pass, exactly by spilling to disk, in a process of less than 2 GB."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

CLASSES = 10
NAMES = [f"p{k}" for k in range(CLASSES)]
SCRIPT = """
import json, sys, time
from treecal.auditing import audit
path, exact = sys.argv[1], sys.argv[2] == "exact"
stages, begin = {}, time.perf_counter()
def tell(stage, rows, share):
    stages[stage] = rows, share
found = audit(path, forecast=[f"p{k}" for k in range(10)], outcome="label", exact=exact, progress=tell)
seconds = time.perf_counter() - begin
status = dict(line.split(":", 1) for line in open("/proc/self/status"))  # resource counts the parent's memory, too
print(json.dumps({
    "audit": found.to_dict()["whole"], "stages": stages, "seconds": seconds,
    "megabytes": int(status["VmHWM"].split()[0]) / 1024,
}))
"""


def write_log(path: Path, rows: int) -> None:
    """Write probabilities of two decimals; each forecast comes some five times, at places far apart."""
    shares = ", ".join(f"hash(j * {CLASSES} + {k}) % 12 AS a{k}" for k in range(CLASSES - 1))
    rest = "100 - " + " - ".join(f"a{k}" for k in range(CLASSES - 1))
    columns = ", ".join(f"a{k} / 100.0 AS p{k}" for k in range(CLASSES - 1))
    duckdb.sql(f"SET temp_directory = '{path.with_suffix('.spill')}'")  # of this and all later questions
    duckdb.sql("SET memory_limit = '4GB'")  # not four fifths of the machine's, which others use, too
    duckdb.sql(
        f"COPY (SELECT {columns}, ({rest}) / 100.0 AS p{CLASSES - 1}, (hash(7 * i + 1) % {CLASSES})::INTEGER AS label "
        f"FROM (SELECT i, {shares} FROM (SELECT i, hash(i) % {rows // 5} AS j FROM range({rows}) t(i)))) "
        f"TO '{path}' (FORMAT parquet)"
    )


def run(path: Path, kind: str) -> dict[str, Any]:
    """Audit in a process of its own, whose memory can be told."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, path, kind], capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def check(path: Path, rows: int) -> dict[str, dict[str, Any]]:
    """Audit the log in both ways, and hold the figures against what DuckDB computes by itself."""
    results = {kind: run(path, kind) for kind in ("binned", "exact")}
    binned, exact = (results[kind]["audit"] for kind in ("binned", "exact"))
    assert binned["rounds"] == exact["rounds"] == rows
    classes = {name: found | {"exact": None} for name, found in exact["classes"].items()}
    assert exact | {"forecasts": None, "errors": {}, "classes": classes} == binned
    for k, name in enumerate(NAMES):
        found = binned["classes"][str(k)]
        theirs = duckdb.execute(
            f"SELECT least((100 * {name})::INTEGER // 10, 9) AS bin, count(*), avg(({name} * 100)::INTEGER) / 100, "
            f"avg((label = {k})::INTEGER) FROM '{path}' GROUP BY bin ORDER BY bin"
        ).fetchall()
        assert [entry["weight"] for entry in found["bins"]] == [count for _, count, *_ in theirs]
        for entry, (bin_, _, said, happened) in zip(found["bins"], theirs, strict=True):
            assert entry["low"] == bin_ / 10
            assert entry["forecast"] == pytest.approx(said, abs=1e-12)
            assert entry["outcome"] == pytest.approx(happened, abs=1e-12)
    gaps = " + ".join(f"abs(avg((label = {k})::INTEGER) - any_value({name}))" for k, name in enumerate(NAMES))
    shares = f"SELECT count(*) * ({gaps}) AS share FROM '{path}' GROUP BY {', '.join(NAMES)}"
    ((forecasts, total),) = duckdb.execute(f"SELECT count(*), fsum(share) FROM ({shares})").fetchall()
    assert exact["forecasts"] == forecasts
    assert math.isclose(exact["errors"]["l1"]["exact"], total / rows, rel_tol=1e-9)
    assert results["exact"]["stages"]["rows"][0] == rows
    assert results["exact"]["stages"]["distinct forecasts"][0] == forecasts
    return results


@pytest.mark.heavy
def test_a_million_rows(tmp_path: Path) -> None:
    write_log(tmp_path / "log.parquet", 1_000_000)
    results = check(tmp_path / "log.parquet", 1_000_000)
    assert results["binned"]["megabytes"] < 2000


@pytest.mark.heavy
def test_memory_does_not_grow_with_rows_in_one_row_group(tmp_path: Path) -> None:
    """As some writers make them: here 240 MB of random numbers."""
    rng, rows = np.random.default_rng(0), 3_000_000
    table = pa.table(dict(zip(NAMES, rng.dirichlet(np.ones(CLASSES), size=rows).T, strict=True)))
    table = table.append_column("label", pa.array(rng.integers(CLASSES, size=rows)))
    peaks = []
    for count in (rows // 10, rows):
        pq.write_table(table.slice(0, count), tmp_path / "log.parquet", row_group_size=count, use_dictionary=False)
        peaks.append(run(tmp_path / "log.parquet", "binned")["megabytes"])
    assert peaks[1] < peaks[0] + 100


@pytest.mark.heavy
def test_a_hundred_million_rows_in_two_gigabytes(tmp_path: Path) -> None:
    rows = int(os.environ.get("TREECAL_LOG_ROWS", 100_000_000))
    if shutil.disk_usage(tmp_path).free < 300 * rows:
        pytest.fail(f"{rows:,} rows need {300 * rows / 1e9:.0f} GB in {tmp_path}: set TREECAL_LOG_ROWS to fewer.")
    write_log(tmp_path / "log.parquet", rows)
    for kind, result in check(tmp_path / "log.parquet", rows).items():
        print(f"{kind}: {result['seconds']:.1f} s, {result['megabytes']:.0f} MB")
        assert result["megabytes"] < 2000
