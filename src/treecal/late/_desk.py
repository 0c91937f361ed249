"""The desk: rounds that wait, rounds that are closed, and the parts that learn; changed as a whole or not at all."""

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
from treecal.correctors import Corrector
from treecal.correctors._batch import Group
from treecal.exceptions import ForecastError, IdError, OutcomeError
from treecal.forecast import Forecast
from treecal.late._pool import Pool, Said, Thing, ask, divided, lessons
from treecal.late._rounds import (
    REMEMBERED,
    VOID,
    Arrival,
    Asked,
    ClosedRounds,
    Counts,
    Id,
    Outcome,
    Pending,
    PendingRounds,
    arrival,
    refusal,
    taken,
)
from treecal.ledger import Ledger


class Step(NamedTuple):
    """A part that has seen so many rounds, and what lets it learn one more, or several."""

    part: Any
    rounds: int
    act: Callable[[], object]


class Task(NamedTuple):
    """What is being done: steps that learn, rounds to close, and one to open.

    Once the first step has learned, or if there is none, the task will be completed, if interrupted by the next call:
    each part tells by its number of rounds whether it has learned, and the rest may be done twice. Otherwise it is
    dropped. So a round is learned or it is not.
    """

    steps: tuple[Step, ...] = ()
    closing: tuple[tuple[Id, tuple[Outcome, ...]], ...] = ()  # in the order in which the first step learns them
    opening: tuple[Id, Pending, Thing | None] | None = None
    counts: Counts | None = None  # afterwards; None where they follow from what was learned


