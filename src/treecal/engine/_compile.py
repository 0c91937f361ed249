"""How kernels are compiled: by Numba, when first called, without Python's lock, and kept for the next process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

from treecal import tree
from treecal.forecasters import _weighting

F = TypeVar("F", bound=Callable[..., Any])


def strict(function: F) -> F:
    """Compile with every sum and division as it is written: points come out as `Path` makes them."""
    return cast(F, njit(cache=True, nogil=True, error_model="numpy")(function))


def loose(function: F) -> F:
    """Compile with leave to reorder sums: for norms, which are added up and never divided by."""
    return cast(F, njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})(function))


def inlined(function: F) -> F:
    """Compile into whatever calls it: handing over arrays counts references, which takes longer than a little work."""
    return cast(F, njit(inline="always")(function))


digits, carries, weigh = strict(tree.digits), strict(tree.carries), strict(_weighting.weigh)
