"""A stream's state as bytes, whichever other streams it was kept with: so shards can be cut anew, bit for bit.

Kinds of streams that are arrays are packed all at once: a *head* of so many numbers for each stream, and a *body* of so
many for each height of its tree, or each of its copies. Guarded streams have records of their own. Of any other stream,
the arrays and values of its state one after another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from treecal._typing import Array, Integers
from treecal.engine._guard_streams import GuardStreams
from treecal.engine._kinds import streams_of
from treecal.engine._scaling_streams import ScalingStreams
from treecal.engine._streams import Streams
from treecal.engine._tree_streams import TreeStreams
from treecal.exceptions import SnapshotError, UnsupportedError
from treecal.keyed._forecaster import Keyed
from treecal.keyed._tables import Mask, arrow
from treecal.state import _flat, _nested

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS = ("<f8", "<i8", "<u8", "<i4", "<i2", "|i1", "|u1", "|b1")


class Layout(NamedTuple):
    """The arrays of a state, by name, with the shape of one stream's part in the head, or of one length in the body."""

    head: dict[str, tuple[int, ...]]
    body: dict[str, tuple[int, ...]]
    lengths: Callable[[Integers], Any] = np.zeros_like
    """Gives the length of the body of streams with so many rounds."""

    @classmethod
    def of(cls, streams: Streams) -> Layout | None:
        """Return the layout of a kind; None for one that is not arrays of numbers."""
        thing: Any = streams.thing
        dim = thing.space.dim
        if isinstance(streams, TreeStreams):
            weighted = {"costs": (), "weights": ()} if streams._weighted else {}
            return cls({"scale": ()} if weighted else {}, {"sums": (dim,), **weighted}, thing.tree.heights)
        if isinstance(streams, ScalingStreams) and thing.forget:
            theta, A, trust = (array.shape[1:] for array in streams._fresh[:3])
            before = float(streams._fresh[3])

            def copies(rounds: Integers) -> Integers:
                known, at = np.unique(rounds, return_inverse=True)
                return np.array([streams._copies(count + before) for count in known.tolist()])[at]

            return cls({"seen": ()}, {"theta": theta, "curvature": A, "trust": trust}, copies)
        # Otherwise, if a new stream is arrays of float64 with rows of its own, it is always as many numbers.
        one, two = (_fresh(streams, count) for count in (1, 2))
        if all(_rows_of(one[name], two[name]) for name in one if name != "rounds"):
            return cls({name: array.shape for name, array in one.items() if name != "rounds"}, {})
        return None

    def sizes(self, rounds: Integers) -> Integers:
        """Return the bytes of the records of streams with so many rounds."""
        return np.asarray(8 * (_numbers(self.head) + _numbers(self.body) * self.lengths(rounds)))


def _fresh(streams: Streams, count: int) -> dict[str, Any]:
    """Return the state of new streams."""
    own = streams_of(streams.thing)
    own.reserve(count)
    return own.state(np.arange(count))


def _rows_of(one: Any, two: Any) -> bool:
    arrays = isinstance(one, np.ndarray) and one.dtype == np.float64
    return bool(arrays and one.size and two.shape == (2 * len(one), *one.shape[1:]))


