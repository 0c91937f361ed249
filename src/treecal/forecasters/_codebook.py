"""Codebook: makes point forecasts repeat, so that their errors can average out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from operator import is_
from typing import Any, NamedTuple, Self

import numpy as np

from treecal._states import Resume, State, check_array, check_count, check_like, check_names
from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.exceptions import ParameterError, SnapshotError, UnsupportedError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster, LockedForecaster, reach
from treecal.forecasters._tracker import Tracker
from treecal.geometry import ConvexSet, Simplex

SIZES = (15, 250)
CAPACITY = 160
SKILL = 5.0  # what a unit of Brier score is worth in units of ℓ1 error, on the simplex
LOOK_AHEAD = 10.0  # rounds, at least
CHANCE = math.sqrt(2 / math.pi)  # the mean size of a normal deviate, in standard deviations
BETTER = 1.2  # how much lower the error of another book must be before it is followed


@dataclass(eq=False)
class Books(State):
    """The points of several books, and the bias of each point: the sum of outcome less point over its rounds."""

    rounds: int
    points: Array
    """`(books, d, columns)`: the point of a column, in those that are used."""
    biases: Array
    """`(books, d, columns)`."""
    sizes: Array
    """`(books, columns)`: the ℓ1 norm of each bias."""
    used: Integers
    """Columns used in each book, `(books,)`."""
    growth: Array
    """How fast each book's own error grew lately, `(books,)`."""
    lead: int
    """The book that is followed."""
    squares: Array
    """The sum of the squared deviations from the point forecasts, by coordinate; of no use for classes."""


Change = list[tuple[int, Array | None, Array, float]]
"""What a round changes in the books' arrays: of each book one column, its point if that is new, its bias and size."""


class Candidate(NamedTuple):
    """The column of each book for a point forecast, whether that point is new, and the book to follow."""

    forecast: Array
    columns: list[int]
    new: list[bool]
    lead: int


