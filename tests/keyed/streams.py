"""Many keyed streams cut into epochs, and what one `TreeCal` for each key makes of them."""

from __future__ import annotations

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import treecal as tc

Row = tuple[Any, ...]
"""A key, its coming round, the number it has learned up to, and the points of its forecast."""


def epochs(keys: int, count: int, *, seed: int, longest: int = 40, classes: int = 3) -> list[pa.Table]:
    """Return the outcomes of so many keys in so many epochs, each shuffled; not every key comes in every epoch."""
    rng = np.random.default_rng(seed)
    learned, tables = np.zeros(keys, np.int64), []
    for _ in range(count):
        lengths = rng.integers(longest, size=keys) * (rng.random(keys) < 0.7)
        key = np.repeat(np.arange(keys), lengths)
        seq = np.concatenate([learned[k] + np.arange(n) for k, n in enumerate(lengths)]).astype(np.int64)
        learned += lengths
        outcome = rng.dirichlet(np.ones(classes), size=len(key))
        order = rng.permutation(len(key))
        names = [f"key {k}" for k in key[order]]
        tables.append(pa.table({"key": names, "seq": seq[order], "outcome": list(outcome[order])}))
    return tables


def one_by_one(tables: list[pa.Table], forecaster: tc.Forecaster) -> list[list[Row]]:
    """Return what a forecaster for each key announces after each epoch, of the keys that came in it."""
    own: dict[str, tc.Forecaster] = {}
    after = []
    for table in tables:
        rows = sorted(table.to_pylist(), key=lambda row: row["seq"])
        for row in rows:
            own.setdefault(row["key"], deepcopy(forecaster)).update(row["outcome"])
        last = {row["key"]: row["seq"] for row in rows}
        after.append([(k, own[k].rounds + 1, n, *lists(own[k].predict())) for k, n in last.items()])
    return [sorted(rows) for rows in after]


def announced(tables: list[pa.Table], forecaster: tc.Forecaster) -> list[list[Row]]:
    """Return what a forecaster for each key announces before each outcome of each epoch."""
    own: dict[str, tc.Forecaster] = {}
    said = []
    for table in tables:
        rows = []
        for row in sorted(table.to_pylist(), key=lambda row: row["seq"]):
            f = own.setdefault(row["key"], deepcopy(forecaster))
            rows.append((row["key"], f.rounds + 1, row["seq"], *lists(f.predict())))
            f.update(row["outcome"])
        said.append(sorted(rows))
    return said


def lists(x: tc.Forecast) -> tuple[list[float], list[float]]:
    return x.points.ravel().tolist(), x.weights.tolist()


def rows_of(forecasts: pa.Table) -> list[Row]:
    """Return a table of forecasts in the same form."""
    columns = ("key", "round", "seq", "points", "weights")
    return sorted(tuple(row[name] for name in columns) for row in forecasts.to_pylist())


def write_day(day: pa.Table, folder: Path, number: int) -> None:
    """Write a file that Spark sees whole or not at all, and takes up in the order of numbers."""
    draft = folder / f"_{number:03d}.parquet"
    pq.write_table(day, draft)
    os.utime(draft, (1e9 + number, 1e9 + number))
    draft.rename(folder / f"{number:03d}.parquet")
