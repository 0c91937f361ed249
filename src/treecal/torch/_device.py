"""Where kernels run: on NVIDIA's devices, if Triton is there. Everywhere else torch's own operations do the same."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None and torch.version.hip is None
"""Whether there are kernels. (Those of other makers' devices were never tried.)"""

MOST_CLASSES, MOST_BINS = 8192, 32767
"""Of the kernels; more are left to torch's own operations. (With more bins, edges are closer than float32 can tell.)"""


def has_kernels(rows: Tensor) -> bool:
    """Return whether there are kernels for these rows."""
    return HAS_TRITON and rows.is_cuda and rows.dtype != torch.float64 and len(rows) > 0
