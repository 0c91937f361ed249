"""The first kernel of the metric: each row of logits is read once, and counted in integers as `_tally` does.

It gives each warp a row or two, keeps the sums of each class in registers, sums the squares of a row, and marks where
in the row the few probabilities are that are not in the lowest bin, or that are the largest. `marked` counts these.

* Sums of probabilities: adding 2 to a float64 makes its bits count multiples of 2^-51, from those of 2 on; the bits of
  2 are 2^62, four rows of which are 2^64, which is 0.
* Squares of float32 numbers are exact in float64. From `START`, which is 2^-6, up to twice that, bits count multiples
  of 2^-58, and sums are rounded to these. No square is half way between two of them, since its lowest bit is an even
  power of 2: so four squares below 2^-8 are added one after the other as if each had been rounded for itself. Four
  probabilities of which one is larger are marked.
"""

from __future__ import annotations

import triton
import triton.language as tl

from treecal.torch._triton.kernels.recalibrate import exp2

START = 2.0**-6
RECORD = 8
"""Integers of a row's record, of which five are used."""
_START = tl.constexpr(START)
_RECORD = tl.constexpr(RECORD)
_LOG2E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)
_NEAR = tl.constexpr(2.0**-22)
_CLOSE = tl.constexpr(2.0**-14)


