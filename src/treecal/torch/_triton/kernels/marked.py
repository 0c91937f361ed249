"""The second kernel of the metric: it counts what the first one has marked, the scores of rows, and sums of classes.

Programs have three tasks, which do not wait for each other, since all of them wait for memory. Two tasks give each
thread a row. One of these goes from mark to mark, and counts what is there; what is in the lowest bin follows from the
sums of classes. Sums that all rows share are added up within a program first.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from treecal.auditing import LOG_SCALE, MAGIC
from treecal.torch._tally import HALF, LOW, TWO
from treecal.torch._triton.kernels.count import RECORD, START, add_squares, probability

_MAGIC = tl.constexpr(MAGIC)
_MAGIC_BITS = tl.constexpr(int(np.float64(MAGIC).view(np.int64)))
_START_BITS = tl.constexpr(int(np.float64(START).view(np.int64)))
_TWO_BITS = tl.constexpr(TWO)
_SQUARE = tl.constexpr(2.0**58)
_HALF = tl.constexpr(HALF)
_LOW = tl.constexpr(LOW)
_SCALE = tl.constexpr(LOG_SCALE)
_RECORD = tl.constexpr(RECORD)
_NONE = tl.constexpr(2**31 - 1)
_LINES = tl.constexpr(8)  # of the sums of classes, which are read at a time


@triton.jit
def _digits(values, valid):
    return tl.where(valid, (values + 2.0).to(tl.int64, bitcast=True) - _TWO_BITS, 0)


@triton.jit
def _bin(p, BINS: tl.constexpr):
    """Return the bin of probabilities, by the rule of `bin_of`: a float32 times the bins is exact in float64."""
    return tl.minimum(tl.floor(p * BINS).to(tl.int32), BINS - 1)


@triton.jit
def _lowest_bit(word, ASM: tl.constexpr):
    """Return the place of the lowest of 64 bits that is 1, if there is one."""
    if ASM:
        return tl.inline_asm_elementwise(
            "{.reg .b64 turned; brev.b64 turned, $1; clz.b64 $0, turned;}", "=r,l", [word],
            dtype=tl.int32, is_pure=True, pack=1,
        )  # fmt: skip
    else:  # the exponent of its float
        low = (word & -word).to(tl.float64).to(tl.int64, bitcast=True)
        return (((low >> 52) & 2047) - 1023).to(tl.int32)  # that of the highest bit is negative


@triton.jit
def _bits(word, ASM: tl.constexpr):
    """Return how many of 64 bits are 1."""
    if ASM:
        return tl.inline_asm_elementwise("popc.b64 $0, $1;", "=r,l", [word], dtype=tl.int32, is_pure=True, pack=1)
    else:
        found = tl.zeros(word.shape, tl.int32)
        for i in tl.static_range(64):
            found += ((word >> i) & 1).to(tl.int32)
        return found


@triton.jit
def _next_four(
    start, group, one, two, three, four,
    CLASSES: tl.constexpr, EACH: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Take the next mark of each row: return its first class, if there is one, its logits, and which marks are left."""
    PARTS: tl.constexpr = EACH // 4
    a = one != 0
    b = two != 0
    c = three != 0
    word = tl.where(a, one, tl.where(b, two, tl.where(c, three, four)))
    bit = _lowest_bit(word, ASM)
    here = word != 0
    lane = tl.where(a, 0, tl.where(b, 8, tl.where(c, 16, 24))) + bit // 8
    place = bit % 8
    k = (place // PARTS * GROUPS + group) * WIDTH + lane * EACH + place % PARTS * 4
    four = tl.where(a | b | c, four, four & (four - 1))
    three = tl.where(a | b, three, three & (three - 1))
    two = tl.where(a, two, two & (two - 1))
    one = one & (one - 1)
    none = -float("inf")
    x0 = tl.load(start + k, mask=here & (k < CLASSES), other=none).to(tl.float32)
    x1 = tl.load(start + k + 1, mask=here & (k + 1 < CLASSES), other=none).to(tl.float32)
    x2 = tl.load(start + k + 2, mask=here & (k + 2 < CLASSES), other=none).to(tl.float32)
    x3 = tl.load(start + k + 3, mask=here & (k + 3 < CLASSES), other=none).to(tl.float32)
    return k, here, x0, x1, x2, x3, one, two, three, four


@triton.jit
def _count_one(
    cells, k, here, x, most, best, square, top, BINS: tl.constexpr, SIZE: tl.constexpr, ASM: tl.constexpr
):  # fmt: skip
    """Count a class of each row: return its probability, the sum of squares with its own, and the most likely class."""
    p = probability(x, most, best, ASM)
    exact = tl.where(here, p, 0.0).to(tl.float64)
    bin_ = _bin(exact, BINS)
    amount = _digits(exact, here)
    at = cells + k * BINS + bin_
    counted = bin_ > 0
    tl.atomic_add(at, tl.full(k.shape, 1, tl.int64), mask=counted, sem="relaxed")
    tl.atomic_add(at + 2 * SIZE, amount >> _HALF, mask=counted, sem="relaxed")
    tl.atomic_add(at + 3 * SIZE, amount & _LOW, mask=counted, sem="relaxed")
    small = (exact * exact + _MAGIC).to(tl.int64, bitcast=True) - _MAGIC_BITS
    square += tl.where(exact >= 0.0625, (exact * exact * _SQUARE).to(tl.int64), small)
    return exact, square, tl.where(here & (p == best), tl.minimum(top, k), top)


@triton.jit
def _count_marks(
    start, marks, cells, row, valid, y, given, most, best, square,
    CLASSES: tl.constexpr, BINS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, EACH: tl.constexpr,
    GROUPS: tl.constexpr, FEW: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """Count what is marked, and what follows from it: hits of the most likely class, and quadratic scores."""
    WORDS: tl.constexpr = WIDTH // EACH // 8
    top = tl.full(row.shape, _NONE, tl.int32)
    for group in tl.range(0, GROUPS, num_stages=1):
        home = marks + row.to(tl.int64) * (GROUPS * WORDS) + group * WORDS
        one = tl.load(home, mask=valid, other=0)
        two = tl.load(home + 1, mask=valid & (WORDS > 1), other=0)
        three = tl.load(home + 2, mask=valid & (WORDS > 2), other=0)
        four = tl.load(home + 3, mask=valid & (WORDS > 3), other=0)
        count = _bits(one, ASM) + _bits(two, ASM) + _bits(three, ASM) + _bits(four, ASM)
        k, here, x0, x1, x2, x3, one, two, three, four = _next_four(
            start, group, one, two, three, four, CLASSES, EACH, WIDTH, GROUPS, ASM
        )
        for _ in tl.range(0, tl.max(count, axis=0), num_stages=1):
            # The next ones are asked for before they are needed.
            after, there, y0, y1, y2, y3, one, two, three, four = _next_four(
                start, group, one, two, three, four, CLASSES, EACH, WIDTH, GROUPS, ASM
            )
            a, square, top = _count_one(cells, k, here, x0, most, best, square, top, BINS, SIZE, ASM)
            b, square, top = _count_one(cells, k + 1, here, x1, most, best, square, top, BINS, SIZE, ASM)
            c, square, top = _count_one(cells, k + 2, here, x2, most, best, square, top, BINS, SIZE, ASM)
            d, square, top = _count_one(cells, k + 3, here, x3, most, best, square, top, BINS, SIZE, ASM)
            square -= add_squares(a, b, c, d) - _START_BITS  # what the first kernel has added
            k = after
            here = there
            x0 = y0
            x1 = y1
            x2 = y2
            x3 = y3
    hit = (valid & (top == y)).to(tl.int64)
    place = _bin(best.to(tl.float64), BINS)
    last = cells + CLASSES * BINS
    if FEW > 0:
        b = tl.arange(0, FEW)
        hits = tl.sum(tl.where(place[:, None] == b[None, :], hit.to(tl.int32)[:, None], 0), axis=0)
        tl.atomic_add(last + SIZE + b, hits.to(tl.int64), mask=b < BINS, sem="relaxed")
    else:
        tl.atomic_add(last + SIZE + place, hit, mask=valid, sem="relaxed")
    brier = (square.to(tl.float64) * (1.0 / _SQUARE) + 1.0) / 2.0 - given
    total = tl.sum(tl.join(_digits(brier, valid), _digits(brier * brier, valid)), axis=0)
    scores = cells + 4 * SIZE + tl.arange(0, 2)
    tl.atomic_add(scores, total >> _HALF, sem="relaxed")
    tl.atomic_add(scores + 4, total & _LOW, sem="relaxed")


@triton.jit
def _count_rows(
    cells, real, valid, y, given, best,
    CLASSES: tl.constexpr, BINS: tl.constexpr, SIZE: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """Count what needs no marks: outcomes, the largest probabilities, log scores, and rows."""
    one = valid.to(tl.int64)
    tl.atomic_add(cells + SIZE + y * BINS + _bin(given, BINS), one, mask=valid, sem="relaxed")
    amount = _digits(best.to(tl.float64), valid)
    place = _bin(best.to(tl.float64), BINS)
    last = cells + CLASSES * BINS
    if FEW > 0:
        b = tl.arange(0, FEW)
        here = place[:, None] == b[None, :]
        above = (b > 0) & (b < BINS)
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
    possible = valid & (given > 0)
    log = tl.where(possible, -tl.log(tl.where(possible, given, 1.0)), 0.0)
    log = tl.maximum(tl.minimum(log, _SCALE), 0.0) / _SCALE
    # All that is added up is so at once, and three counts are one integer.
    count = one + ((valid & (given <= 0)).to(tl.int64) << 20) + ((real & (best <= 0)).to(tl.int64) << 40)
    each = tl.join(tl.join(amount, _digits(log * log, valid)), tl.join(_digits(log, valid), count))
    # 1 is the log score, 2 its square, by then
    total = tl.reshape(tl.sum(each, axis=0), [4])
    i = tl.arange(0, 4)
    at = tl.where(i == 0, CLASSES * BINS + 2 * SIZE, 4 * SIZE + 1 + i)
    tl.atomic_add(cells + at, total >> _HALF, mask=i < 3, sem="relaxed")
    tl.atomic_add(cells + at + tl.where(i == 0, SIZE, 4), total & _LOW, mask=i < 3, sem="relaxed")
    counts = tl.sum(tl.where(i == 3, total, 0), axis=0)
    tl.atomic_add(cells + 4 * SIZE + 8 + i, (counts >> (20 * i)) & 0xFFFFF, mask=i < 3, sem="relaxed")


@triton.jit
def _count_classes(
    sums, cells, k, part, programs,
    CLASSES: tl.constexpr, BINS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Add up a part of the sums of classes that programs of the first kernel have written."""
    high = tl.zeros([_LINES, k.shape[0]], tl.int64)
    low = tl.zeros([_LINES, k.shape[0]], tl.int64)
    for begin in tl.range(part * _LINES, programs, PARTS * _LINES):
        program = begin + tl.arange(0, _LINES)
        place = program.to(tl.int64)[:, None] * BLOCK + k[None, :]
        value = tl.load(sums + place, mask=(program < programs)[:, None] & (k < CLASSES)[None, :], other=0)
        high += value >> _HALF
        low += value & _LOW
    tl.atomic_add(cells + 2 * SIZE + k * BINS, tl.sum(high, axis=0), mask=k < CLASSES, sem="relaxed")
    tl.atomic_add(cells + 3 * SIZE + k * BINS, tl.sum(low, axis=0), mask=k < CLASSES, sem="relaxed")


@triton.jit(do_not_specialize=["rows", "programs", "tiles", "stride"])
def tally_marked(
    logits,
    outcomes,
    records,
    marks,
    sums,
    cells,
    rows,
    programs,
    tiles,
    stride,
    CLASSES: tl.constexpr,
    BINS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    EACH: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
    BASE: tl.constexpr,
    PARTS: tl.constexpr,
    FEW: tl.constexpr,
    ASM: tl.constexpr,
):
    """Do one of three tasks: `tiles` programs count marks, as many count rows, and `PARTS` by `ROWS` classes add up.

    `programs` are those of the first kernel, and `BASE` is what is too much in its sums of squares.
    """
    SIZE: tl.constexpr = (CLASSES + 1) * BINS
    at = tl.program_id(0)
    if at >= 2 * tiles:
        BLOCKS: tl.constexpr = (CLASSES + ROWS - 1) // ROWS
        own = at - 2 * tiles
        _count_classes(
            sums, cells, own % BLOCKS * ROWS + tl.arange(0, ROWS), own // BLOCKS, programs,
            CLASSES, BINS, SIZE, BLOCK, PARTS,
        )  # fmt: skip
    else:
        row = at % tiles * ROWS + tl.arange(0, ROWS)
        real = row < rows
        record = records + row.to(tl.int64) * _RECORD
        start = logits + row.to(tl.int64) * stride
        y = tl.load(outcomes + row, mask=real, other=-1).to(tl.int32)
        most = tl.load(record, mask=real, other=0).to(tl.float32, bitcast=True)
        best = tl.load(record + 1, mask=real, other=0).to(tl.float32, bitcast=True)
        valid = best > 0
        x = tl.load(start + y, mask=(y >= 0) & (y < CLASSES), other=0.0).to(tl.float32)
        given = tl.where(valid, probability(x, most, best, ASM), 0.0).to(tl.float64)
        if at >= tiles:
            _count_rows(cells, real, valid, y, given, best, CLASSES, BINS, SIZE, FEW)
        else:
            square = tl.load(record + 2, mask=real, other=0).to(tl.int64) - BASE
            square += tl.load(record + 3, mask=real, other=0).to(tl.int64) << 22
            square += tl.load(record + 4, mask=real, other=0).to(tl.int64) << 44
            _count_marks(
                start, marks, cells, row, valid, y, given, most, best, square,
                CLASSES, BINS, SIZE, WIDTH, EACH, GROUPS, FEW, ASM,
            )  # fmt: skip
