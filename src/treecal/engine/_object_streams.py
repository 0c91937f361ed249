"""Streams in arrays where the class has some, and an object for each where not."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy, deepcopy
from typing import Any, Self, cast

import numpy as np

from treecal._states import check_names, check_rounds
from treecal._typing import Array, Integers, Outcomes, Saved
from treecal.columns import Forecasts, ListedForecasts, RowError, Streams
from treecal.correctors import Batch, Corrector
from treecal.exceptions import HorizonError, ParameterError, SnapshotError
from treecal.forecast import Forecast
from treecal.forecasters import Forecaster

Thing = Forecaster | Corrector
"""What each stream of a bank is a copy of."""


def streams_of(thing: Any) -> Streams:
    """Return no streams yet, each of which will be a copy of the thing: in arrays where its own class says how."""
    if isinstance(thing, Corrector):
        own: Any = thing._unscored()
    elif not isinstance(thing, Forecaster):
        raise ParameterError.expected("thing", thing, "a forecaster, a corrector, or a set for TreeCal on it")
    elif thing.rounds:
        raise ParameterError.expected("thing", thing, "a new one", hint="this one has seen outcomes.")
    else:
        own = copy(thing)
    found: Streams | None = own._streams() if "_streams" in vars(type(own)) else None
    return ObjectStreams(own) if found is None else found


class ObjectStreams(Streams):
    """A forecaster or corrector for each stream that has done anything: as fast, and as large, as they are.

    Objects that learn are copies, which take the place of the others when all have learned.
    """

    def __init__(self, thing: Thing) -> None:
        super().__init__(thing)
        self._things: list[Any] = []  # None for a new stream
        self._rounds = np.zeros(0, np.int64)

    @property
    def rounds(self) -> Integers:
        return self._rounds

    def reserve(self, rows: int) -> None:
        more = rows - len(self._things)
        self._rounds = np.concatenate([self._rounds, np.zeros(more, np.int64)])
        self._things += [None] * more

    def clear(self, rows: Integers) -> None:
        self._rounds[rows] = 0
        for row in rows.tolist():
            self._things[row] = None

    def _own(self, row: int) -> Any:
        """Return the object of a stream, its own from now on: it may draw from a generator of its own."""
        if self._things[row] is None:
            self._things[row] = deepcopy(self.thing)
        return self._things[row]

    def announce(self, rows: Integers, forecasts: Array | None) -> Forecasts | Array:
        if forecasts is None:
            return ListedForecasts([self._announced(row) for row in rows.tolist()], self.thing.space)
        means = np.empty((len(rows), self.thing.space.dim))
        for row, own in _by_row(rows):
            corrector = cast(Corrector, self._things[row] or self.thing)
            means[own] = corrector._announce_many(forecasts[own], None)
        return means

    def _announced(self, row: int) -> Forecast:
        try:
            return cast(Forecaster, self._own(row)).predict()
        except HorizonError as error:
            raise RowError(row, error) from None

    def play(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> Forecasts | Array:
        announced: list[Forecast] = []
        means = self._play(rows, outcomes, forecasts, announced)
        return ListedForecasts(announced, self.thing.space) if means is None else means

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> Array | None:
        return self._play(rows, outcomes, forecasts, None)

    def _play(
        self, rows: Integers, outcomes: Outcomes, forecasts: Array | None, announced: list[Forecast] | None
    ) -> Array | None:
        """Learn in order; note what forecasters announce, if there is a list for it."""
        dim = self.thing.space.dim
        Y = outcomes if outcomes.ndim == 2 else np.eye(dim)[outcomes]
        learned: dict[int, Any] = {}
        means = None
        if forecasts is None:
            for row, y in zip(rows.tolist(), Y, strict=True):
                if row not in learned:
                    learned[row] = self._own(row)._fork()
                try:
                    if announced is not None:
                        announced.append(learned[row].predict())
                    learned[row]._learn(y)
                except HorizonError as error:
                    raise RowError(row, error) from None
        else:
            means = np.empty((len(rows), dim))
            for row, own in _by_row(rows):
                means[own], learned[row] = _corrected(self._own(row), Batch(forecasts[own], Y[own]))
        self.torn = True
        for row, thing in learned.items():
            self._things[row] = thing
        np.add.at(self._rounds, rows, 1)
        self.torn = False
        return means

    def state(self, rows: Integers) -> Saved:
        things = {str(i): self._things[row] for i, row in enumerate(rows.tolist()) if self._rounds[row]}
        own = {i: thing.get_state() for i, thing in things.items()}
        return {"rounds": self._rounds[rows], "objects": own}

    def resumed(self, state: Saved) -> Self:
        check_names("the state", state, ("rounds", "objects"))
        twin = type(self)(self.thing)
        rounds = check_rounds(state["rounds"], np.size(state["rounds"]))
        twin.reserve(len(rounds))
        twin._rounds = rounds.copy()
        learned = np.flatnonzero(rounds).tolist()
        check_names("the objects", state["objects"], [str(row) for row in learned])
        for row in learned:
            thing = twin._own(row)
            thing.set_state(state["objects"][str(row)])
            if thing.rounds - self.thing.rounds != rounds[row]:
                raise SnapshotError(f"stream {row} is not one of {rounds[row]} rounds.")
        return twin


def _corrected(corrector: Corrector, batch: Batch) -> tuple[Array, Corrector]:
    """Return what a corrector announces in rounds in order, and one that has learned them."""
    found = corrector._played(batch)
    if found is not None:
        return found[0], corrector._with(found[1], len(batch))
    means = np.empty(batch.outcomes.shape)
    for i, (b, y) in enumerate(zip(batch.forecasts, batch.outcomes, strict=True)):
        means[i] = corrector._announced(b, None).mean
        corrector = corrector._learned(b, y)
    return means, corrector


def _by_row(rows: Integers) -> Iterator[tuple[int, Integers]]:
    """Yield each row once, with its places, in order."""
    order = np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
    for own in np.split(order, starts[1:]) if len(rows) else ():
        yield int(rows[own[0]]), own
