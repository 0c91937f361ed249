"""Pages of Parquet, byte by byte. Numba compiles these loops, so this module is imported only when a file is read."""

from __future__ import annotations

from typing import Any

import numpy as np

from treecal._compile import inlined, strict

NONE = -(1 << 40)
"""Stands for a field that is missing."""
PAGE = 9
"""The number of fields, the first of which is none."""
_STRUCT, _BINARY, _DOUBLE, _BYTE = 12, 8, 7, 3  # types of Thrift's compact protocol, besides integers: 4 to 6
_DEEPEST = 3


def _eight(data: Any, at: Any) -> Any:
    """Return eight bytes as one number: one load, as the index has no sign that would have to be looked at."""
    u = np.uint64
    low = u(data[at]) | u(data[at + u(1)]) << u(8) | u(data[at + u(2)]) << u(16) | u(data[at + u(3)]) << u(24)
    high = u(data[at + u(4)]) | u(data[at + u(5)]) << u(8) | u(data[at + u(6)]) << u(16) | u(data[at + u(7)]) << u(24)
    return low | high << u(32)


_word = inlined(_eight)


@strict
def varint(data: Any, at: Any) -> tuple[Any, Any]:
    """Return a number of seven bits a byte, and where it ends; or -1, where it does not end."""
    value, shift = np.int64(0), 0
    while at < len(data) and shift < 63:
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return np.int64(0), -1


@strict
def page_headers(data: Any, starts: Any, ends: Any, pages: Any) -> int:
    """Read the headers of all pages of columns; return their number, or -1 if one is none.

    A page is a row of `pages`: its column, where it begins and ends, its fields, `PAGE` of them, and those of the one
    structure within them.
    """
    last, number = np.zeros(_DEEPEST + 1, np.int64), 0
    for column in range(len(starts)):
        at = starts[column]
        while at < ends[column]:
            if number == len(pages):
                return -1
            page = pages[number]
            page[:] = NONE
            depth = 0
            last[0] = 0
            while depth >= 0:
                if at < 0 or at >= ends[column]:
                    return -1
                byte = np.int64(data[at])
                at += 1
                if byte == 0:
                    depth -= 1
                    continue
                kind, value = byte & 15, np.int64(NONE)
                last[depth] += byte >> 4
                if byte < 16:  # the number of the field follows, which that of no field does
                    return -1
                if kind <= 2:
                    value = np.int64(kind == 1)
                elif kind == _BYTE:
                    at += 1
                elif kind < _DOUBLE:
                    value, at = varint(data, at)
                    value = (value >> 1) ^ -(value & 1)
                elif kind == _DOUBLE:
                    at += 8
                elif kind == _BINARY:
                    size, at = varint(data, at)
                    at = -1 if at < 0 or size > len(data) else at + size
                elif kind == _STRUCT and depth < _DEEPEST:
                    depth += 1
                    last[depth] = 0
                else:
                    return -1
                if depth < 2 and kind != _STRUCT and last[depth] < PAGE:
                    page[3 + PAGE * depth + last[depth]] = value
            size = page[3 + 3]
            if size < 0 or at + size > ends[column]:
                return -1
            page[0], page[1], page[2] = column, at, at + size
            at += size
            number += 1
    return number


@strict
def read_codes(data: Any, pages: Any, codes: Any) -> bool:
    """Read the codes in pages of data; return whether all are there, and none is missing.

    A page is a row of `pages`: its column, where it begins and ends, the number of its values, of those before it, and
    whether it begins with the levels of values that may be missing.
    """
    for j in range(len(pages)):
        column, at, end, count, before, levels = pages[j]
        if levels:
            if at + 4 > end:
                return False
            begin, size = at + 4, np.int64(0)
            for byte in range(4):
                size |= np.int64(data[at + byte]) << (8 * byte)
            at = begin + size
            if at > end or not none_missing(data[begin:at], 0, count):
                return False
        if at >= end or data[at] > 16:
            return False
        if unpack(data[at + 1 : end], 0, np.int64(data[at]), codes[column], before, count) < 0:
            return False
    return True


@strict
def unpack(data: Any, at: int, width: Any, out: Any, start: int, count: int) -> int:
    """Read numbers of `width` bits, at most 16, in runs and packs; return where they end, or -1 if there are too few.

    `out` must have room for seven more.
    """
    stop, mask = start + count, np.uint64((1 << width) - 1)
    bits, size = np.uint64(width), len(data)
    while start < stop:
        head, at = varint(data, at)
        if at < 0:
            return -1
        if head & 1 == 0:  # a run of one number
            step, value = (width + 7) >> 3, np.int64(0)
            if at + step > size or head == 0:
                return -1
            for j in range(step):
                value |= np.int64(data[at + j]) << (8 * j)
            end = min(stop, start + (head >> 1))
            out[start:end] = value
            start, at = end, at + step
            continue
        packs = min(head >> 1, (stop - start + 7) >> 3)  # of eight numbers, in `width` bytes
        if packs == 0 or at + packs * width > size:
            return -1
        fast = 0
        if width <= 8:
            fast = max(0, min(packs, (size - at - 8) // max(width, 1)))
            for pack in range(fast):
                word, first = _word(data, np.uint64(at + pack * width)), np.uint64(start + 8 * pack)
                for j in range(8):
                    out[first + np.uint64(j)] = (word >> (np.uint64(j) * bits)) & mask
        for pack in range(fast, packs):
            for j in range(8):
                bit = j * width
                begin, word = at + pack * width + (bit >> 3), np.uint64(0)
                for byte in range(min(3, size - begin)):
                    word |= np.uint64(data[begin + byte]) << np.uint64(8 * byte)
                out[start + 8 * pack + j] = (word >> np.uint64(bit & 7)) & mask
        start, at = min(stop, start + 8 * packs), at + (head >> 1) * width
    return at


@strict
def none_missing(data: Any, at: int, count: int) -> bool:
    """Return whether no value of a column is missing: whether all its levels, of one bit, are 1."""
    done = 0
    while done < count:
        head, at = varint(data, at)
        if at < 0 or head < 2:
            return False
        if head & 1 == 0:
            if at >= len(data) or data[at] != 1:
                return False
            done, at = done + (head >> 1), at + 1
            continue
        for _ in range(min(head >> 1, (count - done + 7) >> 3)):
            ones = (1 << min(8, count - done)) - 1
            if at >= len(data) or data[at] & ones != ones:
                return False
            done, at = done + 8, at + 1
    return True
