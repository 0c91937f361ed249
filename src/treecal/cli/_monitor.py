"""`treecal monitor`: an alarm when the forecasts in a stream or a log are provably off."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treecal._atomic import check_regular
from treecal._bins import bin_of
from treecal.cli._options import FileKind, Json, OnInvalid, Outcomes, split
from treecal.cli._progress import progress
from treecal.cli._rows import end, rows, source_name
from treecal.cli._signals import Shield
from treecal.cli._terminal import Exit, emit, page, say
from treecal.exceptions import OutcomeError, ParameterError, TreeCalError
from treecal.geometry import Simplex
from treecal.io import Decoder, Problems, open_source, read_outcomes
from treecal.io._decoder import class_labels
from treecal.io._source import LOG
from treecal.monitor import Monitor
from treecal.state import describe, load, save

if TYPE_CHECKING:
    from treecal._typing import Array
    from treecal.geometry import ConvexSet

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
    snapshot: Path | None = None,
    every: int = 1000,
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
        two classes, the column of the second one. By default "forecast", or the columns named like the classes.
    outcome
        Column of the outcome.
    group
        Column of a group: each is watched by itself as well.
    fail_above
        Exit with code 3 also if the class-wise calibration error, in ten bins, exceeds this number. Few rows exceed any
        by chance.
    snapshot
        File to resume from, if it exists, and to save to: at the end, and from a pipe every --every rounds. An alarm in
        it stays.
    every
        Number of rounds between snapshots.
    """
    if every < 1:
        raise ParameterError.expected("--every", every, "an integer of 1 or more")
    if fail_above is not None and not fail_above >= 0:
        raise ParameterError.expected("--fail-above", fail_above, "a number of 0 or more")
    columns = () if forecast is None else split("--forecast", forecast)
    space = None if path != "-" and outcomes == Outcomes() else outcomes.space()
    if fail_above is not None and not isinstance(space, Simplex | None):
        raise ParameterError("--fail-above needs classes.")
    made = {"alpha": alpha, "arl": arl, "by_group": group is not None}
    if path != "-" and isinstance(space, Simplex | None):
        watch, errors, problems = _read_log(path, space, columns, outcome, group, kind, on_error, made, snapshot)
    else:
        assert space is not None
        watch, errors = _resumed(snapshot, space, made), _Errors(space.dim)
        problems = Problems(source_name(path), on_error)
        decoder = Decoder(space, outcome=[outcome], forecast=columns)
        try:
            with Shield() as shield, rows(path, decoder, kind=kind) as stream:
                for row in shield.waiting(stream):
                    try:
                        p, y, name = _pair(row.read(), decoder, group)
                        watch.update(p, y, group=name)
                    except TreeCalError as error:
                        problems.add(row.place, str(error))
                        continue
                    errors.add(p[None], y[None])
                    if watch.alarm is not None and watch.alarm.round == watch.rounds:
                        emit({"alarm": asdict(watch.alarm)})
                    if snapshot is not None and watch.rounds % every == 0:
                        save(watch, snapshot)
        except KeyboardInterrupt:
            if snapshot is not None:
                save(watch, snapshot)
            _show(watch, errors, problems, fail_above, json=json)
            say(f"interrupted after {watch.rounds:,} rounds.")
            return Exit.INTERRUPTED
    if snapshot is not None:
        save(watch, snapshot)
    _show(watch, errors, problems, fail_above, json=json)
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


def _read_log(
    path: str,
    space: Simplex | None,
    columns: tuple[str, ...],
    outcome: str,
    group: str | None,
    kind: Any,
    on_error: Any,
    made: dict[str, Any],
    snapshot: Path | None,
) -> tuple[Monitor, _Errors, Problems]:
    """Watch a file of classes, in chunks of rows."""
    source = open_source(path, kind=kind)
    if not columns:
        columns = Decoder(space or Simplex(2)).forecast_columns(source.types) if space else ("forecast",)
    log = read_outcomes(
        source,
        outcome=outcome,
        forecast=columns,
        keep=() if group is None else (group,),
        classes=None if space is None else class_labels(space),
        space=space,
        on_error=on_error,
    )
    watch, errors = _resumed(snapshot, log.space, made), _Errors(log.space.dim)
    each = np.eye(log.space.dim)
    (counted,) = source.one(f"SELECT count(*) FROM {LOG}") or (0,)
    with progress("rows", total=counted) as done:
        for chunk in log:
            assert chunk.forecasts is not None
            P = np.ascontiguousarray(chunk.forecasts)
            Y = each[chunk.outcomes] if chunk.outcomes.ndim == 1 else np.asarray(chunk.outcomes, np.float64)
            watch.update_many(P, Y, groups=None if group is None else chunk.kept[group].to_pylist())
            errors.add(P, Y)
            done(int(chunk.rows[-1]))
    return watch, errors, log.problems


def _pair(row: Any, decoder: Decoder, group: str | None) -> tuple[Array, Array, Any]:
    """Return a row's forecast, outcome and group."""
    if not isinstance(row, dict):
        raise OutcomeError("it is not an object, expected one with the probabilities and the outcome.")
    if group is not None and group not in row:
        raise OutcomeError(f"it has no {group}, only {', '.join(row) or 'nothing'}.")
    return decoder.forecast(row), decoder.outcome(row), None if group is None else row[group]


def _resumed(path: Path | None, space: ConvexSet, made: dict[str, Any]) -> Monitor:
    """Return the monitor in the snapshot, which must be the one asked for; or without a snapshot a new one."""
    asked = Monitor(space, **made)
    if path is None:
        return asked
    if check_regular(path) is None:
        save(asked, path)  # a file that cannot be written is an error now, not after an hour
        return asked
    kept = load(path)
    if describe(kept) != describe(asked):
        raise ParameterError(
            f"{path} holds {kept!r}, but the options ask for {asked!r}.",
            hint="use the options it was created with, or another snapshot.",
        )
    return kept  # type: ignore[no-any-return] # it is of the class asked for


def _show(watch: Monitor, errors: _Errors, problems: Problems, limit: float | None, *, json: bool) -> None:
    measured = limit is not None and errors.rows > 0
    if json:
        document: dict[str, Any] = {
            "rounds": watch.rounds,
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
        f"{watch.rounds:,} rounds; {kind} {watch.statistic:.3g}, at most {watch.peak:.3g}, "
        f"of {watch.threshold:.3g} for an alarm.",
        "no alarm." if watch.alarm is None else f"{watch.alarm}.",
    ]
    if measured and limit is not None:
        verdict = "above" if errors.classwise > limit else "not above"
        lines.append(f"class-wise calibration error {errors.classwise:.4f}, {verdict} {limit:g}.")
    page().print("\n".join(lines), markup=False, soft_wrap=True)
