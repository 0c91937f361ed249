"""The forecaster, or the corrector, that each key has a copy of: what can be one, and what identifies it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from treecal.correctors import Corrector
from treecal.exceptions import ParameterError
from treecal.forecasters import AdaptiveTreeCal, Forecaster, TreeCal
from treecal.state import describe

Keyed = Forecaster | Corrector
"""What each key may have: a forecaster, or a corrector of a model's forecasts."""


def check_new(thing: Any, kind: Any = Keyed) -> None:
    """Raise unless every key can start from a copy of this, of the kind that is asked for."""
    name = "corrector" if kind is Corrector else "forecaster"
    if not isinstance(thing, kind):
        raise ParameterError.expected(name, thing, f"a {name}{' or a corrector' if kind is Keyed else ''}")
    if thing.rounds:
        raise ParameterError.expected(name, thing, "a new one", hint="this one has learned.")
    if not isinstance(thing, TreeCal | AdaptiveTreeCal) and any(map(horizon, _parts(thing))):
        raise ParameterError.expected(name, thing, "one whose parts have no last round: a tree without depth")


def horizon(thing: Any) -> int | None:
    """Return the number of rounds of a tree of fixed depth; None for all others."""
    return thing.tree.horizon if isinstance(thing, TreeCal | AdaptiveTreeCal) else None


def recipe(thing: Keyed) -> dict[str, str]:
    """Return what identifies it, for people and exactly."""
    return {"shown": repr(thing), "arguments": describe(thing)}


def _parts(thing: Any) -> Iterator[Any]:
    """Yield the forecasters that one is made of, at any depth."""
    for part in thing.arguments().values():
        if isinstance(part, Forecaster | Corrector):
            yield part
            yield from _parts(part)
