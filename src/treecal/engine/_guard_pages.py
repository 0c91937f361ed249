"""The pages of many books, compiled: the points of each stream, in one pool that streams take room from as they grow.

A stream has a block of columns, for all its books alike, and a block of slots, for the points it has announced. A block
that is full is left for one of half as much again; what is left behind is taken back when the pool is packed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treecal._compile import strict
from treecal._typing import Array, Integers

START, ROOM, SLOT_START, SLOT_ROOM = range(4)
"""Columns of `numbers`: the block of columns and its length, and the block of slots and its length."""


class Pool(NamedTuple):
    """The pages of all streams: where each stream's are, then the columns, then the slots.

    `used` and `announced` count them. `told` and `owed` are the points that were announced, and their biases. `ends`
    says where room is free.
    """

    numbers: Integers
    used: Integers
    announced: Integers
    points: Array
    biases: Array
    sizes: Array
    slots: Integers
    told: Array
    owed: Array
    ends: Integers


class Pages(NamedTuple):
    """The pages of one stream: points and biases `(books, d, columns)`, and sizes and slots `(books, columns)`."""

    points: Array
    biases: Array
    sizes: Array
    slots: Integers
    used: Integers
    announced: Integers
    told: Array
    owed: Array
    numbers: Integers


@strict
def opened(pool: Pool, stream: int) -> Pages:
    """Return the pages of a stream."""
    numbers, dim, books = pool.numbers[stream], pool.told.shape[1], pool.used.shape[1]
    room, start, end = numbers[ROOM], numbers[START] * books, (numbers[START] + numbers[ROOM]) * books
    first, last = numbers[SLOT_START], numbers[SLOT_START] + numbers[SLOT_ROOM]
    return Pages(
        pool.points[start * dim : end * dim].reshape(books, dim, room),
        pool.biases[start * dim : end * dim].reshape(books, dim, room),
        pool.sizes[start:end].reshape(books, room),
        pool.slots[start:end].reshape(books, room),
        pool.used[stream],
        pool.announced[stream : stream + 1],
        pool.told[first:last],
        pool.owed[first:last],
        numbers,
    )


@strict
def _more(room: int, most: int) -> int:
    return min(max(2, room + (room + 1) // 2), most)


@strict
def add_columns(pool: Pool, stream: int, capacity: int) -> bool:
    """Give a stream more columns; return whether the pool has them."""
    old, books = opened(pool, stream), pool.used.shape[1]
    room = _more(old.numbers[ROOM], capacity)
    if (pool.ends[0] + room) * books > len(pool.sizes):
        return False
    old.numbers[START], old.numbers[ROOM] = pool.ends[0], room
    pool.ends[0] += room
    new = opened(pool, stream)
    for b in range(books):
        used = old.used[b]
        new.points[b, :, :used], new.biases[b, :, :used] = old.points[b, :, :used], old.biases[b, :, :used]
        new.sizes[b, :used], new.slots[b, :used] = old.sizes[b, :used], old.slots[b, :used]
    return True


@strict
def add_slots(pool: Pool, stream: int, most: int) -> bool:
    """Give a stream more slots; return whether the pool has them."""
    old = opened(pool, stream)
    used, room = old.announced[0], _more(old.numbers[SLOT_ROOM], most)
    if pool.ends[1] + room > len(pool.told):
        return False
    old.numbers[SLOT_START], old.numbers[SLOT_ROOM] = pool.ends[1], room
    pool.ends[1] += room
    new = opened(pool, stream)
    new.told[:used], new.owed[:used] = old.told[:used], old.owed[:used]
    return True


class PageRows(NamedTuple):
    """What the pages of streams hold, one after the other: a row for each column used, book by book, and each slot."""

    points: Array
    biases: Array
    slots: Integers
    told: Array
    owed: Array


@strict
def pack(rows: Integers, pool: Pool, packed: PageRows) -> None:
    """Write the pages of streams one after the other."""
    at, slot = 0, 0
    for row in rows:
        pages = opened(pool, row)
        for b in range(len(pages.used)):
            for i in range(pages.used[b]):
                for j in range(packed.points.shape[1]):
                    packed.points[at, j], packed.biases[at, j] = pages.points[b, j, i], pages.biases[b, j, i]
                packed.slots[at] = pages.slots[b, i]
                at += 1
        count = pages.announced[0]
        packed.told[slot : slot + count], packed.owed[slot : slot + count] = pages.told[:count], pages.owed[:count]
        slot += count


@strict
def unpack(packed: PageRows, pool: Pool) -> None:
    """Write the pages of all streams, which have room for them."""
    at, slot = 0, 0
    for row in range(len(pool.numbers)):
        pages = opened(pool, row)
        for b in range(len(pages.used)):
            for i in range(pages.used[b]):
                total = 0.0
                for j in range(packed.points.shape[1]):
                    pages.points[b, j, i], pages.biases[b, j, i] = packed.points[at, j], packed.biases[at, j]
                    total += abs(packed.biases[at, j])
                pages.sizes[b, i], pages.slots[b, i] = total, packed.slots[at]
                at += 1
        count = pages.announced[0]
        pages.told[:count], pages.owed[:count] = packed.told[slot : slot + count], packed.owed[slot : slot + count]
        slot += count


def empty_pool(numbers: Integers, used: Integers, announced: Integers, dim: int, columns: int, slots: int) -> Pool:
    """Return a pool with this much room free, in which the streams' blocks follow each other."""
    numbers = numbers.copy()
    ends = numbers[:, [ROOM, SLOT_ROOM]].cumsum(axis=0)
    numbers[:, [START, SLOT_START]] = ends - numbers[:, [ROOM, SLOT_ROOM]]
    taken = ends[-1] if len(ends) else np.zeros(2, np.int64)
    size, rows = int(taken[0] + columns) * used.shape[1], int(taken[1] + slots)
    return Pool(
        numbers,
        used,
        announced,
        np.empty(size * dim),
        np.empty(size * dim),
        np.empty(size),
        np.empty(size, np.int32),
        np.empty((rows, dim)),
        np.empty((rows, dim)),
        taken.copy(),
    )
