"""The tree's hot loops: labels, errors and sums of whole levels, and steps of a bank.

Sums and divisions are those of `LabelledPath`, in its order and never fused, so that labels are the same bit for bit.
Only norms may be added up in another order.
"""

from __future__ import annotations

import numpy as np

from treecal._typing import Array, Integers
from treecal.engine._compile import loose, strict


@loose
def first_off_simplex(rows: Array, tol: float) -> int:
    """Return the first row that is not a probability vector, or −1."""
    for i in range(rows.shape[0]):
        total, size = 0.0, 0.0
        for k in range(rows.shape[1]):
            total += rows[i, k]
            size += abs(rows[i, k])
        if not (total >= 1 - tol and size <= 1 + tol):  # NaN fails both
            return i
    return -1


@strict
def bank_add(keys: Integers, rows: Array, rounds: Integers, sums: Array, arity: int, grows: bool, done: int) -> int:
    """Add row after row to the streams of a bank; return how many are done, fewer when a tree needs a new height."""
    for i in range(done, len(keys)):
        stream = keys[i]
        now = rounds[stream] + 1
        risen = _carries(now, arity) if now % arity == 0 else 0
        if grows and risen >= len(sums):
            return i
        rounds[stream] = now
        own, row = sums[0, stream], rows[i]
        for k in range(len(row)):
            own[k] += row[k]
        if 0 < risen < len(sums):  # when a tree of fixed depth is full, nothing is carried
            _carry(sums, stream, risen)
    return len(keys)


@strict
def bank_count(
    keys: Integers, classes: Integers, rounds: Integers, sums: Array, arity: int, grows: bool, done: int
) -> int:
    """Add outcomes given as classes to the streams of a bank, as `bank_add` does."""
    for i in range(done, len(keys)):
        stream = keys[i]
        now = rounds[stream] + 1
        risen = _carries(now, arity) if now % arity == 0 else 0
        if grows and risen >= len(sums):
            return i
        rounds[stream] = now
        sums[0, stream, classes[i]] += 1.0
        if 0 < risen < len(sums):
            _carry(sums, stream, risen)
    return len(keys)


@strict
def _carries(rounds: int, arity: int) -> int:
    """Return how many heights up the sums are carried when so many rounds are over."""
    height = 0
    while rounds % arity == 0:
        rounds //= arity
        height += 1
    return height


@strict
def _carry(sums: Array, stream: int, risen: int) -> None:
    for height in range(risen):
        for k in range(sums.shape[2]):
            sums[height + 1, stream, k] += sums[height, stream, k]
            sums[height, stream, k] = 0.0


@strict
def bank_labels(
    keys: Integers, rounds: Integers, sums: Array, arity: int, first: Array, mix: float, pull: Array, points: Array
) -> None:
    """Write the labels on each stream's path, `points[i, height]`."""
    for i in range(len(keys)):
        now, power = rounds[i], 1
        for height in range(points.shape[1]):
            digit = now % arity
            _label(sums[height, keys[i]], digit * power, first, mix, pull, points[i, height])
            now //= arity
            power *= arity


@strict
def _label(total: Array, count: int, first: Array, mix: float, pull: Array, label: Array) -> None:
    """Write the mean of the finished siblings' outcomes; for a first child the start point."""
    if count == 0:
        label[:] = first
        return
    divisor = float(count)
    for k in range(len(label)):
        label[k] = total[k] / divisor
    if mix != 0:
        for k in range(len(label)):
            label[k] *= 1 - mix
            label[k] += pull[k]


