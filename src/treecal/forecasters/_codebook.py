"""Codebook: makes point forecasts repeat, so that their errors can average out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from treecal._states import State, check_array, check_count, check_like, check_names, resumed
from treecal._typing import Array, Changes, Saved
from treecal._validate import whole_number
from treecal.exceptions import ParameterError, SnapshotError, UnsupportedError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster, LockedForecaster, reach
from treecal.forecasters._tracker import Tracker
from treecal.geometry import ConvexSet, Simplex

CAPACITY = 320
URGENT = 3.0  # how much better than all others a new point must be in a book that is half full
SHARE_AHEAD = 0.125  # of the rounds that a point has had, as many more are expected at least
CHANCE = math.sqrt(2 / math.pi)  # the mean size of a normal deviate, in standard deviations


@dataclass(eq=False)
class BookState(State):
    """The points of a book, and the bias of each point: the sum of outcome less point over its rounds."""

    rounds: int
    points: Array
    """`(d, columns)`: the point of a column, in those that are used."""
    biases: Array
    """`(d, columns)`."""
    sizes: Array
    """`(columns,)`: the ℓ1 norm of each bias."""
    visits: Array
    """`(columns,)`: the rounds of each point."""
    used: int
    """Columns used."""
    squares: Array
    """The sum of the squared deviations from the point forecasts, by coordinate; of no use for classes."""


Change = tuple[int, Array | None, Array, float, float]
"""What a round changes in a book's arrays: of one column its point, if that is new, its bias, size and rounds."""


class Candidate(NamedTuple):
    """The column for a point forecast, and whether that point is new."""

    forecast: Array
    column: int
    new: bool


