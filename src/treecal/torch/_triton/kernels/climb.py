"""Triton kernels that climb the tree of a whole stream: two heights at a time, each outcome read once.

A lane is one node of two heights up (of one, if nodes have many children), and goes through its outcomes in order, as
the CPU does: sums are the same, bit for bit. Errors are added up within a lane, then over lanes.
"""

from __future__ import annotations

import triton
import triton.language as tl

# A row of few coordinates is held by one thread, so that norms need no exchange between threads. Its coordinates are
# read in pairs, which are joined, in any order that is always the same.


@triton.jit
def _pair(x, at, other, J: tl.constexpr, DIM: tl.constexpr):
    if 2 * J >= DIM:
        return tl.zeros([at.shape[0], 2], x.dtype.element_ty) + other
    else:
        k = 2 * J + tl.arange(0, 2)
        return tl.load(x + (at[:, None] + k[None, :]), mask=(k < DIM)[None, :], other=other)


@triton.jit
def _joined(a, b):
    return tl.reshape(tl.join(a, b), [a.shape[0], 2 * a.shape[1]])


@triton.jit
def _two(x, at, other, J: tl.constexpr, DIM: tl.constexpr):
    return _joined(_pair(x, at, other, J, DIM), _pair(x, at, other, J + 1, DIM))


@triton.jit
def _four(x, at, other, J: tl.constexpr, DIM: tl.constexpr):
    return _joined(_two(x, at, other, J, DIM), _two(x, at, other, J + 2, DIM))


