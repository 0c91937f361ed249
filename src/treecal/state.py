"""Snapshots: forecasters, correctors, ledgers, banks and late outcomes as files that resume bit for bit.

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

from treecal import correctors, forecasters, geometry, measures
from treecal._atomic import new_file
from treecal._states import check_names, generator_from, generator_state
from treecal._typing import Saved
from treecal.correctors import Corrector, Groups
from treecal.engine import Bank, Labels
from treecal.exceptions import FileError, SnapshotError, TreeCalError
from treecal.forecasters import MOST_POINTS, Forecaster, points
from treecal.geometry import ConvexSet, Value
from treecal.late import Late
from treecal.ledger import Ledger
from treecal.monitor import Monitor, Watched

VERSION = 2
_BLANK = b"0" * 64
_HEADER = ("class", "arguments", "state", "version", "sha256")
_MOST_DEPTH = 64  # of what is nested in a header
_ROOM = 2**20  # numbers that the arguments of any file may ask for

Savable = Forecaster | Corrector | Labels | Late | Ledger | Bank | Monitor


def save(thing: Savable, path: str | os.PathLike[str], *, notes: dict[str, Any] | None = None) -> None:
    """Write a forecaster, corrector, `Late`, monitor, ledger or bank to a file; a crash leaves the old one or the new.

    A file that is replaced keeps its mode; a new one gets the mode the umask gives. A symbolic link is followed; what
    is not a regular file, such as a device or a pipe, is refused.

    Parameters
    ----------
    thing
        The object: of this package, or of a class of your own with a name.
    path
        The file; an existing one is replaced.
    notes
        JSON values to keep with it, such as how far a file has been learned: `read_notes` returns them.

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
    content = dumps(thing, notes=notes)
    with new_file(path, force=True) as temporary:
        temporary.write_bytes(content)


def load(path: str | os.PathLike[str], *, space: ConvexSet | None = None) -> Any:
    """Read what `save` wrote to a file.

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
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise FileError(f"there is no file {os.fspath(path)}.") from None
    return loads(content, space=space)


def read_notes(content: bytes) -> dict[str, Any]:
    """Return the notes that were kept with a snapshot, from its bytes; none if there were none.

    They are as whoever wrote the file left them: check what you read.

    Examples
    --------
    >>> import treecal as tc
    >>> read_notes(dumps(tc.TreeCal(tc.Simplex(2)), notes={"learned": "days.csv"}))
    {'learned': 'days.csv'}
    """
    try:
        notes = json.loads(_header(content).get("notes", "{}"), parse_constant=_no_number)
    except (ValueError, TypeError, RecursionError):
        notes = None
    if not isinstance(notes, dict):
        raise SnapshotError("the snapshot's notes are not an object of JSON.")
    return notes


def dumps(thing: Savable, *, notes: dict[str, Any] | None = None) -> bytes:
    """Return the snapshot as bytes, with `notes` as in `save`.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.TreeCal(tc.Simplex(2), arity=2)
    >>> f.update([1, 0])
    >>> loads(dumps(f)).predict() == f.predict()
    True
    """
    from safetensors.numpy import save as pack

    if not isinstance(thing, Savable):
        raise SnapshotError(
            f"{type(thing).__name__} cannot be saved: expected a forecaster, corrector, Late, monitor, ledger or bank."
        )
    state = _flat(thing.get_state())
    arrays = {key: np.ascontiguousarray(value) for key, value in state.items() if isinstance(value, np.ndarray)}
    header = {
        **_encode(thing),
        "state": {key: value for key, value in state.items() if key not in arrays},
        "version": VERSION,
        "sha256": _BLANK.decode(),
        **({"notes": json.dumps(notes, allow_nan=False)} if notes else {}),  # as text: nothing in it is taken for ours
    }
    # All in one entry: safetensors writes several in no fixed order, and equal states should be equal files.
    content = pack(arrays, metadata={"treecal": json.dumps(header, allow_nan=False)})
    return _with_digest(content, hashlib.sha256(content).hexdigest().encode())


def describe(thing: Savable) -> str:
    """Return the class and its constructor's arguments, as JSON: equal for two that behave in the same way.

    Examples
    --------
    >>> import treecal as tc
    >>> describe(tc.Ledger(tc.Simplex(2)))
    '{"arguments": {"space": {"arguments": {"dim": 2}, "class": "Simplex"}, "tolerance": 1e-06}, "class": "Ledger"}'
    """
    return json.dumps(_encode(thing), sort_keys=True)


def loads(content: bytes, *, space: ConvexSet | None = None) -> Any:
    """Return the object of a snapshot's bytes.

    Everything in them is checked against everything else before anything is built: whatever the bytes are, what comes
    back is an object that works, or a `SnapshotError`.

    Examples
    --------
    >>> loads(b"nothing of the kind")
    Traceback (most recent call last):
    treecal.exceptions.SnapshotError: this is not a snapshot of treecal, or its header is damaged.
    """
    header = _header(content)
    try:
        state = _nested(header["state"], _arrays(content))
        thing = _Decoder(space, room=_ROOM + len(content)).thing(header)
        if space is not None and thing.space != space:
            raise SnapshotError(f"the snapshot's set is {thing.space!r}, not {space!r}.")
        thing.set_state(state)
    except SnapshotError:
        raise
    except TreeCalError as error:
        raise SnapshotError(f"the snapshot holds what cannot be: {error}") from error
    except Exception as error:  # the arguments are anybody's, so a constructor may stumble over them in any way
        raise SnapshotError(f"the snapshot holds what cannot be: {type(error).__name__}, {error}.") from error
    return thing


def _header(content: bytes) -> dict[str, Any]:
    """Return the header of a snapshot, found to be undamaged and of our version."""
    try:
        length = int.from_bytes(content[:8], "little")
        text = json.loads(content[8 : 8 + length])["__metadata__"]["treecal"]
        header = json.loads(text, parse_constant=_no_number)
        digest = header["sha256"].encode()
        blank = _with_digest(content, _BLANK, old=digest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SnapshotError("this is not a snapshot of treecal, or its header is damaged.") from error
    if hashlib.sha256(blank).hexdigest().encode() != digest:
        raise SnapshotError(
            "the snapshot is damaged: its SHA-256 does not match, so it was cut short or changed.",
            hint="use an older snapshot; this one cannot be trusted.",
        )
    version = header.get("version")
    if type(version) is not int or version != VERSION:
        newer = type(version) is int and version > VERSION
        older = type(version) is int and 0 < version < VERSION
        raise SnapshotError(
            f"the snapshot has format version {str(version)[:20]}, and this treecal reads version {VERSION}.",
            hint="upgrade treecal."
            if newer
            else "replay the outcomes with a new one, which gives the same forecasts; or load it with treecal 0.1.0."
            if older
            else None,
        )
    check_names("the header", header, [*(key for key in ("name", "notes") if key in header), *_HEADER])
    if _depth(header) > _MOST_DEPTH:
        raise SnapshotError(f"the snapshot's header is nested more than {_MOST_DEPTH} deep.")
    return dict(header)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _arrays(content: bytes) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpack

    try:
        return unpack(content)
    except (SafetensorError, KeyError) as error:  # the latter for a type that NumPy does not have
        raise SnapshotError(f"the snapshot's arrays cannot be read: {error}") from error


def _flat(state: Saved, before: str = "") -> Saved:
    """Return a state that holds the states of parts as one dictionary, with the part's name before each key."""
    flat: dict[str, Any] = {}
    for key, value in state.items():
        flat |= _flat(value, f"{before}{key}/") if isinstance(value, dict) and value else {before + key: value}
    return flat