class Book:
    """Chooses, for a point forecast `q`, the announced point that is expected to add least to the calibration error.

    A point `p` with bias `V` is expected to add, over the next `n` rounds in which it might be used,
    `Σ_j max(|V_j + n(q_j − p_j)|, √n·σ_j) − |V_j|`: its bias moves with `q − p`, and chance adds the noise of `n`
    outcomes, `σ_j² = (2/π)·q_j(1 − q_j)` for classes. A new point at `q` has no bias and would add that noise alone; if
    no point adds less, `q` joins the book. What they add is compared in units of `√n`. How often a point will be
    used is not known. The book looks ahead by the root of its rounds, as if there were as many points as each has
    rounds, and by an eighth of the rounds that the point has had, if these are more.

    In a book that is half full a point joins only if no other adds less than three times as much, so that there is
    room for forecasts unlike all before, as of a season that comes late. A full book takes no more points: the best of
    those it has is announced, however far from `q`.
    """

    def __init__(self, space: ConvexSet, capacity: int) -> None:
        self.space = space
        self.capacity = whole_number("capacity", capacity, least=2)
        self.classes = isinstance(space, Simplex)
        self.prior = reach(space, "l2") ** 2 / (16 * space.dim)  # a variance to begin with

    def empty(self) -> BookState:
        """Return a book without points."""
        none = np.zeros((self.space.dim, 2))
        return BookState(0, none, none.copy(), none[0].copy(), none[0].copy(), 0, np.zeros(self.space.dim))

    def choose(self, now: BookState, q: Array) -> Candidate:
        """Return the point to announce for a point forecast."""
        if not now.used:
            return Candidate(q, 0, True)
        ahead = np.maximum(math.sqrt(now.rounds + 1), SHARE_AHEAD * now.visits)
        cost, alone = self._costs(now, q, ahead, now.points, now.biases, now.sizes)
        column = int(cost[: now.used].argmin())
        if 2 * now.used >= self.capacity:
            alone *= URGENT
        new = now.used < self.capacity and bool(cost[column] >= alone)
        return Candidate(q, now.used if new else column, new)

    def _costs(
        self, now: BookState, q: Array, ahead: Array, points: Array, biases: Array, sizes: Array
    ) -> tuple[Array, float]:
        """Return what each of some points would add in the rounds looked ahead, by the root of these, and a new one."""
        spread = q * (1 - q) if self.classes else (self.prior + now.squares) / (now.rounds + 1)
        noise = CHANCE * np.sqrt(np.abs(spread))  # rounding may make it negative
        root = np.sqrt(ahead)
        moved = q[:, None] - points
        moved *= ahead
        moved += biases
        np.maximum(np.abs(moved, out=moved), noise[:, None] * root, out=moved)
        # Two columns or more are added up row by row, in order, as in compiled code.
        return (np.add.reduce(moved, axis=0) - sizes) / root, np.add.accumulate(noise).item(-1)

    def nearest(self, now: BookState, q: Array, points: Array, margin: float) -> int | None:
        """Return which of some points without bias is best for a point forecast, if a new one is hardly better."""
        ahead = np.full(len(points), math.sqrt(now.rounds + 1))
        cost, alone = self._costs(now, q, ahead, points.T, np.zeros(points.T.shape), np.zeros(len(points)))
        best = int(cost.argmin())
        return best if cost[best] <= margin * alone else None

    def placed(self, now: BookState, point: Array) -> Candidate:
        """Return a point that was announced as the choice: its column, or a new one; in a full book the nearest."""
        away = np.abs(now.points[:, : now.used] - point[:, None]).sum(axis=0)
        column = int(away.argmin()) if now.used else 0
        if now.used < self.capacity and (not now.used or away[column] > 0):
            return Candidate(point, now.used, True)
        return Candidate(point, column, False)

    def after(self, now: BookState, choice: Candidate, outcome: Array) -> tuple[BookState, Change]:
        """Return the book after a round in which the chosen point was announced, and what is to be written to it."""
        q, column, new = choice
        points = now.points
        biases = now.biases
        sizes = now.sizes
        visits = now.visits
        if column == len(sizes):
            more = (0, min(column, self.capacity - column))
            points, biases = (np.pad(each, [(0, 0), more]) for each in (points, biases))
            sizes, visits = (np.pad(each, more) for each in (sizes, visits))
        bias = outcome - (q if new else points[:, column])
        bias += biases[:, column]
        size = np.add.accumulate(np.abs(bias)).item(-1)
        squares = now.squares if self.classes else now.squares + (outcome - q) ** 2
        books = BookState(now.rounds + 1, points, biases, sizes, visits, now.used + new, squares)
        return books, (column, q if new else None, bias, size, float(visits[column]) + 1)

    def check(self, now: BookState) -> None:
        """Raise unless such a book can be."""
        check_count("the book's rounds", now.rounds)
        dim, columns = self.space.dim, now.sizes.shape[0] if now.sizes.ndim == 1 else 0
        if not 2 <= columns <= self.capacity:
            raise SnapshotError(f"the book has {columns} columns, expected 2 to {self.capacity}.")
        check_array("the book's points", now.points, (dim, columns))
        check_array("the book's biases", now.biases, (dim, columns))
        check_array("the sizes of the biases", now.sizes, (columns,))
        check_array("the points' rounds", now.visits, (columns,))
        if (now.visits < 0).any():
            raise SnapshotError("a point of the book has fewer than no rounds.")
        check_array("the squares", now.squares, (dim,))
        check_count("the columns used", now.used, most=min(columns, now.rounds))
        if now.used < (now.rounds > 0):
            raise SnapshotError(f"the book has no points after {now.rounds} rounds.")


class Shelf:
    """A book between two rounds, and the choice for the coming one.

    It shares its arrays with the shelf of the round before: copying those would cost more than the round itself.
    So what a round changed is written only when the next one begins, and whoever has to give a round up, as after an
    interrupt, goes on with the shelf it had.
    """

    def __init__(self, book: Book, books: BookState, change: Change | None = None) -> None:
        self.book, self._books, self._change = book, books, change
        self._chosen: tuple[object, Candidate] | None = None

    @property
    def books(self) -> BookState:
        """The book, with the last round written to it. To write it twice does no harm, so an interrupt does none."""
        now = self._books
        if self._change is not None:
            column, new, bias, size, visits = self._change
            if new is not None:
                now.points[:, column] = new
            now.biases[:, column] = bias
            now.sizes[column] = size
            now.visits[column] = visits
            self._change = None
        return now

    def choice(self, asked: object, forecast: Callable[[], Array]) -> Candidate:
        """Return the choice for a point forecast, which is called for only if another was `asked` for the last one."""
        if self._chosen is None or self._chosen[0] is not asked:
            self._chosen = asked, self.book.choose(self.books, forecast())
        return self._chosen[1]

    def point(self, choice: Candidate) -> Array:
        """Return the point to announce."""
        return choice.forecast if choice.new else self.books.points[:, choice.column].copy()

    def after(self, choice: Candidate, outcome: Array) -> Shelf:
        """Return the shelf after a round in which the chosen point was announced."""
        return Shelf(self.book, *self.book.after(self.books, choice, outcome))

    def resumed(self, state: Saved) -> Shelf:
        """Return the shelf with this book, once it is found to be valid."""
        check_like(vars(self._books), state)
        books = BookState(**deepcopy(state))
        self.book.check(books)
        return Shelf(self.book, books)


