"""`treecal monitor`: an alarm when the forecasts in a stream or a log are provably off."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from treecal.auditing import AuditCounts, AuditRows, Groups
from treecal.cli._numbers import NumberLog, Numbers, watch_numbers
from treecal.cli._options import Decimal, Following, Json, Outcomes, check_limit, split
from treecal.cli._progress import progress
from treecal.cli._reader import Batch, News, Reader
from treecal.cli._rounds import Rounds, WriteMany
from treecal.cli._rows import end, is_file
from treecal.cli._session import Many, Steps, finished, follow, following
from treecal.cli._signals import Shield
from treecal.cli._terminal import Exit, counted, emit, page
from treecal.exceptions import OutcomeError, ParameterError
from treecal.geometry import ROUNDING, Simplex, checked_tolerance, pairing
from treecal.io import (
    LOG,
    Decoder,
    Problems,
    class_labels,
    find_probabilities,
    open_source,
    read_outcomes,
)
from treecal.late import Late
from treecal.monitor import Monitor, Watched

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from treecal._typing import Array, Integers
    from treecal.forecast import Forecast
    from treecal.io import Block, NewTable, Outcomes as Log

_BINS = 10


def monitor(
    path: str = "-",
    /,
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    alpha: float = 0.05,
    arl: float | None = None,
    forecast: str | None = None,
    numbers: Numbers = Numbers(),  # noqa: B008 # frozen
    outcome: str = "outcome",
    group: str | None = None,
    time: str | None = None,
    fail_above: float | None = None,
    tolerance: float | None = None,
    clip: float = 0.0,
    decimal: Decimal = ".",
    options: Following = Following(),  # noqa: B008 # frozen
    json: Json = False,
) -> int:
    """Watch forecasts and outcomes, and raise an alarm when the forecasts are provably off.

    If they are right, an alarm ever comes with probability alpha at most, however long the stream is. A row holds the
    probabilities and the outcome. From a pipe, an alarm is written when it comes, as a line of JSON.

        treecal monitor log.parquet --forecast p_rain,p_sun --outcome weather
        tail -f log.jsonl | treecal monitor --classes rain,sun --snapshot watch.treecal
        treecal monitor log.csv --forecast p --outcome clicked --fail-above 0.05

    Forecasts of a number are columns of quantiles, of members of an ensemble, or of mean and sd, in a file in order of
    time:

        treecal monitor log.parquet --quantiles q10,q50,q90 --outcome load --group station

    With --id, outcomes may come late and in any order: a row has a forecast and its id, and the same row or a later one
    the outcome, with that id in "outcome_for". They count in the order in which they come.

        treecal monitor log.csv --classes rain,sun --id id --snapshot watch.treecal

    With --id and --time forecasts are revised: another row with an id that awaits its outcome is its next forecast.
    Each revision is watched at once, so that there may be an alarm before any outcome; scores are by lead time.

        treecal monitor questions.csv --classes no,yes --id question --time day

    With --snapshot the next run resumes; of a file that has grown it reads the new rows only, so that each is counted
    once. An alarm in a snapshot stays.

    Exit codes: 0 no alarm, 1 no alarm but invalid rows were left out, 2 invalid input, 3 alarm, or a calibration error
    above --fail-above, 130 interrupted.

    Parameters
    ----------
    path
        A file of rows; by default standard input.
    alpha
        The probability of a false alarm, over the whole stream.
    arl
        In place of alpha: the least average number of rounds to a false alarm.
    forecast
        Columns of the probabilities, in the order of the classes, separated by commas; or one column of lists; or, for
        two classes, the column of the second one, or of the one that it is named after. By default "forecast", or the
        columns named like the classes, also with a common prefix: p_rain, p_sun.
    outcome
        Column of the outcome.
    group
        Column of a group: each is watched by itself as well.
    time
        Column of what time it is, as --now, where forecasts of an id are revised.
    fail_above
        Exit with code 3 also if the class-wise calibration error of the outcomes in this run, in ten bins, as an audit
        measures it, exceeds this number. Few rows exceed any by chance.
    tolerance
        To what probabilities were rounded: those of two classes may sum to 1 within it, those of d within d/2 times it.
        By default the decimals of the first rows of a file tell; of a pipe, with --id or --snapshot it is 1e-6.
    clip
        The least probability of a class: one that was rounded to 0 is raised to it, and the others sum to the rest. A
        class with the probability 0 that happens all the same is an alarm at once.
    """
    check_limit(fail_above)
    if time is not None:
        if options.id is None or options.now is not None:
            raise ParameterError(
                "--time is for forecasts with ids, in place of --now.", hint="--id names their column."
            )
        options = replace(options, now=time)
    options.check(path, ids=options.id is not None)
    if numbers.given:
        if any(each is not None for each in (forecast, fail_above)) or clip or outcomes != Outcomes():
            raise ParameterError("forecasts of a number have no --classes, --forecast, --fail-above and --clip.")
        own = NumberLog(path, numbers, outcome, () if group is None else (group,), options, decimal=decimal)
        watch = Monitor(own.space, alpha=alpha, arl=arl, by_group=group is not None)
        watch_numbers(own, watch)
        return _show(watch, None, own.rows.problems, None, {}, None, json=json) or end(own.rows.problems)
    columns = split("--forecast", forecast)
    space = None if path != "-" and outcomes == Outcomes() else outcomes.space()
    if fail_above is not None and not isinstance(space, Simplex | None):
        raise ParameterError("--fail-above needs classes.")
    log = None
    if tolerance is None and options.snapshot is not None:  # every run must read with the same one
        tolerance = ROUNDING
    elif tolerance is not None:
        tolerance = checked_tolerance(tolerance)
    if path != "-" and isinstance(space, Simplex | None):  # a file of classes, whose columns can be looked at first
        source = open_source(path, kind=options.kind, decimal=decimal)
        columns = columns or find_probabilities(source, outcome, None if space is None else class_labels(space))
        if options.id is None:
            log = read_outcomes(
                source,
                outcome=outcome,
                forecast=columns,
                keep=() if group is None else (group,),
                classes=None if space is None else class_labels(space),
                space=space,
                on_error=options.on_error,
                tolerance=tolerance,
            )
            space = log.space
        elif space is None:
            raise ParameterError("with --id the classes must be known.", hint="--classes rain,sun.")
    assert space is not None
    if clip and not (isinstance(space, Simplex) and 0 < clip * space.dim < 1):
        raise ParameterError.expected(
            "--clip", clip, "a probability below that of each of the classes, if all were alike"
        )
    if log is not None:
        tolerance = log.tolerance
    elif tolerance is None:
        tolerance = ROUNDING
    asked = Monitor(space, alpha=alpha, arl=arl, by_group=group is not None, tolerance=tolerance)
    errors = None if fail_above is None else _Errors(class_labels(space))
    if log is not None and options.snapshot is None:
        problems = _read_log(log, asked, errors, group, clip)
        pairs = dict(zip(log.classes or (), log.names, strict=False))
        return _show(asked, errors, problems, fail_above, pairs, None, json=json) or end(problems)
    decoder = Decoder(space, outcome=[outcome], forecast=columns, tolerance=asked.tolerance, decimal=decimal)
    ids = options.columns()
    reader = _Reader(
        decoder,
        (outcome,),
        corrects=True,
        **(ids if options.id is not None else ids | {"outcome_for": ""}),
        by=() if group is None else (group,),
        named=[*columns, *options.named],
        clip=clip,
    )

    def begin(
        thing: Any, *, names: tuple[str, ...], table: NewTable | None, waiting: Any, limit: int | None, kept: bool
    ) -> _Watching:
        watched = Watched(thing, scores=None, tolerance=asked.tolerance) if isinstance(thing, Monitor) else thing
        # Nothing is written that could be written in part: so it does not matter whether it is kept.
        rounds = _Watching(watched, names=names, table=table, waiting=waiting, limit=limit)
        rounds.errors = errors
        rounds.revises = time is not None
        return rounds

    def take(rounds: _Watching, row: Any) -> None:
        news = reader.read(row)
        if errors is not None and news.outcome is not None and news.outcome.max() < 1:
            raise OutcomeError(f"{outcome} is no class, and --fail-above is about classes.")
        rounds.take(news, lambda number, news, x: None)

    def many(rounds: _Watching, block: Block) -> Many | None:
        batch = reader.read_block(block) if rounds.at_once else None
        return batch and Many(
            batch.plain, lambda rows: rounds.take_many(batch.of(rows), lambda first, rows, means: (len(means), None))
        )

    known = None

    def alarmed(rounds: _Watching) -> None:
        nonlocal known
        alarm = rounds.monitor.alarm
        if alarm is not None and alarm != known and not is_file(path):
            emit({"alarm": asdict(alarm)})
        known = alarm

    def start(rounds: _Watching) -> None:
        nonlocal known
        known = rounds.monitor.alarm

    found = follow(
        path,
        reader,
        options,
        following(asked, begin, options),
        Steps(take, many, begin=start, after=alarmed),
        Shield(),
    )
    watch = found.rounds.monitor
    alarm = _show(watch, errors, found.problems, fail_above, decoder.pairs, found.rounds, json=json)
    code = finished(found, options)
    return code if found.interrupted else alarm or code


class _Errors:
    """The class-wise calibration error of rounds, counted as an audit counts it."""

    def __init__(self, classes: Sequence[str]) -> None:
        self.rows = 0
        self._classes = tuple(classes)
        self._counts = AuditCounts.empty(Groups(()), classes=len(classes), bins=_BINS)

    def add(self, forecasts: Array, outcomes: Integers) -> None:
        """Count rounds, given the forecasts, `(n, d)`, and the class that followed each."""
        home = np.zeros(len(outcomes), np.int64)
        self._counts.add(AuditRows(np.ascontiguousarray(forecasts.T), np.array(outcomes, np.int64), home, home[:0]))
        self.rows += len(outcomes)

    @property
    def classwise(self) -> float:
        """The class-wise calibration error, that of `treecal audit`."""
        found = self._counts.audit("", self._classes, self._classes, Problems("", "skip"))
        return found.whole.classwise_ece


class _Watching(Rounds):
    """Rounds that a monitor watches."""

    errors: _Errors | None = None
    revises = False

    @property
    def at_once(self) -> bool:
        return not self.revises and super().at_once

    def _predict(self, name: str | None, number: int, news: News) -> Forecast:
        if not self.revises or name not in self._waiting or not isinstance(self.thing, Late) or news.forecast is None:
            return super()._predict(name, number, news)
        before = self._waiting[name]
        x = self.thing.revise(str(name), news.forecast, now=news.now)
        self._waiting[name] = before._replace(mean=x.mean.tolist())
        return x

    def _learn(self, name: str | None, news: News) -> None:
        closed = self._waiting.get(name)
        before = self.learned
        super()._learn(name, news)
        if self.errors is not None and closed is not None and news.outcome is not None and self.learned > before:
            self.errors.add(np.array([closed.mean]), np.array([news.outcome.argmax()]))

    def take_many(self, batch: Batch, write: WriteMany) -> tuple[int, BaseException | None]:
        done, failure = super().take_many(batch, write)
        if self.errors is not None and done:
            self.errors.add(batch.forecasts, batch.outcomes.argmax(axis=1))
        return done, failure

    @property
    def monitor(self) -> Monitor:
        """The monitor."""
        watched: Watched = self.inner
        return watched.monitor

    @property
    def learned(self) -> int:
        """Number of outcomes learned, those before the ids included."""
        return self.monitor.rounds

    @property
    def saved(self) -> Any:
        """The monitor itself, unless there is more to be known."""
        return self.thing if isinstance(self.thing, Late) or self.waiting else self.monitor


def _clipped(P: Array, least: float) -> Array:
    """Return probabilities of which none is less, `(d,)` or `(n, d)`."""
    if not least:
        return P
    raised = np.maximum(P, least)
    found: Array = raised / raised.sum(axis=-1, keepdims=True)
    return found


@dataclass(frozen=True)
class _Reader(Reader):
    """A reader of rows whose groups are as the file has them; a row may have none."""

    clip: float = 0.0

    def read_block(self, block: Block) -> Batch | None:
        batch = super().read_block(block)
        return batch and batch._replace(forecasts=_clipped(batch.forecasts, self.clip))

    def _forecast(self, row: dict[str, Any]) -> Array:
        return _clipped(super()._forecast(row), self.clip)

    def _group(self, row: dict[str, Any]) -> Hashable:
        for name in self.by:
            if name not in row:
                raise OutcomeError(f"it has no {name}, only {', '.join(row) or 'nothing'}.")
            return row[name]  # type: ignore[no-any-return]
        return None

    def _groups(self, columns: list[list[Any]]) -> list[Hashable] | None:
        return columns[0] if columns else None


def _read_log(log: Log, watch: Monitor, errors: _Errors | None, group: str | None, clip: float) -> Problems:
    """Watch a file of classes, in chunks of rows."""
    each = np.eye(log.space.dim)
    (total,) = log.source.one(f"SELECT count(*) FROM {LOG}") or (0,)
    with progress("rows", total=total) as done:
        for chunk in log:
            assert chunk.forecasts is not None
            P = _clipped(np.ascontiguousarray(chunk.forecasts), clip)
            Y = each[chunk.outcomes] if chunk.outcomes.ndim == 1 else np.asarray(chunk.outcomes, np.float64)
            watch.update_many(P, Y, groups=None if group is None else chunk.kept[group].to_pylist())
            if errors is not None:
                if chunk.outcomes.ndim > 1:
                    raise ParameterError("--fail-above needs outcomes that are classes.")
                errors.add(P, chunk.outcomes.astype(np.int64))
            done(int(chunk.rows[-1]))
    return log.problems


def _show(
    watch: Monitor,
    errors: _Errors | None,
    problems: Problems,
    limit: float | None,
    pairs: dict[str, str],
    rounds: Rounds | None,
    *,
    json: bool,
) -> Exit | None:
    """Print what was found; return the exit code of an alarm, if there is one."""
    found = errors.classwise if errors is not None and errors.rows else None
    above = found is not None and limit is not None and found > limit
    code = Exit.ALARM if watch.alarm is not None or above else None
    if json:
        document: dict[str, Any] = {
            "rounds": watch.rounds,
            "classes": pairs or None,
            "statistic": watch.statistic,
            "peak": watch.peak,
            "threshold": watch.threshold,
            "alarm": None if watch.alarm is None else asdict(watch.alarm),
        }
        if rounds is not None and isinstance(rounds.thing, Late):
            if leads := rounds.thing.leads():
                document |= {"leads": [lead._asdict() for lead in leads]}
            document |= {"waiting": rounds.waiting, "void": rounds.void, "too_late": rounds.too_late}
        if found is not None:
            document |= {"classwise_ece": found, "fail_above": limit}
        emit(document | problems.to_dict())
        return code
    kind = "evidence" if watch.arl is None else "statistic"
    lines = [
        f"{counted(watch.rounds, 'round')}; {kind} {watch.statistic:.3g}, at most {watch.peak:.3g}, "
        f"of {watch.threshold:.3g} for an alarm.",
        "no alarm." if watch.alarm is None else f"{watch.alarm}.",
    ]
    if rounds is not None and isinstance(rounds.thing, Late) and (leads := rounds.thing.leads()):
        if watch.alarm is not None and watch.alarm.movement is not None:
            lines.append(f"a revised forecast {watch.alarm.movement}.")
        lines += [
            f"lead time {lead.least:g} to {lead.below:g}: {counted(lead.forecasts, 'forecast')}, Brier score "
            f"{lead.brier:.4f}, too sure by {lead.too_sure:.3f}."
            for lead in leads
        ]
    if rounds is not None and rounds.standing:
        lines.append(rounds.standing)
    if pairs:
        lines.append(f"columns: {pairing(list(pairs.values()), list(pairs))}.")
    if found is not None:
        lines.append(f"class-wise calibration error {found:.4f}, {'above' if above else 'not above'} {limit:g}.")
    page().print("\n".join(lines), markup=False, soft_wrap=True)
    return code
