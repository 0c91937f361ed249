"""Forecasts by exact value: weights and outcome sums of equal points, by the million."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._compile import inlined, strict
from treecal._typing import Array, Integers
from treecal.engine._climb import Plan
from treecal.ledger import Reading

Bits = NDArray[np.uint64]


class HashTable(NamedTuple):
    """An open hash table: `slots` holds the number of a group or −1.

    Of each group it holds the hash and the bits of its point and, in `totals`, its weight and outcome sum.
    """

    slots: Integers
    hashes: Bits
    keys: Bits
    totals: Array


def _table(room: int, dim: int) -> HashTable:
    """Return a table for half as many groups as it has slots; memory is allocated when it is written to."""
    half = room // 2
    return HashTable(
        np.full(room, -1), np.empty(half, np.uint64), np.empty((half, dim), np.uint64), np.empty((half, dim + 1))
    )


class Groups:
    """A hash table from points, compared bit for bit, to weight and outcome sum: memory grows with distinct points."""

    def __init__(self, dim: int, *, expected: int = 0) -> None:
        self._known = 0
        self._table = _table(1 << min(25, max(12, (2 * expected).bit_length())), dim)

    def add(self, points: Array, rounds: NDArray[Any], units: Array, sums: Array) -> None:
        """Add points with `units` of weight in each of `rounds` rounds, whose outcomes add up to `sums`."""
        names = points.view(np.uint64)
        weights = units * rounds
        done = 0
        while True:
            self._known, done = gather(names, weights, units, sums, self._table, self._known, done)
            if done == len(names):
                return
            self._grow()

    def _grow(self) -> None:
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


@inlined
def _group(name: Bits, table: HashTable, known: int) -> int:
    """Return the group of a point, given by its bits; a new one if it has none."""
    code = np.uint64(0)
    factor = np.uint64(0x9E3779B97F4A7C15)
    for k in range(len(name)):  # products that do not wait for each other
        code += (name[k] ^ (name[k] >> np.uint64(32))) * factor
        factor *= np.uint64(0xD1342543DE82EF95)
    code = (code ^ (code >> np.uint64(32))) * np.uint64(0xFF51AFD7ED558CCD)
    code ^= code >> np.uint64(32)
    slots = table.slots
    hashes = table.hashes
    keys = table.keys
    mask = np.uint64(len(slots) - 1)
    slot = code & mask
    group = slots[slot]
    while group >= 0:
        same = hashes[group] == code
        for k in range(len(name)):
            same = same and keys[group, k] == name[k]
        if same:
            break
        slot = (slot + np.uint64(1)) & mask
        group = slots[slot]
    if group < 0:
        group = known
        slots[slot] = known
        hashes[known] = code
        for k in range(len(name)):
            keys[known, k] = name[k]
            table.totals[known, k] = 0.0
        table.totals[known, len(name)] = 0.0
    return group  # type: ignore[no-any-return]


@strict
def gather(
    names: Bits, weights: Array, units: Array, sums: Array, table: HashTable, known: int, done: int
) -> tuple[int, int]:
    """Add rows to the groups of equal points; return how many groups there are, and how many rows are done.

    It returns early when the table is half full.
    """
    for i in range(done, len(names)):
        if weights[i] == 0:
            continue
        if 2 * known >= len(table.slots):
            return known, i
        group = _group(names[i], table, known)
        known = max(known, group + 1)
        table.totals[group, 0] += weights[i]
        for k in range(sums.shape[1]):
            table.totals[group, k + 1] += units[i] * sums[i, k]
    return known, len(names)


@strict
def count_leaves(
    classes: Integers, arity: int, follow: NDArray[np.int32], parents: Array, table: HashTable, known: int
) -> int:
    """Count the outcomes that follow each state of a node, which is the number of its children of each class so far.

    `table.totals[state, class + 1]` counts, `follow[state, class]` is the next state, once known, and `table.keys` are
    the counts that make up a state, first that of no child. Write the sums of the leaves to `parents`; return the
    number of states, which the table has room for.
    """
    counts = np.zeros(parents.shape[1])
    name = counts.view(np.uint64)
    if known == 0:
        known = _group(name, table, 0) + 1
        follow[0, :] = -1
    for parent in range(len(parents)):
        counts[:] = 0.0
        state = 0
        eldest = parent * arity
        last = min(len(classes), eldest + arity) - 1
        for i in range(eldest, last + 1):
            k = classes[i]
            table.totals[state, k + 1] += 1.0
            counts[k] += 1.0
            if i < last:
                after = follow[state, k]
                if after < 0:
                    after = _group(name, table, known)
                    if after == known:
                        known += 1
                        follow[after, :] = -1
                    follow[state, k] = after
                state = after
        for k in range(len(counts)):
            parents[parent, k] = counts[k]
    return known


@strict
def rehash(table: HashTable, known: int) -> None:
    """Put all groups into the slots of a new table."""
    slots = table.slots
    mask = np.uint64(len(slots) - 1)
    for group in range(known):
        slot = table.hashes[group] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = group
