"""The audit of a log of forecasts on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from treecal._validate import whole_number
from treecal.auditing import _sql as sql
from treecal.auditing._cells import DIGITS, LOG_SCALE, MAGIC, WEIGHT_SCALE, BinCounts
from treecal.auditing._counts import AuditCounts
from treecal.auditing._exact import ErrorSums, named_distances
from treecal.auditing._groups import Groups
from treecal.auditing._result import Audit
from treecal.auditing._sql import counts_sql, scale_of, whole_sql
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import SAMPLE, Distance, check_pairs, written_to
from treecal.io import Problems, valid_sql, valid_weight_sql
from treecal.keyed import arrow, arrow_schema, pyspark, spark_schema
from treecal.measures import MOST_BINS, bin_sql

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
    weight: str | None = None,
    bins: int = 10,
    norms: Sequence[Distance | str] = ("l1", "l2", "linf"),
    on_error: Literal["stop", "skip"] = "stop",
    tolerance: float | None = None,
) -> Audit:
    """Audit a log of forecasts and outcomes of any size: the same numbers as `tc.audit`, to the last digit.

    Spark groups rows by forecast and by bin and counts in whole numbers, without Python. The errors of the distinct
    forecasts are then summed exactly, task by task, so that neither order nor partitions matter.

    Parameters
    ----------
    log
        The log.
    forecast
        Columns of probabilities, one per class in order.
    outcome
        The column of labels.
    classes
        The labels, in the order of the probabilities.
    by
        Columns to group rows by.
    weight
        The column of sample weights.
    bins, norms, tolerance
        As for `tc.audit`.
    on_error
        Invalid rows: "stop" raises, "skip" leaves them out and counts them.

    Returns
    -------
    What `tc.audit` returns.
    """
    if on_error not in ("stop", "skip"):
        raise ParameterError.expected("on_error", on_error, "'stop' or 'skip'")
    if len(forecast) != len(classes) or len(classes) < 2:
        raise ParameterError(f"{len(forecast)} forecast columns for {len(classes)} classes, expected one each.")
    check_pairs(tuple(forecast), tuple(map(str, classes)))
    for name in (*forecast, outcome, *by, *([weight] if weight else [])):
        if name not in log.columns:
            raise FileError(f"the log has no column {name!r}; its columns are {', '.join(log.columns)}.")
    bins = whole_number("bins", bins, least=1, most=MOST_BINS)
    d = len(classes)
    by = tuple(by)
    distances = named_distances(norms)
    rows = _rows(log, forecast, outcome, classes, by, weight)
    if tolerance is None:
        some = rows.select(*(f"p{k}" for k in range(d))).limit(SAMPLE).collect()
        tolerance = written_to(np.array(some, np.float64))
    valid = valid_sql(classes=d, tolerance=tolerance, weight=weight is not None)
    problems = Problems("the log", on_error)
    problems.count = rows.where(f"({valid}) IS NOT TRUE").count()
    if problems.count and on_error == "stop":
        example = rows.where(f"({valid}) IS NOT TRUE").take(1)[0].asDict()
        raise FileError(
            f"the log has {problems.count:,} invalid row{'s' * (problems.count != 1)}, such as {example}: expected one "
            f"of the classes, and probabilities from 0 that sum to 1 within {tolerance:g}"
            f"{'' if weight is None else ', and a weight w of 0 or more'}.",
            hint="on_error='skip' leaves them out.",
        )
    scale = None if weight is None else _scale(rows)
    rows = rows.where(valid)
    zero = pyspark("pyspark.sql.functions").lit(0.0)
    rows = rows.withColumns({f"p{k}": pyspark("pyspark.sql.functions").greatest(f"p{k}", zero) for k in range(d)})
    groups = Groups(by)
    if scale is not None:
        rows = rows.where(counts_sql(scale)).withColumn("w", pyspark("pyspark.sql.functions").expr(whole_sql(scale)))
    question = _binned(d, bins, len(by), weighted=scale is not None)
    cells = _cells(log.sparkSession.sql(question, rows=rows).toArrow(), groups, d, bins)
    if not cells.weight.any():
        raise FileError(f"the log has no valid row{'' if scale is None else ' of positive weight'}.")
    errors = ErrorSums(distances, groups, weighted=scale is not None)
    errors.add_rows(_error_sums(rows, distances, groups, d, weighted=scale is not None))
    counts = AuditCounts(groups, cells, errors, scale)
    return counts.audit("the log", tuple(map(str, classes)), tuple(forecast), problems)


def _scale(rows: DataFrame) -> float:
    """Return what a weight of 1 counts, given all weights."""
    found = rows.where(valid_weight_sql(positive=True)).selectExpr("COUNT(*) AS rows", "MAX(w) AS most").first()
    return scale_of(found["rows"], found["most"] or 1.0) if found is not None else 1.0


def _rows(
    log: DataFrame,
    forecast: Sequence[str],
    outcome: str,
    classes: Sequence[str | int],
    by: Sequence[str],
    weight: str | None,
) -> DataFrame:
    """Return the columns under the names that the SQL expects; a label is the index of its class."""
    functions = pyspark("pyspark.sql.functions")
    kinds = {name: kind.partition("<")[0] for name, kind in log.dtypes}
    numbers = [*forecast, *([weight] if weight else [])]
    cell = {name: log[_column(name)] for name in (*numbers, outcome, *by)}
    label = functions.lit(None).cast("int")
    for k, name in enumerate(classes):
        label = functions.when(cell[outcome] == name, k).otherwise(label)
    columns = []
    for k, name in enumerate(numbers):
        p = cell[name]
        if kinds[name] == "string":  # Java reads 0.5f and 0x1p-1 as numbers, and no other reader of files does
            p = functions.when(~p.rlike(r"[^0-9eE+. -]"), functions.trim(p)).try_cast("double")
        columns.append(p.cast("double").alias(f"p{k}" if k < len(forecast) else "w"))
    groups = []
    for k, name in enumerate(by):
        key = cell[name]
        if kinds[name] in ("struct", "array", "map", "variant"):
            raise FileError(f"column {name!r} of the log holds {kinds[name]} values, expected text, numbers or dates.")
        if kinds[name] in ("float", "double"):  # NaN is missing, and -0.0 is 0.0
            zero = functions.lit(0).cast(kinds[name])
            key = functions.when(key == 0, zero).otherwise(functions.when(~functions.isnan(key), key))
        groups.append(key.alias(f"by{k}"))
    return log.select(*columns, label.alias("label"), *groups)


def _column(name: str) -> str:
    """Return a name that Spark takes as it is, not as a path into a structure."""
    return "`" + name.replace("`", "``") + "`"


def _binned(d: int, bins: int, by: int, *, weighted: bool) -> str:
    """Return SQL for the counts and sums of `treecal.auditing._kernels.tally`: a cell for each group, class and bin.

    Class `d` is the most likely one; those after it, in bin 0, are the scores. Amounts are rounded to multiples
    of 2^-51 by adding 2, and their digits summed in two halves, which cannot overflow: nor can they times a weight of
    53 bits, as decimal numbers of 38 digits.
    """
    p = [f"p{k}" for k in range(d)]
    keys = "".join(f"by{k}, " for k in range(by))
    w = ""
    times = "{}"
    count = "COUNT(*)"
    hits = "COUNT(CASE WHEN hit THEN 1 END)"
    if weighted:
        w = "w, "
        times = "CAST(w AS DECIMAL(18, 0)) * CAST({} AS DECIMAL(18, 0))"
        count = "SUM(w)"
        hits = "SUM(CASE WHEN hit THEN w ELSE 0 END)"
    high = times.format("shiftright(digits, 26)")
    low = times.format(f"digits & {(1 << 26) - 1}")
    top = " ".join(f"WHEN p{k} = most THEN {k}" for k in range(d))
    given = " ".join(f"WHEN label = {k} THEN p{k}" for k in range(d))
    each = [f"{k}, p{k}, p{k}, label = {k}" for k in range(d)]
    each += [f"{d}, most, most, label = CASE {top} END"]
    scores = ["half", "half * half", "log", "log * log", f"w / {WEIGHT_SCALE!r}D" if weighted else "0D"]
    each += [f"{d + 1 + k}, 0D, {score}, given = 0D" for k, score in enumerate(scores)]
    large = [f"({q} * {q} + 2D - 2D)" for q in p]
    small = [f"({q} * {q} - {own} + {MAGIC!r}D - {MAGIC!r}D)" for q, own in zip(p, large, strict=True)]
    squares = f"({' + '.join(large)} + ({' + '.join(small)}))"
    log = f"CASE WHEN given > 0D THEN GREATEST(LEAST(-LN(given), {LOG_SCALE}D), 0D) / {LOG_SCALE}D ELSE 0D END"
    return f"""
        SELECT {keys} k, b, {count} AS n, {hits} AS hits, SUM({high}) AS high, SUM({low}) AS low, COUNT(*) AS rows
        FROM (
            SELECT {keys} {w} k, hit, {bin_sql("p", bins)} AS b,
                CAST((amount + 2D - 2D) * {1 << DIGITS}D AS BIGINT) AS digits
            FROM (
                SELECT {keys} {w} stack({d + 1 + len(scores)}, {", ".join(each)}) AS (k, p, amount, hit)
                FROM (
                    SELECT *, ({squares} + 1D) / 2D - given AS half, {log} AS log
                    FROM (SELECT *, GREATEST({", ".join(p)}) AS most, CASE {given} END AS given FROM {{rows}})
                )
            )
        )
        GROUP BY {keys} k, b
    """


def _cells(counted: pa.Table, groups: Groups, d: int, bins: int) -> BinCounts:
    """Return these counts as cells, and number the groups."""
    by = [counted.column(f"by{i}").combine_chunks() for i in range(len(groups.by))]
    group = groups.of(by, len(counted))
    k, b, n, hits, rows = (counted.column(name).to_numpy() for name in ("k", "b", "n", "hits", "rows"))
    high, low = (counted.column(name).to_pylist() for name in ("high", "low"))  # integers, or decimals beyond 64 bits
    sums = [(int(above) << 26) + int(below) for above, below in zip(high, low, strict=True)]
    ones, rest = (np.array([part(total) for total in sums], np.int64) for part in (_ones, _rest))
    cells = BinCounts.empty(classes=d, bins=bins).with_room(groups)
    cell = k <= d
    score = k > d
    at = group[cell], k[cell], b[cell]
    for table, counts in zip(cells[:4], (n, hits, ones, rest), strict=True):
        table[at] = counts[cell]
    home = group[score], k[score] - d - 1
    cells.score_ones[home] = ones[score]
    cells.score_rest[home] = rest[score]
    once = k == d + 1
    cells.impossible[group[once]] = hits[once]
    cells.rows[group[once]] = rows[once]
    return cells


def _ones(total: int) -> int:
    return total >> DIGITS


def _rest(total: int) -> int:
    return total & ((1 << DIGITS) - 1)


def _error_sums(
    rows: DataFrame, distances: Mapping[str, Distance], groups: Groups, d: int, *, weighted: bool
) -> list[dict[str, Any]]:
    """Return the sums of errors, which each task computes over its distinct forecasts."""
    by = len(groups.by)
    question = sql.distinct_forecasts("SELECT * FROM {rows}", classes=d, by=by, dialect=sql.SPARK, weighted=weighted)
    found = rows.sparkSession.sql(question, rows=rows)
    schema = _sums_schema(arrow_schema(found), by)
    add_up = partial(_add_up, distances=distances, by=groups.by, weighted=weighted)
    return found.mapInArrow(add_up, spark_schema(schema)).toArrow().to_pylist()  # type: ignore[no-any-return] # Arrow's


def _add_up(
    batches: Iterator[Any], distances: Mapping[str, Distance], by: tuple[str, ...], *, weighted: bool
) -> Iterator[Any]:
    """Sum the errors of distinct forecasts; yield the sums as one batch."""
    sums = ErrorSums(distances, Groups(by), weighted=weighted)
    schema = None
    for batch in batches:
        sums.add(batch)
        schema = batch.schema
    if schema is not None:
        yield arrow().RecordBatch.from_pylist(sums.to_rows(), _sums_schema(schema, len(by)))


def _sums_schema(schema: pa.Schema, by: int) -> pa.Schema:
    """Return the schema of `ErrorSums.to_rows`, given that of the distinct forecasts."""
    pa = arrow()
    whole = pa.int64()
    parts = pa.list_(pa.list_(pa.float64()))
    fields = {"whole": pa.bool_(), "k": whole, "forecasts": whole, "rounds": whole, "errors": parts}
    return pa.schema([*(schema.field(f"by{i}") for i in range(by)), *fields.items()])
