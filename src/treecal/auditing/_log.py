"""The audit of a file or a table: one pass for the bins, in memory that does not grow; one query for exact errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from treecal._platform import processors
from treecal._typing import Integers
from treecal._validate import whole_number
from treecal.auditing import _sql as sql
from treecal.auditing._cells import AuditRows
from treecal.auditing._counts import AuditCounts
from treecal.auditing._exact import ErrorSums, named_distances
from treecal.auditing._few import WEIGHT, FewLog, check_known, read_few
from treecal.auditing._groups import Groups
from treecal.auditing._memory import ArrayLog, from_arrays, open_arrays
from treecal.auditing._number_audit import NumberAudit, audit_numbers
from treecal.auditing._number_rows import Columns
from treecal.auditing._result import Audit
from treecal.auditing._sql import scale_of, whole_weights
from treecal.auditing._windows import WINDOWS, Windows
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import Distance, Simplex
from treecal.io import (
    Chunk,
    OnError,
    Outcomes,
    Source,
    arrays_of,
    find_probabilities,
    library,
    open_source,
    read_outcomes,
    valid_sql,
    valid_weight_sql,
)
from treecal.measures import MOST_BINS, Losses, LossTable

_THREADS = 8  # that count, at most

Progress = Callable[[str, int, float | None], None]
"""Called with the stage, the number of its items so far, and the share that is done, if that is known."""


@overload
def audit(
    source: Any,
    outcomes: Any = None,
    *,
    forecast: str | Sequence[str] | None = None,
    outcome: str | Sequence[str] | None = None,
    classes: Sequence[str | int] | None = None,
    by: str | Sequence[str] = (),
    time: str | None = None,
    window: str | None = None,
    loss: Any = None,
    weight: str | ArrayLike | None = None,
    probability: str | float | ArrayLike | None = None,
    proxy: str | Sequence[str] | ArrayLike | None = None,
    bins: int = 10,
    norms: Sequence[Distance | str] = ("l1", "l2", "linf"),
    exact: bool = True,
    on_error: OnError = "stop",
    tolerance: float | None = None,
    memory_limit: str = "1GB",
    temp_directory: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Audit: ...


@overload
def audit(
    source: Any,
    *,
    quantiles: Mapping[str, float] | Sequence[str] | None = None,
    members: Sequence[str] | None = None,
    mean: str | None = None,
    sd: str | None = None,
    outcome: str,
    by: str | Sequence[str] = (),
    time: str | None = None,
    window: str | None = None,
    on_error: OnError = "stop",
    memory_limit: str = "1GB",
    temp_directory: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> NumberAudit: ...


def audit(
    source: Any,
    outcomes: Any = None,
    *,
    quantiles: Mapping[str, float] | Sequence[str] | None = None,
    members: Sequence[str] | None = None,
    mean: str | None = None,
    sd: str | None = None,
    forecast: str | Sequence[str] | None = None,
    outcome: str | Sequence[str] | None = None,
    classes: Sequence[str | int] | None = None,
    by: str | Sequence[str] = (),
    time: str | None = None,
    window: str | None = None,
    loss: ArrayLike | None = None,
    weight: str | ArrayLike | None = None,
    probability: str | float | ArrayLike | None = None,
    proxy: str | Sequence[str] | ArrayLike | None = None,
    bins: int = 10,
    norms: Sequence[Distance | str] = ("l1", "l2", "linf"),
    exact: bool = True,
    on_error: OnError = "stop",
    tolerance: float | None = None,
    memory_limit: str = "1GB",
    temp_directory: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Audit | NumberAudit:
    """Audit a log of forecasts and outcomes: two arrays, or a file or table of any size, also larger than memory.

    `audit(P, y)` audits two arrays; `audit(log, forecast=..., outcome=...)` the columns of a log. Forecasts of a number
    are columns of a log too, named by `quantiles`, by `members`, or by `mean` and `sd`: their audit has the same
    verdict, by where the outcomes lay in them, and takes one pass in constant memory.

    Arrays, and mappings of them, need no other package; files and tables need DuckDB, narwhals and pyarrow. Their
    binned errors take one pass in constant memory. The exact errors, those of a `tc.Ledger`, take one more query:
    DuckDB reads the log twice and groups rows by forecast, and by the probability of each class, on disk where memory
    does not suffice. The same rows give the same digits, in any order, from arrays and from any kind of file.

    Parameters
    ----------
    source
        A path to a CSV, Parquet or JSON lines file (text also as `.gz`); a folder of them, a pattern such as
        `logs/*.csv`, or a list of paths, whose files are read in the order of their names, or as listed, and of which
        folders named like `day=2026-01-31` add a column; a pandas, Polars or Arrow table; a DuckDB relation; or a
        mapping from names to NumPy arrays. With `outcomes`, the probabilities themselves: an array, also
        of float32, of shape `(n, d)`, or `(n,)` for two classes, those of the second; or a list, a torch tensor on the
        CPU, a pandas or Polars column.
    outcomes
        The outcomes that followed, where `source` is an array: the classes, `(n,)`, by their indices or names; or
        `(n, d)`, with a 1 for the class of the outcome and 0 for the others.
    quantiles
        Of forecasts of a number: columns of quantiles and their levels, `{"q10": 0.1, "q90": 0.9}`; or the columns,
        whose names tell: `q10`, `p90`, `0.5`. Rows whose quantiles cross are sorted, and counted.
    members
        Of forecasts of a number: the columns of the members of an ensemble. Missing ones are left out, and counted.
    mean, sd
        Of normal forecasts of a number: the columns of mean and standard deviation.
    forecast
        Columns of probabilities, one per class in order; or one column of lists; or, for two classes, the column of
        the second one, or of the one that it is named after (`p_rain`). By default "forecast", or the columns that are
        named after the labels (`p_rain`, `P(sun)`), for which files' readers must be installed.
    outcome
        The column of labels; or one column per class, with a 1 for the class of the outcome and 0 for the others. Of
        forecasts of a number, the column of the number that followed.
    classes
        The labels, in the order of the probabilities. By default those in the log: columns named like the labels
        (`p_rain`, `p_sun`) set the order, and a single one (`p_rain`) is of its class; else integers count from 0, and
        all others are sorted.
    by
        Columns to group rows by.
    time
        A column of dates, times or numbers: rows are also counted by windows of time (at most 40 minutes, hours, days,
        weeks or months, else years; in UTC), as `audit.windows`. If the log is in the order of time, a `tc.Monitor`
        watches its rows, and `audit.windows.alarm` is its alarm.
    window
        The windows of `time`: "minute", "hour", "day", "week", "month" or "year".
    loss
        What each action costs under each class, `(actions, d)`, or by the names of actions and classes: see
        `tc.Losses`. What acting on the forecasts cost is then `payoff` of all rows, of each group and window, and
        `payoff.actions` what was done with each action.
    weight
        The column of sample weights, or an array of them beside two arrays: 0, or from 1e-12 to 1e12. A row of weight 3
        counts as three rows, and one of weight 0 as none. Whole numbers are exact; others are rounded down to multiples
        of a power of two, and lose less than `2^-59` times the largest weight and the number of rows (or 128).
    probability
        Where few rows are labelled, and the others have no outcome: the column (or an array beside two arrays, or a
        number) of the probability with which each was drawn to be labelled. The audit is then that of the labelled
        rows, each of weight `1/probability`, and `whole.estimates`, those of each group too, say what the measures are
        over all rows: by labels and proxies, by the labels alone, by the proxies alone, and what further labels are
        worth. All rows are read into memory.
    proxy
        What every row has in place of an outcome, such as a judge's opinion: a column of classes, or of probabilities
        as in `forecast`.
    bins
        Number of bins of equal width for the binned errors.
    norms
        Norms, squared norms or regularizers (or names of norms) for the exact errors.
    exact
        Whether to compute the exact errors.
    on_error
        At an invalid row: "stop" raises and names it, "skip" counts it, "collect" keeps it with its reason.
    tolerance
        To what the probabilities were rounded: those of two classes may sum to 1 within it, those of d classes within
        d/2 times it. By default the first 1,000 rows tell: 0.01 for whole per cents, 1e-4 for four decimals, and 1e-6
        for six decimals, float32 and all others. They are audited as they are, not rescaled; negative ones within the
        tolerance are 0.
    memory_limit, temp_directory
        Memory that DuckDB may use, and where it spills.
    progress
        Called every now and then.

    Examples
    --------
    >>> import numpy as np
    >>> import treecal as tc
    >>> rng = np.random.default_rng(0)
    >>> p = rng.integers(11, size=5000) / 10
    >>> log = {"p": p, "rain": rng.random(5000) < 0.2 + 0.6 * p}
    >>> report = audit(log, forecast="p", outcome="rain", norms=["l1", tc.l2.squared])
    >>> round(report.whole.classes["1"].ece, 3)
    0.11...
    >>> {name: round(error, 3) for name, error in report.whole.exact.errors.items()}
    {'l1': 0.22..., 'l2.squared': 0.03...}
    >>> audit(p, log["rain"]).whole.brier == report.whole.brier
    True

    Quantiles of a number, which are too sure:

    >>> centre = rng.normal(50, 10, size=5000)
    >>> log = {"q10": centre - 4, "q50": centre, "q90": centre + 4, "load": rng.normal(centre, 5)}
    >>> report = audit(log, quantiles=["q10", "q50", "q90"], outcome="load")
    >>> report.whole.verdict.advised.found
    'Too narrow: the 80 % interval held 58 % of the outcomes.'
    """
    if any(each is not None for each in (quantiles, members, mean, sd)):
        others = {"outcomes": outcomes, "forecast": forecast, "classes": classes, "loss": loss, "weight": weight}
        others |= {"probability": probability, "proxy": proxy}
        if named := [name for name, value in others.items() if value is not None]:
            hint = "name its columns and that of the outcome, and no more."
            raise ParameterError(f"forecasts of a number have no {', '.join(named)}.", hint=hint)
        if window is not None and (time is None or window not in WINDOWS):
            raise ParameterError.expected("window", window, f"one of {', '.join(WINDOWS)}, beside time")
        columns = Columns.named(outcome, quantiles, members, mean, sd)
        names = (by,) if isinstance(by, str) else tuple(by)
        if arrays_of(source) is None:
            source = open_source(source, memory_limit=memory_limit, temp_directory=temp_directory)
        return audit_numbers(source, columns, by=names, time=time, window=window, on_error=on_error, progress=progress)
    name = None
    if outcomes is not None:
        if len(by) or any(option is not None for option in (forecast, outcome, time)):
            raise ParameterError(
                "two arrays have no columns for forecast, outcome, by or time.",
                hint="audit(P, y), or audit({'p': P, 'y': y, 'day': days}, forecast='p', outcome='y', time='day').",
            )
        source, forecast, outcome, classes, weight = from_arrays(source, outcomes, classes, weight)
        name = "the arrays"
        source, probability, proxy = _beside(source, probability, proxy)
    if forecast is None and isinstance(outcome, str):
        source = open_source(source, memory_limit=memory_limit, temp_directory=temp_directory)
        labels = None if classes is None else [str(name) for name in classes]
        forecast = find_probabilities(source, outcome, labels)
    if forecast is None or outcome is None:
        raise ParameterError(
            f"{'forecast' if forecast is None else 'outcome'} is missing, expected columns of the log.",
            hint="audit(log, forecast='p', outcome='y'); or audit(P, y) for two arrays.",
        )
    if not isinstance(weight, str | None):
        raise ParameterError.expected("weight", weight, "a column of the log", hint="an array goes with two arrays.")
    by = (by,) if isinstance(by, str) else tuple(by)
    for option, names in (("by", by), ("time", () if time is None else (time,))):
        if not all(isinstance(name, str) for name in names):
            raise ParameterError(f"{option} has values, expected names of columns of the log.", hint=f"{option}='day'.")
    if window is not None and (time is None or window not in WINDOWS):
        raise ParameterError.expected("window", window, f"one of {', '.join(WINDOWS)}, beside time")
    bins = whole_number("bins", bins, least=1, most=MOST_BINS)
    distances = named_distances(norms) if exact else {}
    few: FewLog | None = None
    if probability is not None or proxy is not None:
        if weight is not None or time is not None:
            raise ParameterError(
                "probability goes with neither weight nor time: rows have one weight, 1/probability.",
                hint="for alarms use tc.Monitor(space, least_probability=...).",
            )
        check_known(probability, proxy)
        asked: Any = {"probability": probability, "proxy": proxy, "on_error": on_error, "tolerance": tolerance}
        few = read_few(source, name, forecast=forecast, outcome=outcome, classes=classes, by=by, **asked)
        name, source, classes = name or few.log.name, few.labelled, few.log.classes
        weight = WEIGHT if few.weighted else None
    options: dict[str, Any] = {"classes": classes, "weight": weight, "on_error": on_error, "tolerance": tolerance}
    options |= {"outcome": outcome, "forecast": forecast}
    rows: Outcomes | ArrayLog | None = open_arrays(source, name, by=by, time=time, **options)
    watch = _Watch(None, progress)
    if rows is None:
        opened = watch.source = open_source(source, memory_limit=memory_limit, temp_directory=temp_directory)
        opened.name = name or opened.name
        opened.watch = watch
        keep = dict.fromkeys([*by, *([] if time is None else [time])])
        rows = _read(opened, options | {"keep": tuple(keep)})
    scale = _scale(rows) if weight else None
    table = None if loss is None else _decision(rows, loss)

    empty = partial(AuditCounts.empty, classes=len(rows.labels), bins=bins, scale=scale, table=table)
    windows = None
    if time is not None:
        column = [rows.column(time)] if isinstance(rows, ArrayLog) else rows.source.moments(time, rows.rows)
        windows = Windows(time, column, empty(Groups((time,))), rows.classes or (), unit=window)
    counts = empty(Groups(by))
    watch.stage = "rows"
    _count_rows(rows, counts, watch.rows, windows)
    if exact:
        sums = ErrorSums(distances, counts.groups, weighted=scale is not None)
        counts.exact = _exact(rows, sums, scale, watch)
    what = rows.name, rows.classes or (), tuple(rows.names), rows.problems
    found = counts.audit(*what)
    if few is not None:
        return few.add(found)
    if windows is None:
        return found
    over_time = replace(windows.counts.audit(*what), alarm=windows.alarm, in_order=windows.in_order)
    return replace(found, windows=over_time)


def _decision(rows: Outcomes | ArrayLog, loss: Any) -> LossTable:
    """Return what each action costs under each class of a log."""
    losses = Losses.read(Simplex(classes=[str(name) for name in rows.classes or rows.labels]), loss)
    if losses.names is not None:
        raise ParameterError.expected("loss", list(losses.names), "one decision", hint="audit one after another.")
    return losses.tables[0]


def _beside(log: dict[str, Any], probability: Any, proxy: Any) -> tuple[dict[str, Any], Any, Any]:
    """Return two arrays as a log, with those of the probability of a label and of proxies, if there are any."""
    given = {"probability": probability, "proxy": proxy}
    arrays = {name: np.asarray(value) for name, value in given.items() if value is not None and np.ndim(value) > 0}
    probability, proxy = (name if name in arrays else value for name, value in given.items())
    return log | arrays, probability, proxy


@dataclass
class _Watch:
    """Reports progress: called at each batch, and by the source while one is awaited."""

    source: Source | None
    progress: Progress | None
    stage: str = "labels"
    count: int = 0

    def __call__(self) -> None:
        if self.progress is not None:
            self.progress(self.stage, self.count, None if self.source is None else self.source.done())

    def rows(self, count: int) -> None:
        """Report so many rows."""
        self.count = count
        self()


def _read(source: Source, options: Mapping[str, Any]) -> Outcomes:
    """Return the rows of a file or table."""
    source.check(options["keep"])
    for name in options["keep"]:
        if (kind := source.types[name]).startswith(("STRUCT", "MAP", "UNION")) or kind.endswith("]"):
            raise FileError(f"column {name!r} of {source.name} holds {kind} values, expected text, numbers or dates.")
    rows = read_outcomes(source, one_hot=True, **options)
    if not rows.labels:
        raise ParameterError.expected("outcome", options["outcome"], "a column of labels, or one column for each class")
    return rows


def _scale(outcomes: Outcomes | ArrayLog) -> float:
    """Return what a weight of 1 counts, given all weights."""
    if isinstance(outcomes, ArrayLog):
        return outcomes.scale()
    question = (
        f"SELECT COUNT(*) AS rows, MAX(w) AS most FROM ({outcomes.sql}) AS w WHERE {valid_weight_sql(positive=True)}"
    )
    (found,) = (row for batch in outcomes.source.batches(question, rows=1) for row in batch.to_pylist())
    return scale_of(found["rows"], found["most"] or 1.0)


def _exact(outcomes: Outcomes | ArrayLog, errors: ErrorSums, scale: float | None, watch: _Watch) -> ErrorSums:
    """Count the distinct forecasts, and sum their errors."""
    watch.stage = "distinct forecasts"
    watch.count = 0
    if isinstance(outcomes, ArrayLog):
        for count in outcomes.add_distinct(errors, scale):
            watch.count += count
            watch()
        return errors
    d = len(outcomes.labels)
    by = len(errors.groups.by)
    weighted = scale is not None
    rows = sql.indexed(outcomes.sql, labels=outcomes.labels, by=by, weighted=weighted)
    valid = valid_sql(classes=d, tolerance=outcomes.tolerance, weight=weighted)
    if scale is not None:
        rows = sql.weighed(rows, valid=valid, classes=d, by=by, scale=scale)
    elif outcomes.problems.count:
        rows = f"SELECT * FROM ({rows}) AS indexed WHERE {valid}"
    question = sql.distinct_forecasts(rows, classes=d, by=by, dialect=sql.DUCKDB, weighted=weighted)
    for batch in outcomes.source.batches(question, rows=32 * outcomes.rows):  # sums are by batch: few are enough
        watch.count += errors.add(batch)
        watch()
    return errors


def _count_rows(
    outcomes: Outcomes | ArrayLog, counts: AuditCounts, watch: Callable[[int], None], windows: Windows | None
) -> None:
    """Read the log once, and count its valid rows; `watch` is called with the number of those read so far."""
    in_order = counts.groups.by or counts.actions is not None or windows is not None
    others = 0 if in_order else min(processors(), _THREADS) - 1
    parts = [counts, *(replace(counts, cells=counts.cells.emptied()) for _ in range(others))]
    counted = 0
    seen = 0
    with ThreadPoolExecutor(len(parts)) as pool:
        done: list[Future[Any]] = [pool.submit(int) for _ in parts]
        for number, chunk in enumerate(outcomes):  # the next one is read and checked while others are counted
            seen += len(chunk.rows)
            chunk, rows = _rows(chunk, counts.groups, counts.scale)
            lane = number % len(parts)
            done[lane].result()
            done[lane] = pool.submit(_count, chunk, rows, parts[lane], windows)
            counted += len(rows.outcomes)
            watch(seen)
        for each in done:
            each.result()
    for part in parts[1:]:
        counts.cells = counts.cells.plus(part.cells)
    if not counted:
        what = "no valid row" if counts.scale is None else "no valid row of positive weight"
        left_out = f" {outcomes.problems}" if outcomes.problems.count else ""
        raise FileError(f"there is {what} in {outcomes.name}.{left_out}")


def _count(chunk: Chunk, rows: AuditRows, counts: AuditCounts, windows: Windows | None) -> None:
    counts.add(rows)
    if windows is not None:
        windows.add(rows, chunk.kept[windows.name])


def _rows(chunk: Chunk, groups: Groups, scale: float | None) -> tuple[Chunk, AuditRows]:
    """Return the rows of a chunk that count, and these as kernels take them."""
    weights = np.empty(0, np.int64)
    if scale is not None and chunk.weights is not None:
        chunk, weights = _of_weight(chunk, whole_weights(chunk.weights, scale))
    assert chunk.forecasts is not None
    home = groups.of([chunk.kept[name] for name in groups.by], len(chunk.rows))
    forecasts = np.ascontiguousarray(chunk.forecasts.T)
    outcomes = np.array(chunk.outcomes, np.int64)
    return chunk, AuditRows(forecasts, outcomes, home, weights)


def _of_weight(chunk: Chunk, weights: Integers) -> tuple[Chunk, Integers]:
    """Return the rows that count, and their weights."""
    counts = weights > 0
    if counts.all():
        return chunk, weights
    assert chunk.forecasts is not None
    kept = {
        name: column[counts] if isinstance(column, np.ndarray) else column.filter(library("pyarrow").array(counts))
        for name, column in chunk.kept.items()
    }
    return Chunk(chunk.rows[counts], chunk.outcomes[counts], chunk.forecasts[counts], kept), weights[counts]
