"""The rows of an epoch: which are learned, in what order, and the problems of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from treecal._typing import Array, Integers, Outcomes
from treecal.engine import first_refused
from treecal.exceptions import ForecastError, OutcomeError
from treecal.geometry import ConvexSet, read_forecast, read_forecast_rows, read_outcome
from treecal.keyed._tables import Mask, arrow, numbers, schemas

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK = 4096  # rows checked at once: after an invalid one, only the rest of its block is checked again


class Rows(NamedTuple):
    """The rows to learn, sorted by stream and sequence number, and the problems of the others."""

    keys: pa.Array  # of each stream: those of the state first, in its order, then new ones
    streams: Integers
    seq: Integers
    outcomes: Outcomes
    forecasts: Array | None
    problems: pa.Table


def arrange(
    state: pa.Table, table: pa.Table, space: ConvexSet, *, horizon: int | None = None, tolerance: float | None = None
) -> Rows:
    """Sort the rows of an epoch, without those that `treecal.keyed.advance` does not learn.

    With a tolerance they have forecasts, which are read within it.
    """
    pa = arrow()
    streams, keys = _streams(state.column("key").combine_chunks(), table.column("key").cast(pa.string()))
    given = table.column("seq").cast(pa.int64()).combine_chunks()
    keyed = streams >= 0
    numbered = _valid(given)
    seq = given.fill_null(0).to_numpy()
    log = _Log(keys)
    if not keyed.all():
        log.add("key", None, None, int((~keyed).sum()), "has no key; not learned.")
    past = keyed & numbered & (streams < len(state))
    past[past] = seq[past] <= state.column("seq").to_numpy()[streams[past]]
    _report_past(log, state, streams[past], seq[past])

    rows = np.flatnonzero(keyed & ~past)
    rows = rows[np.lexsort((seq[rows], streams[rows]))]
    log.counts = np.bincount(streams[rows], minlength=len(keys))
    log.fail("seq", streams[rows], None, ~numbered[rows], lambda i: "has no sequence number.")
    rows = rows[numbered[rows]]
    streams = streams[rows]
    seq = seq[rows]
    values = table.column("outcome").combine_chunks().take(pa.array(rows))
    again = np.zeros(len(rows), bool)
    again[1:] = (streams[1:] == streams[:-1]) & (seq[1:] == seq[:-1])
    number = np.cumsum(~again)  # one for each key and sequence number
    outcomes, bad = _read(values, space)

    def complaint(row: int) -> str:
        """Return the problem of a number; if several of its outcomes are invalid, the same one in any order."""
        same = range(*np.searchsorted(number, [number[row], number[row] + 1]).tolist())
        return min(_complaint(space, values[i].as_py()) for i in same if bad[i])

    log.fail("outcome", streams, seq, bad, complaint)
    other = again.copy()
    at = np.flatnonzero(again)
    other[at] = (_bits(outcomes[at]) != _bits(outcomes[at - 1])).any(axis=1)
    log.fail("conflict", streams, seq, other, lambda i: "has two different outcomes.")
    forecasts = None
    if tolerance is not None:
        given = table.column("forecast").combine_chunks().take(pa.array(rows))
        forecasts, off = _read_forecasts(given, space, tolerance)
        log.fail("forecast", streams, seq, off, lambda i: _complaint(space, given[i].as_py(), tolerance))
        other[at] = (_bits(forecasts[at]) != _bits(forecasts[at - 1])).any(axis=1)
        log.fail("conflict", streams, seq, other & ~off, lambda i: "has two different forecasts.")
    if horizon is not None:
        left = np.full(len(keys), min(horizon, 2**62))
        left[: len(state)] -= state.column("rounds").to_numpy()
        full = np.bincount(streams[~again], minlength=len(keys)) > left
        log.fail("horizon", streams, seq, full[streams], lambda i: f"would make more than {horizon} rounds.")

    learns = ~log.failed[streams]
    twice = again & learns
    log.add("duplicate", streams[twice], seq[twice], 1, "appears twice; learned once.")
    mine = learns & ~again
    streams = streams[mine]
    seq = seq[mine]
    outcomes = outcomes[mine]
    _report_missing(log, state, streams, seq)
    return Rows(keys, streams, seq, outcomes, None if forecasts is None else forecasts[mine], log.table())


class _Log:
    """Collects problems, and the streams that fail."""

    def __init__(self, keys: pa.Array) -> None:
        self._pa = arrow()
        self._keys = keys
        self._tables = [schemas()["problems"].empty_table()]
        self.failed: Mask = np.zeros(len(keys), bool)
        self.counts: Integers = np.zeros(len(keys), np.int64)

    def add(self, kind: str, streams: Any, seq: Any, rows: Any, details: str | list[str]) -> None:
        """Report some problems of a kind."""
        pa = self._pa
        n = 1 if streams is None else len(streams)
        if n:
            key = pa.nulls(n, pa.string()) if streams is None else self._keys.take(pa.array(streams))
            number = pa.nulls(n, pa.int64()) if seq is None else seq
            text = pa.repeat(details, n) if isinstance(details, str) else details
            columns = [key, number, np.full(n, rows), pa.repeat(kind, n), text]
            self._tables.append(pa.table(columns, schema=schemas()["problems"]))

    def fail(self, kind: str, streams: Integers, seq: Any, bad: Mask, detail: Callable[[int], str]) -> None:
        """Fail the streams of invalid rows; report the first of each, with the number of rows not learned for it."""
        at = np.flatnonzero(bad)
        failing, firsts = np.unique(streams[at], return_index=True)
        at = at[firsts]
        self.failed[failing] = True
        self.add(kind, failing, None if seq is None else seq[at], self.counts[failing], [*map(detail, at.tolist())])

    def table(self) -> pa.Table:
        """Return them all."""
        return self._pa.concat_tables(self._tables).combine_chunks()


def _streams(known: pa.Array, keys: pa.ChunkedArray) -> tuple[Integers, pa.Array]:
    """Return the stream of each key, −1 for a null one, and the key of each stream."""
    import pyarrow.compute as pc

    pa = arrow()
    keys = keys.combine_chunks()
    streams = pc.index_in(keys, value_set=known).fill_null(-1).to_numpy().astype(np.int64)
    new = (streams < 0) & _valid(keys)
    coded = keys.filter(pa.array(new)).dictionary_encode()
    streams[new] = coded.indices.to_numpy() + np.int64(len(known))
    return streams, pa.concat_arrays([known, coded.dictionary])


def _read(values: pa.Array, space: ConvexSet) -> tuple[Outcomes, Mask]:
    """Return outcomes as a bank takes them, and which of them are invalid."""
    outcomes = numbers(values, space.dim)
    if outcomes.ndim == 1:
        return outcomes, (outcomes < 0) | (outcomes >= space.dim)
    bad = np.zeros(len(values), bool)
    for start in range(0, len(values), _BLOCK):
        end = min(start + _BLOCK, len(values))
        at = start
        while (refused := first_refused(space, outcomes[at:end])) is not None:
            bad[at + refused] = True
            at += refused + 1
    return outcomes, bad


def _read_forecasts(values: pa.Array, space: ConvexSet, tolerance: float) -> tuple[Array, Mask]:
    """Return forecasts as points of the set, and which of them are invalid."""
    rows = numbers(values, space.dim)
    bad = np.zeros(len(values), bool)
    for start in range(0, len(values), _BLOCK):
        block = slice(start, start + _BLOCK)
        while True:
            try:
                rows[block] = read_forecast_rows(space, rows[block], tolerance=tolerance)
                break
            except ForecastError as error:
                at = start + (error.round or 1) - 1
                # in its place, so that the others are read
                bad[at] = True
                rows[at] = space.centre
    return rows, bad


def _complaint(space: ConvexSet, value: Any, tolerance: float | None = None) -> str:
    """Return why an outcome is invalid, or with a tolerance, a forecast."""
    if value is None:
        return f"is null, expected a point of {space!r}."
    try:
        if tolerance is not None:
            read_forecast(space, value, 0, tolerance)
        read_outcome(space, value, 0)
    except (OutcomeError, ForecastError) as error:
        return error.problem
    return f"lies outside {space!r}."


def _bits(outcomes: Outcomes) -> Integers:
    """Return outcomes as integers, equal for equal outcomes; −0.0 is 0.0."""
    columns = outcomes[:, None] if outcomes.ndim == 1 else outcomes
    return (columns + 0).view(np.int64)


def _report_past(log: _Log, state: pa.Table, streams: Integers, seq: Integers) -> None:
    """Report numbers up to the last one learned: duplicates, if the key has skipped none."""
    first, last, rounds = (state.column(name).to_numpy()[streams] for name in ("first", "seq", "rounds"))
    learned = (seq >= first) & (last - first + 1 == rounds)
    duplicate = "was learned in an earlier epoch; not learned again."
    log.add("duplicate", streams[learned], seq[learned], 1, duplicate)
    late = "arrived after later ones were learned; not learned."
    log.add("late", streams[~learned], seq[~learned], 1, late)


def _report_missing(log: _Log, state: pa.Table, streams: Integers, seq: Integers) -> None:
    """Report the numbers skipped before each row."""
    before = np.empty(len(seq), np.int64)
    before[1:] = seq[:-1]
    starts = np.ones(len(seq), bool)
    starts[1:] = streams[1:] != streams[:-1]
    known = starts & (streams < len(state))
    before[starts] = seq[starts] - 1  # a new key may start anywhere
    before[known] = state.column("seq").to_numpy()[streams[known]]
    gap = np.flatnonzero(before != seq - 1)
    low = before[gap] + 1
    high = seq[gap] - 1
    details = [
        f"number {a} is missing." if a == b else f"numbers {a} to {b} are missing."
        for a, b in zip(low.tolist(), high.tolist(), strict=True)
    ]
    log.add("missing", streams[gap], low, high - low + 1, details)


def _valid(values: pa.Array) -> Mask:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