class Desk:
    """Rounds by id, and the parts that learn their outcomes. For one thread at a time; arguments are valid."""

    def __init__(self, thing: Thing, *, limit: int | None, ledger: bool) -> None:
        self.space, self.limit, self.corrects = thing.space, limit, isinstance(thing, Corrector)
        self.front, copied = divided(thing)
        self.pool = None if copied is None else Pool(copied)
        self.ledger = Ledger(thing.space) if ledger and not self.corrects else None
        self.counts = Counts()
        self.time: float | None = None
        self.pending: PendingRounds = OrderedDict()
        self.closed: ClosedRounds = OrderedDict()
        self.dues: list[tuple[float, int, Id]] = []  # a heap; of rounds that are closed, too
        self._task: Task | None = None

    def arrivals(self, ids: list[Id], outcomes: list[Outcome], now: float | None) -> list[Arrival]:
        """Return what these outcomes will be, one after the other, once it is so late; change nothing."""
        found: list[Arrival] = []
        learned: dict[Id, Outcome] = {}
        for named, outcome in zip(ids, outcomes, strict=True):
            waiting = self.pending.get(named)
            if waiting is None:
                found.append(arrival(self.closed.get(named), outcome))
            elif self._overdue(waiting, now):
                found.append("late")
            elif named in learned:
                found.append(arrival((learned[named],), outcome))
            else:
                learned[named] = outcome
                found.append("learned")
        return found

    def openings(
        self,
        ids: list[Id],
        forecasts: Sequence[Array | None],
        groups: Sequence[Group],
        due: float | None,
        now: float | None,
    ) -> list[int]:
        """Return which rows open a round, once it is so late; the others ask again. Change nothing.

        Raise where an id is in use for something else, or its round will be closed when its row is asked for.
        """
        found: list[int] = []
        asked: dict[Id, Asked] = {}
        orders: list[int] = []  # of all that will wait, from the first time that more of them ask than may wait
        for i, named in enumerate(ids):
            if named in self.closed:
                raise taken(named, "was used before, and its round is closed.")
            waiting: Pending | Asked | None = self.pending.get(named, asked.get(named))
            if waiting is None:
                order = self.counts.opened + len(found)
                asked[named] = Asked(order, forecasts[i], groups[i], due)
                orders += [order] * bool(orders)
                found.append(i)
                continue
            known = waiting.forecast
            if waiting.group != groups[i] or not (known is None or np.array_equal(forecasts[i], known)):  # type: ignore[arg-type]
                raise taken(named, "awaits the outcome of another forecast.")
            if due is not None and due != waiting.due:
                when = "at any time" if waiting.due is None else f"until {waiting.due:.15g}"
                hint = "leave due out to ask again: the first one stands."
                raise taken(named, f"awaits its outcome {when}, and now due is {due:.15g}.", hint)
            if not orders and self.limit is not None and len(self.pending) + len(asked) > self.limit:
                orders = [one.order for one in self.pending.values() if not self._overdue(one, now)]
                orders += [one.order for one in asked.values()]
            younger = len(orders) - bisect_right(orders, waiting.order)
            if self._overdue(waiting, now) or (self.limit is not None and younger >= self.limit):
                raise taken(named, "is void by then: it was due before, or too many others wait.")
        return found

    def _overdue(self, waiting: Pending | Asked, now: float | None) -> bool:
        """Return whether a round will be void once it is so late."""
        times = [time for time in (now, self.time) if time is not None]
        return waiting.due is not None and bool(times) and waiting.due < max(times)

    def outcomes(self, named: Id) -> tuple[Outcome, ...]:
        """Return the outcome of a round and its amendments, or raise."""
        if named in self.pending:
            raise IdError.of(named, "pending", "has no outcome yet.", hint="update(id, y).")
        outcomes = self.closed.get(named)
        if outcomes is None or outcomes[-1] == VOID:
            raise refusal(named, arrival(outcomes, VOID))
        return outcomes

    def pass_time(self, now: float | None) -> list[Id]:
        """Let it be so late; return the ids that are void since then."""
        if now is not None and (self.time is None or now > self.time):
            self.time = now
        return self._expire()

    def _expire(self) -> list[Id]:
        gone = []
        while self.dues and self.time is not None and self.dues[0][0] < self.time:
            _, order, named = self.dues[0]
            if named in self.pending and self.pending[named].order == order:
                gone.append(named)
                self._do(self._voiding(named))
            heappop(self.dues)
        return gone

    def _voiding(self, named: Id) -> Task:
        return Task(closing=((named, (VOID,)),), counts=self.counts._replace(void=self.counts.void + 1))

    def open(
        self, named: Id, forecast: Array | None, group: Group, due: float | None, said: Forecast | None = None
    ) -> Forecast:
        """Open a round, and make the oldest void if that is one too many; return what to announce."""
        full = self.limit is not None and len(self.pending) >= self.limit
        oldest = next(iter(self.pending.items())) if full else None
        task = Task() if oldest is None else self._voiding(oldest[0])
        asked = None if said is None else Said(said)
        if asked is None:
            try:
                asked = ask(self.front, self.pool, forecast, group, None if oldest is None else oldest[1].copy)
            except Exception as error:
                raise about(named, error) from None
        x, told, number, copy = asked
        counts = self.counts if task.counts is None else task.counts
        waiting = Pending(counts.opened, forecast, group, forecast if told is None else told, x, due, number)
        self._do(task._replace(opening=(named, waiting, copy), counts=counts._replace(opened=counts.opened + 1)))
        return x

    def announced(self, forecasts: Sequence[Array | None], groups: Sequence[Group]) -> Sequence[Forecast | None]:
        """Return what will be announced for many rounds, where that can be known before the first is opened."""
        if self.pool is not None or not isinstance(self.front, Corrector) or not len(forecasts):
            return [None] * len(forecasts)
        with self.front._lock:
            self.front._catch_up()
            return self.front._forecasts(np.array(forecasts), groups)

    def learn(self, ids: list[Id], Y: Array, outcomes: list[Outcome], weights: list[float] | None) -> None:
        """Learn the outcomes of rounds that wait, in order: points, and the same in brief."""
        if len(ids) > 1 and isinstance(self.front, Corrector) and self.pool is None:
            self._learn_rows(self.front, ids, Y, outcomes, weights)
            return
        for i, named in enumerate(ids):
            self._learn(named, np.array(Y[i]), outcomes[i], 1.0 if weights is None else weights[i])

    def _learn(self, named: Id, y: Array, outcome: Outcome, weight: float) -> None:
        waiting = self.pending[named]
        copy = None if waiting.copy is None or self.pool is None else self.pool.copies[waiting.copy]
        said = Said(waiting.announced, waiting.told)
        acts = lessons(self.front, copy, said, waiting.forecast, y, waiting.group, weight)
        steps = [Step(part, part.rounds, act) for part, act in acts]
        if self.ledger is not None:
            steps.append(Step(self.ledger, self.ledger.rounds, partial(self.ledger.record, waiting.announced, y)))
        self._do(Task(tuple(steps), ((named, (outcome,)),)))

    def _learn_rows(
        self, front: Corrector, ids: list[Id], Y: Array, outcomes: list[Outcome], weights: list[float] | None
    ) -> None:
        """Learn many rounds by one call of the corrector."""
        rounds = [self.pending[named] for named in ids]
        groups = [each.group for each in rounds]
        act = partial(
            front.update_many,
            np.array([each.forecast for each in rounds]),
            Y,
            announced=[each.announced for each in rounds],
            groups=None if all(group is None for group in groups) else groups,
            weights=weights,
        )
        closing = tuple((named, (outcome,)) for named, outcome in zip(ids, outcomes, strict=True))
        self._do(Task((Step(front, front.rounds, act),), closing))

    def count_late(self, outcomes: int) -> None:
        """Count outcomes that came for void rounds."""
        if outcomes:
            self.counts = self.counts._replace(too_late=self.counts.too_late + outcomes)

    def amend(self, named: Id, outcome: Outcome) -> None:
        """Keep another outcome of a round that has one."""
        outcomes = self.outcomes(named)
        if outcomes[-1] != outcome:
            counts = self.counts._replace(amended=self.counts.amended + 1)
            self._do(Task(closing=((named, (*outcomes, outcome)),), counts=counts))

    def set_time(self, now: float) -> None:
        """Let it be so late, or so early: what is void stays void."""
        self.time = now
        self._expire()

    def _do(self, task: Task) -> None:
        self._task = task
        if task.steps:
            first = task.steps[0]
            try:
                first.act()
            except Exception as error:
                raise about(task.closing[first.part.rounds - first.rounds][0], error) from None
        self._finish()

    def settle(self) -> None:
        """Do what remains to be done, if a call was interrupted."""
        self._finish()
        self._expire()

    def _finish(self) -> None:
        if (task := self._task) is None:
            return
        closing = task.closing
        if task.steps:
            first, *others = task.steps
            closing = closing[: first.part.rounds - first.rounds]
            for step in others if closing else ():
                if step.part.rounds == step.rounds:
                    step.act()
        for named, outcomes in closing:
            if (waiting := self.pending.get(named)) is not None and waiting.copy is not None and self.pool is not None:
                self.pool.release(waiting.copy, void=outcomes[-1] == VOID)
            self.closed[named] = outcomes
            self.pending.pop(named, None)
        if task.opening is not None:
            self._begin(*task.opening)
        while len(self.closed) > REMEMBERED:
            self.closed.popitem(last=False)
        counts = task.counts
        if counts is None:
            counts = self.counts._replace(learned=self.counts.learned + len(closing))
        self.counts, self._task = counts, None  # nothing can come between the two

    def _begin(self, named: Id, waiting: Pending, copy: Thing | None) -> None:
        if copy is not None and waiting.copy is not None and self.pool is not None:
            self.pool.take(waiting.copy, copy, named)
        self.pending[named] = waiting
        if waiting.due is not None:
            heappush(self.dues, (waiting.due, waiting.order, named))
            if len(self.dues) > 2 * len(self.pending) + 1000:  # most are of rounds that are closed
                self.dues = due_heap(self.pending)

    def fresh(self) -> Desk:
        """Return a copy without rounds, to resume in: its parts are copies, too."""
        twin = object.__new__(Desk)
        vars(twin).update(vars(self), front=deepcopy(self.front), _task=None)
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
