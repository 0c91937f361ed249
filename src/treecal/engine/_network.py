"""Sorting networks."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from treecal._typing import Integers


@lru_cache
def network(dim: int) -> Integers:
    """Return the pairs of coordinates that, put in order one after the other, sort all of them.

    Batcher's merge exchange (Knuth, "The Art of Computer Programming", 5.2.2, Algorithm M).
    """
    most = 1 << max(dim - 1, 0).bit_length() >> 1  # a power of 2
    pairs, apart = [], most
    while apart:
        jump, remainder, step = most, 0, apart
        while step:
            pairs += [(i, i + step) for i in range(dim - step) if i & apart == remainder]
            jump, remainder, step = jump >> 1, apart, jump - apart
        apart >>= 1
    return np.array(pairs, np.int64).reshape(-1, 2)
