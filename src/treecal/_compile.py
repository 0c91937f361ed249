"""How kernels are compiled: by Numba, when first called, without Python's lock, and cached for the next process.

The cache only saves time. Where no folder for it can be written, or what is in it is damaged, kernels are compiled
without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

from numba import njit
from numba.core.caching import FunctionCache

F = TypeVar("F", bound=Callable[..., Any])

_DAMAGED = "Numba's cache of compiled code is damaged: it is written anew."
_NOWHERE = (
    "Numba's cache of compiled code cannot be written: compiling takes seconds in every process. "
    "Set NUMBA_CACHE_DIR to a folder that only you can write to."
)


@lru_cache
def _log(problem: str) -> None:
    """Log a problem, once in a process."""
    logging.getLogger("treecal").warning(problem)


class _Cache(FunctionCache):
    """Numba's cache of one function. What cannot be read counts as absent, and what cannot be written is not kept."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # damaged pickles raise anything
            _log(_DAMAGED)
            try:
                self.flush()  # an empty index, which is filled again
            except OSError:
                self.disable()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception:  # the disk is full, or the folder has become read-only
            _log(_NOWHERE)
            self.disable()


def _cached(dispatcher: Any) -> Any:
    try:
        dispatcher._cache = _Cache(dispatcher.py_func)
    except (RuntimeError, OSError):  # neither the package's folder nor the home can be written
        _log(_NOWHERE)
    return dispatcher


def strict(function: F) -> F:
    """Compile with every sum and division as written, so that points are those of `Path`."""
    return cast(F, _cached(njit(nogil=True, error_model="numpy")(function)))


def loose(function: F) -> F:
    """Compile with permission to reorder sums: for norms."""
    return cast(F, _cached(njit(nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})(function)))


def inlined(function: F) -> F:
    """Compile into the caller: passing arrays counts references, which costs more than a short function."""
    return cast(F, njit(inline="always")(function))
