"""What a stream has learned: the parts that learn, the monitors and the scores. A function of the log.

Rounds that await their outcomes are in the store, not here, so that a million of them take no memory. What is certified
needs a copy of itself for each (see `treecal.late`), and such a stream has a limit of them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array, Integers
from treecal.auditing import AuditRows, BinCounts, tally
from treecal.correctors import (
    Batch,
    Corrector,
    GuardedCorrector,
    Round as Scored,
    Sums,
    Tallies,
    announce_many_valid,
    learn_many_valid,
    learns_at_once,
    saved_names,
)
from treecal.exceptions import SnapshotError
from treecal.forecast import Forecast, uniform
from treecal.forecasters import Forecaster, Guarded
from treecal.geometry import Cdf, ConvexSet, Simplex
from treecal.late import Opening, Outcome, Pool, Revisions, announce, ask, divided, lessons, packed, unpacked
from treecal.monitor import Alarm
from treecal.serve._config import LIMIT, made, made_of, packed as snapshot, read_parts, space_of
from treecal.serve._refusals import Refusal
from treecal.serve._rounds import START, LogEntry, Round, deleted_rows, group_of, outcome_columns, points_of, tags_text
from treecal.serve._wire import Counts, NewStream
from treecal.streams import next_checkpoint

BINS = 10
_AT_ONCE = 1024  # numbers of a kind that may wait to be scored: some 24 kB of a stream
_MOST_COPIED = 2**28  # bytes of snapshots of the copies for rounds that wait; in memory they take a few times as much
_NONE = np.empty(0, np.int64)


class CurvePoint(NamedTuple):
    """A point of the curves; NaN where there is no such thing."""

    rounds: float
    at: float
    model: float
    announced: float
    guarantee: float
    model_evidence: float
    announced_evidence: float


class Unscored(NamedTuple):
    """Rounds that are learned and not scored yet: the model's forecasts, what was announced, and the outcomes."""

    before: Array
    announced: Array
    outcomes: Array
    classes: Integers


class Raised(NamedTuple):
    """An alarm that was raised, and what it is about."""

    watched: str
    alarm: Alarm


