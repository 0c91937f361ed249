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

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from treecal.auditing._counts import LOG_SCALE, MAGIC
from treecal.torch._tally import HALF, LOW, TWO, edges

MOST_CLASSES = 8192
"""A tile holds four rows of that many classes; rows of more are left to torch's own operations."""
_MOST_ROWS = 2048  # of a program: sums of so many rows fit into 62 bits
_EACH, _WARP = 32, 256  # programs on a multiprocessor, and classes that a warp takes care of
_TABLES = 64  # of addresses, kept for metrics that are updated in turn
_FEW_BINS = 64  # of the most likely class, which are summed within a program
_NONE = 2**31 - 1
_NUMBERS = ["rows", "bins"]  # numbers like any other, also where they are 1

_LOG2E = tl.constexpr(1.4426950408889634)
_MAGIC = tl.constexpr(MAGIC)
_MAGIC_BITS = tl.constexpr(int(np.float64(MAGIC).view(np.int64)))
_TWO_BITS = tl.constexpr(TWO)
_SQUARE = tl.constexpr(2.0**58)
_HALF, _LOW = tl.constexpr(HALF), tl.constexpr(LOW)
_SCALE = tl.constexpr(LOG_SCALE)

_BODY = """
setp.lt.f32 test, {p}, {limit};
@test bra NEXT{j};
cvt.f64.f32 p, {p};
ld.global.nc.s64 at, [{table}];
ld.global.nc.s32 bins, [{table}+40];
cvt.rn.f64.s32 t, bins;
mul.rn.f64 t, t, p;
cvt.rmi.s32.f64 bin, t;
mad.wide.s32 at, bin, 8, at;
ld.global.nc.f64 down, [at];
ld.global.nc.f64 up, [at+8];
setp.ge.f64 test, p, up;
selp.s32 step, 1, 0, test;
add.s32 bin, bin, step;
setp.lt.f64 test, p, down;
selp.s32 step, 1, 0, test;
sub.s32 bin, bin, step;
sub.s32 step, bins, 1;
min.s32 bin, bin, step;
setp.eq.s32 test, bin, 0;
@test bra LOWEST{j};
add.rn.f64 t, p, 0d4000000000000000;
mov.b64 amount, t;
sub.s64 amount, amount, {two};
mad.lo.s32 bin, {k}, bins, bin;
ld.global.nc.s64 at, [{table}+8];
mad.wide.s32 at, bin, 8, at;
ld.global.nc.s64 size, [{table}+16];
mov.s64 part, 1;
red.global.add.u64 [at], part;
add.s64 at, at, size;
add.s64 at, at, size;
shr.s64 part, amount, {half};
red.global.add.u64 [at], part;
add.s64 at, at, size;
and.b64 part, amount, {low};
red.global.add.u64 [at], part;
LOWEST{j}:
mul.rn.f64 t, p, p;
fma.rn.f64 up, p, p, 0d{magic:016X};
mul.rn.f64 t, t, 0d{square:016X};
cvt.rni.s64.f64 amount, t;
mov.b64 part, up;
sub.s64 part, part, {magic};
sub.s64 amount, amount, part;
setp.eq.s64 test, amount, 0;
@test bra SMALL{j};
ld.global.nc.s64 at, [{table}+24];
mad.wide.s32 at, {row}, 8, at;
red.global.add.u64 [at], amount;
SMALL{j}:
setp.lt.f32 test, {p}, {best};
@test bra NEXT{j};
ld.global.nc.s64 at, [{table}+32];
mad.wide.s32 at, {row}, 4, at;
red.global.min.s32 [at], {k};
NEXT{j}:
"""


