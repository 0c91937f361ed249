"""Guarded streams as arrays: the one that is replayed, or the many of a bank."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Self

import numpy as np

from treecal._typing import Array, Integers
from treecal.engine._forecasts import Forecasts
from treecal.engine._guard_records import recorded, records
from treecal.engine._guard_state import check_guards
from treecal.engine._outcomes import Outcomes, unlocked
from treecal.engine._state import kernel_args
from treecal.engine._streams import RowError, Streams
from treecal.exceptions import HorizonError
from treecal.forecast import Forecast, TreeForecast, uniform
from treecal.forecasters import BinaryGrid, Codebook, Forecaster, Guarded, Tracker, TreeCal
from treecal.forecasters._binary_grid import Biases
from treecal.forecasters._codebook import BETTER, LOOK_AHEAD, Books, Shelf
from treecal.forecasters._guarded import RESERVE
from treecal.forecasters._path import TreeState
from treecal.forecasters._tally import Tally
from treecal.forecasters._tracker import SHARE, Experts
from treecal.geometry import ConvexSet, Lp


def is_compiled(forecaster: Forecaster) -> bool:
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


class GuardStreams(Streams):
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
        from treecal.engine._guard_pages import empty_pool

        super().__init__(thing)
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
        now, dim, books = source._state, self._space.dim, len(book.sizes)
        counts = np.zeros(5, np.int64)
        counts[kernels.LAST], counts[kernels.LEAD] = -1, books - 1
        squares = np.zeros(0 if book.classes else dim)
        fresh: Any = (counts, np.zeros(6), now.weights, now.means, now.followed, now.counts, np.zeros(books), squares)
        self._fresh = kernels.Now(*(np.array(array)[None] for array in fresh))
        self._now = kernels.Now(*_each(self._fresh, lambda array: np.repeat(array, rows, axis=0)))
        self._pool = empty_pool(np.zeros((rows, 5), np.int64), np.zeros((rows, books), np.int64), dim, 0, 0)
        self._safe, self._shadow = (self._part(rows * used) for used in (True, measured))
        self._tree = guard.safe.tree if isinstance(guard.safe, TreeCal) else None

    def _part(self, rows: int) -> Any:
        """Return the certified part of so many new streams."""
        from treecal.engine._guard_parts import GridParts, TreeParts

        safe, dim = self._guard.safe, self._space.dim
        if isinstance(safe, BinaryGrid):
            return GridParts(np.zeros((rows, safe.bins + 1)), np.zeros((rows, safe.bins + 1, 2)))
        assert isinstance(safe, TreeCal)
        sums = np.zeros((rows, safe.depth or 1, dim))
        return TreeParts(kernel_args(safe._path)[0], sums, sums.copy())

    @property
    def rounds(self) -> Integers:
        """Number of outcomes each stream has seen."""
        return self._now.counts[:, 0]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        parts = (*self._now, *self._pool, *self._safe, *self._shadow)
        return sum(array.nbytes for array in parts if isinstance(array, np.ndarray))

    def reserve(self, rows: int) -> None:
        more = rows - len(self.rounds)
        grown = (np.concatenate([old, np.repeat(new, more, axis=0)]) for old, new in self._both())
        self._now = type(self._now)(*grown)
        numbers, used = (np.pad(array, [(0, more), (0, 0)]) for array in self._pool[:2])
        self._pool = self._pool._replace(numbers=numbers, used=used)
        self._safe = _padded(self._safe, 0, more)
        if self._rules.guard.measured:
            self._shadow = _padded(self._shadow, 0, more)

    def _both(self) -> Any:
        return zip(self._now, self._fresh, strict=True)

    def clear(self, rows: Integers) -> None:
        for old, new in self._both():
            old[rows] = new
        parts = (self._safe, self._shadow) if self._rules.guard.measured else (self._safe,)
        for array in (*self._pool[:2], *(array for part in parts for array in _arrays(part))):
            array[rows] = 0

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
            after = self._now.counts[streams, 0 if self._rules.guard.measured else 1] + counts
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
        from treecal.engine._guard_kernels import guard_rounds

        spoken, done, learning = self.spoken(), 0, outcomes is not None
        if outcomes is None:
            outcomes = np.empty(0, np.int64) if self._book.classes else np.empty((0, self._space.dim))
        while True:
            args = self._rules, self._now, self._pool, self._safe, self._shadow, spoken, notes
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
        counts, more = self._now.counts[rows], int(np.bincount(rows).max(initial=0))
        rounds, safe = (int(counts[:, k].max(initial=0)) + more for k in range(2))
        if self._tree is not None:
            self._safe = _padded(self._safe, 1, self._tree.heights(safe) - self._safe.sums.shape[1])
            if self._guard.shadow is not None:
                self._shadow = _padded(self._shadow, 1, self._tree.heights(rounds) - self._shadow.sums.shape[1])
        if self._guard.error is None and not self._guard.measured:
            guard = self._rules.guard
            bounds = [self._guard._bound(2**power) for power in range(len(guard.bounds), rounds.bit_length())]
            self._rules = self._rules._replace(guard=guard._replace(bounds=np.append(guard.bounds, bounds)))

    def spoken(self) -> Any:
        """Return room for what a certified part announces."""
        from treecal.engine._guard_parts import Spoken

        width = 4 if self._tree is None else max(self._safe.sums.shape[1], self._shadow.sums.shape[1])
        rows = self._guard.safe.bins + 1 if self._tree is None else 0  # type: ignore[attr-defined] # a BinaryGrid
        return Spoken(np.empty((width, self._space.dim)), np.empty(width), np.empty(rows, np.int64))

    def _pages(self, rows: Integers) -> Any:
        """Return what the pages of some streams hold."""
        from treecal.engine._guard_pages import SLOTS, PageRows, pack

        columns, slots = int(self._pool.used[rows].sum()), int(self._pool.numbers[rows, SLOTS].sum())
        points, biases, told, owed = (np.empty((n, self._space.dim)) for n in (columns, columns, slots, slots))
        pages = PageRows(points, biases, np.empty(columns, np.int32), told, owed)
        pack(rows, self._pool, pages)
        return pages

    def _pack(self, rounds: int) -> None:
        """Pack the pool, and make room for so many rounds more, as streams usually need it."""
        from treecal.engine._guard_pages import ROOM, SLOT_ROOM, empty_pool, unpack

        pages, (numbers, used) = self._pages(np.arange(len(self.rounds))), self._pool[:2]
        self._pool = self._pool._replace(points=_NONE, biases=_NONE, sizes=_NONE)  # so that both are never held at once
        few = max(3 * min(rounds, len(numbers)), _FEW)  # and as much as any stream may ask for next
        free = (max(int(own.sum()) // 4, 2 * int(own.max()) + 2, few) for own in numbers[:, [ROOM, SLOT_ROOM]].T)
        self._pool = empty_pool(numbers, used, self._space.dim, *free)
        unpack(pages, self._pool)

    def state(self, rows: Integers) -> dict[str, Any]:
        """Return the state: arrays with a row for each stream; and of the books, one stream's rows after another's.

        Of the books there is a row for each column that is used, book by book (`points`, `biases`, `slots`); and for
        each point that was announced, in order (`told`, `owed`).
        """
        from treecal.engine._guard_pages import SLOTS

        now, pages = type(self._now)(*_each(self._now, lambda array: array[rows])), self._pages(rows)
        names = ("rounds", "safe_rounds", "suspended", "last", "lead")
        kept: dict[str, Any] = {name: now.counts[:, k].copy() for k, name in enumerate(names)}
        kept |= {name: now.totals[:, k].copy() for k, name in enumerate(("error", "peak"))}
        kept |= {name: array for name, array in now._asdict().items() if name not in ("counts", "totals")}
        kept |= {"used": self._pool.used[rows], "announced": self._pool.numbers[rows, SLOTS], **pages._asdict()}
        parts = {"safe": self._safe, "shadow": self._shadow} if self._rules.guard.measured else {"safe": self._safe}
        for place, (name, part) in enumerate(parts.items()):
            own = {field: array[rows] for field, array in part._asdict().items() if isinstance(array, np.ndarray)}
            if self._tree is not None:
                heights = self._tree.heights(int(now.counts[:, 1 - place].max(initial=0)))
                own = {field: array[:, :heights].copy() for field, array in own.items()}
            kept[name] = {"errors": now.totals[:, 2 + 2 * place : 4 + 2 * place].copy(), **own}
        return kept

    def resumed(self, state: dict[str, Any]) -> Self:
        from treecal.engine._guard_pages import ROOM, SLOT_ROOM, SLOTS, PageRows, empty_pool, unpack

        twin = type(self)(self.thing)
        twin.reserve(check_guards(state, self.thing, twin.state(np.empty(0, np.int64))))
        now, used = twin._now, np.array(state["used"])
        for k, name in enumerate(("rounds", "safe_rounds", "suspended", "last", "lead")):
            now.counts[:, k] = state[name]
        for k, name in enumerate(("error", "peak")):
            now.totals[:, k] = state[name]
        for name in ("weights", "means", "followed", "seen", "growth", "squares"):
            getattr(now, name)[:] = state[name]
        for place, name in enumerate(("safe", "shadow") if self._rules.guard.measured else ("safe",)):
            now.totals[:, 2 + 2 * place : 4 + 2 * place] = state[name]["errors"]
            arrays = {field: np.array(array, order="C") for field, array in state[name].items() if field != "errors"}
            setattr(twin, f"_{name}", getattr(twin, f"_{name}")._replace(**arrays))
        numbers = twin._pool.numbers
        numbers[:, ROOM], numbers[:, SLOTS] = used.max(axis=1, initial=0), state["announced"]
        numbers[:, SLOT_ROOM] = state["announced"]
        twin._pool = empty_pool(numbers, used, self._space.dim, 0, 0)
        unpack(PageRows(*(np.array(state[name], order="C") for name in PageRows._fields)), twin._pool)
        return twin

    def records(self, rows: Integers) -> tuple[Array, Integers]:
        """Return the state of each of these rows but its rounds, as numbers, one after another, and where each ends."""
        return records(self.state(rows), self._tree)

    def recorded(self, rounds: Integers, numbers: Array, ends: Integers) -> Self:
        """Return streams of so many rounds with such records, or raise a `SnapshotError`; this one does not change."""
        fresh = type(self)(self.thing).state(np.empty(0, np.int64))
        return self.resumed(recorded(fresh, rounds, numbers, ends, self._tree))

    def announced(self, row: int) -> Array:
        """Return the points that a stream's eager part has announced, in order of their first rounds."""
        return np.asarray(self._pages(np.array([row])).told)

    def forecaster(self, row: int) -> Guarded:
        """Return the forecaster of a stream, ready to go on."""
        from treecal.engine import _guard_kernels as kernels

        f, s = deepcopy(self.thing), row
        (eager, guard), now = f._now, kernels.Now(*_each(self._now, lambda array: array[s]))
        rounds, safe, suspended, last, lead = now.counts.tolist()
        weights, means, followed, seen = (array.copy() for array in (now.weights, now.means, now.followed, now.seen))
        eager.source._state = Experts(rounds, weights, means, followed, seen, last)  # type: ignore[attr-defined]
        used, pages = self._pool.used[s].copy(), self._pages(np.array([s]))
        squares = now.squares.copy() if len(now.squares) else np.zeros(self._space.dim)
        books = Books(rounds - safe, *self._columns(used, pages), used, now.growth.copy(), lead, squares)
        eager._now = eager.source, Shelf(self._book, books)  # type: ignore[attr-defined]
        guard.rounds, guard.suspended = rounds, bool(suspended)
        error, guard.peak, *errors = now.totals.tolist()
        biases = guard.eager_tally.named(pages.told, pages.owed)
        guard.eager_tally = guard.eager_tally._replace(biases=biases, rounds=rounds - safe, closed=error)
        guard.safe_tally = self._resumed(guard.safe, guard.safe_tally, self._safe, s, safe, errors[0])
        if guard.shadow is not None:
            guard.shadow_tally = self._resumed(guard.shadow, guard.shadow_tally, self._shadow, s, rounds, errors[2])
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

    def _resumed(self, own: Forecaster, tally: Tally, part: Any, stream: int, rounds: int, closed: float) -> Tally:
        """Set a certified part to where its stream is; return its tally."""
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


def _each(arrays: Any, change: Callable[[Any], Any]) -> Any:
    return (change(array) for array in arrays)


def _arrays(part: Any) -> Any:
    return (array for array in part if isinstance(array, np.ndarray))


def _padded(part: Any, axis: int, more: int) -> Any:
    """Return a part with more streams, or with more heights."""
    if more <= 0:
        return part
    return part._replace(
        **{
            name: np.pad(array, [(0, more * (k == axis)) for k in range(array.ndim)])
            for name, array in part._asdict().items()
            if isinstance(array, np.ndarray)
        }
    )
