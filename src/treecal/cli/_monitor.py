"""`treecal monitor`: an alarm when the forecasts in a stream or a log are provably off."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from treecal.cli._options import Every, FileKind, Json, NewFile, OnInvalid, Outcomes, SnapshotFile, split
from treecal.cli._progress import progress
from treecal.cli._reader import csv_hint
from treecal.cli._rows import end, is_file, rows, source_name
from treecal.cli._session import check_apart, following
from treecal.cli._signals import Shield
from treecal.cli._terminal import Exit, counted, emit, page, say
from treecal.exceptions import OutcomeError, ParameterError, TreeCalError
from treecal.geometry import Simplex, checked_tolerance, pairing
from treecal.io import (
    LOG,
    Decoder,
    Problems,
    check_columns,
    class_labels,
    find_probabilities,
    open_source,
    read_outcomes,
)
from treecal.measures import bin_of
from treecal.monitor import Monitor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treecal._typing import Array
    from treecal.io import Outcomes as Log
    from treecal.io import Source

_BINS = 10


def monitor(
    path: str = "-",
    /,
    *,
    outcomes: Outcomes = Outcomes(),  # noqa: B008 # frozen
    alpha: float = 0.05,
    arl: float | None = None,
    forecast: str | None = None,
    outcome: str = "outcome",
    group: str | None = None,
    fail_above: float | None = None,
    tolerance: float = 1e-6,
    snapshot: SnapshotFile = None,
    every: Every = 1000,
    new_file: NewFile = False,
    kind: FileKind = None,
    on_error: OnInvalid = "stop",
    json: Json = False,
) -> int:
    """Watch forecasts and outcomes, and raise an alarm when the forecasts are provably off.

    If they are right, an alarm ever comes with probability alpha at most, however long the stream is. A row holds the
    probabilities and the outcome. From a pipe, an alarm is written when it comes, as a line of JSON.

        treecal monitor log.parquet --forecast p_rain,p_sun --outcome weather
        tail -f log.jsonl | treecal monitor --classes rain,sun --snapshot watch.treecal
        treecal monitor log.csv --forecast p --outcome clicked --fail-above 0.05

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
    fail_above
        Exit with code 3 also if the class-wise calibration error of the rows read, in ten bins, exceeds this number.
        Few rows exceed any by chance.
    tolerance
        To what probabilities were rounded: those of two classes may sum to 1 within it, those of d within d/2 times it.
    """
    if fail_above is not None and not fail_above >= 0:
        raise ParameterError.expected("--fail-above", fail_above, "a number of 0 or more")
    check_apart(path, None, snapshot)
    columns = () if forecast is None else split("--forecast", forecast)
    space = None if path != "-" and outcomes == Outcomes() else outcomes.space()
    if fail_above is not None and not isinstance(space, Simplex | None):
        raise ParameterError("--fail-above needs classes.")
    log = None
    if path != "-" and isinstance(space, Simplex | None):  # a file of classes, whose columns can be looked at first
        source = open_source(path, kind=kind)
        columns = columns or find_probabilities(source, outcome, None if space is None else class_labels(space))
        log = _log(source, space, columns, outcome, group, on_error, checked_tolerance(tolerance))
        space = log.space
    assert space is not None
    asked = Monitor(space, alpha=alpha, arl=arl, by_group=group is not None, tolerance=tolerance)
    errors = _Errors(space.dim)
    pairs: dict[str, str] = {} if log is None else dict(zip(log.classes or (), log.names, strict=False))
    if log is not None and snapshot is None and not new_file:
        watch, problems = asked, _read_log(log, asked, errors, group)
    else:
        problems, watching = Problems(source_name(path), on_error), _Watching(asked)
        decoder = Decoder(space, outcome=[outcome], forecast=columns, tolerance=asked.tolerance)
        reader = _Reader(decoder, group)
        try:
            with (
                Shield() as shield,
                following(asked, _begin, snapshot=snapshot, every=every, new_file=new_file) as run,
                run.reading(path, lambda: rows(path, reader, kind=kind), shield) as stream,
            ):
                watching = run.rounds
                for row in stream:
                    try:
                        p, y, name = reader.read(row.read())
                        watching.thing.update(p, y, group=name)
                        errors.add(p[None], y[None])
                    except TreeCalError as error:
                        problems.add(row.place, str(error))
                    else:
                        alarm = watching.thing.alarm
                        if alarm is not None and alarm.round == watching.learned and not is_file(path):
                            emit({"alarm": asdict(alarm)})
                    run.took(row)
        except KeyboardInterrupt:
            watch = watching.thing
            _show(watch, errors, problems, fail_above, decoder.pairs, json=json)
            say(f"interrupted after {counted(watch.rounds, 'round')}.")
            return Exit.INTERRUPTED
        watch = watching.thing
        pairs = decoder.pairs
    _show(watch, errors, problems, fail_above, pairs, json=json)
    flawed = end(problems)
    if watch.alarm is not None or (fail_above is not None and errors.rows and errors.classwise > fail_above):
        return Exit.ALARM
    return flawed


class _Errors:
    """Sums in bins of each class's probability: the class-wise calibration error of an audit, row by row."""

    def __init__(self, dim: int) -> None:
        self.rows, self._off = 0, np.zeros((dim, _BINS))

    def add(self, P: Array, Y: Array) -> None:
        if P.shape[1] and P.min(initial=0.0) >= 0 and P.max(initial=0.0) <= 1 + 1e-6:
            at = bin_of(P, float(_BINS)).astype(np.int64) + _BINS * np.arange(P.shape[1])
            found = np.bincount(at.ravel(), weights=(Y - P).ravel(), minlength=self._off.size)
            self._off += found.reshape(self._off.shape)
        self.rows += len(P)

    @property
    def classwise(self) -> float:
        return float(np.abs(self._off).sum() / self.rows / len(self._off))