@strict
def label_rows(
    rows: Array, arity: int, count: int, first: Array, mix: float, pull: Array, labels: Array, parents: Array
) -> None:
    """Label nodes of one height, the first of them a first child, and add each up into its parent."""
    for parent in range(len(parents)):
        eldest = parent * arity
        for k in range(rows.shape[1]):
            labels[eldest, k] = first[k]
            parents[parent, k] = 0.0 + rows[eldest, k]
        for i in range(eldest + 1, min(len(rows), eldest + arity)):
            divisor = float((i - eldest) * count)
            for k in range(rows.shape[1]):
                total = parents[parent, k]
                labels[i, k] = total / divisor
                parents[parent, k] = total + rows[i, k]
            if mix != 0:
                for k in range(rows.shape[1]):
                    labels[i, k] *= 1 - mix
                    labels[i, k] += pull[k]


@strict
def epoch_of(index: int, height: int, arity: int) -> tuple[int, int]:
    """Return the number of heights the tree has when this node starts, and the next node from which it has more."""
    epoch, limit = height + 1, arity
    while limit <= index:
        epoch += 1
        limit *= arity
    return epoch, limit


# What is stored here, `total + value`, is the tree's own sum: one addition a row, which there is nothing to reassociate
# with. Only the norms are sums that the compiler may reorder.
@loose
def climb(
    rows: Array,
    height: int,
    index: int,
    arity: int,
    count: int,
    last: int,
    grows: bool,
    first: Array,
    mix: float,
    pull: Array,
    parents: Array,
    totals: Array,
    few: tuple[int, ...],
) -> None:
    """Go up one height: add errors to `totals[epoch]`, and write the sums of the nodes above.

    `rows` are the outcome sums of nodes of one height, the first of them number `index`, a first child; each has
    `count` rounds, the last one `last`. The errors of a node are `‖g‖₁`, `‖g‖₂` and `‖g‖₂²/rounds`, `g` being its sum
    less its label times its rounds: with `total` its elder siblings' sum and `digit` their number, that is
    `(f·row − (1−mix)·total − f·rounds·pull) / f` with `f = digit·count/rounds`, with no division for each coordinate.

    Where coordinates are few, `few` has one entry for each, and is empty elsewhere: the length of a tuple is known to
    the compiler, which then writes the loops out.
    """
    dim = len(few) or rows.shape[1]
    epoch, limit = 0, 2**62
    if grows:
        epoch, limit = epoch_of(index, height, arity)
    weight = 1.0 - mix
    for parent in range(len(parents)):
        eldest = parent * arity
        if index + eldest == limit:
            epoch += 1
            limit *= arity
        one, two, square = 0.0, 0.0, 0.0
        rounds = float(last if eldest == len(rows) - 1 else count)
        size, squares = 0.0, 0.0
        for k in range(dim):
            value = rows[eldest, k]
            gap = value - rounds * first[k]
            size += abs(gap)
            squares += gap * gap
            parents[parent, k] = 0.0 + value
        if not (grows and height > 0 and index + eldest == 0):  # when the tree grew above it, it was over
            one, two, square = size, np.sqrt(squares), squares / rounds
        for i in range(eldest + 1, min(len(rows), eldest + arity)):
            rounds = float(last if i == len(rows) - 1 else count)
            factor = float((i - eldest) * count) / rounds
            drawn = factor * rounds
            size, squares = 0.0, 0.0
            for k in range(dim):
                value, total = rows[i, k], parents[parent, k]
                gap = factor * value - weight * total - drawn * pull[k]
                size += abs(gap)
                squares += gap * gap
                parents[parent, k] = total + value
            one += size / factor
            two += np.sqrt(squares) / factor
            square += squares / (factor * drawn)
        totals[epoch, 0] += one
        totals[epoch, 1] += two
        totals[epoch, 2] += square


