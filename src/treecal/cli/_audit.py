"""`treecal audit`: how calibrated the forecasts in a log are, whatever its size."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.progress import TaskProgressColumn, TextColumn

from treecal.auditing import NumberAudit, audit as audit_log, shown
from treecal.cli._numbers import NumberColumns
from treecal.cli._options import Decimal, Force, Json, OnInvalid, as_norm, check_limit, read_losses, split
from treecal.cli._progress import bars
from treecal.cli._rows import source_name
from treecal.cli._signals import interrupts
from treecal.cli._terminal import Exit, emit, page, say
from treecal.correctors import method_of
from treecal.exceptions import ParameterError
from treecal.io import Problem, Source, find_probabilities, new_file, open_source, open_stream, write_csv

if TYPE_CHECKING:
    from treecal.auditing import Audit, Progress

STDIN = "/dev/stdin"
"""Stands for -, which on the command line would be an option."""
_STAGES = {"labels": "finding classes", "rows": "reading", "distinct forecasts": "grouping"}


def audit(
    *paths: str,
    forecast: str | None = None,
    numbers: NumberColumns = NumberColumns(),  # noqa: B008 # frozen
    outcome: str = "outcome",
    classes: str | None = None,
    by: str | None = None,
    time: str | None = None,
    window: Literal["minute", "hour", "day", "week", "month", "year"] | None = None,
    day_first: bool = False,
    loss: str | None = None,
    weight: str | None = None,
    probability: str | None = None,
    proxy: str | None = None,
    bins: int = 10,
    norm: str = "l1,l2,linf",
    exact: Annotated[bool, Parameter(negative="--no-exact")] = True,
    tolerance: float | None = None,
    decimal: Decimal = ".",
    fail_above: float | None = None,
    on_error: OnInvalid = "stop",
    invalid_rows: Path | None = None,
    output: Path | None = None,
    report: Path | None = None,
    force: Force = False,
    memory: str = "1GB",
    engine: Literal["duckdb", "spark"] = "duckdb",
    master: str | None = None,
    json: Json = False,
) -> int:
    """Measure how calibrated the forecasts in a log are: exactly and in bins, class by class, and by group.

    The log is a CSV, Parquet or JSON lines file (text also as .gz) of any size, or several of one format, with one row
    per forecast: the probability of each class, and the class of the outcome.

        treecal audit log.parquet --forecast p_rain,p_sun --outcome weather
        treecal audit log.csv --forecast p --outcome clicked --by model --json
        treecal audit log.csv --forecast p --outcome clicked --time day --loss "0,4; 1,1"
        treecal audit log.csv --forecast p_a,p_b --outcome label --output bins.csv
        treecal audit log.csv --forecast p --outcome clicked --by model --report log.html
        treecal audit logs/ --forecast p --outcome clicked --time day
        treecal audit log.parquet --quantiles q10,q50,q90 --outcome load --by station --time day
        zcat log.csv.gz | treecal audit - --forecast p --outcome clicked

    Exit codes: 0 success, 1 invalid rows were left out, 2 invalid input, 3 a calibration error above --fail-above, 130
    interrupted.

    Parameters
    ----------
    paths
        The log: files, folders (without hidden files, and those that begin with _), or patterns such as "logs/*.csv".
        Folders below them, or that a pattern matches, named day=2026-01-31 and the like, add a column of text. Or -
        for standard input: CSV, JSON lines or Parquet.
    forecast
        Columns of the probabilities, in the order of the classes, separated by commas; or one column of lists; or, for
        two classes, the column of the second one, or of the one that it is named after (p_rain). By default "forecast",
        or the columns named like the classes, also with a common prefix: p_rain, p_sun.
    outcome
        Column of the outcome's class, by default outcome; or one column per class, with a 1 for the outcome's class.
    classes
        The classes, in the order of the probabilities; by default those found in the log.
    by
        Columns to group rows by, separated by commas.
    time
        Column of dates, times or numbers: rows are also counted by windows of time, and if they are in its order, a
        monitor watches them and says when it raised an alarm.
    window
        The windows of --time; by default the finest of which there are at most 40.
    day_first
        The dates of --time begin with the day, as 31.01.2026 or 31/01/2026 12:00. Without it these are refused.
    loss
        What each action costs under each class: a row per action, separated by semicolons, its costs by commas. Or a
        CSV file of them, with a column of the actions' names and one for each class.
    weight
        Column of the weights of rows: a row of weight 3 counts as three.
    probability
        Where few rows have an outcome: a number, or the column, of the probability with which each was drawn to be
        labelled. Measures are then estimated for all rows, which are read into memory.
    proxy
        Column of what stands for the outcome in every row, such as a judge's opinion; or one for each class, separated
        by commas. Needs --probability.
    bins
        Number of bins of equal width for the binned errors.
    norm
        Norms of the exact errors, separated by commas: l1, l2, linf, or l followed by a number, such as l1.5.
    exact
        Compute the exact errors of distinct forecasts: one more query, which reads the log twice.
    tolerance
        To what the probabilities were rounded, such as 1e-4: those of two classes may sum to 1 within it, those of d
        classes within d/2 times it. By default the decimals of the first 1,000 rows tell.
    fail_above
        Exit with code 3 if the class-wise calibration error, as measured in the bins, exceeds this number, as few rows
        do by chance.
    invalid_rows
        CSV file for the invalid rows: row, line and reason (with --on-error collect).
    output
        CSV file for the bins, for a reliability diagram.
    report
        HTML file for a report with plots; needs the extra `plots`.
    memory
        Memory that grouping may use before it spills to disk.
    engine
        DuckDB on this machine, or Spark, which needs --classes. Both give the same digits.
    master
        Spark's master, such as local[2]; by default the one spark-submit sets, or this machine.
    """
    if engine == "spark" and decimal != ".":
        raise ParameterError("--engine spark has no --decimal.")
    if master is not None and engine != "spark":
        raise ParameterError.expected("--master", master, "nothing, unless --engine spark")
    if not paths:
        raise ParameterError("there is no log to audit.", hint="treecal audit log.csv, or - for standard input.")
    check_limit(fail_above)
    if day_first and time is None:
        raise ParameterError("--day-first is about the dates of --time, which is missing.")
    if (invalid_rows is not None) != (on_error == "collect"):
        raise ParameterError("--invalid-rows and --on-error collect go together, and one of them is missing.")
    with ExitStack() as stack:  # a file that cannot be written is an error before the work, not after it
        files = output, invalid_rows, report
        table, invalid, paper = (name and stack.enter_context(new_file(name, force=force)) for name in files)
        log: Source | None = None
        if engine == "duckdb":
            log = _opened(paths, stack, memory, decimal, time if day_first else None)
        elif len(paths) > 1 or STDIN in paths:
            raise ParameterError("--engine spark reads one file or folder.")
        options: dict[str, Any] = {
            "outcome": outcome,
            "by": split("--by", by),
            "time": time,
            "window": window,
            "on_error": on_error,
        }
        if numbers.given:
            if log is None or any(each is not None for each in (forecast, classes, loss, weight, fail_above)):
                others = "--forecast, --classes, --loss, --weight, --fail-above and --engine spark"
                raise ParameterError(f"forecasts of a number have no {others}.")
            options |= numbers.named()
        else:
            names = split("--classes", classes) or None
            came = split("--outcome", outcome)
            few = {"probability": _number(probability), "proxy": split("--proxy", proxy) or None}
            options |= {name: value for name, value in few.items() if value is not None}
            options |= {
                "forecast": split("--forecast", forecast) or _columns(log, came, names),
                "outcome": came,
                "classes": names,
                "loss": None if loss is None else read_losses(loss),
                "weight": weight,
                "bins": bins,
                "norms": [as_norm(name) for name in split("--norm", norm)],
                "tolerance": tolerance,
                "exact": exact,
            }
        found: Audit | NumberAudit
        if log is None:
            found = _on_spark(paths[0], master, options)
        else:
            with _bars() as progress:
                found = audit_log(log, **options, progress=progress)
        _written(found, table, invalid)
        if paper is not None:
            paper.write_text(_reported(found, paths), "utf-8")
    error = 0.0 if isinstance(found, NumberAudit) else found.whole.classwise_ece  # of numbers there is no limit
    above = fail_above is not None and error > fail_above
    if json:
        emit(found.to_dict() | ({} if fail_above is None else {"fail_above": fail_above}))
        if found.problems.count:
            say(str(found.problems))
    else:
        page().print(found if isinstance(found, NumberAudit) else shown(found, _option))
        if fail_above is not None:
            verdict = "above" if above else "not above"
            page().print(f"\nClass-wise calibration error {error:.4f}, {verdict} {fail_above:g}.", soft_wrap=True)
    if above:
        return Exit.ALARM
    return Exit.FLAWED if found.problems.count else Exit.FINE


def _opened(paths: tuple[str, ...], stack: ExitStack, memory_limit: str, decimal: str, day_first: str | None) -> Source:
    """Open the log; standard input is kept in a file until the end."""
    asked: Any = {"memory_limit": memory_limit, "decimal": decimal, "day_first": day_first}
    if STDIN not in paths:
        return open_source(paths[0] if len(paths) == 1 else list(paths), **asked)
    if len(paths) > 1:
        raise ParameterError("- is standard input, and goes with no other file.")
    if sys.stdin.isatty():
        say("reading standard input; Ctrl-D ends it.")
    return stack.enter_context(open_stream(sys.stdin.buffer, source_name("-"), **asked))


def _number(text: str | None) -> str | float | None:
    """Return a number as one, and the name of a column as it is."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _columns(log: Source | None, outcome: tuple[str, ...], classes: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the columns of the probabilities, where none were named."""
    if log is None or len(outcome) > 1:
        raise ParameterError(
            "it is not known which columns hold the probabilities.", hint="name them: --forecast p_rain,p_sun."
        )
    return find_probabilities(log, outcome[0], classes)