def _rare(pack: int) -> str:
    """Return the assembler for so many probabilities: nothing, if all are below the limit of their row.

    That is nearly always so, and a branch for a warp as a whole. Operations with masks would cost all of it every time.
    """
    first = [pack * place for place in range(1, 7)]
    p, limit, best, k, row, table = ([f"${start + j}" for j in range(pack)] for start in first)
    most = "mov.f32 most, {};".format(p[0]) + "".join(f"max.f32 most, most, {own};" for own in p[1:])
    bits = {name: int(np.float64(value).view(np.int64)) for name, value in (("magic", MAGIC), ("square", 2.0**58))}
    each = [
        _BODY.format(
            j=j, p=p[j], limit=limit[j], best=best[j], k=k[j], row=row[j], table=table[j],
            two=TWO, half=HALF, low=LOW, **bits,
        )
        for j in range(pack)
    ]  # fmt: skip
    return (
        "{.reg .pred test;.reg .f32 most;.reg .f64 p, up, down, t;.reg .s64 amount, part, at, size;"
        ".reg .s32 bin, step, bins;"
        + "".join(f"mov.u32 ${j}, 0;" for j in range(pack))
        + f"{most}setp.lt.f32 test, most, {limit[0]};@test bra DONE;"
        + "".join(each)
        + "DONE:}"
    )


def _constraints(pack: int) -> str:
    return ",".join(kind for kind in ("=r", "f", "f", "f", "r", "r", "l") for _ in range(pack))


_RARE_1, _RARE_2, _RARE_4, _RARE_8 = (tl.constexpr(_rare(pack)) for pack in (1, 2, 4, 8))
_OPERANDS_1, _OPERANDS_2, _OPERANDS_4, _OPERANDS_8 = (tl.constexpr(_constraints(pack)) for pack in (1, 2, 4, 8))


@triton.jit
def _add_rare(p, limit, best, k, row, bins, edges_ptr, cells, size, squares, tops, table, PACK: tl.constexpr):
    """Add the probabilities at or above the limit of their row to their cells, and what their squares lack.

    `table` holds the addresses once more, for the assembler, which has no use for them otherwise.
    """
    if PACK > 0:
        ASM: tl.constexpr = (
            _RARE_8 if PACK == 8 else _RARE_4 if PACK == 4 else _RARE_2 if PACK == 2 else _RARE_1
        )
        OPERANDS: tl.constexpr = (
            _OPERANDS_8 if PACK == 8 else _OPERANDS_4 if PACK == 4 else _OPERANDS_2 if PACK == 2 else _OPERANDS_1
        )
        given = [p, limit, best, k, row, table.to(tl.int64)]
        tl.inline_asm_elementwise(ASM, OPERANDS, given, dtype=tl.int32, is_pure=False, pack=PACK)
    else:  # the same, where there is no assembler: for Triton's interpreter
        rare = p >= limit
        exact = p.to(tl.float64)
        bin_ = _bin(exact, bins, edges_ptr)
        amount = (exact + 2.0).to(tl.int64, bitcast=True) - _TWO_BITS
        at = cells + k * bins + bin_
        counted = rare & (bin_ > 0)
        one = tl.full(p.shape, 1, tl.int64)
        tl.atomic_add(at, one, mask=counted, sem="relaxed")
        tl.atomic_add(at + 2 * size, amount >> _HALF, mask=counted, sem="relaxed")
        tl.atomic_add(at + 3 * size, amount & _LOW, mask=counted, sem="relaxed")
        square = exact * exact
        counts = (square * _SQUARE + 0.5).to(tl.int64)
        # to the nearest, of two the even one
        tie = (counts.to(tl.float64) - square * _SQUARE == 0.5) & (counts % 2 == 1)
        counts -= tie.to(tl.int64)
        counts -= (square + _MAGIC).to(tl.int64, bitcast=True) - _MAGIC_BITS
        tl.atomic_add(squares + row + 0 * k, counts, mask=rare & (counts != 0), sem="relaxed")
        tl.atomic_min(tops + row + 0 * k, k + 0 * row, mask=rare & (p == best), sem="relaxed")


