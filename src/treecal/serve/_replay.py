"""From the log to the state, all of it or what follows a snapshot; and the state as others may see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np

from treecal.auditing import BinCounts
from treecal.exceptions import FileError, TreeCalError
from treecal.late import Opening
from treecal.monitor import Alarm
from treecal.serve._config import unpacked
from treecal.serve._player import CurvePoint, Player
from treecal.serve._rounds import LogEntry, Round, outcome_of, points_of
from treecal.serve._store import Reader, Row
from treecal.serve._wire import NewStream

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


def loaded(reader: Reader, kept: StreamRow) -> tuple[Player, int]:
    """Return a stream as its log leaves it: from its snapshot, if there is a valid one, and what follows.

    The number is of the rows of the log that are in the snapshot.
    """
    player, saved = Player(kept.config, kept.parts), 0
    for row in reader.query("snapshot", kept.stream):
        with suppress(TreeCalError, KeyError, TypeError, ValueError):  # of another version, or damaged: the log has all
            found = Player(kept.config, kept.parts)
            found.set_state(unpacked(bytes(row[2])))
            if (found.rounds, found.arrivals) == tuple(row[:2]):
                player, saved = found, found.rounds + found.arrivals
    replay(reader, kept.stream, player)
    return player, saved


def replay(
    reader: Reader,
    stream: int,
    player: Player,
    *,
    check: Callable[[Player, Round, Opening], None] | None = None,
    until: tuple[int, int] | None = None,
) -> None:
    """Play the rest of the log, up to so many rounds and arrivals; `check` sees what would be announced in each."""
    rounds, arrivals = _rounds(reader, stream, player.rounds), _arrivals(reader, stream, player.arrivals)
    last_round, last_arrival = (None, None) if until is None else until
    arrival = next(arrivals, None)
    batch: list[tuple[LogEntry, Round]] = []

    def learn() -> None:
        if batch:
            outcomes = [outcome_of(each.class_, each.point) for each, _ in batch]
            player.learn([row for _, row in batch], [each for each, _ in batch], outcomes)
            batch.clear()

    for each in chain(rounds, (None,)):
        if each is not None and last_round is not None and each.round > last_round:
            each = None
        while arrival is not None and (each is None or arrival[0].arrival <= each.arrivals):
            entry, row = arrival
            if last_arrival is not None and entry.arrival > last_arrival:
                break
            if entry.kind == "outcome":
                if row is None:
                    raise FileError(f"arrival {entry.arrival} is the outcome of a round that is not there.")
                batch.append((entry, row))
            else:
                learn()
                player.closed(entry, None if row is None else closing_copy(entry, row))
            if len(batch) >= _PAGE:
                learn()
            arrival = next(arrivals, None)
        if each is None:
            break
        learn()
        model, group = each.model_point(), each.group(player.config.group)
        opening = None
        if player.pool is not None and not each.used:
            opening = player.take(model, group, each.round)
        elif check is not None:
            opening = player.announce([model], [group])[0] if not each.used else player.as_it_is(model)
        if check is not None and opening is not None:
            check(player, each, opening)
        player.opened(each)
    learn()


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


def closing_copy(entry: LogEntry, row: Round) -> int | None:
    """Return the copy that waits no longer after an arrival that is not learned."""
    if entry.kind == "used":
        return row.copy
    return row.waiting_copy() if entry.kind in ("late", "void") else None


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
    rounds: int
    learned: int
    late: int
    void: int
    pending: int
    amended: int
    state: str
    last: float
    played: str
    cells: dict[str, BinCounts]
    monitors: dict[str, MonitorStanding]
    marks: list[CurvePoint]


def picture_of(kept: StreamRow, player: Player) -> Picture:
    """Return a copy of what is in memory of a stream."""
    player.catch_up()
    marks = list(player.marks)
    if player.learned and (not marks or marks[-1].rounds < player.learned):
        marks.append(player.mark())
    return Picture(
        kept,
        player.rounds,
        player.learned,
        player.late,
        player.void,
        player.pending,
        player.amended,
        player.state.hex(),
        player.last,
        "the model's forecasts, as they are" if player.thing is None else repr(player.thing),
        {role: BinCounts(*(each.copy() for each in cells)) for role, cells in player.cells.items()},
        {
            name: MonitorStanding(each.statistic, each.peak, each.threshold, each.alarm)
            for name, each in player.monitors.items()
        },
        marks,
    )
