"""A whole stream of a tree forecaster at once: what it would have forecast, and how calibrated it was."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal._platform import processors
from treecal._typing import Array
from treecal._validate import whole_number
from treecal.engine._climb import (
    KERNEL_DISTANCES,
    Above,
    Errors,
    Level,
    Piece,
    Plan,
    TreeForecaster,
    Weights,
    climb_piece,
)
from treecal.engine._groups import Groups, Leaves
from treecal.engine._outcomes import as_array, as_float_or_class, read_outcomes
from treecal.exceptions import ParameterError, TreeCalError, UnsupportedError
from treecal.forecast import Forecast
from treecal.forecasters import AdaptiveTreeCal, TreeCal, TreeState, carry, kernel_args
from treecal.geometry import ConvexSet, Distance, Simplex, as_distance
from treecal.ledger import Ledger, Reading, Table

_STATES = 2**18  # of an automaton that counts leaves; beyond, they are grouped like all other nodes


class Run:
    """A replayed stream. Made by `replay`.

    Attributes
    ----------
    rounds
        Number of outcomes.
    """

    def __init__(
        self,
        forecaster: TreeForecaster,
        outcomes: Any,
        distances: tuple[Distance, ...] = (),
        threads: int | None = None,
    ) -> None:
        self._forecaster = forecaster
        self._plan = Plan(forecaster)
        self._adaptive = isinstance(forecaster, AdaptiveTreeCal)
        self._rows = None if isinstance(outcomes, Iterator) else as_array(forecaster.space, outcomes)
        self._sums: list[Array] = []  # of each whole piece, when outcomes can be read again
        self._weights: Weights | None = None
        self._reading: Reading | None = None
        self.rounds = 0
        chunks = outcomes if self._rows is None else [self._rows]
        if self._adaptive:
            self._totals = self._measure(chunks, KERNEL_DISTANCES + distances)
        else:
            self._totals = self._play(chunks, distances, threads or processors())

    @property
    def space(self) -> ConvexSet:
        """The set the outcomes lie in."""
        return self._plan.space

    def error(self, distance: Distance | str = "l1", *, per_node: bool = False, total: bool = False) -> float:
        """Return the calibration error, per round unless `total`, as `Ledger.error` does.

        Parameters
        ----------
        distance
            A norm (or its name), a squared norm, or a regularizer for its Bregman divergence.
        per_node
            Count each node of the tree separately: the paper's labelled error.
        total
            Sum over rounds instead of the mean.
        """
        measure = as_distance(distance, self.space)
        if not per_node:
            return self.exact().error(measure, total=total)
        if measure not in self._totals:
            self._totals |= self._measure([self._again(f"replay(..., distances=[{measure!r}])")], (measure,))
        if self.rounds == 0 and not total:
            raise ParameterError("no round was replayed, so there is no error per round.")
        return self._totals[measure] / (1 if total else self.rounds)

    def exact(self) -> Reading:
        """Read the run with forecasts distinguished exactly, by point."""
        if self._reading is None:
            unit = self._unit()
            rows = self._again()
            plan = self._plan
            classes = rows.ndim == 1 and isinstance(plan.space, Simplex) and not (self._adaptive or self._plan.path.mix)
            counted = classes and Leaves.states(plan) <= _STATES
            groups = Groups(plan.space.dim, expected=self.rounds // (plan.tree.arity - 1) + (not counted) * self.rounds)
            leaves = Leaves(plan, groups, unit) if counted else None
            for level, weights in self._walk([rows], leaves=leaves):
                units = weights if self._adaptive else _equal_weights(level, unit)
                groups.add(level.points, level.rounds, units, level.sums)
            if leaves is not None:
                leaves.give()
            self._reading = groups.reading(self.rounds, unit)
        return self._reading

    def table(self, distance: Distance | str = "l1") -> Table:
        """Return one row for each distinct forecast, the largest share of the error first."""
        return self.exact().table(as_distance(distance, self.space))

    def ledger(self) -> Ledger:
        """Return the ledger that recording every round would have made: one row for each node of the tree."""
        columns: list[tuple[Any, ...]] = []
        for level, weights in self._walk([self._again()]):
            played = weights > 0
            index = np.arange(level.start, level.start + len(played))[played]
            # TreeCal's nodes count whole rounds, in parts of a forecast; AdaptiveTreeCal's their own weight.
            share = weights[played, None] if self._adaptive else np.ones((len(index), 1))
            parts = np.zeros_like(index) if self._adaptive else level.parts[played]
            nodes = np.column_stack([np.full_like(index, level.height), index])
            columns.append(
                (level.points[played], share[:, 0] * level.rounds[played], share * level.sums[played], nodes, parts)
            )
        if not columns:
            return Ledger(self.space)
        points, rounds, sums, nodes, parts = map(np.concatenate, zip(*columns, strict=True))
        return Ledger.from_rows(self.space, points, rounds, sums, rounds=self.rounds, nodes=nodes, parts=parts)

    def forecast(self, t: int) -> Forecast:
        """Return the forecast of `outcomes[t]`; for `t = rounds`, of the outcome that would come next."""
        if not 0 <= whole_number("t", t, least=0) <= self.rounds:
            raise ParameterError.expected("t", t, f"0 to {self.rounds}")
        rows = self._again()
        plan = self._plan
        pieces, rest = divmod(t, plan.piece)
        left = plan.dense(as_float_or_class(self.space, rows[t - rest : t], before=t - rest))
        if self._weights is not None:
            adaptive = self._weights.resume(pieces, self._carried(pieces, left[:0]))
            for outcome in left:
                adaptive.update(outcome)
            return adaptive.predict()
        forecaster = TreeCal(**self._forecaster.arguments())
        sums = self._carried(pieces, left)[: plan.tree.heights(t), None]
        forecaster._state = TreeState(np.array([t]), sums)
        return forecaster.predict()

    def _carried(self, pieces: int, left: Array) -> Array:
        """Return the carried sums after some whole pieces and the outcomes that are left."""
        plan = self._plan
        above = Above(self._plan)
        inner = np.zeros((plan.heights, self.space.dim))
        tree, _ = kernel_args(plan.path)
        carry(left, tree, inner)
        for total in self._sums[:pieces]:
            above.add(total, plan.piece)
        return inner if above.top else np.concatenate([inner, above.now[1]])

    def _unit(self) -> float:
        """Return the unit of weight in which whole rounds are whole numbers, as far as float64 can count."""
        if self._adaptive:
            return 1.0
        tree = self._plan.tree
        heights = tree.heights(max(self.rounds - 1, 0))
        common = math.lcm(*range(1, heights + 1)) if tree.depth is None else heights
        return float(common) if common * self.rounds < 2**53 else 1.0

    def _again(self, instead: str = "all outcomes as one array") -> NDArray[Any]:
        """Return the outcomes, to be read once more."""
        if self._rows is None:
            raise UnsupportedError("outcomes from an iterator cannot be read twice.", hint=f"pass {instead}.")
        return self._rows

    def _play(self, chunks: Iterable[Any], others: tuple[Distance, ...], threads: int) -> dict[Distance, float]:
        """Read TreeCal's stream once, checking it; return the per-node errors in the kernels' distances and others."""
        plan = self._plan
        above = Above(self._plan)
        errors = Errors(others)
        for index, piece in _in_order(plan, plan.cut(chunks), threads):
            errors.add_piece(piece.errors)
            ended = self._end(above, index, len(piece.raw), piece.total)
            for level in ended:
                errors.add_node(level)
            if others:
                rows = as_float_or_class(plan.space, piece.raw, before=index)
                for level in plan.levels(plan.dense(rows), len(rows), index)[0] + ended:
                    errors.add_level(level, _equal_weights(level))
        for level in above.open():
            errors.add_node(level)
            if others:
                errors.add_level(level, _equal_weights(level))
        return errors.totals()

    def _measure(self, chunks: Iterable[Any], distances: tuple[Distance, ...]) -> dict[Distance, float]:
        """Return the per-node errors in any distances."""
        errors = Errors(distances, kernels=False)
        for level, weights in self._walk(chunks):
            errors.add_level(level, weights)
        return errors.totals()

    def _walk(self, chunks: Iterable[Any], *, leaves: Leaves | None = None) -> Iterator[tuple[Level, Array]]:
        """Yield all nodes with their weights, level by level of piece after piece; leaves may be counted apart."""
        plan = self._plan
        above = Above(self._plan)
        weights = Weights(self._forecaster) if isinstance(self._forecaster, AdaptiveTreeCal) else None
        for index, raw in zip(itertools.count(0, plan.piece), plan.cut(chunks), strict=False):
            rows = read_outcomes(self.space, raw, before=index)
            if leaves is None:
                levels, total = plan.levels(plan.dense(rows), len(rows), index)
            else:
                levels, total = plan.levels(leaves.add(rows, index), len(rows), index, lowest=1)
            ended = self._end(above, index, len(rows), total)
            if weights is None:
                yield from ((level, _equal_weights(level)) for level in levels + ended)
            else:
                yield from zip(levels + ended, weights.piece(levels, ended), strict=True)
        for level in above.open():
            yield level, _equal_weights(level) if weights is None else weights.states[-1].weights[level.height :][:1]
        self._weights = weights

    def _end(self, above: Above, index: int, rounds: int, total: Array) -> list[Level]:
        """Note a piece; return the nodes above that end with it."""
        self.rounds = index + rounds
        if self._rows is not None and rounds == self._plan.piece and index // rounds == len(self._sums):
            self._sums.append(total)
        return above.add(total, rounds)

    def __repr__(self) -> str:
        return f"Run({self.rounds} rounds of {self._forecaster!r})"


def _equal_weights(level: Level, unit: float = 1.0) -> Array:
    """Return TreeCal's weights of nodes, in parts of a unit; 0 for those never played."""
    return np.asarray(np.where(level.parts > 0, unit / np.maximum(level.parts, 1), 0.0))


