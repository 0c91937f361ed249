"""Kernels of recalibration: one reads each row of logits once, the others take online Newton steps.

Steps are taken row after row in order, with all classes side by side. A program has one copy, and all its parameters
and curvature in registers. Copies need nothing of each other: one that joins later begins as the first one, so its
program goes through the first one's steps until then. What the trust in copies follows from, their losses, is written;
another kernel, of one program, goes through them afterwards. The steps are those of `treecal.correctors._newton`.
Numbers come in a tensor, since Triton takes a float for a float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def exp2(x, ASM: tl.constexpr):
    """Return 2^x; what is below 2^-126 is 0."""
    if ASM:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.exp2(x)


@triton.jit(do_not_specialize=["rows"])
def recalibrate(
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
    x = x - tl.log(tl.sum(exp2(x * _LOG2E, ASM), axis=1))[:, None]
    z = slope * tl.where(x < least, least, x) + offset  # NaN stays NaN
    e = exp2((z - tl.max(z, axis=1)[:, None]) * _LOG2E, ASM)
    p = e * (1.0 / tl.sum(e, axis=1))[:, None]
    start = tl.multiple_of(row.to(tl.int64) * CLASSES, OUT)
    tl.store(out + (start[:, None] + k[None, :]), p.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _threshold(copy, FIRST: tl.constexpr):
    """Return the rounds after which a copy is there."""
    power = tl.full((), 1.0, tl.float64)
    for _ in tl.range(0, copy + (FIRST - 1)):
        power *= 2.0
    return tl.where(copy == 0, 0.0, power)


@triton.jit
def _gaps(z, k, y):
    """Return the softmax less the outcome, and the log loss."""
    z -= tl.max(z, axis=0)
    e = tl.exp(z)
    total = tl.sum(e, axis=0)
    return e / total - tl.where(k == y, 1.0, 0.0), tl.log(total) - tl.sum(tl.where(k == y, z, 0.0), axis=0)


@triton.jit
def _solved(a, b, c, first, second, ridge):
    """Return `A⁻¹v` for blocks of two, by elimination."""
    factor = b / a
    two = (second - factor * first) / tl.maximum(c - factor * b, ridge)
    return (first - b * two) / a, two


@triton.jit
def _projected(slope, bias, a, b, c, radius, STEPS: tl.constexpr):
    """Return the point of the ball that is nearest in the norm of the curvature: by halving, in its eigenbasis."""
    tilt = tl.where(b == 0.0, 0.0, (c - a) / (2.0 * tl.where(b == 0.0, 1.0, b)))
    sign = tl.where(tilt < 0.0, -1.0, 1.0)
    tangent = tl.where(b == 0.0, 0.0, sign / (tl.abs(tilt) + tl.sqrt(1.0 + tilt * tilt)))
    cosine = 1.0 / tl.sqrt(1.0 + tangent * tangent)
    sine = tangent * cosine
    one = tl.maximum(a - tangent * b, 1e-300)
    two = tl.maximum(c + tangent * b, 1e-300)
    u = cosine * slope - sine * bias
    v = sine * slope + cosine * bias
    size = tl.sqrt(tl.sum(slope * slope + bias * bias, axis=0))
    low = tl.min(tl.minimum(one, two), axis=0) * (size / radius - 1.0)
    high = tl.max(tl.maximum(one, two), axis=0) * (size / radius - 1.0)
    for _ in tl.range(0, STEPS):
        middle = 0.5 * (low + high)
        x = one * u / (one + middle)
        y = two * v / (two + middle)
        outside = tl.sqrt(tl.sum(x * x + y * y, axis=0)) > radius
        low = tl.where(outside, middle, low)
        high = tl.where(outside, high, middle)
    x = one * u / (one + high)
    y = two * v / (two + high)
    scale = radius / tl.sqrt(tl.sum(x * x + y * y, axis=0))
    return (cosine * x + sine * y) * scale, (cosine * y - sine * x) * scale


@triton.jit(do_not_specialize=["rows"])
def step_vector(
    logs, outcomes, valid, theta, curvature, theta_after, curvature_after, losses, kept, seen, numbers, rows,
    CLASSES: tl.constexpr, BLOCK: tl.constexpr, COPIES: tl.constexpr, FIRST: tl.constexpr, FORGET: tl.constexpr,
):  # fmt: skip
    """Take the steps of one copy with a slope and a bias for each class; write its losses."""
    copy = tl.program_id(0)
    rounds = tl.load(seen)
    begins = _threshold(copy, FIRST)
    rate = tl.load(numbers)
    ridge = tl.load(numbers + 1)
    radius = tl.load(numbers + 2)
    if (copy == 0) | (FORGET and rounds + rows >= begins):
        k = tl.arange(0, BLOCK)
        inside = k < CLASSES
        joined = rounds >= begins
        source = tl.where(joined, copy, 0)
        slope = tl.load(theta + source * (2 * CLASSES) + k, mask=inside, other=0.0)
        bias = tl.load(theta + source * (2 * CLASSES) + CLASSES + k, mask=inside, other=0.0)
        block = curvature + source * (4 * CLASSES) + 4 * k
        a = tl.load(block, mask=inside, other=1.0)
        b = tl.load(block + 1, mask=inside, other=0.0)
        c = tl.load(block + 3, mask=inside, other=1.0)
        own = tl.load(kept + copy)
        for row in tl.range(0, rows):
            if tl.load(valid + row) != 0:
                x = tl.load(logs + row * CLASSES + k, mask=inside, other=0.0)
                y = tl.load(outcomes + row).to(tl.int32)
                two, loss = _gaps(tl.where(inside, slope * x + bias, -float("inf")), k, y)
                tl.store(losses + row * COPIES + copy, loss)
                one = two * x
                left = tl.where(joined, own, 1.0)
                a = left * a + one * one + (1.0 - left) * ridge
                b = left * b + one * two
                c = left * c + two * two + (1.0 - left) * ridge
                first, second = _solved(a, b, c, one, two, ridge)
                slope -= tl.where(inside, first / rate, 0.0)
                bias -= tl.where(inside, second / rate, 0.0)
                if tl.sum(slope * slope + bias * bias, axis=0) > radius * radius:
                    slope, bias = _projected(slope, bias, a, b, c, radius, 200)
                rounds += 1.0
                if (rounds >= begins) & (joined == 0):
                    part = tl.minimum(1.0, 1.0 / (1.0 - own) / rounds)
                    a = part * a + (1.0 - part) * ridge
                    b = part * b
                    c = part * c + (1.0 - part) * ridge
                    joined = rounds >= begins
        if joined:
            tl.store(theta_after + copy * (2 * CLASSES) + k, slope, mask=inside)
            tl.store(theta_after + copy * (2 * CLASSES) + CLASSES + k, bias, mask=inside)
            block = curvature_after + copy * (4 * CLASSES) + 4 * k
            tl.store(block, a, mask=inside)
            tl.store(block + 1, b, mask=inside)
            tl.store(block + 2, b, mask=inside)
            tl.store(block + 3, c, mask=inside)


@triton.jit(do_not_specialize=["rows"])
def step_temperature(
    logs, outcomes, valid, theta, curvature, theta_after, curvature_after, losses, kept, seen, numbers, rows,
    CLASSES: tl.constexpr, BLOCK: tl.constexpr, COPIES: tl.constexpr, FIRST: tl.constexpr, FORGET: tl.constexpr,
):  # fmt: skip
    """Take the steps of one copy with one number for all classes; write its losses."""
    copy = tl.program_id(0)
    rounds = tl.load(seen)
    begins = _threshold(copy, FIRST)
    rate = tl.load(numbers)
    ridge = tl.load(numbers + 1)
    radius = tl.load(numbers + 2)
    if (copy == 0) | (FORGET and rounds + rows >= begins):
        k = tl.arange(0, BLOCK)
        inside = k < CLASSES
        joined = rounds >= begins
        source = tl.where(joined, copy, 0)
        slope = tl.load(theta + source)
        a = tl.load(curvature + source)
        own = tl.load(kept + copy)
        for row in tl.range(0, rows):
            if tl.load(valid + row) != 0:
                x = tl.load(logs + row * CLASSES + k, mask=inside, other=0.0)
                y = tl.load(outcomes + row).to(tl.int32)
                gap, loss = _gaps(tl.where(inside, slope * x, -float("inf")), k, y)
                tl.store(losses + row * COPIES + copy, loss)
                gradient = tl.sum(gap * x, axis=0)
                left = tl.where(joined, own, 1.0)
                a = left * a + gradient * gradient + (1.0 - left) * ridge
                slope -= gradient / a / rate
                slope = tl.minimum(tl.maximum(slope, -radius), radius)
                rounds += 1.0
                if (rounds >= begins) & (joined == 0):
                    part = tl.minimum(1.0, 1.0 / (1.0 - own) / rounds)
                    a = part * a + (1.0 - part) * ridge
                    joined = rounds >= begins
        if joined:
            tl.store(theta_after + copy, slope)
            tl.store(curvature_after + copy, a)


@triton.jit(do_not_specialize=["rows"])
def trust_copies(
    losses, valid, trust, seen, rounds, numbers, rows,
    COPIES: tl.constexpr, BLOCK: tl.constexpr, FIRST: tl.constexpr, FORGET: tl.constexpr,
):  # fmt: skip
    """Go through the losses in order: update the trust in the copies, and count rounds."""
    copy = tl.arange(0, BLOCK)
    share = tl.load(numbers + 3)
    lasting = tl.load(numbers + 4)
    own = tl.load(trust + copy, mask=copy < COPIES, other=0.0)
    weight = tl.load(seen)
    before = tl.load(seen)
    count = tl.full((), 1, tl.int32)
    begins = _threshold(count, FIRST)  # of the next copy
    if FORGET:
        while weight >= begins:
            count += 1
            begins *= 2.0
    for row in tl.range(0, rows):
        if tl.load(valid + row) != 0:
            weight += 1.0
            if count > 1:
                there = copy < count
                loss = tl.load(losses + row * COPIES + copy, mask=there, other=float("inf"))
                own = tl.where(there, own * tl.exp(tl.min(loss, axis=0) - loss), 0.0)
                part = tl.minimum(share, 1.0 / weight)
                start = tl.where(copy == 0, lasting, (1.0 - lasting) / (count - 1).to(tl.float64))
                own = tl.where(there, (1.0 - part) * (own / tl.sum(own, axis=0)) + part * start, 0.0)
            if FORGET and weight >= begins:
                j = count.to(tl.float64)
                taken = (1.0 - lasting) / (j * (j + 1.0)) / (1.0 - (1.0 - lasting) * (1.0 - 1.0 / j))
                first = tl.sum(tl.where(copy == 0, own, 0.0), axis=0)
                own = tl.where(copy == count, first * taken, tl.where(copy == 0, own * (1.0 - taken), own))
                count += 1
                begins *= 2.0
    tl.store(trust + copy, own, mask=copy < COPIES)
    tl.store(seen, weight)
    tl.store(rounds, tl.load(rounds) + (weight - before).to(tl.int64))
