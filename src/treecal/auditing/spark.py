"""The audit of a log of forecasts on Spark: rows are counted by Spark alone, and give the digits of `tc.audit`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from treecal._validate import whole_number
from treecal.auditing import Audit, Calibration, Exact, in_order
from treecal.auditing import _sql as sql
from treecal.auditing._binned import Tallies
from treecal.auditing._exact import Tally
from treecal.auditing._groups import Groups, Key
from treecal.auditing._kernels import DIGITS
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import Distance, as_distance, l1
from treecal.io import Problems
from treecal.keyed._tables import arrow
from treecal.keyed.session import arrow_schema, pyspark, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def audit(
    log: DataFrame,
    *,
    forecast: Sequence[str],
    outcome: str,
    classes: Sequence[str | int],
    by: Sequence[str] = (),
    bins: int = 10,
    norms: Sequence[Distance | str] = ("l1", "l2", "linf"),
    on_error: Literal["stop", "skip"] = "stop",
    tolerance: float = 1e-6,
) -> Audit:
    """Audit a log of forecasts and outcomes, however long: the same numbers as `tc.audit`, to the last digit.

    Spark groups rows by forecast and by bin and counts in whole numbers; no Python sees a row. The errors of the
    distinct forecasts are then added up exactly, task by task, so that neither order nor partitions leave a trace.

    Parameters
    ----------
    log
        The log.
    forecast
        Columns of probabilities, one for each class in order.
    outcome
        The column of labels.
    classes
        The labels, in the order of the probabilities.
    by
        Columns to group rows by.
    bins, norms, tolerance
        As for `tc.audit`.
    on_error
        Bad rows: "stop" raises, "skip" leaves them out and counts them.

    Returns
    -------
    What `tc.audit` returns.
    """
    if on_error not in ("stop", "skip"):
        raise ParameterError.expected("on_error", on_error, "'stop' or 'skip'")
    if len(forecast) != len(classes) or len(classes) < 2:
        raise ParameterError(f"{len(forecast)} forecast columns came with {len(classes)} classes, expected one each.")
    for name in (*forecast, outcome, *by):
        if name not in log.columns:
            raise FileError(f"the log has no column {name!r}; its columns are {', '.join(log.columns)}.")
    bins, d = whole_number("bins", bins, least=1), len(classes)
    distances = {repr(distance): distance for distance in map(as_distance, norms)}
    rows = _rows(log, forecast, outcome, classes, by)
    good = sql.good_rows(classes=d, tolerance=tolerance)
    tallies = Tallies(d, bins, by)
    bad = rows.where(f"({good}) IS NOT TRUE").count()
    if bad and on_error == "stop":
        example = rows.where(f"({good}) IS NOT TRUE").take(1)[0].asDict()
        raise FileError(
            f"the log has {bad:,} bad row{'s' * (bad != 1)}, as {example}: expected a label that is one of the "
            f"classes, and probabilities from 0 that sum to 1 within {tolerance:g}.",
            hint="on_error='skip' leaves them out.",
        )
    rows = rows.where(good)
    _tally(tallies, log.sparkSession.sql(_binned(d, bins, len(by)), rows=rows).toArrow(), d, bins)
    if not tallies.read(None)[0]:
        raise FileError("the log has no good row.")
    most = tallies.groups.most
    exact: dict[Key | None, Exact] = {None: _exact(rows, distances, d, 0, most)[()]}
    if by:
        exact |= _exact(rows, distances, d, len(by), most)
    problems = Problems(None, on_error)  # type: ignore[arg-type] # there is no file to find lines in
    problems.count = bad
    names = tuple(map(str, classes))

    def read(key: Key | None) -> Calibration:
        count, brier, (*each, top) = tallies.read(key)
        return Calibration(count, brier, top, dict(zip(names, each, strict=True)), exact[key])

    keys = sorted(tallies.groups.index, key=in_order) if by else []
    groups = {key: read(key) for key in keys}
    return Audit("the log", names, tuple(forecast), tuple(by), read(None), groups, problems)


def _rows(
    log: DataFrame, forecast: Sequence[str], outcome: str, classes: Sequence[str | int], by: Sequence[str]
) -> DataFrame:
    """Return the columns that count under the names that the SQL knows them by; a label is the index of its class."""
    functions = pyspark("pyspark.sql.functions")
    label = functions.lit(None).cast("int")
    for k, name in enumerate(classes):
        label = functions.when(log[outcome] == name, k).otherwise(label)
    columns = [log[name].cast("double").alias(f"p{k}") for k, name in enumerate(forecast)]
    return log.select(*columns, label.alias("label"), *(log[name].alias(f"by{k}") for k, name in enumerate(by)))


def _binned(d: int, bins: int, by: int) -> str:
    """Return SQL for the counts and sums of `treecal.auditing._kernels.tally`: a cell for each group, class and bin.

    In the place of class `d` stands the likeliest one; in that of `d + 1`, in bin 0, half the Brier score. Amounts are
    rounded to multiples of 2^-51 by adding 2, and their digits summed in two halves, which cannot run over.
    """
    p, keys = [f"p{k}" for k in range(d)], "".join(f"by{k}, " for k in range(by))
    top = " ".join(f"WHEN p{k} = most THEN {k}" for k in range(d))
    said = " ".join(f"WHEN label = {k} THEN p{k}" for k in range(d))
    each = [f"{k}, p{k}, p{k}, label = {k}" for k in range(d)]
    each += [f"{d}, most, most, label = CASE {top} END"]
    each += [f"{d + 1}, 0D, ({' + '.join(f'{q} * {q}' for q in p)} + 1D) / 2D - CASE {said} END, FALSE"]
    return f"""
        SELECT {keys} k, b, COUNT(*) AS n, COUNT(CASE WHEN hit THEN 1 END) AS hits,
            SUM(shiftright(digits, 26)) AS high, SUM(digits & {(1 << 26) - 1}) AS low
        FROM (
            SELECT {keys} k, hit, b - CASE WHEN p < CAST(b AS DOUBLE) / {bins}D THEN 1 ELSE 0 END AS b,
                CAST((amount + 2D - 2D) * {1 << DIGITS}D AS BIGINT) AS digits
            FROM (
                SELECT {keys} k, p, amount, hit, CAST(LEAST(p * {bins}D, {bins - 1}D) AS BIGINT) AS b
                FROM (
                    SELECT {keys} stack({d + 2}, {", ".join(each)}) AS (k, p, amount, hit)
                    FROM (SELECT *, GREATEST({", ".join(p)}) AS most FROM {{rows}})
                )
            )
        )
        GROUP BY {keys} k, b
    """


def _tally(tallies: Tallies, cells: Any, d: int, bins: int) -> None:
    """Fill the tallies with counted cells."""
    cells = cells.combine_chunks()
    by = [cells.column(f"by{k}").combine_chunks() for k in range(len(tallies.groups.by))]
    group = tallies.groups.of(by, len(cells))
    k, b, n, hits, high, low = (cells.column(c).to_numpy() for c in ("k", "b", "n", "hits", "high", "low"))
    ones, rest = high >> (DIGITS - 26), ((high & ((1 << (DIGITS - 26)) - 1)) << 26) + low
    tallies.table = np.zeros((4, max(1, len(tallies.groups.index)), d + 1, bins), np.int64)
    tallies.scores = np.zeros((2, tallies.table.shape[1]), np.int64)
    cell, score = k <= d, k > d
    tallies.table[:, group[cell], k[cell], b[cell]] = np.stack([n, hits, ones, rest])[:, cell]
    tallies.scores[:, group[score]] = np.stack([ones, rest])[:, score]


def _exact(rows: DataFrame, distances: Mapping[str, Distance], d: int, by: int, most: int) -> dict[Key, Exact]:
    """Return the exact errors of each group."""
    source = "SELECT * FROM {rows}"
    joint = _errors(rows, sql.forecasts(source, classes=d, by=by), distances, d, by, most)
    each = [_errors(rows, sql.class_forecasts(source, number=k, by=by), {"l1": l1}, 1, by, most) for k in range(d)]
    return {
        key: Exact(forecasts, errors, tuple(one[key][1]["l1"] for one in each))
        for key, (forecasts, errors) in joint.items()
    }


def _errors(
    rows: DataFrame, question: str, distances: Mapping[str, Distance], width: int, by: int, most: int
) -> dict[Key, tuple[int, dict[str, float]]]:
    """Return the number of distinct forecasts and their errors, for each group."""
    grouped = rows.sparkSession.sql(question, rows=rows)
    add_up = partial(_add_up, distances=distances, width=width, by=by, most=most)
    found: dict[Key, dict[str, list[Any]]] = {}
    for row in grouped.mapInArrow(add_up, spark_schema(_parts(arrow_schema(grouped), by))).toArrow().to_pylist():
        key = tuple(row[f"by{k}"] for k in range(by))
        found.setdefault(key, {}).setdefault(row["name"], []).append(row)
    return {
        key: (
            sum(part["forecasts"] for part in next(iter(parts.values()))),
            {name: _total(parts[name]) / sum(part["rounds"] for part in parts[name]) for name in distances},
        )
        for key, parts in found.items()
    }


def _total(parts: list[dict[str, Any]]) -> float:
    return math.fsum(term for part in parts for term in part["parts"])


def _add_up(batches: Iterator[Any], distances: Mapping[str, Distance], width: int, by: int, most: int) -> Iterator[Any]:
    """Add up the errors of distinct forecasts: a row for each group and distance, with the parts of an exact sum."""
    names, tally, schema = [f"by{k}" for k in range(by)], Tally(distances), None
    groups = Groups(names, most=most)
    for batch in batches:
        tally.add(batch, groups.of([batch.column(name) for name in names], batch.num_rows), width)
        schema = batch.schema
    if schema is not None:
        rows = [
            dict(zip(names, key, strict=True))
            | {"forecasts": tally.forecasts[g], "rounds": tally.rounds[g], "name": name, "parts": total.parts}
            for key, g in groups.index.items()
            for name, total in tally.sums[g].items()
        ]
        yield arrow().RecordBatch.from_pylist(rows, _parts(schema, by))


def _parts(schema: pa.Schema, by: int) -> pa.Schema:
    """Return the schema of such rows, given that of the distinct forecasts."""
    pa = arrow()
    keys = [schema.field(f"by{k}") for k in range(by)]
    fields = {"forecasts": pa.int64(), "rounds": pa.int64(), "name": pa.string(), "parts": pa.list_(pa.float64())}
    return pa.schema([*keys, *fields.items()])
