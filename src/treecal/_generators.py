"""The states of NumPy's random generators as plain data, and back.

NumPy reads such a state without checks: a place beyond the buffer reads foreign memory, and a generator that is stuck
makes a draw loop for ever.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treecal.exceptions import SnapshotError

_KINDS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_LIMITS = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "uinteger": 2**32 - 1}
_WIDTHS = {"MT19937": 32, "PCG64": 128, "PCG64DXSM": 128, "Philox": 64, "SFC64": 64}  # bits of the other numbers


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """Return the generator's state as numbers, lists and dictionaries of them."""
    state: dict[str, Any] = _plain(rng.bit_generator.state)
    return state


def generator_from(state: Any) -> np.random.Generator:
    """Return the generator of such a state; one that no generator has raises.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> generator_from(generator_state(rng)).random() == rng.random()
    True
    """
    kind = state.get("bit_generator") if isinstance(state, dict) else None
    if kind not in _KINDS:
        raise SnapshotError(f"the random generator is not one of {', '.join(_KINDS)}.")
    bits = getattr(np.random, kind)(0)
    if not _fits(state, _plain(bits.state), 2 ** _WIDTHS[kind]) or not _moves(kind, state["state"]):
        raise SnapshotError(f"the state of the random generator is not one of {kind}.")
    bits.state = state
    return np.random.Generator(bits)


def _fits(state: Any, own: Any, limit: int) -> bool:
    """Return whether a state has the form of another one, with numbers below the limit."""
    if isinstance(own, dict):
        return (
            isinstance(state, dict)
            and state.keys() == own.keys()
            and all(_fits(state[key], value, _LIMITS.get(key, limit - 1) + 1) for key, value in own.items())
        )
    if isinstance(own, list):
        return isinstance(state, list) and len(state) == len(own) and all(_fits(each, 0, limit) for each in state)
    if isinstance(own, str):
        return bool(state == own)
    return isinstance(state, int) and not isinstance(state, bool) and 0 <= state < limit


def _moves(kind: str, inner: dict[str, Any]) -> bool:
    """Return whether the generator ever leaves the state."""
    if kind == "MT19937":
        return any(inner["key"][1:])
    return bool(inner["inc"] % 2) if kind.startswith("PCG64") else True


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state