def _in_order(plan: Plan, pieces: Iterator[NDArray[Any]], threads: int) -> Iterator[tuple[int, Piece]]:
    """Climb pieces in parallel; yield them, with the number of their first round, in the order of the stream.

    This thread is one of those that climb: one that only waited would take the processor from them now and then.
    """
    starts = itertools.count(0, plan.piece)
    if threads == 1:
        yield from ((index, climb_piece(plan, raw, index)) for index, raw in zip(starts, pieces, strict=False))
        return
    waiting: deque[tuple[int, NDArray[Any], Future[Piece]]] = deque()
    with ThreadPoolExecutor(threads - 1) as pool:
        try:
            for index, raw in zip(starts, pieces, strict=False):
                busy = sum(not future.done() for *_, future in waiting) >= 2 * (threads - 1)
                climbing = _climbed(plan, raw, index) if busy else pool.submit(climb_piece, plan, raw, index)
                waiting.append((index, raw, climbing))
                while waiting and (waiting[0][2].done() or len(waiting) > 2 * threads):  # no more are held in memory
                    start, _, climbing = waiting.popleft()
                    yield start, climbing.result()
            for place in reversed(range(len(waiting))):  # those that no thread has taken yet
                start, raw, climbing = waiting[place]
                if climbing.cancel():
                    waiting[place] = start, raw, _climbed(plan, raw, start)
            while waiting:
                start, _, climbing = waiting.popleft()
                yield start, climbing.result()
        finally:
            for *_, climbing in waiting:
                climbing.cancel()


def _climbed(plan: Plan, raw: NDArray[Any], index: int) -> Future[Piece]:
    """Climb a piece in this thread; what is invalid in it is raised when its turn has come."""
    climbed: Future[Piece] = Future()
    try:
        climbed.set_result(climb_piece(plan, raw, index))
    except TreeCalError as error:
        climbed.set_exception(error)
    return climbed
