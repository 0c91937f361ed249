"""TreeCal: Algorithm 1 of the paper, and its form without a horizon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from treecal._states import MOST_ROUNDS, check_names, check_rounds
from treecal._typing import Array, Integers, Outcomes, Saved
from treecal.columns import ROUNDS, ColumnStreams, Field, RowError, Schema, TreeForecasts
from treecal.exceptions import HorizonError
from treecal.forecast import Forecast, TreeForecast, uniform
from treecal.forecasters._base import Forecaster, checked_space
from treecal.forecasters._tree.path import Path, TreeState
from treecal.forecasters._tree.steps import kernel_args
from treecal.geometry import ConvexSet, Norm
from treecal.theory import Certificate, certificate, plan
from treecal.tree import MOST_LEAVES, Tree


class TreeCal(Forecaster):
    """Calibrated forecasts in every norm at once, against any sequence (Algorithm 1).

    Time is cut into an `arity`-ary tree of intervals. When an interval starts it is given a point, the mean of
    the outcomes its parent has seen so far (a first child the start point), and each round's forecast is uniform over
    the points of the intervals the round lies in.

    For every set and norm the squared calibration error per round is at most `(√(J/depth) + √(r²μ₀ + D²μ₁))²`, where
    `J` is the Jensen gap of the best regularizer (Theorem 3.1 with its constants corrected). The algorithm
    knows neither norm nor regularizer.

    Costs `O(dim)` arithmetic a round, amortised, and `O(depth·dim)` memory.

    Parameters
    ----------
    space
        The set outcomes lie in.
    arity
        Children of each interval, the paper's H.
    depth
        Heights of the tree, the paper's L, for at most `arity**depth` rounds. Without it the tree grows with the
        stream: while it has `m` heights each has weight `1/m`.
    mix
        Share of the centre in every point, `(1 − mix)·point + mix·centre` (Peng's variant): keeps logarithmic scores
        finite.
    start
        The point of first children; by default the set's centre.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.TreeCal(tc.Simplex(2), arity=2)
    >>> for y in [[1, 0], [1, 0], [0, 1]]:
    ...     f.update(y)
    >>> x = f.predict()
    >>> x.points
    array([[0., 1.],
           [1., 0.]])
    >>> x.nodes.tolist()  # the leaf of round 4, and the interval of rounds 3 and 4
    [[0, 3], [1, 1]]

    References
    ----------
    Fishelson, Golowich, Mohri and Schneider, "High-Dimensional Calibration from Swap Regret", 2025.
    """

    _fields = ("space", "arity", "depth", "mix", "start")

    def __init__(
        self,
        space: ConvexSet,
        *,
        arity: int = 8,
        depth: int | None = None,
        mix: float = 0.0,
        start: ArrayLike | None = None,
    ) -> None:
        self.space = checked_space(space)
        self.tree = Tree(arity, depth)
        self._path = Path(space, self.tree, mix=mix, start=start)
        self.arity = self.tree.arity
        self.depth = self.tree.depth
        self.mix = self._path.mix
        self.start = self._path.start
        self._now = self._path.fresh()

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._now[0]

    def _announce(self) -> Forecast:
        rounds, _, points = self._now
        if self.depth is not None:
            self.tree.check(rounds + 1)
        return TreeForecast(points, uniform(len(points)), rounds, self.arity, self.space)

    def _learn(self, outcome: Array) -> None:
        while True:
            now = self._now
            after = self._path.step(now, outcome)
            if self._now is now:  # no other thread has learned meanwhile
                self._now = after
                return

    _fork = Forecaster._light_fork

    def _in_blocks(self, block: int) -> None:
        self._path = Path(self.space, self.tree, mix=self.mix, start=self.start, unit=block)

    def _learn_block(self, total: Array) -> None:
        self._learn(total)  # sums, divided once: equal rationals stay equal floats

    def _check(self, state: TreeState) -> None:
        check_rounds(state.rounds, 1)
        self._path.check(state)

    @property
    def _state(self) -> TreeState:
        rounds, sums, _ = self._now
        return TreeState(np.array([rounds]), np.array(sums)[:, None])

    @_state.setter
    def _state(self, state: TreeState) -> None:
        self._now = self._path.resume(int(state.rounds[0]), state.sums[:, 0])

    def _streams(self) -> TreeStreams:
        return TreeStreams(self)

    name = "treecal"

    def _certify(self, norm: Norm, rounds: int) -> Certificate | None:
        if self.mix:
            return None
        return certificate(self.space, norm, rounds=rounds, arity=self.arity, depth=self.depth, start=self.start)

    @classmethod
    def tuned(cls, space: ConvexSet, norm: Norm, *, rounds: int) -> Forecaster:
        """Return the tree that `tc.plan` finds."""
        best = plan(space, norm, rounds=rounds)
        return cls(space, arity=best.arity, depth=best.depth)

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield a growing tree, one of fixed depth, and one mixed with the centre."""
        yield from (cls(space, arity=3), cls(space, arity=2, depth=6), cls(space, arity=4, mix=0.1))


def heights_of(tree: Tree, rounds: str, columns: Any) -> Integers:
    """Return the heights of the tree of each row, given the column of rounds that it has played."""
    played: Integers = columns[rounds]
    return tree.heights(played)


class TreeStreams(ColumnStreams):
    """Many streams of `TreeCal`: their carried sums, with room for the heights of the longest."""

    def __init__(self, thing: Any) -> None:
        super().__init__(thing, Schema(self._fields(thing)))

    def _fields(self, thing: Any) -> tuple[Field, ...]:
        """Return what is kept of a stream: what the forecaster's own state has."""
        rounds = replace(ROUNDS, most=min(thing.tree.horizon or MOST_ROUNDS, MOST_ROUNDS))
        heights = partial(heights_of, thing.tree, "rounds")
        return rounds, Field("sums", (thing.space.dim,), new=thing._state.sums[:, 0], length=heights)

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
        from treecal.forecasters._tree.wide import Trees

        return Trees(self.rounds, self.columns["sums"], self._room)

    def announce(self, rows: Integers, forecasts: Array | None) -> TreeForecasts:
        from treecal.forecasters._tree.wide import places

        tree = self.thing.tree
        rounds = self.rounds[rows]
        heights = tree.heights(rounds)
        points = np.empty((len(rows), int(heights.max(initial=1)), self.thing.space.dim))
        places(rows, self._trees(), *kernel_args(self.thing._path), points)
        weights = self._weights(rows, points.shape[1])
        return TreeForecasts(points, weights, heights, rounds, tree.arity, self.thing.space)

    def _weights(self, rows: Integers, heights: int) -> Array | None:
        """Return the weights of so many heights of each row; None where all are equal."""
        return None

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        from treecal.forecasters._tree.wide import learn

        tree, _ = kernel_args(self.thing._path)
        done = 0
        while (done := learn(rows, outcomes, done, tree, self._trees())) < len(rows):
            self.torn = True
            self._grow()
        self.torn = False

    def state(self, rows: Integers) -> Saved:
        """Return the state as the forecaster has it, with a column for each stream."""
        return self._turned(self.rows(rows))

    def resumed(self, state: Saved) -> Self:
        check_names("the state", state, [field.name for field in self.schema.fields])
        return self.with_rows(self._turned(state))

    def _turned(self, state: Saved) -> Saved:
        """Return a state with the axes of streams and of heights exchanged."""
        entries = {field.name for field in self.schema.of(length=True)}
        return {
            name: np.ascontiguousarray(array.swapaxes(0, 1)) if name in entries and np.ndim(array) > 1 else array
            for name, array in state.items()
        }


def climb(path: Path, leaves: Any, index: int, tol: float, total: Array, errors: Array) -> int:
    """Write the sum of a piece, whose first round is number `index`, and add the errors of its nodes by height.

    Return the first of the leaves that is none, or −1. The compiler is imported when it is called.
    """
    from treecal.forecasters._tree.climb import Into, climb_leaves, few_chunks, new_room

    tree, mix = kernel_args(path)
    room = new_room(tree.arity, len(total), mix, tol)
    return climb_leaves(leaves, index, tree, mix, Into(total, errors), few_chunks(len(total)), room)
