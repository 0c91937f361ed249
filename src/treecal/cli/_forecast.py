"""`treecal forecast`: outcomes in, forecasts out, as they come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from treecal.cli._coder import Coder
from treecal.cli._options import Method, Outcomes, described, split
from treecal.cli._rows import Faults, Kind, rows
from treecal.cli._terminal import Exit, Shield, emit, say
from treecal.exceptions import HorizonError, ParameterError, TreeCalError
from treecal.io import OnError
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

    The first forecast is written at once; then one after each outcome, for the round to come. So a process on the other
    side of a pipe can read a forecast, see what happens, write it, and read the next.

    An outcome is a line of JSON, the name of a class (quotes or not), a number of a class, a list of numbers, or an
    object that holds one of these under "outcome"; or a row of CSV with a header; or of Parquet.

        printf 'rain\nrain\nsun\n' | treecal forecast --classes rain,sun --announce mean

        treecal forecast days.csv --outcome weather --classes rain,sun --snapshot days.treecal

    Exit codes: 0 fine, 1 bad lines were left out, 2 bad input, 130 interrupted.

    Parameters
    ----------
    path
        A file of outcomes; standard input by default.
    outcome
        Column or key of the outcome; several, with commas between them, for the coordinates of a vector.
    announce
        What is written: the distribution, which is what is calibrated; its mean; or one point drawn from it.
    snapshot
        A file to go on from, if it exists, and to save to: at the end, on Ctrl-C and SIGTERM, and every so often.
    every
        Save the snapshot after so many rounds.
    kind
        What the file holds: by default as its name ends; standard input holds JSON lines.
    on_error
        At a bad line: stop; skip it, and say how many there were at the end; or collect, and list them at the end.
    """
    coder = Coder(outcomes)
    forecaster = method.make(coder.space)
    columns = () if outcome is None else split("--outcome", outcome)
    if every < 1:
        raise ParameterError.expected("--every", every, "an integer of 1 or more")
    if snapshot is not None:
        forecaster = _resumed(snapshot, forecaster)
    faults = Faults(on_error)
    try:
        with Shield() as shield, rows(path, kind=kind) as stream:
            try:
                with shield.opened():
                    _write(forecaster, coder, announce, seed=method.seed)
                for place, parse in shield.waiting(stream):
                    try:
                        forecaster.update(coder.read(parse(), columns))
                    except TreeCalError as error:
                        faults.add(place, error)
                        continue
                    if snapshot is not None and forecaster.rounds % every == 0:
                        save(forecaster, snapshot)
                    with shield.opened():
                        _write(forecaster, coder, announce, seed=method.seed)
            finally:
                if snapshot is not None:
                    save(forecaster, snapshot)
    except KeyboardInterrupt:
        faults.end()
        say(f"interrupted after {forecaster.rounds:,} rounds{f', kept in {snapshot}' if snapshot else ''}.")
        return Exit.INTERRUPTED
    return faults.end()


def _write(forecaster: Forecaster, coder: Coder, announce: Announce, *, seed: int) -> None:
    try:
        x = forecaster.predict()
    except HorizonError:  # nothing is left to announce; an outcome that comes all the same is refused
        return
    line: dict[str, Any] = {"round": forecaster.rounds + 1}
    if announce == "draw":
        # Seeded by the round, so that a resumed stream draws as an unbroken one.
        line["drawn"] = coder.write(x.sample(np.random.default_rng([seed, forecaster.rounds])))
    else:
        line["mean"] = coder.write(x.mean)
    if announce == "distribution":
        line |= {"points": [coder.write(point) for point in x.points], "weights": x.weights}
    emit(line)


def _resumed(path: Path, asked: Forecaster) -> Forecaster:
    """Return the forecaster in the snapshot if it is the one asked for; without a snapshot, the one asked for."""
    if not path.exists():
        save(asked, path)  # what cannot be written should fail now, and not after an hour
        return asked
    kept = load(path)
    if described(kept) != described(asked):
        raise ParameterError(
            f"{path} holds {described(kept)}, and the options ask for {described(asked)}.",
            hint="give the options it was made with, or another snapshot.",
        )
    return kept  # type: ignore[no-any-return] # it is of the class asked for
