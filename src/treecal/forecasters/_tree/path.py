"""The points on the path from leaf to root: what every forecaster on the tree announces, however it weighs them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy import divide
from numpy.typing import ArrayLike

from treecal._states import State, check_array, check_rounds
from treecal._typing import Array, Integers
from treecal.exceptions import ParameterError, SnapshotError
from treecal.geometry import ConvexSet, checked_start
from treecal.tree import Tree


@dataclass(frozen=True, eq=False)
class TreeState(State):
    """The state of `n` streams on the tree; one stream is `n = 1`."""

    rounds: Integers
    """Outcomes seen, `(n,)`."""
    sums: Array
    """`(heights, n, d)`: of each height the outcomes in the finished siblings of the path's node, added up."""


PathState = tuple[int, list[Array], Array]
"""Of one stream: leaves added; carried sums, a row for each height; points, `(heights, d)`, lowest first."""


class Path:
    """How the points of a path follow from the outcomes: by sums that are carried upwards like an odometer's digits.

    The point of a node is the sum of its finished siblings divided once by their rounds; a first child has the start
    point. A finished sum is added one height up: in this order points are the same bit for bit everywhere. A step takes
    a state and returns a new one, so nothing that was handed out ever changes. `unit` is the number of outcomes in a
    leaf: 1, or the block length when whole blocks are added.
    """

    def __init__(
        self, space: ConvexSet, tree: Tree, *, mix: float = 0.0, start: ArrayLike | None = None, unit: int = 1
    ) -> None:
        if not (isinstance(mix, int | float | np.number) and 0 <= mix <= 1):
            raise ParameterError.expected("mix", mix, "a number from 0 to 1")
        tree.check_countable()
        self.space = space
        self.tree = tree
        self.unit = unit
        self.mix = float(mix)
        self.start = checked_start(space, start)
        self.pull = self.mix * space.centre
        self.first = self.start if self.mix == 0 else (1 - self.mix) * self.start + self.pull
        self._arity = tree.arity
        self._zeros = np.zeros(space.dim)
        self._last = math.inf if tree.horizon is None else tree.horizon

    def check(self, state: TreeState) -> None:
        """Raise unless streams on this tree can have the state."""
        rounds = check_rounds(state.rounds, np.size(state.rounds))
        tree = self.tree
        if tree.horizon is not None and (rounds > tree.horizon).any():
            raise SnapshotError(f"rounds reach {rounds.max()}, more than the {tree.horizon} of the tree.")
        heights = tree.heights(int(rounds.max(initial=0)))
        check_array("sums", state.sums, (heights, len(rounds), self.space.dim))

    def fresh(self) -> PathState:
        """Return the state before the first leaf."""
        return self.resume(0, np.tile(self._zeros, (self.tree.depth or 1, 1)))

    def resume(self, rounds: int, sums: Array) -> PathState:
        """Return the state after some leaves, given the carried sums."""
        points = np.tile(self.first, (len(sums), 1))
        for height, total in enumerate(sums):
            if count := self.tree.count(rounds, height):
                divide(total, float(count * self.unit), points[height])
                if self.mix:
                    self._draw(points[height])
        return rounds, [*np.array(sums)], points

    def step(self, state: PathState, outcome: Array) -> PathState:
        """Return the state after one more leaf, given its outcome or the sum of its outcomes."""
        rounds, sums, points = state
        rounds += 1
        children = rounds % self._arity
        ended = sums[0] + outcome
        if not children or rounds > self._last:
            return self._carry(rounds, ended, sums, points)
        sums = sums.copy()
        points = points.copy()
        sums[0] = ended
        divide(ended, _as_array(children * self.unit), points[0])  # where the next leaf starts
        if self.mix:
            self._draw(points[0])
        return rounds, sums, points

    def _carry(self, rounds: int, ended: Array, sums: list[Array], points: Array) -> PathState:
        """End the nodes whose last child has ended: their sums go one height up, and first children start below."""
        if rounds >= self._last:  # the tree is full: nothing starts
            self.tree.check(rounds)
            return rounds, [ended, *sums[1:]], points
        sums = sums.copy()
        points = points.copy()
        height = 0
        nodes = rounds // self._arity
        while True:
            sums[height] = self._zeros
            points[height] = self.first
            height += 1
            if height == len(sums):  # the tree grows
                sums.append(self._zeros)
                points = np.vstack([points, self.first])
            ended = sums[height] + ended
            nodes, children = divmod(nodes, self._arity)
            if children:
                break
        sums[height] = ended
        divide(ended, float(children * self._arity**height * self.unit), points[height])
        if self.mix:
            self._draw(points[height])
        return rounds, sums, points

    def _draw(self, point: Array) -> None:
        """Draw a point towards the centre."""
        point *= 1 - self.mix
        point += self.pull


@lru_cache(maxsize=4096)
def _as_array(count: int) -> Array:
    """Return a count as an array without axes: NumPy divides by one faster than by a number of Python's."""
    return np.array(float(count))
