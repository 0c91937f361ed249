"""How kernels are launched, and the launches of those of recalibration.

Triton looks at the arguments of the first launch alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.runtime import driver

from treecal.correctors import FIRST, forgetting
from treecal.torch._triton.kernels.recalibrate import recalibrate, step_temperature, step_vector, trust_copies

_compiled: dict[tuple[Any, ...], Any] = {}
_multiprocessors: dict[torch.device, int] = {}


def launch(kernel: Any, key: tuple[Any, ...], programs: int, arguments: tuple[Any, ...], **options: Any) -> None:
    """Launch a kernel in this many programs, on the current device.

    Launches with the same key have arguments of the same types, and pointers and strides divisible alike: all that a
    kernel is compiled for. Finding that out again takes Triton longer than the launch.
    """
    compiled = _compiled.get(key)
    if compiled is not None:
        compiled[(programs, 1, 1)](*arguments)
        return
    compiled = kernel[(programs,)](*arguments, **options)
    if compiled is not None:  # Triton's interpreter compiles nothing
        _compiled[key] = compiled


def multiprocessors(device: torch.device) -> int:
    """Return the number of multiprocessors."""
    if device not in _multiprocessors:
        cuda = device.type == "cuda"
        _multiprocessors[device] = torch.cuda.get_device_properties(device).multi_processor_count if cuda else 1
    return _multiprocessors[device]


def current_stream(rows: Tensor) -> int:
    """Return the stream that kernels run in, as a number."""
    return int(driver.active.get_current_stream(rows.device.index)) if rows.is_cuda else 0


def power_of_two(number: int) -> int:
    """Return the least power of two that is at least the number."""
    return 1 << (number - 1).bit_length()


def vector(rows: Tensor) -> int:
    """Return how many numbers at a time rows can be read: a power of two that divides where each begins."""
    if rows.data_ptr() % 16:
        return 1
    return min(16 // rows.element_size(), rows.stride(0) & -rows.stride(0)) if rows.stride(0) else 1


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


class Learned(NamedTuple):
    """The buffers of `Recalibrate` that steps change."""

    theta: Tensor
    curvature: Tensor
    trust: Tensor
    seen: Tensor
    rounds: Tensor


@lru_cache(maxsize=64)
def _constants(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, device=device)


def take_steps(
    now: Learned, logs: Tensor, outcomes: Tensor, valid: Tensor, *, numbers: tuple[float, float, float], forget: bool
) -> None:
    """Take a step for each valid row, in order, in place; nothing waits for the device.

    `numbers` are rate, ridge and radius. There are at most 65,536 rows.
    """
    rows, classes = logs.shape
    copies = len(now.trust)
    device = logs.device
    kept = _constants(tuple(forgetting.kept(copies, FIRST).tolist()), device)
    given = _constants((*numbers, forgetting.SHARE, forgetting.LASTING), device)
    theta = now.theta.clone()
    curvature = now.curvature.clone()
    losses = torch.empty(rows, copies, dtype=torch.float64, device=device)
    block = max(16, power_of_two(classes))
    (step_vector if now.theta.shape[1] > 1 else step_temperature)[(copies if forget else 1,)](
        logs, outcomes, valid, now.theta, now.curvature, theta, curvature, losses, kept, now.seen, given, rows,
        CLASSES=classes, BLOCK=block, COPIES=copies, FIRST=FIRST, FORGET=forget,
        num_warps=min(max(block // 256, 1), 16),
    )  # fmt: skip
    now.theta.copy_(theta)
    now.curvature.copy_(curvature)
    trust_copies[(1,)](
        losses, valid, now.trust, now.seen, now.rounds, given, rows,
        COPIES=copies, BLOCK=power_of_two(copies), FIRST=FIRST, FORGET=forget, num_warps=1,
    )  # fmt: skip
