"""The hot loops of a replay: from the leaves of a piece up to its sum, adding up the errors of all nodes on the way.

Sums are those of `Path`, in its order and never fused, so that points are the same bit for bit. Only norms may be added
up in another order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treecal._compile import copy_into, strict
from treecal._lanes import (
    WIDTH,
    added,
    any_sign,
    beyond,
    both_added,
    chunk,
    fma,
    lanes_of,
    load,
    load_some,
    magnitude,
    no_chunks,
    plus,
    put,
    root,
    store,
    store_some,
    with_chunk,
    with_signs,
)
from treecal._typing import Array, Integers
from treecal.forecasters._tree.steps import Mix, TreeArgs, coordinate, first_off_simplex
from treecal.tree import digits

_FEW = 8  # chunks of a row, at most, that are kept in registers
_TOGETHER = 32  # nodes, about, whose norms are added up together
_NEAR = 2**19  # numbers in a block, at most: its nodes stay near the processor


def few_chunks(dim: int) -> tuple[int, ...]:
    """Return one entry for each chunk of a row, none for a long row: the compiler knows the length of a tuple."""
    chunks = -(-dim // WIDTH)
    return (0,) * chunks if chunks <= _FEW else ()


class Span(NamedTuple):
    """Consecutive nodes of one height: the number of the first, a first child; rounds in each, and in the last."""

    height: int
    start: int
    length: int
    last: int


class Room(NamedTuple):
    """What kernels need while they climb, made once for a piece: rows filled up to whole chunks, and norms of siblings.

    Of siblings, `digit` of which ended before each (for first children it counts as 1), `squares` are `digit²·‖gap‖₂²`,
    `others` the sums of entries or `digit·‖gap‖₁/2`, and `scale` is `1/digit`.
    """

    tol: float
    start: Array
    pull: Array
    total: Array
    squares: Array
    others: Array
    scale: Array
    scale_squared: Array


class Into(NamedTuple):
    """What climbing writes: the sums of the nodes above, and the errors, which it adds to."""

    sums: Array
    totals: Array


@strict
def new_room(arity: int, dim: int, mix: Mix | None, tol: float) -> Room:
    """Return room for a piece whose leaves, if they are rows, must be probability vectors within `tol`."""
    row = -(-dim // WIDTH) * WIDTH
    size = -(-max(arity, _TOGETHER // arity * arity) // WIDTH) * WIDTH
    pull = np.zeros(row)
    scale = 1.0 / np.maximum(1, np.arange(size) % arity)
    if mix is not None:
        copy_into(pull[:dim], mix.pull)
    return Room(tol, np.zeros(row), pull, np.zeros(row), np.zeros(size), np.zeros(size), scale, scale * scale)


@strict
def _epoch_of(index: int, height: int, tree: TreeArgs) -> tuple[int, int]:
    """Return the heights of a growing tree when this node starts, and the first later node with more."""
    if tree.depth > 0:
        return 0, 2**62
    limit = tree.arity
    while limit <= index:
        limit *= tree.arity
    return height + digits(index, tree.arity), limit


@strict
def climb(
    rows: Any,
    span: Span,
    tree: TreeArgs,
    mix: Mix | None,
    into: Into,
    few: tuple[int, ...],
    room: Room,
) -> bool:
    """Go up one height: add errors to `into.totals[heights of the tree]`, and write the sums of the nodes above.

    `rows` are the outcome sums of the nodes of a span. The errors of a node are `‖g‖₁`, `‖g‖₂` and `‖g‖₂²/rounds`, `g`
    being its sum less its point times its rounds: with `total` its finished siblings' sum and `digit` their number,
    `digit·g = digit·row − share·total − digit·length·pull`: no division by coordinate.

    Return whether all rows are surely probability vectors: no signs, and sums within `room.tol` of 1.
    """
    parents, totals = into
    dim = rows.shape[1]
    arity = tree.arity
    length = span.length
    chunks = len(few) or -(-dim // WIDTH)
    last = chunks - 1
    rest = dim - WIDTH * (chunks - 1)
    nothing = lanes_of(0.0)
    minus_nothing = lanes_of(-0.0)  # the latter can be left out of a sum
    signs = nothing
    off = nothing
    limit = lanes_of(room.tol)
    if len(few) > 0:
        total = no_chunks(few)
        start = no_chunks(few)
    else:
        total = room.total
        start = room.start
    whole = len(rows) - (span.last < length)
    begin = 0
    epoch, grown = _epoch_of(span.start, span.height, tree)
    unplayed = tree.depth == 0 and span.height > 0 and span.start == 0  # the first node had ended when the tree grew
    while begin < whole:  # as long as the tree has one number of heights
        end = min(whole, grown - span.start)
        for k in range(dim):
            room.start[k] = rows[0, k] if unplayed and begin == 0 else length * tree.first[k]
        for c in range(chunks):
            start = with_chunk(start, c, chunk(room.start, c))
        one = nothing
        two = nothing
        square = nothing
        slot = 0
        at = begin * dim
        for eldest in range(begin, end, arity):
            for c in range(chunks):
                total = with_chunk(total, c, nothing)
            for digit in range(min(arity, end - eldest)):
                size = minus_nothing
                squares = minus_nothing
                weight = minus_nothing
                factor = lanes_of(-1.0 * max(digit, 1))
                for c in range(chunks):
                    value = load(rows, at + WIDTH * c) if c < last else load_some(rows, at + WIDTH * c, rest)
                    before = chunk(total, c)
                    if digit == 0:
                        aim = chunk(start, c)
                    elif mix is None:
                        aim = before
                    else:
                        pulled = fma(lanes_of(float(length * digit)), chunk(room.pull, c), nothing)
                        aim = fma(lanes_of(mix.share), before, pulled)
                    gap = fma(factor, value, aim)
                    size = plus(size, magnitude(gap))
                    squares = fma(gap, gap, squares)
                    weight = plus(weight, value)
                    signs = with_signs(signs, value)
                    total = with_chunk(total, c, plus(before, value))
                one = fma(size, lanes_of(room.scale[digit]), one)
                both = both_added(squares, weight)
                put(room.squares, slot, both[0])
                put(room.others, slot, both[1])
                slot += 1
                at += dim
            to = eldest // arity * dim
            for c in range(chunks):
                if c < last:
                    store(parents, to + WIDTH * c, chunk(total, c))
                else:
                    store_some(parents, to + WIDTH * c, chunk(total, c), rest)
            if slot + arity > len(room.squares) or eldest + arity >= end:
                for j in range(slot, len(room.squares)):
                    room.squares[j] = 0.0
                    room.others[j] = 1.0
                for c in range(len(room.squares) // WIDTH):
                    squares = chunk(room.squares, c)
                    two = fma(root(squares), chunk(room.scale, c), two)
                    square = fma(squares, chunk(room.scale_squared, c), square)
                    off = beyond(magnitude(plus(chunk(room.others, c), lanes_of(-1.0))), limit, off)
                slot = 0
        totals[epoch, 0] += added(one)
        totals[epoch, 1] += added(two)
        totals[epoch, 2] += added(square) / length
        if span.start + end == grown:
            epoch += 1
            grown *= arity
        begin = end
    if whole < len(rows):
        counted = np.zeros(3) if unplayed and whole == 0 else totals[epoch]
        _climb_last(rows[whole], whole % arity, span, tree, mix, Into(parents[-1], counted))
    return not any_sign(with_signs(signs, off))


@strict
def _climb_last(row: Array, digit: int, span: Span, tree: TreeArgs, mix: Mix | None, into: Into) -> None:
    """Climb an unfinished node, after `digit` siblings, whose sum is there."""
    total, errors = into
    size = 0.0
    squares = 0.0
    for k in range(len(row)):
        if digit == 0:
            total[k] = 0.0
        gap = row[k] - span.last * coordinate(total[k], digit * span.length, k, tree.first[k], mix)
        size += abs(gap)
        squares += gap * gap
        total[k] += row[k]
    errors[0] += size
    errors[1] += np.sqrt(squares)
    errors[2] += squares / span.last


@strict
def climb_classes(classes: Integers, index: int, tree: TreeArgs, parents: Array, totals: Array, room: Room) -> int:
    """Go up from leaves whose outcomes are classes, without mixing: `O(1)` a leaf, whatever the dimension.

    With `count` of the `digit` siblings in the same class, `digit²·‖gap‖₂² = digit² − 2·digit·count + Σ counts²`, and
    `digit·‖gap‖₁ = 2·(digit − count)`. Return the first class that does not exist, or −1.
    """
    dim = parents.shape[1]
    arity = tree.arity
    first = tree.first
    nothing = lanes_of(0.0)
    start_size = 0.0
    start_squares = 0.0
    sums = parents.reshape(parents.size)
    for k in range(dim):
        start_size += abs(first[k])
        start_squares += first[k] * first[k]
    half_sizes = np.empty(dim)
    starts = np.empty(dim)
    for k in range(dim):
        half_sizes[k] = 0.5 * (start_size - abs(first[k]) + abs(1.0 - first[k]))
        starts[k] = max(start_squares + 1.0 - 2.0 * first[k], 0.0)
    epoch, grown = _epoch_of(index, 0, tree)
    i = 0
    while i < len(classes):  # as long as the tree has one number of heights
        end = min(len(classes), grown - index)
        one = nothing
        two = nothing
        square = nothing
        slot = 0
        while i < end:
            counts = parents[i // arity]
            digit = 0.0
            length = 0.0
            if slot == 0:  # a processor waits if it reads at once what was written in another width
                for j in range(i // arity * dim, min(len(sums), (i + len(room.squares)) // arity * dim)):
                    put(sums, j, 0.0)
            for _ in range(min(arity, end - i)):
                label = np.intp(classes[i])
                if label < 0 or label >= dim:
                    return i
                count = counts[label]
                if digit == 0.0:
                    put(room.squares, slot, starts[label])
                    put(room.others, slot, half_sizes[label])
                else:
                    put(room.squares, slot, length + digit * (digit - 2.0 * count))
                    put(room.others, slot, digit - count)
                counts[label] = count + 1.0
                length += 2.0 * count + 1.0
                digit += 1.0
                i += 1
                slot += 1
            if slot + arity > len(room.squares) or i == end:
                for j in range(slot, len(room.squares)):
                    room.squares[j] = room.others[j] = 0.0
                for c in range(len(room.squares) // WIDTH):
                    squares = chunk(room.squares, c)
                    scale = chunk(room.scale, c)
                    one = fma(chunk(room.others, c), scale, one)
                    two = fma(root(squares), scale, two)
                    square = fma(squares, chunk(room.scale_squared, c), square)
                slot = 0
        totals[epoch, 0] += 2.0 * added(one)
        totals[epoch, 1] += added(two)
        totals[epoch, 2] += added(square)
        epoch += 1
        grown *= arity
    return -1


@strict
def climb_leaves(
    leaves: Any,
    index: int,
    tree: TreeArgs,
    mix: Mix | None,
    into: Into,
    few: tuple[int, ...],
    room: Room,
) -> int:
    """Climb a piece, `len(into.totals)` heights, whose first round is number `index`; write its sum to `into.sums`.

    `leaves` are rows or, without mixing, classes. Add errors to `into.totals[height, heights of the tree]`. Return the
    first leaf that is no class, or no probability vector within `room.tol` unless that is infinite, or −1.

    Blocks go as far up as their nodes stay near the processor, one after the other; then all together.
    """
    total, totals = into
    tol = room.tol
    size = len(leaves)
    dim = len(total)
    arity = tree.arity
    top = len(totals)
    low = 1
    block = arity
    while low < top and block * arity * dim <= _NEAR:
        low += 1
        block *= arity
    blocks = (size + block - 1) // block
    inner = np.empty((2 * (block // arity) + low, dim))
    outer = np.empty((2 * blocks + top, dim))
    for number in range(blocks + 1):
        begin, end = (number * block, min(size, (number + 1) * block)) if number < blocks else (0, size)
        nodes, height, highest, count = (inner, 1, low, arity) if number < blocks else (outer, low, top, block)
        if number < blocks:
            part = leaves[begin:end]
            parents = inner[: (end - begin + arity - 1) // arity]
            bad = -1
            if leaves.ndim == 1:
                bad = climb_classes(part, index + begin, tree, parents, totals[0], room)
            else:
                sure = climb(part, Span(0, index + begin, 1, 1), tree, mix, Into(parents, totals[0]), few, room)
                if not sure and tol < np.inf:
                    bad = first_off_simplex(part, tol)
            if bad >= 0:
                return begin + bad
        offset = 0
        here = (end - begin + count - 1) // count
        while height < highest:
            above = (here + arity - 1) // arity
            span = Span(height, (index + begin) // count, count, end - begin - (here - 1) * count)
            rows = nodes[offset : offset + here]
            parents = nodes[offset + here : offset + here + above]
            climb(rows, span, tree, mix, Into(parents, totals[height]), few, room)
            offset += here
            here = above
            height += 1
            count *= arity
        if number < blocks:
            copy_into(outer[number], nodes[offset])
        else:
            copy_into(total, nodes[offset])
    return -1
