"""The evidence against the forecasts of many streams, each watched by itself."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from treecal._states import check_names
from treecal._typing import Array, Integers, Saved
from treecal.columns import Columns, Field, Schema
from treecal.exceptions import ParameterError, SnapshotError
from treecal.geometry import read_forecast_rows
from treecal.monitor._alarm import Alarm, alarm_state, checked_alarm, read_alarm
from treecal.monitor._bets import evidence_of, evidence_schema, read_columns
from treecal.monitor._kernels import watch_streams
from treecal.monitor._monitor import Monitor


class StreamEvidence(NamedTuple):
    """What a monitor of each stream of a bank would say, in the order of `keys`.

    Attributes
    ----------
    keys
        The streams.
    rounds
        Outcomes that each has learned.
    statistic
        The evidence now: e-values; with `arl`, the statistics of Shiryaev and Roberts.
    peak
        The largest that each has been.
    alarmed
        Whether there was an alarm.

    Examples
    --------
    >>> import treecal as tc
    >>> space = tc.Simplex(2)
    >>> bank = tc.Bank(space, streams=2, monitor=tc.Monitor(space))
    >>> bank.update([0, 0, 0], [0, 0, 0])
    >>> bank.evidence().rounds, bank.evidence().alarmed
    (array([3, 0]), array([False, False]))
    """

    keys: Any
    rounds: Integers
    statistic: Array
    peak: Array
    alarmed: Any


class WatchedStreams:
    """A monitor for each of many streams, a row for each, bit for bit.

    Parameters
    ----------
    monitor
        A new monitor without groups, which is not changed: streams are copies of it.
    """

    def __init__(self, monitor: Monitor) -> None:
        if not isinstance(monitor, Monitor) or monitor.rounds or monitor.by_group or monitor.least_probability:
            hint = "each stream is watched by itself, and its rows all have outcomes: tc.Monitor(space, alpha=0.01)."
            raise ParameterError.expected("monitor", monitor, "a new Monitor without groups or few labels", hint=hint)
        self.monitor = deepcopy(monitor)
        self.schema = Schema((*evidence_schema(monitor._family).fields, Field("peaks", new=monitor.peak)))
        self.columns = Columns(self.schema)
        self.alarms: dict[int, Alarm] = {}

    def reserve(self, rows: int) -> None:
        """Make room for more rows, which are new streams."""
        self.columns.reserve(rows)

    def clear(self, rows: Integers) -> None:
        """Make new streams of these rows."""
        self.columns.clear(rows)
        for row in rows.tolist():
            self.alarms.pop(row, None)

    def learn(self, rows: Integers, means: Array, outcomes: Array) -> None:
        """Learn the mean forecasts of rows and their outcomes, in order."""
        monitor = self.monitor
        e = evidence_of(self.columns)
        peaks = self.columns["peaks"]
        at = 0
        P = read_forecast_rows(monitor.space, means, tolerance=monitor.tolerance)
        P, Y = monitor._rows(P, outcomes)
        P, Y = (each if each.flags.writeable else each.copy() for each in (P, Y))  # so that one is compiled
        while at < len(P):
            rest = P[at:], Y[at:], rows[at:]
            at += watch_streams.for_rows(len(P))(monitor._family.table, e, *rest, peaks, monitor.threshold)
            row = int(rows[at - 1])
            if peaks[row] >= monitor.threshold and row not in self.alarms:
                self.alarms[row] = read_alarm(
                    monitor._family,
                    monitor.space,
                    e.cells[row],
                    e.learned[row],
                    number=int(e.rounds[row]),
                    value=float(self.statistic(np.array([row]))[0]),
                    group=None,
                )

    def statistic(self, rows: Integers) -> Array:
        """Return the evidence of these rows now."""
        return evidence_of(self.columns).of(rows).values(self.monitor._family.table)

    def evidence(self, rows: Integers, keys: Any) -> StreamEvidence:
        """Return the evidence of these rows, which have these keys."""
        rounds = self.columns["rounds"][rows]
        peaks = self.columns["peaks"][rows]
        return StreamEvidence(keys, rounds, self.statistic(rows), peaks, peaks >= self.monitor.threshold)

    def state(self, rows: Integers) -> Saved:
        """Return the state of these rows, in this order."""
        met = [(at, self.alarms[row]) for at, row in enumerate(rows.tolist()) if row in self.alarms]
        alarms = [alarm_state(alarm, []) | {"row": at} for at, alarm in met]
        return self.columns.state(rows) | {"alarms": alarms}

    def resumed(self, state: Any, rounds: Integers) -> Self:
        """Return streams with this state after so many rounds each, or raise; this one does not change."""
        check_names("the evidence", state, [*(field.name for field in self.schema.fields), "alarms"])
        monitor = self.monitor
        n = len(rounds)
        twin = type(self)(monitor)
        columns = {name: array for name, array in state.items() if name != "alarms"}
        twin.columns = read_columns(self.schema, columns)
        if not np.array_equal(twin.columns["rounds"], rounds):
            raise SnapshotError("the evidence's rounds are not those of the streams.")
        if not isinstance(state["alarms"], list):
            raise SnapshotError("the alarms are not a list.")
        for each in state["alarms"]:
            if not isinstance(each, dict) or not isinstance(row := each.get("row"), int) or not 0 <= row < n:
                raise SnapshotError(f"an alarm is not that of one of {n} streams.")
            given = {name: value for name, value in each.items() if name != "row"}
            twin.alarms[row] = checked_alarm(given, [], rounds=int(rounds[row]), threshold=monitor.threshold)
        if sorted(twin.alarms) != np.flatnonzero(twin.columns["peaks"] >= monitor.threshold).tolist():
            raise SnapshotError("the peaks and the alarms do not agree.")
        return twin


Name = TypeVar("Name", bound=Hashable)


def discoveries(e_values: Mapping[Name, float], alpha: float = 0.05) -> list[Name]:
    """Return the streams whose forecasts are off, the strongest evidence first, by e-BH (Wang and Ramdas 2022).

    Of `n` e-values, those at or above `n/(alpha·k)` are discoveries, for the largest `k` for which there are `k` of
    them. The expected share of streams among them whose forecasts are right is at most `alpha`, however the streams
    depend on each other. It holds for the e-values of one moment, which may be chosen by looking at them: not for the
    largest e-value that each stream ever had (`peak`), and not for the union of what several moments gave.

    Parameters
    ----------
    e_values
        The e-value of each stream, by name: `Monitor.e_values`, or those of many monitors.
    alpha
        The most that the false discovery rate may be.

    Examples
    --------
    >>> discoveries({"north": 3.0, "east": 90.0, "south": 41.0, "west": 0.2})
    ['east', 'south']
    """
    if not isinstance(e_values, Mapping):
        raise ParameterError.expected("e_values", e_values, "a mapping from names to e-values")
    for name, e in e_values.items():
        if isinstance(e, bool) or not isinstance(e, int | float | np.number) or not e >= 0:
            raise ParameterError.expected(f"the e-value of {name!r}", e, "a number of 0 or more")
    names = list(e_values)
    return [names[i] for i in discovered(np.array([float(e) for e in e_values.values()]), alpha)]


def discovered(e_values: Array, alpha: float) -> Integers:
    """Return the places of the discoveries among e-values, the strongest evidence first.

    Examples
    --------
    >>> discovered(np.array([3.0, 90.0, 41.0, 0.2]), 0.05)
    array([1, 2])
    """
    if not isinstance(alpha, int | float | np.number) or not 0 < alpha < 1:
        raise ParameterError.expected("alpha", alpha, "a number between 0 and 1")
    ranked = np.argsort(-e_values, kind="stable")
    enough = np.arange(1, len(ranked) + 1) * e_values[ranked] * alpha >= len(ranked)
    return np.asarray(ranked[: int(np.flatnonzero(enough).max(initial=-1)) + 1])