class Player:
    """A stream in memory. For one thread; arguments are valid.

    Parameters
    ----------
    config
        Its settings.
    parts
        What they made of it when it was created; None if it is created now.

    Attributes
    ----------
    rounds, arrivals
        Forecasts and arrivals in the log.
    learned, late, void, amended, deleted
        Rounds that were learned, whose outcome was late, or that are void; amendments; and rounds that were deleted,
        which the others count, too.
    relearned
        The arrival after which another corrector announces: rounds from before have no copy of it.
    groups
        The groups of the rounds.
    state
        The hash of the log.
    losses
        What each action costs, if advice is guarded.
    """

    def __init__(self, config: NewStream, parts: str | None = None) -> None:
        self.config = config
        self.space = space_of(config)
        self.thing, self.monitors = made_of(config, self.space) if parts is None else read_parts(parts)
        self.front, copied = (None, None) if self.thing is None else divided(self.thing)
        self.pool = None if copied is None else Pool(copied)
        self.limit = config.limit if config.limit is not None or self.pool is None else LIMIT
        guarded = isinstance(self.thing, Guarded | GuardedCorrector)
        self.losses = self.thing.losses if guarded else None  # type: ignore[union-attr]
        self.cells: dict[str, BinCounts] = {}
        if isinstance(self.space, Simplex):
            roles = ("announced",) if config.forecaster is not None else ("model", "announced")
            self.cells = {role: BinCounts.empty(classes=self.space.dim, bins=BINS) for role in roles}
        self.tallies = Tallies(self.space)
        self.sums = self.tallies.new()
        self._unscored: list[Unscored] = []
        self._ahead: tuple[int, tuple[int, float] | None] = 0, None
        self.revisions = Revisions(self.space)
        self.marks: list[CurvePoint] = []
        self.groups: dict[Hashable, None] = {}
        self.rounds = self.arrivals = self.learned = self.late = self.void = self.amended = 0
        self.deleted = self.relearned = 0
        self.state = START
        self.last = 0.0

    @property
    def pending(self) -> int:
        """Rounds that await their outcomes."""
        return self.rounds - self.learned - self.late - self.void

    @property
    def counts(self) -> Counts:
        """How many rounds there are of each kind; which are overdue only the store knows."""
        return Counts(
            self.rounds, self.learned, self.late, self.void, self.pending, amended=self.amended, deleted=self.deleted
        )

    def announce(self, models: Sequence[Array | None], groups: Sequence[Hashable]) -> list[Opening]:
        """Return what to announce in rounds to be opened, where no copy is needed: nothing changes."""
        if self.front is None:
            return [self.as_it_is(b) for b in models]
        if isinstance(self.front, Corrector):
            if len(models) == 1:
                return [Opening(announce(self.front, models[0], groups[0]))]
            return [Opening(x) for x in announce_many_valid(self.front, np.array(models), groups)]
        assert isinstance(self.front, Forecaster)
        return [Opening(self.front.predict()) for _ in models]

    def take(self, model: Array | None, group: Hashable, holder: int) -> Opening:
        """Let a copy announce, and wait for this round."""
        assert self.pool is not None
        opening = ask(self.front, self.pool, model, group, None)
        assert opening.number is not None
        assert opening.copy is not None
        self.pool.take(opening.number, opening.copy, holder)
        return opening

    def as_it_is(self, model: Array | None) -> Opening:
        """Return the model's forecast as what is announced."""
        assert model is not None
        return Opening(Forecast.trusted(np.array(model)[None], uniform(1), None, self.space))

    def row(
        self,
        named: str,
        at: float,
        model: bytes | None,
        opening: Opening,
        tags: str,
        *,
        used: bool = False,
        due: float | None = None,
    ) -> Round:
        """Return the next round, as it is kept; nothing changes."""
        x = opening.forecast
        return Round(
            self.rounds + 1,
            named,
            at,
            self.arrivals,
            model,
            np.ascontiguousarray(x.mean).tobytes(),
            points_of(x),
            None if opening.inner is None else np.ascontiguousarray(opening.inner).tobytes(),
            opening.number,
            int(used),
            tags,
            due,
            self.state,
        )

    def opened(self, each: Round) -> None:
        """Count a round that was opened."""
        self.rounds = each.round
        self.state = each.chained()
        self.last = each.at
        if self.config.group:
            self.groups[each.group(self.config.group)] = None

    def revised(self, each: LogEntry, row: Round) -> list[Raised]:
        """Take another forecast of a round that awaits its outcome; return the alarms that this raised."""
        assert each.point is not None
        assert row.model is not None
        before = {name: monitor.alarm for name, monitor in self.monitors.items()}
        earlier = self.revisions.last(row.round)
        earlier = np.frombuffer(row.model) if earlier is None else earlier
        now = np.frombuffer(each.point)
        groups = self._groups([row])
        for monitor in self.monitors.values():
            monitor.learn_valid(earlier[None], now[None], groups)
        self.revisions.opened(row.round, row.at, ())
        self.revisions.note(row.round, each.at, earlier, now)
        self.arrivals = each.arrival
        self.state = each.chained(self.state)
        self.last = each.at
        return self._raised(before)

    def latest(self, row: Round) -> Round:
        """Return a round with the forecast that it was revised to last."""
        last = self.revisions.last(row.round)
        if last is None:
            return row
        return row._replace(model=last.tobytes(), announced=last.tobytes())

    def _raised(self, before: dict[str, Alarm | None]) -> list[Raised]:
        alarms = ((name, monitor.alarm) for name, monitor in self.monitors.items())
        return [Raised(name, alarm) for name, alarm in alarms if alarm is not None and before[name] is None]

    def closed(self, each: LogEntry, row: Round | None = None) -> None:
        """Count an arrival that is not learned, with its round: a late outcome, a void round and so on."""
        self.arrivals = each.arrival
        self.state = each.chained(self.state)
        self.last = each.at
        copy = None
        if each.kind == "amended":
            self.amended += 1
        elif each.kind == "deleted":
            self.deleted += deleted_rows(each.point)[0]
        elif each.kind == "reset":
            for monitor in self.monitors.values():
                monitor.reset()
        elif each.kind in ("late", "void"):
            setattr(self, each.kind, getattr(self, each.kind) + 1)
            self.revisions.drop(each.round)
            copy = None if row is None else self._copy(row)
        elif each.kind == "used" and row is not None and not self._is_older(row):
            copy = row.copy
        if copy is not None and self.pool is not None:  # nobody saw what the copy announced, or it will learn nothing
            self.pool.release(copy, void=True)

    def _is_older(self, row: Round) -> bool:
        """Return whether another corrector announced in a round."""
        return row.arrivals < self.relearned

    def _copy(self, row: Round) -> int | None:
        """Return the number of the copy that waits for the outcome of a round."""
        return None if self._is_older(row) else row.waiting_copy()

    def adopt(self, other: Player, change: LogEntry, *, relearn: bool) -> None:
        """Take the settings of another; if asked, with the corrector, which has learned, and what watches it."""
        begin = self.config.monitor != other.config.monitor
        kept = {} if begin else {name: each for name, each in self.monitors.items() if name == "model" or not relearn}
        if relearn:
            self.thing = other.thing
            self.front = other.front
            self.pool = other.pool
            self.relearned = change.arrival
        self.monitors = other.monitors | kept
        self.config = other.config
        self.limit = other.limit
        self.closed(change)

    def relearn(self, rounds: Sequence[Round], outcomes: Sequence[Outcome]) -> None:
        """Let the part that learns outcomes as they come learn rounds in which another announced.

        A part that is copied has a certificate for what it announced itself, and learns from that only.
        """
        if isinstance(self.front, Corrector):
            _, P, Y, _ = arrays(rounds, outcomes, self.space)
            assert P is not None
            learn_many_valid(self.front, Batch(P, Y, self._groups(rounds), None, None))

    def _groups(self, rounds: Sequence[Round]) -> list[Hashable] | None:
        names = self.config.group
        return [each.group(names) for each in rounds] if names else None

    def learn(self, rounds: Sequence[Round], arrivals: Sequence[LogEntry], outcomes: Sequence[Outcome]) -> list[Raised]:
        """Learn the outcomes of rounds, in order; return the alarms that this raised."""
        before = {name: monitor.alarm for name, monitor in self.monitors.items()}
        start = 0
        while start < len(rounds):
            end = min(len(rounds), start + next_checkpoint(self.learned) - self.learned)
            self._learn(rounds[start:end], arrivals[start:end], outcomes[start:end])
            if self.learned == next_checkpoint(self.learned - 1):
                self.marks.append(self.mark())
            start = end
        return self._raised(before)

    def _learn(self, rounds: Sequence[Round], arrivals: Sequence[LogEntry], outcomes: Sequence[Outcome]) -> None:
        rounds = [self.latest(each) for each in rounds] if self.revisions else rounds
        X, P, Y, classes = arrays(rounds, outcomes, self.space)
        groups = self._groups(rounds)
        self._teach(rounds, P, X, Y, groups)
        for name, monitor in self.monitors.items():
            watched = X if P is None or name == "announced" else P
            monitor.learn_valid(watched, Y, groups)
        self._score(rounds, P, X, Y, classes)
        if self.revisions:
            for each, y in zip(arrivals, Y, strict=True):
                self.revisions.score(each.round, y, each.at)
        for each in arrivals:
            self.state = each.chained(self.state)
        self.learned += len(rounds)
        self.arrivals = arrivals[-1].arrival
        self.last = arrivals[-1].at

    def _teach(
        self, rounds: Sequence[Round], P: Array | None, X: Array, Y: Array, groups: list[Hashable] | None
    ) -> None:
        """Let the parts learn: at once where that is known to be the same."""
        front = self.front
        if isinstance(front, Corrector) and self.pool is None:
            # What was announced is scored here, not there; it only saves those without a compiled batch some work.
            known = None if learns_at_once(front) else [each.forecast(self.space) for each in rounds]
            assert P is not None
            learn_many_valid(front, Batch(P, Y, groups, None, known))
            return
        for i, each in enumerate(rounds):
            number = self._copy(each)
            inner = None if each.inner is None or self._is_older(each) else np.frombuffer(each.inner)
            copy = None if number is None or self.pool is None else self.pool.copies[number]
            opening = Opening(each.forecast(self.space), inner)
            group = None if groups is None else groups[i]
            for lesson in lessons(front, copy, opening, None if P is None else P[i], Y[i], group):
                lesson.act()
            if number is not None and self.pool is not None:
                self.pool.release(number)

    def _score(self, rounds: Sequence[Round], P: Array | None, X: Array, Y: Array, classes: Integers) -> None:
        """Score rounds, or let them wait for more: when they are scored makes no difference."""
        before = X if P is None else P
        if any(each.several() for each in rounds):
            self.catch_up()
            for i, each in enumerate(rounds):
                self.sums = self.tallies.after(self.sums, Scored(before[i], each.forecast(self.space), Y[i], 1.0))
            self._count(Unscored(before, X, Y, classes))
            return
        self._unscored.append(Unscored(before, X, Y, classes))
        if sum(len(each.classes) for each in self._unscored) * self.space.dim >= _AT_ONCE:
            self.catch_up()

    def catch_up(self) -> None:
        """Score the rounds that wait."""
        if self._unscored:
            rows = Unscored(*map(np.concatenate, zip(*self._unscored, strict=True)))
            batch = Batch(rows.before, rows.outcomes)
            self.sums = self.tallies.after_rows(self._added(), batch, rows.announced)
            self._count(rows)
            self._unscored = []

    def _count(self, rows: Unscored) -> None:
        if not self.cells:
            return

        met = rows.classes >= 0  # an outcome between the classes has none
        for role, cells in self.cells.items():
            points = rows.announced if role == "announced" else rows.before
            tally(audited(points[met], rows.classes[met]), cells)

    def mark(self) -> CurvePoint:
        """Return the point of the curves that now is."""
        model, announced = self._errors()
        guarantee = None
        if self.pool is not None and any(copy.rounds for copy in self.pool.copies):
            guarantee = self.pool.certify(self._norm)
        evidence = {name: monitor.statistic for name, monitor in self.monitors.items()}
        return CurvePoint(
            self.learned,
            self.last,
            math.nan if self.config.forecaster is not None else model,
            announced,
            math.nan if guarantee is None else guarantee.bound / self._unit,
            evidence.get("model", math.nan),
            evidence.get("announced", math.nan),
        )

    def ahead(self) -> tuple[int, float] | None:
        """Return a tenth of the rounds, and what a guard guarantees after so many more, if no more wait than did."""
        if self.pool is None or not isinstance(self.thing, Guarded) or self.losses is not None or not self.learned:
            return None
        if self._ahead[0] != self.learned:
            rounds = max(1, self.learned // 10)
            found = self.pool.certify_more(self._norm, rounds, self.front)
            self._ahead = self.learned, None if found is None else (rounds, found.bound / self._unit)
        return self._ahead[1]

    @property
    def _norm(self) -> str:
        """The norm of guarantees."""
        return "crps" if isinstance(self.space, Cdf) else "l1"

    @property
    def _unit(self) -> float:
        """The unit of guarantees: of numbers the root of the range, in which the mean error over it is no greater."""
        return math.sqrt(self.space.high - self.space.low) if isinstance(self.space, Cdf) else 1.0

    def _errors(self) -> tuple[float, float]:
        """Return the errors, each coordinate in bins of a tenth, before and after: their sum, of numbers their mean."""
        self.catch_up()
        sums = self._added()
        cells = sums.cells.reshape(3, -1, 3)
        weight = max(sums.weight, 1.0)
        gaps = np.abs(cells[:2, :, 2] - cells[:2, :, 1])
        if isinstance(self.space, Cdf):
            each = gaps.reshape(2, self.space.dim, -1).sum(axis=2)
            gaps = each * (self.space.widths / (self.space.high - self.space.low))
        before, after = gaps.sum(axis=1) / weight
        return float(before), float(after)

    def _added(self) -> Sums:
        """Return the sums with all rounds added: when they are makes no difference."""
        self.sums = self.tallies.added(self.sums)
        return self.sums

    def get_state(self) -> dict[str, Any]:
        """Return all that is learned: arrays, JSON values, and dictionaries of them."""
        self.catch_up()
        more = {name: value for name in _LATER if (value := getattr(self, name))}
        state: dict[str, Any] = {
            "counts": {name: getattr(self, name) for name in _COUNTS} | more,
            "state": self.state.hex(),
            "last": self.last,
            "groups": packed(self.groups),
            "marks": np.array(self.marks).reshape(-1, len(CurvePoint._fields)),
            "scores": self.tallies.state(self._added()),
            "cells": {role: cells._asdict() for role, cells in self.cells.items()},
            "monitors": {name: monitor.get_state() for name, monitor in self.monitors.items()},
        }
        if self.revisions:
            state["revisions"] = self.revisions.state()
        if self.front is not None:
            state["front"] = self.front.get_state()
        if self.pool is not None:
            state["copies"] = {str(i): copy.get_state() for i, copy in enumerate(self.pool.copies)}
            state["holders"] = np.array([[*pair] for pair in self.pool.holders.items()], np.int64).reshape(-1, 2)
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume, in a new one, from a state that `get_state` returned."""
        counts = dict.fromkeys(_LATER, 0) | state["counts"]
        vars(self).update({name: int(counts[name]) for name in (*_COUNTS, *_LATER)})
        self.state = bytes.fromhex(state["state"])
        self.last = float(state["last"])
        self.groups = dict.fromkeys(saved_names(unpacked("the groups", state["groups"])))
        self.marks = [CurvePoint(*row) for row in state["marks"].tolist()]
        self.sums = self.tallies.checked(state["scores"], self.learned)
        self.cells = {role: BinCounts(**{k: v.copy() for k, v in state["cells"][role].items()}) for role in self.cells}
        if "revisions" in state:
            self.revisions = self.revisions.resumed(state["revisions"], range(1, self.rounds + 1))
        for name, monitor in self.monitors.items():
            monitor.set_state(state["monitors"][name])
        if self.front is not None:
            self.front.set_state(state["front"])
        if self.pool is not None:
            held = dict(state["holders"].tolist())
            for i in range(len(state["copies"])):
                copy = self.pool.new()
                copy.set_state(state["copies"][str(i)])
                self.pool.copies.append(copy)
                if i not in held:
                    self.pool.release(i)
            self.pool.holders = held
        if len(self.state) != len(START):
            raise SnapshotError("the hash of the log has another length.")


def rehearse(config: NewStream) -> None:
    """Refuse a stream that cannot play a round: some parts say only then what they cannot do."""
    player = Player(config)
    made("forecaster" if config.forecaster is not None else "corrector", lambda: _rehearsed(player))
    if player.pool is not None and player.limit is not None:
        size = len(snapshot(player.pool.copies[0].get_state()))
        if size * player.limit > _MOST_COPIED:
            problem = f"{player.limit:,} rounds may wait, and each needs a copy of {size:,} bytes."
            raise Refusal("invalid", problem, hint=f"limit is at most {_MOST_COPIED // size:,} here.", at="limit")


def _rehearsed(player: Player) -> None:
    model = None if player.config.forecaster is not None else np.array(player.space.centre)
    tags = dict.fromkeys(player.config.tags, "")
    group = group_of(tags, player.config.group) if player.config.group else None
    opening = player.announce([model], [group])[0] if player.pool is None else player.take(model, group, 1)
    row = player.row("", 0.0, None if model is None else model.tobytes(), opening, tags_text(tags))
    player.opened(row)
    outcome: Outcome = 0
    if not isinstance(player.space, Simplex):
        number = isinstance(player.space, Cdf)
        outcome = np.array([player.space.low] if number else player.space.centre).tobytes()  # type: ignore[attr-defined]
    player.learn([row], [LogEntry(1, "outcome", 1, 0.0, *outcome_columns(outcome))], [outcome])


_COUNTS = ("rounds", "arrivals", "learned", "late", "void", "amended")
_LATER = ("deleted", "relearned")  # left out where they are 0: so snapshots from before there were any are the same


def arrays(
    rounds: Sequence[Round], outcomes: Sequence[Outcome], space: ConvexSet
) -> tuple[Array, Array | None, Array, Integers]:
    """Return what was announced, the model's forecasts, the outcomes, `(n, dim)`, and their classes, -1 for none."""
    n = len(rounds)
    dim = space.dim
    X = np.frombuffer(b"".join([each.mean_bytes() for each in rounds])).reshape(n, dim)
    models = [each.model for each in rounds]
    P = None if None in models else np.frombuffer(b"".join(models)).reshape(n, dim)  # type: ignore[arg-type]
    if isinstance(space, Cdf):
        return X, P, space.steps(numbers_of(outcomes)), np.full(n, -1)
    classes = np.array([each if isinstance(each, int) else -1 for each in outcomes], np.int64)
    Y = np.zeros((n, dim))
    Y[np.arange(n), np.maximum(classes, 0)] = 1.0
    for i in np.flatnonzero(classes < 0).tolist():
        Y[i] = np.frombuffer(outcomes[i])  # type: ignore[arg-type]
    return X, P, Y, classes


def numbers_of(outcomes: Sequence[Outcome]) -> Array:
    """Return outcomes that are numbers, which are kept as they are given and not as steps."""
    return np.frombuffer(b"".join(outcomes))  # type: ignore[arg-type]


def audited(points: Array, classes: Integers) -> AuditRows:
    """Return forecasts and the classes of their outcomes as rows of an audit."""
    return AuditRows(np.ascontiguousarray(points.T), classes, np.zeros(len(classes), np.int64), _NONE)