def _written(found: Audit | NumberAudit, table: Path | None, invalid: Path | None) -> None:
    """Write the bins and the invalid rows, if that is asked for."""
    if table is not None:
        first, *rest = found.bins()
        write_csv(table, [first.keys(), *(row.values() for row in (first, *rest))])
    if invalid is not None:
        width = 4 if any(problem.file for problem in found.problems) else 3
        write_csv(invalid, [Problem._fields[:width], *(problem[:width] for problem in found.problems)])


def _reported(found: Audit | NumberAudit, paths: tuple[str, ...]) -> str:
    """Return a report of the audit as HTML."""
    from treecal import report

    files = ", ".join("-" if path == STDIN else path for path in paths)
    details = {"file": files, "rows": f"{found.whole.rounds:,}", "invalid rows": f"{found.problems.count:,}"}
    name = Path(found.source).name
    command = shlex.join(["treecal", *sys.argv[1:]])
    title = f"Audit of {name}"
    if isinstance(found, NumberAudit):
        return report.render_numbers(found, title=title, details=details, command=command)
    return report.render([report.audited(found, title=name)], title=title, details=details, command=command)


def _option(kind: str) -> str:
    """Return how the command line calls a corrector."""
    return "treecal recalibrate --by" if kind == "ByGroup" else f"treecal recalibrate --method {method_of(kind)}"


