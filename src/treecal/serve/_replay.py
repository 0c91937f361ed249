"""From the log to the state, all of it or what follows a snapshot; and the state as others may see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec
import numpy as np

from treecal.auditing import BinCounts
from treecal.exceptions import FileError, TreeCalError
from treecal.late import Lead, Opening
from treecal.monitor import Alarm
from treecal.serve._config import OtherVersionError, unpacked
from treecal.serve._connections import Reader
from treecal.serve._player import CurvePoint, Player
from treecal.serve._rounds import START, LogEntry, Round, SettingsChange, outcome_of, points_of
from treecal.serve._store import Row
from treecal.serve._wire import Counts, NewStream

_PAGE = 4096  # rows that are read at a time


class StreamRow(NamedTuple):
    """A stream as its row says."""

    stream: int
    name: str
    config: NewStream
    parts: str
    created: float
    archived: float | None = None


def stream_rows(reader: Reader) -> list[StreamRow]:
    """Return all streams."""
    rows = reader.query("streams")
    return [StreamRow(row[0], row[1], msgspec.json.decode(row[2], type=NewStream), *row[3:]) for row in rows]


def settings_at(reader: Reader, kept: StreamRow, arrival: int) -> tuple[NewStream, str]:
    """Return the settings of a stream after so many arrivals, and what they made of it."""
    for (body,) in reader.query("change_after", kept.stream, arrival):
        return change_of(bytes(body)).before
    return kept.config, kept.parts


def change_of(body: bytes) -> SettingsChange:
    """Return a change of settings as the log has it."""
    return msgspec.json.decode(body, type=SettingsChange)


def begun(reader: Reader, kept: StreamRow) -> Player:
    """Return a stream where its log begins: empty; or when rows were last deleted, with what it had learned."""
    for _, arrival, content in reader.query("base", kept.stream):
        player = Player(*settings_at(reader, kept, arrival))
        try:
            player.set_state(unpacked(bytes(content)))
        except OtherVersionError as error:
            problem = f"what stream {kept.name!r} had learned when rows were deleted cannot be read: {error.message}"
            raise FileError(problem, hint="use the treecal that wrote it.") from None
        return player
    return Player(*settings_at(reader, kept, 0))


def loaded(reader: Reader, kept: StreamRow) -> tuple[Player, int]:
    """Return a stream as its log leaves it: from its snapshot, if there is a valid one, and what follows.

    The number is of the rows of the log that are in the snapshot.
    """
    for row in reader.query("snapshot", kept.stream):
        with suppress(TreeCalError, KeyError, TypeError, ValueError):  # of another version, or damaged: the log has all
            found = Player(*settings_at(reader, kept, row[1]))
            found.set_state(unpacked(bytes(row[2])))
            if (found.rounds, found.arrivals) == tuple(row[:2]):
                break
    else:
        found = begun(reader, kept)
    saved = found.rounds + found.arrivals
    replay(reader, kept.stream, found)
    return found, saved


def replay(
    reader: Reader,
    stream: int,
    player: Player,
    *,
    check: Callable[[Player, Round, Opening], None] | None = None,
    until: tuple[int, int] | None = None,
) -> None:
    """Play the rest of the log, up to so many rounds and arrivals; `check` sees what would be announced in each."""
    last_round, last_arrival = (math.inf, math.inf) if until is None else until
    batch: list[tuple[LogEntry, Round]] = []

    def learn() -> None:
        if batch:
            outcomes = [outcome_of(each.class_, each.point) for each, _ in batch]
            player.learn([row for _, row in batch], [each for each, _ in batch], outcomes)
            batch.clear()

    for entry, row in log_of(reader, stream, player.rounds, player.arrivals):
        if entry is None:
            assert row is not None
            if row.round > last_round:
                break
            learn()
            _open(player, row, check)
            continue
        if entry.arrival > last_arrival:
            break
        if entry.kind == "outcome":
            if row is None:
                raise FileError(f"arrival {entry.arrival} is the outcome of a round that is not there.")
            batch.append((entry, row))
            if len(batch) >= _PAGE:
                learn()
            continue
        learn()
        if entry.kind == "changed":
            change(reader, stream, player, entry)
        elif entry.kind == "revised" and row is not None:
            player.revised(entry, row)
        else:
            player.closed(entry, row)
    learn()


def _open(player: Player, each: Round, check: Callable[[Player, Round, Opening], None] | None) -> None:
    model = each.model_point()
    group = each.group(player.config.group)
    opening = None
    if player.pool is not None and not each.used:
        opening = player.take(model, group, each.round)
    elif check is not None:
        opening = player.announce([model], [group])[0] if not each.used else player.as_it_is(model)
    if check is not None and opening is not None:
        check(player, each, opening)
    player.opened(each)


def change(reader: Reader, stream: int, player: Player, entry: LogEntry, taught: Taught | None = None) -> None:
    """Change the settings of a stream in memory; a new corrector learns the log, or what is left of it."""
    assert entry.point is not None
    body = change_of(entry.point)
    if taught is None:
        taught = Taught(Player(*body.after), (stream, player.deleted))
    if body.relearn:
        teach(reader, stream, taught, entry.arrival - 1)
    player.adopt(taught.player, entry, relearn=body.relearn)


class Taught(NamedTuple):
    """A stream with other settings, whose corrector has learned from the log so far."""

    player: Player
    of: tuple[int, int]
    """The stream whose log it is, and how many rounds had been deleted from it."""
    arrival: int = 0


def teach(reader: Reader, stream: int, taught: Taught, until: int) -> Taught:
    """Let a corrector learn from the log of others, up to an arrival: of all rounds that are still there."""
    batch: list[tuple[LogEntry, Round]] = []

    def learn() -> None:
        taught.player.relearn([row for _, row in batch], [outcome_of(each.class_, each.point) for each, _ in batch])
        batch.clear()

    for entry, row in _arrivals(reader, stream, taught.arrival):
        if entry.arrival > until:
            break
        if entry.kind == "outcome" and row is not None:
            batch.append((entry, row))
        if len(batch) >= _PAGE:
            learn()
    if batch:
        learn()
    return taught._replace(arrival=until)


def log_of(reader: Reader, stream: int, rounds: int, arrivals: int) -> Iterator[tuple[LogEntry | None, Round | None]]:
    """Yield the log after so many rounds and arrivals, in order: a round by itself, an arrival with its round."""
    coming = _arrivals(reader, stream, arrivals)
    arrival = next(coming, None)
    for each in _rounds(reader, stream, rounds):
        while arrival is not None and arrival[0].arrival <= each.arrivals:
            yield arrival
            arrival = next(coming, None)
        yield None, each
    while arrival is not None:
        yield arrival
        arrival = next(coming, None)


def broken_links(reader: Reader, kept: StreamRow, end: Player) -> Iterator[str]:
    """Yield where the rows before the last deletion are not those of the log: between gaps, each round has its hash."""
    state: bytes | None = START
    rounds = arrivals = 0
    for entry, row in log_of(reader, kept.stream, 0, 0):
        if entry is not None:
            if entry.arrival > end.arrivals:
                break
            state = entry.chained(state) if state is not None and entry.arrival == arrivals + 1 else None
            arrivals = entry.arrival
        elif row is not None:
            if row.round > end.rounds:
                break
            whole = state is not None and (row.round, row.arrivals) == (rounds + 1, arrivals)
            if whole and row.state != state:
                yield f"round {row.round}: the log before it is not the one it was announced after."
            state = row.chained()
            rounds = row.round
            arrivals = row.arrivals
    if state is not None and (rounds, arrivals) == (end.rounds, end.arrivals) and state != end.state:
        yield f"the log up to round {rounds} is not the one after which rows were deleted."


def _rounds(reader: Reader, stream: int, after: int) -> Iterator[Round]:
    while rows := reader.query("rounds_after", stream, after, _PAGE):
        for row in rows:
            yield Round(*row)
        after = rows[-1][0]


def _arrivals(reader: Reader, stream: int, after: int) -> Iterator[tuple[LogEntry, Round | None]]:
    while rows := reader.query("arrivals_after", stream, after, _PAGE):
        for row in rows:
            yield as_arrival(row)
        after = rows[-1][0]


def as_arrival(row: Row) -> tuple[LogEntry, Round | None]:
    """Return a row of `arrivals` with its round."""
    number, kind, at, class_, point, *rest = row
    if rest[0] is None:
        return LogEntry(number, kind, 0, at, class_, point), None
    return LogEntry(number, kind, rest[0], at, class_, point), Round(*rest)


def same(each: Round, opening: Opening) -> bool:
    """Return whether a round has, bit for bit, what would be announced in it."""
    x = opening.forecast
    inner = None if opening.inner is None else opening.inner.tobytes()
    return (each.announced, each.points, each.inner, each.copy) == (
        np.ascontiguousarray(x.mean).tobytes(),
        points_of(x),
        inner,
        opening.number,
    )


class MonitorStanding(NamedTuple):
    """Where a monitor stands."""

    value: float
    peak: float
    threshold: float
    alarm: Alarm | None


class Picture(NamedTuple):
    """A copy of what is in memory of a stream, to be looked at by any thread."""

    kept: StreamRow
    counts: Counts
    arrivals: int
    state: str
    last: float
    played: str
    cells: dict[str, BinCounts]
    monitors: dict[str, MonitorStanding]
    marks: list[CurvePoint]
    ahead: tuple[int, float] | None
    leads: list[Lead]


def picture_of(kept: StreamRow, player: Player) -> Picture:
    """Return a copy of what is in memory of a stream."""
    player.catch_up()
    marks = list(player.marks)
    if player.learned and (not marks or marks[-1].rounds < player.learned):
        marks.append(player.mark())
    played = "the model's forecasts, as they are" if player.thing is None else repr(player.thing)
    cells = {role: BinCounts(*(each.copy() for each in own)) for role, own in player.cells.items()}
    monitors = {
        name: MonitorStanding(each.statistic, each.peak, each.threshold, each.alarm)
        for name, each in player.monitors.items()
    }
    return Picture(
        kept,
        player.counts,
        player.arrivals,
        player.state.hex(),
        player.last,
        played,
        cells,
        monitors,
        marks,
        player.ahead(),
        player.revisions.leads(),
    )
