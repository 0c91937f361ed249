"""The pages of many streams, compiled: books and contexts, in one pool that streams take room from as they grow.

A stream has a block of columns, for the points of its book; a block of slots, for the points it has announced; and one
of contexts, for its tracker. A block that is full is left for one of half as much again; what is left behind is taken
back when the pool is packed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treecal._compile import copy_into, strict
from treecal._typing import Array, Integers, Saved

START, ROOM, SLOT_START, SLOT_ROOM, CONTEXT_START, CONTEXT_ROOM = range(6)
"""Columns of `numbers`: the block of columns and its length, that of slots, and that of contexts."""
ROOMS = [ROOM, SLOT_ROOM, CONTEXT_ROOM]


class Pool(NamedTuple):
    """The pages of all streams: where each stream's are, then the columns, then the slots, then the contexts.

    `used`, `announced` and `contexts` count them. `told` and `owed` are the points that were announced, and their
    biases. `ends` says where room is free.
    """

    numbers: Integers
    used: Integers
    announced: Integers
    contexts: Integers
    points: Array
    biases: Array
    sizes: Array
    visits: Array
    slots: Integers
    told: Array
    owed: Array
    sums: Array
    seen: Array
    longer: Integers
    ends: Integers


class Pages(NamedTuple):
    """The pages of one stream: points and biases `(d, columns)`, and the rest by rows; each count in an array."""

    points: Array
    biases: Array
    sizes: Array
    visits: Array
    slots: Integers
    used: Integers
    announced: Integers
    contexts: Integers
    told: Array
    owed: Array
    sums: Array
    seen: Array
    longer: Integers
    numbers: Integers


@strict
def opened(pool: Pool, stream: int) -> Pages:
    """Return the pages of a stream."""
    numbers = pool.numbers[stream]
    dim = pool.told.shape[1]
    room = numbers[ROOM]
    start = numbers[START]
    end = start + room
    first = numbers[SLOT_START]
    last = first + numbers[SLOT_ROOM]
    root = numbers[CONTEXT_START]
    leaf = root + numbers[CONTEXT_ROOM]
    return Pages(
        pool.points[start * dim : end * dim].reshape(dim, room),
        pool.biases[start * dim : end * dim].reshape(dim, room),
        pool.sizes[start:end],
        pool.visits[start:end],
        pool.slots[start:end],
        pool.used[stream : stream + 1],
        pool.announced[stream : stream + 1],
        pool.contexts[stream : stream + 1],
        pool.told[first:last],
        pool.owed[first:last],
        pool.sums[root:leaf],
        pool.seen[root:leaf],
        pool.longer[root:leaf],
        numbers,
    )


@strict
def _take(pool: Pool, stream: int, kind: int, most: int, free: int) -> bool:
    """Give a stream a larger block of a kind, if so much of the pool is free for that kind."""
    numbers = pool.numbers[stream]
    old = numbers[2 * kind + 1]
    room = min(max(2, old + (old + 1) // 2), most)
    if pool.ends[kind] + room > free:
        return False
    numbers[2 * kind] = pool.ends[kind]
    numbers[2 * kind + 1] = room
    pool.ends[kind] += room
    return True


@strict
def add_columns(pool: Pool, stream: int, capacity: int) -> bool:
    """Give a stream more columns; return whether the pool has them."""
    old = opened(pool, stream)
    used = old.used[0]
    if not _take(pool, stream, 0, capacity, len(pool.sizes)):
        return False
    new = opened(pool, stream)
    copy_into(new.points[:, :used], old.points[:, :used])
    copy_into(new.biases[:, :used], old.biases[:, :used])
    copy_into(new.sizes[:used], old.sizes[:used])
    copy_into(new.visits[:used], old.visits[:used])
    copy_into(new.slots[:used], old.slots[:used])
    return True


@strict
def add_slots(pool: Pool, stream: int, most: int) -> bool:
    """Give a stream more slots; return whether the pool has them."""
    old = opened(pool, stream)
    used = old.announced[0]
    if not _take(pool, stream, 1, most, len(pool.told)):
        return False
    new = opened(pool, stream)
    copy_into(new.told[:used], old.told[:used])
    copy_into(new.owed[:used], old.owed[:used])
    return True


@strict
def add_contexts(pool: Pool, stream: int, most: int) -> bool:
    """Give a stream room for more contexts; return whether the pool has it."""
    old = opened(pool, stream)
    kept = old.contexts[0]
    if not _take(pool, stream, 2, most, len(pool.seen)):
        return False
    new = opened(pool, stream)
    copy_into(new.sums[:kept], old.sums[:kept])
    copy_into(new.seen[:kept], old.seen[:kept])
    copy_into(new.longer[:kept], old.longer[:kept])
    return True


LISTED = (("visits", "slots"), ("told", "owed"), ("sums", "seen", "longer"))
"""What the entries of a block of columns, of slots and of contexts hold, beside the points and biases of columns."""


def _entries(numbers: Integers, kind: int, counts: Integers) -> Integers:
    """Return the places of the first entries of each stream's block of a kind, so many of each."""
    before = np.cumsum(counts) - counts
    return np.asarray(np.arange(counts.sum()) + np.repeat(numbers[:, 2 * kind] - before, counts))