class _Watching:
    """A monitor that is followed row by row."""

    def __init__(self, monitor: Monitor) -> None:
        self.thing, self._before = monitor, monitor.rounds

    @property
    def learned(self) -> int:
        return self.thing.rounds

    @property
    def changed(self) -> bool:
        return self.thing.rounds > self._before

    def to_list(self) -> list[list[Any]]:
        return []


def _begin(thing: Any, waiting: Any, table: Any) -> _Watching:
    return _Watching(thing)


def _log(
    source: Source,
    space: Simplex | None,
    columns: tuple[str, ...],
    outcome: str,
    group: str | None,
    on_error: Any,
    tolerance: float,
) -> Log:
    return read_outcomes(
        source,
        outcome=outcome,
        forecast=columns,
        keep=() if group is None else (group,),
        classes=None if space is None else class_labels(space),
        space=space,
        on_error=on_error,
        tolerance=tolerance,
    )


def _read_log(log: Log, watch: Monitor, errors: _Errors, group: str | None) -> Problems:
    """Watch a file of classes, in chunks of rows."""
    each = np.eye(log.space.dim)
    (total,) = log.source.one(f"SELECT count(*) FROM {LOG}") or (0,)
    with progress("rows", total=total) as done:
        for chunk in log:
            assert chunk.forecasts is not None
            P = np.ascontiguousarray(chunk.forecasts)
            Y = each[chunk.outcomes] if chunk.outcomes.ndim == 1 else np.asarray(chunk.outcomes, np.float64)
            watch.update_many(P, Y, groups=None if group is None else chunk.kept[group].to_pylist())
            errors.add(P, Y)
            done(int(chunk.rows[-1]))
    return log.problems


class _Reader:
    """Reads the forecast, the outcome and the group of a row, of whose columns all are kept in mind."""

    columns = ()

    def __init__(self, decoder: Decoder, group: str | None) -> None:
        self._decoder, self._group = decoder, group

    def check(self, source: str, there: Sequence[str]) -> None:
        self._decoder.check(source, there)
        check_columns(source, there, () if self._group is None else (self._group,))

    def read(self, row: Any) -> tuple[Array, Array, Any]:
        if not isinstance(row, dict):
            raise OutcomeError(
                "it is not an object, expected one with the probabilities and the outcome.", hint=csv_hint(row)
            )
        if self._group is not None and self._group not in row:
            raise OutcomeError(f"it has no {self._group}, only {', '.join(row) or 'nothing'}.")
        group = None if self._group is None else row[self._group]
        return self._decoder.forecast(row), self._decoder.outcome(row), group


def _show(
    watch: Monitor, errors: _Errors, problems: Problems, limit: float | None, pairs: dict[str, str], *, json: bool
) -> None:
    measured = limit is not None and errors.rows > 0
    if json:
        document: dict[str, Any] = {
            "rounds": watch.rounds,
            "classes": pairs or None,
            "statistic": watch.statistic,
            "peak": watch.peak,
            "threshold": watch.threshold,
            "alarm": None if watch.alarm is None else asdict(watch.alarm),
        }
        if measured:
            document |= {"classwise_ece": errors.classwise, "fail_above": limit}
        emit(document | problems.to_dict())
        return
    kind = "evidence" if watch.arl is None else "statistic"
    lines = [
        f"{counted(watch.rounds, 'round')}; {kind} {watch.statistic:.3g}, at most {watch.peak:.3g}, "
        f"of {watch.threshold:.3g} for an alarm.",
        "no alarm." if watch.alarm is None else f"{watch.alarm}.",
    ]
    if pairs:
        lines.append(f"columns: {pairing(list(pairs.values()), list(pairs))}.")
    if measured and limit is not None:
        verdict = "above" if errors.classwise > limit else "not above"
        lines.append(f"class-wise calibration error {errors.classwise:.4f}, {verdict} {limit:g}.")
    page().print("\n".join(lines), markup=False, soft_wrap=True)
