"""Many streams of a tree forecaster: `TreeCal`, or `AdaptiveTreeCal`, whose heights are weighted."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from treecal._processors import parts, side_by_side
from treecal._states import check_like
from treecal._typing import Array, Integers
from treecal.engine._forecasts import TreeForecasts
from treecal.engine._outcomes import Outcomes
from treecal.engine._state import TreeForecaster, kernel_args, node_costs
from treecal.engine._streams import RowError, Streams
from treecal.engine._tree_records import COST, SCALE, Records
from treecal.exceptions import HorizonError
from treecal.forecasters import AdaptiveTreeCal
from treecal.geometry import Lp
from treecal.tree import MOST_LEAVES

_GAPS = 2**18  # numbers in the gaps of nodes that are held at once
_MOST = 128  # coordinates of a gap that kernels add up: NumPy adds up more of them in another order
_COMPILED = {1.0: 1, 2.0: 2, math.inf: 3}
"""The exponents of the norms that kernels know, with their numbers there."""


class TreeStreams(Streams):
    """The records of each stream, all with the heights of the longest."""

    thing: TreeForecaster

    def __init__(self, thing: TreeForecaster) -> None:
        super().__init__(thing)
        self._weighted, dim = isinstance(thing, AdaptiveTreeCal), thing.space.dim
        self._head = 3 if self._weighted else 1
        self._fresh, self._heights = self._packed(vars(thing._state))
        self._near, self._far = (records[:0] for records in self._fresh)
        norm = thing.norm if isinstance(thing, AdaptiveTreeCal) else None
        self._norm = _COMPILED.get(norm.p, 0) if isinstance(norm, Lp) and dim <= _MOST else 0

    @property
    def rounds(self) -> Integers:
        return self._near.view(np.int64)[:, 0]

    @property
    def _room(self) -> int:
        """Rounds for which the records have room: with one more a tree grows, or one of fixed depth is full."""
        return int(min(self.thing.tree.arity**self._heights, MOST_LEAVES)) - 1

    def reserve(self, rows: int) -> None:
        def more(records: Array, fresh: Array) -> Array:
            new = np.empty((rows, records.shape[1]))
            new[: len(records)], new[len(records) :] = records, fresh
            return new

        self._near, self._far = map(more, (self._near, self._far), self._fresh)

    def clear(self, rows: Integers) -> None:
        self._near[rows], self._far[rows] = self._fresh

    def _grow(self, heights: int) -> None:
        """Make room for so many heights, at least what there is."""
        (self._near, self._far), self._fresh = (
            self._wider(*records, heights) for records in ((self._near, self._far), self._fresh)
        )
        self._heights = heights

    def _wider(self, near: Array, far: Array, heights: int) -> tuple[Array, Array]:
        dim = self.thing.space.dim
        if not self._weighted:
            return _spread(near, near.shape[1], near.shape[1], self._head + heights * dim), far
        return near, _spread(far, _top(self._heights), _top(heights), _top(heights) + (heights - 1) * dim)

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

    def _records(self) -> Records:
        whole, heights = self._near.view(np.int64), self._heights
        return Records(self._near, whole, self._far, self._head, _top(heights), heights)

    def announce(self, rows: Integers, forecasts: Array | None) -> TreeForecasts:
        from treecal.engine._tree_kernels import places

        tree, dim = self.thing.tree, self.thing.space.dim
        rounds = self.rounds[rows]
        heights = tree.heights(rounds)
        points = np.empty((len(rows), int(heights.max(initial=1)), dim))
        places(rows, self._records(), *kernel_args(self.thing._path), points)
        weights = None
        if self._weighted:
            weights = self._far[rows[:, None], 2 * np.arange(points.shape[1])]
        return TreeForecasts(points, weights, heights, rounds, tree.arity, self.thing.space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        if self._weighted and not self._norm:
            return self._learn_in_parts(rows, outcomes)
        from treecal.engine import _tree_kernels as kernels

        if self._weighted:
            return self._learn_in_blocks(rows, outcomes)
        (tree, _), done = kernel_args(self.thing._path), 0
        while (done := kernels.learn(rows, outcomes, done, self._room, tree, self._records())) < len(rows):
            self.torn = True
            self._grow(self._heights + 1)
        self.torn = False
        return None

    def _learn_in_blocks(self, rows: Integers, outcomes: Outcomes) -> None:
        """Learn outcomes block by block; if there are many, threads share the streams."""
        from treecal.engine._block_kernels import WAITING, Queue, learn_weighted
        from treecal.engine._network import network

        assert isinstance(self.thing, AdaptiveTreeCal)
        args = *kernel_args(self.thing._path), self.thing._weighting, self._norm, network(self.thing.space.dim)
        shares = parts(len(self._near), len(rows), self.threads)
        queues = [Queue(low, high, np.empty(WAITING, np.int64)) for low, high in shares]

        def learn(queue: Queue) -> Queue:
            return learn_weighted(rows, outcomes, queue, self._room, *args, self._records())

        self.torn = len(queues) > 1
        while True:
            queues = side_by_side(learn, queues)
            if all(queue.at == len(rows) and not queue.held for queue in queues):
                break
            self.torn = True
            if self.thing.depth is None:
                self._grow(self._heights + 1)
                continue
            for queue in queues:  # the last rounds of trees of fixed depth, which carry nothing up
                places = queue.waiting[: queue.held]
                self._learn_in_parts(rows[places], outcomes[places])
            queues = [queue._replace(held=0) for queue in queues]
        self.torn = False

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
                self._grow(self._heights + 1)
        self.torn = False

    def state(self, rows: Integers) -> dict[str, Any]:
        """Return the state as the forecaster has it, with a column for each stream."""
        rounds = self.rounds[rows]
        heights = self.thing.tree.heights(int(rounds.max(initial=0)))
        near, far, dim, top = self._near[rows], self._far[rows], self.thing.space.dim, _top(self._heights)
        kept = np.concatenate([near[:, self._head :], far[:, top:]], axis=1)[:, : heights * dim]
        sums = np.ascontiguousarray(kept.reshape(len(rows), heights, dim).swapaxes(0, 1))
        state = {"rounds": rounds, "sums": sums}
        if self._weighted:
            state["costs"] = np.vstack([near[:, COST], far[:, 1 : 2 * heights - 1 : 2].T])
            state["weights"] = far[:, : 2 * heights : 2].T.copy()
            state["scale"] = near[:, SCALE].copy()
        return state

    def resumed(self, state: dict[str, Any]) -> Self:
        fresh: Any = self.thing._state
        check_like(vars(fresh), state)
        self.thing._check_streams(type(fresh)(**state))
        twin = type(self)(self.thing)
        records, heights = self._packed(state)
        twin._grow(heights)
        twin._near, twin._far = records
        return twin

    def _packed(self, state: dict[str, Any]) -> tuple[tuple[Array, Array], int]:
        """Return the records of a state, near and far ones, and their heights."""
        heights, n, dim = state["sums"].shape
        sums = state["sums"].swapaxes(0, 1).reshape(n, heights * dim)
        leaves = dim if self._weighted else heights * dim
        near, far = np.empty((n, self._head + leaves)), np.empty((n, _top(heights) * self._weighted))
        near.view(np.int64)[:, 0], near[:, self._head :] = state["rounds"], sums[:, :leaves]
        if self._weighted:
            near[:, SCALE], near[:, COST] = state["scale"], state["costs"][0]
            far[:, ::2], far[:, 1::2] = state["weights"].T, state["costs"][1:].T
        return (near, np.concatenate([far, sums[:, leaves:]], axis=1)), heights


def _top(heights: int) -> int:
    """Return where the sums start in far records."""
    return 2 * heights - 1


def _spread(records: Array, old: int, new: int, wide: int) -> Array:
    """Return records so wide, in which what was from `old` on is from `new` on, and zeros are between and after."""
    more, rest = np.zeros((len(records), wide)), records.shape[1] - old
    more[:, :old], more[:, new : new + rest] = records[:, :old], records[:, old:]
    return more
