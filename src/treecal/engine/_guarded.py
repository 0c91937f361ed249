"""A whole stream of a guarded forecaster at once."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.engine._outcomes import Outcomes, read_outcomes
from treecal.engine._state import kernel_args
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast, uniform
from treecal.forecasters import Codebook, Forecaster, Guarded, Tracker, TreeCal
from treecal.forecasters._codebook import BETTER, LOOK_AHEAD, Book, Books
from treecal.forecasters._path import TreeState
from treecal.forecasters._tally import Tally, total_size
from treecal.forecasters._tracker import SHARE, Experts
from treecal.geometry import ConvexSet, Distance, Lp, Norm, Simplex
from treecal.ledger import Ledger, Reading, Table


def guarded_run(forecaster: Guarded, outcomes: Any) -> GuardedRun:
    """Return the run of a new guarded forecaster whose eager part compiled code can play."""
    eager, norm = forecaster.eager, forecaster.norm
    usual = type(eager) is Codebook and type(eager.source) is Tracker
    if type(forecaster) is not Guarded or not usual or not isinstance(norm, Lp) or norm.p not in (1, 2):
        raise ParameterError.expected(
            "forecaster",
            forecaster,
            "a Guarded with its usual eager part, Codebook(Tracker(space)), in ℓ1 or ℓ2",
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
    (0.045, 33, 15)
    >>> run.forecaster.predict() == run.forecast(10_000)  # ready for the next outcome
    True
    """

    def __init__(self, forecaster: Guarded, outcomes: Any) -> None:
        self.space, self._new = forecaster.space, forecaster
        self._rows = _read(self.space, outcomes)
        self.rounds = len(self._rows)
        guard = forecaster._guard
        self._shadow = None if guard.shadow is None else _Part(guard.shadow, self._rows, forecaster.norm)
        self._play()
        self._safe = _Part(guard.safe, self._rows[self.announced < 0], forecaster.norm)

    def _play(self) -> None:
        """Play the eager part: who forecasts depends on its error and on the budget, which is known beforehand."""
        from treecal.engine import _guard_kernels as kernels

        new, guard = self._new, self._new._guard
        source, book = new.eager.source, new.eager._book  # type: ignore[attr-defined] # a Codebook of a Tracker
        now, state = source._state, book.state
        books, dim, capacity = len(book.sizes), self.space.dim, book.capacity
        classes = isinstance(self.space, Simplex)
        experts = (now.weights.copy(), now.means.copy(), now.followed.copy(), now.counts.copy(), np.array([0, -1]))
        tracker = kernels.TrackerArrays(
            source._rates, SHARE, source._scale, np.array(self.space.centre), classes, *experts
        )
        shape, none = (books, dim, capacity), np.zeros((books, capacity))
        empty = (np.zeros(shape), np.zeros(shape), none, state.used.copy(), state.growth.copy(), np.zeros(dim))
        aims = np.array(book.sizes, float)
        pages = kernels.BookArrays(
            aims, book.skill, book.prior, LOOK_AHEAD, BETTER, *empty, np.array([0, state.lead])
        )
        points, slots = np.zeros((books * capacity, dim)), np.zeros((books, capacity), np.int64)
        spoken = kernels.SpokenArrays(
            points, points.copy(), np.zeros(len(points)), points.copy(), points.copy(), slots, np.zeros(1, np.int64)
        )
        self.announced = np.empty(self.rounds, np.int64)
        squared = isinstance(new.norm, Lp) and new.norm.p == 2
        self._eager_error = kernels.guard_rounds(
            self._rows, self._allowed(), guard.diameter, squared, tracker, pages, spoken, self.announced
        )
        self._spoken, self._tracker, self._pages = spoken, tracker, pages
        self.points = spoken.points[: spoken.numbers[0]].copy()

    def _allowed(self) -> Array:
        """Return the budget of each round."""
        guard, before = self._new._guard, np.arange(self.rounds)
        if guard.error is not None:
            return guard.error * (before + 1.0)
        if self._shadow is not None:
            return guard.budget * np.maximum.accumulate(np.concatenate([[0.0], self._shadow.errors]))[: self.rounds]
        powers = range(self.rounds.bit_length())
        bounds = np.maximum.accumulate([0.0, *(guard._bound(2**power) for power in powers)])
        return np.asarray(guard.budget * bounds[np.frexp(before)[1]])

    def ledger(self) -> Ledger:
        """Return the ledger that recording every round would have made."""
        spoken, count = self._spoken, len(self.points)
        weights, sums = spoken.rounds[:count], spoken.sums[:count]
        used = weights > 0
        rounds = self.rounds - len(self._safe.rows)
        eager = Ledger.from_rows(self.space, self.points[used], weights[used], sums[used], rounds=rounds)
        eager._totals[:, 1, 1:] = spoken.lost[:count][used]
        return eager.merge(self._safe.ledger())

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
        return self._safe.forecast(int((self.announced[:t] < 0).sum()))

    @cached_property
    def forecaster(self) -> Guarded:
        """The forecaster after the last outcome, ready to go on."""
        f = deepcopy(self._new)
        guard, tracker, pages, spoken = f._guard, self._tracker, self._pages, self._spoken
        book: Book = f.eager._book  # type: ignore[attr-defined]
        f.eager.source._state = Experts(  # type: ignore[attr-defined]
            int(tracker.numbers[0]),
            tracker.weights,
            tracker.means,
            tracker.followed,
            tracker.counts,
            int(tracker.numbers[1]),
        )
        book.state = Books(
            int(pages.numbers[0]),
            pages.points,
            pages.biases,
            pages.sizes,
            pages.used,
            pages.growth,
            int(pages.numbers[1]),
            pages.squares,
        )
        guard.rounds, guard.safe, guard.tallies["safe"] = self.rounds, self._safe.forecaster, self._safe.tally
        eager, used = guard.tallies["eager"], np.flatnonzero(spoken.rounds)
        eager.rounds, eager.closed = int(spoken.rounds.sum()), self._eager_error
        eager.biases = {spoken.points[i].tobytes(): spoken.biases[i].copy() for i in used}
        if self._shadow is not None:
            guard.shadow, guard.tallies["shadow"] = self._shadow.forecaster, self._shadow.tally
            guard.peak = float(self._shadow.errors.max(initial=0.0))
        elif guard.error is None and self.rounds:
            guard.peak = max(guard._bound(2**power) for power in range(self.rounds.bit_length()))
        return f

    def __repr__(self) -> str:
        return f"GuardedRun({self.rounds} rounds of {self._new!r})"


