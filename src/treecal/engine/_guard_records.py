"""The state of guarded streams, stream by stream: of each a record of numbers, whichever others it is kept with.

A record begins with what every stream has (but its rounds), then come the heights of its trees, and then the points of
its books and those announced: as many as there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treecal._typing import Array, Integers
from treecal.exceptions import SnapshotError
from treecal.tree import Tree

_BOOKS, _ANNOUNCED = ("points", "biases", "slots"), ("told", "owed")
_PATHS = ("safe/sums", "safe/path", "shadow/sums", "shadow/path")
_RAGGED = {*_BOOKS, *_ANNOUNCED, *_PATHS}
_MOST = 2.0**52  # of whole numbers

State = dict[str, Any]


def records(state: State, tree: Tree | None) -> tuple[Array, Integers]:
    """Return the records of a state, one after another, and where each of them ends, 0 first."""
    flat, rounds = _flat(state), state["rounds"]
    n, lengths = len(rounds), _lengths(flat, rounds, tree)
    pieces = []
    for name, array in flat.items():
        if name in _PATHS:
            array = array[np.arange(array.shape[1]) < lengths[name][:, None]]
        if name != "rounds":
            counts = lengths.get(name, np.ones(n, np.int64))
            pieces.append((array.reshape(len(array), math.prod(array.shape[1:])), counts))
    ends = np.concatenate([[0], np.cumsum(sum(values.shape[1] * counts for values, counts in pieces))])
    numbers, starts = np.empty(ends[-1]), ends[:-1].copy()
    for values, counts in pieces:
        numbers[_places(starts, counts * values.shape[1])] = values.ravel()
    return numbers, ends


def recorded(fresh: State, rounds: Integers, numbers: Array, ends: Integers, tree: Tree | None) -> State:
    """Return the state of such records; `fresh` is that of no streams. What is not a record raises."""
    flat, n, starts = _flat(fresh), len(rounds), ends[:-1].copy()
    sizes = {name: math.prod(array.shape[1:]) for name, array in flat.items()}
    ragged = [name for name in flat if name in _RAGGED]
    found: State = {"rounds": rounds}
    if (np.diff(ends) < sum(sizes[name] for name in flat if name not in (*ragged, "rounds"))).any():
        raise SnapshotError("a record is too short to be that of a stream.")
    for name in (name for name in flat if name not in (*ragged, "rounds")):
        values = numbers[_places(starts, np.full(n, sizes[name]))].reshape(n, *flat[name].shape[1:])
        found[name] = values if flat[name].dtype.kind == "f" else _whole(name, values, flat[name].dtype)
    if (found["used"] < 0).any() or (found["announced"] < 0).any() or (found["safe_rounds"] < 0).any():
        raise SnapshotError("a record has negative counts.")
    if (found["safe_rounds"] > rounds).any():
        raise SnapshotError("a record has more rounds of the safe part than of all.")
    lengths = _lengths(found, rounds, tree)
    widths = {name: flat[name].shape[2] if name in _PATHS else sizes[name] for name in ragged}
    rest: Any = sum(widths[name] * lengths[name] for name in ragged)
    if (starts + rest != ends[1:]).any():
        raise SnapshotError("a record has another size than its stream has.")
    for name in ragged:
        values = numbers[_places(starts, lengths[name] * widths[name])].reshape(-1, widths[name])
        if name in _PATHS:
            found[name] = np.zeros((n, int(lengths[name].max(initial=1)), widths[name]))
            found[name][np.arange(found[name].shape[1]) < lengths[name][:, None]] = values
        else:
            values = values.reshape(-1, *flat[name].shape[1:])
            found[name] = values if flat[name].dtype.kind == "f" else _whole(name, values, flat[name].dtype)
    return _nested(found)


def _lengths(flat: State, rounds: Integers, tree: Tree | None) -> dict[str, Integers]:
    """Return how many rows of a stream each of the arrays has whose streams have more or fewer."""
    found = dict.fromkeys(_BOOKS, flat["used"].sum(axis=1)) | dict.fromkeys(_ANNOUNCED, flat["announced"])
    if tree is not None:
        for part, played in (("safe", flat["safe_rounds"]), ("shadow", rounds)):
            found |= dict.fromkeys([name for name in _PATHS if name.startswith(part)], tree.heights(played))
    return found


def _places(starts: Integers, sizes: Integers) -> Integers:
    """Return the places of so many numbers from each start on, and move the starts behind them."""
    before = np.cumsum(sizes) - sizes
    places = np.arange(int(sizes.sum())) + np.repeat(starts - before, sizes)
    starts += sizes
    return np.asarray(places)


def _whole(name: str, values: Array, dtype: Any) -> Any:
    if not (np.abs(values) <= min(_MOST, np.iinfo(dtype).max)).all() or (values != np.rint(values)).any():
        raise SnapshotError(f"a record's {name} are not whole numbers.")
    return values.astype(dtype)


def _flat(state: State) -> State:
    """Return a state with the arrays of its parts under names of their own, those that all streams have alike first."""
    found = dict(_leaves(state))
    return dict(sorted(found.items(), key=lambda item: item[0] in _RAGGED))


def _leaves(state: State) -> Iterator[tuple[str, Any]]:
    for name, value in state.items():
        if isinstance(value, dict):
            yield from ((f"{name}/{inner}", array) for inner, array in value.items())
        else:
            yield name, value


def _nested(flat: State) -> State:
    state: State = {}
    for name, value in flat.items():
        part, _, inner = name.rpartition("/")
        if part:
            state.setdefault(part, {})[inner] = value
        else:
            state[inner] = value
    return state
