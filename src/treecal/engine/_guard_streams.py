"""Guarded streams as arrays: the one that is replayed, or the many of a bank."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import Any, Self, TypeGuard

import numpy as np

from treecal._compile import unlocked
from treecal._states import MOST_ROUNDS, check_names
from treecal._typing import Array, Integers, Outcomes
from treecal.columns import ROUNDS, ColumnStreams, Field, Forecasts, RowError, Schema
from treecal.exceptions import HorizonError, SnapshotError
from treecal.forecast import Forecast, TreeForecast, uniform
from treecal.forecasters import (
    BETTER,
    LOOK_AHEAD,
    RESERVE,
    SHARE,
    Biases,
    BinaryGrid,
    Books,
    Codebook,
    Experts,
    Forecaster,
    Guarded,
    Shelf,
    Tally,
    Tracker,
    TreeCal,
    TreeState,
    heights_of,
    kernel_args,
)
from treecal.geometry import ConvexSet, Lp


def is_compiled(forecaster: object) -> TypeGuard[Guarded]:
    """Return whether it is a guarded forecaster whose parts and norm compiled code can play."""
    if type(forecaster) is not Guarded:
        return False
    eager, safe, norm = forecaster.eager, forecaster.safe, forecaster.norm
    usual = type(eager) is Codebook and type(eager.source) is Tracker and type(safe) in (BinaryGrid, TreeCal)
    return usual and not getattr(safe, "mix", 0) and isinstance(norm, Lp) and norm.p in (1, 2)


class GuardForecasts(Forecasts):
    """Those of guarded streams, of which some are on the tree of the safe part."""

    def __init__(self, said: Any, space: ConvexSet, arity: int | None) -> None:
        most = int(said.counts.max(initial=1))
        super().__init__(said.points[:, :most], said.weights[:, :most], said.counts, space)
        self._slots, self._arity = said.slots, arity

    def __getitem__(self, index: int) -> Forecast:
        if self._slots[index] >= 0 or self._arity is None:
            return super().__getitem__(index)
        size, rounds = int(self.sizes[index]), -1 - int(self._slots[index])
        return TreeForecast(self.points[index, :size], uniform(size), rounds, self._arity, self._space)


def guard_schema(thing: Guarded) -> Schema:
    """Return what is kept of a stream: guard, tracker, books and their pages, and the certified parts."""
    source: Any = thing.eager.source  # type: ignore[attr-defined] # a Codebook of a Tracker
    book: Any = thing.eager._now[1].book  # type: ignore[attr-defined]
    experts, books, dim = source._state, len(book.sizes), thing.space.dim
    most = books * book.capacity

    count = partial(Field, dtype=np.int64, least=0)
    return Schema(
        (
            ROUNDS,
            count("safe_rounds", most=MOST_ROUNDS),
            count("suspended", most=1),
            Field("last", dtype=np.int64, new=-1, least=-1, most=dim - 1),
            count("lead", new=books - 1, most=books - 1),
            Field("error"),
            Field("peak"),
            *(
                Field(name, np.shape(new), new=new)
                for name, new in (("weights", experts.weights), ("means", experts.means))
            ),
            Field("followed", np.shape(experts.followed), new=experts.followed),
            Field("seen", np.shape(experts.counts), new=experts.counts),
            Field("growth", (books,)),
            Field("squares", (0 if book.classes else dim,)),
            count("used", (books,), most=book.capacity),
            count("announced", most=most),
            *_part_fields("safe", "safe_rounds", thing.safe),
            *(_part_fields("shadow", "rounds", thing.safe) if thing._now[1].shadow is not None else ()),
            *(Field(name, (dim,), length=_columns_of, layout="listed") for name in ("points", "biases")),
            Field("slots", dtype=np.int32, length=_columns_of, layout="listed", least=-1, most=most - 1),
            *(Field(name, (dim,), length=_announced_of, layout="listed") for name in ("told", "owed")),
        )
    )


def _columns_of(columns: Any) -> Integers:
    """Return how many columns of its books each row uses."""
    return np.asarray(columns["used"].sum(axis=1))


def _announced_of(columns: Any) -> Integers:
    """Return how many points each row has announced."""
    return np.asarray(columns["announced"])


def _part_fields(part: str, rounds: str, own: Forecaster) -> Iterator[Field]:
    """Yield what is kept of a certified part, which has played so many rounds."""
    yield Field(f"{part}/errors", (2,))
    if isinstance(own, BinaryGrid):
        yield Field(f"{part}/bias", (own.bins + 1,))
        yield Field(f"{part}/biases", (own.bins + 1, 2))
        return
    assert isinstance(own, TreeCal)
    heights = partial(heights_of, own.tree, rounds)
    for name in ("sums", "path"):
        new = np.zeros((own.depth or 1, own.space.dim))
        yield Field(f"{part}/{name}", (own.space.dim,), new=new, length=heights)


class GuardStreams(ColumnStreams):
    """Guarded streams of the usual parts: arrays with a row for each, and pages that grow as a stream needs them.

    Parameters
    ----------
    thing
        A new `Guarded` for which `is_compiled` holds.
    rows
        Number of streams.
    """

    thing: Guarded

    def __init__(self, thing: Guarded, rows: int = 0) -> None:
        from treecal.engine import _guard_kernels as kernels

        super().__init__(thing, guard_schema(thing))
        self._space, self._guard = thing.space, thing._now[1]
        self._source: Any = thing.eager.source  # type: ignore[attr-defined] # a Codebook of a Tracker
        self._book = thing.eager._now[1].book  # type: ignore[attr-defined]
        guard, source, book, norm = self._guard, self._source, self._book, thing.norm
        rate, squared = -1.0 if guard.error is None else guard.error, isinstance(norm, Lp) and norm.p == 2
        measured, none = guard.shadow is not None, np.empty(0)
        self._rules = kernels.Rules(
            kernels.GuardRules(guard.diameter, squared, measured, guard.budget, RESERVE, rate, none),
            kernels.TrackerRules(source._rates, SHARE, source._scale, np.array(self._space.centre), book.classes),
            kernels.BookRules(
                np.array(book.sizes, float), book.skill, book.prior, LOOK_AHEAD, BETTER, book.capacity, book.classes
            ),
        )
        self._parts = ("safe", "shadow") if measured else ("safe",)
        self._tree = guard.safe.tree if isinstance(guard.safe, TreeCal) else None
        self._pool = self._new_pool(np.zeros((0, 4), np.int64))
        self.reserve(rows)

    def _new_pool(self, numbers: Integers, columns: int = 0, slots: int = 0) -> Any:
        """Return a pool for pages of these sizes, and with so much room free."""
        from treecal.engine._guard_pages import empty_pool

        return empty_pool(numbers, self.columns["used"], self.columns["announced"], self._space.dim, columns, slots)

    def _part(self, name: str) -> Any:
        """Return a certified part of all streams: their safe part, or its shadow, which is another one or none."""
        from treecal.engine._guard_parts import GridParts, TreeParts

        own = self._guard.safe
        name = name if name in self._parts else "safe"
        errors = self.columns[f"{name}/errors"]
        if isinstance(own, BinaryGrid):
            return GridParts(errors, self.columns[f"{name}/bias"], self.columns[f"{name}/biases"])
        assert isinstance(own, TreeCal)
        sums, path = self.columns[f"{name}/sums"], self.columns[f"{name}/path"]
        return TreeParts(kernel_args(own._path)[0], errors, sums, path)

    @property
    def safe(self) -> Any:
        """The safe part of all streams, as kernels take it."""
        return self._part("safe")

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        own = (array.nbytes for name, array in self._pool._asdict().items() if name not in ("used", "announced"))
        return self.columns.nbytes + int(sum(own))

    def reserve(self, rows: int) -> None:
        super().reserve(rows)
        numbers = np.pad(self._pool.numbers, [(0, rows - len(self._pool.numbers)), (0, 0)])
        self._pool = self._pool._replace(
            numbers=numbers, used=self.columns["used"], announced=self.columns["announced"]
        )

    def clear(self, rows: Integers) -> None:
        super().clear(rows)
        self._pool.numbers[rows] = 0

    def check(self, rows: Integers, *, predict: bool = False) -> None:
        """Raise if a certified part would have more rounds than a tree of fixed depth."""
        if self._tree is None or self._tree.horizon is None:
            return
        streams, counts = np.unique(rows, return_counts=True)
        if predict:  # of streams whose safe part is to forecast
            notes = self._notes(0, len(streams))
            self._rounds(streams, None, notes)
            after = np.maximum(-notes.slots, 0)
        else:
            after = self.columns["rounds" if self._rules.guard.measured else "safe_rounds"][streams] + counts
        try:
            self._tree.check(int(after.max(initial=0)))
        except HorizonError as error:
            raise RowError(int(streams[after.argmax()]), error) from None

    def announce(self, rows: Integers, forecasts: Array | None = None) -> GuardForecasts:
        notes = self._notes(len(rows), len(rows))
        self._rounds(rows, None, notes)
        return self._forecasts(notes)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None = None) -> None:
        self._reach(rows)
        self._rounds(rows, outcomes, self._notes(0, 0))

    def play(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None = None) -> GuardForecasts:
        self._reach(rows)
        notes = self._notes(len(rows), len(rows))
        self._rounds(rows, outcomes, notes)
        return self._forecasts(notes)

    def replay(self, outcomes: Outcomes) -> Integers:
        """Play the only stream there is; return which of its points each round announces, −1 where safe forecasts."""
        rows = np.zeros(len(outcomes), np.int64)
        self._reach(rows)
        notes = self._notes(0, len(rows))
        self._rounds(rows, outcomes, notes)
        return np.asarray(np.maximum(notes.slots, -1))

    def _rounds(self, rows: Integers, outcomes: Outcomes | None, notes: Any) -> None:
        """Play a round of each row, in order, if there are outcomes; note what is announced where there is room."""
        from treecal.engine._guard_kernels import Now, guard_rounds

        spoken, done, learning = self.spoken(), 0, outcomes is not None
        now = Now(*(self.columns[name] for name in Now._fields))
        safe, shadow = self._part("safe"), self._part("shadow")
        if outcomes is None:
            outcomes = np.empty(0, np.int64) if self._book.classes else np.empty((0, self._space.dim))
        while True:
            args = self._rules, now, self._pool, safe, shadow, spoken, notes
            done = guard_rounds(rows, unlocked(outcomes), done, *args, learning)
            if done == len(rows):
                self.torn = False
                return
            self.torn = True
            self._pack(len(rows) - done)

    def _notes(self, points: int, rounds: int) -> Any:
        """Return room to note the points of so many rounds, and of so many which they are."""
        from treecal.engine._guard_kernels import Notes

        shape = points, len(self.spoken().weights), self._space.dim
        return Notes(np.zeros(shape), np.zeros(shape[:2]), np.zeros(points, np.int64), np.zeros(rounds, np.int64))

    def _forecasts(self, notes: Any) -> GuardForecasts:
        return GuardForecasts(notes, self._space, None if self._tree is None else self._tree.arity)

    def _reach(self, rows: Integers) -> None:
        """Make room for the heights of trees, and know the bounds, once these rows have learned."""
        more = int(np.bincount(rows).max(initial=0))
        rounds = int(self.rounds[rows].max(initial=0)) + more
        if self._tree is not None:
            for part in self._parts:
                played = self.columns["rounds" if part == "shadow" else "safe_rounds"][rows]
                for name in ("sums", "path"):
                    self.columns.widen(f"{part}/{name}", self._tree.heights(int(played.max(initial=0)) + more))
        if self._guard.error is None and not self._guard.measured:
            guard = self._rules.guard
            bounds = [self._guard._bound(2**power) for power in range(len(guard.bounds), rounds.bit_length())]
            self._rules = self._rules._replace(guard=guard._replace(bounds=np.append(guard.bounds, bounds)))

    def spoken(self) -> Any:
        """Return room for what a certified part announces."""
        from treecal.engine._guard_parts import Spoken

        width = 4 if self._tree is None else max(self.columns[f"{part}/sums"].shape[1] for part in self._parts)
        rows = self._guard.safe.bins + 1 if self._tree is None else 0  # type: ignore[attr-defined] # a BinaryGrid
        return Spoken(np.empty((width, self._space.dim)), np.empty(width), np.empty(rows, np.int64))

    def _pages(self, rows: Integers) -> Any:
        """Return what the pages of some streams hold."""
        from treecal.engine._guard_pages import PageRows, pack

        columns, slots = int(self.columns["used"][rows].sum()), int(self.columns["announced"][rows].sum())
        points, biases, told, owed = (np.empty((n, self._space.dim)) for n in (columns, columns, slots, slots))
        pages = PageRows(points, biases, np.empty(columns, np.int32), told, owed)
        pack(rows, self._pool, pages)
        return pages

    def _pack(self, rounds: int) -> None:
        """Pack the pool, and make room for so many rounds more, as streams usually need it."""
        from treecal.engine._guard_pages import ROOM, SLOT_ROOM, unpack

        pages, numbers = self._pages(np.arange(len(self.rounds))), self._pool.numbers
        self._pool = self._pool._replace(points=_NONE, biases=_NONE, sizes=_NONE)  # so that both are never held at once
        few = max(3 * min(rounds, len(numbers)), _FEW)  # and as much as any stream may ask for next
        free = (max(int(own.sum()) // 4, 2 * int(own.max()) + 2, few) for own in numbers[:, [ROOM, SLOT_ROOM]].T)
        self._pool = self._new_pool(numbers, *free)
        unpack(pages, self._pool)

    def rows(self, rows: Integers) -> dict[str, Any]:
        """Return the columns, and of the books one stream's rows after another's.

        Of the books there is a row for each column that is used, book by book (`points`, `biases`, `slots`); and for
        each point that was announced, in order (`told`, `owed`).
        """
        pages: dict[str, Any] = self._pages(rows)._asdict()
        return self.columns.state(rows) | pages

    def with_rows(self, columns: Any) -> Self:
        from treecal.engine._guard_pages import ROOM, SLOT_ROOM, PageRows, unpack

        twin = super().with_rows(columns)
        used, announced = twin.columns["used"], twin.columns["announced"]
        home = np.repeat(np.arange(len(used)), used.sum(axis=1))
        placed = np.bincount(home, columns["slots"] >= 0, len(used))
        # So there is always a slot for what is announced next: kernels do not ask.
        if (announced > placed).any() or (columns["slots"] >= announced[home]).any():
            raise SnapshotError("the points announced are not those of the books.")
        numbers = np.zeros((len(used), 4), np.int64)
        numbers[:, ROOM], numbers[:, SLOT_ROOM] = used.max(axis=1, initial=0), announced
        twin._pool = twin._new_pool(numbers)
        unpack(PageRows(*(np.array(columns[name], order="C") for name in PageRows._fields)), twin._pool)
        return twin

    def state(self, rows: Integers) -> dict[str, Any]:
        """Return the rows, those of each certified part by themselves."""
        state: dict[str, Any] = {}
        for name, array in self.rows(rows).items():
            part, _, own = name.rpartition("/")
            if part:
                state.setdefault(part, {})[own] = array
            else:
                state[own] = array
        return state

    def resumed(self, state: dict[str, Any]) -> Self:
        check_names("the state", state, self.state(np.empty(0, np.int64)))
        columns = {name: array for name, array in state.items() if name not in self._parts}
        for part in self._parts:
            if not isinstance(state[part], dict):
                raise SnapshotError(f"the {part} part is no dictionary.")
            columns |= {f"{part}/{name}": array for name, array in state[part].items()}
        return self.with_rows(columns)

    def announced(self, row: int) -> Array:
        """Return the points that a stream's eager part has announced, in order of their first rounds."""
        return np.asarray(self._pages(np.array([row])).told)

    def forecaster(self, row: int) -> Guarded:
        """Return the forecaster of a stream, ready to go on."""
        from treecal.engine import _guard_kernels as kernels

        f, s = deepcopy(self.thing), row
        (eager, guard), now = f._now, {name: self.columns[name][s] for name in kernels.Now._fields}
        rounds, safe, suspended, last, lead = (
            int(now[name]) for name in ("rounds", "safe_rounds", "suspended", "last", "lead")
        )
        weights, means, followed, seen = (now[name].copy() for name in ("weights", "means", "followed", "seen"))
        eager.source._state = Experts(rounds, weights, means, followed, seen, last)  # type: ignore[attr-defined]
        used, pages = self.columns["used"][s].copy(), self._pages(np.array([s]))
        squares = now["squares"].copy() if len(now["squares"]) else np.zeros(self._space.dim)
        books = Books(rounds - safe, *self._columns(used, pages), used, now["growth"].copy(), lead, squares)
        eager._now = eager.source, Shelf(self._book, books)  # type: ignore[attr-defined]
        guard.rounds, guard.suspended, guard.peak = rounds, bool(suspended), float(now["peak"])
        biases = guard.eager_tally.named(pages.told, pages.owed)
        guard.eager_tally = guard.eager_tally._replace(biases=biases, rounds=rounds - safe, closed=float(now["error"]))
        guard.safe_tally = self._resumed(guard.safe, guard.safe_tally, self._part("safe"), s, safe)
        if guard.shadow is not None:
            guard.shadow_tally = self._resumed(guard.shadow, guard.shadow_tally, self._part("shadow"), s, rounds)
        guard._opened()
        return f

    def _columns(self, used: Integers, pages: Any) -> tuple[Array, Array, Array]:
        """Return points, biases and sizes of a stream's books, in as many columns as the class has."""
        width = 2
        while width < used.max():
            width = min(2 * width, self._book.capacity)
        points, biases = np.zeros((2, len(used), self._space.dim, width))
        for b, rows in enumerate(np.split(np.arange(used.sum()), np.cumsum(used)[:-1])):
            points[b, :, : used[b]], biases[b, :, : used[b]] = pages.points[rows].T, pages.biases[rows].T
        return points, biases, np.add.accumulate(np.abs(biases), axis=1)[:, -1]

    def _resumed(self, own: Forecaster, tally: Tally, part: Any, stream: int, rounds: int) -> Tally:
        """Set a certified part to where its stream is; return its tally."""
        closed = float(part.errors[stream, 0])
        if isinstance(own, BinaryGrid):
            own._state = Biases(rounds, part.bias[stream].copy())
            met = np.flatnonzero(part.biases[stream].any(axis=1))  # a point without bias is as one that was not played
            biases = tally.named(own._grid[met], part.biases[stream, met])
            return tally._replace(biases=biases, rounds=rounds, closed=closed)
        assert isinstance(own, TreeCal)
        heights, last = own.tree.heights(rounds), max(0, rounds - 1)
        own._state = TreeState(np.array([rounds]), part.sums[stream, :heights, None].copy())
        walked = own.tree.heights(last) if rounds else 0
        # Nodes that last have the points of the coming path; those of the others are of no more use.
        path, places = part.path[stream, :walked].copy(), own._path.resume(rounds, part.sums[stream, :walked])[2]
        return tally.along(path, places, rounds=rounds, last=last, closed=closed)


_NONE = np.empty(0)
_FEW = 512
