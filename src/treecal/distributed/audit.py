"""The audit of a log of forecasts on Spark: rows are counted by Spark alone, and give the digits of `tc.audit`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from treecal._exact import whole_number
from treecal.auditing import Audit, Calibration, Exact, _order, sql
from treecal.auditing.binned import Tallies
from treecal.auditing.exact import ExactSum
from treecal.auditing.groups import Groups, Key
from treecal.auditing.kernels import DIGITS
from treecal.distributed.session import pyspark
from treecal.distributed.tables import arrow
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import Distance, as_distance
from treecal.io import Problems

if TYPE_CHECKING:
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

    keys = sorted(tallies.groups.index, key=_order) if by else []
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
    """Return SQL for the counts and sums of `treecal.auditing.kernels.tally`: a cell for each group, class and bin.

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
    tallies._table = np.zeros((4, max(1, len(tallies.groups.index)), d + 1, bins), np.int64)
    tallies._scores = np.zeros((2, tallies._table.shape[1]), np.int64)
    cell, score = k <= d, k > d
    tallies._table[:, group[cell], k[cell], b[cell]] = np.stack([n, hits, ones, rest])[:, cell]
    tallies._scores[:, group[score]] = np.stack([ones, rest])[:, score]


def _exact(rows: DataFrame, distances: Mapping[str, Distance], d: int, by: int, most: int) -> dict[Key, Exact]:
    """Return the exact errors of each group."""
    question = sql.forecasts("SELECT * FROM {rows}", classes=d, by=by)
    grouped = rows.sparkSession.sql(question, rows=rows)
    types = pyspark("pyspark.sql.types")
    groups = [field for field in grouped.schema if field.name.startswith("by")]
    whole, real = types.LongType(), types.DoubleType()
    schema = types.StructType(groups).add("forecasts", whole).add("rounds", whole)
    for k in range(len(distances)):
        schema = schema.add(f"d{k}", types.ArrayType(real))
    found: dict[Key, tuple[int, int, list[list[float]]]] = {}
    add_up = partial(_add_up, distances=tuple(distances.values()), d=d, by=by, most=most)
    for row in grouped.mapInArrow(add_up, schema).toArrow().to_pylist():
        key = tuple(None if row[f"by{k}"] != row[f"by{k}"] else row[f"by{k}"] for k in range(by))
        forecasts, rounds, parts = found.get(key, (0, 0, [[] for _ in distances]))
        parts = [mine + row[f"d{k}"] for k, mine in enumerate(parts)]
        found[key] = forecasts + row["forecasts"], rounds + row["rounds"], parts
    return {
        key: Exact(forecasts, {name: math.fsum(part) / rounds for name, part in zip(distances, parts, strict=True)})
        for key, (forecasts, rounds, parts) in found.items()
    }


def _add_up(batches: Iterator[Any], distances: tuple[Distance, ...], d: int, by: int, most: int) -> Iterator[Any]:
    """Add up the errors of some distinct forecasts, exactly: one row for each group, with the parts of each sum."""
    pa = arrow()
    names = [f"by{k}" for k in range(by)]
    groups, types = Groups(names, most=most), []
    counts: dict[int, tuple[int, int]] = {}
    sums: dict[int, list[ExactSum]] = {}
    for batch in batches:
        types = [batch.schema.field(name).type for name in names]
        points, came = (np.column_stack([batch.column(f"{c}{k}").to_numpy() for k in range(d)]) for c in "pn")
        rounds = batch.column("rounds").to_numpy().astype(np.float64)
        means = came / rounds[:, None]
        home = groups.of([batch.column(name) for name in names], len(rounds))
        shares = [rounds * distance.between(means, points) for distance in distances]
        for g in np.unique(home).tolist():
            mine = home == g
            forecasts, total = counts.get(g, (0, 0))
            counts[g] = forecasts + int(mine.sum()), total + int(rounds[mine].sum())
            for sum_, share in zip(sums.setdefault(g, [ExactSum() for _ in distances]), shares, strict=True):
                sum_.add(share[mine])
    order = list(counts)
    keys = {g: key for key, g in groups.index.items()}
    columns = [pa.array([keys[g][k] for g in order], type_) for k, type_ in enumerate(types)]
    columns += [pa.array([counts[g][i] for g in order], pa.int64()) for i in range(2)]
    columns += [pa.array([sums[g][i]._parts for g in order], pa.list_(pa.float64())) for i in range(len(distances))]
    names += ["forecasts", "rounds", *(f"d{k}" for k in range(len(distances)))]
    if order:
        yield pa.record_batch(columns, names=names)