@triton.jit
def _bin(p, bins, edges_ptr):
    """Return the bin of probabilities: `treecal._bins.bin_of`."""
    guess = tl.floor(p * bins.to(tl.float64)).to(tl.int32)
    up, down = tl.load(edges_ptr + guess + 1), tl.load(edges_ptr + guess)
    return tl.minimum(guess + (p >= up).to(tl.int32) - (p < down).to(tl.int32), bins - 1)


@triton.jit
def _exp2(x, ASM: tl.constexpr):
    """Return 2^x; what is below 2^-126 is 0."""
    if ASM:
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    return tl.exp2(x)


@triton.jit
def _load_row(logits, row, rows, k, stride, CLASSES: tl.constexpr, VEC: tl.constexpr):
    """Return a row of logits, or the last one; `VEC` divides the place where it begins."""
    start = tl.multiple_of(tl.minimum(row, rows - 1).to(tl.int64) * stride, VEC)
    return tl.load(logits + (start + k), mask=k < CLASSES, other=-float("inf"))


@triton.jit
def _exponentials(x, ASM: tl.constexpr):
    """Return the exponentials of a row, over the largest one, which is 1; the largest logit, and their sum."""
    x = x.to(tl.float32)
    most = tl.max(x, axis=0)
    e = _exp2((x - most) * _LOG2E, ASM=ASM)
    return e, most, tl.sum(e, axis=0)


@triton.jit(do_not_specialize=["rows"])
def _write_softmax(
    logits, out, rows, stride, CLASSES: tl.constexpr, BLOCK: tl.constexpr, VEC: tl.constexpr, ASM: tl.constexpr
):
    k = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    e, _, total = _exponentials(_load_row(logits, row, rows, k, stride, CLASSES, VEC), ASM)
    tl.store(out + (row.to(tl.int64) * CLASSES + k), e * (1.0 / total), mask=k < CLASSES)


@triton.jit(do_not_specialize=_NUMBERS)
def _tally_classes(
    logits,
    outcomes,
    edges_ptr,
    cells,
    sums,
    best_out,
    most_out,
    small_out,
    squares,
    tops,
    table,
    rows,
    stride,
    bins,
    limit,
    CLASSES: tl.constexpr,
    BLOCK: tl.constexpr,
    BASE: tl.constexpr,
    VEC: tl.constexpr,
    PACK: tl.constexpr,
):
    """Add the probabilities of all classes to their cells; write of each row what its scores are made of.

    A program takes every so-manieth row. The sums of all bins go to `sums`, in halves, and from there to the cells.
    """
    k = tl.arange(0, BLOCK)
    inside = k < CLASSES
    size = bins.to(tl.int64) * (CLASSES + 1)
    total = tl.zeros([BLOCK], tl.int64)
    step = tl.num_programs(0)
    first = tl.program_id(0)
    # The next row is read while this one is counted.
    x = _load_row(logits, first, rows, k, stride, CLASSES, VEC)
    y = tl.load(outcomes + first, mask=first < rows, other=-1)
    count = first * 0
    for at in tl.range(first, rows, step):
        row = at + first * 0  # a tensor, also in Triton's interpreter
        after = row + step
        following = _load_row(logits, after, rows, k, stride, CLASSES, VEC)
        next_y = tl.load(outcomes + after, mask=after < rows, other=-1)
        e, most, divisor = _exponentials(x, PACK > 0)
        best = 1.0 / divisor  # the exponential of the largest is 1
        small = tl.full((), 0, tl.int64)
        # A sum is NaN if a logit is NaN or infinite.
        if (y >= 0) & (y < CLASSES) & (divisor == divisor):
            p = e * best
            exact = p.to(tl.float64)
            total += (exact + 2.0).to(tl.int64, bitcast=True)
            count += 1
            small = tl.sum((exact * exact + _MAGIC).to(tl.int64, bitcast=True), axis=0) - BASE
            # The most likely class and its equals are always among those above the limit.
            lowest = tl.minimum(best, limit)
            _add_rare(p, lowest, best, k, row, bins, edges_ptr, cells, size, squares, tops, table, PACK)
        else:
            best = tl.full((), 0.0, tl.float32)
        tl.store(best_out + row, best)
        tl.store(most_out + row, most)
        tl.store(small_out + row, small)
        x = following
        y = next_y
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


