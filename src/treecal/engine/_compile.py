"""How kernels are compiled: by Numba, when first called, without Python's lock, and cached for the next process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

from treecal import tree
from treecal.forecasters import _weighting

F = TypeVar("F", bound=Callable[..., Any])


def strict(function: F) -> F:
    """Compile with every sum and division as written, so that points are those of `Path`."""
    return cast(F, njit(cache=True, nogil=True, error_model="numpy")(function))


def loose(function: F) -> F:
    """Compile with permission to reorder sums: for norms."""
    return cast(F, njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})(function))


def inlined(function: F) -> F:
    """Compile into the caller: passing arrays counts references, which costs more than a short function."""
    return cast(F, njit(inline="always")(function))


digits, carries, weigh = strict(tree.digits), strict(tree.carries), strict(_weighting.weigh)