def _on_spark(path: str, master: str | None, options: dict[str, Any]) -> Audit:
    from treecal.auditing.spark import audit as audit_on_spark
    from treecal.cli._spark import read
    from treecal.keyed.session import session

    if (
        not options.pop("exact")
        or options["classes"] is None
        or options["on_error"] == "collect"
        or len(options["outcome"]) > 1
    ):
        raise ParameterError(
            "--engine spark needs --classes and one column for --outcome; it has no --no-exact and no --invalid-rows."
        )
    others = [options.pop(name, None) for name in ("time", "window", "loss", "probability", "proxy")]
    if any(each is not None for each in others):
        raise ParameterError("--engine spark has no --time, --window, --loss, --probability and --proxy.")
    options["outcome"] = options["outcome"][0]
    return audit_on_spark(read(session(master), path), **options)


@contextmanager
def _bars() -> Iterator[Progress]:
    """Show a bar for each stage, with rate and remaining time."""
    with bars(TaskProgressColumn(), TextColumn("{task.fields[text]}")) as bar:
        tasks: dict[str, Any] = {}

        def progress(what: str, count: int, share: float | None) -> None:
            interrupts.check()
            if what not in tasks:
                tasks[what] = bar.add_task(_STAGES[what], text="")
            seconds = bar.tasks[tasks[what]].elapsed
            rate = f" {count / seconds:,.0f}/s" if seconds and count else ""
            total = None if share is None else 1.0
            bar.update(tasks[what], completed=share or 0, total=total, text=f"{count:,} {what}{rate}")

        yield progress
