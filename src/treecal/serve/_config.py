"""From the settings of a stream to what it is made of, its set, corrector or forecaster, monitors; and both as data."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from treecal import geometry
from treecal.correctors import ByGroup, Corrector, Gated, all_correctors
from treecal.exceptions import SnapshotError, TreeCalError
from treecal.forecasters import REGISTRY
from treecal.geometry import ConvexSet, Simplex
from treecal.late import Thing
from treecal.monitor import Monitor
from treecal.serve._refusals import Refusal
from treecal.serve._wire import NewStream, Part
from treecal.state import VERSION, _Decoder, _encode, _flat, _nested, _size

MOST_DIM = 1000
_ROOM = 2**23  # numbers that the parts of a new stream may take
LIMIT = 1000
"""Rounds that may await their outcomes where each needs a copy, unless the stream says otherwise."""

CORRECTORS: dict[str, Callable[..., Corrector]] = dict(
    sorted(entry for kind in all_correctors() for entry in kind.methods().items())
)
FORECASTERS = {name: kind for name, kind in REGISTRY.items() if "rng" not in inspect.signature(kind).parameters}
"""Those whose forecasts follow from the log alone: none that draw at random."""
SETS = {
    name: kind
    for name in geometry.__all__
    if inspect.isclass(kind := getattr(geometry, name)) and issubclass(kind, ConvexSet) and kind is not ConvexSet
}


def space_of(new: NewStream) -> ConvexSet:
    """Return the set of a stream, or refuse."""
    if (new.classes is None) is (new.set is None):
        raise Refusal("invalid", "give exactly one of classes and set.", hint='"classes": ["no", "yes"].', at="classes")
    if new.classes is not None:
        simplex: Simplex = made("classes", lambda: Simplex(classes=new.classes))
        return simplex
    assert new.set is not None
    kind = _chosen("set", new.set.name, SETS)
    dim = new.set.options.get("dim")
    if isinstance(dim, int) and dim > MOST_DIM:
        raise Refusal("invalid", f"dim is {dim}, expected {MOST_DIM} or less.", at="set.options.dim")
    space: ConvexSet = made("set.options", lambda: kind(**new.set.options))  # type: ignore[union-attr]
    if not isinstance(space, ConvexSet) or space.dim > MOST_DIM:
        raise Refusal("invalid", f"the set has {space.dim} coordinates, expected {MOST_DIM} or less.", at="set")
    return space


def thing_of(new: NewStream, space: ConvexSet) -> Thing | None:
    """Return the corrector or forecaster of a stream, or refuse; None where the model's forecasts are announced."""
    if new.corrector is not None and new.forecaster is not None:
        raise Refusal("invalid", "expected a corrector or a forecaster, and both are given.", at="forecaster")
    if new.revises and (new.corrector is not None or new.forecaster is not None):
        hint = "leave both out: the model's forecasts are kept, scored and watched as they are."
        raise Refusal("invalid", "forecasts that are corrected are not revised.", hint=hint, at="revises")
    stray = sorted(set(new.group) - set(new.tags))
    if stray or len(set(new.tags)) < len(new.tags) or len(set(new.group)) < len(new.group):
        problem = f"group has {stray[0]!r}, which is none of the tags." if stray else "a tag is there twice."
        raise Refusal("invalid", problem, hint="list each tag once in tags.", at="group" if stray else "tags")
    if new.gate and new.corrector is None:
        raise Refusal("invalid", "gate is given without a corrector.", at="gate")
    if new.forecaster is not None:
        return _made_part("forecaster", new.forecaster, FORECASTERS, space)
    if new.corrector is None:
        return None
    part = _made_part("corrector", new.corrector, CORRECTORS, space)
    assert isinstance(part, Corrector)
    if new.group and "group" not in part._takes:
        part = made("group", partial(ByGroup, part, scores=None))
    return made("gate", partial(Gated, part, scores=None)) if new.gate else part


