"""Forecasts by exact value: masses and outcome sums of equal points, by the million."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treecal._exact import Array
from treecal.batch.climb import Level, Plan
from treecal.ledger import Reading


class Groups:
    """A hash table from points, told apart by all their bits, to mass and outcome sum.

    Memory grows with the number of distinct points, not of rounds.
    """

    def __init__(self, dim: int) -> None:
        self._known = 0
        self._make(1 << 12, dim)

    def add(self, level: Level, units: Array) -> None:
        """Add nodes whose labels were given `units` of weight in each of their rounds."""
        from treecal.batch.hashing import gather

        names, masses, done = level.labels.view(np.uint64), units * level.rounds, 0
        while True:
            self._known, done = gather(names, masses, units, level.sums, *self._table, self._known, done)
            if done == len(names):
                return
            self._grow()

    def add_classes(self, plan: Plan, classes: NDArray[np.int64], start: int, units: Array) -> Array:
        """Add leaves whose outcomes are classes, of weight `units[epoch]`; return the sums of their parents."""
        from treecal.batch.hashing import gather_classes

        parents, done = np.empty((-(-len(classes) // plan.arity), plan.space.dim)), 0
        tree = (plan.arity, plan.grows, plan.first + 0.0, units, parents)
        while True:
            self._known, done = gather_classes(classes, start, *tree, *self._table, self._known, done)
            if done == len(parents):
                return parents
            self._grow()

    def _make(self, room: int, dim: int) -> None:
        self._slots, self._hashes = np.full(room, -1), np.empty(room // 2, np.uint64)
        self._keys, self._totals = np.empty((room // 2, dim), np.uint64), np.empty((room // 2, dim + 1))
        self._table = (self._slots, self._hashes, self._keys, self._totals)

    def _grow(self) -> None:
        from treecal.batch.hashing import rehash

        known, (slots, hashes, keys, totals) = self._known, self._table
        self._make(2 * len(slots), keys.shape[1])
        self._hashes[:known], self._keys[:known], self._totals[:known] = hashes[:known], keys[:known], totals[:known]
        rehash(self._slots, self._hashes, known)

    def reading(self, rounds: int, unit: float) -> Reading:
        """Return the groups as a ledger reads them, weights having been counted in parts of `unit`."""
        keys, totals = self._keys[: self._known], self._totals[: self._known]
        mass = totals[:, 0]
        return Reading(keys.view(np.float64), mass / unit, totals[:, 1:] / mass[:, None], rounds, None)
