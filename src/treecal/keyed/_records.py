"""A stream's state as bytes that do not depend on other streams, so that keys can move between shards, bit for bit.

Streams that are columns are packed all at once, as numbers; of other streams, the arrays and values of each state.
"""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from treecal._typing import Array, Integers, Saved
from treecal.columns import ColumnStreams, Streams, check_records
from treecal.engine import streams_of
from treecal.exceptions import SnapshotError, UnsupportedError
from treecal.keyed._tables import Keyed, arrow
from treecal.state import _flat, _nested

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS = ("<f8", "<i8", "<u8", "<i4", "<i2", "|i1", "|u1", "|b1")


def pack(streams: Streams) -> pa.Array:
    """Return the record of each stream."""
    n = len(streams.rounds)
    rows = np.arange(n)
    if isinstance(streams, ColumnStreams):
        numbers, ends = streams.records(rows)
        return _binary(numbers, 8 * ends)
    files = [_file(streams.state(rows[i : i + 1])) for i in range(n)]
    _check_room(sum(map(len, files)), n)
    return arrow().array(files, arrow().binary())


def _binary(numbers: Array, ends: Integers) -> pa.Array:
    """Return records of numbers, each of which ends at some byte."""
    pa = arrow()
    n = len(ends) - 1
    _check_room(ends[-1], n)
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(numbers.astype("<f8", copy=False))]
    return pa.Array.from_buffers(pa.binary(), n, buffers)


def _check_room(size: int, keys: int) -> None:
    if size > np.iinfo(np.int32).max:
        raise UnsupportedError(f"{keys:,} keys are too many for one shard.", hint="more shards.")


def unpack(thing: Keyed, rounds: Integers, packed: pa.Array) -> Streams:
    """Return the streams of such records, of the right sizes; what they hold is checked."""
    new = streams_of(thing)
    n = len(rounds)
    if not n:
        return new
    if isinstance(new, ColumnStreams):
        return new.recorded(rounds, *_flat_numbers(packed))
    found = new.resumed(_joined([_state(record.as_py()) for record in packed]))
    if not np.array_equal(found.rounds, rounds):
        raise _damaged()
    return found


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


def check_sizes(thing: Keyed, rounds: Integers, packed: pa.Array) -> None:
    """Raise unless the records have the sizes that streams of as many rounds have."""
    new = streams_of(thing)
    if isinstance(new, ColumnStreams) and len(rounds):
        try:
            check_records(new.schema, rounds, *_flat_numbers(packed))
        except SnapshotError:
            raise SnapshotError(
                f"the state is not that of {thing!r}: its records are of another kind or size.",
                hint="resume with the forecaster that made the state.",
            ) from None


def _offsets(packed: pa.Array) -> Integers:
    """Return where each record begins, and the last one ends."""
    raw = np.frombuffer(packed.buffers()[1], np.int32) if len(packed) else np.zeros(1, np.int32)
    return raw[packed.offset : packed.offset + len(packed) + 1].astype(np.int64)


def _file(state: Saved) -> bytes:
    """Return the state of one stream: JSON (names, types and shapes of arrays, and all other values), then the arrays.

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


def _state(content: bytes) -> Saved:
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


def _joined(states: list[dict[str, Any]]) -> Saved:
    """Return the state of many streams, an object each, given that of each."""
    if any(state.keys() != {"rounds", "objects"} for state in states):
        raise _damaged()
    own = {str(i): state["objects"].get("0") for i, state in enumerate(states)}
    return {"rounds": np.concatenate([state["rounds"] for state in states]), "objects": own}