class Book:
    """Chooses, for a point forecast `q`, the announced point that is expected to add least to the calibration error.

    A point `p` with bias `V` is expected to add, over the next `n` rounds in which it might be used,
    `Σ_j max(|V_j + n(q_j − p_j)|, √n·σ_j) − |V_j|`: its bias moves with `q − p`, and chance adds the noise of `n`
    outcomes, `σ_j² = (2/π)·q_j(1 − q_j)` for classes. To that, for each round, is added what the move from `q` to `p`
    costs in skill, a multiple of `‖q − p‖²`. If no point is better than a new one at `q`, which has no bias, `q` joins
    the book. How often a point will be used is not known, so there is a book for each of several guesses:
    `n = rounds/size`, at least 10. Every book keeps its own error, and the one whose error grew least lately is
    followed.

    A full book takes no more points: the best of those it has is announced, however far from `q`.
    """

    def __init__(self, space: ConvexSet, sizes: Sequence[int], capacity: int) -> None:
        if not (isinstance(sizes, Sequence) and len(sizes) and not isinstance(sizes, str)):
            raise ParameterError.expected("sizes", sizes, "a list of whole numbers, such as [15, 250]")
        self.space, self.sizes = space, tuple(whole_number("sizes", size, least=1) for size in sizes)
        self.capacity = whole_number("capacity", capacity, least=2)
        self.classes = isinstance(space, Simplex)
        self.skill = 2 * SKILL / reach(space, "l1")
        self.prior = reach(space, "l2") ** 2 / (16 * space.dim)  # a variance to begin with

    def empty(self) -> Books:
        """Return books without points."""
        books, dim = len(self.sizes), self.space.dim
        none = np.zeros((books, dim, 2))
        used, growth = np.zeros(books, np.int64), np.zeros(books)
        return Books(0, none, none.copy(), none[:, 0].copy(), used, growth, books - 1, np.zeros(dim))

    def choose(self, now: Books, q: Array) -> Candidate:
        """Return the point of each book to announce for a point forecast."""
        if not now.rounds:  # nor any points
            return Candidate(q, [0] * len(self.sizes), [True] * len(self.sizes), now.lead)
        rounds, used = now.rounds + 1, now.used.tolist()
        ahead = [max(LOOK_AHEAD, rounds / size) for size in self.sizes]
        spread = q * (1 - q) if self.classes else (self.prior + now.squares) / rounds
        noise = np.sqrt(np.abs(spread))  # rounding may make it negative
        alone, width = CHANCE * float(np.add.accumulate(noise)[-1]), max(2, *used)
        floor = np.array([CHANCE * math.sqrt(n) for n in ahead])[:, None] * noise
        away = q[:, None] - now.points[:, :, :width]
        moved = np.array(ahead)[:, None, None] * away
        moved += now.biases[:, :, :width]
        np.maximum(np.abs(moved, out=moved), floor[:, :, None], out=moved)
        away *= away
        # Two columns or more are added up row by row, in order, as in compiled code.
        cost, squares = np.add.reduce(moved, axis=1), np.add.reduce(away, axis=1)
        cost -= now.sizes[:, :width]
        columns, new = [], []
        for book, (n, points) in enumerate(zip(ahead, used, strict=True)):
            costs = n * self.skill * squares[book, :points]
            costs += cost[book, :points]
            column = int(costs.argmin())
            new.append(points < self.capacity and bool(costs[column] >= alone * math.sqrt(n)))
            columns.append(points if new[-1] else column)
        growth = now.growth.tolist()
        lead = growth.index(min(growth)) if min(growth) * BETTER < growth[now.lead] else now.lead
        return Candidate(q, columns, new, lead)

    def after(self, now: Books, choice: Candidate, outcome: Array) -> tuple[Books, Change]:
        """Return the books after a round in which the chosen point was announced, and what is to be written to them."""
        q, columns, new, lead = choice
        points, biases, sizes, used = now.points, now.biases, now.sizes, now.used
        if any(new):
            used = used + np.array(new, np.int64)
            if used.max() > points.shape[2]:
                more = (0, min(points.shape[2], self.capacity - points.shape[2]))
                points, biases = (np.pad(each, [(0, 0), (0, 0), more]) for each in (points, biases))
                sizes = np.pad(sizes, [(0, 0), more])
        rounds, growth, change = now.rounds + 1, [], Change()
        for book, (column, is_new, grown) in enumerate(zip(columns, new, now.growth.tolist(), strict=True)):
            bias = outcome - (q if is_new else points[book, :, column])
            bias += biases[book, :, column]
            size = float(np.add.accumulate(np.abs(bias))[-1])
            growth.append(grown + ((size - float(sizes[book, column])) - grown / rounds))
            change.append((column, q if is_new else None, bias, size))
        squares = now.squares if self.classes else now.squares + (outcome - q) ** 2
        return Books(rounds, points, biases, sizes, used, np.array(growth), lead, squares), change

    def check(self, now: Books) -> None:
        """Raise unless such books can be."""
        check_count("the books' rounds", now.rounds)
        books, dim, columns = len(self.sizes), self.space.dim, now.sizes.shape[1] if now.sizes.ndim == 2 else 0
        if not 2 <= columns <= self.capacity:
            raise SnapshotError(f"the books have {columns} columns, expected 2 to {self.capacity}.")
        check_array("the books' points", now.points, (books, dim, columns))
        check_array("the books' biases", now.biases, (books, dim, columns))
        check_array("the sizes of the biases", now.sizes, (books, columns))
        check_array("the columns used", now.used, (books,), np.int64)
        check_array("the books' growth", now.growth, (books,))
        check_array("the squares", now.squares, (dim,))
        check_count("the book followed", now.lead, most=books - 1)
        if (now.used < (now.rounds > 0)).any() or (now.used > min(columns, now.rounds)).any():
            raise SnapshotError(f"the books have {now.used.tolist()} points after {now.rounds} rounds.")


class Shelf:
    """Books between two rounds, and the choice for the coming one.

    They share their arrays with the shelf of the round before: copying those would cost more than the round itself.
    So what a round changed is written only when the next one begins, and whoever has to give a round up, as after an
    interrupt, goes on with the shelf it had.
    """

    def __init__(self, book: Book, books: Books, change: Change | None = None) -> None:
        self.book, self._books, self._change = book, books, change
        self._chosen: tuple[tuple[object, ...], Candidate] | None = None

    @property
    def books(self) -> Books:
        """The books, with the last round written to them. To write it twice does no harm, so an interrupt does none."""
        now = self._books
        if self._change is not None:
            for book, (column, new, bias, size) in enumerate(self._change):
                if new is not None:
                    now.points[book, :, column] = new
                now.biases[book, :, column] = bias
                now.sizes[book, column] = size
            self._change = None
        return now

    def choice(self, asked: tuple[object, ...], forecast: Callable[[], Array]) -> Candidate:
        """Return the choice for a point forecast, which is called for only if others were `asked` for the last one."""
        if self._chosen is None or not all(map(is_, asked, self._chosen[0])):
            self._chosen = asked, self.book.choose(self.books, forecast())
        return self._chosen[1]

    def point(self, choice: Candidate) -> Array:
        """Return the point to announce."""
        q, columns, new, lead = choice
        return q if new[lead] else self.books.points[lead, :, columns[lead]].copy()

    def after(self, choice: Candidate, outcome: Array) -> Shelf:
        """Return the shelf after a round in which the chosen point was announced."""
        return Shelf(self.book, *self.book.after(self.books, choice, outcome))

    def resumed(self, state: dict[str, Any]) -> Shelf:
        """Return the shelf with these books, once they are found to be valid."""
        check_like(vars(self._books), state)
        books = Books(**deepcopy(state))
        self.book.check(books)
        return Shelf(self.book, books)


