"""The functions of trees and of their weights that kernels call, compiled."""

from __future__ import annotations

from treecal import forecasters, tree
from treecal._compile import inlined, strict

digits, carries, weigh = strict(tree.digits), strict(tree.carries), strict(forecasters.weigh)


@inlined
def remainder(number: int, length: int) -> int:
    """Return `number % length`, of numbers that are not negative; fast where lengths are powers of two."""
    return number & (length - 1) if length & (length - 1) == 0 else number % length
