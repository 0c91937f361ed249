"""A whole stream of a guarded forecaster at once."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np

from treecal._validate import whole_number
from treecal.engine import _replay
from treecal.engine._outcomes import Outcomes, read_outcomes
from treecal.engine._state import kernel_args
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast, uniform
from treecal.forecasters import BinaryGrid, Codebook, Forecaster, Guarded, Tracker, TreeCal
from treecal.forecasters._binary_grid import Biases
from treecal.forecasters._codebook import BETTER, LOOK_AHEAD, Books, Shelf
from treecal.forecasters._guarded import RESERVE
from treecal.forecasters._path import TreeState
from treecal.forecasters._tally import Tally
from treecal.forecasters._tracker import SHARE, Experts
from treecal.geometry import ConvexSet, Distance, Lp
from treecal.ledger import Ledger, Reading, Table


def is_compiled(forecaster: Forecaster) -> bool:
    """Return whether it is a guarded forecaster whose parts and norm compiled code can play."""
    if type(forecaster) is not Guarded:
        return False
    eager, safe, norm = forecaster.eager, forecaster.safe, forecaster.norm
    usual = type(eager) is Codebook and type(eager.source) is Tracker and type(safe) in (BinaryGrid, TreeCal)
    return usual and not getattr(safe, "mix", 0) and isinstance(norm, Lp) and norm.p in (1, 2)


def guarded_run(forecaster: Guarded, outcomes: Any) -> GuardedRun:
    """Return the run of a new guarded forecaster whose eager part compiled code can play."""
    if not is_compiled(forecaster):
        raise ParameterError.expected(
            "forecaster",
            forecaster,
            "a Guarded of Codebook(Tracker(space)) and of TreeCal or BinaryGrid, in ℓ1 or ℓ2",
            hint="treecal.streams.play takes any forecaster, a round at a time.",
        )
    if forecaster.rounds:
        raise ParameterError.expected("forecaster", forecaster, "a new one", hint="this one has seen outcomes.")
    return GuardedRun(forecaster, outcomes)


class GuardedRun:
    """A replayed stream of a guarded forecaster. Made by `replay`.

    Attributes
    ----------
    rounds
        Number of outcomes.
    points
        The distinct points that the eager part announced, `(n, d)`.
    announced
        For each round the row of `points` that was announced; -1 where the safe part forecast.

    Examples
    --------
    >>> import treecal as tc
    >>> classes = np.random.default_rng(0).choice(3, size=10_000, p=[0.6, 0.3, 0.1])
    >>> run = tc.replay(classes, tc.Guarded(tc.Simplex(3)))
    >>> round(run.error("l1"), 3), len(run.points), int((run.announced < 0).sum())
    (0.04, 33, 28)
    >>> run.forecaster.predict() == run.forecast(10_000)  # ready for the next outcome
    True
    """

    def __init__(self, forecaster: Guarded, outcomes: Any) -> None:
        self.space, self._new = forecaster.space, forecaster
        self._rows = _read(self.space, outcomes)
        self.rounds = len(self._rows)
        self._play()

    def _play(self) -> None:
        from treecal.engine import _guard_kernels as kernels

        new, dim = self._new, self.space.dim
        guard = new._now[1]
        source, book = new.eager.source, new.eager._now[1].book  # type: ignore[attr-defined] # a Codebook of a Tracker
        now, state, shape = source._state, book.empty(), (len(book.sizes), dim, book.capacity)
        experts = (now.weights.copy(), now.means.copy(), now.followed.copy(), now.counts.copy(), np.array([0, -1]))
        self._tracker = kernels.TrackerArrays(
            source._rates, SHARE, source._scale, np.array(self.space.centre), book.classes, *experts
        )
        sizes = np.zeros((shape[0], shape[2]))
        empty = (np.zeros(shape), np.zeros(shape), sizes, state.used.copy(), state.growth.copy(), np.zeros(dim))
        self._book = kernels.BookArrays(
            np.array(book.sizes, float), book.skill, book.prior, LOOK_AHEAD, BETTER, *empty, np.array([0, state.lead])
        )
        none = np.zeros((shape[0] * shape[2], dim))
        slots = np.zeros((shape[0], shape[2]), np.int64)
        self._spoken = spoken = kernels.SpokenArrays(
            none, none.copy(), np.zeros(len(none)), none.copy(), none.copy(), slots, np.zeros(1, np.int64)
        )
        bounds: list[float] = []
        if guard.error is None and not guard.measured:
            bounds = [guard._bound(2**power) for power in range(self.rounds.bit_length())]
        squared, rate = isinstance(new.norm, Lp) and new.norm.p == 2, -1.0 if guard.error is None else guard.error
        self._safe = _part(guard.safe, self.rounds)
        self._shadow = _part(guard.safe, self.rounds)  # a second copy, left alone where nothing is measured
        self.announced, self._errors = np.empty(self.rounds, np.int64), np.zeros(2)
        kernels.guard_rounds(
            self._rows,
            kernels.GuardArgs(
                guard.diameter, squared, guard.shadow is not None, guard.budget, RESERVE, rate, np.array(bounds)
            ),
            self._tracker,
            self._book,
            spoken,
            self._safe,
            self._shadow,
            self.announced,
            self._errors,
        )
        used = np.flatnonzero(spoken.rounds)  # books that are not followed have points, too
        self._used, self.points = used, spoken.points[used]
        self.announced[self.announced >= 0] = np.searchsorted(used, self.announced[self.announced >= 0])

    def ledger(self) -> Ledger:
        """Return the ledger that recording every round would have made."""
        spoken, used = self._spoken, self._used
        weights, sums = spoken.rounds[used], spoken.sums[used]
        eager = Ledger.from_rows(self.space, self.points, weights, sums, rounds=int(weights.sum()))
        eager._totals[:, 1, 1:] = spoken.lost[used]
        return eager.merge(self._safe_ledger())

    def _safe_ledger(self) -> Ledger:
        """Return the ledger of the safe part's rounds."""
        safe, rows = self._new.safe, self._rows[self.announced < 0]
        if isinstance(safe, TreeCal):
            return _replay.replay(rows, safe).ledger()
        kept = self._safe.kept
        parts, points = np.nonzero(kept[:, :, 0, 0])
        totals, grid = kept[parts, points], safe._grid  # type: ignore[attr-defined] # a BinaryGrid
        ledger = Ledger.from_rows(
            self.space, grid[points], totals[:, 0, 0], totals[:, 0, 1:], rounds=len(rows), parts=parts
        )
        ledger._totals[:, 1] = totals[:, 1]
        return ledger

    @cached_property
    def _reading(self) -> Reading:
        return self.ledger().exact()

    def exact(self) -> Reading:
        """Read the run with forecasts distinguished exactly, by point."""
        return self._reading

    def error(self, distance: Distance | str = "l1", *, per_node: bool = False, total: bool = False) -> float:
        """Return the calibration error, per round unless `total`, as `Ledger.error` does."""
        return (self.ledger().exact(per_node=True) if per_node else self.exact()).error(distance, total=total)

    def table(self, distance: Distance | str = "l1") -> Table:
        """Return one row for each distinct forecast, the largest share of the error first."""
        return self.exact().table(distance)

    def forecast(self, t: int) -> Forecast:
        """Return the forecast of `outcomes[t]`; for `t = rounds`, of the outcome that would come next."""
        if not 0 <= whole_number("t", t, least=0) <= self.rounds:
            raise ParameterError.expected("t", t, f"0 to {self.rounds}")
        if t == self.rounds:
            return self.forecaster.predict()
        if self.announced[t] >= 0:
            return Forecast.trusted(self.points[self.announced[t]][None], uniform(1), None, self.space)
        safe = deepcopy(self._new.safe)
        rows = self._rows[:t][self.announced[:t] < 0]
        if isinstance(safe, TreeCal):
            return _replay.replay(rows, safe).forecast(len(rows))
        for row in rows:
            safe.update(np.eye(self.space.dim)[row] if rows.ndim == 1 else row)
        return safe.predict()

    @cached_property
    def forecaster(self) -> Guarded:
        """The forecaster after the last outcome, ready to go on."""
        f = deepcopy(self._new)
        (eager, guard), tracker, pages, spoken = f._now, self._tracker, self._book, self._spoken
        eager.source._state = Experts(  # type: ignore[attr-defined]
            int(tracker.numbers[0]),
            tracker.weights,
            tracker.means,
            tracker.followed,
            tracker.counts,
            int(tracker.numbers[1]),
        )
        books = Books(
            int(pages.numbers[0]),
            pages.points,
            pages.biases,
            pages.sizes,
            pages.used,
            pages.growth,
            int(pages.numbers[1]),
            pages.squares,
        )
        eager._now = eager.source, Shelf(eager._now[1].book, books)  # type: ignore[attr-defined]
        error, guard.peak = self._errors.tolist()
        guard.rounds, guard.suspended = self.rounds, bool(self.rounds and self.announced[-1] < 0)
        biases = guard.eager_tally.named(self.points, spoken.biases[self._used])
        spoke = int(spoken.rounds.sum())
        guard.eager_tally = guard.eager_tally._replace(biases=biases, rounds=spoke, closed=error)
        guard.safe_tally = _resumed(guard.safe, guard.safe_tally, self._safe)
        if guard.shadow is not None:
            guard.shadow_tally = _resumed(guard.shadow, guard.shadow_tally, self._shadow)
        guard._opened()
        return f

    def __repr__(self) -> str:
        return f"GuardedRun({self.rounds} rounds of {self._new!r})"


