"""When to read an error as rounds go by: the one rule of streams, reports, races and games."""

from __future__ import annotations

import numpy as np

from treecal._typing import Integers


def checkpoints(rounds: int) -> Integers:
    """Return about ten numbers of rounds per decade, evenly spaced on a logarithmic scale, from 1 to `rounds`.

    Examples
    --------
    >>> checkpoints(20)
    array([ 1,  2,  3,  4,  6,  7,  8, 11, 13, 16, 20])
    """
    last = max(rounds, 1)
    marks = np.geomspace(1, last, int(10 * np.log10(last)) + 2)
    return np.unique(np.rint(marks).astype(np.int64))[:rounds]
