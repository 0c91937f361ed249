"""Recalibration on a GPU: the launch of its kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from treecal.torch._triton.kernels.recalibrate import recalibrate
from treecal.torch._triton.launch import power_of_two, vector


def recalibrate_rows(logits: Tensor, slopes: Tensor, offsets: Tensor, least: float) -> Tensor:
    """Return the recalibrated probabilities of rows, in the type of their logits."""
    x = logits if logits.stride(1) == 1 else logits.contiguous()
    rows, classes = x.shape
    out = torch.empty(rows, classes, dtype=x.dtype, device=x.device)
    block = max(16, power_of_two(classes))
    lines, warps = _forward_shape(block)
    recalibrate[(-(-rows // lines),)](
        x, out, slopes, offsets, least, rows, x.stride(0),
        CLASSES=classes, ROWS=lines, BLOCK=block, VEC=vector(x), OUT=vector(out), ASM=x.is_cuda, num_warps=warps,
    )  # fmt: skip
    return out


def _forward_shape(block: int) -> tuple[int, int]:
    """Return how many rows a program recalibrates, and with how many warps."""
    return max(1, 1024 // block), max(1, block // 1024)
