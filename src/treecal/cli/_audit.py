"""`treecal audit`: how calibrated the forecasts of a log are, whatever its size."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from treecal.auditing import audit as audit_log
from treecal.auditing._show import shown
from treecal.cli._engine import only_spark, read, start
from treecal.cli._options import as_norm, split
from treecal.cli._terminal import Exit, emit, page, say
from treecal.exceptions import ParameterError
from treecal.io import OnError, inert, new_file

if TYPE_CHECKING:
    from treecal.auditing import Audit
    from treecal.auditing import Progress as Tell

_STAGES = {"labels": "looking for classes", "rows": "reading", "distinct forecasts": "grouping"}


def audit(
    path: str,
    /,
    *,
    forecast: str,
    outcome: str,
    classes: str | None = None,
    by: str | None = None,
    bins: int = 10,
    norm: str = "l1,l2,linf",
    exact: Annotated[bool, Parameter(negative="--no-exact")] = True,
    tolerance: float = 1e-6,
    on_error: OnError = "stop",
    invalid_rows: Path | None = None,
    output: Path | None = None,
    force: bool = False,
    memory: str = "1GB",
    engine: Literal["duckdb", "spark"] = "duckdb",
    master: str | None = None,
    json: bool = False,
) -> int:
    """Measure how calibrated the forecasts in a log are: exactly and in bins, class by class, and by group.

    The log is a CSV, Parquet or JSON lines file (text also as .gz) of any size, with a row for each forecast: the
    probability of each class, and the class of the outcome.

        treecal audit log.parquet --forecast p_rain,p_sun --outcome weather

        treecal audit log.csv --forecast p --outcome clicked --by model,country --json

        treecal audit log.csv.gz --forecast p_a,p_b,p_c --outcome label --on-error collect --invalid-rows invalid.csv

        treecal audit s3a://logs/2026 --forecast p_a,p_b --outcome label --classes a,b --engine spark

    Exit codes: 0 fine, 1 invalid rows were left out, 2 bad input, 130 interrupted.

    Parameters
    ----------
    path
        The log.
    forecast
        Columns of the probabilities, in the order of the classes, separated by commas; one column of lists; or, for
        two classes, the column of the second one.
    outcome
        Column of the outcome's class; or one column for each class, with a 1 for the outcome's class.
    classes
        The classes, in the order of the probabilities; by default those found in the log.
    by
        Columns to group rows by.
    bins
        Number of bins of equal width for the binned errors.
    norm
        Norms for the exact errors: l1, l2, linf, or l and a number, as l1.5.
    exact
        Also compute the exact errors, of distinct forecasts: one more query, which reads the log twice.
    tolerance
        How far from 1 the probabilities of a row may sum.
    on_error
        At an invalid row: stop; skip it, and report how many there were at the end; or collect them for --invalid-rows.
    invalid_rows
        CSV file to write invalid rows to: row, line, and what is wrong (with --on-error collect).
    output
        CSV file to write the bins to, for a reliability diagram.
    force
        Overwrite existing files.
    memory
        Memory that grouping may use before it spills to disk.
    engine
        What counts the rows: DuckDB on this machine, or Spark, which needs --classes. Both give the same digits.
    master
        Where Spark runs, as local[2]; by default where spark-submit says, or on this machine.
    json
        Write one JSON document.
    """
    only_spark(engine, master)
    if (invalid_rows is not None) != (on_error == "collect"):
        raise ParameterError("--invalid-rows and --on-error collect go together, and one of them is missing.")
    with ExitStack() as stack:  # files that cannot be written are refused before the work, not after it
        files = [name and stack.enter_context(new_file(name, force=force)) for name in (output, invalid_rows)]
        asked: dict[str, Any] = {
            "forecast": split("--forecast", forecast),
            "outcome": split("--outcome", outcome),
            "classes": None if classes is None else split("--classes", classes),
            "by": [] if by is None else split("--by", by),
            "bins": bins,
            "norms": [as_norm(name) for name in split("--norm", norm)],
            "on_error": on_error,
            "tolerance": tolerance,
        }
        if engine == "spark":
            found = _on_spark(path, master, asked, exact=exact)
        else:
            with _bar() as tell:
                found = audit_log(path, **asked, exact=exact, memory_limit=memory, progress=tell)
        table, invalid = files
        if table is not None:
            first, *rest = found.bins()
            _write(table, [*first], (row.values() for row in (first, *rest)))
        if invalid is not None:
            _write(invalid, ["row", "line", "problem"], found.problems)
    if json:
        emit(found.to_dict())
    else:
        page().print(shown(found))
    if not found.problems.count:
        return Exit.FINE
    if json:
        say(str(found.problems))
    return Exit.FLAWED


def _on_spark(path: str, master: str | None, asked: dict[str, Any], *, exact: bool) -> Audit:
    from treecal.auditing.spark import audit as audit_there

    if not exact or asked["classes"] is None or asked["on_error"] == "collect" or len(asked["outcome"]) > 1:
        raise ParameterError(
            "--engine spark needs --classes and one column for --outcome, and has no --no-exact and no --invalid-rows."
        )
    spark = start(master)
    asked["outcome"] = asked["outcome"][0]
    return audit_there(read(spark, path), **asked)


def _write(path: Path, names: list[str], rows: Iterable[Iterable[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(map(inert, names))
        table.writerows(map(inert, row) for row in rows)


@contextmanager
def _bar() -> Iterator[Tell]:
    """Show a bar for each pass, with rate and remaining time, where standard error is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[count]:,} {task.fields[what]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty(), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def tell(what: str, count: int, share: float | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(_STAGES[what], count=0, what=what, rate="")
            seconds = bar.tasks[tasks[what]].elapsed or 0
            rate = f"{count / seconds:,.0f}/s" if seconds > 0 and count else ""
            total = None if share is None else 100
            bar.update(tasks[what], completed=100 * (share or 0), total=total, count=count, rate=rate)

        yield tell
