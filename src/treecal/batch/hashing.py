"""The hot loops of grouping by exact value."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treecal._exact import Array
from treecal.batch.compile import strict
from treecal.batch.kernels import epoch_of

Integers = NDArray[np.int64]
Bits = NDArray[np.uint64]


@strict
def gather(
    names: Bits,
    masses: Array,
    units: Array,
    sums: Array,
    slots: Integers,
    hashes: Bits,
    keys: Bits,
    totals: Array,
    known: int,
    done: int,
) -> tuple[int, int]:
    """Add rows to the groups of equal points; return how many groups there are, and how many rows are done.

    An open hash table: `slots` holds the number of a group or −1, `keys` the bits of each group's point, and `totals`
    its mass and outcome sum. It returns early when it is half full.
    """
    for i in range(done, len(names)):
        if masses[i] == 0:
            continue
        if 2 * known >= len(slots):
            return known, i
        group = _group(names[i], slots, hashes, keys, totals, known)
        known = max(known, group + 1)
        totals[group, 0] += masses[i]
        for k in range(sums.shape[1]):
            totals[group, k + 1] += units[i] * sums[i, k]
    return known, len(names)


@strict
def gather_classes(
    classes: Integers,
    index: int,
    arity: int,
    grows: bool,
    first: Array,
    units: Array,
    parents: Array,
    slots: Integers,
    hashes: Bits,
    keys: Bits,
    totals: Array,
    known: int,
    done: int,
) -> tuple[int, int]:
    """Add the labels of leaves whose outcomes are given as classes; return the number of groups, and of parents done.

    `units[epoch]` is what a leaf counts for; the sums of the leaves go to `parents`.
    """
    label = np.empty(parents.shape[1])
    name = label.view(np.uint64)
    epoch, limit = 0, 2**62
    if grows:
        epoch, limit = epoch_of(index + done * arity, 0, arity)
    for parent in range(done, len(parents)):
        eldest, counts = parent * arity, parents[parent]
        if index + eldest == limit:
            epoch += 1
            limit *= arity
        if 2 * (known + arity) >= len(slots):
            return known, parent
        counts[:] = 0.0
        label[:] = first
        for i in range(eldest, min(len(classes), eldest + arity)):
            if i > eldest:
                seen = float(i - eldest)
                for k in range(len(label)):
                    label[k] = counts[k] / seen
            group = _group(name, slots, hashes, keys, totals, known)
            known = max(known, group + 1)
            totals[group, 0] += units[epoch]
            totals[group, classes[i] + 1] += units[epoch]
            counts[classes[i]] += 1.0
    return known, len(parents)


@strict
def _group(name: Bits, slots: Integers, hashes: Bits, keys: Bits, totals: Array, known: int) -> int:
    """Return the group of a point, given by its bits; a new one if it has none."""
    code = np.uint64(0x9E3779B97F4A7C15)
    for k in range(len(name)):
        code = (code ^ name[k]) * np.uint64(0xFF51AFD7ED558CCD)
        code ^= code >> np.uint64(32)
    mask = np.uint64(len(slots) - 1)
    slot = code & mask
    while True:
        group = slots[slot]
        if group < 0:
            break
        if hashes[group] == code:
            same = True
            for k in range(len(name)):
                same = same and keys[group, k] == name[k]
            if same:
                return int(group)
        slot = (slot + np.uint64(1)) & mask
    slots[slot] = known
    hashes[known] = code
    for k in range(len(name)):
        keys[known, k] = name[k]
    totals[known, :] = 0.0
    return known


@strict
def rehash(slots: Integers, hashes: Bits, known: int) -> None:
    """Put all groups into a new table."""
    mask = np.uint64(len(slots) - 1)
    for group in range(known):
        slot = hashes[group] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = group
