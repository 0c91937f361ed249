"""The state of a whole made of the states of its parts: one flat dictionary, with the part's name before each key."""

from __future__ import annotations

from typing import Any


def nested(name: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return a part's state under keys that begin with the part's name.

    Examples
    --------
    >>> unnested("tree", nested("tree", {"rounds": 3}))
    {'rounds': 3}
    """
    return {f"{name}/{key}": value for key, value in state.items()}


def unnested(name: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the part of this name."""
    start = f"{name}/"
    return {key.removeprefix(start): value for key, value in state.items() if key.startswith(start)}
