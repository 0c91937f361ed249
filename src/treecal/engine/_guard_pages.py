"""The pages of many streams, compiled: books and contexts, in one pool that streams take room from as they grow.

A stream has a block of columns, for the points of its book; a block of slots, for the points it has announced; and one
of contexts, for its tracker. A block that is full is left for one of half as much again; what is left behind is taken
back when the pool is packed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treecal._compile import copy_into, strict
from treecal._typing import Array, Integers

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


class PageRows(NamedTuple):
    """What the pages of streams hold, one after the other: a row for each column used, each slot, and each context."""

    points: Array
    biases: Array
    visits: Array
    slots: Integers
    told: Array
    owed: Array
    sums: Array
    seen: Array
    longer: Integers


@strict
def pack(rows: Integers, pool: Pool, packed: PageRows) -> None:
    """Write the pages of streams one after the other."""
    at = 0
    slot = 0
    context = 0
    for row in rows:
        pages = opened(pool, row)
        for i in range(pages.used[0]):
            for j in range(packed.points.shape[1]):
                packed.points[at, j] = pages.points[j, i]
                packed.biases[at, j] = pages.biases[j, i]
            packed.visits[at] = pages.visits[i]
            packed.slots[at] = pages.slots[i]
            at += 1
        count = pages.announced[0]
        copy_into(packed.told[slot : slot + count], pages.told[:count])
        copy_into(packed.owed[slot : slot + count], pages.owed[:count])
        slot += count
        kept = pages.contexts[0]
        copy_into(packed.sums[context : context + kept], pages.sums[:kept])
        copy_into(packed.seen[context : context + kept], pages.seen[:kept])
        copy_into(packed.longer[context : context + kept], pages.longer[:kept])
        context += kept


@strict
def unpack(packed: PageRows, pool: Pool) -> None:
    """Write the pages of all streams, which have room for them."""
    at = 0
    slot = 0
    context = 0
    for row in range(len(pool.numbers)):
        pages = opened(pool, row)
        for i in range(pages.used[0]):
            total = 0.0
            for j in range(packed.points.shape[1]):
                pages.points[j, i] = packed.points[at, j]
                pages.biases[j, i] = packed.biases[at, j]
                total += abs(packed.biases[at, j])
            pages.sizes[i] = total
            pages.visits[i] = packed.visits[at]
            pages.slots[i] = packed.slots[at]
            at += 1
        count = pages.announced[0]
        copy_into(pages.told[:count], packed.told[slot : slot + count])
        copy_into(pages.owed[:count], packed.owed[slot : slot + count])
        slot += count
        kept = pages.contexts[0]
        copy_into(pages.sums[:kept], packed.sums[context : context + kept])
        copy_into(pages.seen[:kept], packed.seen[context : context + kept])
        copy_into(pages.longer[:kept], packed.longer[context : context + kept])
        context += kept


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
