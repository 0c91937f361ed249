"""Many streams of a tree forecaster: `TreeCal`, or `AdaptiveTreeCal`, whose heights are weighted."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from treecal._states import check_like
from treecal._typing import Array, Integers
from treecal.engine._forecasts import TreeForecasts
from treecal.engine._outcomes import Outcomes
from treecal.engine._state import TreeForecaster, kernel_args, node_costs
from treecal.engine._streams import RowError, Streams
from treecal.exceptions import HorizonError
from treecal.forecasters import AdaptiveTreeCal
from treecal.geometry import Lp

_GAPS = 2**18  # numbers in the gaps of nodes that are held at once
_MOST = 128  # coordinates of a gap that kernels add up: NumPy adds up more of them in another order
_COMPILED = {1.0: 1, 2.0: 2, math.inf: 3}
"""The exponents of the norms that kernels know, with their numbers there."""


class TreeStreams(Streams):
    """A record for each stream, `(rows, head + heights·width)`: see `_tree_kernels`.

    All records have the heights of the longest stream.
    """

    thing: TreeForecaster

    def __init__(self, thing: TreeForecaster) -> None:
        super().__init__(thing)
        self._weighted, dim = isinstance(thing, AdaptiveTreeCal), thing.space.dim
        self._head, self._width = (2, dim + 2) if self._weighted else (1, dim)
        fresh = self._packed(vars(thing._state))
        self._fresh, self._numbers = fresh[0], fresh[:0]
        norm = thing.norm if isinstance(thing, AdaptiveTreeCal) else None
        self._norm = _COMPILED.get(norm.p, 0) if isinstance(norm, Lp) and dim <= _MOST else 0

    @property
    def _heights(self) -> int:
        return int(self._numbers.shape[1] - self._head) // self._width

    @property
    def rounds(self) -> Integers:
        return self._numbers.view(np.int64)[:, 0]

    def reserve(self, rows: int) -> None:
        self._resize(rows, self._heights)

    def _resize(self, rows: int, heights: int) -> None:
        """Make room for so many rows and heights, each at least what there is."""
        old = self._numbers
        new = np.zeros((rows, self._head + heights * self._width))
        new[: len(old), : old.shape[1]] = old
        new[len(old) :, : len(self._fresh)] = self._fresh
        self._numbers = new

    def clear(self, rows: Integers) -> None:
        self._numbers[rows] = 0.0
        self._numbers[rows, : len(self._fresh)] = self._fresh

    def check(self, rows: Integers, *, predict: bool = False) -> None:
        """Raise if one more round for each row would be more than a tree of fixed depth has."""
        tree = self.thing.tree
        if tree.horizon is None:
            return
        if predict:
            rows = np.unique(rows)
        if int(self.rounds[rows].max(initial=0)) + len(rows) <= tree.horizon:
            return
        streams, counts = np.unique(rows, return_counts=True)
        after = self.rounds[streams] + counts
        try:
            tree.check(int(after.max()))
        except HorizonError as error:
            raise RowError(int(streams[after.argmax()]), error) from None

    def _records(self) -> Any:
        from treecal.engine._tree_kernels import Records

        return Records(self._numbers, self._numbers.view(np.int64), self._head, self._width, self._heights)

    def announce(self, rows: Integers, forecasts: Array | None) -> TreeForecasts:
        from treecal.engine._tree_kernels import places

        tree, dim = self.thing.tree, self.thing.space.dim
        rounds = self.rounds[rows]
        heights = tree.heights(rounds)
        points = np.empty((len(rows), int(heights.max(initial=1)), dim))
        places(rows, self._records(), *kernel_args(self.thing._path), points)
        weights = None
        if self._weighted:
            columns = self._head + dim + 1 + self._width * np.arange(points.shape[1])
            weights = self._numbers[rows[:, None], columns]
        return TreeForecasts(points, weights, heights, rounds, tree.arity, self.thing.space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        if self._weighted and not self._norm:
            return self._learn_in_parts(rows, outcomes)
        from treecal.engine import _tree_kernels as kernels

        tree, mix = kernel_args(self.thing._path)
        done = 0
        while True:
            if isinstance(self.thing, AdaptiveTreeCal):
                rule, norm = self.thing._weighting, self._norm
                done = kernels.learn_weighted(rows, outcomes, done, tree, mix, rule, norm, self._records())
            else:
                done = kernels.learn(rows, outcomes, done, tree, self._records())
            if done == len(rows):
                self.torn = False
                return None
            self.torn = True
            self._resize(len(self._numbers), self._heights + 1)

    def _learn_in_parts(self, rows: Integers, outcomes: Outcomes) -> None:
        """Learn outcomes; then update the weights, given the norms of the gaps of the nodes that ended."""
        from treecal.engine import _tree_kernels as kernels

        assert isinstance(self.thing, AdaptiveTreeCal)
        args, norm, rule, dim = (
            kernel_args(self.thing._path),
            self.thing.norm,
            self.thing._weighting,
            self.thing.space.dim,
        )
        gaps = np.empty((max(_GAPS // dim, 2 * self.thing.tree.most_heights), dim))
        nows, done = np.empty(min(len(gaps), len(rows)), np.int64), 0
        self.torn = True
        while done < len(rows):
            before = done
            done, used = kernels.learn_gaps(rows, outcomes, before, *args, self._records(), nows, gaps)
            costs = node_costs(norm, gaps[:used])
            kernels.weigh_rows(rows[before:done], nows, costs, rule, self._records())
            if done == before:
                self._resize(len(self._numbers), self._heights + 1)
        self.torn = False

    def state(self, rows: Integers) -> dict[str, Any]:
        """Return the state as the forecaster has it, with a column for each stream."""
        rounds = self.rounds[rows]
        heights = self.thing.tree.heights(int(rounds.max(initial=0)))
        kept = self._numbers[rows, self._head : self._head + heights * self._width]
        path = np.ascontiguousarray(kept.reshape(len(rows), heights, self._width).swapaxes(0, 1))
        dim = self.thing.space.dim
        state = {"rounds": rounds, "sums": path[..., :dim].copy()}
        if self._weighted:
            state |= {"costs": path[..., dim].copy(), "weights": path[..., dim + 1].copy()}
            state["scale"] = self._numbers[rows, 1]
        return state

    def resumed(self, state: dict[str, Any]) -> Self:
        fresh: Any = self.thing._state
        check_like(vars(fresh), state)
        self.thing._check_streams(type(fresh)(**state))
        twin = type(self)(self.thing)
        twin._numbers = self._packed(state)
        return twin

    def _packed(self, state: dict[str, Any]) -> Array:
        """Return the records of a state."""
        heights, n, dim = state["sums"].shape
        numbers = np.zeros((n, self._head + heights * self._width))
        numbers.view(np.int64)[:, 0] = state["rounds"]
        path = numbers[:, self._head :].reshape(n, heights, self._width)  # a view
        path[..., :dim] = state["sums"].swapaxes(0, 1)
        if self._weighted:
            path[..., dim], path[..., dim + 1] = state["costs"].T, state["weights"].T
            numbers[:, 1] = state["scale"]
        return numbers