def made_of(new: NewStream, space: ConvexSet) -> tuple[Thing | None, dict[str, Monitor]]:
    """Return what a new stream is made of, with its monitors by what they watch, or refuse.

    What a stream forecasts by itself is not watched: it has a guarantee, and no claim to be the law of the outcome.
    """
    thing = thing_of(new, space)
    if new.monitor is None or new.forecaster is not None:
        return thing, {}
    monitor = partial(Monitor, space, alpha=new.monitor.alpha, arl=new.monitor.arl, by_group=bool(new.group))
    watched = ["model"] if new.corrector is None else ["model", "announced"]
    return thing, {name: made("monitor", monitor) for name in watched}


def written_parts(thing: Thing | None, monitors: dict[str, Monitor]) -> str:
    """Return what a stream is made of as JSON, with every argument."""
    own = None if thing is None else _encode(thing)
    return json.dumps([own, {name: _encode(monitor) for name, monitor in monitors.items()}])


def read_parts(text: str) -> tuple[Thing | None, dict[str, Monitor]]:
    """Return what a stream was made of."""
    own, monitors = json.loads(text)
    decoder = _Decoder(None)
    return None if own is None else decoder.thing(own), {name: decoder.thing(code) for name, code in monitors.items()}


def _made_part(at: str, part: Part, known: dict[str, Any], space: ConvexSet) -> Thing:
    make = _chosen(at, part.name, known)
    takes = {name for name, each in inspect.signature(make).parameters.items() if each.kind is each.KEYWORD_ONLY}
    open_to_all = takes - {"scores", "tolerance"}
    if stray := sorted(set(part.options) - open_to_all):
        hint = f"it takes {', '.join(sorted(open_to_all))}." if open_to_all else "it takes none."
        raise Refusal("invalid", f"{part.name} takes no {stray[0]!r}.", hint=hint, at=f"{at}.options")
    if part.options.get("depth") is not None:
        hint = "leave depth out: the tree grows."
        raise Refusal(
            "invalid", "a tree of fixed depth ends after so many rounds.", hint=hint, at=f"{at}.options.depth"
        )
    given: dict[str, Any] = dict(part.options)
    if "scores" in takes:
        given["scores"] = None  # the books of the server have them
    kind = make if inspect.isclass(make) else Corrector
    if _size(kind, {"space": space, **given}) > _ROOM:
        raise Refusal("invalid", f"{part.name} with these options would take too much memory.", at=f"{at}.options")
    thing: Thing = made(f"{at}.options", lambda: make(space, **given))
    return thing


def _chosen(at: str, name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        raise Refusal("invalid", f"{at} {name!r} is not known.", hint=f"one of {', '.join(known)}.", at=f"{at}.name")
    return known[name]


def made(at: str, make: Callable[[], Any]) -> Any:
    """Return what is made, or refuse with the reason: options are anybody's, and a constructor may stumble."""
    try:
        return make()
    except TreeCalError as error:
        raise Refusal("invalid", error.message, hint=error.hint, at=at) from None
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        raise Refusal("invalid", f"{at} cannot be: {error}.", at=at) from None


class OtherVersionError(SnapshotError):
    """The snapshot is whole, and of another version: the log has all that it says."""


def packed(state: dict[str, Any]) -> bytes:
    """Return a state as bytes, with their hash before them: the same for equal states."""
    from safetensors.numpy import save as pack

    flat = _flat(state)
    arrays = {key: np.ascontiguousarray(value) for key, value in flat.items() if isinstance(value, np.ndarray)}
    rest = {key: value for key, value in flat.items() if key not in arrays}
    content = pack(arrays, metadata={"treecal": json.dumps([VERSION, rest], sort_keys=True)})
    return hashlib.sha256(content).digest() + content


def unpacked(content: bytes) -> dict[str, Any]:
    """Return the state that `packed` was given, or raise unless the bytes are whole and of this version."""
    from safetensors.numpy import load as unpack

    digest = content[:32]
    content = content[32:]
    if hashlib.sha256(content).digest() != digest:
        raise SnapshotError("the snapshot is damaged: its SHA-256 does not match.")
    length = int.from_bytes(content[:8], "little")
    version, rest = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["treecal"])
    if version != VERSION:
        raise OtherVersionError(f"the snapshot has format version {version}, expected {VERSION}.")
    return _nested(rest, unpack(content))