def _part(forecaster: Forecaster, rounds: int) -> Any:
    """Return a certified part as kernels take it, with room for so many rounds."""
    from treecal.engine import _guard_kernels as kernels

    numbers, errors, dim = np.zeros(2, np.int64), np.zeros(2), forecaster.space.dim
    if isinstance(forecaster, BinaryGrid):
        points = forecaster.bins + 1
        return kernels.GridPart(
            np.zeros(points), np.zeros((points, 2)), np.zeros((5, points, 2, 1 + dim)), numbers, errors
        )
    assert isinstance(forecaster, TreeCal)
    forecaster.tree.check(rounds)
    heights = forecaster.tree.heights(rounds)
    sums = np.zeros((heights, dim))
    return kernels.TreePart(kernel_args(forecaster._path)[0], sums, sums.copy(), sums.copy(), numbers, errors)


def _resumed(forecaster: Forecaster, tally: Tally, part: Any) -> Tally:
    """Set a certified part to where the kernel left it; return its tally."""
    rounds, closed = int(part.numbers[0]), float(part.errors[0])
    if isinstance(forecaster, BinaryGrid):
        forecaster._state = Biases(rounds, part.bias)
        used = np.flatnonzero(part.kept[:, :, 0, 0].any(axis=0))
        biases = tally.named(forecaster._grid[used], part.biases[used])
        return tally._replace(biases=biases, rounds=rounds, closed=closed)
    assert isinstance(forecaster, TreeCal)
    forecaster._state = TreeState(np.array([rounds]), part.sums[: forecaster.tree.heights(rounds), None])
    heights, last = int(part.numbers[1]), max(0, rounds - 1)
    path, places = part.path[:heights].copy(), part.places[:heights].copy()
    return tally.along(path, places, rounds=rounds, last=last, closed=closed)


def _read(space: ConvexSet, outcomes: Any) -> Outcomes:
    """Return all outcomes; those of an iterator are put together."""
    if not isinstance(outcomes, Iterator):
        return read_outcomes(space, outcomes)
    chunks: list[Outcomes] = []
    for chunk in outcomes:
        chunks.append(read_outcomes(space, chunk, before=sum(map(len, chunks))))
    if len({chunk.ndim for chunk in chunks}) > 1:  # classes and rows
        chunks = [np.eye(space.dim)[chunk] if chunk.ndim == 1 else chunk for chunk in chunks]
    return np.concatenate(chunks) if chunks else np.empty((0, space.dim))
