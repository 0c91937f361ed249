"""Triton kernels that climb the tree of a whole stream: two heights at a time, each outcome read once.

A lane is one node of two heights up (of one, if nodes have many children), and goes through its outcomes in order, as
the CPU does: sums are the same, bit for bit. Errors are added up within a lane, then over lanes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_DIM = 1024
"""Rows of more coordinates are left to the CPU."""
MOST_ROWS = 2**31 - 2**12
_UNROLLED = 16  # children of a node, at most, for two heights at a time and for loops without a counter
_TILE = 512  # numbers that a program holds of each of its lanes' rows


@triton.jit
def _measured(gap, scale, square, one, two, three):
    """Add the errors of the nodes with these gaps, once for each lane."""
    squares = tl.sum(gap * gap, axis=1)
    one += scale * tl.abs(gap)
    # The root by one step of Newton's from that in float32: to 1e-14, at a third of the cost.
    near = tl.rsqrt(tl.maximum(squares, 1e-30).to(tl.float32)).to(tl.float64)
    root = squares * near
    root += 0.5 * near * (squares - root * root)
    two += scale * root
    three += square * squares
    return one, two, three


@triton.jit
def _row(x, row, k, rows, dim, least, most, off, CLASSES: tl.constexpr, CHECK: tl.constexpr):
    """Return a row of each lane, and what rows are checked by: the smallest and largest entries, how many are off."""
    real = row < rows
    if CLASSES:
        label = tl.where(real, tl.load(x + row, mask=real, other=0).to(tl.int64), -1)  # of no class
        value = (k[None, :] == label[:, None]).to(tl.float64)
        off += ((label < 0) | (label >= dim)).to(tl.int32)
    else:
        at = row.to(tl.int64)[:, None] * dim + k[None, :]
        raw = tl.load(x + at, mask=real[:, None] & (k < dim)[None, :], other=0.0)
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
    x,
    eldest,
    k,
    rows,
    dim,
    start,
    rounds,
    one,
    two,
    three,
    least,
    most,
    off,
    ARITY: tl.constexpr,
    UNROLL: tl.constexpr,
    CLASSES: tl.constexpr,
    CHECK: tl.constexpr,
):
    """Go through the children of a node in each lane; return their sum."""
    total, least, most, off = _row(x, eldest, k, rows, dim, least, most, off, CLASSES, CHECK)
    one, two, three = _measured(total - rounds * start, 1.0, 1.0 / rounds, one, two, three)
    if UNROLL:
        for i in tl.static_range(1, ARITY):
            value, least, most, off = _row(x, eldest + i, k, rows, dim, least, most, off, CLASSES, CHECK)
            one, two, three = _measured(i * value - total, 1.0 / i, 1.0 / i / i / rounds, one, two, three)
            total += value
    else:
        for i in tl.range(1, ARITY):
            value, least, most, off = _row(x, eldest + i, k, rows, dim, least, most, off, CLASSES, CHECK)
            part = tl.full((), 1.0, tl.float64) / i
            one, two, three = _measured(i * value - total, part, part * part / rounds, one, two, three)
            total += value
    return total, one, two, three, least, most, off


@triton.jit(do_not_specialize=["rows", "lanes", "whole", "length", "parts", "digits"])
def _climb(
    x,
    out,
    found,
    first,
    low,
    high,
    rows,
    lanes,
    whole,
    dim,
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
    UNROLL: tl.constexpr,
):
    """Write the sum of each lane, and the errors within whole lanes, all but the first, of these heights.

    `CHECK` says what outcomes are checked for: 0 nothing, 1 a simplex, 2 a box, 3 classes. `parts` is the number of heights of the tree; if it grows, of those below a lane's own digits.
    """
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    k = tl.arange(0, DIM)
    rounds = length.to(tl.float64)
    start = tl.load(first + k, mask=k < dim, other=0.0)[None, :]
    one, two, three = tl.zeros([LANES, DIM], tl.float64), tl.zeros([LANES], tl.float64), tl.zeros([LANES], tl.float64)
    kind = tl.float64 if CLASSES else x.dtype.element_ty
    least = tl.full([LANES, DIM], float("inf"), kind)
    most = tl.full([LANES, DIM], -float("inf"), kind)
    off = tl.zeros([LANES], tl.int32)
    if HEIGHTS == 1:
        total, one, two, three, least, most, off = _children(
            x, lane * ARITY, k, rows, dim, start, rounds, one, two, three, least, most, off,
            ARITY, UNROLL, CLASSES, CHECK,
        )  # fmt: skip
    else:
        own = rounds * ARITY
        total, one, two, three, least, most, off = _children(
            x, lane * ARITY * ARITY, k, rows, dim, start, rounds, one, two, three, least, most, off,
            ARITY, UNROLL, CLASSES, CHECK,
        )  # fmt: skip
        one, two, three = _measured(total - own * start, 1.0, 1.0 / own, one, two, three)
        for i in tl.range(1, ARITY):
            value, one, two, three, least, most, off = _children(
                x, (lane * ARITY + i) * ARITY, k, rows, dim, start, rounds, one, two, three, least, most, off,
                ARITY, UNROLL, CLASSES, CHECK,
            )  # fmt: skip
            part = tl.full((), 1.0, tl.float64) / i
            one, two, three = _measured(i * value - total, part, part * part / own, one, two, three)
            total += value
    at = lane.to(tl.int64)[:, None] * dim + k[None, :]
    tl.store(out + at, total, mask=(lane < lanes)[:, None] & (k < dim)[None, :])
    heights = tl.full([LANES], 0, tl.int32) + parts
    if GROWS:
        limit = tl.full([LANES], 1, tl.int64)
        for _ in tl.range(0, digits):
            heights += (lane >= limit).to(tl.int32)
            limit *= ARITY
    counts = (lane > 0) & (lane < whole)
    weight = tl.where(counts, 1.0 / heights.to(tl.float64), 0.0)
    errors = tl.sum(one, axis=1)
    slot = found + tl.program_id(0) * 4
    tl.store(slot, tl.sum(weight * errors, axis=0))
    tl.store(slot + 1, tl.sum(weight * two, axis=0))
    tl.store(slot + 2, tl.sum(weight * three, axis=0))
    if CHECK > 0:
        # NaN compares as False; it is in a sum, and so in the errors.
        inside = (errors == errors) & (off == 0)
        if CHECK == 1:
            inside = inside & (tl.min(least, axis=1) >= 0.0)
        if CHECK == 2:
            lowest = tl.load(low + k, mask=k < dim, other=-float("inf"))[None, :]
            highest = tl.load(high + k, mask=k < dim, other=float("inf"))[None, :]
            outside = (least.to(tl.float64) < lowest) | (most.to(tl.float64) > highest)
            inside = inside & (tl.sum(outside.to(tl.int32), axis=1) == 0)
        refused = ((lane < whole) & (inside == 0)).to(tl.float64)
        tl.store(slot + 3, tl.sum(refused, axis=0))
    else:
        tl.store(slot + 3, 0.0)


def heights_at_once(arity: int) -> int:
    """Return how many heights a lane climbs at a time."""
    return 2 if arity <= _UNROLLED else 1


def lanes_of(dim: int) -> int:
    """Return how many lanes a program has."""
    return max(1, _TILE // max(2, triton.next_power_of_2(dim)))


def climb(
    rows: Tensor,
    first: Tensor,
    *,
    arity: int,
    heights: int,
    length: int,
    whole: int,
    parts: int,
    grows: bool,
    check: int,
    bounds: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Return the sums of the lanes, and by program their errors in ℓ1, ℓ2 and ℓ2², and how many were refused."""
    dim = len(first)
    lanes = triton.cdiv(len(rows), arity**heights)
    size = lanes_of(dim)
    out = torch.empty(lanes, dim, dtype=torch.float64, device=rows.device)
    found = torch.empty(triton.cdiv(lanes, size), 4, dtype=torch.float64, device=rows.device)
    digits, power = 0, 1
    while power <= lanes:
        digits, power = digits + 1, power * arity
    _climb[(len(found),)](
        rows,
        out,
        found,
        first,
        *bounds,
        len(rows),
        lanes,
        whole,
        dim,
        length,
        parts,
        digits,
        ARITY=arity,
        HEIGHTS=heights,
        GROWS=grows,
        CLASSES=rows.ndim == 1,
        CHECK=check,
        LANES=size,
        DIM=max(2, triton.next_power_of_2(dim)),
        UNROLL=arity <= _UNROLLED,
        num_warps=4,
    )
    return out, found
