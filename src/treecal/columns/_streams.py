"""Many equal streams side by side: what a bank asks of each kind of forecaster or corrector, and how kinds answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from treecal._compile import strict
from treecal._typing import Array, Integers, Outcomes, Saved
from treecal.columns._columns import Columns, Schema
from treecal.columns._forecasts import Forecasts, joined
from treecal.columns._packing import pack, unpack
from treecal.exceptions import TreeCalError


class RowError(Exception):
    """What the stream of a row cannot do: the bank, which knows its key, raises the error."""

    def __init__(self, row: int, error: TreeCalError) -> None:
        self.row = row
        self.error = error


class Streams(ABC):
    """The state of many equal streams, a row for each, in arrays: the arithmetic of one kind, without keys or checks.

    A `Bank` checks keys, outcomes and forecasts, and knows which rows are in use; it calls one method at a time.
    Whatever a row has learned, what it announces is bit for bit what the thing alone would announce.

    A kind stands beside the class whose streams it keeps, and that class's `_streams` returns it. Rows are `int64`, in
    any order, and one that is there twice learns twice, in that order; outcomes are float64 points, `(n, dim)`, or
    classes, `(n,)`; a corrector is given forecasts, `(n, dim)`, a forecaster None.
    """

    thing: Any
    """The forecaster or corrector that new streams are copies of; never changed."""
    torn: bool = False
    """True while an update is half done; if it stays so, the bank refuses to go on."""

    threads: int | None = None
    """How many may learn at once, where a kind can; by default as many as there are processors."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    @property
    @abstractmethod
    def rounds(self) -> Integers:
        """Rounds that each row has learned in the bank, `(rows,)`: as many as there is room for."""

    @abstractmethod
    def reserve(self, rows: int) -> None:
        """Make room for this many rows, more than there are: the new ones are new streams."""

    @abstractmethod
    def clear(self, rows: Integers) -> None:
        """Make new streams of these rows."""

    def check(self, rows: Integers, *, predict: bool = False) -> None:  # noqa: B027 # most can always go on
        """Raise if these rows cannot all learn, or `predict`, another round: a `RowError`."""

    @abstractmethod
    def announce(self, rows: Integers, forecasts: Array | None) -> Forecasts | Array:
        """Return what rows would announce now: a corrector points, `(n, dim)`, in place of the forecasts."""

    @abstractmethod
    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> Array | None:
        """Learn in order; a corrector returns the points it announces, each before its own outcome."""

    def play(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> Forecasts | Array:
        """Learn in order; return what each row announced before its own outcome."""
        if forecasts is not None:
            announced = self.learn(rows, outcomes, forecasts)
            assert announced is not None
            return announced
        places = list(waves(rows))
        parts = list[Any]()
        for at in places:
            parts.append(self.announce(rows[at], None))
            self.learn(rows[at], outcomes[at], None)
            self.torn = len(parts) < len(places)
        return joined(parts, places, self.thing.space)

    @abstractmethod
    def state(self, rows: Integers) -> Saved:
        """Return the state of these rows, in this order: `rounds`, `(n,)`, and what else there is, copied."""

    @abstractmethod
    def resumed(self, state: Saved) -> Self:
        """Return streams with this state, as `state` gave it, or raise a `SnapshotError`; this one does not change."""


class ColumnStreams(Streams):
    """Streams kept in the columns of a schema. A kind adds how they announce and learn.

    Parameters
    ----------
    thing
        What new streams are copies of.
    schema
        What is kept of each.

    Examples
    --------
    A class of your own gets a fast bank in `docs/howto/own-forecaster.md`; those of the package have theirs:

    >>> import treecal as tc
    >>> isinstance(tc.Bank(tc.TreeCal(tc.Simplex(2)), streams=3)._streams, ColumnStreams)
    True
    """

    def __init__(self, thing: Any, schema: Schema) -> None:
        super().__init__(thing)
        self.schema = schema
        self.columns = Columns(schema)

    @property
    def rounds(self) -> Integers:
        return self.columns["rounds"]  # type: ignore[no-any-return]

    def reserve(self, rows: int) -> None:
        self.columns.reserve(rows)

    def clear(self, rows: Integers) -> None:
        self.columns.clear(rows)

    def rows(self, rows: Integers) -> Saved:
        """Return the columns of these rows, as the schema has them."""
        return self.columns.state(rows)

    def with_rows(self, columns: Any) -> Self:
        """Return streams with such columns, or raise a `SnapshotError`; this one does not change."""
        twin = type(self)(self.thing)  # type: ignore[call-arg] # a kind says its schema itself
        twin.columns = Columns.read(self.schema, columns)
        return twin

    def state(self, rows: Integers) -> Saved:
        return self.rows(rows)

    def resumed(self, state: Saved) -> Self:
        return self.with_rows(state)

    def records(self, rows: Integers) -> tuple[Array, Integers]:
        """Return these streams but their rounds as numbers, one after another, and where each ends, 0 first."""
        return pack(self.schema, self.rows(rows))

    def recorded(self, rounds: Integers, numbers: Array, ends: Integers) -> Self:
        """Return streams of so many rounds with such records, or raise a `SnapshotError`; this one does not change."""
        return self.with_rows(unpack(self.schema, rounds, numbers, ends))


def waves(rows: Integers) -> Iterator[Integers]:
    """Yield the places of rows that are there for the first time, then for the second, and so on, each in order.

    Examples
    --------
    >>> [places.tolist() for places in waves(np.array([7, 5, 7, 7, 5]))]
    [[0, 1], [2, 4], [3]]
    """
    order = np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
    counts = np.diff(starts, append=len(rows))
    if not len(rows) or counts.max() == 1:
        yield from [np.arange(len(rows))] if len(rows) else []
        return
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(len(rows)) - np.repeat(starts, counts)
    yield from np.split(np.argsort(rank, kind="stable"), np.cumsum(np.bincount(rank))[:-1])


@strict
def add_outcome(total: Array, outcomes: Any, i: int) -> None:
    """Add outcome `i`, a row of numbers or a class, to a sum."""
    if outcomes.ndim == 1:  # known to the compiler, which leaves out the other branch
        total[outcomes[i]] += 1.0
    else:
        for k in range(len(total)):
            total[k] += outcomes[i, k]