class Codebook(LockedForecaster):
    """Announces the forecasts of another forecaster, moved to points announced before, so that they repeat.

    A calibration error counts what was forecast exactly: a forecast that never repeats has the error of single
    outcomes, however good it is. A codebook keeps the points it announced and their biases, and for the source's
    mean forecast announces the point that is expected to add least to the error, given the mean forecast and the bias
    of every point, at a stated cost in skill; if none will do, the mean forecast joins the book. How many points pay
    off is not known beforehand, so there are several books, and the one whose own error grew least lately is followed.

    Memory is bounded: a book takes up to `capacity` points, and once it is full the best of those is announced.
    Costs `O(books·points·d)` a round.

    Parameters
    ----------
    source
        A new forecaster; a copy of it is played. Of its forecasts the mean is used.
    sizes
        The number of points each book aims at: a point joins if it pays off within `rounds/size` rounds of its own.
    capacity
        The most points of a book.

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
    [1.25, 0.14]
    """

    _fields = ("source", "sizes", "capacity")
    symmetric = False  # ties and sums depend on the order of coordinates
    ordered = False  # it has no certificate to keep

    def __init__(self, source: Forecaster, *, sizes: Sequence[int] = SIZES, capacity: int = CAPACITY) -> None:
        if not isinstance(source, Forecaster) or source.rounds:
            raise ParameterError.expected("source", source, "a new Forecaster", hint="Tracker(space).")
        super().__init__(source.space)
        book = Book(self.space, sizes, capacity)
        self.sizes, self.capacity = book.sizes, book.capacity
        self._now = deepcopy(source), Shelf(book, book.empty())

    @property
    def source(self) -> Forecaster:
        """The forecaster whose forecasts are moved."""
        return self._now[0]

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._now[0].rounds

    @property
    def points(self) -> Array:
        """The points of the book that is followed, `(n, d)`."""
        now = self._state
        return now.points[now.lead, :, : now.used[now.lead]].T.copy()

    def _choice(self) -> Candidate:
        source, shelf = self._now
        return shelf.choice((source,), lambda: source.mean_forecast)

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

    def with_source(self, source: Forecaster) -> Self:
        """Return a copy that moves the forecasts of another source, which must have as many rounds.

        Parameters
        ----------
        source
            The forecaster whose forecasts are moved.
        """
        twin = self._fork()
        twin._now = source, self._now[1]
        twin._announced = None
        return twin

    @property
    def _state(self) -> Books:
        return self._now[1].books

    def get_state(self) -> dict[str, Any]:
        """Return the books, and the state of the source."""
        with self._lock:
            return {**deepcopy(vars(self._state)), "source": self.source.get_state()}

    def _prepared(self, state: dict[str, Any]) -> Resume:
        check_names("the codebook", state, [*vars(self._state), "source"])
        shelf = self._now[1].resumed({name: value for name, value in state.items() if name != "source"})
        source = self.source._fork()
        source.set_state(state["source"])
        if shelf.books.rounds > source.rounds:
            raise SnapshotError(f"the books are of {shelf.books.rounds} rounds, and the source of {source.rounds}.")

        def resume() -> None:
            self._now, self._announced = (source, shelf), None

        return resume

    def __repr__(self) -> str:
        changed = (("sizes", self.sizes, SIZES), ("capacity", self.capacity, CAPACITY))
        return f"Codebook({', '.join([repr(self.source), *(f'{k}={v!r}' for k, v, usual in changed if v != usual)])})"

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield codebooks of a tracker: the usual one, and one that is soon full."""
        with suppress(UnsupportedError):  # a set that does not know its size
            yield from (cls(Tracker(space)), cls(Tracker(space), sizes=[20], capacity=3))
