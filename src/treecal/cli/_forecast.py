"""`treecal forecast`: a stream of outcomes in, a stream of forecasts out."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from treecal.cli._findings import Guard
from treecal.cli._options import Following, Force, Method, Outcomes, split
from treecal.cli._reader import News, Reader, names_of
from treecal.cli._rounds import Rounds
from treecal.cli._rows import line
from treecal.cli._session import Steps, finished, follow, following
from treecal.cli._signals import Shield
from treecal.cli._terminal import by_class, emit, say
from treecal.exceptions import ParameterError
from treecal.forecasters import Guarded
from treecal.io import Decoder
from treecal.late import Late

if TYPE_CHECKING:
    from treecal.forecast import Forecast

Announce = Literal["distribution", "mean", "draw"]


def forecast(
    path: str = "-",
    /,
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    method: Method = Method(),  # noqa: B008 # frozen
    outcome: str | None = None,
    options: Following = Following(),  # noqa: B008 # frozen
    announce: Announce = "distribution",
    output: Path | None = None,
    force: Force = False,
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
        output. A snapshot is then saved at the end only.
    """
    options.check(path, output, ids=options.id is not None)
    space = outcomes.space()
    columns = named = split("--outcome", outcome)
    if options.id is not None:
        columns = columns or ("outcome",)
    names = names_of(space, "forecast")
    reader = Reader(
        Decoder(space, outcome=columns),
        columns,
        corrects=False,
        **options.columns(),
        added=names if output is not None else (),
        named=[*named, *options.named],
    )
    shield = Shield()

    def write(rounds: Rounds, number: int, news: News, x: Forecast) -> None:
        with shield.opened():
            emit(news.labelled(_line(rounds, number, x, announce, seed=method.seed)))

    def begin(rounds: Rounds) -> None:
        if options.id is not None:
            rounds.by_name()
        elif isinstance(rounds.thing, Late):
            problem = f"the rounds in {options.snapshot} have ids."
            raise ParameterError(problem, hint="--id names the column of the ids.")
        else:
            ask(rounds)

    def ask(rounds: Rounds) -> None:
        if options.id is None:
            rounds.ask(partial(write, rounds))

    found = follow(
        path,
        reader,
        options,
        following(method.make(space), Rounds, options, output=output, force=force, names=names),
        Steps(lambda rounds, row: rounds.take(reader.read(row), partial(write, rounds)), begin=begin, after=ask),
        shield,
    )
    if not found.interrupted:
        # A pipe gets the part that forecast each round.
        if sys.stderr.isatty() and (guard := Guard.of(found.rounds.thing)):
            say(str(guard))
        if found.rounds.void:
            say(found.rounds.standing)
    return finished(found, options)


def _line(rounds: Rounds, number: int, x: Forecast, announce: Announce, *, seed: int) -> dict[str, Any]:
    space = rounds.inner.space
    part = dict[str, Any]()
    if isinstance(rounds.thing, Guarded):
        part = {"part": "eager" if rounds.thing.eager_speaks else "safe"}
    if announce != "draw":
        return line(space, number, x, points=announce == "distribution") | part
    # Seeded by the round, so that a resumed stream draws the same points.
    drawn = x.sample(np.random.default_rng([seed, number - 1]))
    return {"round": number, "drawn": by_class(space, drawn)} | part
