"""Triton kernels of the metric and of recalibration: each row of logits is read once.

The metric counts as `treecal.torch._tally` does, in the same integers. A program goes through tiles of rows, with all
classes side by side, and keeps the sum of each class in registers. Of a row of many classes at most `bins` are not in
the lowest bin, so that those are added to the counts one by one, and what is in the lowest bin follows from the rest.

* Sums of probabilities: adding 2 to a float64 makes its bits count multiples of 2^-51, from those of 2 on; the bits of
  2 are 2^62, four rows of which are 2^64, which is 0.
* Squares of float32 numbers are exact in float64. Adding `MAGIC` makes their bits count multiples of 2^-58, if they are
  below 2^-7; of larger ones, which are few, the difference is added up apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from treecal.auditing._counts import LOG_SCALE, MAGIC
from treecal.torch._tally import HALF, LOW, TWO, edges

_MOST_ROWS = 2048  # of a program: sums of so many rows fit into 62 bits
_REGISTERS = 128  # of a thread
_EACH = 4  # programs on a multiprocessor
_ROWS, _TILE, _EACH_WARP = 4, 8192, 1024  # of a tile: its rows, its numbers, and those of each warp
_FEW_BINS = 64  # of the most likely class, which are summed within a program
_NONE = 2**31 - 1

_LOG2E = tl.constexpr(1.4426950408889634)
_MAGIC = tl.constexpr(MAGIC)
_MAGIC_BITS = tl.constexpr(int(np.float64(MAGIC).view(np.int64)))
_TWO_BITS = tl.constexpr(TWO)
_SQUARE = tl.constexpr(2.0**58)
_HALF, _LOW = tl.constexpr(HALF), tl.constexpr(LOW)
_SCALE = tl.constexpr(LOG_SCALE)

_BODY = """
mul.rz.f32 t, p, {bins};
cvt.rzi.s32.f32 bin, t;
cvt.rzi.s32.f32 width, {bins};
sub.s32 step, width, 1;
min.s32 bin, bin, step;
setp.eq.s32 test, bin, 0;
@test bra LOWEST;
mul.f32 t, p, 0f4C000000;
cvt.rzi.s32.f32 step, t;
cvt.rn.f32.s32 u, step;
sub.f32 t, t, u;
mul.f32 t, t, 0f4C800000;
mad.lo.s32 bin, k, width, bin;
mad.wide.s32 at, bin, 8, {cells};
mov.s64 part, 1;
red.global.add.u64 [at], part;
add.s64 at, at, {size};
cvt.s64.s32 part, step;
red.global.add.u64 [at], part;
cvt.rzi.s32.f32 step, t;
add.s64 at, at, {half};
cvt.s64.s32 part, step;
red.global.add.u64 [at], part;
LOWEST:
setp.lt.f32 test, p, 0f3D800000;
@test bra SMALL;
mul.f32 t, p, 0f4D800000;
cvt.rzi.u32.f32 step, t;
mul.wide.u32 amount, step, step;
shl.b64 amount, amount, 2;
cvt.f64.f32 d, p;
fma.rn.f64 d, d, d, 0d{magic:016X};
mov.b64 part, d;
sub.s64 part, part, {magic};
sub.s64 amount, amount, part;
mad.wide.s32 at, row, 8, {squares};
red.global.add.u64 [at], amount;
SMALL:
setp.lt.f32 test, p, best;
@test bra NEXT;
mad.wide.s32 at, row, 8, {tops};
cvt.s64.s32 part, k;
red.global.min.s64 [at], part;
NEXT:
"""
# All of it is exact in float32, for probabilities above 2^-28: `p·bins` rounded towards 0 has the same floor, `p·2^25`
# and its fraction times 2^26 are the halves, and from 1/16 on `(p·2^28)²·4` is the square in units of 2^-58.


def _rare(pack: int) -> str:
    """Return the assembler for so many probabilities: nothing, if all are below the limit of their row.

    That is nearly always so, and a branch for a warp as a whole. Operations with masks would cost all of it every time.
    """
    names = ("p", "limit", "best", "k", "row", "bins", "cells", "size", "half", "squares", "tops")
    own = [{name: f"${pack * (place + 1) + j}" for place, name in enumerate(names)} for j in range(pack)]
    magic = int(np.float64(MAGIC).view(np.int64))
    chosen = "".join(
        f"setp.eq.s32 test, step, {j};"
        + "".join(f"selp.{kind} {name}, {each[name]}, {name}, test;" for name, kind in _CHOSEN.items())
        for j, each in enumerate(own)
    )
    # One by one: code for each would be too long for the multiprocessor's cache.
    return (
        "{.reg .pred any, test;.reg .f32 t, u, p, best;.reg .f64 d;.reg .s64 amount, part, at;"
        ".reg .s32 bin, step, width, k, row;.reg .b32 mask, bit;"
        + "".join(f"mov.u32 ${j}, 0;" for j in range(pack))
        + f"setp.ge.f32 any, {own[0]['p']}, {own[0]['limit']};"
        + "".join(f"setp.ge.or.f32 any, {each['p']}, {each['limit']}, any;" for each in own[1:])
        + "@!any bra DONE;mov.b32 mask, 0;"
        + "".join(
            f"setp.ge.f32 test, {each['p']}, {each['limit']};selp.b32 bit, {1 << j}, 0, test;or.b32 mask, mask, bit;"
            for j, each in enumerate(own)
        )
        + "".join(f"mov.{kind} {name}, {own[0][name]};" for name, kind in _CHOSEN.items())
        + "LOOP:brev.b32 bit, mask;clz.b32 step, bit;sub.s32 bin, mask, 1;and.b32 mask, mask, bin;"
        + chosen
        + _BODY.format(magic=magic, **{name: own[0][name] for name in names[5:]})
        + "setp.ne.b32 test, mask, 0;@test bra LOOP;DONE:}"
    )


_CHOSEN = {"p": "f32", "best": "f32", "k": "s32", "row": "s32"}


def _constraints(pack: int) -> str:
    return ",".join(kind for kind in ("=r", "f", "f", "f", "r", "r", "f", *"lllll") for _ in range(pack))


_RARE_1, _RARE_2, _RARE_4, _RARE_8 = (tl.constexpr(_rare(pack)) for pack in (1, 2, 4, 8))
_OPERANDS_1, _OPERANDS_2, _OPERANDS_4, _OPERANDS_8 = (tl.constexpr(_constraints(pack)) for pack in (1, 2, 4, 8))


@triton.jit
def _add_rare(p, limit, best, k, row, cells, squares, tops, SIZE: tl.constexpr, BINS: tl.constexpr, PACK: tl.constexpr):
    """Add the probabilities at or above the limit of their row to their cells, and what their squares lack."""
    if PACK > 0:
        ASM: tl.constexpr = _RARE_8 if PACK == 8 else _RARE_4 if PACK == 4 else _RARE_2 if PACK == 2 else _RARE_1
        OPERANDS: tl.constexpr = (
            _OPERANDS_8 if PACK == 8 else _OPERANDS_4 if PACK == 4 else _OPERANDS_2 if PACK == 2 else _OPERANDS_1
        )
        bins = tl.full((), BINS, tl.float32)
        size, half = tl.full((), 16 * SIZE, tl.int64), tl.full((), 8 * SIZE, tl.int64)
        given = [p, limit, best, k, row, bins, cells.to(tl.int64), size, half, squares.to(tl.int64), tops.to(tl.int64)]
        tl.inline_asm_elementwise(ASM, OPERANDS, given, dtype=tl.int32, is_pure=False, pack=PACK)
    else:  # the same, where there is no assembler: for Triton's interpreter
        rare = p >= limit
        exact = p.to(tl.float64)
        bin_ = tl.minimum(tl.floor(exact * BINS).to(tl.int32), BINS - 1)
        amount = (exact + 2.0).to(tl.int64, bitcast=True) - _TWO_BITS
        at = cells + k * BINS + bin_
        counted = rare & (bin_ > 0)
        one = tl.full(p.shape, 1, tl.int64)
        tl.atomic_add(at, one, mask=counted, sem="relaxed")
        tl.atomic_add(at + 2 * SIZE, amount >> _HALF, mask=counted, sem="relaxed")
        tl.atomic_add(at + 3 * SIZE, amount & _LOW, mask=counted, sem="relaxed")
        square = exact * exact
        counts = (square * _SQUARE).to(tl.int64) - ((square + _MAGIC).to(tl.int64, bitcast=True) - _MAGIC_BITS)
        tl.atomic_add(squares + row + 0 * k, counts, mask=rare & (p >= 0.0625), sem="relaxed")
        tl.atomic_min(tops + row + 0 * k, (k + 0 * row).to(tl.int64), mask=rare & (p == best), sem="relaxed")


@triton.jit
def _bin(p, edges_ptr, BINS: tl.constexpr):
    """Return the bin of probabilities: `treecal._bins.bin_of`."""
    guess = tl.floor(p * BINS).to(tl.int32)
    up, down = tl.load(edges_ptr + guess + 1), tl.load(edges_ptr + guess)
    return tl.minimum(guess + (p >= up).to(tl.int32) - (p < down).to(tl.int32), BINS - 1)


@triton.jit
def _exp2(x, ASM: tl.constexpr):
    """Return 2^x; what is below 2^-126 is 0."""
    if ASM:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.exp2(x)


@triton.jit
def _exponentials(logits, row, rows, k, stride, CLASSES: tl.constexpr, VEC: tl.constexpr, ASM: tl.constexpr):
    """Return the exponentials of rows, over the largest one, which is 1; the largest logit, and their sum.

    `VEC` divides the places where rows begin; of rows past the end the last one is read.
    """
    start = tl.multiple_of(tl.minimum(row, rows - 1).to(tl.int64) * stride, VEC)
    x = tl.load(logits + (start[:, None] + k[None, :]), mask=(k < CLASSES)[None, :], other=-float("inf"))
    x = x.to(tl.float32)
    most = tl.max(x, axis=1)
    e = _exp2((x - most[:, None]) * _LOG2E, ASM)
    return e, most, tl.sum(e, axis=1)


@triton.jit(do_not_specialize=["rows"])
def _write_softmax(
    logits, out, rows, stride,
    CLASSES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, VEC: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    k = tl.arange(0, BLOCK)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    e, _, total = _exponentials(logits, row, rows, k, stride, CLASSES, VEC, ASM)
    at = row.to(tl.int64)[:, None] * CLASSES + k[None, :]
    tl.store(out + at, e * (1.0 / total)[:, None], mask=(row < rows)[:, None] & (k < CLASSES)[None, :])


@triton.jit(do_not_specialize=["rows", "room_size"])
def _tally_classes(
    logits,
    outcomes,
    cells,
    room,
    rows,
    room_size,
    stride,
    limit,
    CLASSES: tl.constexpr,
    BINS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BASE: tl.constexpr,
    VEC: tl.constexpr,
    PACK: tl.constexpr,
):
    """Add the probabilities of all classes to their cells; write of each row what its scores are made of.

    A program takes every so-manieth tile of rows. The sums of all bins go to the end of the room, in halves.
    """
    k = tl.arange(0, BLOCK)
    SIZE: tl.constexpr = (CLASSES + 1) * BINS
    squares, tops, pairs, sums = room + room_size, room + 2 * room_size, room + 3 * room_size, room + 4 * room_size
    total = tl.zeros([BLOCK], tl.int64)
    first = tl.program_id(0)
    count = first * 0
    for at in tl.range(first, tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = (at + first * 0) * ROWS + tl.arange(0, ROWS)
        real = row < rows
        y = tl.load(outcomes + row, mask=real, other=-1).to(tl.int32)
        known = real & (y >= 0) & (y < CLASSES)
        own = tl.load(logits + (row.to(tl.int64) * stride + y), mask=known, other=0.0).to(tl.float32)
        e, most, divisor = _exponentials(logits, row, rows, k, stride, CLASSES, VEC, PACK > 0)
        best = 1.0 / divisor  # the exponential of the largest is 1
        valid = known & (divisor == divisor)  # a sum is NaN if a logit is NaN or infinite
        p = tl.where(valid[:, None], e * best[:, None], 0.0)
        exact = p.to(tl.float64)
        total += tl.sum((exact + 2.0).to(tl.int64, bitcast=True), axis=0)
        count += ROWS
        small = tl.sum((exact * exact + _MAGIC).to(tl.int64, bitcast=True), axis=1) - BASE
        # The most likely class and its equals are always among those above the limit.
        lowest = tl.where(valid, tl.minimum(best, limit), 2.0)
        _add_rare(p, lowest[:, None], best[:, None], k[None, :], row[:, None], cells, squares, tops, SIZE, BINS, PACK)
        given = tl.where(valid, _exp2((own - most) * _LOG2E, PACK > 0) * best, 0.0)
        best = tl.where(valid, best, 0.0)
        low = given.to(tl.int32, bitcast=True).to(tl.int64)  # both are positive: no sign to extend
        tl.store(pairs + row, (best.to(tl.int32, bitcast=True).to(tl.int64) << 32) | low, mask=real)
        tl.store(room + row, small, mask=real)
    inside = k < CLASSES
    total -= (count.to(tl.int64) & 3) << 62
    tl.atomic_add(sums + k, total >> _HALF, mask=inside, sem="relaxed")
    tl.atomic_add(sums + CLASSES + k, total & _LOW, mask=inside, sem="relaxed")


@triton.jit
def _add_halves(at, size, values):
    """Add the sum of integers to a number in two halves."""
    total = tl.sum(values, axis=0)
    tl.atomic_add(at, total >> _HALF, sem="relaxed")
    tl.atomic_add(at + size, total & _LOW, sem="relaxed")


@triton.jit
def _digits(values, valid):
    return tl.where(valid, (values + 2.0).to(tl.int64, bitcast=True) - _TWO_BITS, 0)


@triton.jit(do_not_specialize=["rows", "room_size"])
def _tally_scores(
    outcomes,
    edges_ptr,
    cells,
    room,
    rows,
    room_size,
    CLASSES: tl.constexpr,
    BINS: tl.constexpr,
    ROWS: tl.constexpr,
    FEW: tl.constexpr,
):
    """Add hits, the most likely classes and the scores of rows; clear what the other kernel adds to."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = row < rows
    size: tl.constexpr = (CLASSES + 1) * BINS
    squares, tops, pairs, sums = room + room_size, room + 2 * room_size, room + 3 * room_size, room + 4 * room_size
    scores, counts = cells + 4 * size, cells + 4 * size + 8
    k, known = row, row < CLASSES
    for half in tl.static_range(2):
        added = tl.load(sums + half * CLASSES + k, mask=known, other=0)
        tl.atomic_add(cells + (2 + half) * size + k * BINS, added, mask=known, sem="relaxed")
        tl.store(sums + half * CLASSES + k, tl.zeros([ROWS], tl.int64), mask=known)
    y = tl.load(outcomes + row, mask=real, other=-1).to(tl.int32)
    pair = tl.load(pairs + row, mask=real, other=0)
    best = (pair >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    given = (pair & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True).to(tl.float64)
    valid = best > 0
    square = tl.load(room + row, mask=real, other=0) + tl.load(squares + row, mask=real, other=0)
    top = tl.load(tops + row, mask=real, other=0).to(tl.int32)
    tl.store(squares + row, tl.zeros([ROWS], tl.int64), mask=real)
    tl.store(tops + row, tl.full([ROWS], 2147483647, tl.int64), mask=real)
    one = valid.to(tl.int64)
    hit = (valid & (top == y)).to(tl.int64)
    home = _bin(given, edges_ptr, BINS)
    tl.atomic_add(cells + size + y * BINS + home, one, mask=valid, sem="relaxed")
    amount = _digits(best.to(tl.float64), valid)
    place = _bin(best.to(tl.float64), edges_ptr, BINS)
    last = cells + CLASSES * BINS
    if FEW > 0:
        b = tl.arange(0, FEW)
        here = place[:, None] == b[None, :]
        inside, above = b < BINS, (b > 0) & (b < BINS)
        tl.atomic_add(last + b, tl.sum(tl.where(here, one[:, None], 0), axis=0), mask=above, sem="relaxed")
        tl.atomic_add(last + size + b, tl.sum(tl.where(here, hit[:, None], 0), axis=0), mask=inside, sem="relaxed")
        part = tl.sum(tl.where(here, amount[:, None], 0), axis=0)
        tl.atomic_add(last + 2 * size + b, part >> _HALF, mask=above, sem="relaxed")
        tl.atomic_add(last + 3 * size + b, part & _LOW, mask=above, sem="relaxed")
    else:
        above = valid & (place > 0)
        tl.atomic_add(last + place, one, mask=above, sem="relaxed")
        tl.atomic_add(last + size + place, hit, mask=valid, sem="relaxed")
        tl.atomic_add(last + 2 * size + place, amount >> _HALF, mask=above, sem="relaxed")
        tl.atomic_add(last + 3 * size + place, amount & _LOW, mask=above, sem="relaxed")
    _add_halves(last + 2 * size, size, amount)
    brier = (square.to(tl.float64) * (1.0 / _SQUARE) + 1.0) / 2.0 - given
    possible = valid & (given > 0)
    log = tl.where(possible, -tl.log(tl.where(possible, given, 1.0)), 0.0)
    log = tl.maximum(tl.minimum(log, _SCALE), 0.0) / _SCALE
    _add_halves(scores, 4, _digits(brier, valid))
    _add_halves(scores + 1, 4, _digits(brier * brier, valid))
    _add_halves(scores + 2, 4, _digits(log, valid))
    _add_halves(scores + 3, 4, _digits(log * log, valid))
    tl.atomic_add(counts, tl.sum(one, axis=0), sem="relaxed")
    tl.atomic_add(counts + 1, tl.sum((valid & (given <= 0)).to(tl.int64), axis=0), sem="relaxed")
    tl.atomic_add(counts + 2, tl.sum((real & (best <= 0)).to(tl.int64), axis=0), sem="relaxed")


class _Room:
    """Where the kernels work, on one device and stream: kept between calls, and cleared by the second kernel."""

    def __init__(self, device: torch.device, rows: int, classes: int) -> None:
        self.size = rows
        self.memory = torch.zeros(4 * rows + 2 * classes, dtype=torch.int64, device=device)
        self.memory[2 * rows : 3 * rows] = _NONE


_rooms: dict[tuple[torch.device, int, int], _Room] = {}
_edges: dict[tuple[torch.device, int], Tensor] = {}
_programs: dict[torch.device, int] = {}


def _room(device: torch.device, rows: int, classes: int) -> _Room:
    # Work on one stream is done in order; on two streams it may not be, so that each has its own room.
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    key = device, stream, classes
    room = _rooms.get(key)
    if room is None or room.size < rows:
        room = _rooms[key] = _Room(device, rows, classes)
    return room


def programs(device: torch.device) -> int:
    """Return the number of multiprocessors."""
    if device not in _programs:
        cuda = device.type == "cuda"
        _programs[device] = torch.cuda.get_device_properties(device).multi_processor_count if cuda else 2
    return _programs[device]


def shape_of(classes: int) -> dict[str, Any]:
    """Return the shape of a tile, and the number of warps that work on it.

    The two kernels that exponentiate share it, so that they add in the same order: their sums are equal in all bits.
    """
    block = max(32, triton.next_power_of_2(classes))
    rows = max(1, min(_ROWS, _TILE // block))
    return {"ROWS": rows, "BLOCK": block, "num_warps": min(max(rows * block // _EACH_WARP, 1), 16)}


def softmax_rows(logits: Tensor) -> Tensor:
    """Return the softmax of rows, in float32: as the metric counts it."""
    x = logits if logits.stride(1) == 1 else logits.contiguous()
    rows, classes = x.shape
    out, shape = torch.empty(rows, classes, dtype=torch.float32, device=x.device), shape_of(classes)
    _write_softmax[(triton.cdiv(rows, shape["ROWS"]),)](
        x, out, rows, x.stride(0), CLASSES=classes, VEC=_vector(x), ASM=x.is_cuda, **shape
    )
    return out


@torch.library.custom_op("treecal::tally_rows", mutates_args=("counts",))
def _tally_op(counts: Tensor, logits: Tensor, outcomes: Tensor, bins: int) -> None:
    _tally(counts, logits, outcomes, bins)


@_tally_op.register_fake
def _(counts: Tensor, logits: Tensor, outcomes: Tensor, bins: int) -> None:
    return None


def tally_rows(counts: Tensor, logits: Tensor, outcomes: Tensor, bins: int) -> None:
    """Add rows to the counts, in place: those of `Sums`, one after the other."""
    (_tally_op if torch.compiler.is_compiling() else _tally)(counts, logits, outcomes, bins)


def _tally(counts: Tensor, logits: Tensor, outcomes: Tensor, bins: int) -> None:
    device = logits.device
    x = logits if logits.stride(1) == 1 else logits.contiguous()
    y = outcomes if outcomes.dtype in (torch.int64, torch.int32) else outcomes.long()
    y = y if y.is_contiguous() else y.contiguous()
    table = _edges.get((device, bins))
    if table is None:
        table = _edges[device, bins] = edges(bins).to(device)
    most = _MOST_ROWS * programs(device)
    if len(x) <= most:  # a slice takes time of its own
        _launch(counts, x, y, bins, table)
        return
    for start in range(0, len(x), most):
        _launch(counts, x[start : start + most], y[start : start + most], bins, table)


def _launch(counts: Tensor, x: Tensor, y: Tensor, bins: int, table: Tensor) -> None:
    (rows, classes), device = x.shape, x.device
    room = _room(device, rows, classes)
    vector = _vector(x)
    key = x.dtype, y.dtype, classes, bins, x.stride(0), vector, x.data_ptr() % 16, y.data_ptr() % 16
    plan = _plans.get(key)
    if plan is None:
        shape = shape_of(classes)
        warps = shape.pop("num_warps")
        magic = int(np.float64(MAGIC).view(np.int64))
        pack = min(shape["ROWS"] * shape["BLOCK"] // (32 * warps), 8) if x.is_cuda else 0
        few = max(16, triton.next_power_of_2(bins)) if bins <= _FEW_BINS else 0
        plan = _plans[key] = _Plan(
            min(_at_least(1 / bins), 0.088),
            shape["ROWS"],
            (classes, bins, shape["ROWS"], shape["BLOCK"], _wrapped(shape["BLOCK"] * magic), vector, pack),
            (classes, bins, 128, few),
            warps,
        )
    grid = min(-(-rows // plan.rows), _EACH * programs(device))
    _tally_classes[(grid,)](
        x,
        y,
        counts,
        room.memory,
        rows,
        room.size,
        x.stride(0),
        plan.limit,
        *plan.classes,
        num_warps=plan.warps,
        maxnreg=_REGISTERS,
    )
    _tally_scores[(-(-max(rows, classes) // 128),)](
        y,
        table,
        counts,
        room.memory,
        rows,
        room.size,
        *plan.scores,
        num_warps=4,
        enable_fp_fusion=False,  # squares of scores are rounded before they are counted
    )


class _Plan(NamedTuple):
    """How rows of one shape and type are counted: a limit, rows of a tile, the kernels' constants, and warps."""

    limit: float
    rows: int
    classes: tuple[int, ...]
    scores: tuple[int, ...]
    warps: int


_plans: dict[tuple[Any, ...], _Plan] = {}


def _at_least(edge: float) -> float:
    """Return the smallest float32 that is not below an edge."""
    near = np.float32(edge)
    return float(near if near >= edge else np.nextafter(near, np.float32(1)))


def _wrapped(value: int) -> int:
    """Return a number as 64 bits hold it."""
    return (value + 2**63) % 2**64 - 2**63


@triton.jit(do_not_specialize=["rows"])
def _recalibrate(
    logits, out, slopes, offsets, least, rows, stride,
    ROWS: tl.constexpr, CLASSES: tl.constexpr, BLOCK: tl.constexpr, VEC: tl.constexpr, OUT: tl.constexpr,
    ASM: tl.constexpr,
):  # fmt: skip
    """Write `softmax(slope·ln b + offset)`, `b` the softmax of the logits."""
    k = tl.arange(0, BLOCK)
    inside = k < CLASSES
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask = (row < rows)[:, None] & inside[None, :]
    start = tl.multiple_of(row.to(tl.int64) * stride, VEC)
    x = tl.load(logits + (start[:, None] + k[None, :]), mask=mask, other=-float("inf"))
    slope = tl.load(slopes + k, mask=inside, other=0.0)[None, :]
    offset = tl.load(offsets + k, mask=inside, other=-float("inf"))[None, :]
    x = x.to(tl.float32)
    x = x - tl.max(x, axis=1)[:, None]
    x = x - tl.log(tl.sum(_exp2(x * _LOG2E, ASM), axis=1))[:, None]
    z = slope * tl.where(x < least, least, x) + offset  # NaN stays NaN
    e = _exp2((z - tl.max(z, axis=1)[:, None]) * _LOG2E, ASM)
    p = e * (1.0 / tl.sum(e, axis=1))[:, None]
    start = tl.multiple_of(row.to(tl.int64) * CLASSES, OUT)
    tl.store(out + (start[:, None] + k[None, :]), p.to(out.dtype.element_ty), mask=mask)


def recalibrate_rows(logits: Tensor, slopes: Tensor, offsets: Tensor, least: float) -> Tensor:
    """Return the recalibrated probabilities of rows, in the type of their logits."""
    x = logits if logits.stride(1) == 1 else logits.contiguous()
    rows, classes = x.shape
    out = torch.empty(rows, classes, dtype=x.dtype, device=x.device)
    block = max(16, triton.next_power_of_2(classes))
    lines, warps = _forward_shape(block)
    _recalibrate[(triton.cdiv(rows, lines),)](
        x, out, slopes, offsets, least, rows, x.stride(0),
        CLASSES=classes, ROWS=lines, BLOCK=block, VEC=_vector(x), OUT=_vector(out), ASM=x.is_cuda, num_warps=warps,
    )  # fmt: skip
    return out


def _forward_shape(block: int) -> tuple[int, int]:
    """Return how many rows a program recalibrates, and with how many warps."""
    return max(1, 1024 // block), max(1, block // 1024)


def _vector(rows: Tensor) -> int:
    """Return how many numbers at a time rows can be read: a power of two that divides where each begins."""
    if rows.data_ptr() % 16:
        return 1
    return min(16 // rows.element_size(), rows.stride(0) & -rows.stride(0)) if rows.stride(0) else 1
