"""Guarded streams as arrays: one that is replayed, or the many of a bank."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from treecal._typing import Array, Integers
from treecal.engine._outcomes import Outcomes
from treecal.engine._state import kernel_args
from treecal.forecast import Forecast, TreeForecast, uniform
from treecal.forecasters import BinaryGrid, Codebook, Forecaster, Guarded, Tracker, TreeCal
from treecal.forecasters._binary_grid import Biases
from treecal.forecasters._codebook import BETTER, LOOK_AHEAD, Books, Shelf
from treecal.forecasters._guarded import RESERVE
from treecal.forecasters._path import TreeState
from treecal.forecasters._tally import Tally
from treecal.forecasters._tracker import SHARE, Experts
from treecal.geometry import Lp


def is_compiled(forecaster: Forecaster) -> bool:
    """Return whether it is a guarded forecaster whose parts and norm compiled code can play."""
    if type(forecaster) is not Guarded:
        return False
    eager, safe, norm = forecaster.eager, forecaster.safe, forecaster.norm
    usual = type(eager) is Codebook and type(eager.source) is Tracker and type(safe) in (BinaryGrid, TreeCal)
    return usual and not getattr(safe, "mix", 0) and isinstance(norm, Lp) and norm.p in (1, 2)


class GuardStreams:
    """The state of many copies of a guarded forecaster: arrays with a row for each, and pages that grow as needed."""

    def __init__(self, forecaster: Guarded, streams: int = 0) -> None:
        from treecal.engine import _guard_kernels as kernels
        from treecal.engine._guard_pages import empty_pool

        self.new, self.space, self._guard = forecaster, forecaster.space, forecaster._now[1]
        self._source: Any = forecaster.eager.source  # type: ignore[attr-defined] # a Codebook of a Tracker
        self._book = forecaster.eager._now[1].book  # type: ignore[attr-defined]
        guard, source, book, norm = self._guard, self._source, self._book, forecaster.norm
        rate, squared = -1.0 if guard.error is None else guard.error, isinstance(norm, Lp) and norm.p == 2
        measured, none = guard.shadow is not None, np.empty(0)
        self._rules = kernels.Rules(
            kernels.GuardRules(guard.diameter, squared, measured, guard.budget, RESERVE, rate, none),
            kernels.TrackerRules(source._rates, SHARE, source._scale, np.array(self.space.centre), book.classes),
            kernels.BookRules(
                np.array(book.sizes, float), book.skill, book.prior, LOOK_AHEAD, BETTER, book.capacity, book.classes
            ),
        )
        now, dim, books = source._state, self.space.dim, len(book.sizes)
        counts = np.zeros(5, np.int64)
        counts[kernels.LAST], counts[kernels.LEAD] = -1, books - 1
        squares = np.zeros(0 if book.classes else dim)
        fresh = (counts, np.zeros(6), now.weights, now.means, now.followed, now.counts, np.zeros(books), squares)
        self._fresh = kernels.Streams(*(np.array(array)[None] for array in fresh))
        self.streams = kernels.Streams(*(np.repeat(array, streams, axis=0) for array in self._fresh))
        self.pool = empty_pool(np.zeros((streams, 5), np.int64), np.zeros((streams, books), np.int64), dim, 0, 0)
        self.safe, self.shadow = (self._part(streams * used) for used in (True, guard.shadow is not None))
        self.tree = guard.safe.tree if isinstance(guard.safe, TreeCal) else None

    def _part(self, streams: int) -> Any:
        """Return the certified part of so many new streams."""
        from treecal.engine._guard_parts import GridParts, TreeParts

        safe, dim = self._guard.safe, self.space.dim
        if isinstance(safe, BinaryGrid):
            return GridParts(np.zeros((streams, safe.bins + 1)), np.zeros((streams, safe.bins + 1, 2)))
        assert isinstance(safe, TreeCal)
        sums = np.zeros((streams, safe.depth or 1, dim))
        return TreeParts(kernel_args(safe._path)[0], sums, sums.copy())

    @property
    def rounds(self) -> Integers:
        """Number of outcomes each stream has seen."""
        return self.streams.counts[:, 0]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        parts = (*self.streams, *self.pool, *self.safe, *self.shadow)
        return sum(array.nbytes for array in parts if isinstance(array, np.ndarray))

    def __len__(self) -> int:
        return len(self.rounds)

    def reserve(self, streams: int) -> None:
        """Make room for more streams, which are new."""
        more = streams - len(self)
        grown = (np.concatenate([old, np.repeat(new, more, axis=0)]) for old, new in self._both())
        self.streams = type(self.streams)(*grown)
        numbers, used = (np.pad(array, [(0, more), (0, 0)]) for array in self.pool[:2])
        self.pool = self.pool._replace(numbers=numbers, used=used)
        self.safe = _padded(self.safe, 0, more)
        if self._guard.shadow is not None:
            self.shadow = _padded(self.shadow, 0, more)

    def _both(self) -> Any:
        return zip(self.streams, self._fresh, strict=True)

    def clear(self, streams: Integers) -> None:
        """Make some streams new."""
        for old, new in self._both():
            old[streams] = new
        measured = self._guard.shadow is not None
        parts = (*self.pool[:2], *_arrays(self.safe), *(_arrays(self.shadow) if measured else ()))
        for array in parts:
            array[streams] = 0

    def learn(self, keys: Integers, outcomes: Outcomes, said: Any) -> None:
        """Play a round of each key, in order, and note what is announced where there is room for it."""
        from treecal.engine._guard_kernels import guard_learn

        most = int(np.bincount(keys).max(initial=0))
        self._reach(keys, most)
        spoken, begin = self.spoken(), 0
        while True:
            args = self._rules, self.streams, self.pool, self.safe, self.shadow, spoken, said
            begin = guard_learn(keys, outcomes, begin, *args)
            if begin == len(keys):
                return
            self._pack(len(keys) - begin)

    def _reach(self, keys: Integers, more: int) -> None:
        """Make room for the heights of trees, and know the bounds, of so many more rounds of each key."""
        counts = self.streams.counts[keys]
        rounds, safe = (int(counts[:, k].max(initial=0)) + more for k in range(2))
        if self.tree is not None:
            self.safe = _padded(self.safe, 1, self.tree.heights(safe) - self.safe.sums.shape[1])
            if self._guard.shadow is not None:
                self.shadow = _padded(self.shadow, 1, self.tree.heights(rounds) - self.shadow.sums.shape[1])
        if self._guard.error is None and not self._guard.measured:
            guard = self._rules.guard
            bounds = [self._guard._bound(2**power) for power in range(len(guard.bounds), rounds.bit_length())]
            self._rules = self._rules._replace(guard=guard._replace(bounds=np.append(guard.bounds, bounds)))

    def spoken(self) -> Any:
        """Return room for what a certified part announces."""
        from treecal.engine._guard_parts import Spoken

        width = 4 if self.tree is None else max(self.safe.sums.shape[1], self.shadow.sums.shape[1])
        rows = self._guard.safe.bins + 1 if self.tree is None else 0  # type: ignore[attr-defined] # a BinaryGrid
        return Spoken(np.empty((width, self.space.dim)), np.empty(width), np.empty(rows, np.int64))

    def room_for(self, rounds: int, *, points: bool = True) -> Any:
        """Return room to note what is announced in so many rounds: the points, or only which."""
        from treecal.engine._guard_kernels import Said

        full, width = rounds * points, len(self.spoken().weights)
        shape = full, width, self.space.dim
        slots = np.zeros(rounds, np.int64)
        return Said(np.zeros(shape), np.zeros(shape[:2]), np.zeros(full, np.int64), slots)

    def announce(self, keys: Integers) -> Any:
        """Return what these streams announce for their coming rounds."""
        from treecal.engine._guard_kernels import guard_announce

        self._reach(keys, 0)
        said = self.room_for(len(keys))
        guard_announce(keys, self._rules, self.streams, self.pool, self.safe, self.spoken(), said)
        return said

    def _rows(self, streams: Integers) -> Any:
        """Return what the pages of some streams hold."""
        from treecal.engine._guard_pages import SLOTS, Rows, pack

        columns, slots = int(self.pool.used[streams].sum()), int(self.pool.numbers[streams, SLOTS].sum())
        arrays = (np.empty((count, self.space.dim)) for count in (columns, columns, slots, slots))
        points, biases, told, owed = arrays
        rows = Rows(points, biases, np.empty(columns, np.int32), told, owed)
        pack(streams, self.pool, rows)
        return rows

    def _pack(self, rounds: int) -> None:
        """Pack the pool, and make room for so many rounds more, as streams usually need it."""
        from treecal.engine._guard_pages import ROOM, SLOT_ROOM, empty_pool, unpack

        rows, (numbers, used) = self._rows(np.arange(len(self))), self.pool[:2]
        self.pool = self.pool._replace(points=_NONE, biases=_NONE, sizes=_NONE)  # so that both are never held at once
        least = max(3 * min(rounds, len(self)), _FEW)
        free = (max(int(numbers[:, k].sum()) // 4, least) for k in (ROOM, SLOT_ROOM))
        self.pool = empty_pool(numbers, used, self.space.dim, *free)
        unpack(rows, self.pool)

    def announced(self, stream: int) -> Array:
        """Return the points that a stream's eager part has announced, in order of their first rounds."""
        return np.asarray(self._rows(np.array([stream])).told)

    def forecaster(self, stream: int) -> Guarded:
        """Return the forecaster of a stream, ready to go on."""
        from treecal.engine import _guard_kernels as kernels

        f, s = deepcopy(self.new), stream
        (eager, guard), now = f._now, kernels.Streams(*(array[s] for array in self.streams))
        rounds, safe, suspended, last, lead = now.counts.tolist()
        tracked = (array.copy() for array in (now.weights, now.means, now.followed, now.seen))
        eager.source._state = Experts(rounds, *tracked, last)  # type: ignore[attr-defined]
        used, pages = self.pool.used[s].copy(), self._rows(np.array([s]))
        squares = now.squares.copy() if len(now.squares) else np.zeros(self.space.dim)
        books = Books(rounds - safe, *self._columns(used, pages), used, now.growth.copy(), lead, squares)
        eager._now = eager.source, Shelf(self._book, books)  # type: ignore[attr-defined]
        guard.rounds, guard.suspended = rounds, bool(suspended)
        error, guard.peak, *errors = now.totals.tolist()
        biases = guard.eager_tally.named(pages.told, pages.owed)
        guard.eager_tally = guard.eager_tally._replace(biases=biases, rounds=rounds - safe, closed=error)
        guard.safe_tally = self._resumed(guard.safe, guard.safe_tally, self.safe, s, safe, errors[0])
        if guard.shadow is not None:
            guard.shadow_tally = self._resumed(guard.shadow, guard.shadow_tally, self.shadow, s, rounds, errors[2])
        guard._opened()
        return f

    def _columns(self, used: Integers, pages: Any) -> tuple[Array, Array, Array]:
        """Return points, biases and sizes of a stream's books, in as many columns as the class has."""
        width = 2
        while width < used.max():
            width = min(2 * width, self._book.capacity)
        points, biases = np.zeros((2, len(used), self.space.dim, width))
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
        met = own.tree.heights(last) if rounds else 0
        # Nodes that last have the points of the coming path; those of the others are of no more use.
        path, places = part.path[stream, :met].copy(), own._path.resume(rounds, part.sums[stream, :met])[2]
        return tally.along(path, places, rounds=rounds, last=last, closed=closed)


_NONE = np.empty(0)
_FEW = 512


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