@triton.jit
def _narrow(x, at, other, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """Return the rows that begin at these places, one for each thread."""
    if WIDTH == 2:
        return _pair(x, at, other, 0, DIM)
    elif WIDTH == 4:
        return _two(x, at, other, 0, DIM)
    elif WIDTH == 8:
        return _four(x, at, other, 0, DIM)
    else:
        return _joined(_four(x, at, other, 0, DIM), _four(x, at, other, 4, DIM))


@triton.jit
def _halves(value):
    return tl.split(tl.reshape(value, [value.shape[0], value.shape[1] // 2, 2]))


@triton.jit
def _put_pair(out, at, value, mask, J: tl.constexpr, DIM: tl.constexpr):
    if 2 * J < DIM:
        k = 2 * J + tl.arange(0, 2)
        tl.store(out + (at[:, None] + k[None, :]), value, mask=mask[:, None] & (k < DIM)[None, :])


@triton.jit
def _put_two(out, at, value, mask, J: tl.constexpr, DIM: tl.constexpr):
    a, b = _halves(value)
    _put_pair(out, at, a, mask, J, DIM)
    _put_pair(out, at, b, mask, J + 1, DIM)


@triton.jit
def _put_four(out, at, value, mask, J: tl.constexpr, DIM: tl.constexpr):
    a, b = _halves(value)
    _put_two(out, at, a, mask, J, DIM)
    _put_two(out, at, b, mask, J + 2, DIM)


@triton.jit
def _put_narrow(out, at, value, mask, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """Write what `_narrow` reads."""
    if WIDTH == 2:
        _put_pair(out, at, value, mask, 0, DIM)
    elif WIDTH == 4:
        _put_two(out, at, value, mask, 0, DIM)
    elif WIDTH == 8:
        _put_four(out, at, value, mask, 0, DIM)
    else:
        a, b = _halves(value)
        _put_four(out, at, a, mask, 0, DIM)
        _put_four(out, at, b, mask, 4, DIM)


@triton.jit
def _rows(x, at, other, DIM: tl.constexpr, WIDTH: tl.constexpr, NARROW: tl.constexpr):
    """Return the rows that begin at these places, `(lanes, WIDTH)`."""
    if NARROW:
        return _narrow(x, at, other, DIM, WIDTH)
    else:
        k = tl.arange(0, WIDTH)
        return tl.load(x + (at[:, None] + k[None, :]), mask=(k < DIM)[None, :], other=other)


@triton.jit
def root(squares):
    """Return square roots, by one step of Newton's from those in float32: to 1e-14, at a third of the cost."""
    near = tl.rsqrt(tl.maximum(squares, 1e-30).to(tl.float32)).to(tl.float64)
    found = squares * near
    return found + 0.5 * near * (squares - found * found)


@triton.jit
def write_errors(slot, lane, whole, parts, digits, one, two, three, GROWS: tl.constexpr, ARITY: tl.constexpr):
    """Write the errors of whole lanes, all but the first, each over the number of heights that it is in."""
    heights = tl.full(lane.shape, 0, tl.int32) + parts
    if GROWS:
        limit = tl.full(lane.shape, 1, tl.int64)
        for _ in tl.range(0, digits):
            heights += (lane >= limit).to(tl.int32)
            limit *= ARITY
    weight = tl.where((lane > 0) & (lane < whole), 1.0 / heights.to(tl.float64), 0.0)
    # An incomplete lane may hold anything.
    tl.store(slot, tl.sum(tl.where(weight > 0, weight * one, 0.0), axis=0))
    tl.store(slot + 1, tl.sum(tl.where(weight > 0, weight * two, 0.0), axis=0))
    tl.store(slot + 2, tl.sum(tl.where(weight > 0, weight * three, 0.0), axis=0))


@triton.jit
def _measured(gap, scale, square, one, two, three):
    """Add the errors of the nodes with these gaps, one in each lane."""
    squares = tl.sum(gap * gap, axis=1)
    one += scale * tl.sum(tl.abs(gap), axis=1)
    two += scale * root(squares)
    three += square * squares
    return one, two, three


@triton.jit
def _row(
    x, row, k, least, most, off,
    CLASSES: tl.constexpr, CHECK: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, NARROW: tl.constexpr,
):  # fmt: skip
    """Return a row of each lane, and what rows are checked by: the smallest and largest entries, how many are off."""
    if CLASSES:
        label = tl.load(x + row).to(tl.int32)
        value = (k == label[:, None]).to(tl.float64)
        off += ((label < 0) | (label >= DIM)).to(tl.int32)
    else:
        raw = _rows(x, row.to(tl.int64) * DIM, 0.0, DIM, WIDTH, NARROW)
        value = raw.to(tl.float64)
        if CHECK > 0:
            least = tl.minimum(least, raw)
        if CHECK == 1:  # a simplex
            off += (tl.abs(tl.sum(value, axis=1) - 1.0) > 1e-9).to(tl.int32)
        if CHECK == 2:  # a box
            most = tl.maximum(most, raw)
    return value, least, most, off


@triton.jit
def _children(
    x, eldest, k, start, rounds, inverse, one, two, three, least, most, off,
    ARITY: tl.constexpr, UNROLL: tl.constexpr, CLASSES: tl.constexpr, CHECK: tl.constexpr, DIM: tl.constexpr,
    WIDTH: tl.constexpr, NARROW: tl.constexpr,
):  # fmt: skip
    """Go through the children of a node in each lane; return their sum."""
    total, least, most, off = _row(x, eldest, k, least, most, off, CLASSES, CHECK, DIM, WIDTH, NARROW)
    one, two, three = _measured(total - rounds * start, 1.0, inverse, one, two, three)
    if UNROLL:
        for i in tl.static_range(1, ARITY):
            value, least, most, off = _row(x, eldest + i, k, least, most, off, CLASSES, CHECK, DIM, WIDTH, NARROW)
            one, two, three = _measured(value * i - total, 1.0 / i, inverse * (1.0 / i / i), one, two, three)
            total += value
    else:
        for i in tl.range(1, ARITY):
            value, least, most, off = _row(x, eldest + i, k, least, most, off, CLASSES, CHECK, DIM, WIDTH, NARROW)
            part = tl.full((), 1.0, tl.float64) / i
            one, two, three = _measured(value * i - total, part, part * part * inverse, one, two, three)
            total += value
    return total, one, two, three, least, most, off


@triton.jit(do_not_specialize=["source", "target", "program", "whole", "length", "parts", "digits"])
def climb_nodes(
    x,
    out,
    found,
    first,
    low,
    high,
    columns,
    source,
    target,
    program,
    whole,
    length,
    parts,
    digits,
    ARITY: tl.constexpr,
    HEIGHTS: tl.constexpr,
    GROWS: tl.constexpr,
    CLASSES: tl.constexpr,
    CHECK: tl.constexpr,
    LANES: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    NARROW: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Write the sum of each whole lane, and the errors within whole lanes, all but the first, of these heights.

    They are read from row `16·source` on and written from row `16·target` on; the errors from `program` on. `CHECK`
    says what outcomes are checked for: 0 nothing, 1 a simplex, 2 a box, 3 classes. `parts` is the number of heights of
    the tree; if it grows, of those below a lane's own digits.
    """
    x += source.to(tl.int64) * (16 if CLASSES else 16 * DIM)
    out += target.to(tl.int64) * (16 * DIM)
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    own_lane = tl.minimum(lane, whole - 1)  # those past the end do the last one's work again, for nothing
    rounds = length.to(tl.float64)
    inverse = 1.0 / rounds
    nowhere = lane * 0
    k = _rows(columns, nowhere, -1, DIM, WIDTH, NARROW)
    start = _rows(first, nowhere, 0.0, DIM, WIDTH, NARROW)
    one = tl.zeros([LANES], tl.float64)
    two = tl.zeros([LANES], tl.float64)
    three = tl.zeros([LANES], tl.float64)
    kind = tl.float64 if CLASSES else x.dtype.element_ty
    least = tl.full([LANES, WIDTH], float("inf"), kind)
    most = tl.full([LANES, WIDTH], -float("inf"), kind)
    off = tl.zeros([LANES], tl.int32)
    if HEIGHTS == 1:
        total, one, two, three, least, most, off = _children(
            x, own_lane * ARITY, k, start, rounds, inverse, one, two, three, least, most, off,
            ARITY, UNROLL, CLASSES, CHECK, DIM, WIDTH, NARROW,
        )  # fmt: skip
    else:
        total, one, two, three, least, most, off = _children(
            x, own_lane * ARITY * ARITY, k, start, rounds, inverse, one, two, three, least, most, off,
            ARITY, UNROLL, CLASSES, CHECK, DIM, WIDTH, NARROW,
        )  # fmt: skip
        own = rounds * ARITY
        share = 1.0 / own
        one, two, three = _measured(total - own * start, 1.0, share, one, two, three)
        for i in tl.range(1, ARITY):
            value, one, two, three, least, most, off = _children(
                x, (own_lane * ARITY + i) * ARITY, k, start, rounds, inverse, one, two, three, least, most, off,
                ARITY, UNROLL, CLASSES, CHECK, DIM, WIDTH, NARROW,
            )  # fmt: skip
            part = tl.full((), 1.0, tl.float64) / i
            one, two, three = _measured(value * i - total, part, part * part * share, one, two, three)
            total += value
    if NARROW:
        _put_narrow(out, lane.to(tl.int64) * DIM, total, lane < whole, DIM, WIDTH)
    else:
        column = tl.arange(0, WIDTH)
        at = lane.to(tl.int64)[:, None] * DIM + column[None, :]
        tl.store(out + at, total, mask=(lane < whole)[:, None] & (column < DIM)[None, :])
    slot = found + (program + tl.program_id(0)) * 4
    write_errors(slot, lane, whole, parts, digits, one, two, three, GROWS, ARITY)
    refused = tl.zeros([LANES], tl.int32)
    if CHECK > 0:
        # NaN compares as False; it is in a sum, and so in the errors.
        refused = off + (one != one).to(tl.int32)
    if CHECK == 1:
        refused += (tl.min(least, axis=1) < 0.0).to(tl.int32)
    if CHECK == 2:
        lowest = _rows(low, nowhere, -float("inf"), DIM, WIDTH, NARROW)
        highest = _rows(high, nowhere, float("inf"), DIM, WIDTH, NARROW)
        outside = (least.to(tl.float64) < lowest) | (most.to(tl.float64) > highest)
        refused += tl.sum(outside.to(tl.int32), axis=1)
    tl.store(slot + 3, tl.sum(((lane < whole) & (refused > 0)).to(tl.float64), axis=0))