class _Part:
    """A certified forecaster on rounds of its own: its error after each, and the state it ends in."""

    def __init__(self, forecaster: Forecaster, rows: Outcomes, norm: Norm) -> None:
        self.rows, self.norm, self._new = rows, norm, deepcopy(forecaster)
        self.forecaster, self.tally = deepcopy(forecaster), Tally(norm, forecaster.space.dim)
        self._ledger: Ledger | None = None
        self.errors = np.empty(len(rows))
        if type(forecaster) is TreeCal:
            self._climb(forecaster)
        else:
            self._loop()

    def _climb(self, tree: TreeCal) -> None:
        from treecal.engine._guard_kernels import tree_errors

        rounds, dim, tally = len(self.rows), tree.space.dim, self.tally
        heights = tree.tree.heights(rounds)
        path, sums = np.zeros((heights, dim)), np.zeros((heights, dim))
        squared = isinstance(self.norm, Lp) and self.norm.p == 2
        tally.closed = tree_errors(self.rows, *kernel_args(tree._path), squared, path, sums, self.errors)
        tree.tree.check(rounds)
        if rounds:
            tally.rounds, tally.last, tally.path = rounds, rounds - 1, path[: tree.tree.heights(rounds - 1)]
            tally.open = total_size(self.norm, tally.path)
        self.forecaster._state = TreeState(np.array([rounds]), sums[:, None])

    def _loop(self) -> None:
        """Play a forecaster that has no compiled form."""
        space, self._ledger = self.forecaster.space, Ledger(self.forecaster.space)
        for t, row in enumerate(self.rows):
            outcome = np.eye(space.dim)[row] if self.rows.ndim == 1 else row
            x = self.forecaster.predict()
            self._ledger.record(x, outcome)
            self.tally.record(x, outcome)
            self.forecaster.update(outcome)
            self.errors[t] = self.tally.total

    def ledger(self) -> Ledger:
        """Return the ledger of all rounds."""
        if self._ledger is None:
            from treecal.engine._replay import replay

            self._ledger = replay(self.rows, self._new).ledger()
        return self._ledger

    def forecast(self, t: int) -> Forecast:
        """Return the forecast of outcome `t`."""
        if type(self._new) is TreeCal:
            from treecal.engine._replay import replay

            return replay(self.rows, self._new).forecast(t)
        f = deepcopy(self._new)
        for row in self.rows[:t]:
            f.update(np.eye(f.space.dim)[row] if self.rows.ndim == 1 else row)
        return f.predict()


def _read(space: ConvexSet, outcomes: Any) -> Outcomes:
    """Return all outcomes; those of an iterator are put together."""
    if not isinstance(outcomes, Iterator):
        return read_outcomes(space, outcomes)
    chunks: list[Outcomes] = []
    for chunk in outcomes:
        chunks.append(read_outcomes(space, chunk, before=sum(map(len, chunks))))
    return np.concatenate(chunks) if chunks else np.empty((0, space.dim))
