"""The books: what is done when a forecast or an outcome arrives. State follows the log, row by row.

Everything here happens on the writer's thread, within its transaction. A request is checked whole before anything
changes, so that a refused one leaves no trace; if the transaction fails, the writer lets the books forget what is in
memory, and it is read again from the store.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import msgspec
import numpy as np

from treecal._typing import Array
from treecal.forecast import DecisionForecast
from treecal.geometry import Cdf, Simplex
from treecal.late import Arrival as Status, Opening, Outcome, Standing
from treecal.serve import _wire as wire
from treecal.serve._config import made_of, packed, written_parts
from treecal.serve._connections import Store
from treecal.serve._player import Player, Raised, rehearse
from treecal.serve._refusals import Refusal
from treecal.serve._replay import Picture, StreamRow, Taught, change, loaded, picture_of, stream_rows
from treecal.serve._rounds import (
    LogEntry,
    Round,
    SettingsChange,
    deletion,
    group_of,
    outcome_columns,
    outcome_of,
)
from treecal.serve._validation import check_groups, due_of, model_of, outcomes_of, tags_of

SNAPSHOT_EVERY = 4096
"""Rows of the log between two snapshots of a stream: a restart reads at most so many of each."""
STEP = 500
"""Rows that are deleted at once: others are answered in between."""
DAY = 86400.0
IN_MEMORY = 4096
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the quantiles that answers have, of forecasts of numbers."""
"""Streams that are kept in memory, those used last."""

Event = dict[str, Any]


class Given(NamedTuple):
    """A forecast as it is compared with what is known under its id."""

    model: bytes | None
    tags: str
    due: float | None


