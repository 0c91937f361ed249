"""The functions of trees and of their weights that kernels call, compiled."""

from __future__ import annotations

from treecal import tree
from treecal._compile import inlined, strict
from treecal.forecasters import _weighting

digits, carries, weigh = strict(tree.digits), strict(tree.carries), strict(_weighting.weigh)


@inlined
def remainder(number: int, length: int) -> int:
    """Return `number % length`, of numbers that are not negative; fast where lengths are powers of two."""
    return number & (length - 1) if length & (length - 1) == 0 else number % length
