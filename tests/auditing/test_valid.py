"""One rule for valid rows: NumPy, DuckDB, SQLite and the whole audit agree with one table of hard cases."""

from __future__ import annotations

import sqlite3
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.auditing.hard_rows import ADDED_FROM_THE_LEFT, CLASSES, ROWS, TOLERANCE, VALID, Row, is_valid
from treecal.auditing import audit
from treecal.auditing._sql import indexed
from treecal.io import read_outcomes, valid_sql


def table(rows: list[Row]) -> pa.Table:
    kinds = [pa.float64()] * 3 + [pa.string()]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.table(dict(zip(["p0", "p1", "p2", "label"], columns, strict=True)))


def by_numpy(rows: list[Row], tolerance: float) -> list[bool]:
    names: dict[str, Any] = {"forecast": ["p0", "p1", "p2"], "outcome": "label", "classes": CLASSES}
    found = read_outcomes(table(rows), **names, on_error="skip", tolerance=tolerance)
    kept = {number for chunk in found for number in chunk.rows.tolist()}
    assert found.problems.count == len(rows) - len(kept)
    return [number + 1 in kept for number in range(len(rows))]


def by_duckdb(rows: list[Row], tolerance: float) -> list[bool]:
    connection = duckdb.connect()
    connection.register("log", table(rows))
    inner = indexed("SELECT * FROM log", labels=CLASSES)
    valid = valid_sql(classes=3, tolerance=tolerance)
    return [valid is True for (valid,) in connection.sql(f"SELECT {valid} FROM ({inner}) AS t").fetchall()]


def by_sqlite(rows: list[Row], tolerance: float) -> list[bool]:
    """SQLite knows nothing of DuckDB's dialect: what it runs is plain."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE log (p0 REAL, p1 REAL, p2 REAL, label TEXT)")
    connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", rows)
    inner = indexed("SELECT * FROM log", labels=CLASSES)
    valid = valid_sql(classes=3, tolerance=tolerance)
    found = [valid == 1 for (valid,) in connection.execute(f"SELECT {valid} FROM ({inner}) AS t")]
    connection.close()
    return found


@pytest.mark.parametrize("engine", [by_numpy, by_duckdb, by_sqlite])
def test_every_engine_agrees_with_the_table(engine: Any) -> None:
    assert engine(ROWS, TOLERANCE) == [is_valid(row) for row in ROWS]
    rows, expected = (list(column) for column in zip(*ADDED_FROM_THE_LEFT, strict=True))
    assert engine(rows, 0.0) == expected


def test_an_audit_leaves_out_the_same_rows_in_bins_and_exactly() -> None:
    options: dict[str, Any] = {"forecast": ["p0", "p1", "p2"], "outcome": "label", "classes": CLASSES}
    found = audit(table(ROWS), **options, on_error="collect")
    only = audit(table([row for row in ROWS if is_valid(row)]), **options)
    assert found.whole.to_dict() == only.whole.to_dict()
    assert [problem.row - 1 for problem in found.problems] == [i for i, row in enumerate(ROWS) if not is_valid(row)]
    assert found.whole.exact is not None
    points = {tuple(max(p, 0.0) + 0.0 for p in row[:3] if p is not None) for row in VALID}
    assert found.whole.exact.forecasts == len(points)
