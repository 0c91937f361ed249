"""`treecal replay`: how calibrated a forecaster is on a file of outcomes."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter

from treecal.cli._findings import Findings, Guard, Played
from treecal.cli._keyed import Log, measured_in, open_rows
from treecal.cli._options import Force, Json, Method, OnInvalid, Outcomes, described, split
from treecal.cli._progress import progress
from treecal.cli._rows import end
from treecal.cli._terminal import emit, page
from treecal.engine import GuardedRun, can_replay, replay as at_once
from treecal.exceptions import ParameterError
from treecal.geometry import Box, Cdf, Norm
from treecal.io import LOG, Keys, new_file, write_csv
from treecal.report import MOST_CLASSES
from treecal.streams import play

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from treecal.forecasters import Forecaster
    from treecal.io import Outcomes as Rows


def replay(
    path: str,
    /,
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    method: Method = Method(),  # noqa: B008 # frozen
    outcome: str | None = None,
    cdf: Annotated[tuple[float, float] | None, Parameter(allow_leading_hyphen=True)] = None,
    norm: str | None = None,
    top: int = 10,
    report: Path | None = None,
    csv: Path | None = None,
    force: Force = False,
    on_error: OnInvalid = "stop",
    key: str | None = None,
    seq: str | None = None,
    engine: Literal["local", "spark"] = "local",
    master: str | None = None,
    json: Json = False,
) -> int:
    """Run a forecaster over a file of outcomes, and measure its calibration error and its largest gaps.

    With the default forecaster, `guarded`, it also says what the guard did, and the error that is guaranteed.
    Files are CSV, Parquet or JSON lines, of any size. Unless --classes is given, the classes are those in the file.

        treecal replay days.csv --outcome weather
        treecal replay days.csv --outcome weather --forecaster treecal --arity 8
        treecal replay days.parquet --outcome weather --report days.html
        treecal replay days.parquet --outcome weather --key city --seq day
        treecal replay load.csv --outcome load --cdf 0 500

    Exit codes: 0 success, 1 invalid rows were left out, 2 invalid input, 130 interrupted.

    Parameters
    ----------
    path
        A file of outcomes.
    outcome
        Column of the outcome; or columns of its coordinates, separated by commas. By default "outcome", or the only
        column.
    cdf
        Lowest and highest value of a number whose distribution is forecast, where --box forecasts its mean.
    norm
        Norm of the gaps: l1, l2, linf, or l followed by a number; by default --forecaster-norm, or l1 for classes,
        otherwise l2.
    top
        Number of gaps to show; with --key, of keys.
    report
        HTML file for a report with plots.
    csv
        CSV file for every distinct forecast, its weight and its mean outcome; with --key, for every key and its errors.
    key
        Column of keys: every key is a stream of its own, and errors are measured key by key, in --norm.
    seq
        Column of whole numbers, which order the outcomes of a key; with --key.
    engine
        This machine, or Spark, which needs --key, and --classes or --dim. Both give the same digits.
    master
        Spark's master, such as local[2]; by default the one spark-submit sets, or this machine.
    """
    if top < 0:
        raise ParameterError.expected("--top", top, "an integer of 0 or more")
    if master is not None and engine != "spark":
        raise ParameterError.expected("--master", master, "nothing, unless --engine spark")
    space = None if outcomes == Outcomes() else outcomes.space()
    if cdf is not None:
        if space is not None or key is not None:
            raise ParameterError("--cdf is a set of outcomes of its own, of one stream.", hint="leave out the others.")
        space = Box(*cdf)  # as numbers are read
    columns = split("--outcome", outcome) or None
    if key is not None and seq is not None and report is None:
        log = Log(path, columns, Keys(key, seq), space, on_error)
        return log.replay(
            method, norm, spark=engine == "spark", master=master, top=top, csv=csv, force=force, json=json
        )
    if key is not None or seq is not None or engine == "spark":
        raise ParameterError(
            "--key and --seq go together; --engine spark needs them, and --report is for one stream alone.",
            hint="treecal.keyed.spark.replay cuts one very long stream into pieces.",
        )
    rows = open_rows(path, columns, space, on_error)
    if report and rows.space.dim > MOST_CLASSES:
        raise ParameterError(
            f"{rows.source.name} has {rows.space.dim:,} classes, and a report has room for {MOST_CLASSES:,}.",
            hint="leave --report out, or group rare classes into one.",
        )
    forecaster = method.make(rows.space if cdf is None else Cdf(*cdf))
    measure = measured_in(forecaster, norm)
    who = described(forecaster)
    with ExitStack() as stack:
        # A file that cannot be written is an error before the work, not after it.
        page_file = stack.enter_context(new_file(report, force=force)) if report else None
        table_file = stack.enter_context(new_file(csv, force=force)) if csv else None
        read = _read(rows) if cdf is None else _read(rows)[:, 0]
        if page_file is None:
            played = _played(forecaster, read)
        else:
            played, html = _reported(forecaster, read, measure, rows, path)
            page_file.write_text(html, "utf-8")
        found = Findings(played, measure)
        if table_file is not None:
            write_csv(table_file, found.cells())
    guard = Guard.of(played.forecaster if isinstance(played, GuardedRun) else forecaster)
    if json:
        did = {} if guard is None else {"guard": guard.document()}
        emit({"forecaster": who, **found.document(top), **did, **rows.problems.to_dict()})
    else:
        found.show(top, who)
        if guard is not None:
            page().print(str(guard), markup=False, soft_wrap=True)
    return end(rows.problems)


def _read(rows: Rows) -> NDArray[Any]:
    """Return all outcomes; a class takes a byte or two."""
    counted = rows.source.one(f"SELECT count(*) FROM {LOG}")
    chunks: list[NDArray[Any]] = []
    with progress("rows read", total=None if counted is None else counted[0]) as done:
        for chunk in rows:
            labels = chunk.outcomes.ndim == 1
            chunks.append(chunk.outcomes.astype(np.min_scalar_type(rows.space.dim)) if labels else chunk.outcomes)
            done(int(chunk.rows[-1]))
    return np.concatenate(chunks) if chunks else np.empty((0, rows.space.dim))


def _played(forecaster: Forecaster, outcomes: NDArray[Any]) -> Played:
    if can_replay(forecaster):
        return at_once(outcomes, forecaster)
    with progress("rounds") as done:
        return play(forecaster, outcomes, progress=done)


def _reported(forecaster: Forecaster, outcomes: NDArray[Any], norm: Norm, rows: Rows, path: str) -> tuple[Played, str]:
    """Return the rounds that were played, and a report of them as HTML."""
    from treecal import report

    with progress("rounds") as done:
        entry = report.play(forecaster, outcomes, norm=norm, progress=done)
    name = Path(path).name
    command = shlex.join(["treecal", *sys.argv[1:]])
    details = {"file": path, "rows": f"{entry.rounds:,}", "invalid rows": f"{rows.problems.count:,}"}
    section = report.Section(name, [entry], rows.classes)
    html = report.render([section], title=f"{entry.name} on {name}", details=details, command=command)
    return entry.ledger, html  # type: ignore[return-value] # what `report.play` returns has been played
