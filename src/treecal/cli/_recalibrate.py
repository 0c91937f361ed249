"""`treecal recalibrate`: a model's probabilities in, corrected ones out, as they come."""

from __future__ import annotations

import sys
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from treecal import correctors
from treecal.cli._options import Outcomes, split
from treecal.cli._rows import end, line, rows, source_name
from treecal.cli._terminal import Exit, Shield, emit, say
from treecal.correctors import Groups, all_correctors
from treecal.exceptions import OutcomeError, ParameterError, TreeCalError
from treecal.io import Decoder, Kind, OnError, Problems

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
    """Correct a model's probabilities, row by row, each before its outcome is learnt; then score them before and after.

    A row holds the probabilities and the outcome. In a pipe they may come one after the other, the probabilities in one
    line of JSON and the outcome in the next: the corrected ones are written in between.

        treecal recalibrate model.csv --classes rain,sun --outcome weather

        treecal recalibrate model.jsonl --classes rain,sun --forecast probabilities --method vector > corrected.jsonl

    Corrected forecasts are written as JSON lines to standard output, the scores at the end to standard error.

    Exit codes: 0 fine, 1 invalid rows were left out, 2 bad input, 130 interrupted.

    Parameters
    ----------
    path
        A file of rows; standard input by default.
    method
        mean, shift: of groups of similar forecasts; adaptive: a calibrated forecaster for each group; platt (two
        classes), temperature, vector: scaling of the logits, online; or scaling, and then means.
    groups
        How forecasts are grouped (mean, shift, adaptive, vector-then-mean): by likeliest class and its probability, the
        default; by the cell of a grid; or by the nearest of 16 centroids.
    forecast
        Columns of the probabilities, in the order of the classes, with commas between them; one that holds them all;
        or, of two classes, the column of the second's. By default "forecast", or the columns called like the classes.
    outcome
        Column of the outcome.
    kind
        What the file holds: by default as its name ends; standard input holds JSON lines.
    on_error
        At an invalid row: stop; skip it, and count it at the end; or collect, and list them all at the end.
    json
        Write the scores as one more line of JSON, to standard output.
    """
    columns = () if forecast is None else split("--forecast", forecast)
    decoder = Decoder(outcomes.space(), outcome=[outcome], forecast=columns)
    corrector = _corrector(method, groups, decoder.space)
    problems = Problems(source_name(path), on_error)
    try:
        with Shield() as shield, rows(path, decoder, kind=kind) as stream:
            for row in shield.waiting(stream):
                try:
                    b, y = _read(row.read(), decoder, outcome)
                    if b is not None:
                        x = corrector.predict(b)
                        with shield.opened():
                            emit(line(corrector, x, points=len(x) > 1))
                    if y is not None:
                        corrector.update(y)
                except TreeCalError as error:
                    problems.add(row.place, str(error))
    except KeyboardInterrupt:
        _score(corrector, json=json)
        end(problems)
        say(f"interrupted after {corrector.rounds:,} rounds.")
        return Exit.INTERRUPTED
    _score(corrector, json=json)
    return end(problems)


def _read(row: Any, decoder: Decoder, outcome: str) -> tuple[Array | None, Array | None]:
    """Return the probabilities and the outcome, if they are there, all checked: an invalid row leaves no trace."""
    if not isinstance(row, dict):
        raise OutcomeError("it is not an object, expected one with the probabilities and the outcome.")
    columns = decoder.forecast_columns(row)
    given = any(name in row for name in columns)
    if not (given or outcome in row):
        raise OutcomeError(f"there is neither {', '.join(columns)} nor {outcome} among {', '.join(row) or 'nothing'}.")
    return decoder.forecast(row) if given else None, decoder.outcome(row) if outcome in row else None


def _corrector(method: str, groups: str | None, space: ConvexSet) -> Corrector:
    make = METHODS[method]
    if groups is None:
        return make(space)
    if "groups" not in signature(make).parameters:
        raise ParameterError(f"the method {method} has no groups.", hint="leave --groups out.")
    return make(space, groups=RULES[groups]())


def _score(corrector: Corrector, *, json: bool) -> None:
    if not corrector.rounds:
        say("there were no outcomes, so there are no scores.")
    elif json:
        emit({"scores": corrector.report()})
    else:
        print(corrector.report(), file=sys.stderr)