@triton.jit
def _times(e, best, ASM: tl.constexpr):
    """Return products from 0 to 1; NaN becomes 0, which costs nothing."""
    if ASM:
        return tl.inline_asm_elementwise(
            "mul.rn.sat.f32 $0, $1, $2;", "=f,f,f", [e, best], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        p = e * best
        return tl.where(p > 0.0, p, 0.0)


@triton.jit
def _log2(x, ASM: tl.constexpr):
    """Return logarithms, nearly."""
    if ASM:
        return tl.inline_asm_elementwise("lg2.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return tl.log2(x)


@triton.jit
def _doubled(p, ASM: tl.constexpr):
    """Return float32 numbers from 0 to 1 as float64, where 0 may become 2^-127.

    A multiprocessor converts few numbers at a time, and is as busy with other operations: so it converts every other
    one, and of the rest moves the bits. The exponent of a float64 has another offset, and its fraction 29 bits more.
    """
    if ASM:
        return tl.inline_asm_elementwise(
            "{.reg .b32 own; .reg .b64 bits; cvt.f64.f32 $0, $2; mov.b32 own, $3;"
            "mad.wide.u32 bits, own, 0x20000000, 0x3800000000000000; mov.b64 $1, bits;}",
            "=d,=d,f,f", [p], dtype=tl.float64, is_pure=True, pack=2,
        )  # fmt: skip
    else:
        return p.to(tl.float64)


@triton.jit
def probability(x, most, best, ASM: tl.constexpr):
    """Return the probability of a logit, given the largest of its row and the inverse of the sum of exponentials."""
    return _times(exp2((x - most) * _LOG2E, ASM), best, ASM)


@triton.jit
def add_squares(a, b, c, d):
    """Return the bits of `START` and the squares of four numbers: multiples of 2^-58 if the numbers are below 2^-4."""
    return (d * d + (c * c + (b * b + (a * a + _START)))).to(tl.int64, bitcast=True)


@triton.jit
def _ordered(bits):
    """Return integers in the order of the floats with these bits; of such integers, the bits."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit(do_not_specialize=["rows", "stride"])
def tally_classes(
    logits,
    outcomes,
    records,
    marks,
    sums,
    rows,
    stride,
    limit,
    CLASSES: tl.constexpr,
    CHUNKS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    EACH: tl.constexpr,
    GROUPS: tl.constexpr,
    VEC: tl.constexpr,
    ASM: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Add up the probabilities of each class, for each program; write a record of each row, and its marks.

    A program takes every so-manieth tile of rows. Its columns are chunks, so that a warp holds a group of them in all
    rows, every `GROUPS`-th: in each of its chunks, `EACH` neighbours are one thread's. Four neighbours have one mark,
    and a thread's marks are a byte. A record is the row's largest logit, the inverse of its sum, and the sum of its
    squares in three parts of 22 bits.
    """
    LANES: tl.constexpr = WIDTH // EACH
    DEEP: tl.constexpr = CHUNKS // GROUPS
    PARTS: tl.constexpr = EACH // 4
    k = tl.arange(0, CHUNKS)[None, :, None] * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    inside = k < CLASSES
    place = tl.arange(0, DEEP)[:, None] * PARTS + tl.arange(0, PARTS)[None, :]
    bit = (tl.full([DEEP, PARTS], 1, tl.int32) << place)[None, :, None, None, :]
    lane = tl.arange(0, LANES)
    group = tl.arange(0, GROUPS)
    FOLD: tl.constexpr = LANES == 32  # a thread has the same classes of all rows
    total = tl.zeros([1 if FOLD else ROWS, DEEP, GROUPS, LANES, PARTS, 4], tl.int64)
    first = tl.program_id(0)
    count = first * 0
    for at in tl.range(first, tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = at * ROWS + tl.arange(0, ROWS)
        real = row < rows
        # Of rows past the end the last one is read.
        start = tl.multiple_of(tl.minimum(row, rows - 1).to(tl.int64) * stride, VEC)
        x = tl.load(logits + (start[:, None, None] + k), mask=inside, other=-float("inf"))
        y = tl.load(outcomes + row, mask=real, other=-1)
        # All that follows has this shape, so that nothing moves between threads.
        x = tl.reshape(x, [ROWS, DEEP, GROUPS, LANES, PARTS, 4]).to(tl.float32)
        four = tl.max(x, axis=5)
        own = tl.max(tl.max(tl.max(four, axis=4), axis=1), axis=1)
        # The largest of 32 integers takes one instruction.
        most = _ordered(tl.max(_ordered(own.to(tl.int32, bitcast=True)), axis=1)).to(tl.float32, bitcast=True)
        e = exp2((x - most[:, None, None, None, None, None]) * _LOG2E, ASM)
        divisor = tl.sum(tl.sum(tl.sum(tl.sum(tl.sum(e, axis=5), axis=4), axis=1), axis=1), axis=1)
        # A sum is NaN if a logit is NaN or infinite. The exponential of the largest is 1.
        valid = (y >= 0) & (y < CLASSES) & (divisor == divisor)
        best = tl.where(valid, 1.0 / divisor, 0.0)
        exact = _doubled(_times(e, best[:, None, None, None, None, None], ASM), ASM)
        whole = (exact + 2.0).to(tl.int64, bitcast=True)
        if FOLD:
            total += tl.sum(whole, axis=0)[None]
        else:
            total += whole
        count += 1
        even, odd = tl.split(tl.reshape(exact, [ROWS, DEEP, GROUPS, LANES, PARTS, 2, 2]))
        one, three = tl.split(even)
        two, last = tl.split(odd)
        square = tl.sum(tl.sum(tl.sum(add_squares(one, two, three, last), axis=4), axis=1), axis=1)
        small = tl.sum((square & 0x3FFFFF).to(tl.int32), axis=1)
        middle = tl.sum(((square >> 22) & 0x3FFFFF).to(tl.int32), axis=1)
        large = tl.sum((square >> 44).to(tl.int32), axis=1)
        # A logit from which on probabilities may have reached the limit, or the largest one: by more than is rounded.
        lowest = most + _log2(tl.minimum(limit * divisor, 1.0), ASM) * _LN2 - (tl.abs(most) * _NEAR + _CLOSE)
        lowest = tl.where(valid, lowest, float("inf"))
        mark = tl.sum(tl.sum(tl.where(four >= lowest[:, None, None, None, None], bit, 0), axis=4), axis=1)
        slot = (row.to(tl.int64) * (GROUPS * LANES))[:, None, None] + group[None, :, None] * LANES + lane[None, None, :]
        tl.store(marks + slot, mark.to(tl.int8), mask=real[:, None, None])
        record = most.to(tl.int32, bitcast=True)[:, None]
        field = lane[None, :]
        record = tl.where(field == 1, best.to(tl.int32, bitcast=True)[:, None], record)
        record = tl.where(field == 2, small[:, None], record)
        record = tl.where(field == 3, middle[:, None], record)
        record = tl.where(field == 4, large[:, None], record)
        home = (row.to(tl.int64) * _RECORD)[:, None] + field
        tl.store(records + home, record, mask=real[:, None] & (field < _RECORD))
    each = tl.reshape(tl.sum(total, axis=0), [1, CHUNKS, WIDTH]) - ((count.to(tl.int64) * ROWS & 3) << 62)
    tl.store(sums + first.to(tl.int64) * (CHUNKS * WIDTH) + k, each)


@triton.jit(do_not_specialize=["rows"])
def write_softmax(logits, records, out, rows, stride, CLASSES: tl.constexpr, BLOCK: tl.constexpr, ASM: tl.constexpr):
    """Write the probabilities that are counted; where a row is invalid, NaN."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    x = tl.load(logits + row * stride + k, mask=k < CLASSES, other=0.0).to(tl.float32)
    most = tl.load(records + row * _RECORD).to(tl.float32, bitcast=True)
    best = tl.load(records + row * _RECORD + 1).to(tl.float32, bitcast=True)
    p = tl.where(best > 0, probability(x, most, best, ASM), float("nan"))
    tl.store(out + row * CLASSES + k, p, mask=k < CLASSES)
