"""Windows of time: the rows of each hour, day, week, month or year; and the alarm of a monitor that watched them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array, Integers
from treecal.auditing._cells import AuditRows
from treecal.auditing._counts import AuditCounts
from treecal.auditing._groups import Groups
from treecal.exceptions import FileError, ParameterError
from treecal.geometry import Simplex
from treecal.io import library
from treecal.monitor import Alarm, Monitor

MOST = 40
"""Windows, unless a log spans more years."""
_DAY = 24 * 60 * 60 * 10**6
_WIDTHS = {"minute": 60 * 10**6, "hour": 60 * 60 * 10**6, "day": _DAY, "week": 7 * _DAY}
WINDOWS = (*_WIDTHS, "month", "year")
_MONDAY = 4 * _DAY  # 1970 began on a Thursday, four days before one


class Times(NamedTuple):
    """A column of times: microseconds since 1970, or numbers, `(n,)`; which are missing; and whether it has dates."""

    values: Integers | Array
    missing: Any
    dates: bool


def read_times(name: str, column: Any, *, dates: bool | None = None) -> Times:
    """Return a column of dates, times, text of either (ISO 8601) or numbers; `dates` tells which of them text is.

    Times without a zone are taken to be in UTC, in which all are counted.
    """
    if isinstance(column, np.ndarray):
        return _array_times(column)
    arrow = library("pyarrow")
    types = arrow.types
    missing = np.asarray(column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False))
    text = types.is_string(column.type) or types.is_large_string(column.type)
    moment = types.is_timestamp(column.type) or types.is_date(column.type)
    why: Exception | None = None
    if moment or (text and dates is not False):
        zones = (None, "UTC") if text else (getattr(column.type, "tz", None),)
        for kind in (arrow.timestamp(unit, zone) for unit in ("us", "ns") for zone in zones):
            try:
                values = column.cast(kind).cast(arrow.timestamp("us", kind.tz), safe=False)
                return Times(values.cast("int64").fill_null(0).to_numpy(), missing, True)
            except arrow.ArrowInvalid as error:
                why = why or error
    try:
        if moment or (dates and why):
            raise why or AssertionError
        values = column.cast("float64", safe=False).fill_null(0.0).to_numpy()
        finite = np.isfinite(values)
        return Times(np.where(finite, values, 0.0), missing | ~finite, False)
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError) as error:
        said = str(why or error).splitlines()[0].rstrip(".")
        if cell := re.search("Failed to parse string: ('.*') as a scalar", said):
            beside = ", beside times without a zone" if "expected no zone" in said else ""
            said = f"it holds {cell[1]}{beside}"
        raise FileError(
            f"column {name!r} is no column of times: {said}.",
            hint="dates and times as 2026-01-31 12:00:00, all with a zone or none; or numbers. Where days come first, "
            "as in 31.01.2026: --day-first, in Python open_source(path, day_first=...).",
        ) from None


def _array_times(column: NDArray[Any]) -> Times:
    if column.dtype.kind == "M":
        missing = np.isnat(column)
        return Times(np.where(missing, 0, column.astype("M8[us]").astype(np.int64)), missing, True)
    numbers = column.astype(np.float64)
    finite = np.isfinite(numbers)
    return Times(np.where(finite, numbers, 0.0), ~finite, False)


class Calendar:
    """Which window of time each row of a log is in.

    Parameters
    ----------
    name
        The column of times.
    columns
        Its cells, a first time: for the first and the last, and their order.
    unit
        The unit of the calendar; by default the finest that makes few windows.
    """

    def __init__(self, name: str, columns: Iterable[Any], *, unit: str | None = None) -> None:
        self.name = name
        self.groups = Groups((name,))
        self._dates: bool | None = None
        self.in_order = True
        low = np.inf
        high = -np.inf
        whole = True
        for column in columns:
            times = self.read(column)
            self._dates = times.dates
            values = times.values[~times.missing]
            self.in_order &= not times.missing.any()
            if len(values):
                self.in_order &= bool(values[0] >= high and (np.diff(values) >= 0).all())
                low = min(low, values.min())
                high = max(high, values.max())
                whole &= times.dates or bool((values == np.rint(values)).all())
        if high < low:
            raise FileError(f"column {name!r} holds no times.")
        if unit is not None and not self._dates:
            raise ParameterError.expected("window", unit, f"nothing, since {name} holds numbers, not dates")
        if self._dates:
            self._place = _calendar(int(low), int(high)) if unit is None else _in_units(unit)
        else:
            self._place = _numbers(float(low), float(high), whole)

    def read(self, column: Any) -> Times:
        """Return the times of some rows."""
        return read_times(self.name, column, dates=self._dates)

    def home(self, times: Times) -> Integers:
        """Return the number of the window of each row, among the groups."""
        labels, home = np.unique(self._place(times.values), return_inverse=True)
        names = [*labels.tolist(), None]
        home = np.where(times.missing, len(labels), home)
        index = np.zeros(len(names), np.int64)
        for k in np.unique(home).tolist():
            index[k] = self.groups.index.setdefault((names[k],), len(self.groups.index))
        return index[home]


class Windows(Calendar):
    """The windows of a log, their counts, and the monitor that watches its rows if they are in the order of time.

    Parameters
    ----------
    name, columns, unit
        As for `Calendar`.
    counts
        The empty counts of its rows, whose groups become the windows.
    classes
        Names of the classes.
    """

    def __init__(
        self, name: str, columns: Iterable[Any], counts: AuditCounts, classes: Sequence[str], *, unit: str | None = None
    ) -> None:
        super().__init__(name, columns, unit=unit)
        self.counts = replace(counts, groups=self.groups)
        self._watched = _Watched(classes) if self.in_order else None

    @property
    def alarm(self) -> Alarm | None:
        """The alarm of the monitor; None if there was none, or if rows are not in order."""
        return None if self._watched is None else self._watched.alarm()

    def add(self, rows: AuditRows, column: Any) -> None:
        """Count some rows, and watch them."""
        times = self.read(column)
        self.counts.add(rows._replace(groups=self.home(times)))
        if self._watched is not None:
            P = rows.forecasts.T
            self._watched.add(times.values, P / P.sum(axis=1, keepdims=True), rows.outcomes)


class _Watched:
    """A monitor of rows in the order of time; those of one time in an order drawn at random, whatever the file's is.

    A file may be sorted by the outcome within each day, and a bet on the next row would then know the outcome. Rows
    are drawn by their number, so that they are watched alike however they are read.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self._monitor = Monitor(Simplex(classes=classes))
        self._rng = np.random.default_rng(0)
        self._waiting: list[tuple[Any, Array, Array, Integers]] = []  # the rows of the last time so far

    def add(self, times: Any, forecasts: Array, outcomes: Integers) -> None:
        """Watch rows, but for those of the last time, of which there may be more."""
        if self._monitor.alarm is not None or not len(times):
            return
        chance = self._rng.random(len(times))
        last = int(np.searchsorted(times, times[-1]))
        if last or (self._waiting and self._waiting[-1][0][-1] != times[-1]):
            self._waiting.append((times[:last], chance[:last], forecasts[:last], outcomes[:last]))
            self._watch()
        self._waiting.append((times[last:], chance[last:], forecasts[last:].copy(), outcomes[last:].copy()))

    def alarm(self) -> Alarm | None:
        """Return the alarm after all rows, if there was one."""
        self._watch()
        return self._monitor.alarm

    def _watch(self) -> None:
        if self._waiting and self._monitor.alarm is None:
            times, chance, forecasts, outcomes = map(np.concatenate, zip(*self._waiting, strict=True))
            order = np.lexsort((chance, times))
            self._monitor.update_many(forecasts[order], outcomes[order])
        self._waiting = []


