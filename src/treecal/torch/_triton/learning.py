"""The online Newton step of recalibration on a GPU: the launches of its kernels."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from treecal.correctors import FIRST, forgetting
from treecal.torch._triton.kernels.newton import step_temperature, step_vector, trust_copies
from treecal.torch._triton.launch import power_of_two


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
    (rows, classes), copies, device = logs.shape, len(now.trust), logs.device
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
