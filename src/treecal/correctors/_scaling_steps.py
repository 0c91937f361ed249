"""The online Newton step of many streams, each with parameters of its own: that of one stream, row by row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treecal._compile import strict
from treecal._typing import Array, Integers
from treecal.correctors._newton import Design
from treecal.correctors._newton_kernels import _law, _room, _step
from treecal.correctors._trust_kernels import mixed


class Scalings(NamedTuple):
    """The states of streams, with room for equally many copies; `seen` decides how many of them there are."""

    theta: Array  # (streams, copies, parameters)
    curvature: Array  # (streams, copies, blocks, size, size)
    trust: Array  # (streams, copies)
    seen: Array  # (streams,)


class Speeds(NamedTuple):
    """Of each number of copies, what each keeps of its past in a round, and the weight from which on it is one more."""

    kept: Array  # (most copies + 1, most copies)
    ends: Array  # (most copies + 1,)
    lasting: float


@strict
def _count(seen: float, speeds: Speeds) -> int:
    """Return how many copies there are after so many rounds."""
    count = 1
    while seen >= speeds.ends[count]:
        count += 1
    return count


@strict
def announce(now: Scalings, streams: Integers, values: Array, design: Design, speeds: Speeds, means: Array) -> None:
    """Write what the stream of each row announces."""
    logs, laws = np.empty(means.shape[1]), np.empty((now.theta.shape[1], means.shape[1]))
    for row in range(len(values)):
        own = streams[row]
        count = _count(now.seen[own], speeds)
        for copy in range(count):
            _law(now.theta[own, copy], values[row], design, logs, laws[copy])
        mixed(now.trust[own, :count], laws, means[row])


@strict
def join(now: Scalings, own: int, count: int, design: Design, speeds: Speeds) -> None:
    """Add a copy to the `count` copies of a stream: one that remembers as much as it would hold."""
    theta, A, trust = now.theta[own], now.curvature[own], now.trust[own]
    part = min(1.0, 1.0 / (1.0 - speeds.kept[count + 1, count]) / now.seen[own])
    theta[count] = theta[0]
    for block in range(A.shape[1]):
        for i in range(A.shape[2]):
            for j in range(A.shape[2]):
                A[count, block, i, j] = part * A[0, block, i, j] + (1.0 - part) * (design.ridge if i == j else 0.0)
    left = 1.0 - (1.0 - speeds.lasting) * (1.0 - 1.0 / count)
    taken = (1.0 - speeds.lasting) / (count * (count + 1)) / left
    trust[count] = trust[0] * taken
    trust[0] *= 1.0 - taken


@strict
def play(
    now: Scalings,
    streams: Integers,
    values: Array,
    outcomes: Array,
    at: int,
    design: Design,
    speeds: Speeds,
    means: Array,
) -> int:
    """Take a step of weight 1 for each row, from `at` on; write what its stream announces before it.

    Return the next row: their number, or one that needs room for another copy.
    """
    most = now.theta.shape[1]
    room = _room(most, means.shape[1], now.theta.shape[2], design.blocks)
    for row in range(at, len(streams)):
        own = streams[row]
        count, seen = _count(now.seen[own], speeds), now.seen[own] + 1.0
        grows = seen >= speeds.ends[count]
        if grows and count == most:
            return row
        theta, trust = now.theta[own, :count], now.trust[own, :count]
        for copy in range(count):
            _law(theta[copy], values[row], design, room.logs, room.laws[copy])
        mixed(trust, room.laws, means[row])
        A, kept = now.curvature[own, :count], speeds.kept[count, :count]
        _step(theta, A, trust, kept, seen, values[row], outcomes[row], 1.0, design, room)
        now.seen[own] = seen
        if grows:
            join(now, own, count, design, speeds)
    return len(streams)
