"""Trust in copies that forget at different speeds, compiled: what `_forgetting` does, for scalings and group means."""

from __future__ import annotations

import math

from treecal._compile import strict
from treecal._typing import Array


@strict
def mixed(trust: Array, points: Array, mean: Array) -> None:
    """Write the mean of the copies' points by trust."""
    for k in range(len(mean)):
        total = trust[0] * points[0, k]
        for copy in range(1, len(trust)):
            total += trust[copy] * points[copy, k]
        mean[k] = total


@strict
def trusted(trust: Array, losses: Array, seen: float, weight: float, share: float, lasting: float) -> None:
    """Update the trust in the copies: as `forgetting.trusted` does."""
    least, total, copies = losses.min(), 0.0, len(trust)
    for copy in range(copies):
        trust[copy] *= math.exp(-weight * (losses[copy] - least))
        total += trust[copy]
    part = min(share, 1.0 / max(seen, 1.0)) * min(weight, 1.0)
    for copy in range(copies):
        start = lasting if copy == 0 else (1.0 - lasting) / (copies - 1)
        trust[copy] = (1.0 - part) * (trust[copy] / total) + part * start