class Codebook(LockedForecaster):
    """Announces the forecasts of another forecaster, moved to points announced before, so that they repeat.

    A calibration error counts what was forecast exactly: a forecast that never repeats has the error of single
    outcomes, however good it is. A codebook keeps the points it announced and their biases, and for the source's
    mean forecast announces the point that is expected to add least to the error, given the mean forecast and the bias
    of every point; if none will do, the mean forecast joins the book.

    Memory is bounded: a book takes up to `capacity` points, the second half of them only where no other is near, and
    once it is full the best of those is announced.
    Costs `O(points·d)` a round.

    Parameters
    ----------
    source
        A new forecaster; a copy of it is played. Of its forecasts the mean is used.
    capacity
        The most points of the book.

    Examples
    --------
    >>> import treecal as tc
    >>> space, rng = tc.Simplex(3), np.random.default_rng(0)
    >>> tracker, book = tc.Tracker(space), tc.Codebook(tc.Tracker(space))
    >>> ledgers = {f: tc.Ledger(space) for f in (tracker, book)}
    >>> for y in np.eye(3)[rng.choice(3, size=2000, p=[0.5, 0.3, 0.2])]:
    ...     for f, ledger in ledgers.items():
    ...         ledger.record(f.predict(), y)
    ...         f.update(y)
    >>> [round(ledger.error("l1"), 2) for ledger in ledgers.values()]
    [1.25, 0.12]
    """

    _fields = ("source", "capacity")
    symmetric = False  # ties and sums depend on the order of coordinates
    ordered = False  # it has no certificate to keep

    def __init__(self, source: Forecaster, *, capacity: int = CAPACITY) -> None:
        if not isinstance(source, Forecaster) or source.rounds:
            raise ParameterError.expected("source", source, "a new Forecaster", hint="Tracker(space).")
        super().__init__(source.space)
        book = Book(self.space, capacity)
        self.capacity = book.capacity
        self._now = deepcopy(source), Shelf(book, book.empty())

    @property
    def source(self) -> Forecaster:
        """The forecaster whose forecasts are moved."""
        return self._now[0]

    @property
    def shelf(self) -> Shelf:
        """The book."""
        return self._now[1]

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._now[0].rounds

    @property
    def points(self) -> Array:
        """The points of the book, `(n, d)`."""
        now = self._state
        return now.points[:, : now.used].T.copy()

    def _choice(self) -> Candidate:
        source, shelf = self._now
        return shelf.choice(source, lambda: source.mean_forecast)

    def _announce(self) -> Forecast:
        point = self._now[1].point(self._choice())
        return Forecast.trusted(point[None], uniform(1), None, self.space)

    def _learn(self, outcome: Array) -> None:
        source, shelf = self._now
        shelf, source = shelf.after(self._choice(), outcome), source._fork()
        source._learn(outcome)
        self._now = source, shelf

    def _overlook(self, outcome: Array) -> None:
        source, shelf = self._now
        source = source._fork()
        source._learn(outcome)
        self._now = source, shelf

    _fork = Forecaster._light_fork

    @property
    def _state(self) -> BookState:
        return self._now[1].books

    def get_state(self) -> Saved:
        """Return the books, and the state of the source."""
        with self._lock:
            return {**deepcopy(vars(self._state)), "source": self.source.get_state()}

    def _resumed(self, state: Saved) -> Changes:
        check_names("the codebook", state, [*vars(self._state), "source"])
        shelf = self._now[1].resumed({name: value for name, value in state.items() if name != "source"})
        return {"_now": (resumed(self.source, state["source"]), shelf), "_announced": None}

    def __repr__(self) -> str:
        return f"Codebook({self.source!r}{'' if self.capacity == CAPACITY else f', capacity={self.capacity}'})"

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield codebooks of a tracker: the usual one, and one that is soon full."""
        with suppress(UnsupportedError):  # a set that does not know its size
            yield from (cls(Tracker(space)), cls(Tracker(space), capacity=3))
