"""A hash table of names: which row each has. Linear probing, over the bytes of all names in one array.

Names are compared in full. Hashes are SipHash-1-3 under a random key, so that nobody can choose names that collide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treecal._compile import inlined, strict
from treecal._typing import Integers

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
LENGTH = 22
"""A name's place is one number: where it starts, and in as many bits its length. −1 is no name."""
_LOW = 0xFFFFFFFF


class Text(NamedTuple):
    """Names as UTF-8: name `i` is `data[ends[i]:ends[i + 1]]`."""

    data: Bytes
    ends: Integers


class Table(NamedTuple):
    """The names of all rows, and the slots they are found by.

    A slot is 0, or half of the name's hash above the number of the row, counted from 1.
    """

    data: Bytes
    places: Integers  # of each row's name in data
    slots: Words
    key: Words


@inlined
def _rotated(x: np.uint64, by: int) -> np.uint64:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


@inlined
def _mixed(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return the four words of SipHash after a round."""
    a += b
    b = _rotated(b, 13) ^ a
    a = _rotated(a, 32)
    c += d
    d = _rotated(d, 16) ^ c
    a += d
    d = _rotated(d, 21) ^ a
    c += b
    b = _rotated(b, 17) ^ c
    c = _rotated(c, 32)
    return a, b, c, d


@inlined
def _hash(data: Bytes, start: int, length: int, key: Words) -> np.uint64:
    """Return half of the SipHash-1-3 of some bytes, 32 bits."""
    a, b = key[0] ^ np.uint64(0x736F6D6570736575), key[1] ^ np.uint64(0x646F72616E646F6D)
    c, d = key[0] ^ np.uint64(0x6C7967656E657261), key[1] ^ np.uint64(0x7465646279746573)
    whole = length - length % 8
    for at in range(start, start + whole, 8):
        word = np.uint64(0)
        for k in range(8):
            word |= np.uint64(data[at + k]) << np.uint64(8 * k)
        d ^= word
        a, b, c, d = _mixed(a, b, c, d)
        a ^= word
    word = np.uint64(length & 255) << np.uint64(56)
    for k in range(length - whole):
        word |= np.uint64(data[start + whole + k]) << np.uint64(8 * k)
    d ^= word
    a, b, c, d = _mixed(a, b, c, d)
    a ^= word
    c ^= np.uint64(0xFF)
    for _ in range(3):
        a, b, c, d = _mixed(a, b, c, d)
    return (a ^ b ^ c ^ d) >> np.uint64(32)


@inlined
def _slot(data: Bytes, start: int, length: int, tag: np.uint64, table: Table) -> int:
    """Return the slot that holds a name, or the empty one where it would be."""
    slots, places, names = table.slots, table.places, table.data
    mask = len(slots) - 1
    slot = np.int64(tag) & mask
    while slots[slot] != 0:
        if slots[slot] >> np.uint64(32) == tag:
            place = places[np.int64(slots[slot] & np.uint64(_LOW)) - 1]
            if place & ((1 << LENGTH) - 1) == length:
                same = True
                for k in range(length):
                    same = same and names[(place >> LENGTH) + k] == data[start + k]
                if same:
                    break
        slot = (slot + 1) & mask
    return slot  # type: ignore[return-value]


@strict
def find(text: Text, table: Table, rows: Integers) -> None:
    """Write the row of each name, −1 for one that is not there."""
    for i in range(len(rows)):
        start, length = text.ends[i], text.ends[i + 1] - text.ends[i]
        tag = _hash(text.data, start, length, table.key)
        slot = _slot(text.data, start, length, tag, table)
        rows[i] = np.int64(table.slots[slot] & np.uint64(_LOW)) - 1


@strict
def enter(text: Text, table: Table, used: int, count: int, rows: Integers, at: int, fresh: Integers, new: int) -> int:
    """Enter the names from `at` on whose row is −1, each into the next of the `fresh` rows, and write their rows.

    `used` bytes of the data and `count` slots are in use, and `new` fresh rows. Return the first name for which there
    is no room any more, or their number; how many fresh rows are in use is written to the end of them.
    """
    for i in range(at, len(rows)):
        if rows[i] >= 0:
            continue
        start, length = text.ends[i], text.ends[i + 1] - text.ends[i]
        tag = _hash(text.data, start, length, table.key)
        slot = _slot(text.data, start, length, tag, table)
        if table.slots[slot] != 0:  # entered a moment ago
            rows[i] = np.int64(table.slots[slot] & np.uint64(_LOW)) - 1
            continue
        row = fresh[new]
        if 3 * (count + 1) > 2 * len(table.slots) or used + length > len(table.data) or row >= len(table.places):
            fresh[-1] = new
            return i
        table.slots[slot] = tag << np.uint64(32) | np.uint64(row + 1)
        table.places[row] = used << LENGTH | length
        for k in range(length):
            table.data[used + k] = text.data[start + k]
        used, count, new, rows[i] = used + length, count + 1, new + 1, row
    fresh[-1] = new
    return len(rows)


@strict
def remove(rows: Integers, table: Table) -> int:
    """Remove the names of rows that have one; return how many bytes they had. No slot is left as a gap in a chain."""
    slots, mask, freed = table.slots, len(table.slots) - 1, 0
    for i in range(len(rows)):
        place = table.places[rows[i]]
        length = place & ((1 << LENGTH) - 1)
        tag = _hash(table.data, place >> LENGTH, length, table.key)
        own, slot = tag << np.uint64(32) | np.uint64(rows[i] + 1), np.int64(tag) & mask
        while slots[slot] != own:
            slot = (slot + 1) & mask
        after = (slot + 1) & mask
        while slots[after] != 0:  # what is not nearer to its own place than the gap moves into it
            home = np.int64(slots[after] >> np.uint64(32)) & mask
            if ((after - home) & mask) >= ((after - slot) & mask):
                slots[slot] = slots[after]
                slot = after
            after = (after + 1) & mask
        slots[slot] = 0
        table.places[rows[i]] = -1
        freed += length
    return freed


@strict
def rehash(old: Words, slots: Words) -> None:
    """Put all rows into new slots."""
    mask = len(slots) - 1
    for i in range(len(old)):
        if old[i] != 0:
            slot = np.int64(old[i] >> np.uint64(32)) & mask
            while slots[slot] != 0:
                slot = (slot + 1) & mask
            slots[slot] = old[i]


@strict
def gathered(table: Table, rows: Integers, text: Text) -> None:
    """Write the names of rows, one after the other; a row without a name has none."""
    at = 0
    for i in range(len(rows)):
        place = table.places[rows[i]]
        if place >= 0:
            for k in range(place & ((1 << LENGTH) - 1)):
                text.data[at] = table.data[(place >> LENGTH) + k]
                at += 1
        text.ends[i + 1] = at


@strict
def utf8(points: NDArray[np.uint32], text: Text) -> int:
    """Write names of a fixed width, `(n, width)` code points, zeros at the end; return an invalid one, or −1."""
    at = 0
    for i in range(len(points)):
        size = points.shape[1]
        while size > 0 and points[i, size - 1] == 0:
            size -= 1
        for k in range(size):
            c = points[i, k]
            if c < 0x80:
                text.data[at] = c
                at += 1
                continue
            if 0xD800 <= c < 0xE000 or c > 0x10FFFF:
                return i
            more = 1 if c < 0x800 else 2 if c < 0x10000 else 3
            text.data[at] = (0xC0 if more == 1 else 0xE0 if more == 2 else 0xF0) | (c >> (6 * more))
            for j in range(more):
                text.data[at + 1 + j] = 0x80 | ((c >> (6 * (more - 1 - j))) & 0x3F)
            at += 1 + more
        text.ends[i + 1] = at
    return -1
