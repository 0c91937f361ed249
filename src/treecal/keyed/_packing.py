"""Rows by shard: which shard a key belongs to, and rows packed into one blob of bytes (an Arrow stream) for each.

Spark's shuffles, sorts and state stores cost by the row, so engines move blobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treecal._compile import strict
from treecal._typing import Integers
from treecal._validate import whole_number
from treecal.keyed._tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa


PACKED = "shard int, blob binary"
"""The schema of packed rows, as Spark writes it."""

_ROWS = 1 << 18  # packed at once
_BATCH = 1 << 14  # returned to Spark at once


def shard_of(keys: pa.Array, shards: int) -> Integers:
    """Return the shard of each key: the 64-bit FNV-1a hash of its UTF-8 bytes, modulo `shards`.

    A key has the same shard in every process, on every machine. A null one counts as empty.

    Examples
    --------
    >>> import pyarrow as pa
    >>> shard_of(pa.array(["London", "Paris", "London"]), 16)
    array([...])
    """
    pa = arrow()
    shards = whole_number("shards", shards, least=1)
    names = pa.concat_arrays([keys.cast(pa.large_binary()).fill_null(b"")])  # whole buffers, also of a slice
    hashes = np.zeros(len(names), np.uint64)
    if len(names):
        _, offsets, data = names.buffers()
        fnv1a(
            np.frombuffer(offsets, np.int64, len(names) + 1, names.offset * 8),
            np.frombuffer(data or b"", np.uint8),
            hashes,
        )
    return np.asarray(hashes % np.uint64(shards)).astype(np.int64)


def split(table: pa.Table, shards: int) -> dict[int, pa.Table]:
    """Return the rows of each shard that has any."""
    pa = arrow()
    home = shard_of(table.column("key").combine_chunks(), shards)
    order = np.argsort(home, kind="stable")
    ends = np.searchsorted(home[order], np.arange(shards + 1)).tolist()
    # Copies: a slice would take the whole table along to another process.
    return {shard: table.take(pa.array(order[a:b])) for shard, (a, b) in enumerate(pairwise(ends)) if a < b}


@strict
def fnv1a(offsets: Integers, data: NDArray[np.uint8], out: NDArray[np.uint64]) -> None:
    """Write the 64-bit FNV-1a hash of each string, `data[offsets[i]:offsets[i + 1]]`."""
    for i in range(len(out)):
        hash_ = np.uint64(0xCBF29CE484222325)
        for at in range(offsets[i], offsets[i + 1]):
            hash_ = (hash_ ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        out[i] = hash_


def dumps(table: pa.Table) -> bytes:
    """Return a table as bytes."""
    pa = arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def loads(blobs: Iterable[bytes]) -> pa.Table:
    """Return the rows of one blob or more as one table."""
    pa = arrow()
    return pa.concat_tables([pa.ipc.open_stream(blob).read_all() for blob in blobs]).combine_chunks()


def pack_rows(batches: Iterator[Any], shards: int) -> Iterator[Any]:
    """Pack rows that have a `key`: from record batches of them to record batches of `shard` and `blob`."""
    pa = arrow()
    waiting: list[Any] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= _ROWS:
            yield packed(pa.Table.from_batches(waiting), shards)
            waiting = []
    if waiting:
        yield packed(pa.Table.from_batches(waiting), shards)


def repack(batches: Iterator[Any], shards: int) -> Iterator[Any]:
    """Pack again for another number of shards."""
    return (packed(table, shards) for table in _tables(batches))


def unpack_rows(batches: Iterator[Any]) -> Iterator[Any]:
    """Return the rows of record batches of `shard` and `blob`."""
    return (rows for table in _tables(batches) for rows in table.to_batches(max_chunksize=_BATCH))


def _tables(batches: Iterator[Any]) -> Iterator[pa.Table]:
    return (loads([blob]) for batch in batches for blob in batch.column("blob").to_pylist())


def packed(table: pa.Table, shards: int) -> Any:
    """Pack the rows of a table."""
    pa = arrow()
    parts = split(table, shards)
    blobs = [dumps(part) for part in parts.values()]
    return pa.record_batch({"shard": pa.array(list(parts), pa.int32()), "blob": pa.array(blobs, pa.binary())})