@loose
def climb_leaves(
    rows: Array,
    index: int,
    arity: int,
    grows: bool,
    first: Array,
    tol: float,
    parents: Array,
    totals: Array,
    few: tuple[int, ...],
) -> bool:
    """Go up from the leaves, without mixing; return whether all rows are probability vectors for certain.

    They are if their sums are 1 within `tol` and nothing is negative, which is seen to once for all rows.
    """
    dim = len(few) or rows.shape[1]
    epoch, limit = 0, 2**62
    if grows:
        epoch, limit = epoch_of(index, 0, arity)
    inverse = 1.0 / np.maximum(1, np.arange(arity))
    least, off = np.zeros(dim), 0
    for parent in range(len(parents)):
        eldest = parent * arity
        if index + eldest == limit:
            epoch += 1
            limit *= arity
        size, squares, mass = 0.0, 0.0, 0.0
        for k in range(dim):
            value = rows[eldest, k]
            gap = value - first[k]
            size += abs(gap)
            squares += gap * gap
            mass += value
            least[k] = min(least[k], value)
            parents[parent, k] = 0.0 + value
        off += not abs(mass - 1.0) <= tol  # NaN compares as False
        one, two, square = size, np.sqrt(squares), squares
        for i in range(eldest + 1, min(len(rows), eldest + arity)):
            digit = float(i - eldest)
            size, squares, mass = 0.0, 0.0, 0.0
            for k in range(dim):
                value, total = rows[i, k], parents[parent, k]
                gap = digit * value - total
                size += abs(gap)
                squares += gap * gap
                mass += value
                least[k] = min(least[k], value)
                parents[parent, k] = total + value
            off += not abs(mass - 1.0) <= tol
            scale = inverse[i - eldest]
            one += size * scale
            two += np.sqrt(squares) * scale
            square += squares * scale * scale
        totals[epoch, 0] += one
        totals[epoch, 1] += two
        totals[epoch, 2] += square
    return off == 0 and least.min() >= 0


@strict
def climb_classes(
    classes: Integers, index: int, arity: int, grows: bool, first: Array, parents: Array, totals: Array
) -> None:
    """Go up from leaves whose outcomes are given as classes, without mixing: `O(1)` a leaf, whatever the dimension."""
    start_size, start_squares = 0.0, 0.0
    for k in range(len(first)):
        start_size += abs(first[k])
        start_squares += first[k] * first[k]
    epoch, limit = 0, 2**62
    if grows:
        epoch, limit = epoch_of(index, 0, arity)
    for parent in range(len(parents)):
        eldest, counts = parent * arity, parents[parent]
        if index + eldest == limit:
            epoch += 1
            limit *= arity
        counts[:] = 0.0
        k = classes[eldest]
        squares = max(start_squares + 1.0 - 2.0 * first[k], 0.0)
        one, two, square = start_size - abs(first[k]) + abs(1.0 - first[k]), np.sqrt(squares), squares
        counts[k] = 1.0
        length = 1.0  # ‖counts‖²
        for i in range(eldest + 1, min(len(classes), eldest + arity)):
            k, seen = classes[i], float(i - eldest)
            share = counts[k] / seen
            squares = max(1.0 - 2.0 * share + length / (seen * seen), 0.0)
            one += 2.0 * (1.0 - share)
            two += np.sqrt(squares)
            square += squares
            length += 2.0 * counts[k] + 1.0
            counts[k] += 1.0
        totals[epoch, 0] += one
        totals[epoch, 1] += two
        totals[epoch, 2] += square


@strict
def climb_inner(
    size: int,
    heights: int,
    index: int,
    arity: int,
    grows: bool,
    first: Array,
    mix: float,
    pull: Array,
    nodes: Array,
    totals: Array,
    few: tuple[int, ...],
) -> None:
    """Climb on from height 1 in a piece of `size` leaves: `nodes` holds its sums, and takes those of heights above."""
    offset, count = 0, arity
    for height in range(1, heights):
        here = (size + count - 1) // count
        above = (here + arity - 1) // arity
        climb(
            nodes[offset : offset + here],
            height,
            index // count,
            arity,
            count,
            size - (here - 1) * count,
            grows,
            first,
            mix,
            pull,
            nodes[offset + here : offset + here + above],
            totals[height],
            few,
        )
        offset += here
        count *= arity
