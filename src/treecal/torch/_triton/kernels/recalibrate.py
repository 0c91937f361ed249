"""The kernel of recalibration, which reads each row of logits once."""

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
