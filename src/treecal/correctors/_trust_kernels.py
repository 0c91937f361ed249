"""Trust in copies that forget at different speeds, of scalings and of group means."""

from __future__ import annotations

from treecal._compile import strict
from treecal._elementary import exp
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
    """Update the trust in each copy by its loss in a round, the last of so many.

    A weight multiplies the losses; the share is the same for all, but a part of it for a weight below 1.
    """
    copies = len(trust)
    if copies == 1:
        return
    least = losses.min()
    total = 0.0
    for copy in range(copies):
        trust[copy] *= exp(-weight * (losses[copy] - least))
        total += trust[copy]
    part = min(share, 1.0 / max(seen, 1.0)) * min(weight, 1.0)
    for copy in range(copies):
        start = lasting if copy == 0 else (1.0 - lasting) / (copies - 1)
        trust[copy] = (1.0 - part) * (trust[copy] / total) + part * start
