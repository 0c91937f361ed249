"""Forecasts by exact value: masses and outcome sums of equal points, by the million."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array
from treecal.engine._climb import Plan
from treecal.ledger import Reading


class Groups:
    """A hash table from points, told apart by all their bits, to mass and outcome sum.

    Memory grows with the number of distinct points, not of rounds.
    """

    def __init__(self, dim: int, *, expected: int = 0) -> None:
        self._known = 0
        self._make(1 << min(25, max(12, (2 * expected).bit_length())), dim)  # memory is taken when it is written to

    def add(self, points: Array, rounds: NDArray[Any], units: Array, sums: Array) -> None:
        """Add points that were given `units` of weight in each of `rounds` rounds, whose outcomes add up to `sums`."""
        from treecal.engine._hashing import gather

        names, masses, done = points.view(np.uint64), units * rounds, 0
        while True:
            self._known, done = gather(names, masses, units, sums, *self._table, self._known, done)
            if done == len(names):
                return
            self._grow()

    def _make(self, room: int, dim: int) -> None:
        self._slots, self._hashes = np.full(room, -1), np.empty(room // 2, np.uint64)
        self._keys, self._totals = np.empty((room // 2, dim), np.uint64), np.empty((room // 2, dim + 1))
        self._table = (self._slots, self._hashes, self._keys, self._totals)

    def _grow(self) -> None:
        from treecal.engine._hashing import rehash

        known, (slots, hashes, keys, totals) = self._known, self._table
        self._make(2 * len(slots), keys.shape[1])
        self._hashes[:known], self._keys[:known], self._totals[:known] = hashes[:known], keys[:known], totals[:known]
        rehash(self._slots, self._hashes, known)

    def reading(self, rounds: int, unit: float) -> Reading:
        """Return the groups as a ledger reads them, weights having been counted in parts of `unit`."""
        keys, totals = self._keys[: self._known], self._totals[: self._known]
        mass = totals[:, 0]
        return Reading(keys.view(np.float64), mass / unit, totals[:, 1:] / mass[:, None], rounds, None)


class Leaves:
    """The labels of leaves whose outcomes are classes: means of fewer than `arity` of them, so there are not many.

    Each is counted under the state of its parent, as an automaton goes from state to state; only then is it a point.
    """

    def __init__(self, plan: Plan, groups: Groups, unit: float) -> None:
        self._plan, self._groups, self._unit = plan, groups, unit
        self._known, self._parts = 0, 1  # states, and heights of the tree while they were counted
        most = 1 << (2 * self.states(plan) + 2 * plan.arity).bit_length()
        d = plan.space.dim
        self._follow = np.empty((most // 2, d), np.int32)
        self._table = (
            np.full(most, -1),
            np.empty(most // 2, np.uint64),
            np.empty((most // 2, d), np.uint64),
            np.empty((most // 2, d + 1)),
        )

    @staticmethod
    def states(plan: Plan) -> int:
        """Return how many states there can be."""
        return math.comb(plan.arity - 1 + plan.space.dim, plan.space.dim)

    def add(self, classes: NDArray[np.int64], start: int) -> Array:
        """Count leaves, the first of them number `start`; return the sums of their parents."""
        from treecal.engine._hashing import count_leaves

        plan = self._plan
        parents, done = np.empty((-(-len(classes) // plan.arity), plan.space.dim)), 0
        while done < len(classes):
            parts = int(plan.parts(0, start + done, 1)[0])
            if parts != self._parts:
                self.give()
                self._parts = parts
            stop = len(classes) if plan.depth else min(len(classes), plan.arity**parts - start)
            here = parents[done // plan.arity : -(-stop // plan.arity)]
            self._known, _ = count_leaves(
                classes[done:stop], plan.arity, self._follow, here, *self._table, self._known, 0
            )
            done = stop
        return parents

    def give(self) -> None:
        """Give what was counted to the groups, as points."""
        counts, came = self._table[2][: self._known].view(np.float64), self._table[3][: self._known, 1:]
        if self._known:
            points = counts / np.maximum(counts.sum(axis=1), 1.0)[:, None]
            points[0] = self._plan.first + 0.0
            units = np.full(len(points), self._unit / self._parts)
            self._groups.add(points, came.sum(axis=1), units, came.copy())
            came[:] = 0.0
