"""Codebook: makes point forecasts repeat, so that their errors can average out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster
from treecal.forecasters._tracker import Tracker
from treecal.geometry import ConvexSet, Simplex

SIZES = (10, 50, 250)
CAPACITY = 256
SKILL = 5.0  # what a unit of Brier score is worth in units of ℓ1 error, on the simplex
LOOK_AHEAD = 10.0  # rounds, at least
BETTER = 1.2  # how much lower the error of another book must be before it is followed


@dataclass
class Books:
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


class Choice(NamedTuple):
    """The column of each book for a point forecast, whether that point is new, and the book to follow."""

    forecast: Array
    columns: Integers
    new: Array
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
            raise ParameterError.expected("sizes", sizes, "a list of whole numbers, such as [10, 50, 250]")
        self.space, self.sizes = space, tuple(whole_number("sizes", size, least=1) for size in sizes)
        self.capacity = whole_number("capacity", capacity, least=2)
        self.classes = isinstance(space, Simplex)
        self.skill = 2 * SKILL / float(space.diameter("l1"))
        self.prior = float(space.diameter("l2")) ** 2 / (16 * space.dim)  # a variance to begin with
        self._sizes = np.array(self.sizes, float)
        self._rows = np.arange(len(self.sizes))
        empty = np.zeros((len(self.sizes), space.dim, 2))
        used, growth = np.zeros(len(self.sizes), np.int64), np.zeros(len(self.sizes))
        self.state = Books(
            0, empty, empty.copy(), empty[:, 0].copy(), used, growth, len(self.sizes) - 1, np.zeros(space.dim)
        )

    def choose(self, q: Array) -> Choice:
        """Return the point of each book to announce for a point forecast."""
        now = self.state
        noise = q * (1 - q) if self.classes else (self.prior + now.squares) / (now.rounds + 1)
        noise = np.sqrt(2 / math.pi * np.maximum(noise, 0.0))
        ahead = np.maximum(LOOK_AHEAD, (now.rounds + 1) / self._sizes)
        root, width = np.sqrt(ahead), max(2, int(now.used.max()))
        away = q[:, None] - now.points[:, :, :width]
        moved = ahead[:, None, None] * away
        moved += now.biases[:, :, :width]
        np.maximum(np.abs(moved, out=moved), (root[:, None] * noise)[:, :, None], out=moved)
        away *= away
        # Sums over the middle axis run in its order, as in compiled code.
        cost = (np.add.reduce(moved, axis=1) - now.sizes[:, :width]) / ahead[:, None]
        cost += self.skill * np.add.reduce(away, axis=1)
        cost[np.arange(width) >= now.used[:, None]] = math.inf
        columns = cost.argmin(axis=1)
        new = (cost[self._rows, columns] >= np.add.accumulate(noise)[-1] / root) & (now.used < self.capacity)
        best = int(now.growth.argmin())
        lead = best if now.growth[best] * BETTER < now.growth[now.lead] else now.lead
        return Choice(q, np.where(new, now.used, columns), new, lead)

    def point(self, choice: Choice) -> Array:
        """Return the point to announce."""
        if choice.new[choice.lead]:
            return choice.forecast
        return self.state.points[choice.lead, :, choice.columns[choice.lead]].copy()

    def learn(self, choice: Choice, outcome: Array) -> None:
        """Learn the outcome of a round in which the chosen point was announced."""
        now, (q, columns, new, lead) = self.state, choice
        points, biases, sizes = now.points, now.biases, now.sizes
        used, cells, heads = now.used + new, (self._rows, slice(None), columns), (self._rows, columns)
        if used.max() > points.shape[2]:
            more = (0, min(points.shape[2], self.capacity - points.shape[2]))
            points, biases, sizes = (
                np.pad(each, [(0, 0)] * (each.ndim - 1) + [more]) for each in (points, biases, sizes)
            )
        place = np.where(new[:, None], q, points[cells])
        bias = biases[cells] + (outcome - place)
        size = np.add.accumulate(np.abs(bias), axis=1)[:, -1]
        rounds = now.rounds + 1
        growth = now.growth + ((size - sizes[heads]) - now.growth / rounds)
        squares = now.squares if self.classes else now.squares + (outcome - q) ** 2
        state = Books(rounds, points, biases, sizes, used, growth, lead, squares)
        # One column of each book changes in place. No call comes in between, where an interrupt could come in.
        points[cells] = place
        biases[cells] = bias
        sizes[heads] = size
        self.state = state


class Codebook(Forecaster):
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
    [1.23, 0.07]
    """

    _fields = ("source", "sizes", "capacity")
    symmetric = False  # ties and sums depend on the order of coordinates

    def __init__(self, source: Forecaster, *, sizes: Sequence[int] = SIZES, capacity: int = CAPACITY) -> None:
        if not isinstance(source, Forecaster) or source.rounds:
            raise ParameterError.expected("source", source, "a new Forecaster", hint="Tracker(space).")
        self.space, self.source = source.space, deepcopy(source)
        self._book = Book(self.space, sizes, capacity)
        self.sizes, self.capacity = self._book.sizes, self._book.capacity

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self.source.rounds

    def _announce(self) -> Forecast:
        self._choice = self._book.choose(self.source.predict().mean)
        return Forecast.trusted(self._book.point(self._choice)[None], uniform(1), None, self.space)

    def _learn(self, outcome: Array) -> None:
        self.predict()
        self.source.update(outcome)
        self._book.learn(self._choice, outcome)

    def _overlook(self, outcome: Array) -> None:
        self.source.update(outcome)

    @property
    def points(self) -> Array:
        """The points of the book that is followed, `(n, d)`."""
        now = self._book.state
        return now.points[now.lead, :, : now.used[now.lead]].T.copy()

    def get_state(self) -> dict[str, Any]:
        """Return the state of the source, and the books."""
        return {"source": self.source.get_state(), "books": deepcopy(vars(self._book.state))}

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
        self.source.set_state(state["source"])
        self._book.state = Books(**deepcopy(state["books"]))
        self._announced = None

    def __repr__(self) -> str:
        changed = (("sizes", self.sizes, SIZES), ("capacity", self.capacity, CAPACITY))
        return f"Codebook({', '.join([repr(self.source), *(f'{k}={v!r}' for k, v, usual in changed if v != usual)])})"

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield codebooks of a tracker: the usual one, and one that is soon full."""
        yield cls(Tracker(space))
        yield cls(Tracker(space), sizes=[20], capacity=3)
