"""`treecal forecast`: outcomes in, forecasts out, as they come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from treecal.cli._options import Method, Outcomes, described, split
from treecal.cli._rows import end, line, named, rows, source_name
from treecal.cli._terminal import Exit, Shield, emit, say
from treecal.exceptions import HorizonError, ParameterError, TreeCalError
from treecal.io import Decoder, Kind, OnError, Problems
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
    kind: Kind | None = None,
    on_error: OnError = "stop",
) -> int:
    r"""Forecast a stream: outcomes in, forecasts out as JSON lines, each before its outcome is read.

    The first forecast is written at once; then one after each outcome, for the next round. So a process at the other
    end of a pipe can read a forecast, observe the outcome, write it, and read the next.

    An outcome is a line of JSON: the name of a class (on standard input also without quotes), the number of a class, a
    list of numbers, or an object that holds one of these under "outcome"; or a row of CSV with a header; or of Parquet.
    Blanks around a CSV cell are not part of it.

        printf 'rain\nrain\nsun\n' | treecal forecast --classes rain,sun --announce mean

        treecal forecast days.csv --outcome weather --classes rain,sun --snapshot days.treecal

    Exit codes: 0 fine, 1 invalid rows were left out, 2 bad input, 130 interrupted.

    Parameters
    ----------
    path
        A file of outcomes; standard input by default.
    outcome
        Column or key of the outcome; several, with commas between them, for the coordinates of a vector.
    announce
        What is written: the distribution, which is what is calibrated; its mean; or one point drawn from it.
    snapshot
        A file to resume from, if it exists, and to save to: at the end, on Ctrl-C and SIGTERM, and every so often.
    every
        Number of rounds between snapshots.
    kind
        What the file holds: by default as its name ends; standard input holds JSON lines.
    on_error
        At an invalid row: stop; skip it, and count it at the end; or collect, and list them all at the end.
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
                    except TreeCalError as error:  # beyond the horizon every row would be invalid
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
    # Seeded by the round, so that a resumed stream draws as an unbroken one.
    drawn = x.sample(np.random.default_rng([seed, forecaster.rounds]))
    emit({"round": forecaster.rounds + 1, "drawn": named(forecaster.space, drawn)})


def _resumed(path: Path, asked: Forecaster) -> Forecaster:
    """Return the forecaster in the snapshot if it is the one asked for; without a snapshot, the one asked for."""
    if not path.exists():
        save(asked, path)  # what cannot be written should fail now, and not after an hour
        return asked
    kept = load(path)
    were, are = class_labels(kept.space), class_labels(asked.space)
    if kept.space != asked.space and len(were) == len(are) > 0:  # their probabilities would be mixed up
        hint = f"--classes {','.join(were)} resumes it."
        if kept.space.classes is None:
            hint = f"it has no class names: --dim {len(were)} resumes it. (0.1.0 numbered them in alphabetical order.)"
        raise ParameterError(f"the classes of {path} are {', '.join(were)}; these are {', '.join(are)}.", hint=hint)
    if described(kept) != described(asked):
        raise ParameterError(
            f"{path} holds {described(kept)}, and the options ask for {described(asked)}.",
            hint="give the options it was made with, or another snapshot.",
        )
    return kept  # type: ignore[no-any-return] # it is of the class asked for
