"""Triton kernels of the metric: each row of logits is read once, and counted in integers as `_tally` does.

The first kernel gives each warp a row or two. It keeps the sums of each class in registers, sums the squares of a row,
and marks where in the row the few probabilities are that are not in the lowest bin, or that are the largest. The second
kernel gives each thread a row, goes from mark to mark, and counts what is there. What is in the lowest bin follows from
the sums.

* Sums of probabilities: adding 2 to a float64 makes its bits count multiples of 2^-51, from those of 2 on; the bits of
  2 are 2^62, four rows of which are 2^64, which is 0.
* Squares of float32 numbers are exact in float64. Adding `MAGIC` makes their bits count multiples of 2^-58, if they are
  below 2^-7; of larger ones, which are few, the second kernel adds what is missing.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from treecal.auditing._counts import LOG_SCALE, MAGIC
from treecal.torch._tally import HALF, LOW, TWO
from treecal.torch._triton.kernels.recalibrate import exp2

_LOG2E = tl.constexpr(1.4426950408889634)
_MAGIC = tl.constexpr(MAGIC)
_MAGIC_BITS = tl.constexpr(int(np.float64(MAGIC).view(np.int64)))
_TWO_BITS = tl.constexpr(TWO)
_SQUARE = tl.constexpr(2.0**58)
_HALF, _LOW = tl.constexpr(HALF), tl.constexpr(LOW)
_SCALE = tl.constexpr(LOG_SCALE)
_NONE = tl.constexpr(2**31 - 1)


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
def _probability(x, most, best, ASM: tl.constexpr):
    """Return the probability of a logit, given the largest of its row and the inverse of the sum of exponentials."""
    return _times(exp2((x - most) * _LOG2E, ASM), best, ASM)


@triton.jit(do_not_specialize=["rows"])
def tally_classes(
    logits,
    outcomes,
    records,
    words,
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
    RECORD: tl.constexpr,
    BASE: tl.constexpr,
    VEC: tl.constexpr,
    ASM: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Add up the probabilities of each class; write a record of each row, and words for what is marked.

    A program takes every so-manieth tile of rows. Its columns are chunks, so that a warp holds a group of them in all
    rows: all its chunks, and in each of them `EACH` neighbours, are one thread's. Its word is which of these are
    marked, 32 bits, and its largest logit. A record is the row's largest logit, the inverse of its sum, its squares,
    and which words are not 0; those that are 0 are not written. The sums are added in halves.
    """
    LANES: tl.constexpr = WIDTH // EACH
    DEEP: tl.constexpr = CHUNKS // GROUPS
    k = tl.arange(0, CHUNKS)[None, :, None] * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    inside = k < CLASSES
    place = tl.arange(0, DEEP)[:, None] * EACH + tl.arange(0, EACH)[None, :]
    bit = (tl.full([DEEP, EACH], 1, tl.int32) << place)[None, None, :, None, :]
    lane = tl.arange(0, LANES)
    own_bit = tl.full([LANES], 1, tl.int32) << lane
    group = tl.arange(0, GROUPS)
    FOLD: tl.constexpr = LANES == 32  # a thread has the same classes of all rows
    total = tl.zeros([1 if FOLD else ROWS, CHUNKS, WIDTH], tl.int64)
    first = tl.program_id(0)
    count = first * 0
    for at in tl.range(first, tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = at * ROWS + tl.arange(0, ROWS)
        real = row < rows
        # Of rows past the end the last one is read.
        start = tl.multiple_of(tl.minimum(row, rows - 1).to(tl.int64) * stride, VEC)
        x = tl.load(logits + (start[:, None, None] + k), mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.load(outcomes + row, mask=real, other=-1)
        own = tl.max(tl.max(tl.reshape(x, [ROWS, GROUPS, DEEP, LANES, EACH]), axis=4), axis=2)
        most = tl.max(tl.max(own, axis=1), axis=1)
        e = exp2((x - most[:, None, None]) * _LOG2E, ASM)
        divisor = tl.sum(tl.sum(e, axis=1), axis=1)
        # A sum is NaN if a logit is NaN or infinite. The exponential of the largest is 1.
        valid = (y >= 0) & (y < CLASSES) & (divisor == divisor)
        best = tl.where(valid, 1.0 / divisor, 0.0)
        p = _times(e, best[:, None, None], ASM)
        exact = _doubled(p, ASM)
        whole = (exact + 2.0).to(tl.int64, bitcast=True)
        if FOLD:
            total += tl.sum(whole, axis=0)[None, :, :]
        else:
            total += whole
        count += 1
        small = (exact * exact + _MAGIC).to(tl.int64, bitcast=True)
        small = tl.sum(tl.sum(small, axis=1), axis=1) - BASE
        # The most likely class and its equals are always among those that are marked.
        lowest = tl.where(valid, tl.minimum(best, limit), 2.0)
        found = (p >= lowest[:, None, None]).to(tl.int32)
        found = tl.reshape(found, [ROWS, GROUPS, DEEP, LANES, EACH]) * bit
        mark = tl.sum(tl.sum(found, axis=4), axis=2)
        which = tl.sum(tl.where(mark != 0, own_bit[None, None, :], 0), axis=2)
        slot = (row.to(tl.int64) * (GROUPS * LANES))[:, None, None] + group[None, :, None] * LANES + lane[None, None, :]
        word = (own.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (mark.to(tl.int64) & 0xFFFFFFFF)
        tl.store(words + slot, word, mask=(mark != 0) & real[:, None, None])
        high, low = (small >> 32).to(tl.int32)[:, None], small.to(tl.int32)[:, None]
        record = tl.where(lane[None, :] == 3, high, low)
        record = tl.where(lane[None, :] == 0, most.to(tl.int32, bitcast=True)[:, None], record)
        record = tl.where(lane[None, :] == 1, best.to(tl.int32, bitcast=True)[:, None], record)
        for g in tl.static_range(GROUPS):
            chosen = tl.sum(tl.where(group[None, :] == g, which, 0), axis=1) if GROUPS > 1 else tl.sum(which, axis=1)
            record = tl.where(lane[None, :] == 4 + g, chosen[:, None], record)
        home = (row.to(tl.int64) * RECORD)[:, None] + lane[None, :]
        tl.store(records + home, record, mask=real[:, None] & (lane < 4 + GROUPS)[None, :])
    each = tl.sum(total, axis=0) - ((count.to(tl.int64) * ROWS & 3) << 62)
    known = tl.reshape(inside, [CHUNKS, WIDTH])
    own_class = tl.reshape(k, [CHUNKS, WIDTH])
    tl.atomic_add(sums + own_class, each >> _HALF, mask=known, sem="relaxed")
    tl.atomic_add(sums + CLASSES + own_class, each & _LOW, mask=known, sem="relaxed")


@triton.jit
def _add_halves(at, size, values):
    """Add the sum of integers to a number in two halves."""
    total = tl.sum(values, axis=0)
    tl.atomic_add(at, total >> _HALF, sem="relaxed")
    tl.atomic_add(at + size, total & _LOW, sem="relaxed")


@triton.jit
def _digits(values, valid):
    return tl.where(valid, (values + 2.0).to(tl.int64, bitcast=True) - _TWO_BITS, 0)


@triton.jit
def _bin(p, BINS: tl.constexpr):
    """Return the bin of probabilities: `treecal._bins.bin_of`, since a float32 times the bins is exact in float64."""
    return tl.minimum(tl.floor(p * BINS).to(tl.int32), BINS - 1)


@triton.jit
def _lowest_bit(word):
    """Return the place of the lowest bit of 64 that are not 0: the exponent of its float."""
    low = (word & -word).to(tl.float64).to(tl.int64, bitcast=True)
    return (((low >> 52) & 2047) - 1023).to(tl.int32)  # that of the highest bit is negative


@triton.jit
def _next_word(words, home, which):
    """Return the next words of rows, whose they are, and which are left; where none is left, words are 0."""
    more = which != 0
    lane = tl.where(more, _lowest_bit(which), 0)
    return tl.load(words + home + lane, mask=more, other=0), lane, which & (which - 1)


@triton.jit
def _count_marked(
    start, cells, lane, word, mark, most, best, square, top,
    BINS: tl.constexpr, SIZE: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr, WIDTH: tl.constexpr,
    DEEP: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Count the lowest mark of the words of rows; return the other marks, the squares, and the most likely class."""
    here = mark != 0
    place = _lowest_bit(mark.to(tl.int64) & 0xFFFFFFFF)
    rest = mark & (mark - 1)
    k = (lane // LANES * DEEP + place // EACH) * WIDTH + lane % LANES * EACH + place % EACH
    # If only one is marked, it is the thread's largest.
    several = here & ((rest != 0) | (word == 0))
    x = tl.load(start + k, mask=several, other=0.0).to(tl.float32)
    x = tl.where(several, x, (word >> 32).to(tl.int32).to(tl.float32, bitcast=True))
    p = _probability(x, most, best, ASM)
    exact = tl.where(here, p, 0.0).to(tl.float64)
    bin_ = _bin(exact, BINS)
    amount = _digits(exact, here)
    at = cells + k * BINS + bin_
    counted = here & (bin_ > 0)
    tl.atomic_add(at, tl.full(k.shape, 1, tl.int64), mask=counted, sem="relaxed")
    tl.atomic_add(at + 2 * SIZE, amount >> _HALF, mask=counted, sem="relaxed")
    tl.atomic_add(at + 3 * SIZE, amount & _LOW, mask=counted, sem="relaxed")
    whole = (exact * exact * _SQUARE).to(tl.int64)
    summed = (exact * exact + _MAGIC).to(tl.int64, bitcast=True) - _MAGIC_BITS
    square += tl.where(here & (p >= 0.0625), whole - summed, 0)
    return rest, square, tl.where(here & (p == best), tl.minimum(top, k), top)


@triton.jit
def _count_unmarked(
    cells, real, valid, y, given, best,
    CLASSES: tl.constexpr, BINS: tl.constexpr, SIZE: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """Count what needs no marks: outcomes, the largest probabilities, and log scores."""
    one = valid.to(tl.int64)
    tl.atomic_add(cells + SIZE + y * BINS + _bin(given, BINS), one, mask=valid, sem="relaxed")
    amount = _digits(best.to(tl.float64), valid)
    place, last = _bin(best.to(tl.float64), BINS), cells + CLASSES * BINS
    if FEW > 0:
        b = tl.arange(0, FEW)
        here, above = place[:, None] == b[None, :], (b > 0) & (b < BINS)
        many = tl.sum(tl.where(here, one.to(tl.int32)[:, None], 0), axis=0)
        tl.atomic_add(last + b, many.to(tl.int64), mask=above, sem="relaxed")
        part = tl.sum(tl.where(here, amount[:, None], 0), axis=0)
        tl.atomic_add(last + 2 * SIZE + b, part >> _HALF, mask=above, sem="relaxed")
        tl.atomic_add(last + 3 * SIZE + b, part & _LOW, mask=above, sem="relaxed")
    else:
        above = valid & (place > 0)
        tl.atomic_add(last + place, one, mask=above, sem="relaxed")
        tl.atomic_add(last + 2 * SIZE + place, amount >> _HALF, mask=above, sem="relaxed")
        tl.atomic_add(last + 3 * SIZE + place, amount & _LOW, mask=above, sem="relaxed")
    scores, counts = cells + 4 * SIZE, cells + 4 * SIZE + 8
    _add_halves(last + 2 * SIZE, SIZE, amount)
    possible = valid & (given > 0)
    log = tl.where(possible, -tl.log(tl.where(possible, given, 1.0)), 0.0)
    log = tl.maximum(tl.minimum(log, _SCALE), 0.0) / _SCALE
    _add_halves(scores + 2, 4, _digits(log, valid))
    _add_halves(scores + 3, 4, _digits(log * log, valid))
    tl.atomic_add(counts, tl.sum(one, axis=0), sem="relaxed")
    tl.atomic_add(counts + 1, tl.sum((valid & (given <= 0)).to(tl.int64), axis=0), sem="relaxed")
    tl.atomic_add(counts + 2, tl.sum((real & (best <= 0)).to(tl.int64), axis=0), sem="relaxed")


@triton.jit(do_not_specialize=["rows"])
def tally_marked(
    logits,
    outcomes,
    records,
    words,
    sums,
    cells,
    rows,
    stride,
    CLASSES: tl.constexpr,
    BINS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    EACH: tl.constexpr,
    GROUPS: tl.constexpr,
    RECORD: tl.constexpr,
    DEEP: tl.constexpr,
    FEW: tl.constexpr,
    ASM: tl.constexpr,
):
    """Add what is marked, hits, the most likely classes and the scores of rows; clear the sums of the first kernel."""
    SIZE: tl.constexpr = (CLASSES + 1) * BINS
    LANES: tl.constexpr = WIDTH // EACH
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    real = row < rows
    known = row < CLASSES  # there are programs for as many classes as well
    for half in tl.static_range(2):
        added = tl.load(sums + half * CLASSES + row, mask=known, other=0)
        tl.atomic_add(cells + (2 + half) * SIZE + row * BINS, added, mask=known, sem="relaxed")
        tl.store(sums + half * CLASSES + row, tl.zeros([ROWS], tl.int64), mask=known)
    record = records + row.to(tl.int64) * RECORD
    most = tl.load(record, mask=real, other=0).to(tl.float32, bitcast=True)
    best = tl.load(record + 1, mask=real, other=0).to(tl.float32, bitcast=True)
    low = tl.load(record + 2, mask=real, other=0).to(tl.int64) & 0xFFFFFFFF
    square = (tl.load(record + 3, mask=real, other=0).to(tl.int64) << 32) | low
    y = tl.load(outcomes + row, mask=real, other=-1).to(tl.int32)
    valid = best > 0
    start = logits + row.to(tl.int64) * stride
    given = _probability(tl.load(start + y, mask=valid, other=0.0).to(tl.float32), most, best, ASM)
    given = tl.where(valid, given, 0.0).to(tl.float64)
    top = tl.full([ROWS], _NONE, tl.int32)
    for group in tl.static_range(0, GROUPS, 2):  # of two the words that are not 0 fit into 64 bits
        home = row.to(tl.int64) * (GROUPS * LANES) + group * LANES
        which = tl.load(record + 4 + group, mask=valid, other=0).to(tl.int64) & 0xFFFFFFFF
        if group + 1 < GROUPS:
            which = which | (tl.load(record + 5 + group, mask=valid, other=0).to(tl.int64) << 32)
        # Two words of a row are worked on at a time, and the next two are asked for before they are needed.
        word, lane, which = _next_word(words, home, which)
        other, off, which = _next_word(words, home, which)
        mark, spare = word.to(tl.int32), other.to(tl.int32)
        if group == 0:  # while these are on their way
            _count_unmarked(cells, real, valid, y, given, best, CLASSES, BINS, SIZE, FEW)
        while tl.max(((mark | spare) != 0).to(tl.int32), axis=0) > 0:
            third, behind, left = _next_word(words, home, which)
            fourth, further, last = _next_word(words, home, left)
            rest, square, top = _count_marked(
                start, cells, group * LANES + lane, word, mark, most, best, square, top,
                BINS, SIZE, LANES, EACH, WIDTH, DEEP, ASM,
            )  # fmt: skip
            more, square, top = _count_marked(
                start, cells, group * LANES + off, other, spare, most, best, square, top,
                BINS, SIZE, LANES, EACH, WIDTH, DEEP, ASM,
            )  # fmt: skip
            done, gone = rest == 0, more == 0
            # Of a word that had several marks, the largest logit is another's.
            word, lane = tl.where(done, third, 0), tl.where(done, behind, lane)
            mark = tl.where(done, third.to(tl.int32), rest)
            next_, place = tl.where(done, fourth, third), tl.where(done, further, behind)
            other, off = tl.where(gone, next_, 0), tl.where(gone, place, off)
            spare = tl.where(gone, next_.to(tl.int32), more)
            which = tl.where(done & gone, last, tl.where(done | gone, left, which))
    hit = (valid & (top == y)).to(tl.int64)
    place, last = _bin(best.to(tl.float64), BINS), cells + CLASSES * BINS
    if FEW > 0:
        b = tl.arange(0, FEW)
        hits = tl.sum(tl.where(place[:, None] == b[None, :], hit.to(tl.int32)[:, None], 0), axis=0)
        tl.atomic_add(last + SIZE + b, hits.to(tl.int64), mask=b < BINS, sem="relaxed")
    else:
        tl.atomic_add(last + SIZE + place, hit, mask=valid, sem="relaxed")
    brier = (square.to(tl.float64) * (1.0 / _SQUARE) + 1.0) / 2.0 - given
    scores = cells + 4 * SIZE
    _add_halves(scores, 4, _digits(brier, valid))
    _add_halves(scores + 1, 4, _digits(brier * brier, valid))


@triton.jit(do_not_specialize=["rows"])
def write_softmax(
    logits, records, out, rows, stride,
    CLASSES: tl.constexpr, RECORD: tl.constexpr, BLOCK: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    row, k = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(logits + row * stride + k, mask=k < CLASSES, other=0.0).to(tl.float32)
    most = tl.load(records + row * RECORD).to(tl.float32, bitcast=True)
    best = tl.load(records + row * RECORD + 1).to(tl.float32, bitcast=True)
    p = tl.where(best > 0, _probability(x, most, best, ASM), float("nan"))
    tl.store(out + row * CLASSES + k, p, mask=k < CLASSES)
