"""Many streams of a tree forecaster: `TreeCal`, or `AdaptiveTreeCal`, whose heights are weighted."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, Self

import numpy as np

from treecal._processors import processors
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
from treecal.tree import MOST_ROUNDS

_SHARE = 2**16  # outcomes that are worth a thread
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
        self._fresh = self._packed(vars(thing._state))
        self._near, self._far, self._stakes = (records[:0] for records in self._fresh)
        norm = thing.norm if isinstance(thing, AdaptiveTreeCal) else None
        self._norm = _COMPILED.get(norm.p, 0) if isinstance(norm, Lp) and dim <= _MOST else 0

    @property
    def _heights(self) -> int:
        return int(self._near.shape[1] - self._head + self._far.shape[1]) // self.thing.space.dim

    @property
    def rounds(self) -> Integers:
        return self._near.view(np.int64)[:, 0]

    def _widths(self, heights: int) -> tuple[int, int, int]:
        """Return how many numbers the records of so many heights have: near ones, far ones, and stakes."""
        dim = self.thing.space.dim
        if not self._weighted:
            return self._head + heights * dim, 0, 0
        return self._head + dim, (heights - 1) * dim, 2 * heights - 1

    def reserve(self, rows: int) -> None:
        self._resize(rows, self._heights)

    def _resize(self, rows: int, heights: int) -> None:
        """Make room for so many rows and heights, each at least what there is."""
        new = [np.zeros((rows, width)) for width in self._widths(heights)]
        for records, old, fresh in zip(new, (self._near, self._far, self._stakes), self._fresh, strict=True):
            records[: len(old), : old.shape[1]] = old
            records[len(old) :, : fresh.shape[1]] = fresh
        self._near, self._far, self._stakes = new

    def clear(self, rows: Integers) -> None:
        for records, fresh in zip((self._near, self._far, self._stakes), self._fresh, strict=True):
            records[rows] = 0.0
            records[rows, : fresh.shape[1]] = fresh

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
        near = self._near
        return Records(near, near.view(np.int64), self._far, self._stakes, self._head, self._heights)

    def announce(self, rows: Integers, forecasts: Array | None) -> TreeForecasts:
        from treecal.engine._tree_kernels import places

        tree, dim = self.thing.tree, self.thing.space.dim
        rounds = self.rounds[rows]
        heights = tree.heights(rounds)
        points = np.empty((len(rows), int(heights.max(initial=1)), dim))
        places(rows, self._records(), *kernel_args(self.thing._path), points)
        weights = None
        if self._weighted:
            weights = self._stakes[rows[:, None], 2 * np.arange(points.shape[1])]
        return TreeForecasts(points, weights, heights, rounds, tree.arity, self.thing.space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        if self._weighted and not self._norm:
            return self._learn_in_parts(rows, outcomes)
        from treecal.engine import _tree_kernels as kernels

        if self._weighted:
            return self._learn_in_blocks(rows, outcomes)
        (tree, _), done = kernel_args(self.thing._path), 0
        while (done := kernels.learn(rows, outcomes, done, tree, self._records())) < len(rows):
            self.torn = True
            self._resize(len(self._near), self._heights + 1)
        self.torn = False
        return None

    def _learn_in_blocks(self, rows: Integers, outcomes: Outcomes) -> None:
        """Learn outcomes block by block; if there are many, threads share the streams."""
        from treecal.engine._block_kernels import WAITING, Queue, learn_weighted
        from treecal.engine._norm_kernels import network

        assert isinstance(self.thing, AdaptiveTreeCal)
        args = *kernel_args(self.thing._path), self.thing._weighting, self._norm, network(self.thing.space.dim)
        most = len(rows) // _SHARE  # threads that have enough to do
        threads = min(self.threads or processors(), most) if most > 1 else 1
        bounds = [len(self._near) * part // threads for part in range(threads + 1)]
        queues = [Queue(low, high, np.empty(WAITING, np.int64)) for low, high in pairwise(bounds)]

        def learn(queue: Queue) -> Queue:
            full = self.thing.tree.arity**self._heights  # then a tree grows, or is full
            return learn_weighted(rows, outcomes, queue, min(full - 1, MOST_ROUNDS - 1), *args, self._records())

        with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
            self.torn = threads > 1
            while True:
                queues = list(pool.map(learn, queues) if pool else map(learn, queues))
                if all(queue.at == len(rows) and not queue.held for queue in queues):
                    break
                self.torn = True
                if self.thing.depth is None:
                    self._resize(len(self._near), self._heights + 1)
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
                self._resize(len(self._near), self._heights + 1)
        self.torn = False

    def state(self, rows: Integers) -> dict[str, Any]:
        """Return the state as the forecaster has it, with a column for each stream."""
        rounds = self.rounds[rows]
        heights = self.thing.tree.heights(int(rounds.max(initial=0)))
        dim, near, stakes = self.thing.space.dim, self._near[rows], self._stakes[rows]
        kept = np.concatenate([near[:, self._head :], self._far[rows]], axis=1)[:, : heights * dim]
        sums = np.ascontiguousarray(kept.reshape(len(rows), heights, dim).swapaxes(0, 1))
        state = {"rounds": rounds, "sums": sums}
        if self._weighted:
            state["costs"] = np.vstack([near[:, COST], stakes[:, 1 : 2 * heights - 1 : 2].T])
            state["weights"] = stakes[:, : 2 * heights : 2].T.copy()
            state["scale"] = near[:, SCALE]
        return state

    def resumed(self, state: dict[str, Any]) -> Self:
        fresh: Any = self.thing._state
        check_like(vars(fresh), state)
        self.thing._check_streams(type(fresh)(**state))
        twin = type(self)(self.thing)
        twin._near, twin._far, twin._stakes = self._packed(state)
        return twin

    def _packed(self, state: dict[str, Any]) -> tuple[Array, Array, Array]:
        """Return the records of a state."""
        heights, n, dim = state["sums"].shape
        near, far, stakes = (np.zeros((n, width)) for width in self._widths(heights))
        near.view(np.int64)[:, 0] = state["rounds"]
        sums = state["sums"].swapaxes(0, 1).reshape(n, heights * dim)
        near[:, self._head :], far[:] = np.split(sums, [near.shape[1] - self._head], axis=1)
        if self._weighted:
            near[:, SCALE], near[:, COST] = state["scale"], state["costs"][0]
            stakes[:, ::2], stakes[:, 1::2] = state["weights"].T, state["costs"][1:].T
        return near, far, stakes
