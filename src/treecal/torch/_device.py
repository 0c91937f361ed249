"""Where kernels run: on NVIDIA's devices, if Triton is there. Everywhere else torch's own operations do the same."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None and torch.version.hip is None
"""Whether there are kernels. (Those of other makers' devices were never tried.)"""

MOST_CLASSES = 8192
MOST_BINS = 32767
"""Of the kernels; more are left to torch's own operations. (With more bins, edges are closer than float32 can tell.)"""


INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether kernels run on the CPU, in Triton's interpreter: for tests of them, where there is no GPU."""


def runs_kernels(rows: Tensor) -> bool:
    """Return whether there are kernels where these rows are."""
    return HAS_TRITON and (rows.is_cuda or INTERPRETED) and rows.shape[0] > 0


def has_kernels(rows: Tensor) -> bool:
    """Return whether there are kernels for these rows of logits."""
    return rows.dtype != torch.float64 and runs_kernels(rows)
