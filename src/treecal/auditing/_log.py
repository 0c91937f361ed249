"""The audit of a file or a table: one pass for the bins, in memory that does not grow; one query for exact errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecal._bins import MOST_BINS
from treecal._validate import whole_number
from treecal.auditing import _sql as sql
from treecal.auditing._counts import Cells, Counts, Rows
from treecal.auditing._exact import ErrorSums, named_distances
from treecal.auditing._groups import Groups
from treecal.auditing._result import Audit
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import Distance
from treecal.io import OnError, Outcomes, Source, open_source, read_outcomes
from treecal.io._decoder import check_columns
from treecal.io._valid import valid_sql

Progress = Callable[[str, int, float | None], None]
"""Called with the stage, the number of its items so far, and the share that is done, if that is known."""


def audit(
    source: Any,
    *,
    forecast: str | Sequence[str],
    outcome: str | Sequence[str],
    classes: Sequence[str | int] | None = None,
    by: str | Sequence[str] = (),
    bins: int = 10,
    norms: Sequence[Distance | str] = ("l1", "l2", "linf"),
    exact: bool = True,
    on_error: OnError = "stop",
    tolerance: float = 1e-6,
    memory_limit: str = "1GB",
    temp_directory: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Audit a log of forecasts and outcomes: a file or table of any size, also larger than memory.

    The binned errors take one pass in constant memory. The exact errors, those of a `tc.Ledger`, take one more query:
    DuckDB reads the log twice and groups rows by forecast, and by the probability of each class, on disk where memory
    does not suffice. The same rows give the same digits, in any order and from any kind of file.

    Parameters
    ----------
    source
        A path to a CSV, Parquet or JSON lines file (text also as `.gz`); a pandas, Polars or Arrow table; a DuckDB
        relation; or a mapping from names to NumPy arrays.
    forecast
        Columns of probabilities, one per class in order; or one column of lists; or, for two classes, the column of
        the second one.
    outcome
        The column of labels; or one column per class, with a 1 for the class of the outcome and 0 for the others.
    classes
        The labels, in the order of the probabilities. By default those in the log: columns named like the labels
        (`p_rain`, `p_sun`) set the order; else integers count from 0, and all others are sorted.
    by
        Columns to group rows by.
    bins
        Number of bins of equal width for the binned errors.
    norms
        Norms, squared norms or regularizers (or names of norms) for the exact errors.
    exact
        Whether to compute the exact errors.
    on_error
        At an invalid row: "stop" raises and names it, "skip" counts it, "collect" keeps it with its reason.
    tolerance
        How far from 1 the probabilities of a row may sum; the default suffices for float32 and for six decimals. They
        are audited as they are, not rescaled.
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
    """
    bins = whole_number("bins", bins, least=1, most=MOST_BINS)
    by = (by,) if isinstance(by, str) else tuple(by)
    distances = named_distances(norms) if exact else {}
    opened = open_source(source, memory_limit=memory_limit, temp_directory=temp_directory)
    opened.watch = watch = _Watch(opened, progress)
    check_columns(opened.name, list(opened.types), by)
    for name in by:
        if (kind := opened.types[name]).startswith(("STRUCT", "MAP", "UNION")) or kind.endswith("]"):
            raise FileError(f"column {name!r} of {opened.name} holds {kind} values, expected text, numbers or dates.")
    outcomes = read_outcomes(
        opened,
        outcome=outcome,
        forecast=forecast,
        keep=by,
        classes=classes,
        one_hot=True,
        on_error=on_error,
        tolerance=tolerance,
    )
    if not outcomes.labels:
        raise ParameterError.expected("outcome", outcome, "a column of labels, or one column for each class")
    groups = Groups(by)
    cells = _binned(outcomes, groups, bins, watch)
    errors = _exact(outcomes, ErrorSums(distances, groups), watch) if exact else None
    counts = Counts(groups, cells, errors)
    return counts.audit(opened.name, outcomes.classes or (), tuple(outcomes.names), outcomes.problems)


@dataclass
class _Watch:
    """Reports progress: called at each batch, and by the source while one is awaited."""

    source: Source
    progress: Progress | None
    stage: str = "labels"
    count: int = 0

    def __call__(self) -> None:
        if self.progress is not None:
            self.progress(self.stage, self.count, self.source.done())


def _binned(outcomes: Outcomes, groups: Groups, bins: int, watch: _Watch) -> Cells:
    """Read the log once, and count its valid rows."""
    from treecal.auditing._kernels import tally

    cells = Cells.empty(classes=len(outcomes.labels), bins=bins)
    watch.stage, watch.count = "rows", 0
    with ThreadPoolExecutor(1) as counter:
        done: Future[Any] = counter.submit(int)
        for chunk in outcomes:  # the next one is read and checked while this one is counted
            assert chunk.forecasts is not None
            home = groups.of([chunk.kept[name] for name in groups.by], len(chunk.rows))
            rows = Rows(np.ascontiguousarray(chunk.forecasts.T), np.array(chunk.outcomes, np.int64), home)
            done.result()
            cells = cells.with_room(groups)
            done = counter.submit(tally, rows, cells)
            watch.count += len(chunk.rows)
            watch()
        done.result()
    if not watch.count:
        raise FileError(f"{outcomes.source.name} has no valid row. {outcomes.problems}")
    return cells


def _exact(outcomes: Outcomes, errors: ErrorSums, watch: _Watch) -> ErrorSums:
    """Count the distinct forecasts in DuckDB, and sum their errors."""
    d, by = len(outcomes.labels), len(errors.groups.by)
    rows = sql.indexed(outcomes.sql, labels=outcomes.labels, by=by)
    if outcomes.problems.count:
        rows = f"SELECT * FROM ({rows}) AS indexed WHERE {valid_sql(classes=d, tolerance=outcomes.tolerance)}"
    question = sql.distinct_forecasts(rows, classes=d, by=by, dialect=sql.DUCKDB)
    watch.stage, watch.count = "distinct forecasts", 0
    for batch in outcomes.source.batches(question, rows=outcomes.rows):
        watch.count += errors.add(batch)
        watch()
    return errors