def _coordinates(numbers: Integers, used: Integers, dim: int) -> Integers:
    """Return the places of the points of the columns used, `(columns, dim)`: in a block, coordinate by coordinate."""
    start = np.repeat(numbers[:, START], used)
    room = np.repeat(numbers[:, ROOM], used)
    first = start * dim + _entries(numbers, 0, used) - start
    return np.asarray(first[:, None] + room[:, None] * np.arange(dim))


def pack(pool: Pool, rows: Integers) -> Saved:
    """Return what the pages of some streams hold, by name: those of one stream after those of the one before."""
    numbers = pool.numbers[rows]
    counts = (pool.used[rows], pool.announced[rows], pool.contexts[rows])
    at = _coordinates(numbers, counts[0], pool.told.shape[1])
    found: dict[str, Any] = {"points": pool.points[at], "biases": pool.biases[at]}
    for kind, names in enumerate(LISTED):
        places = _entries(numbers, kind, counts[kind])
        found |= {name: getattr(pool, name)[places] for name in names}
    return found


def unpack(pages: Saved, pool: Pool) -> None:
    """Write the pages of all streams, which have room for them."""
    at = _coordinates(pool.numbers, pool.used, pool.told.shape[1])
    pool.points[at] = pages["points"]
    pool.biases[at] = pages["biases"]
    pool.sizes[_entries(pool.numbers, 0, pool.used)] = np.add.accumulate(np.abs(pages["biases"]), axis=1)[:, -1]
    for kind, (names, counts) in enumerate(zip(LISTED, (pool.used, pool.announced, pool.contexts), strict=True)):
        for name in names:
            getattr(pool, name)[_entries(pool.numbers, kind, counts)] = pages[name]


def empty_pool(numbers: Integers, counts: tuple[Integers, Integers, Integers], dim: int, free: list[int]) -> Pool:
    """Return a pool with so much room free for columns, slots and contexts, in which streams follow each other."""
    numbers = numbers.copy()
    ends = numbers[:, ROOMS].cumsum(axis=0)
    numbers[:, [START, SLOT_START, CONTEXT_START]] = ends - numbers[:, ROOMS]
    taken = ends[-1] if len(ends) else np.zeros(3, np.int64)
    columns, slots, contexts = (int(own) + more for own, more in zip(taken, free, strict=True))
    return Pool(
        numbers,
        *counts,
        np.empty(columns * dim),
        np.empty(columns * dim),
        np.empty(columns),
        np.empty(columns),
        np.empty(columns, np.int32),
        np.empty((slots, dim)),
        np.empty((slots, dim)),
        np.empty((contexts, dim)),
        np.empty(contexts),
        np.empty((contexts, dim), np.int16),
        taken.copy(),
    )
