"""The points on the path from leaf to root: what every forecaster on the tree announces, however it weighs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal.exceptions import ParameterError
from treecal.geometry import ConvexSet
from treecal.geometry._outcomes import checked_start
from treecal.tree import Tree


@dataclass(frozen=True)
class TreeState:
    """What the past leaves of `n` streams on the tree; one stream is `n = 1`.

    Attributes
    ----------
    rounds
        Outcomes seen, `(n,)`.
    sums
        `(heights, n, d)`: `sums[j]` is the sum of the outcomes in the finished siblings of the path's node of height j.
    """

    rounds: Integers
    sums: Array


PathState = tuple[int, list[Array], Array]
"""Of one stream: leaves added; carried sums, a row for each height; points, `(heights, d)`, lowest first."""


class Path:
    """How the points of a path follow from the outcomes: by sums that are carried upwards like an odometer's digits.

    The point of a node is the sum of its finished siblings divided once by their rounds; a first child has the start
    point. Adding a finished sum one height up is the tree's own summation order: whoever keeps to it gets the same
    points bit for bit. A step takes a state and returns a new one, so nothing that was handed out ever changes.

    Parameters
    ----------
    space, tree, mix, start
        As for `TreeCal`.
    unit
        Outcomes in one leaf: 1, or the block length when whole blocks are added.
    """

    def __init__(
        self, space: ConvexSet, tree: Tree, *, mix: float = 0.0, start: ArrayLike | None = None, unit: int = 1
    ) -> None:
        if not (isinstance(mix, int | float | np.number) and 0 <= mix <= 1):
            raise ParameterError.expected("mix", mix, "a number from 0 to 1")
        tree.check_countable()
        self.tree, self.mix, self.start, self.unit = tree, float(mix), checked_start(space, start), unit
        self.pull = self.mix * space.centre
        self.first = self.start if self.mix == 0 else (1 - self.mix) * self.start + self.pull
        self._zeros = np.zeros(space.dim)

    def fresh(self) -> PathState:
        """Return the state before the first leaf."""
        return self.resume(0, np.tile(self._zeros, (self.tree.depth or 1, 1)))

    def resume(self, rounds: int, sums: Array) -> PathState:
        """Return the state after so many leaves, whose sums are carried as given."""
        points = np.tile(self.first, (len(sums), 1))
        for height, total in enumerate(sums):
            if count := self.tree.count(rounds, height):
                self._place(points[height], total, count)
        return rounds, [*np.array(sums)], points

    def step(self, state: PathState, outcome: Array) -> PathState:
        """Return the state after one more leaf, given its outcome or the sum of its outcomes."""
        rounds, sums, points = state[0] + 1, state[1].copy(), state[2].copy()
        if self.tree.depth is not None:
            self.tree.check(rounds)
        arity, height, ended = self.tree.arity, 0, sums[0] + outcome
        nodes, digit = divmod(rounds, arity)
        while not digit:  # a last child: its parent has ended, too, and first children start
            sums[height], points[height] = self._zeros, self.first
            height += 1
            if height == len(sums):
                if self.tree.depth is not None:
                    return rounds, [state[1][0] + outcome, *state[1][1:]], state[2]  # the tree is full: nothing starts
                sums.append(self._zeros)
                points = np.vstack([points, self.first])
            ended = sums[height] + ended
            nodes, digit = divmod(nodes, arity)
        sums[height] = ended
        self._place(points[height], ended, digit * arity**height)
        return rounds, sums, points

    def _place(self, point: Array, total: Array, count: int) -> None:
        """Put a node that starts at the mean of its finished siblings, given their sum and number of leaves."""
        np.divide(total, _as_array(count * self.unit), point)
        if self.mix:
            point *= 1 - self.mix
            point += self.pull


@lru_cache(maxsize=4096)
def _as_array(count: int) -> Array:
    """Return a count as an array without axes: NumPy divides by one faster than by a number of Python's."""
    return np.array(float(count))