def pack(streams: Streams) -> pa.Array:
    """Return the record of each stream."""
    n = len(streams.rounds)
    rows = np.arange(n)
    if isinstance(streams, GuardStreams):
        numbers, ends = streams.records(rows)
        return _binary(numbers, 8 * ends)
    layout = Layout.of(streams)
    if layout is None or not n:
        files = [_file(streams.state(rows[i : i + 1])) for i in range(n)]
        _check_room(sum(map(len, files)), n)
        return arrow().array(files, arrow().binary())
    state, ends = streams.state(rows), np.concatenate([[0], np.cumsum(layout.sizes(streams.rounds))])
    parts = [np.empty((n, 0)), *(state[name].reshape(n, -1) for name in layout.head)]
    if layout.body:
        body = (state[name].swapaxes(0, 1) if isinstance(streams, TreeStreams) else state[name] for name in layout.body)
        parts.append(np.concatenate([array.reshape(*array.shape[:2], -1) for array in body], axis=2).reshape(n, -1))
    numbers = np.concatenate(parts, axis=1).astype("<f8", copy=False)
    assert layout.body or numbers.nbytes == ends[-1], "a kind of streams whose state grows has a body"
    if ends[-1] < numbers.nbytes:  # some streams are shorter than others
        numbers = numbers[_below(np.diff(ends) // 8, numbers.shape[1])]
    return _binary(numbers, ends)


def _binary(numbers: Array, ends: Integers) -> pa.Array:
    """Return records of numbers, each of which ends at some byte."""
    pa, n = arrow(), len(ends) - 1
    _check_room(ends[-1], n)
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(numbers.astype("<f8", copy=False))]
    return pa.Array.from_buffers(pa.binary(), n, buffers)


def _check_room(size: int, keys: int) -> None:
    if size > np.iinfo(np.int32).max:
        raise UnsupportedError(f"{keys:,} keys are too many for one shard.", hint="more shards.")


def unpack(thing: Keyed, rounds: Integers, packed: pa.Array) -> Streams:
    """Return the streams of such records, of the right sizes; what they hold is checked."""
    new, n = streams_of(thing), len(rounds)
    if not n:
        return new
    if isinstance(new, GuardStreams):
        return new.recorded(rounds, *_flat_numbers(packed))
    layout = Layout.of(new)
    if layout is None:
        found = new.resumed(_joined([_state(record.as_py()) for record in packed]))
        if not np.array_equal(found.rounds, rounds):
            raise _damaged()
        return found
    flat, ends = _flat_numbers(packed)
    sizes, most = np.diff(ends), int(layout.lengths(rounds).max())
    if (sizes == sizes[0]).all():
        numbers = flat.reshape(n, -1)
    else:
        numbers = np.zeros((n, int(sizes.max())))
        numbers[_below(sizes, numbers.shape[1])] = flat
    b = _numbers(layout.body)
    a = numbers.shape[1] - b * most
    state: dict[str, Any] = {"rounds": rounds, **_cut(numbers[:, :a], layout.head, ())}
    state |= _cut(numbers[:, a:].reshape(n, most, b), layout.body, (most,))
    if isinstance(new, TreeStreams):  # whose heights come first
        state |= {name: state[name].swapaxes(0, 1) for name in layout.body}
    for name, shape in layout.head.items():
        if shape:  # rows of one stream after those of another
            state[name] = state[name].reshape(n * shape[0], *shape[1:])
    return new.resumed(state)


def _flat_numbers(packed: pa.Array) -> tuple[Array, Integers]:
    """Return the numbers of records, one after another, and where each begins and the last one ends."""
    ends = _offsets(packed)
    if (np.diff(ends) % 8).any():
        raise _damaged()
    return np.frombuffer(packed.buffers()[2], np.uint8)[ends[0] : ends[-1]].view("<f8"), (ends - ends[0]) // 8


def _damaged() -> SnapshotError:
    return SnapshotError(
        "the state has a record of another kind or size, or a damaged one.",
        hint="resume with the forecaster that made the state, or from an earlier epoch.",
    )


def _numbers(shapes: dict[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def check_sizes(thing: Keyed, rounds: Integers, packed: pa.Array) -> None:
    """Raise unless the records have the sizes that streams of so many rounds have."""
    layout = Layout.of(streams_of(thing))
    if layout is not None and not np.array_equal(np.diff(_offsets(packed)), layout.sizes(rounds)):
        raise SnapshotError(
            f"the state is not that of {thing!r}: its records are of another kind or size.",
            hint="resume with the forecaster that made the state.",
        )


def _cut(numbers: Array, shapes: dict[str, tuple[int, ...]], axes: tuple[int, ...]) -> dict[str, Array]:
    """Return the arrays that lie side by side in the last axis."""
    found, at = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        found[name] = np.ascontiguousarray(numbers[..., at : at + size]).reshape(len(numbers), *axes, *shape)
        at += size
    return found


def _below(lengths: Integers, most: int) -> Mask:
    """Return which of the places up to the most each stream has, `(streams, most)`."""
    return np.asarray(np.arange(most) < lengths[:, None])


def _offsets(packed: pa.Array) -> Integers:
    """Return where each record begins, and the last one ends."""
    raw = np.frombuffer(packed.buffers()[1], np.int32) if len(packed) else np.zeros(1, np.int32)
    return raw[packed.offset : packed.offset + len(packed) + 1].astype(np.int64)


def _file(state: dict[str, Any]) -> bytes:
    """Return the state of one stream: a JSON text of names, types and shapes, and of what is no array; then the arrays.

    As safetensors does it, but a tenth of its time for the many small arrays of a stream.
    """
    flat = _flat(state)
    arrays = {name: value for name, value in flat.items() if isinstance(value, np.ndarray)}
    shapes = tuple((name, value.dtype.newbyteorder("<").str, value.shape) for name, value in arrays.items())
    rest = {name: value for name, value in flat.items() if name not in arrays}
    head = f"[{_listed(shapes)}, {json.dumps(rest, allow_nan=False)}]".encode()
    parts = (
        value.astype(kind, copy=False).tobytes() for (_, kind, _), value in zip(shapes, arrays.values(), strict=True)
    )
    return b"".join([len(head).to_bytes(4, "little"), head, *parts])


@lru_cache(1024)
def _listed(shapes: Any) -> str:
    return json.dumps(shapes)


@lru_cache(1024)
def _read(head: bytes) -> Any:
    return json.loads(head)


def _state(content: bytes) -> dict[str, Any]:
    """Return the state in such a record."""
    try:
        at = 4 + int.from_bytes(content[:4], "little")
        shapes, rest = _read(content[4:at])
        arrays: dict[str, Any] = {}
        for name, kind, shape in shapes:
            if kind not in _KINDS or name in arrays or name in rest:
                raise ValueError(name)
            count = math.prod(shape)
            arrays[name] = np.frombuffer(content, kind, count, at).reshape(shape)
            at += arrays[name].nbytes
        if at != len(content):
            raise ValueError(at)
        return _nested(rest, arrays)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged() from error


def _joined(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the state of many streams, an object each, given that of each."""
    if any(state.keys() != {"rounds", "objects"} for state in states):
        raise _damaged()
    own = {str(i): state["objects"].get("0") for i, state in enumerate(states)}
    return {"rounds": np.concatenate([state["rounds"] for state in states]), "objects": own}
