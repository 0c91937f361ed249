"""How kernels are launched: Triton looks at the arguments of the first launch alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from triton.runtime import driver

_compiled: dict[tuple[Any, ...], Any] = {}
_multiprocessors: dict[torch.device, int] = {}


def launch(kernel: Any, key: tuple[Any, ...], programs: int, arguments: tuple[Any, ...], **options: Any) -> None:
    """Launch so many programs of a kernel, on the device that is current.

    Launches with the same key have arguments of the same types, and pointers and strides divisible alike: all that a
    kernel is compiled for. To find that out anew takes Triton longer than to launch.
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
    """Return the least power of two that is not less."""
    return 1 << (number - 1).bit_length()


def vector(rows: Tensor) -> int:
    """Return how many numbers at a time rows can be read: a power of two that divides where each begins."""
    if rows.data_ptr() % 16:
        return 1
    return min(16 // rows.element_size(), rows.stride(0) & -rows.stride(0)) if rows.stride(0) else 1