@triton.jit(do_not_specialize=_NUMBERS)
def _tally_scores(
    logits,
    outcomes,
    edges_ptr,
    cells,
    scores,
    counts,
    sums,
    best_in,
    most_in,
    small_in,
    squares,
    tops,
    rows,
    classes,
    stride,
    bins,
    ROWS: tl.constexpr,
    BINS: tl.constexpr,
    ASM: tl.constexpr,
):
    """Add hits, the most likely classes and the scores of rows; clear what the other kernel adds to."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = row < rows
    size = (classes + 1).to(tl.int64) * bins
    k, known = row, row < classes
    for half in tl.static_range(2):
        added = tl.load(sums + half * classes + k, mask=known, other=0)
        tl.atomic_add(cells + (2 + half) * size + k * bins, added, mask=known, sem="relaxed")
        tl.store(sums + half * classes + k, tl.zeros([ROWS], tl.int64), mask=known)
    y = tl.load(outcomes + row, mask=real, other=-1).to(tl.int32)
    best = tl.load(best_in + row, mask=real, other=0.0)
    valid = best > 0
    own = tl.load(logits + row.to(tl.int64) * stride + y, mask=valid, other=0.0).to(tl.float32)
    most = tl.load(most_in + row, mask=valid, other=0.0)
    given = tl.where(valid, _exp2((own - most) * _LOG2E, ASM) * best, 0.0).to(tl.float64)
    square = tl.load(small_in + row, mask=real, other=0) + tl.load(squares + row, mask=real, other=0)
    top = tl.load(tops + row, mask=real, other=0)
    tl.store(squares + row, tl.zeros([ROWS], tl.int64), mask=real)
    tl.store(tops + row, tl.full([ROWS], 2147483647, tl.int32), mask=real)
    one = valid.to(tl.int64)
    hit = (valid & (top == y)).to(tl.int64)
    home = _bin(given, bins, edges_ptr)
    tl.atomic_add(cells + size + y * bins + home, one, mask=valid, sem="relaxed")
    amount = _digits(best.to(tl.float64), valid)
    place = _bin(best.to(tl.float64), bins, edges_ptr)
    last = cells + classes.to(tl.int64) * bins
    if BINS > 0:
        b = tl.arange(0, BINS)
        here = place[:, None] == b[None, :]
        inside, above = b < bins, (b > 0) & (b < bins)
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
    """Where the kernels work, on one device: kept between calls, and cleared by the second kernel."""

    def __init__(self, device: torch.device, rows: int, classes: int) -> None:
        self.size = rows
        self.sums = torch.zeros(2 * classes, dtype=torch.int64, device=device)
        self.best, self.most = (torch.empty(rows, dtype=torch.float32, device=device) for _ in range(2))
        self.small = torch.empty(rows, dtype=torch.int64, device=device)
        self.squares = torch.zeros(rows, dtype=torch.int64, device=device)
        self.tops = torch.full((rows,), _NONE, dtype=torch.int32, device=device)
        self._tables: dict[tuple[int, int], Tensor] = {}

    def table(self, edges_: Tensor, cells: Tensor) -> Tensor:
        """Return the addresses that the assembler reads, the size of a plane, and the number of bins."""
        key = edges_.data_ptr(), cells.data_ptr()
        if key not in self._tables:
            if len(self._tables) > _TABLES:
                self._tables.clear()
            numbers = [*key, 8 * cells[0].numel(), self.squares.data_ptr(), self.tops.data_ptr(), cells.shape[2]]
            self._tables[key] = torch.tensor(numbers, dtype=torch.int64).to(cells.device)
        return self._tables[key]


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
    """Return the length of a row, padded, and the number of warps that work on it.

    The two kernels that exponentiate share it, so that they add in the same order: their sums are equal in all bits.
    """
    block = max(32, triton.next_power_of_2(classes))
    return {"BLOCK": block, "num_warps": max(block // _WARP, 1)}


def softmax_rows(logits: Tensor) -> Tensor:
    """Return the softmax of rows, in float32: as the metric counts it."""
    x = logits if logits.stride(1) == 1 else logits.contiguous()
    rows, classes = x.shape
    out = torch.empty(rows, classes, dtype=torch.float32, device=x.device)
    _write_softmax[(rows,)](x, out, rows, x.stride(0), CLASSES=classes, VEC=_vector(x), ASM=x.is_cuda, **shape_of(classes))
    return out


@torch.library.custom_op("treecal::tally_rows", mutates_args=("cells", "scores", "counts"))
def _tally_op(cells: Tensor, scores: Tensor, counts: Tensor, logits: Tensor, outcomes: Tensor) -> None:
    _tally(cells, scores, counts, logits, outcomes)


@_tally_op.register_fake
def _(cells: Tensor, scores: Tensor, counts: Tensor, logits: Tensor, outcomes: Tensor) -> None:
    return None


def tally_rows(cells: Tensor, scores: Tensor, counts: Tensor, logits: Tensor, outcomes: Tensor) -> None:
    """Add rows to the sums, in place."""
    (_tally_op if torch.compiler.is_compiling() else _tally)(cells, scores, counts, logits, outcomes)


def _tally(cells: Tensor, scores: Tensor, counts: Tensor, logits: Tensor, outcomes: Tensor) -> None:
    device, bins = logits.device, cells.shape[2]
    x = logits if logits.stride(1) == 1 else logits.contiguous()
    y = outcomes if outcomes.dtype in (torch.int64, torch.int32) else outcomes.long()
    y = y if y.is_contiguous() else y.contiguous()
    if (device, bins) not in _edges:
        _edges[device, bins] = edges(bins).to(device)
    table, most = _edges[device, bins], _MOST_ROWS * programs(device)
    if len(x) <= most:  # a slice takes time of its own
        _launch(cells, scores, counts, x, y, table)
        return
    for start in range(0, len(x), most):
        _launch(cells, scores, counts, x[start : start + most], y[start : start + most], table)


def _launch(cells: Tensor, scores: Tensor, counts: Tensor, x: Tensor, y: Tensor, table: Tensor) -> None:
    (rows, classes), bins = x.shape, cells.shape[2]
    room, shape = _room(x.device, rows, classes), shape_of(classes)
    grid = (min(rows, max(_EACH // shape["num_warps"], 2) * programs(x.device)),)
    limit = min(_at_least(1 / bins), 0.088)
    _tally_classes[grid](
        x,
        y,
        table,
        cells,
        room.sums,
        room.best,
        room.most,
        room.small,
        room.squares,
        room.tops,
        room.table(table, cells),
        rows,
        x.stride(0),
        bins,
        limit,
        CLASSES=classes,
        BASE=_wrapped(shape["BLOCK"] * int(np.float64(MAGIC).view(np.int64))),
        VEC=_vector(x),
        PACK=min(shape["BLOCK"] // (32 * shape["num_warps"]), 8) if x.is_cuda else 0,
        **shape,
    )
    few = max(16, triton.next_power_of_2(bins)) if bins <= _FEW_BINS else 0
    _tally_scores[(triton.cdiv(max(rows, classes), 128),)](
        x,
        y,
        table,
        cells,
        scores,
        counts,
        room.sums,
        room.best,
        room.most,
        room.small,
        room.squares,
        room.tops,
        rows,
        classes,
        x.stride(0),
        bins,
        ROWS=128,
        BINS=few,
        ASM=x.is_cuda,
        num_warps=4,
        enable_fp_fusion=False,  # squares of scores are rounded before they are counted
    )


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
    ROWS: tl.constexpr, CLASSES: tl.constexpr, BLOCK: tl.constexpr, VEC: tl.constexpr, OUT: tl.constexpr, ASM: tl.constexpr,
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
