"""How many processors this process may use, and threads that share work."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")

_SHARE = 2**16  # outcomes that are worth a thread


def processors() -> int:
    """Return the number of processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parts(count: int, outcomes: int, most: int | None) -> list[tuple[int, int]]:
    """Return parts of `range(count)`, one for each thread that so many outcomes are worth.

    There are at most `most` threads, by default as many as processors.
    """
    threads = max(1, min(most or processors(), outcomes // _SHARE))
    return list(pairwise(count * part // threads for part in range(threads + 1)))


def side_by_side(work: Callable[[S], T], items: list[S]) -> list[T]:
    """Return what the work gives for each item, each in a thread of its own; the first in the caller's."""
    if len(items) == 1:
        return [work(items[0])]
    with ThreadPoolExecutor(len(items) - 1) as pool:
        others = pool.map(work, items[1:])
        return [work(items[0]), *others]
