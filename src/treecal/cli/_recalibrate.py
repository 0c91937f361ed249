"""`treecal recalibrate`: a stream of a model's probabilities in, corrected ones out."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from treecal import correctors
from treecal.cli._guard import Guard
from treecal.cli._options import FileKind, OnInvalid, Outcomes, split
from treecal.cli._rows import end, line, rows, source_name
from treecal.cli._signals import Shield
from treecal.cli._terminal import Exit, emit, page, say
from treecal.correctors import Groups, all_correctors
from treecal.exceptions import OutcomeError, ParameterError, TreeCalError
from treecal.io import Decoder, Problems

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
    kind: FileKind = None,
    on_error: OnInvalid = "stop",
    json: bool = False,
) -> int:
    """Correct a model's probabilities, row by row, each before its outcome is read; then score them before and after.

    A row holds the probabilities and the outcome. In a pipe they may come one after the other, the probabilities in one
    line of JSON and the outcome in the next: the corrected ones are written in between. Corrected forecasts go to
    standard output as JSON lines, the scores to standard error.

        treecal recalibrate model.csv --classes rain,sun --outcome weather
        treecal recalibrate model.jsonl --classes rain,sun --method vector

    Exit codes: 0 success, 1 invalid rows were left out, 2 invalid input, 130 interrupted.

    Parameters
    ----------
    path
        A file of rows; by default standard input.
    method
        mean, shift: of groups of similar forecasts; adaptive: a calibrated forecaster per group; platt, beta (two
        classes), temperature, vector: online scaling of the logits; isotonic: isotonic regression for each class;
        vector-then-mean: scaling, then means; guarded: the model's probabilities
        themselves while their calibration error is within a budget, a certified forecaster's otherwise;
        vector-then-guarded: those after scaling; gated: the model's probabilities themselves until those after scaling
        have proved to be better.
    groups
        How mean, shift, adaptive and vector-then-mean group forecasts: by the most likely class and its probability,
        the default; by the cell of a grid; or by the nearest of 16 centroids.
    forecast
        Columns of the probabilities, in the order of the classes, separated by commas; or one column of lists; or, for
        two classes, the column of the second one. By default "forecast", or the columns named like the classes.
    outcome
        Column of the outcome.
    json
        Write the scores to standard output, as the last line of JSON.
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
        _score(corrector, problems, json=json)
        say(f"interrupted after {corrector.rounds:,} rounds.")
        return Exit.INTERRUPTED
    return _score(corrector, problems, json=json)


def _read(row: Any, decoder: Decoder, outcome: str) -> tuple[Array | None, Array | None]:
    """Return the probabilities and the outcome, as far as they are there: both are checked before either is used."""
    if not isinstance(row, dict):
        raise OutcomeError("it is not an object, expected one with the probabilities and the outcome.")
    columns = decoder.forecast_columns(row)
    given = any(name in row for name in columns)
    if not (given or outcome in row):
        raise OutcomeError(f"it has neither {', '.join(columns)} nor {outcome}, only {', '.join(row) or 'nothing'}.")
    return decoder.forecast(row) if given else None, decoder.outcome(row) if outcome in row else None


def _corrector(method: str, groups: str | None, space: ConvexSet) -> Corrector:
    make = METHODS[method]
    if groups is None:
        return make(space)
    if "groups" not in signature(make).parameters:
        raise ParameterError(f"the method {method} has no groups.", hint="leave --groups out.")
    return make(space, groups=RULES[groups]())


def _score(corrector: Corrector, problems: Problems, *, json: bool) -> Exit:
    if not corrector.rounds:
        say("no outcomes, so no scores.")
        return end(problems)
    guard = Guard.of(corrector)
    if json:
        did = {} if guard is None else {"guard": guard.document()}
        emit({"scores": corrector.report(), **did, **problems.to_dict()})
    else:
        page(stderr=True).print(str(corrector.report()), markup=False, soft_wrap=True)
        if guard is not None:
            page(stderr=True).print(str(guard), markup=False, soft_wrap=True)
    return end(problems)
