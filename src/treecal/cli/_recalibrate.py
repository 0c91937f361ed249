"""`treecal recalibrate`: a model's probabilities in, better ones out, as they come."""

from __future__ import annotations

import sys
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from treecal import correctors
from treecal.cli._coder import Coder, pick
from treecal.cli._options import Outcomes, split
from treecal.cli._rows import Faults, Kind, rows
from treecal.cli._terminal import Exit, Shield, emit, say
from treecal.correctors import Groups, all_correctors
from treecal.exceptions import OutcomeError, ParameterError, TreeCalError
from treecal.geometry._outcomes import read_outcome
from treecal.io import OnError

METHODS = dict(sorted(entry for kind in all_correctors() for entry in kind.methods().items()))
RULES = {
    kind.name: kind
    for kind in map(vars(correctors).get, correctors.__all__)
    if isinstance(kind, type) and issubclass(kind, Groups) and kind.name is not None
}
if TYPE_CHECKING:
    from treecal._typing import Array
    from treecal.correctors import Corrector
    from treecal.geometry import ConvexSet

    Method: TypeAlias = str
    Rule: TypeAlias = str
else:  # the choices that are offered and checked
    Method, Rule = Literal[tuple(METHODS)], Literal[tuple(RULES)]


def recalibrate(
    path: str = "-",
    /,
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    method: Method = "mean",
    groups: Rule | None = None,
    forecast: str | None = None,
    outcome: str = "outcome",
    kind: Kind | None = None,
    on_error: OnError = "stop",
    json: bool = False,
) -> int:
    """Recalibrate a model's probabilities, row by row, each before its outcome is learnt; then report what changed.

    A row holds the probabilities and the outcome. In a pipe they may come one after the other, the probabilities in one
    line of JSON and the outcome in the next: the better ones are written in between.

        treecal recalibrate model.csv --classes rain,sun --outcome weather

        treecal recalibrate model.jsonl --classes rain,sun --forecast probabilities --method vector > better.jsonl

    Corrected forecasts are written as JSON lines to standard output, the scores at the end to standard error.

    Exit codes: 0 fine, 1 bad rows were left out, 2 bad input, 130 interrupted.

    Parameters
    ----------
    path
        A file of rows; standard input by default.
    method
        mean, shift: of groups of forecasts; adaptive: a calibrated forecaster for each group; platt (two classes),
        temperature, vector: scaling of the logits, online; or scaling, and then means.
    groups
        Which forecasts form a group (mean, shift, adaptive, vector-then-mean): those with the same likeliest class and
        about the same probability of it, the default; those in one cell of a grid; those near one of 16 centroids.
    forecast
        Columns of the probabilities, in the order of the classes, with commas between them; or one that holds them all.
        By default "forecast", or the columns called like the classes.
    outcome
        Column of the outcome.
    kind
        What the file holds: by default as its name ends; standard input holds JSON lines.
    on_error
        At a bad row: stop; skip it, and say how many there were at the end; or collect, and list them at the end.
    json
        Write the scores as one more line of JSON, to standard output.
    """
    coder = Coder(outcomes)
    corrector = _corrector(method, groups, coder.space)
    columns = () if forecast is None else split("--forecast", forecast)
    faults = Faults(on_error)
    try:
        with Shield() as shield, rows(path, kind=kind) as stream:
            for place, parse in shield.waiting(stream):
                try:
                    b, y = _read(parse(), corrector, coder, columns, outcome)
                    if b is not None:
                        line = _line(corrector, coder, b)
                        with shield.opened():
                            emit(line)
                    if y is not None:
                        corrector.update(y)
                except TreeCalError as error:
                    faults.add(place, error)
    except KeyboardInterrupt:
        _score(corrector, json=json)
        faults.end()
        say(f"interrupted after {corrector.rounds:,} rounds.")
        return Exit.INTERRUPTED
    _score(corrector, json=json)
    return faults.end()


def _read(
    row: Any, corrector: Corrector, coder: Coder, said_in: tuple[str, ...], outcome: str
) -> tuple[Array | None, Array | None]:
    """Return the probabilities and the outcome, as far as they are there, all checked: a bad row leaves no trace."""
    if not isinstance(row, dict):
        raise OutcomeError("it is not an object, expected one with the probabilities and the outcome.")
    columns = said_in or ("forecast",)
    if not said_in and "forecast" not in row and coder.names and any(name in row for name in coder.names):
        columns = coder.names
    said, happened = any(name in row for name in columns), outcome in row
    if not (said or happened):
        raise OutcomeError(f"there is neither {', '.join(columns)} nor {outcome} among {', '.join(row) or 'nothing'}.")
    b = coder.point(pick(row, columns)) if said else None
    y = read_outcome(coder.space, coder.read(row, (outcome,)), corrector.rounds + 1) if happened else None
    return b, y


def _line(corrector: Corrector, coder: Coder, b: Array) -> dict[str, Any]:
    x = corrector.predict(b)
    line: dict[str, Any] = {"round": corrector.rounds + 1, "mean": coder.write(x.mean)}
    if len(x) > 1:
        line |= {"points": [coder.write(point) for point in x.points], "weights": x.weights}
    return line


def _corrector(method: str, groups: str | None, space: ConvexSet) -> Corrector:
    make = METHODS[method]
    if groups is None:
        return make(space)
    if "groups" not in signature(make).parameters:
        raise ParameterError(f"the method {method} has no groups.", hint="leave --groups out.")
    return make(space, groups=RULES[groups]())


def _score(corrector: Corrector, *, json: bool) -> None:
    if not corrector.rounds:
        say("no row has come, so there are no scores.")
    elif json:
        emit({"scores": corrector.report()})
    else:
        print(corrector.report(), file=sys.stderr)