def _nested(*parts: dict[str, Any]) -> Saved:
    """Return the state that `_flat` was given, from its parts; a key that is there twice raises."""
    state: Saved = {}
    for key, value in (item for part in parts for item in part.items()):
        *path, name = key.split("/")
        inner = state
        for part in path[:_MOST_DEPTH]:
            inner = inner.setdefault(part, {})
        if not isinstance(inner, dict) or name in inner or len(path) > _MOST_DEPTH:
            raise SnapshotError(f"the snapshot's state has {key[:60]!r} twice, or too deep.")
        inner[name] = value
    return state


def _depth(code: Any) -> int:
    """Return how deep lists and dictionaries are nested."""
    deep = 0
    level = [code]
    while level := [entry for each in level for entry in (each.values() if isinstance(each, dict) else each)]:
        level = [entry for entry in level if isinstance(entry, dict | list)]
        deep += 1
    return deep


def _with_digest(content: bytes, digest: bytes, *, old: bytes = _BLANK) -> bytes:
    """Replace a digest in the header, which is JSON within JSON: its quotes are escaped."""
    before, after = (rb"\"sha256\": \"" + value + rb"\"" for value in (old, digest))
    length = int.from_bytes(content[:8], "little")
    if content.count(before, 0, 8 + length) != 1:
        raise ValueError("no digest field")
    return content[: 8 + length].replace(before, after) + content[8 + length :]


def _is_ours(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Savable | Value)


_OURS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Bank,
        Labels,
        Late,
        Ledger,
        Monitor,
        Watched,
        *(getattr(room, name) for room in (geometry, measures, correctors, forecasters) for name in room.__all__),
    )
    if _is_ours(kind)
}
"""The classes that a snapshot may name. Users' classes are named as in their registries."""


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
        return {"rng": generator_state(value)}
    kind = type(value)
    name = type(value).__name__
    if _OURS.get(name) is kind:
        return {"class": name, "arguments": _encoded_arguments(value)}
    if kind in _registered(registered := vars(kind).get("name", "")):
        return {"class": name, "name": registered, "arguments": _encoded_arguments(value)}
    if isinstance(value, Value) and not isinstance(value, Groups):
        return {"custom": name}
    if isinstance(value, Savable):
        raise SnapshotError(
            f"{name} cannot be saved: it is neither part of treecal nor a class with a name.",
            hint=f'in the class body, name = "{name.lower()}" registers it.'
            if isinstance(value, Forecaster | Corrector)
            else "save what get_state() returns, and resume with set_state().",
        )
    raise SnapshotError(
        f"{value!r} cannot be saved: a snapshot holds data, not code.",
        hint="use the groups of treecal.correctors: TopClass, Cells or Centroids.",
    )


