"""Rows packed by shard: one blob of bytes, an Arrow stream, for thousands of rows.

Spark's shuffles, sorts and state stores cost by the row, so engines move blobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from treecal.keyed._shard import split
from treecal.keyed._tables import arrow

if TYPE_CHECKING:
    import pyarrow as pa

PACKED = "shard int, blob binary"
"""The schema of packed rows, as Spark writes it."""

_ROWS = 1 << 18  # packed at once
_BATCH = 1 << 14  # returned to Spark at once


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
