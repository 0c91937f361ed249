"""A Triton kernel that climbs the first two heights of a stream of short rows, at about the speed of memory.

A lane is one node of two heights up, and goes through its rows in order, as in `climb`: sums are the same, bit for
bit. A thread has one lane, and holds its rows. But the rows of different lanes are far apart, and threads would read 16
bytes here and there: therefore all threads together read the rows of a node of each lane, in pieces whose lengths are
powers of two, and then exchange them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from treecal.torch._triton.kernels.climb import root, write_errors

HAS_TUPLES = hasattr(tl, "tuple")
"""Whether this Triton is new enough."""


@triton.jit
def _piece(x, at, SIZE: tl.constexpr, BIT: tl.constexpr):
    """Return the piece of `BIT` numbers among `SIZE`, longest first; if there is none, anything."""
    if SIZE & BIT:
        return tl.load(x + (at[:, None] + (SIZE // (2 * BIT) * (2 * BIT) + tl.arange(0, BIT))[None, :]))
    else:
        return tl.zeros([at.shape[0], 2], x.dtype.element_ty)


@triton.jit
def _half(x, ODD: tl.constexpr):
    a, b = tl.split(tl.reshape(x, [x.shape[0], x.shape[1] // 2, 2]))
    if ODD:
        return b
    else:
        return a


@triton.jit
def _column(x, E: tl.constexpr):
    """Return a column of a piece."""
    if x.shape[1] == 2:
        a, b = tl.split(x)
    elif x.shape[1] == 4:
        a, b = tl.split(_half(x, E % 2))
    elif x.shape[1] == 8:
        a, b = tl.split(_half(_half(x, E % 2), E // 2 % 2))
    elif x.shape[1] == 16:
        a, b = tl.split(_half(_half(_half(x, E % 2), E // 2 % 2), E // 4 % 2))
    elif x.shape[1] == 32:
        a, b = tl.split(_half(_half(_half(_half(x, E % 2), E // 2 % 2), E // 4 % 2), E // 8 % 2))
    else:
        a, b = tl.split(_half(_half(_half(_half(_half(x, E % 2), E // 2 % 2), E // 4 % 2), E // 8 % 2), E // 16 % 2))
    if E >= x.shape[1] // 2:
        return b
    else:
        return a


@triton.jit
def _entry(pieces, E: tl.constexpr, SIZE: tl.constexpr):
    """Return the number at one place."""
    if E < SIZE // 64 * 64:
        return _column(pieces[0], E)
    elif E < SIZE // 32 * 32:
        return _column(pieces[1], E % 32)
    elif E < SIZE // 16 * 16:
        return _column(pieces[2], E % 16)
    elif E < SIZE // 8 * 8:
        return _column(pieces[3], E % 8)
    elif E < SIZE // 4 * 4:
        return _column(pieces[4], E % 4)
    else:
        return _column(pieces[5], E % 2)


@triton.jit
def _of(values, K: tl.constexpr, ALIKE: tl.constexpr):
    """Return the entry of a coordinate; if all are alike, the first: it stays in a register."""
    if ALIKE:
        return tl.load(values)
    else:
        return tl.load(values + K)


@triton.jit
def _node(
    x, eldest, first, low, high, least, most, off,
    ARITY: tl.constexpr, GROUP: tl.constexpr, CHECK: tl.constexpr, DIM: tl.constexpr, ALIKE: tl.constexpr,
):  # fmt: skip
    """Go through the rows of a node of each lane; return their sum, and their errors in ℓ1, ℓ2 and ℓ2².

    They are checked by the smallest and the largest entry so far (in a box whose edges differ, by how far from them
    entries are at least), and on a simplex by how many do not add up to 1.
    """
    SIZE: tl.constexpr = GROUP * DIM
    one = tl.zeros([eldest.shape[0]], tl.float64)
    two = tl.zeros([eldest.shape[0]], tl.float64)
    three = tl.zeros([eldest.shape[0]], tl.float64)
    total = ()
    for j in tl.static_range(ARITY // GROUP):
        at = (eldest + j * GROUP).to(tl.int64) * DIM
        pieces = (
            _piece(x, at, SIZE, 64), _piece(x, at, SIZE, 32), _piece(x, at, SIZE, 16), _piece(x, at, SIZE, 8),
            _piece(x, at, SIZE, 4), _piece(x, at, SIZE, 2),
        )  # fmt: skip
        for i in tl.static_range(GROUP):
            size = tl.zeros([eldest.shape[0]], tl.float64)
            squares = tl.zeros([eldest.shape[0]], tl.float64)
            weight = tl.zeros([eldest.shape[0]], tl.float64)
            after = ()
            for k in tl.static_range(DIM):
                raw = _entry(pieces, i * DIM + k, SIZE).to(tl.float32)
                value = raw.to(tl.float64)
                if CHECK == 2 and not ALIKE:
                    least = tl.minimum(least, tl.minimum(raw - tl.load(low + k), tl.load(high + k) - raw))
                else:
                    least = tl.minimum(least, raw)
                if CHECK == 2 and ALIKE:
                    most = tl.maximum(most, raw)
                if CHECK == 1:
                    weight += value
                if j + i == 0:
                    gap = value - _of(first, k, ALIKE)
                    after = after + (value,)
                else:
                    gap = value * (j * GROUP + i) - total[k]
                    after = after + (total[k] + value,)
                size += tl.abs(gap)
                squares += gap * gap
            total = after
            if CHECK == 1:
                off += (tl.abs(weight - 1.0) > 1e-9).to(tl.int32)
            if j + i == 0:
                one = one + size
                two = two + root(squares)
                three = three + squares
            else:
                one += size * (1.0 / (j * GROUP + i))
                two += root(squares) * (1.0 / (j * GROUP + i))
                three += squares * (1.0 / (j * GROUP + i) / (j * GROUP + i))
    return total, one, two, three, least, most, off


@triton.jit(do_not_specialize=["whole", "parts", "digits"])
def climb_rows(
    x, out, found, first, low, high, whole, parts, digits,
    ARITY: tl.constexpr, HEIGHTS: tl.constexpr, GROWS: tl.constexpr, CHECK: tl.constexpr, LANES: tl.constexpr,
    DIM: tl.constexpr, GROUP: tl.constexpr, ALIKE: tl.constexpr,
):  # fmt: skip
    """Do what `climb_nodes` does, for rows at height 0. `ALIKE`: start and bounds are the same in all coordinates."""
    lane = tl.program_id(0) * LANES + tl.arange(0, LANES)
    own_lane = tl.minimum(lane, whole - 1)  # those past the end do the last one's work again, for nothing
    eldest = own_lane * (ARITY * ARITY if HEIGHTS == 2 else ARITY)
    least = tl.full([LANES], float("inf"), tl.float32)
    most = tl.full([LANES], -float("inf"), tl.float32)
    off = tl.zeros([LANES], tl.int32)
    total, one, two, three, least, most, off = _node(
        x, eldest, first, low, high, least, most, off, ARITY, GROUP, CHECK, DIM, ALIKE
    )
    if HEIGHTS == 2:
        size = tl.zeros([LANES], tl.float64)
        squares = tl.zeros([LANES], tl.float64)
        for k in tl.static_range(DIM):
            gap = total[k] - ARITY * _of(first, k, ALIKE)
            size += tl.abs(gap)
            squares += gap * gap
        one = one + size
        two = two + root(squares)
        three = three + squares * (1.0 / ARITY)
        for i in tl.range(1, ARITY):
            added, own, more, some, least, most, off = _node(
                x, eldest + i * ARITY, first, low, high, least, most, off, ARITY, GROUP, CHECK, DIM, ALIKE
            )
            part = tl.full((), 1.0, tl.float64) / i
            size = tl.zeros([LANES], tl.float64)
            squares = tl.zeros([LANES], tl.float64)
            after = ()
            for k in tl.static_range(DIM):
                gap = added[k] * i - total[k]
                size += tl.abs(gap)
                squares += gap * gap
                after = after + (total[k] + added[k],)
            total = after
            one = one + own + size * part
            two = two + more + root(squares) * part
            three += some + squares * (part * part * (1.0 / ARITY))
    for k in tl.static_range(DIM):
        tl.store(out + lane.to(tl.int64) * DIM + k, total[k], mask=lane < whole)
    slot = found + tl.program_id(0) * 4
    write_errors(slot, lane, whole, parts, digits, one, two, three, GROWS, ARITY)
    # NaN compares as False; it is in a sum, and so in the errors.
    refused = (off > 0) | (one != one)
    if CHECK == 2 and ALIKE:
        refused = refused | (least < tl.load(low)) | (most > tl.load(high))
    else:
        refused = refused | (least < 0)
    tl.store(slot + 3, tl.sum(((lane < whole) & refused).to(tl.float64), axis=0))
