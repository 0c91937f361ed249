"""Rounds by id, pending and closed, and the parts that learn: changed as a whole or not at all."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array
from treecal.correctors import Batch, Corrector, Group, announce_many_valid, learn_many_valid
from treecal.exceptions import ForecastError, IdError, OutcomeError, UnsupportedError
from treecal.forecast import Forecast
from treecal.late._arrivals import VOID, Arrival, Outcome, Standing
from treecal.late._pool import Id, Opening, Pool, Thing, ask, divided, lessons
from treecal.ledger import Ledger
from treecal.monitor import Watched

REMEMBERED = 100_000
"""Closed rounds whose ids are remembered, the latest."""


class Pending(NamedTuple):
    """A round that awaits its outcome."""

    order: int  # rounds opened before it
    forecast: Array | None  # the model's, for a corrector
    group: Group
    inner: Array | None  # what its copy was asked to correct: the forecast, or what a shared corrector made of it
    announced: Forecast
    due: float | None
    copy: int | None


class Asked(NamedTuple):
    """A round that is about to be opened."""

    order: int
    forecast: Array | None
    group: Group
    due: float | None


class Counts(NamedTuple):
    """How many rounds were opened, learned and void; outcomes that arrived for void ones; and amendments."""

    opened: int = 0
    learned: int = 0
    void: int = 0
    too_late: int = 0
    amended: int = 0


PendingRounds = OrderedDict[Id, Pending]
ClosedRounds = OrderedDict[Id, tuple[Outcome, ...]]
"""The outcome of each round, followed by what it was amended to; `VOID` alone if it is void."""


class Step(NamedTuple):
    """A part with its number of rounds, and what lets it learn one more, or several."""

    part: Any
    rounds: int
    act: Callable[[], object]


class Transition(NamedTuple):
    """A change that is being made: steps that learn, rounds to close, and one to open.

    Once the first step has learned, or if there is none, the change will be completed, if interrupted by the next call:
    each part shows by its number of rounds whether it has learned, and the rest may be done twice. Otherwise it is
    dropped. So a round is learned or it is not.
    """

    steps: tuple[Step, ...] = ()
    closing: tuple[tuple[Id, tuple[Outcome, ...]], ...] = ()  # in the order in which the first step learns them
    opening: tuple[Id, Pending, Thing | None] | None = None
    counts: Counts | None = None  # afterwards; None where they follow from what was learned


class Rounds:
    """Rounds by id, and the parts that learn their outcomes. For one thread at a time; arguments are valid."""

    def __init__(self, thing: Thing, *, limit: int | None, ledger: bool) -> None:
        self.space = thing.space
        self.limit = limit
        self.corrects = isinstance(thing, Corrector)
        self.front, copied = divided(thing)
        self.pool = None if copied is None else Pool(copied)
        self.ledger = Ledger(thing.space) if ledger and not self.corrects else None
        self.counts = Counts()
        self.time: float | None = None
        self.pending: PendingRounds = OrderedDict()
        self.closed: ClosedRounds = OrderedDict()
        self.dues: list[tuple[float, int, Id]] = []  # a heap; of rounds that are closed, too
        self._change: Transition | None = None

    def take(
        self,
        ids: list[Id],
        Y: Array,
        outcomes: list[Outcome],
        weights: list[float] | None,
        now: float | None,
        *,
        strict: bool,
    ) -> list[Arrival]:
        """Take outcomes in order, once it is so late: points, and the same in brief. Return what became of each.

        If `strict`, a conflict or an unknown id is an error, for which nothing has changed.
        """
        found = self._arrivals(ids, outcomes, now)
        if strict:
            for named, each in zip(ids, found, strict=True):
                if each in ("conflict", "unknown"):
                    raise refusal(named, each)
        self.pass_time(now)
        if found.count("learned") == len(found):
            self._learn(ids, Y, outcomes, weights)
            return found
        if late := found.count("late"):
            self.counts = self.counts._replace(too_late=self.counts.too_late + late)
        learned = [i for i, each in enumerate(found) if each == "learned"]
        own_weights = None if weights is None else [weights[i] for i in learned]
        self._learn([ids[i] for i in learned], Y[learned], [outcomes[i] for i in learned], own_weights)
        return found

    def _arrivals(self, ids: list[Id], outcomes: list[Outcome], now: float | None) -> list[Arrival]:
        """Return what these outcomes will be, one after the other, once it is so late; change nothing."""
        found: list[Arrival] = []
        standings: dict[Id, Standing] = {}
        for named, outcome in zip(ids, outcomes, strict=True):
            standing = standings.get(named) or self._standing(named, now)
            if standing is None:
                found.append("unknown")
                continue
            if not standing.void:  # of void rounds no outcome is kept
                standings[named] = standing
            found.append(standing.take(outcome))
        return found

    def _standing(self, named: Id, now: float | None) -> Standing | None:
        """Return where a round stands, once it is so late; None if it is not known."""
        if (pending := self.pending.get(named)) is not None:
            return Standing(pending.due is not None and self._overdue(pending, now))
        outcomes = self.closed.get(named)
        if outcomes is None:
            return None
        return Standing(True) if outcomes == (VOID,) else Standing(False, list(outcomes))

    def openings(
        self,
        ids: list[Id],
        forecasts: Sequence[Array | None],
        groups: Sequence[Group],
        due: float | None,
        now: float | None,
    ) -> list[int]:
        """Return which rows open a round, once it is so late; the others ask again. Transition nothing.

        Raise where an id is in use for something else, or its round will be closed when its row is asked for.
        """
        found: list[int] = []
        asked: dict[Id, Asked] = {}
        orders: list[int] = []  # of all that will be pending, from the first time that these are more than the limit
        for i, named in enumerate(ids):
            if named in self.closed:
                raise taken(named, "was used before, and its round is closed.")
            pending: Pending | Asked | None = self.pending.get(named, asked.get(named))
            if pending is None:
                order = self.counts.opened + len(found)
                asked[named] = Asked(order, forecasts[i], groups[i], due)
                orders += [order] * bool(orders)
                found.append(i)
                continue
            known = pending.forecast
            if pending.group != groups[i] or not (known is None or np.array_equal(forecasts[i], known)):  # type: ignore[arg-type]
                raise taken(named, "awaits the outcome of another forecast.")
            if due is not None and due != pending.due:
                when = "at any time" if pending.due is None else f"until {pending.due:.15g}"
                hint = "leave due out to ask again: the first one stands."
                raise taken(named, f"awaits its outcome {when}, and now due is {due:.15g}.", hint)
            if not orders and self.limit is not None and len(self.pending) + len(asked) > self.limit:
                orders = [one.order for one in self.pending.values() if not self._overdue(one, now)]
                orders += [one.order for one in asked.values()]
            younger = len(orders) - bisect_right(orders, pending.order)
            if self._overdue(pending, now) or (self.limit is not None and younger >= self.limit):
                raise taken(named, "is void by then: it was due before, or too many others are pending.")
        return found

    def _overdue(self, pending: Pending | Asked, now: float | None) -> bool:
        """Return whether a round will be void once it is so late."""
        if pending.due is None:
            return False
        return any(time is not None and pending.due < time for time in (now, self.time))

    def outcomes(self, named: Id) -> tuple[Outcome, ...]:
        """Return the outcome of a round and its amendments, or raise."""
        if named in self.pending:
            raise IdError.of(named, "pending", "has no outcome yet.", hint="update(id, y).")
        outcomes = self.closed.get(named)
        if outcomes is None or outcomes == (VOID,):
            raise refusal(named, "unknown" if outcomes is None else "late")
        return outcomes

    def pass_time(self, now: float | None) -> list[Id]:
        """Let it be so late; return the ids of the rounds that this makes void."""
        if now is not None and (self.time is None or now > self.time):
            self.time = now
        return self._expire() if self.dues else []

    def _expire(self) -> list[Id]:
        gone = []
        while self.dues and self.time is not None and self.dues[0][0] < self.time:
            _, order, named = self.dues[0]
            if named in self.pending and self.pending[named].order == order:
                gone.append(named)
                self._make(self._voiding(named))
            heappop(self.dues)
        return gone

    def _voiding(self, named: Id) -> Transition:
        return Transition(closing=((named, (VOID,)),), counts=self.counts._replace(void=self.counts.void + 1))

    def open(
        self, named: Id, forecast: Array | None, group: Group, due: float | None, announced: Forecast | None = None
    ) -> Forecast:
        """Open a round, and make the oldest void if that is one too many; return what to announce."""
        full = self.limit is not None and len(self.pending) >= self.limit
        oldest = next(iter(self.pending.items())) if full else None
        change = Transition() if oldest is None else self._voiding(oldest[0])
        if announced is not None:
            opening = Opening(announced)
        else:
            try:
                opening = ask(self.front, self.pool, forecast, group, None if oldest is None else oldest[1].copy)
            except Exception as error:
                raise about(named, error) from None
        counts = self.counts if change.counts is None else change.counts
        inner = forecast if opening.inner is None else opening.inner
        pending = Pending(counts.opened, forecast, group, inner, opening.forecast, due, opening.number)
        counts = counts._replace(opened=counts.opened + 1)
        self._make(change._replace(opening=(named, pending, opening.copy), counts=counts))
        return opening.forecast

    def revise(self, named: Id, forecast: Array | None, now: float | None) -> Forecast:
        """Announce another forecast of a pending round, once it is so late."""
        front = self.front
        if self.pool is not None or not isinstance(front, Corrector):
            hint = "AutoCorrector, scalings, and monitors: Late(Watched(monitor))."
            raise UnsupportedError("forecasts are revised of correctors that need no order.", hint=hint)
        self.pass_time(now)
        pending = self.pending.get(named)
        if pending is None:
            if named in self.closed:
                raise taken(named, "was used before, and its round is closed.", "what has its outcome is not revised.")
            raise refusal(named, "unknown")
        try:
            x = ask(front, None, forecast, pending.group, None).forecast
            if isinstance(front, Watched) and pending.forecast is not None and forecast is not None:
                front.revised(pending.forecast, forecast, pending.group)
        except Exception as error:
            raise about(named, error) from None
        self.pending[named] = pending._replace(forecast=forecast, inner=forecast, announced=x)
        return x

    def announced(self, forecasts: Sequence[Array | None], groups: Sequence[Group]) -> Sequence[Forecast | None]:
        """Return what will be announced for many rounds, where that can be known before the first is opened."""
        if self.pool is not None or not isinstance(self.front, Corrector) or not len(forecasts):
            return [None] * len(forecasts)
        return announce_many_valid(self.front, np.array(forecasts), groups)

    def _learn(self, ids: list[Id], Y: Array, outcomes: list[Outcome], weights: list[float] | None) -> None:
        """Learn the outcomes of pending rounds, in order."""
        if len(ids) > 1 and isinstance(self.front, Corrector) and self.pool is None:
            self._learn_rows(self.front, ids, Y, outcomes, weights)
            return
        for i, named in enumerate(ids):
            pending = self.pending[named]
            y = np.array(Y[i])
            weight = 1.0 if weights is None else weights[i]
            copy = None if pending.copy is None or self.pool is None else self.pool.copies[pending.copy]
            opening = Opening(pending.announced, pending.inner)
            steps = []
            for part, act in lessons(self.front, copy, opening, pending.forecast, y, pending.group, weight):
                steps.append(Step(part, part.rounds, act))
            if self.ledger is not None:
                act = partial(self.ledger.record, pending.announced, y)
                steps.append(Step(self.ledger, self.ledger.rounds, act))
            self._make(Transition(tuple(steps), ((named, (outcomes[i],)),)))

    def _learn_rows(
        self, front: Corrector, ids: list[Id], Y: Array, outcomes: list[Outcome], weights: list[float] | None
    ) -> None:
        """Learn many rounds by one call of the corrector."""
        rounds = [self.pending[named] for named in ids]
        groups = [each.group for each in rounds]
        batch = Batch(
            np.array([each.forecast for each in rounds]),
            Y,
            None if all(group is None for group in groups) else groups,
            None if weights is None else np.array(weights),
            [each.announced for each in rounds],
        )
        step = Step(front, front.rounds, partial(learn_many_valid, front, batch))
        self._make(
            Transition((step,), tuple((named, (outcome,)) for named, outcome in zip(ids, outcomes, strict=True)))
        )

    def amend(self, named: Id, outcome: Outcome) -> None:
        """Keep another outcome of a round that has one."""
        outcomes = self.outcomes(named)
        if Standing(False, list(outcomes)).take(outcome, amend=True) == "amended":
            counts = self.counts._replace(amended=self.counts.amended + 1)
            self._make(Transition(closing=((named, (*outcomes, outcome)),), counts=counts))

    def set_time(self, now: float) -> None:
        """Let it be so late, or so early: what is void stays void."""
        self.time = now
        self._expire()

    def _make(self, change: Transition) -> None:
        self._change = change
        if change.steps:
            first = change.steps[0]
            try:
                first.act()
            except Exception as error:
                raise about(change.closing[first.part.rounds - first.rounds][0], error) from None
        self._finish(change)

    def settle(self) -> None:
        """Do what remains to be done, if a call was interrupted."""
        if self._change is not None:
            self._finish(self._change)
        if self.dues:
            self._expire()

    def _finish(self, change: Transition) -> None:
        closing = change.closing
        if change.steps:
            first, *others = change.steps
            closing = closing[: first.part.rounds - first.rounds]
            for step in others if closing else ():
                if step.part.rounds == step.rounds:
                    step.act()
        for named, outcomes in closing:
            pending = self.pending.get(named)
            if pending is not None and pending.copy is not None and self.pool is not None:
                self.pool.release(pending.copy, void=outcomes == (VOID,))
            self.closed[named] = outcomes
            self.pending.pop(named, None)
        if change.opening is not None:
            self._begin(*change.opening)
        while len(self.closed) > REMEMBERED:
            self.closed.popitem(last=False)
        counts = change.counts
        if counts is None:
            counts = self.counts._replace(learned=self.counts.learned + len(closing))
        self.counts, self._change = counts, None  # nothing can interrupt between the two

    def _begin(self, named: Id, pending: Pending, copy: Thing | None) -> None:
        if copy is not None and pending.copy is not None and self.pool is not None:
            self.pool.take(pending.copy, copy, named)
        self.pending[named] = pending
        if pending.due is not None:
            heappush(self.dues, (pending.due, pending.order, named))
            if len(self.dues) > 2 * len(self.pending) + 1000:  # most are of rounds that are closed
                self.dues = due_heap(self.pending)

    def fresh(self) -> Rounds:
        """Return a copy without rounds, to resume in: its parts are copies, too."""
        twin = object.__new__(Rounds)
        vars(twin).update(vars(self), front=deepcopy(self.front), _change=None)
        twin.ledger = None if self.ledger is None else Ledger(self.space)
        twin.pool = None if self.pool is None else Pool(deepcopy(self.pool.thing))
        return twin


def due_heap(pending: PendingRounds) -> list[tuple[float, int, Id]]:
    """Return what is due, as a heap."""
    found = [(each.due, each.order, named) for named, each in pending.items() if each.due is not None]
    heapify(found)
    return found


def about(named: Id, error: Exception) -> Exception:
    """Return an error that the thing raised, with the id of the round it is about."""
    if isinstance(error, ForecastError | OutcomeError) and error.problem:
        return error.of(named)
    error.add_note(f"That was in the round of id {named!r}.")
    return error


def refusal(named: Id, why: Arrival) -> IdError:
    """Return the error for an outcome that is not learned."""
    if why == "unknown":
        problem = f"is not known: nothing was announced under it, or more than {REMEMBERED:,} rounds were closed since."
        return IdError.of(named, "unknown", problem, hint="1 and '1' are two ids.")
    if why == "late":
        problem = "is void: its outcome arrived after it was due, or too many others were pending."
        return IdError.of(named, "void", problem)
    return IdError.of(named, "conflict", "has another outcome.", hint="amend(id, y) keeps it as an amendment.")


def taken(named: Id, problem: str, hint: str = "use an id once.") -> IdError:
    """Return the error for a forecast under an id that is in use."""
    return IdError.of(named, "taken", problem, hint=hint)
