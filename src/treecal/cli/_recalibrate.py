"""`treecal recalibrate`: a stream of a model's probabilities in, corrected ones out."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from treecal import correctors
from treecal.cli._findings import Guard
from treecal.cli._numbers import NumberLog, Numbers, recalibrate_numbers
from treecal.cli._options import Decimal, Following, Force, Outcomes, split
from treecal.cli._reader import Batch, News, Reader, names_of
from treecal.cli._rounds import Rounds
from treecal.cli._rows import line, lines_of
from treecal.cli._session import Many, Steps, finished, follow, following
from treecal.cli._signals import Shield
from treecal.cli._terminal import emit, emit_lines, page, say
from treecal.correctors import Groups, all_correctors
from treecal.exceptions import ParameterError
from treecal.geometry import ROUNDING, Simplex, checked_tolerance, pairing
from treecal.io import Decoder

METHODS = dict(sorted(entry for kind in all_correctors() for entry in kind.methods().items()))
RULES = {
    kind.name: kind
    for kind in map(vars(correctors).get, correctors.__all__)
    if isinstance(kind, type) and issubclass(kind, Groups) and kind.name is not None
}
if TYPE_CHECKING:
    from treecal._typing import Array
    from treecal.correctors import Corrector
    from treecal.forecast import Forecast
    from treecal.geometry import ConvexSet
    from treecal.io import Block, Problems

    Method: TypeAlias = str
    Rule: TypeAlias = str
else:  # the choices that are offered and checked
    Method = Literal[tuple(METHODS)]
    Rule = Literal[tuple(RULES)]


def recalibrate(
    path: str = "-",
    /,
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    method: Method | None = None,
    groups: Rule | None = None,
    by: str | None = None,
    forecast: str | None = None,
    numbers: Numbers = Numbers(),  # noqa: B008 # frozen
    outcome: str | None = None,
    tolerance: float | None = None,
    decimal: Decimal = ".",
    options: Following = Following(),  # noqa: B008 # frozen
    output: Path | None = None,
    force: Force = False,
    json: bool = False,
) -> int:
    """Correct a model's probabilities, row by row, each before its outcome is read; then score them before and after.

    A row holds the probabilities and the outcome. Outcomes may also come later: the forecast's row has an "id", and a
    later row has the outcome and that id in "outcome_for", in any order. Without ids, the next row has the outcome.

    Corrected forecasts are written to standard output as JSON lines, with the row's other columns; the scores to
    standard error. With --snapshot the next run resumes; of a file that has grown it reads the new rows only.

        treecal recalibrate model.csv --classes rain,sun --outcome weather
        treecal recalibrate model.csv --classes rain,sun --outcome weather --output corrected.csv
        treecal recalibrate model.jsonl --classes rain,sun --snapshot model.treecal

    Forecasts of a number are columns of quantiles, of members of an ensemble, or of mean and sd, in a file in order of
    time; written are the quantiles, corrected, and scored is the CRPS:

        treecal recalibrate log.csv --quantiles q10,q50,q90 --outcome load --by lead --output corrected.csv

    Exit codes: 0 success, 1 invalid rows were left out, 2 invalid input, 130 interrupted, 141 the reader
    of standard output has gone.

    Parameters
    ----------
    path
        A file of rows; by default standard input.
    method
        auto, the default: a mixture of the model and its corrections, which does no harm; mean, shift: of groups of
        similar forecasts; adaptive: a calibrated forecaster per group; platt, beta (two classes), temperature, vector,
        matrix: online scaling of the logits; isotonic: isotonic regression for each class; vector-then-mean: scaling,
        then means; guarded: the model's probabilities themselves while their calibration error is within a budget, a
        certified forecaster's otherwise; vector-then-guarded: those after scaling; gated: the model's probabilities
        themselves until those after scaling have proved to be better; multicalibrate: without bias in every group of
        --by. Of a number: auto, location-scale, pit-map and mean.
    groups
        How mean, which is then the default, shift, adaptive and vector-then-mean group forecasts: by the most likely
        class and its probability; by the cell of a grid; or by the nearest of 16 centroids.
    by
        Columns to group rows by, separated by commas: each group has a corrector of its own. With multicalibrate a row
        is in a group for each column, and all are corrected together.
    forecast
        Columns of the probabilities, in the order of the classes, separated by commas; or one column of lists; or, for
        two classes, the column of the second one. By default "forecast", or the columns named like the classes, also
        with a common prefix: p_rain, p_sun.
    outcome
        Column of the outcome; by default outcome.
    tolerance
        To what the probabilities were rounded: those of two classes may sum to 1 within it, those of d classes within
        d/2 times it; they are normalised. By default the decimals of a file's first rows tell; of a pipe and with
        --snapshot it is 1e-6.
    output
        File for the rounds whose outcome is known, which `treecal audit` reads: the row's columns, the outcome, and
        the corrected probabilities, as corrected_rain, corrected_sun. Its name tells the format: .csv, .tsv or .txt;
        .jsonl, .ndjson or .json; .parquet or .pq. Forecasts that still await their outcome are written to standard
        output. A snapshot is then saved at the end only.
    json
        Write the scores to standard output, as the last line of JSON.
    """
    options.check(path, output)
    if numbers.given:
        if any(each is not None for each in (forecast, groups)) or outcomes != Outcomes():
            raise ParameterError("forecasts of a number have no --classes, --forecast and --groups.")
        by_columns = split("--by", by)
        log = NumberLog(path, numbers, outcome or "outcome", by_columns, options, decimal=decimal)
        corrector = METHODS[method or "auto"](log.space)
        if by_columns:
            corrector = correctors.ByGroup(corrector)
        return recalibrate_numbers(log, corrector, output, force=force, json=json)
    columns = split("--forecast", forecast)
    space = outcomes.space()
    result = outcome or "outcome"
    decoder = Decoder(
        space,
        outcome=[result],
        forecast=columns,
        tolerance=ROUNDING if tolerance is None else checked_tolerance(tolerance),
        decimal=decimal,
    )
    known = tolerance is not None or path == "-" or options.snapshot is not None
    asked = _corrector(method, groups, space)
    names = names_of(space, "corrected")
    overlapping = isinstance(asked, correctors.Multicalibrator)  # which knows groups itself
    if by is not None and not overlapping:
        asked = correctors.ByGroup(asked)
    reader = Reader(
        decoder,
        (result,),
        corrects=True,
        **options.columns("id"),
        by=split("--by", by),
        overlapping=overlapping,
        added=names if output is not None else (),
        named=[*columns, *options.named, *([] if outcome is None else [outcome])],
    )
    shield = Shield()

    def write(number: int, news: News, x: Forecast) -> None:
        with shield.opened():
            emit(news.labelled(line(space, number, x, points=len(x) > 1)))

    def write_many(first: int, batch: Batch, means: Array) -> tuple[int, BaseException | None]:
        return emit_lines(lines_of(space, first, batch, means), shield.opened)

    def many(rounds: Rounds, block: Block) -> Many | None:
        nonlocal known
        if not known and block.columns is not None:
            decoder.look_at(block.columns)
            known = True
        batch = reader.read_block(block) if rounds.at_once else None
        return batch and Many(batch.plain, lambda rows: rounds.take_many(batch.of(rows), write_many))

    found = follow(
        path,
        reader,
        options,
        following(asked, Rounds, options, output=output, force=force, names=names),
        Steps(lambda rounds, row: rounds.take(reader.read(row), write), many),
        shield,
    )
    _score(found.rounds, found.problems, decoder.pairs, json=json)
    return finished(found, options)


def _corrector(method: str | None, groups: str | None, space: ConvexSet) -> Corrector:
    method = method or ("auto" if groups is None and isinstance(space, Simplex) else "mean")
    make = METHODS[method]
    if groups is None:
        return make(space)
    if "groups" not in signature(make).parameters:
        raise ParameterError(f"the method {method} has no groups.", hint="leave --groups out.")
    return make(space, groups=RULES[groups]())


def _score(rounds: Rounds, problems: Problems, pairs: dict[str, str], *, json: bool) -> None:
    standing = rounds.standing
    if not rounds.learned:
        say(f"no outcomes yet: {standing}" if standing else "no outcomes, so no scores.")
        return
    scores = rounds.report
    guard = Guard.of(rounds.thing)
    if json:
        did = {} if guard is None else {"guard": guard.document()}
        emit(
            {
                "scores": scores,
                "classes": pairs or None,
                "waiting": rounds.waiting,
                "void": rounds.void,
                "too_late": rounds.too_late,
                **did,
                **problems.to_dict(),
            }
        )
        return
    paper = page(stderr=True)
    paper.print(str(scores), markup=False, soft_wrap=True)
    if pairs:
        paper.print(f"columns: {pairing(list(pairs.values()), list(pairs))}.", markup=False, soft_wrap=True)
    if standing:
        paper.print(standing, soft_wrap=True)
    if guard is not None:
        paper.print(str(guard), markup=False, soft_wrap=True)
