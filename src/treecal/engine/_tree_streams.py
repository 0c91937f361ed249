"""Many streams of a tree forecaster: `TreeCal`, or `AdaptiveTreeCal`, whose heights are weighted."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np

from treecal._processors import parts, side_by_side
from treecal._states import MOST_ROUNDS as LONGEST
from treecal._states import check_names
from treecal._typing import Array, Integers
from treecal.columns import ROUNDS, Field, Schema
from treecal.engine._column_streams import ColumnStreams
from treecal.engine._forecasts import TreeForecasts
from treecal.engine._outcomes import Outcomes
from treecal.engine._streams import RowError
from treecal.engine._tree_args import TreeForecaster, kernel_args, node_costs
from treecal.exceptions import HorizonError
from treecal.forecasters import AdaptiveTreeCal
from treecal.geometry import Lp
from treecal.tree import MOST_LEAVES, Tree

_GAPS = 2**14  # numbers in the gaps of nodes that are held at once: they stay near the processor
_COMPILED = {1.0: 1, 2.0: 2, math.inf: 3}
"""The exponents of the norms that kernels know, with their numbers there."""


def heights_of(tree: Tree, rounds: str, columns: Any) -> Integers:
    """Return the heights of the tree of each row, given the column of rounds that it has played."""
    played: Integers = columns[rounds]
    return tree.heights(played)


def tree_schema(thing: TreeForecaster) -> Schema:
    """Return what is kept of a stream: what the forecaster's own state has."""
    heights = partial(heights_of, thing.tree, "rounds")
    new = thing._state
    dim = thing.space.dim
    longest = min(thing.tree.horizon or LONGEST, LONGEST)
    fields = [replace(ROUNDS, most=longest), Field("sums", (dim,), new=new.sums[:, 0], length=heights)]
    if isinstance(thing, AdaptiveTreeCal):
        state: Any = new
        fields += [Field(name, new=getattr(state, name)[:, 0], length=heights) for name in ("costs", "weights")]
        fields += [Field("scale", new=state.scale[0])]
    return Schema(tuple(fields))


class TreeStreams(ColumnStreams):
    """The sums of each stream, and the weights of its heights, with room for the heights of the longest."""

    thing: TreeForecaster

    def __init__(self, thing: TreeForecaster) -> None:
        super().__init__(thing, tree_schema(thing))
        self._norm = 0
        if isinstance(thing, AdaptiveTreeCal) and isinstance(thing.norm, Lp):
            self._norm = _COMPILED.get(thing.norm.p, 0)

    @property
    def _room(self) -> int:
        """Rounds for which there are heights: with one more a tree grows, or one of fixed depth is full."""
        return int(min(self.thing.tree.arity ** self.columns["sums"].shape[1], MOST_LEAVES)) - 1

    def _grow(self) -> None:
        """Make room for one height more."""
        heights = self.columns["sums"].shape[1] + 1
        for field in self.schema.of(length=True):
            self.columns.widen(field.name, heights)

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

    def _trees(self) -> Any:
        from treecal.engine._tree_kernels import Trees

        return Trees(self.rounds, self.columns["sums"])

    def announce(self, rows: Integers, forecasts: Array | None) -> TreeForecasts:
        from treecal.engine._tree_kernels import places

        tree, dim = self.thing.tree, self.thing.space.dim
        rounds = self.rounds[rows]
        heights = tree.heights(rounds)
        points = np.empty((len(rows), int(heights.max(initial=1)), dim))
        places(rows, self._trees(), *kernel_args(self.thing._path), points)
        weights = None
        if isinstance(self.thing, AdaptiveTreeCal):
            weights = self.columns["weights"][rows, : points.shape[1]]
        return TreeForecasts(points, weights, heights, rounds, tree.arity, self.thing.space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        if isinstance(self.thing, AdaptiveTreeCal):
            return self._learn_weighted(rows, outcomes)
        from treecal.engine._tree_kernels import learn

        tree, _ = kernel_args(self.thing._path)
        done = 0
        while (done := learn(rows, outcomes, done, self._room, tree, self._trees())) < len(rows):
            self.torn = True
            self._grow()
        self.torn = False
        return None

    def _learn_weighted(self, rows: Integers, outcomes: Outcomes) -> None:
        """Learn outcomes and update weights; if there are many, threads share the streams."""
        shares = [(low, high, 0) for low, high in parts(len(self.rounds), len(rows), self.threads)]
        self.torn = True
        while True:
            done = side_by_side(lambda share: self._learn_share(rows, outcomes, *share), shares)
            if min(done) == len(rows):
                break
            self._grow()
            shares = [(low, high, at) for (low, high, _), at in zip(shares, done, strict=True)]
        self.torn = False

    def _learn_share(self, rows: Integers, outcomes: Outcomes, low: int, high: int, at: int) -> int:
        """Learn for some of the streams, until a tree has to grow; return the first outcome that was not learned.

        Rounds are played some at a time: first their sums and gaps, then the norms of the gaps, then the weights.
        """
        from treecal.engine import _tree_kernels as kernels

        assert isinstance(self.thing, AdaptiveTreeCal)
        rule = self.thing._weighting
        dim = self.thing.space.dim
        columns = self.columns
        weighted = kernels.Weights(columns["costs"], columns["weights"], columns["scale"])
        gaps = np.empty((dim, max(_GAPS // dim, 2 * columns["costs"].shape[1])))
        places, nows, ended = np.empty((3, min(gaps.shape[1], len(rows))), np.int64)
        noted = kernels.Gaps(places, nows, ended, gaps)
        args = self._room, (low, high), *kernel_args(self.thing._path), self._trees(), noted
        while at < len(rows):
            at, count, used = kernels.learn_gaps(rows, outcomes, at, *args)
            if count == 0:
                break
            kernels.weigh_rows(rows, count, noted, self._costs(gaps, used), rule, weighted)
        return at

    def _costs(self, gaps: Array, count: int) -> Array:
        """Return the norms of the first gaps, the columns of an array, which may be overwritten."""
        from treecal.engine import _tree_kernels as kernels

        assert isinstance(self.thing, AdaptiveTreeCal)
        if not self._norm or len(gaps) > kernels.MOST:
            return node_costs(self.thing.norm, gaps[:, :count].T)
        costs = np.empty(count)
        kernels.costs_of(gaps, self._norm, costs)
        return costs

    def state(self, rows: Integers) -> dict[str, Any]:
        """Return the state as the forecaster has it, with a column for each stream."""
        return self._turned(self.rows(rows))

    def resumed(self, state: dict[str, Any]) -> Self:
        check_names("the state", state, [field.name for field in self.schema.fields])
        return self.with_rows(self._turned(state))

    def _turned(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state with the axes of streams and of heights exchanged."""
        entries = {field.name for field in self.schema.of(length=True)}
        return {
            name: np.ascontiguousarray(array.swapaxes(0, 1)) if name in entries and np.ndim(array) > 1 else array
            for name, array in state.items()
        }
