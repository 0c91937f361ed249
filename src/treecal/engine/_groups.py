"""Forecasts by exact value: weights and outcome sums of equal points, by the million."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Array
from treecal.engine._climb import Plan
from treecal.ledger import Reading

if TYPE_CHECKING:
    from treecal.engine._hashing import Table


def _table(room: int, dim: int) -> Table:
    """Return a table for half as many groups as it has slots; memory is allocated when it is written to."""
    from treecal.engine._hashing import Table

    half = room // 2
    return Table(
        np.full(room, -1), np.empty(half, np.uint64), np.empty((half, dim), np.uint64), np.empty((half, dim + 1))
    )


class Groups:
    """A hash table from points, compared bit for bit, to weight and outcome sum: memory grows with distinct points."""

    def __init__(self, dim: int, *, expected: int = 0) -> None:
        self._known = 0
        self._table = _table(1 << min(25, max(12, (2 * expected).bit_length())), dim)

    def add(self, points: Array, rounds: NDArray[Any], units: Array, sums: Array) -> None:
        """Add points with `units` of weight in each of `rounds` rounds, whose outcomes add up to `sums`."""
        from treecal.engine._hashing import gather

        names = points.view(np.uint64)
        weights = units * rounds
        done = 0
        while True:
            self._known, done = gather(names, weights, units, sums, self._table, self._known, done)
            if done == len(names):
                return
            self._grow()

    def _grow(self) -> None:
        from treecal.engine._hashing import rehash

        known = self._known
        old = self._table
        self._table = _table(2 * len(old.slots), old.keys.shape[1])
        for ours, theirs in zip(self._table[1:], old[1:], strict=True):
            ours[:known] = theirs[:known]
        rehash(self._table, known)

    def reading(self, rounds: int, unit: float) -> Reading:
        """Return the groups as a ledger reads them; weights were counted in parts of `unit`."""
        keys = self._table.keys[: self._known]
        totals = self._table.totals[: self._known]
        weight = totals[:, 0]
        return Reading(keys.view(np.float64), weight / unit, totals[:, 1:] / weight[:, None], rounds, None)


class Leaves:
    """The points of leaves whose outcomes are classes: means of fewer than `arity` of them, so there are few.

    They are counted by the state of their parent, in an automaton, and become points only afterwards.
    """

    def __init__(self, plan: Plan, groups: Groups, unit: float) -> None:
        self._plan = plan
        self._groups = groups
        self._unit = unit
        self._known = 0
        self._parts = 1  # states, and heights of the tree while they were counted
        self._table = _table(1 << (2 * self.states(plan) + 2 * plan.tree.arity).bit_length(), plan.space.dim)
        self._follow = np.empty(self._table.keys.shape, np.int32)

    @staticmethod
    def states(plan: Plan) -> int:
        """Return the number of possible states."""
        return math.comb(plan.tree.arity - 1 + plan.space.dim, plan.space.dim)

    def add(self, classes: NDArray[np.int64], start: int) -> Array:
        """Count leaves, the first of them number `start`; return the sums of their parents."""
        from treecal.engine._hashing import count_leaves

        tree = self._plan.tree
        parents = np.empty((-(-len(classes) // tree.arity), self._plan.space.dim))
        done = 0
        while done < len(classes):
            parts = tree.heights(start + done)
            if parts != self._parts:
                self.give()
                self._parts = parts
            stop = len(classes) if tree.depth else min(len(classes), tree.arity**parts - start)
            here = parents[done // tree.arity : -(-stop // tree.arity)]
            self._known = count_leaves(classes[done:stop], tree.arity, self._follow, here, self._table, self._known)
            done = stop
        return parents

    def give(self) -> None:
        """Give what was counted to the groups, as points."""
        counts = self._table.keys[: self._known].view(np.float64)
        outcomes = self._table.totals[: self._known, 1:]
        if self._known:
            points = counts / np.maximum(counts.sum(axis=1), 1.0)[:, None]
            points[0] = self._plan.path.first + 0.0
            units = np.full(len(points), self._unit / self._parts)
            self._groups.add(points, outcomes.sum(axis=1), units, outcomes.copy())
            outcomes[:] = 0.0