def _registered(name: str) -> list[type[Any]]:
    """Return the classes that have this name: a forecaster, a corrector, or both."""
    return [registry[name] for registry in (forecasters.REGISTRY, correctors.REGISTRY) if name in registry]


def _encoded_arguments(value: Any) -> dict[str, Any]:
    return {key: _encode(entry) for key, entry in value.arguments().items()}


class _Decoder:
    """Turns such JSON into objects; `space` stands for a set of a user's own class.

    `room` is how many numbers the arguments may ask for before any state is there. States only grow, so a file never
    holds fewer numbers than a new object of its kind, and a small file is no reason to reserve gigabytes.
    """

    def __init__(self, space: ConvexSet | None, *, room: float = math.inf) -> None:
        self._space = space
        self._room = room

    def thing(self, code: dict[str, Any]) -> Any:
        """Return the object that a header describes."""
        kind = self._kind(code)
        arguments = code["arguments"]
        if not issubclass(kind, Savable):
            raise SnapshotError(
                f"the snapshot is of a {kind.__name__}: expected a forecaster, corrector, Late, monitor, ledger or "
                "bank."
            )
        return self._made(kind, arguments)

    def value(self, code: Any) -> Any:
        """Return an argument."""
        match code:
            case None | bool() | int() | float() | str():
                return code
            case {"float": str(text), **rest} if not rest:
                return float(text)
            case {"array": entries, **rest} if not rest:
                return np.array(entries, dtype=np.float64)
            case {"tuple": list(entries), **rest} if not rest:
                return tuple(map(self.value, entries))
            case {"rng": state, **rest} if not rest:
                return generator_from(state)
            case {"class": str(), "arguments": dict(arguments), **rest} if rest.keys() <= {"name"}:
                return self._made(self._kind(code), arguments)
            case {"custom": str(name), **rest} if not rest:
                if self._space is not None and type(self._space).__name__ == name:
                    return self._space
                raise SnapshotError(
                    f"the snapshot's set is of the class {name}, which is not part of treecal.",
                    hint="load(path, space=...) with the set it was made on.",
                )
        raise SnapshotError("the snapshot's header holds an argument of no known kind.")

    def _kind(self, code: dict[str, Any]) -> type[Any]:
        name = code["class"]
        registered = code.get("name")
        kind = _OURS.get(name)
        if registered is not None:
            kind = next((each for each in _registered(registered) if each.__name__ == name), None)
        if kind is None:
            raise SnapshotError(
                f"the snapshot holds the class {name}, which is not known here.",
                hint="import the module that defines it first.",
            )
        return kind

    def _made(self, kind: type[Any], arguments: dict[str, Any]) -> Any:
        given = {key: self.value(entry) for key, entry in arguments.items()}
        self._room -= _size(kind, given)
        if self._room < 0:
            raise SnapshotError(f"the arguments of {kind.__name__} ask for more memory than its snapshot holds.")
        if kind is geometry.Product and len(given) == 1:
            return kind(*given["sets"])
        try:
            return kind(**given)
        except TypeError as error:  # as of arguments that are no more
            raise SnapshotError(f"the snapshot's {kind.__name__} is not one of this version: {error}.") from None


def _size(kind: type[Any], arguments: dict[str, Any]) -> int:
    """Return how many numbers a new object takes, by its arguments; one of another type is left to the constructor."""

    def whole(name: str) -> int:
        value = arguments.get(name)
        return value if isinstance(value, int) else 0

    space: Any = arguments.get("space")
    dim = space.dim if isinstance(space, ConvexSet) else max(whole("dim"), 5 * whole("points"))
    if issubclass(kind, forecasters.SimplexGrid):
        steps = whole("resolution")
        return dim * (points(dim, steps) if 0 < min(dim, steps) <= 20 else MOST_POINTS)
    if issubclass(kind, forecasters.Harmonic):
        return 256 * dim
    if issubclass(kind, Monitor):
        return 64 * dim  # of which there are as many in its state
    if issubclass(kind, correctors.VectorScaling):
        return 4 * dim * dim
    groups = getattr(arguments.get("groups"), "count", 1)  # text has a method of that name
    rows = max(whole("depth"), groups if isinstance(groups, int) else 1, 1)
    return dim * rows + whole("bins") if issubclass(kind, Savable) else dim
