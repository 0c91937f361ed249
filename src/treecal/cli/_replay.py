"""`treecal replay`: a file of outcomes, and how calibrated a forecaster would have been on it."""

from __future__ import annotations

import csv as writer
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treecal.cli._findings import Findings
from treecal.cli._options import Method, Outcomes, as_norm, described, split
from treecal.cli._progress import progress
from treecal.cli._rows import end
from treecal.cli._terminal import emit
from treecal.engine._replay import Run
from treecal.engine._replay import replay as at_once
from treecal.exceptions import ParameterError
from treecal.forecasters import AdaptiveTreeCal, TreeCal
from treecal.geometry import Norm, Simplex
from treecal.io import Decoder, OnError, inert, new_file, open_source, read_outcomes
from treecal.io._decoder import class_labels
from treecal.io._sources import LOG
from treecal.ledger import Ledger
from treecal.streams import play

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from treecal.forecasters import Forecaster
    from treecal.geometry import ConvexSet
    from treecal.io import Outcomes as Rows
    from treecal.report import Entry


def replay(
    path: str,
    /,
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    method: Method = Method(),  # noqa: B008 # frozen
    outcome: str | None = None,
    norm: str | None = None,
    top: int = 10,
    report: Path | None = None,
    csv: Path | None = None,
    force: bool = False,
    on_error: OnError = "stop",
    json: bool = False,
) -> int:
    """Run a forecaster over a file of outcomes, and print its calibration error and its largest gaps.

    Files are CSV, Parquet or JSON lines, of any size. Classes are looked for in the file unless they are named. Blanks
    around a CSV cell are not part of it.

        treecal replay days.csv --outcome weather

        treecal replay days.parquet --outcome weather --forecaster treecal --arity 8 --report days.html

    Exit codes: 0 fine, 1 invalid rows were left out, 2 bad input, 130 interrupted.

    Parameters
    ----------
    path
        A file of outcomes.
    outcome
        Column of the outcome; several, with commas between them, for the coordinates of a vector. By default "outcome",
        or the only column there is.
    norm
        Norm of the gaps: l1, l2, linf, or l and a number; by default l1 for classes, otherwise l2.
    top
        Number of gaps to show.
    report
        Write a report with pictures to this HTML file.
    csv
        Write every distinct forecast, its weight and its mean outcome to this CSV file.
    force
        Overwrite files that exist.
    on_error
        At an invalid row: stop; skip it, and count it at the end; or collect, and list them all at the end.
    json
        Write one JSON document.
    """
    if top < 0:
        raise ParameterError.expected("--top", top, "an integer of 0 or more")
    space = outcomes.space() if outcomes.given else None
    rows = read_outcomes(
        path,
        outcome=_columns(path, outcome, space),
        classes=None if space is None else class_labels(space) or None,
        space=space,
        on_error=on_error,
    )
    measure = rows.space.default_norm if norm is None else as_norm(norm)
    forecaster = method.make(rows.space)
    who = described(forecaster)
    with ExitStack() as stack:
        # Before the work, so that what cannot be written fails now; and whole or not at all.
        page_file = stack.enter_context(new_file(report, force=force)) if report else None
        table_file = stack.enter_context(new_file(csv, force=force)) if csv else None
        everything = _read(rows)
        if page_file is None:
            found = Findings(_played(forecaster, everything), rows.classes, measure)
        else:
            entry = _entry(forecaster, everything, measure)
            found = Findings(entry.ledger, rows.classes, measure)  # type: ignore[arg-type] # ours is a ledger
            page_file.write_text(_html(entry, rows, path), "utf-8")
        if table_file is not None:
            with table_file.open("w", encoding="utf-8", newline="") as file:
                writer.writer(file).writerows([inert(cell) for cell in row] for row in found.cells())
    if json:
        emit({"forecaster": who, **found.document(top), **rows.problems.to_dict()})
    else:
        found.show(top, who)
    return end(rows.problems)


def _columns(path: str, named: str | None, space: ConvexSet | None) -> tuple[str, ...]:
    """Return the columns to read."""
    if named is not None:
        return split("--outcome", named)
    source = open_source(path)
    return Decoder(space or Simplex(2)).outcome_columns(list(source.types), source=source.name)


def _read(rows: Rows) -> NDArray[Any]:
    """Return all outcomes; classes take a byte or two each."""
    counted = rows.source.one(f"SELECT count(*) FROM {LOG}")
    chunks: list[NDArray[Any]] = []
    with progress("rows read", total=None if counted is None else counted[0]) as done:
        for chunk in rows:
            labels = chunk.outcomes.ndim == 1
            chunks.append(chunk.outcomes.astype(np.min_scalar_type(rows.space.dim)) if labels else chunk.outcomes)
            done(int(chunk.rows[-1]))
    return np.concatenate(chunks) if chunks else np.empty((0, rows.space.dim))


def _played(forecaster: Forecaster, outcomes: NDArray[Any]) -> Ledger | Run:
    if isinstance(forecaster, TreeCal | AdaptiveTreeCal):
        return at_once(outcomes, forecaster)
    with progress("rounds") as done:
        return play(forecaster, _vectors(outcomes, forecaster), progress=done)


def _vectors(outcomes: NDArray[Any], forecaster: Forecaster) -> NDArray[Any]:
    return np.eye(forecaster.space.dim)[outcomes] if outcomes.ndim == 1 else outcomes


def _entry(forecaster: Forecaster, outcomes: NDArray[Any], norm: Norm) -> Entry:
    from treecal import report

    with progress("rounds") as done:
        return report.play(forecaster, _vectors(outcomes, forecaster), norm=norm, progress=done)


def _html(entry: Entry, rows: Rows, path: str) -> str:
    from treecal.report import Section, render

    section = Section(Path(path).name, [entry], rows.classes)
    details = {"file": path, "rows": entry.ledger.rounds, "invalid rows": rows.problems.count}
    command = shlex.join(["treecal", *sys.argv[1:]])
    return render([section], title=f"{entry.name} on {Path(path).name}", details=details, command=command)
