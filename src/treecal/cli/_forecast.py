"""`treecal forecast`: a stream of outcomes in, a stream of forecasts out."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter

from treecal.cli._guard import Guard
from treecal.cli._options import (
    Due,
    Every,
    FileKind,
    Force,
    Limit,
    Method,
    NewFile,
    Now,
    OnInvalid,
    OutcomeFor,
    Outcomes,
    SnapshotFile,
    split,
)
from treecal.cli._reader import News, Reader, names_of
from treecal.cli._rows import blocks, end, first_rows, line, source_name
from treecal.cli._session import Steps, check_apart, check_times, follow, say_interrupted, session
from treecal.cli._signals import Shield
from treecal.cli._terminal import Exit, by_class, emit, say
from treecal.exceptions import ParameterError
from treecal.forecasters import Guarded
from treecal.io import Decoder, Problems
from treecal.late import Late

if TYPE_CHECKING:
    from treecal.cli._rounds import Rounds
    from treecal.forecast import Forecast

Announce = Literal["distribution", "mean", "draw"]


def forecast(
    path: str = "-",
    /,
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    method: Method = Method(),  # noqa: B008 # frozen
    outcome: str | None = None,
    id_: Annotated[
        str | None, Parameter(name="--id", help="Column or key of the id of a forecast that is asked for.")
    ] = None,
    outcome_for: OutcomeFor = None,
    limit: Limit = None,
    due: Due = None,
    now: Now = None,
    announce: Announce = "distribution",
    snapshot: SnapshotFile = None,
    every: Every = 1000,
    new_file: NewFile = False,
    output: Path | None = None,
    force: Force = False,
    kind: FileKind = None,
    on_error: OnInvalid = "stop",
) -> int:
    r"""Forecast a stream: outcomes in, forecasts out as JSON lines, each before its outcome is read.

    The first forecast is written immediately, then one after each outcome, for the next round. So a process at the
    other end of a pipe can read a forecast, observe the outcome, write it, and read the next.

    An outcome is a line of JSON: the name of a class (on standard input also without quotes), the number of a class, a
    list of numbers, or an object that holds one of these under "outcome". Or it is a row of a CSV or Parquet file.

    With --id, outcomes may come late and in any order: a row with that column asks for a forecast, and a row that names
    it in "outcome_for" brings its outcome.

        printf 'rain\nsun\n' | treecal forecast --classes rain,sun --announce mean
        treecal forecast days.csv --outcome weather --classes rain,sun --snapshot days.treecal
        printf '{"id": "42"}\n' | treecal forecast --classes rain,sun --id id --announce mean

    Exit codes: 0 success, 1 invalid rows were left out, 2 invalid input, 130 interrupted, 141 the reader
    of standard output has gone.

    Parameters
    ----------
    path
        A file of outcomes; by default standard input.
    outcome
        Column or key of the outcome; or those of its coordinates, separated by commas.
    announce
        What to write: the distribution, which is what is calibrated; its mean; or one point drawn from it.
    output
        File for the rounds whose outcome is known, which `treecal audit` reads: the row's columns, the outcome, and
        the mean of the forecast, as forecast_rain, forecast_sun. Its name tells the format: .csv, .tsv or .txt;
        .jsonl, .ndjson or .json; .parquet or .pq. Forecasts that still await their outcome are written to standard
        output.
    """
    check_apart(path, output, snapshot)
    check_times(due, now, limit, ids=id_ is not None)
    space = outcomes.space()
    columns = named = () if outcome is None else split("--outcome", outcome)
    if id_ is not None:
        columns = columns or ("outcome",)
    names = names_of(space, "forecast")
    reader = Reader(
        Decoder(space, outcome=columns),
        columns,
        corrects=False,
        id=id_,
        outcome_for=outcome_for or "outcome_for",
        added=names if output is not None else (),
        named=[name for name in (*named, id_, outcome_for, due, now) if name is not None],
        due=due,
        now=now,
    )
    reader.check_first(source_name(path), first_rows(path, kind=kind))
    problems = Problems(source_name(path), on_error)
    options: dict[str, Any] = {"snapshot": snapshot, "every": every, "new_file": new_file, "limit": limit}
    shield = Shield()

    def write(rounds: Rounds, number: int, news: News, x: Forecast) -> None:
        with shield.opened():
            emit(news.labelled(_line(rounds, number, x, announce, seed=method.seed)))

    def begin(rounds: Rounds) -> None:
        if id_ is not None:
            rounds.by_name()
        elif isinstance(rounds.thing, Late):
            raise ParameterError(f"the rounds in {snapshot} have ids.", hint="--id names the column of the ids.")
        else:
            ask(rounds)

    def ask(rounds: Rounds) -> None:
        if id_ is None:
            rounds.ask(partial(write, rounds))

    rounds, interrupted = follow(
        path,
        lambda: blocks(path, reader, kind=kind),
        session(method.make(space), **options, output=output, force=force, names=names),
        Steps(
            lambda rounds, row: rounds.take(reader.read(row), partial(write, rounds)),
            reader.complaint,
            begin=begin,
            after=ask,
        ),
        problems,
        shield,
    )
    if interrupted:
        end(problems)
        say_interrupted(rounds.learned, snapshot if rounds.changed else None)
        return Exit.INTERRUPTED
    if sys.stderr.isatty() and (guard := Guard.of(rounds.thing)):  # a pipe gets the part that forecast each round
        say(str(guard))
    if rounds.void:
        say(rounds.standing)
    return end(problems)


def _line(rounds: Rounds, number: int, x: Forecast, announce: Announce, *, seed: int) -> dict[str, Any]:
    space, part = rounds.inner.space, dict[str, Any]()
    if isinstance(rounds.thing, Guarded):
        part = {"part": "eager" if rounds.thing.eager_speaks else "safe"}
    if announce != "draw":
        return line(space, number, x, points=announce == "distribution") | part
    # Seeded by the round, so that a resumed stream draws the same points.
    drawn = x.sample(np.random.default_rng([seed, number - 1]))
    return {"round": number, "drawn": by_class(space, drawn)} | part
