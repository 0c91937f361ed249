"""The hot loops of grouping by exact value."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._compile import inlined, strict
from treecal._typing import Array, Integers

Bits = NDArray[np.uint64]


class Table(NamedTuple):
    """An open hash table: `slots` holds the number of a group or −1.

    Of each group it holds the hash and the bits of its point and, in `totals`, its weight and outcome sum.
    """

    slots: Integers
    hashes: Bits
    keys: Bits
    totals: Array


@inlined
def _group(name: Bits, table: Table, known: int) -> int:
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
    names: Bits, weights: Array, units: Array, sums: Array, table: Table, known: int, done: int
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
    classes: Integers, arity: int, follow: NDArray[np.int32], parents: Array, table: Table, known: int
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
def rehash(table: Table, known: int) -> None:
    """Put all groups into the slots of a new table."""
    slots = table.slots
    mask = np.uint64(len(slots) - 1)
    for group in range(known):
        slot = table.hashes[group] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = group