class Books:
    """Streams, forecasts and outcomes.

    Parameters
    ----------
    store
        Where they are kept.
    clock
        What tells the time, in seconds since 1970.
    receivers
        Returns the names of the webhooks that are sent the alarms of a stream.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        receivers: Callable[[str], Iterable[str]] = lambda stream: (),
    ) -> None:
        self.store = store
        self._clock = clock
        self._receivers = receivers
        self.events: list[Event] = []
        self._kept: dict[str, StreamRow] = {}
        self._names: list[str] = []
        self._players: OrderedDict[str, Player] = OrderedDict()
        self._saved: dict[str, int] = {}  # rows of the log at the last snapshot
        self._tidied: dict[str, tuple[float, int]] = {}  # until which day, and how many days are kept
        self.forget()

    def _now(self) -> float:
        return self._clock() + 0.0  # never -0.0, which SQLite does not keep

    def forget(self) -> None:
        """Forget what is in memory: the store has it all."""
        self.events = []
        self._players.clear()
        self._saved.clear()
        self._tidied.clear()
        kept = stream_rows(self.store)
        self._kept = {each.name: each for each in kept}
        self._names = sorted(self._kept)

    def names(self, *, after: str = "", prefix: str = "") -> list[str]:
        """Return the names of streams that come after one and start with a prefix, in order."""
        first = max(bisect_right(self._names, after) if after else 0, bisect_left(self._names, prefix))
        return self._names[first : bisect_left(self._names, prefix + "\x7f")]  # greater than any letter of a name

    def kept(self, name: str) -> StreamRow:
        """Return a stream as its row says, or refuse."""
        if (found := self._kept.get(name)) is None:
            hint = "POST /v1/streams creates one; GET /v1/streams lists them."
            raise Refusal("not_found", f"there is no stream {name!r}.", hint=hint, at="stream")
        return found

    def player(self, name: str) -> Player:
        """Return a stream in memory, loaded if it must be, or refuse."""
        kept = self.kept(name)
        if (player := self._players.get(name)) is None:
            player, saved = loaded(self.store, kept)
            self._players[name] = player
            self._saved[name] = saved
        self._players.move_to_end(name)
        return player

    # Streams

    def create(self, new: wire.NewStream) -> tuple[str, bool]:
        """Create a stream; return its name, and whether it is new: the same again changes nothing."""
        if (found := self._kept.get(new.name)) is not None:
            if found.config != new:
                raise Refusal(
                    "conflict",
                    f"stream {new.name!r} exists, with other settings.",
                    hint="choose another name; or change what can be, with PATCH /v1/streams/{s}.",
                    at="name",
                )
            return new.name, False
        if "time" in new.tags:
            raise Refusal("invalid", "no tag can have the name 'time'.", hint="by=time is the clock.", at="tags")
        rehearse(new)
        player = Player(new)
        now = self._now()
        ((last,),) = self.store.query("last_stream")
        stream = last + 1
        parts = written_parts(player.thing, player.monitors)
        self.store.run("add_stream", [(stream, new.name, msgspec.json.encode(new).decode(), parts, now)])
        self._kept[new.name] = StreamRow(stream, new.name, new, parts, now)
        insort(self._names, new.name)
        self._players[new.name] = player
        self._saved[new.name] = 0
        self._tell("stream", new.name, what="created")
        return new.name, True

    def change(self, name: str, changes: wire.StreamChange, taught: Taught | None = None) -> None:
        """Change settings of a stream; another corrector has learned from the log, or does so now."""
        kept = self.kept(name)
        player = self.player(name)
        config = changes.of(kept.config)
        if config == kept.config and not changes.relearn:
            return
        of = kept.stream, player.deleted
        if taught is None or (taught.player.config, taught.of) != (config, of):
            rehearse(config)
            taught = Taught(Player(config), of)
        thing, monitors = made_of(config, player.space)
        parts = written_parts(thing if changes.relearn else player.thing, monitors)
        body = msgspec.json.encode(SettingsChange((kept.config, kept.parts), (config, parts), changes.relearn))
        entry = LogEntry(player.arrivals + 1, "changed", 0, self._now(), None, body)
        change(self.store, kept.stream, player, entry, taught)
        self.store.run("add_arrival", [(kept.stream, *entry)])
        self.store.run("change_stream", [(msgspec.json.encode(config).decode(), parts, kept.stream)])
        self._kept[name] = kept._replace(config=config, parts=parts)
        self.save(name)  # so that every snapshot is of the settings that the stream has
        self._tell("stream", name, what="changed")

    def archive(self, name: str) -> None:
        """Archive a stream: it rejects new forecasts and still accepts outcomes of pending ones."""
        kept = self.kept(name)
        if kept.archived is None:
            now = self._now()
            self.store.run("archive_stream", [(now, kept.stream)])
            self._kept[name] = kept._replace(archived=now)
            self._tell("stream", name, what="archived")

    def reset(self, name: str) -> None:
        """Reset the monitors."""
        player = self.player(name)
        self._record(name, player, LogEntry(player.arrivals + 1, "reset", 0, self._now(), None, None))
        self._tell("stream", name, what="reset")
        self._save_if_due(name, player)

    # Deleting

    def delete(self, name: str) -> None:
        """Delete a stream: nothing finds it from here on, and `tidy` deletes its rows."""
        kept = self.kept(name)
        ((last,),) = self.store.query("last_arrival", kept.stream)
        self.store.run("bury_stream", [(f"#{kept.stream}", f"{last} arrivals", self._now(), kept.stream)])
        for statement in ("drop_snapshot", "drop_base", "drop_deliveries", "drop_alarms"):
            self.store.run(statement, [(kept.stream,)])
        self.store.purge()
        self._players.pop(name, None)
        self._saved.pop(name, None)
        del self._kept[name]
        self._names.remove(name)
        self._tell("stream", name, what="deleted")

    def erase(self, name: str, numbers: Iterable[int], *, stream: int | None = None) -> int:
        """Delete rounds of a stream with all that is known of them, but for what was learned; return how many.

        The log begins anew, with the state as it is, whose hash is in the event that follows. Those that wait are void.
        """
        kept = self.kept(name)
        if stream not in (None, kept.stream):  # that one was deleted meanwhile, and this one has its name
            return 0
        player = self.player(name)
        now = self._now()
        found = []
        for *columns, waits in self.store.each("round_to_erase", [(kept.stream, each) for each in numbers]):
            row = Round(*columns)
            found.append((kept.stream, row.round))
            if waits is not None:
                player.closed(LogEntry(player.arrivals + 1, "void", row.round, now, None, None), row)
        if not found:
            return 0
        content = packed(player.get_state())
        self.store.run("keep_base", [(kept.stream, player.rounds, player.arrivals, content)])
        self.store.run("drop_snapshot", [(kept.stream,)])
        for statement in ("close_pending", "erase_arrivals", "erase_round"):
            self.store.run(statement, found)
        self._saved[name] = player.rounds + player.arrivals
        noted = deletion(len(found), content)
        self._record(name, player, LogEntry(player.arrivals + 1, "deleted", 0, now, None, noted))
        self.store.purge()
        self._tell("stream", name, what="deleted")
        return len(found)

    def erase_named(self, name: str, named: str) -> int:
        """Delete the round of an id, or refuse."""
        rows = self.store.query("round_by_id", self.kept(name).stream, named)
        if not rows:
            raise Refusal("not_found", f"stream {name!r} has no forecast {named!r}.", at="id")
        return self.erase(name, [rows[0][0]])

    def tidy(self, keep: int | None) -> bool:
        """Delete some rows: of deleted streams, or older than so many days; return whether there may be more.

        Days are those of the stream, if it has any. They are whole ones, in UTC: so a stream loses rows once a day.
        """
        for (stream,) in self.store.query("buried"):
            for statement in ("sweep_pending", "sweep_arrivals", "sweep_rounds"):
                self.store.run(statement, [(stream, stream, STEP)])
            self.store.purge()
            return True
        today = self._now() // DAY * DAY
        looked = 0
        for name, kept in self._kept.items():
            days = kept.config.keep or keep
            if days is None or self._tidied.get(name) == (today, days):
                continue
            rows = self.store.query("first_rounds", kept.stream, STEP, today - days * DAY)
            if rows:
                self.erase(name, [number for (number,) in rows])
                return True
            self._tidied[name] = today, days
            looked += 1
            if looked == STEP:
                return True
        return False

    # Forecasts

    def forecast(self, name: str, new: Sequence[wire.NewForecast]) -> list[wire.Announced]:
        """Announce forecasts, in order: all of them, or none."""
        kept = self.kept(name)
        player = self.player(name)
        where = [""] if len(new) == 1 else [f"forecasts[{i}]." for i in range(len(new))]
        known = {
            row[1]: Round(*row) for row in self.store.each("round_by_id", [(kept.stream, each.id) for each in new])
        }
        first: dict[str, int] = {}
        models: list[Array | None] = []
        given: list[Given] = []
        fresh: list[int] = []
        marked: list[Round] = []
        revisions: list[tuple[Round, bytes | None]] = []
        for i, each in enumerate(new):
            models.append(model_of(player, each, where[i]))
            given.append(Given(_bytes(models[i]), tags_of(kept.config, each, where[i]), due_of(each, where[i])))
            j = first.setdefault(each.id, i)
            again = known.get(each.id)
            if again is not None and self._revises(kept, again, given[i], each.used, where[i]):
                revisions.append((again, given[i].model))
                continue
            if (again is not None and given[i] != (again.model, again.tags, again.due)) or (
                (given[i], each.used) != (given[j], new[j].used)
            ):
                hint = "use an id once; to ask again, send the same body."
                raise Refusal("conflict", f"id {each.id!r} has another forecast.", hint=hint, at=f"{where[i]}id")
            if j < i:
                continue
            if again is None:
                fresh.append(i)
            elif each.used and not again.used and not again.marked:
                if self._past(kept, [again]):
                    problem = f"id {each.id!r} has its outcome, and what was announced is scored."
                    raise Refusal("conflict", problem, hint="it cannot be changed any more.", at=f"{where[i]}used")
                marked.append(again)
        check_groups(player, {self._group(player, new[i]): where[i] for i in fresh})
        if fresh and kept.archived is not None:
            raise Refusal("archived", f"stream {name!r} is archived: it rejects new forecasts.", at="stream")
        if player.limit is not None and len(fresh) > player.limit:
            problem = f"there are {len(fresh)} new forecasts, and at most {player.limit} may await their outcomes."
            raise Refusal("invalid", problem, at="forecasts")
        for row in marked:  # the answer was too late for whoever asked; before a new round may make this one void
            arrival = LogEntry(player.arrivals + 1, "used", row.round, self._now(), None, None)
            self._record(name, player, arrival, row)
        for row, model in revisions:
            self._revise(kept, player, row, model)
        known |= {row.id: player.latest(row) for row, _ in revisions}
        rounds = self._open(kept, player, [(new[i], models[i], given[i]) for i in fresh])
        known |= {each.id: each for each in rounds}
        if rounds or marked or revisions:
            self._tell("forecast", name, rounds=player.rounds, pending=player.pending)
            self._save_if_due(name, player)
        # By what the body says, so that it has the same answer before and after the model's forecast was used.
        return [
            announced(player, known[each.id]._replace(marked=int(each.used)), named=isinstance(each.p, dict))
            for each in new
        ]

    def _revises(self, kept: StreamRow, row: Round, given: Given, used: bool, where: str) -> bool:
        """Return whether a forecast under a known id revises it, or refuse what cannot be revised."""
        if not kept.config.revises or given.model == row.model:
            return False
        if (given.tags, given.due) != (row.tags, row.due) or used:
            hint = "a revision has the same tags and due as the forecast, and another p."
            problem = f"id {row.id!r} has other tags, or is due at another time."
            raise Refusal("conflict", problem, hint=hint, at=f"{where}id")
        if self._past(kept, [row]):
            raise Refusal("conflict", f"id {row.id!r} has its outcome.", hint="it cannot be revised.", at=f"{where}id")
        return True

    def _revise(self, kept: StreamRow, player: Player, row: Round, model: bytes | None) -> None:
        now = self._now()
        entry = LogEntry(player.arrivals + 1, "revised", row.round, now, None, model)
        raised = player.revised(entry, row)
        self.store.run("add_arrival", [(kept.stream, *entry)])
        self._raise(kept, [(player.arrivals, each) for each in raised], now)

    def _group(self, player: Player, each: wire.NewForecast) -> Hashable:
        return group_of(each.tags, player.config.group) if player.config.group else None

    def _open(
        self, kept: StreamRow, player: Player, new: Sequence[tuple[wire.NewForecast, Array | None, Given]]
    ) -> list[Round]:
        now = self._now()
        groups = [self._group(player, each) for each, _, _ in new]
        openings: dict[int, Opening] = {}
        if asked := [i for i, (each, _, _) in enumerate(new) if player.pool is None and not each.used]:
            found = player.announce([new[i][1] for i in asked], [groups[i] for i in asked])
            openings.update(zip(asked, found, strict=True))
        over = 0 if player.limit is None else max(0, player.pending + len(new) - player.limit)
        if over:  # where the limit was lowered, not all at once
            self._void(kept, player, min(over, len(new) + STEP), now)
        rounds = []
        for i, (each, model, given) in enumerate(new):
            if each.used:
                opening = player.as_it_is(model)
            else:
                opening = openings.get(i) or player.take(model, groups[i], player.rounds + 1)
            due = None if each.due is None else each.due + 0.0  # SQLite has no -0.0, and the hash would tell
            row = player.row(each.id, now, given.model, opening, given.tags, used=each.used, due=due)
            player.opened(row)
            rounds.append(row)
        self.store.run("add_round", [(kept.stream, *row[:-1]) for row in rounds])
        self.store.run("add_pending", [(kept.stream, row.round, row.due) for row in rounds])
        return rounds

    def _void(self, kept: StreamRow, player: Player, count: int, now: float) -> None:
        """Give up the oldest rounds: more wait than may."""
        for row in self.store.query("oldest_pending", kept.stream, count):
            each = Round(*row)
            self._record(kept.name, player, LogEntry(player.arrivals + 1, "void", each.round, now, None, None), each)
            self.store.run("close_pending", [(kept.stream, each.round)])

    # Outcomes

    def settle(self, new: Sequence[wire.NewOutcome]) -> list[wire.Settled]:
        """Take outcomes, those of each stream in order; return what became of each."""
        status: list[Status] = ["unknown"] * len(new)
        for name, (places, outcomes) in self.check(new).items():
            found = self._settle(name, [new[i] for i in places], outcomes)
            for i, became in zip(places, found, strict=True):
                status[i] = became
        return [wire.Settled(each.stream, each.id, status[i]) for i, each in enumerate(new)]

    def check(self, new: Sequence[wire.NewOutcome]) -> dict[str, tuple[list[int], list[Outcome]]]:
        """Return the places and the outcomes of each stream, in brief, or refuse them all."""
        places: dict[str, list[int]] = {}
        for i, each in enumerate(new):
            if each.stream in self._kept:
                places.setdefault(each.stream, []).append(i)
        return {name: (own, outcomes_of(self.player(name), new, own)) for name, own in places.items()}

    def _settle(self, name: str, new: Sequence[wire.NewOutcome], outcomes: list[Outcome]) -> list[Status]:
        kept = self.kept(name)
        player = self.player(name)
        now = self._now()
        known: dict[str, Round] = {}
        pending: dict[int, Round] = {}
        for *columns, waits in self.store.each("round_to_settle", [(kept.stream, each.id) for each in new]):
            row = Round(*columns)
            known[row.id] = row
            if waits is not None:
                pending[row.round] = row
        standings = self._past(kept, [row for row in known.values() if row.round not in pending])
        for row in pending.values():
            standings[row.round] = Standing(row.due is not None and now > row.due)
        found: list[Status] = []
        learned: list[tuple[Round, Outcome]] = []
        raised: list[tuple[int, Raised]] = []

        def learn() -> None:
            entries = [
                LogEntry(player.arrivals + 1 + i, "outcome", each.round, now, *outcome_columns(outcome))
                for i, (each, outcome) in enumerate(learned)
            ]
            if entries:
                alarms = player.learn([each for each, _ in learned], entries, [outcome for _, outcome in learned])
                raised.extend((player.arrivals, each) for each in alarms)
                self.store.run("add_arrival", [(kept.stream, *each) for each in entries])
                self.store.run("close_pending", [(kept.stream, each.round) for each, _ in learned])
                learned.clear()

        for each, outcome in zip(new, outcomes, strict=True):
            settled = known.get(each.id)
            if settled is None:
                found.append("unknown")
                continue
            standing = standings[settled.round]
            kept_before = len(standing.outcomes)
            status = standing.take(outcome, amend=each.amend)
            found.append(status)
            closes = pending.pop(settled.round, None) is not None
            if status == "learned":
                learned.append((settled, outcome))
            elif len(standing.outcomes) > kept_before:
                learn()
                kind = "late" if closes else "amended"
                entry = LogEntry(player.arrivals + 1, kind, settled.round, now, *outcome_columns(outcome))
                self._record(name, player, entry, settled)
                if closes:
                    self.store.run("close_pending", [(kept.stream, settled.round)])
        learn()
        self._raise(kept, raised, now)
        if {"learned", "late", "amended"} & set(found):
            self._tell("outcome", name, learned=player.learned, pending=player.pending)
            self._save_if_due(name, player)
        return found

    def _past(self, kept: StreamRow, closed: Iterable[Round]) -> dict[int, Standing]:
        """Return where closed rounds stand; those that are not there are pending."""
        found: dict[int, Standing] = {}
        rows = self.store.each("arrivals_of_round", [(kept.stream, each.round) for each in closed])
        for number, kind, _, class_, point in rows:
            if kind in ("used", "revised"):
                continue
            standing = found.setdefault(number, Standing(kind != "outcome"))
            if kind != "void":
                standing.outcomes.append(outcome_of(class_, point))
        return found

    def _raise(self, kept: StreamRow, raised: Sequence[tuple[int, Raised]], now: float) -> None:
        for arrival, (watched, alarm) in raised:
            after = self.player(kept.name).monitors[watched].rounds - alarm.onset
            rows = self.store.query("outcome_before_last", kept.stream, after)
            more = {"words": alarm.in_outcomes(), "since": rows[0][0] if rows else kept.created}  # it may be deleted
            plain = {key: 1e300 if value == math.inf else value for key, value in (asdict(alarm) | more).items()}
            body = msgspec.json.encode(plain).decode()
            self.store.run("add_alarm", [(kept.stream, arrival, watched, now, body)])
            if owed := [(kept.stream, arrival, watched, receiver) for receiver in self._receivers(kept.name)]:
                self.store.run("add_delivery", owed)
            announced_alarm = wire_alarm(kept.name, watched, now, msgspec.json.decode(body))
            self.events.append({"event": "alarm", **msgspec.to_builtins(announced_alarm)})

    # What all of them do

    def _record(self, name: str, player: Player, arrival: LogEntry, row: Round | None = None) -> None:
        """Record an arrival that is not learned, with its round."""
        player.closed(arrival, row)
        self.store.run("add_arrival", [(self.kept(name).stream, *arrival)])

    def _tell(self, event: str, name: str, **more: Any) -> None:
        self.events.append({"event": event, "stream": name, **more})

    def _save_if_due(self, name: str, player: Player) -> None:
        copies = 0 if player.pool is None else len(player.pool.copies)  # each takes a while to write
        if player.rounds + player.arrivals - self._saved[name] >= SNAPSHOT_EVERY * max(1, copies // 250):
            self.save(name)

    def beat(self) -> None:
        """Write something, to see that it can be."""
        self.store.run("beat", [(self._now(),)])

    def save(self, name: str) -> None:
        """Keep a snapshot of a stream."""
        kept = self.kept(name)
        player = self.player(name)
        row = (kept.stream, player.rounds, player.arrivals, packed(player.get_state()))
        self.store.run("keep_snapshot", [row])
        self._saved[name] = player.rounds + player.arrivals

    def save_all(self) -> None:
        """Keep a snapshot of every stream in memory that has changed since its last."""
        for name, player in list(self._players.items()):
            if player.rounds + player.arrivals != self._saved[name]:
                self.save(name)

    def shed(self, *, save: bool) -> None:
        """Drop the streams that were used longest ago, if too many are in memory; within a transaction, save them."""
        while len(self._players) > IN_MEMORY:
            name, player = next(iter(self._players.items()))
            if save and player.rounds + player.arrivals != self._saved[name]:
                self.save(name)
            del self._players[name], self._saved[name]

    def picture(self, name: str) -> Picture:
        """Return a copy of what is in memory of a stream."""
        return picture_of(self.kept(name), self.player(name))


def announced(player: Player, each: Round, *, named: bool) -> wire.Announced:
    """Return what was announced in a round, as it is answered: the same whenever it is asked for."""
    mean: list[float] = each.mean().tolist()
    names = player.space.classes if named and isinstance(player.space, Simplex) else None
    forecast = mean if names is None else dict(zip(names, mean, strict=True))
    points = weights = None
    if each.several():
        x = each.forecast(player.space)
        points = x.points.tolist()
        weights = x.weights.tolist()
    action = actions = None
    if player.losses is not None:
        advice = DecisionForecast(each.forecast(player.space), player.losses)
        action = advice.action
        actions = {str(name): weight for name, weight in advice.actions.items()} if each.several() else None
    quantiles = quantiles_of(player.space, each.mean()) if isinstance(player.space, Cdf) else None
    return wire.Announced(each.id, each.round, forecast, each.state.hex(), points, weights, quantiles, action, actions)


def quantiles_of(space: Cdf, values: Array) -> dict[str, Any]:
    """Return quantiles of distributions of a number, by level."""
    law = space.distribution(values)
    return {f"q{100 * level:g}": np.asarray(law.quantile(level)).tolist() for level in LEVELS}


def wire_alarm(name: str, watched: str, at: float, body: dict[str, Any]) -> wire.Alarm:
    """Return an alarm as it is answered."""
    group = body.get("group")
    text = None if group is None else group if isinstance(group, str) else msgspec.json.encode(group).decode()
    return msgspec.convert({**body, "stream": name, "of": watched, "at": at, "group": text}, wire.Alarm)


def _bytes(point: Array | None) -> bytes | None:
    return None if point is None else np.ascontiguousarray(point, np.float64).tobytes()
