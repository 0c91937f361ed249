"""Snapshots: forecasters, correctors, ledgers and banks as files that resume bit for bit.

A snapshot is a safetensors file. Its arrays are the object's state; its metadata holds a JSON text with the class, the
constructor's arguments, the rest of the state, the format's version, and the SHA-256 of the whole file (taken with that
field zeroed). Nothing in it is code, and nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from treecal import correctors, forecasters, geometry
from treecal._atomic import new_file
from treecal.correctors import Corrector, Groups
from treecal.engine import Bank
from treecal.exceptions import SnapshotError
from treecal.forecasters import REGISTRY, Forecaster
from treecal.geometry import ConvexSet
from treecal.geometry._value import Value
from treecal.ledger import Ledger

VERSION = 2
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_BLANK = b"0" * 64

Kept = Forecaster | Corrector | Ledger | Bank


def save(thing: Kept, path: str | os.PathLike[str]) -> None:
    """Write a forecaster, corrector, ledger or bank to a file, atomically: a crash leaves the old one or the new one.

    A file that is replaced keeps its mode; a new one gets the mode the umask gives. A symbolic link is followed; what
    is not a regular file, such as a device or a pipe, is refused.

    Parameters
    ----------
    thing
        A forecaster, corrector, ledger or bank of this package.
    path
        The file; an existing one is replaced.

    Examples
    --------
    >>> import tempfile, treecal as tc
    >>> f = tc.TreeCal(tc.Simplex(2), arity=2)
    >>> f.update([1, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tc.save(f, f"{folder}/f.treecal")
    ...     again = tc.load(f"{folder}/f.treecal")
    >>> again.rounds, again.predict() == f.predict()
    (1, True)
    """
    content = dumps(thing)
    with new_file(path, force=True) as temporary:
        temporary.write_bytes(content)


def load(path: str | os.PathLike[str], *, space: ConvexSet | None = None) -> Any:
    """Read a forecaster, corrector, ledger or bank from a file that `save` wrote.

    Parameters
    ----------
    path
        The file.
    space
        The set, if its class is your own: a snapshot holds data, not code.

    Examples
    --------
    >>> import tempfile, treecal as tc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tc.save(tc.Ledger(tc.Simplex(2)), f"{folder}/ledger.treecal")
    ...     tc.load(f"{folder}/ledger.treecal")
    Ledger(Simplex(2): 0 rounds, 0 rows)
    """
    return loads(Path(path).read_bytes(), space=space)


def dumps(thing: Kept) -> bytes:
    """Return the snapshot as bytes.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.TreeCal(tc.Simplex(2), arity=2)
    >>> f.update([1, 0])
    >>> loads(dumps(f)).predict() == f.predict()
    True
    """
    from safetensors.numpy import save as pack

    if not isinstance(thing, Kept):
        raise SnapshotError(
            f"{type(thing).__name__} cannot be saved: expected a forecaster, corrector, ledger or bank."
        )
    state = _flat(thing.get_state())
    arrays = {key: np.ascontiguousarray(value) for key, value in state.items() if isinstance(value, np.ndarray)}
    header = {
        **_encode(thing),
        "state": {key: value for key, value in state.items() if key not in arrays},
        "version": VERSION,
        "sha256": _BLANK.decode(),
    }
    # All in one entry: safetensors writes several in no fixed order, and equal states should be equal files.
    content = pack(arrays, metadata={"treecal": json.dumps(header, allow_nan=False)})
    return _with_digest(content, hashlib.sha256(content).hexdigest().encode())


def describe(thing: Kept) -> str:
    """Return the class and its constructor's arguments, as JSON: equal for two that behave in the same way.

    Examples
    --------
    >>> import treecal as tc
    >>> describe(tc.Ledger(tc.Simplex(2)))
    '{"arguments": {"space": {"arguments": {"dim": 2}, "class": "Simplex"}}, "class": "Ledger"}'
    """
    return json.dumps(_encode(thing), sort_keys=True)


def loads(content: bytes, *, space: ConvexSet | None = None) -> Any:
    """Return the forecaster, corrector, ledger or bank of a snapshot's bytes.

    Examples
    --------
    >>> loads(b"nothing of the kind")
    Traceback (most recent call last):
    treecal.exceptions.SnapshotError: this is not a snapshot of treecal, or its header is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpack

    try:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["treecal"])
        digest = header["sha256"].encode()
        blank = _with_digest(content, _BLANK, old=digest)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotError("this is not a snapshot of treecal, or its header is damaged.") from error
    if hashlib.sha256(blank).hexdigest().encode() != digest:
        raise SnapshotError(
            "the snapshot is damaged: its SHA-256 does not match, so it was cut short or changed.",
            hint="use an older snapshot; this one cannot be trusted.",
        )
    if header["version"] != VERSION:
        raise SnapshotError(
            f"the snapshot has format version {header['version']}, and this treecal reads version {VERSION}.",
            hint="upgrade treecal."
            if header["version"] > VERSION
            else "replay the outcomes with a new one, which gives the same forecasts; or load it with treecal 0.1.0.",
        )
    try:
        arrays = unpack(content)
    except SafetensorError as error:
        raise SnapshotError(f"the snapshot's arrays cannot be read: {error}") from error
    thing = _decode(header, space)
    if space is not None and thing.space != space:
        raise SnapshotError(f"the snapshot's set is {thing.space!r}, not {space!r}.")
    thing.set_state(_nested(header["state"] | arrays))
    return thing


def _flat(state: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return a state that holds the states of parts as one dictionary, with the part's name before each key."""
    flat: dict[str, Any] = {}
    for key, value in state.items():
        flat |= _flat(value, f"{before}{key}/") if isinstance(value, dict) and value else {before + key: value}
    return flat


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Return the state that `_flat` was given."""
    state: dict[str, Any] = {}
    for key, value in flat.items():
        *parts, name = key.split("/")
        inner = state
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[name] = value
    return state


def _with_digest(content: bytes, digest: bytes, *, old: bytes = _BLANK) -> bytes:
    """Replace a digest in the header, which is JSON within JSON: its quotes are escaped."""
    before, after = (rb"\"sha256\": \"" + value + rb"\"" for value in (old, digest))
    length = int.from_bytes(content[:8], "little")
    if content.count(before, 0, 8 + length) != 1:
        raise ValueError("no digest field")
    return content[: 8 + length].replace(before, after) + content[8 + length :]


def _kinds() -> dict[str, Any]:
    """Return the classes a snapshot may name. Users may register more forecasters at any time."""
    ours = (getattr(room, name) for room in (geometry, correctors, forecasters) for name in room.__all__)
    kinds = (*ours, Bank, Ledger, *REGISTRY.values())
    return {kind.__name__: kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Kept | Value)}


def _encode(value: Any) -> Any:
    """Turn an argument into JSON: numbers and text as they are, everything else under a tag."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, list | tuple):
        return {"tuple": [_encode(entry) for entry in value]}
    if isinstance(value, np.random.Generator):
        return {"rng": _plain(value.bit_generator.state)}
    name = type(value).__name__
    if _kinds().get(name) is type(value):
        return {"class": name, "arguments": {key: _encode(entry) for key, entry in value.arguments().items()}}
    if isinstance(value, Value) and not isinstance(value, Groups):
        return {"custom": name}
    if isinstance(value, Kept):
        raise SnapshotError(
            f"{name} cannot be saved: it is neither part of treecal nor a forecaster with a name.",
            hint=f'in the class body, name = "{name.lower()}" registers it.'
            if isinstance(value, Forecaster)
            else "save what get_state() returns, and resume with set_state().",
        )
    raise SnapshotError(
        f"{value!r} cannot be saved: a snapshot holds data, not code.",
        hint="use the groups of treecal.correctors: TopClass, Cells or Centroids.",
    )


def _decode(code: Any, space: ConvexSet | None = None) -> Any:
    """Turn such JSON into the argument; `space` stands for a set of a user's own class."""
    match code:
        case {"float": text}:
            return float(text)
        case {"array": entries}:
            return np.array(entries, dtype=np.float64)
        case {"tuple": entries}:
            return tuple(_decode(entry, space) for entry in entries)
        case {"rng": state} if state["bit_generator"] in _BIT_GENERATORS:
            bits = getattr(np.random, state["bit_generator"])()
            bits.state = state
            return np.random.Generator(bits)
        case {"class": "Product", "arguments": {"sets": sets}}:
            return geometry.Product(*_decode(sets, space))
        case {"class": name, "arguments": arguments}:
            if (kind := _kinds().get(name)) is None:
                raise SnapshotError(
                    f"the snapshot holds the class {name}, which is not known here.",
                    hint="import the module that defines it first.",
                )
            return kind(**{key: _decode(value, space) for key, value in arguments.items()})
        case {"custom": name}:
            if space is not None and type(space).__name__ == name:
                return space
            raise SnapshotError(
                f"the snapshot's set is of the class {name}, which is not part of treecal.",
                hint="load(path, space=...) with the set it was made on.",
            )
        case _:
            return code


def _plain(state: Any) -> Any:
    """Turn a bit generator's state into JSON."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state
