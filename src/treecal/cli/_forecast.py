"""`treecal forecast`: a stream of outcomes in, a stream of forecasts out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from treecal._atomic import check_regular
from treecal.cli._options import FileKind, Method, OnInvalid, Outcomes, described, split
from treecal.cli._rows import end, line, rows, source_name
from treecal.cli._signals import Shield
from treecal.cli._terminal import Exit, by_class, emit, say
from treecal.exceptions import HorizonError, ParameterError, TreeCalError
from treecal.io import Decoder, Problems
from treecal.io._decoder import class_labels
from treecal.state import load, save

if TYPE_CHECKING:
    from treecal.forecasters import Forecaster

Announce = Literal["distribution", "mean", "draw"]


def forecast(
    path: str = "-",
    /,
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    method: Method = Method(),  # noqa: B008 # frozen
    outcome: str | None = None,
    announce: Announce = "distribution",
    snapshot: Path | None = None,
    every: int = 1000,
    kind: FileKind = None,
    on_error: OnInvalid = "stop",
) -> int:
    r"""Forecast a stream: outcomes in, forecasts out as JSON lines, each before its outcome is read.

    The first forecast is written immediately, then one after each outcome, for the next round. So a process at the
    other end of a pipe can read a forecast, observe the outcome, write it, and read the next.

    An outcome is a line of JSON: the name of a class (on standard input also without quotes), the number of a class, a
    list of numbers, or an object that holds one of these under "outcome". Or it is a row of a CSV or Parquet file.

        printf 'rain\nsun\n' | treecal forecast --classes rain,sun --announce mean
        treecal forecast days.csv --outcome weather --classes rain,sun

    Exit codes: 0 success, 1 invalid rows were left out, 2 invalid input, 130 interrupted.

    Parameters
    ----------
    path
        A file of outcomes; by default standard input.
    outcome
        Column or key of the outcome; or those of its coordinates, separated by commas.
    announce
        What to write: the distribution, which is what is calibrated; its mean; or one point drawn from it.
    snapshot
        File to resume from, if it exists, and to save to: every --every rounds, at the end, on Ctrl-C and on SIGTERM.
    every
        Number of rounds between snapshots.
    """
    decoder = Decoder(outcomes.space(), outcome=() if outcome is None else split("--outcome", outcome))
    forecaster = method.make(decoder.space)
    if every < 1:
        raise ParameterError.expected("--every", every, "an integer of 1 or more")
    if snapshot is not None:
        forecaster = _resumed(snapshot, forecaster)
    problems = Problems(source_name(path), on_error)
    try:
        with Shield() as shield, rows(path, decoder, kind=kind) as stream:
            try:
                with shield.opened():
                    _write(forecaster, announce, seed=method.seed)
                for row in shield.waiting(stream):
                    try:
                        forecaster.update(decoder.outcome(row.read()))
                    except TreeCalError as error:  # beyond the horizon every row is invalid
                        problems.add(row.place, str(error), stop=isinstance(error, HorizonError))
                        continue
                    if snapshot is not None and forecaster.rounds % every == 0:
                        save(forecaster, snapshot)
                    with shield.opened():
                        _write(forecaster, announce, seed=method.seed)
            finally:
                if snapshot is not None:
                    save(forecaster, snapshot)
    except KeyboardInterrupt:
        end(problems)
        say(f"interrupted after {forecaster.rounds:,} rounds{f', saved in {snapshot}' if snapshot else ''}.")
        return Exit.INTERRUPTED
    return end(problems)


def _write(forecaster: Forecaster, announce: Announce, *, seed: int) -> None:
    try:
        x = forecaster.predict()
    except HorizonError:  # no round is left to forecast; another outcome is refused
        return
    if announce != "draw":
        emit(line(forecaster, x, points=announce == "distribution"))
        return
    # Seeded by the round, so that a resumed stream draws the same points.
    drawn = x.sample(np.random.default_rng([seed, forecaster.rounds]))
    emit({"round": forecaster.rounds + 1, "drawn": by_class(forecaster.space, drawn)})


def _resumed(path: Path, asked: Forecaster) -> Forecaster:
    """Return the forecaster in the snapshot, which must be the one asked for; without a snapshot, the one asked for."""
    if check_regular(path) is None:
        save(asked, path)  # a file that cannot be written is an error now, not after an hour
        return asked
    kept = load(path)
    old, new = class_labels(kept.space), class_labels(asked.space)
    if kept.space != asked.space and len(old) == len(new) > 0:  # their probabilities would be mixed up
        hint = f"--classes {','.join(old)} resumes it."
        if kept.space.classes is None:
            hint = f"it has no class names: --dim {len(old)} resumes it. (0.1.0 numbered them in alphabetical order.)"
        raise ParameterError(f"the classes of {path} are {', '.join(old)}, not {', '.join(new)}.", hint=hint)
    if described(kept) != described(asked):
        raise ParameterError(
            f"{path} holds {described(kept)}, but the options ask for {described(asked)}.",
            hint="use the options it was created with, or another snapshot.",
        )
    return kept  # type: ignore[no-any-return] # it is of the class asked for
