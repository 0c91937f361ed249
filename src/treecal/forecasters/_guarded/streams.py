"""Guarded streams as arrays: the one that is replayed, or the many of a bank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import fields
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from treecal._compile import unlocked
from treecal._states import MOST_ROUNDS
from treecal._typing import Array, Integers, Outcomes, Saved
from treecal.columns import ROUNDS, ColumnStreams, Field, Forecasts, ListedForecasts, Schema
from treecal.exceptions import SnapshotError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster
from treecal.forecasters._binary_grid import BinaryGrid
from treecal.forecasters._codebook import BookState, Shelf
from treecal.forecasters._guarded import kernels
from treecal.forecasters._guarded.kernels import Notes, Now, Told, guard_rounds
from treecal.forecasters._guarded.pages import ROOMS, empty_pool, pack, unpack
from treecal.forecasters._harmonic import Harmonic, rates_after
from treecal.forecasters._tally import Tally
from treecal.forecasters._tracker import SHARE, Experts
from treecal.forecasters._tree.treecal import TreeCal
from treecal.geometry import ConvexSet, Crps, l1


class GuardForecasts(Forecasts):
    """Those of guarded streams: one point of the eager part, or what the safe part of a stream announces.

    A safe part may announce thousands of points. They are written out for all streams only when asked for.
    """

    def __init__(self, points: Array, safe: dict[int, Forecast], space: ConvexSet) -> None:
        self._own = points
        self._safe = safe
        self._space = space
        self.sizes = np.ones(len(points), np.int64)
        for i, x in safe.items():
            self.sizes[i] = len(x)

    @cached_property
    def _written(self) -> tuple[Array, Array]:
        listed = ListedForecasts([self[i] for i in range(len(self))], self._space)
        return listed.points, listed.weights

    @property
    def points(self) -> Array:  # type: ignore[override] # computed
        """The points of each forecast, `(streams, most, d)`."""
        return self._written[0]

    @property
    def weights(self) -> Array:  # type: ignore[override] # computed
        """Their weights, `(streams, most)`."""
        return self._written[1]

    @property
    def mean(self) -> Array:
        """The mean forecast of each stream, `(streams, d)`."""
        means = self._own.copy()
        for i, x in self._safe.items():
            means[i] = x.mean
        return means

    def __getitem__(self, index: int) -> Forecast:
        i = range(len(self))[index]
        if i in self._safe:
            return self._safe[i]
        return Forecast.trusted(self._own[i][None], uniform(1), None, self._space)

    def __repr__(self) -> str:
        return f"Forecasts({len(self)} streams in R^{self._own.shape[1]})"


def guard_schema(thing: Any) -> Schema:
    """Return what is kept of a stream: guard, tracker, books and their pages, and the safe part once it forecast."""
    source = thing.eager.source
    book = thing.eager.shelf.book
    experts, dim, most, contexts = source._state, thing.space.dim, book.capacity, source._most

    count = partial(Field, dtype=np.int64, least=0)
    return Schema(
        (
            ROUNDS,
            count("safe_rounds", most=MOST_ROUNDS),
            Field("error"),
            Field("best", least=0.0),
            *(
                Field(name, np.shape(new), new=new)
                for name, new in (("weights", experts.weights), ("means", experts.means))
            ),
            Field("past", np.shape(experts.past), dtype=np.uint8, least=0, most=dim - 1),
            Field("holds", np.shape(experts.holds)),
            Field("squares", (0 if book.classes else dim,)),
            count("used", most=most),
            count("announced", most=most),
            count("contexts", most=contexts),
            *_safe_fields(thing.safe),
            *(Field(name, (dim,), length=_columns_of, layout="listed") for name in ("points", "biases")),
            Field("visits", length=_columns_of, layout="listed", least=0.0),
            Field("slots", dtype=np.int32, length=_columns_of, layout="listed", least=-1, most=most - 1),
            *(Field(name, (dim,), length=_announced_of, layout="listed") for name in ("told", "owed")),
            Field("sums", (dim,), length=_contexts_of, layout="listed"),
            Field("seen", length=_contexts_of, layout="listed", least=1.0),
            Field("longer", (dim,), dtype=np.int16, length=_contexts_of, layout="listed", least=0, most=contexts),
        )
    )


def _columns_of(columns: Any) -> Integers:
    """Return how many columns of its book each row uses."""
    return np.asarray(columns["used"])


def _contexts_of(columns: Any) -> Integers:
    """Return how many contexts each row has."""
    return np.asarray(columns["contexts"])


def _announced_of(columns: Any) -> Integers:
    """Return how many points each row has announced."""
    return np.asarray(columns["announced"])


def _safe_fields(own: Forecaster) -> Iterator[Field]:
    """Yield what is kept of a safe part that has forecast: nothing of others."""

    def listed(name: str, size: int, entries: Callable[[int], int]) -> Field:
        return Field(f"own_{name}", (size,), length=partial(_entries, entries), layout="listed")

    dim = own.space.dim
    if isinstance(own, BinaryGrid):
        yield listed("bias", own.bins + 1, bool)
    elif isinstance(own, TreeCal):
        yield listed("sums", dim, own.tree.heights)
    elif isinstance(own, Harmonic):
        block = MOST_ROUNDS if own.block is None else own.block
        yield listed("points", dim, partial(_in_block, block))
        yield listed("sums", dim, partial(_rates_in_block, block))
        yield listed("plain", dim, bool)
        yield listed("norm", 2, bool)


def _entries(entries: Callable[[int], int], columns: Any) -> Integers:
    """Return how many entries there are of each stream whose safe part has forecast."""
    return np.array([entries(n) if n else 0 for n in columns["safe_rounds"].tolist()], np.int64)


def _in_block(block: int, rounds: int) -> int:
    return rounds % block


def _rates_in_block(block: int, rounds: int) -> int:
    return rates_after(rounds % block)


def _safe_rows(own: Any) -> dict[str, Array]:
    """Return what is kept of a safe part, in rows."""
    state = own.get_state()
    if isinstance(own, BinaryGrid):
        return {"bias": state["bias"][None]}
    if isinstance(own, TreeCal):
        return {"sums": state["sums"][:, 0]}
    return {name: np.atleast_2d(state[name]) for name in ("points", "sums", "plain", "norm")}


def _safe_of(new: Any, rounds: int, rows: dict[str, Array]) -> Forecaster:
    """Return the safe part with such rows, or raise a `SnapshotError`."""
    own: Any = new._fork()
    if isinstance(own, BinaryGrid):
        own.set_state({"rounds": rounds, "bias": rows["bias"][0]})
    elif isinstance(own, TreeCal):
        own.set_state({"rounds": np.array([rounds]), "sums": rows["sums"][:, None]})
    else:
        before = {} if own.block is None else {"before": rounds - len(rows["points"])}
        own.set_state(before | rows | {"plain": rows["plain"][0], "norm": rows["norm"][0].tolist()})
    return own  # type: ignore[no-any-return]


class GuardStreams(ColumnStreams):
    """Guarded streams of the usual parts: arrays with a row for each, and pages that grow as a stream needs them.

    Parameters
    ----------
    thing
        A new `Guarded` whose parts are `usual`.
    rows
        Number of streams.
    """

    def __init__(self, thing: Any, rows: int = 0) -> None:
        super().__init__(thing, guard_schema(thing))
        self._space: ConvexSet = thing.space
        self._guard = guard = thing.guard
        self._book = book = thing.eager.shelf.book
        source = thing.eager.source
        error = -1.0 if guard.error is None else guard.error
        squares = unlocked(thing.norm.weights) if isinstance(thing.norm, Crps) else np.ones(self._space.dim)
        if thing.norm == l1:
            squares = np.empty(0)
        share = guard.budget * guard.rate
        self._rules = kernels.Rules(
            kernels.GuardRules(guard.diameter, squares, guard.rate, share, guard.credit, error, np.empty(0)),
            kernels.TrackerRules(
                source._rates.ravel(),
                SHARE,
                source._scale,
                np.array(self._space.centre),
                book.classes,
                source._most,
                source._lags,
                np.cumsum([0, *map(len, source._seasons)]),
                np.array(source._fades),
            ),
            kernels.BookRules(book.prior, book.capacity, book.classes),
        )
        self._safe: dict[int, Forecaster] = {}  # of the rows in which it has forecast
        self._pool = self._new_pool(np.zeros((0, 6), np.int64))
        self.reserve(rows)

    def _new_pool(self, numbers: Integers, free: Sequence[int] = (0, 0, 0)) -> Any:
        """Return a pool for pages of these sizes, and with so much room free."""
        return empty_pool(numbers, tuple(self.columns[name] for name in _COUNTS), self._space.dim, list(free))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        own = (array.nbytes for name, array in self._pool._asdict().items() if name not in _COUNTS)
        safe = (array.nbytes for part in self._safe.values() for array in _safe_rows(part).values())
        return self.columns.nbytes + int(sum(own)) + sum(safe)

    def reserve(self, rows: int) -> None:
        super().reserve(rows)
        numbers = np.pad(self._pool.numbers, [(0, rows - len(self._pool.numbers)), (0, 0)])
        self._pool = self._pool._replace(numbers=numbers, **{name: self.columns[name] for name in _COUNTS})

    def clear(self, rows: Integers) -> None:
        super().clear(rows)
        self._pool.numbers[rows] = 0
        for row in rows.tolist():
            self._safe.pop(row, None)

    def announce(self, rows: Integers, forecasts: Array | None = None) -> GuardForecasts:
        notes, safe = self._rounds(rows, None, len(rows)), dict[int, Forecast]()
        for i in np.flatnonzero(notes.slots < 0).tolist():
            safe[i] = self._safe.get(int(rows[i]), self._guard.safe).predict()
        return GuardForecasts(notes.points, safe, self._space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None = None) -> None:
        self.slots(rows, outcomes)

    def play(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None = None) -> GuardForecasts:
        notes, safe = self._rounds(rows, outcomes, len(rows)), dict[int, Forecast]()
        self._safe_learns(rows, outcomes, notes.slots, announced=safe)
        return GuardForecasts(notes.points, safe, self._space)

    def slots(self, rows: Integers, outcomes: Outcomes) -> Integers:
        """Learn; return which of its stream's points is announced in each round, −1 where safe forecasts."""
        slots: Integers = self._rounds(rows, outcomes).slots
        self._safe_learns(rows, outcomes, slots, announced=None)
        return slots

    def _rounds(self, rows: Integers, outcomes: Outcomes | None, points: int = 0) -> Any:
        """Play a round of each row, in order, if there are outcomes; return notes, of so many points announced."""
        self._know_bounds(rows)
        notes = Notes(np.zeros((points, self._space.dim)), np.zeros(len(rows), np.int64))
        now = Now(*(self.columns[name] for name in Now._fields))
        learning = outcomes is not None
        self.torn = learning
        classes, numbers = np.empty(0, np.int64), np.empty((0, self._space.dim))
        for start in range(0, len(rows), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            if outcomes is not None and outcomes.ndim == 1:
                classes = unlocked(np.ascontiguousarray(outcomes[part], np.int64))
            elif outcomes is not None:
                numbers = unlocked(np.ascontiguousarray(outcomes[part], np.float64))
            told, noted = Told(classes, numbers), Notes(notes.points[part], notes.slots[part])
            done, count = 0, len(rows[part])
            while done < count:
                done = guard_rounds(rows[part], told, done, self._rules, now, self._pool, noted, learning)
                if done < count:
                    self._pack(len(rows) - start - done)
        return notes

    def _safe_learns(
        self, rows: Integers, outcomes: Outcomes, slots: Integers, *, announced: dict[int, Forecast] | None
    ) -> None:
        """Let safe parts learn their rounds, in order, and tell what they announced."""
        for i in np.flatnonzero(slots < 0).tolist():
            row = int(rows[i])
            if row not in self._safe:
                self._safe[row] = self._guard.safe._fork()
            if announced is not None:
                announced[i] = self._safe[row].predict()
            outcome = outcomes[i] if outcomes.ndim == 2 else np.eye(self._space.dim)[outcomes[i]]
            self._safe[row]._learn(np.asarray(outcome, float))
        self.torn = False

    def _know_bounds(self, rows: Integers) -> None:
        """Know safe's bounds once these rows have learned, where they are what the budget grows by."""
        if self._guard.error is None and not self._guard.rate:
            guard = self._rules.guard
            rounds = int(self.rounds[rows].max(initial=0)) + int(np.bincount(rows).max(initial=0))
            known = range(len(guard.bounds), rounds.bit_length())
            bounds = [self._guard.budget * self._guard.bound(2**power) for power in known]
            self._rules = self._rules._replace(guard=guard._replace(bounds=np.append(guard.bounds, bounds)))

    def _pack(self, rounds: int) -> None:
        """Pack the pool, and make room for so many rounds more, as streams usually need it."""
        pages, numbers = pack(self._pool, np.arange(len(self.rounds))), self._pool.numbers
        self._pool = self._pool._replace(points=_NONE, biases=_NONE, sizes=_NONE)  # so that both are never held at once
        few = max(3 * min(rounds, len(numbers)), _FEW)  # and as much as any stream may ask for next
        free = (max(int(own.sum()) // 4, 2 * int(own.max()) + 2, few) for own in numbers[:, ROOMS].T)
        self._pool = self._new_pool(numbers, [*free])
        unpack(pages, self._pool)

    def rows(self, rows: Integers) -> Saved:
        """Return the columns, and of the pages one stream's rows after another's.

        Of the pages there is a row for each column that is used (`points`, `biases`, `visits`, `slots`); for each point
        that was announced, in order (`told`, `owed`); and for each context (`sums`, `seen`, `longer`).
        """
        parts = [_safe_rows(self._safe[row]) for row in rows.tolist() if row in self._safe]
        found = self.columns.state(rows)
        for field in self.schema.fields:
            if field.name.startswith("own_"):
                kept = [each[field.name[4:]] for each in parts]
                found[field.name] = np.concatenate([*kept, np.empty((0, *field.shape))])
        return found | pack(self._pool, rows)

    def with_rows(self, columns: Any) -> Self:
        twin = super().with_rows(columns)
        used, announced = twin.columns["used"], twin.columns["announced"]
        home = np.repeat(np.arange(len(used)), used)
        placed = np.bincount(home, columns["slots"] >= 0, len(used))
        # So there is always a slot for what is announced next: kernels do not ask.
        if (announced > placed).any() or (columns["slots"] >= announced[home]).any():
            raise SnapshotError("the points announced are not those of the books.")
        if (twin.columns["safe_rounds"] > twin.rounds).any():
            raise SnapshotError("there are more rounds of the safe part than of all.")
        contexts = twin.columns["contexts"]
        if (columns["longer"] >= np.maximum(np.repeat(contexts, contexts), 1)[:, None]).any():
            raise SnapshotError("a longer context is none of those there are.")
        numbers = np.zeros((len(used), 6), np.int64)
        numbers[:, ROOMS] = np.stack([used, announced, contexts], axis=1)
        twin._pool = twin._new_pool(numbers)
        unpack(columns, twin._pool)
        fields = [field for field in self.schema.fields if field.name.startswith("own_")]
        ends = [np.cumsum(field.length(twin.columns)) for field in fields]  # type: ignore[misc, arg-type]
        for row in np.flatnonzero(twin.columns["safe_rounds"]).tolist():
            rows = {}
            for field, end in zip(fields, ends, strict=True):
                rows[field.name[4:]] = columns[field.name][end[row - 1] if row else 0 : end[row]]
            twin._safe[row] = _safe_of(self._guard.safe, int(twin.columns["safe_rounds"][row]), rows)
        return twin

    def announced(self, row: int) -> Array:
        """Return the points that a stream's eager part has announced, in order of their first rounds."""
        return np.asarray(pack(self._pool, np.array([row]))["told"])

    def forecaster(self, row: int) -> Any:
        """Return the `Guarded` of a stream, ready to go on."""
        f = deepcopy(self.thing)
        eager, guard = f._now
        now = {field.name: self.columns[field.name][row].copy() for field in self.schema.of(length=False)}
        pages = pack(self._pool, np.array([row]))
        rounds = int(now["rounds"])
        played = rounds - int(now["safe_rounds"])
        kept = now | pages
        own = {field.name: kept[field.name] for field in fields(Experts) if field.name != "rounds"}
        eager.source._state = Experts(rounds, **own)
        squares = now["squares"] if len(now["squares"]) else np.zeros(self._space.dim)
        books = BookState(played, *self._columns(pages), int(now["used"]), squares)
        eager._now = eager.source, Shelf(self._book, books)
        guard.rounds, guard.best = rounds, float(now["best"])
        guard.safe = self._safe.get(row, guard.safe)._fork()
        assert isinstance(guard.tally, Tally)
        biases = guard.tally.named(pages["told"], pages["owed"])
        guard.tally = guard.tally._replace(biases=biases, rounds=played, closed=float(now["error"]))
        guard._opened()
        return f

    def _columns(self, pages: Saved) -> tuple[Array, Array, Array, Array]:
        """Return points, biases, sizes and rounds of a stream's book, in as many columns as the class has."""
        used, width = len(pages["points"]), 2
        while width < used:
            width = min(2 * width, self._book.capacity)
        points, biases = (np.pad(pages[name].T, [(0, 0), (0, width - used)]) for name in ("points", "biases"))
        return points, biases, np.add.accumulate(np.abs(biases), axis=0)[-1], np.pad(pages["visits"], (0, width - used))


_NONE = np.empty(0)
_FEW = 512
_AT_ONCE = 1 << 16  # rounds whose outcomes are copied, where they are of another type
_COUNTS = ("used", "announced", "contexts")
