"""Rows packed by shard: one blob of bytes for thousands of rows, so that an engine moves blobs and not rows.

Shuffling, sorting and state stores cost by the row. A blob is an Arrow stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from treecal.forecasters import Forecaster
from treecal.keyed._shard import split
from treecal.keyed._tables import arrow
from treecal.state import describe

if TYPE_CHECKING:
    import pyarrow as pa

PACKED = "shard int, blob binary"
"""The schema of packed rows, as Spark writes it."""

_ROWS = 1 << 18  # rows that are packed at once
_BATCH = 1 << 14  # rows that are handed to Spark at once


def dumps(table: pa.Table) -> bytes:
    """Return a table as bytes.

    Examples
    --------
    >>> import pyarrow as pa
    >>> loads([dumps(pa.table({"seq": [1]})), dumps(pa.table({"seq": [2]}))])["seq"].to_pylist()
    [1, 2]
    """
    pa = arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def loads(blobs: Iterable[bytes]) -> pa.Table:
    """Return one table of one blob or more."""
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
    for batch in batches:
        for blob in batch.column("blob").to_pylist():
            yield packed(loads([blob]), shards)


def unpack_rows(batches: Iterator[Any]) -> Iterator[Any]:
    """Return the rows of record batches of `shard` and `blob`."""
    for batch in batches:
        for blob in batch.column("blob").to_pylist():
            yield from loads([blob]).to_batches(max_chunksize=_BATCH)


def packed(table: pa.Table, shards: int) -> Any:
    """Pack the rows of a table."""
    pa = arrow()
    parts = split(table, shards)
    blobs = [dumps(part) for part in parts.values()]
    return pa.record_batch({"shard": pa.array(list(parts), pa.int32()), "blob": pa.array(blobs, pa.binary())})


def recipe(forecaster: Forecaster) -> dict[str, str]:
    """Return what tells this forecaster from others, in words and exactly.

    Examples
    --------
    >>> import treecal as tc
    >>> recipe(tc.RunningMean(tc.Simplex(2)))["shown"]
    'RunningMean(Simplex(2))'
    """
    return {"shown": repr(forecaster), "arguments": describe(forecaster)}
