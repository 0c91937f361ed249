"""The loop over the bytes of keys. Numba compiles it, so this module is imported only when keys are hashed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treecal._compile import strict
from treecal._typing import Integers


@strict
def fnv1a(offsets: Integers, data: NDArray[np.uint8], out: NDArray[np.uint64]) -> None:
    """Write the 64-bit FNV-1a hash of each string, `data[offsets[i]:offsets[i + 1]]`."""
    for i in range(len(out)):
        hash_ = np.uint64(0xCBF29CE484222325)
        for at in range(offsets[i], offsets[i + 1]):
            hash_ = (hash_ ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        out[i] = hash_
