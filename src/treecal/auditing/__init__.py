"""Auditing a log of anybody's forecasts: how calibrated they were, exactly and in bins, in all and by group."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from treecal._validate import whole_number
from treecal.auditing._binned import Tallies
from treecal.auditing._exact import Exact, exact_errors
from treecal.auditing._groups import Key
from treecal.auditing._result import Audit, Bins, Calibration
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import Distance, as_distance
from treecal.io import OnError, open_source, read_outcomes

__all__ = ["Audit", "Bins", "Calibration", "Exact", "Progress", "audit"]

Progress = Callable[[str, int, float | None], None]
"""Told what is under way, how many rows came of it so far, and the share that is done, if that is known."""


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
    """Audit a log of forecasts and outcomes: any file or table, larger than memory if need be.

    The binned errors take one pass in memory that does not grow with the rows; the exact ones a second, in which DuckDB
    groups rows by forecast, on disk where memory does not suffice. The same rows give the same digits, in whatever
    order and from whatever kind of file they come. The exact errors are those that a `tc.Ledger` reads.

    Parameters
    ----------
    source
        A path to a CSV, Parquet or JSON lines file (text also as `.gz`); a pandas, Polars or Arrow table; a DuckDB
        relation; or a mapping from names to NumPy arrays.
    forecast
        Columns of probabilities, one for each class in order; or one of lists; or, of two classes, the column of the
        second's.
    outcome
        The column of labels; or one for each class, with a 1 for the one that happened.
    classes
        The labels, in the order of the probabilities. By default they are looked for in the log: columns called like
        the labels (`p_rain`, `p_sun`) settle the order; then integers from 0; all else is sorted.
    by
        Columns to group rows by.
    bins
        Number of bins, all of one width, for the binned errors.
    norms
        Norms, squared norms or regularizers (or names of norms) for the exact errors.
    exact
        Whether to look for the exact errors, too.
    on_error
        At a bad row: "stop" raises and names it, "skip" counts it, "collect" keeps what was wrong with each.
    tolerance
        How far from 1 the probabilities of a row may sum: by default enough for float32 and for six decimals. They are
        audited as they are, not made to sum to 1.
    memory_limit, temp_directory
        Memory that DuckDB may use, and where it goes when that is not enough.
    progress
        Told every now and then how far things are.

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
    bins = whole_number("bins", bins, least=1)
    by = (by,) if isinstance(by, str) else tuple(by)
    distances = {repr(distance): distance for distance in map(as_distance, norms)}
    if exact and not distances:
        raise ParameterError("norms is empty, expected one or more.", hint="exact=False leaves the exact errors out.")
    tell, seen = progress or (lambda stage, rows, share: None), 0
    opened = open_source(source, memory_limit=memory_limit, temp_directory=temp_directory)
    opened.watch = lambda: tell("labels", 0, opened.done())
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
    opened.watch = lambda: tell("rows", seen, opened.done())
    tallies = Tallies(len(outcomes.names), bins, by)
    for before, batch in outcomes.batches():
        seen += tallies.add(outcomes, batch, before)
        opened.watch()
    if not seen:
        raise FileError(f"{opened.name} has no good row. {outcomes.problems}")
    exactly: dict[Key | None, Exact] = {}
    if exact:

        def watch(forecasts: int) -> None:
            nonlocal seen
            seen = forecasts
            tell("different forecasts", seen, opened.done())

        opened.watch, seen = lambda: watch(seen), 0
        most = tallies.groups.most
        exactly[None] = exact_errors(outcomes, distances, (), most=most, watch=watch)[()]
        if by:
            exactly |= exact_errors(outcomes, distances, by, most=most, watch=watch)
    opened.watch = None
    names = outcomes.classes or ()

    def read(key: Key | None) -> Calibration:
        rows, brier, (*each, top) = tallies.read(key)
        return Calibration(rows, brier, top, dict(zip(names, each, strict=True)), exactly.get(key))

    keys = sorted(tallies.groups.index, key=in_order) if by else []
    groups = {key: found for key in keys if (found := read(key)).rows}  # a group may have had bad rows only
    return Audit(opened.name, names, tuple(outcomes.names), by, read(None), groups, outcomes.problems)


def in_order(key: Key) -> list[tuple[bool, str, Any]]:
    """Sort values of a kind together, and missing ones to the end."""
    return [(value is None, type(value).__name__, 0 if value is None else value) for value in key]