def _calendar(low: int, high: int) -> Callable[[Any], Any]:
    """Return the name of the window of each time, in the finest unit that makes few windows."""
    for unit, width in _WIDTHS.items():
        shift = _MONDAY if unit == "week" else 0
        if (high - shift) // width - (low - shift) // width < MOST:
            return _in_units(unit)
    first, last = (int(np.datetime64(time, "us").astype("datetime64[M]").astype(int)) for time in (low, high))
    return _in_units("month" if last - first < MOST else "year")


def _in_units(unit: str) -> Callable[[Any], Any]:
    """Return the name of the window of each time, in this unit of the calendar."""
    form = {"minute": "m", "hour": "h", "month": "M", "year": "Y"}.get(unit, "D")
    return partial(_name, width=_WIDTHS.get(unit, 1), shift=_MONDAY if unit == "week" else 0, form=form)


def _name(times: Any, width: int, shift: int, form: Any) -> Any:
    begin = (times - shift) // width * width + shift
    return np.char.replace(np.datetime_as_string(begin.astype("datetime64[us]"), unit=form), "T", " ")


def _numbers(low: float, high: float, whole: bool) -> Callable[[Any], Any]:
    """Return the window of each number: itself if there are few whole ones, or the lower end of one of twenty."""
    if whole and high - low < MOST:
        return lambda times: times.astype(np.int64)
    count = MOST // 2 if high > low else 1
    width = high / count - low / count or 1.0
    starts = np.array([float(f"{low + k * width:.12g}") for k in range(count)])
    return lambda times: starts[np.clip((times - low) // width, 0, count - 1).astype(np.int64)]
