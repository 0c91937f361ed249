"""Many streams with weighted heights learn, a block of them at a time: see `Records`.

Streams do not depend on each other, so a block takes one outcome of each of many, and does with all of them what a
round does with one: gaps of the nodes that end, their norms, sums, weights. What cannot be taken yet, because its
stream is in the block already or needs more heights, waits; a stream's outcomes stay in their order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from treecal._compile import strict
from treecal._typing import Array, Integers
from treecal.engine import _lanes as lanes
from treecal.engine._norm_kernels import norms
from treecal.engine._state import Mix, TreeArgs
from treecal.engine._tree_records import COST, SCALE, Records
from treecal.engine._weigh_kernels import Rising, new_rising, weigh_rising
from treecal.forecasters._weighting import Weighting

_AHEAD = 16  # records of outcomes so far ahead are fetched meanwhile
_SIZE = 512  # streams of a block, of which what is computed stays near the processor
WAITING = 128  # outcomes that may wait for another block


class Queue(NamedTuple):
    """Outcomes of the streams in rows from `low` to `high`: those from `at` on, and `held` earlier ones that wait."""

    low: int
    high: int
    waiting: Integers
    at: int = 0
    held: int = 0


class Block(NamedTuple):
    """The streams of a block, and of each the place of its outcome and its rounds before."""

    places: Integers
    rows: Integers
    nows: Integers


class Gaps(NamedTuple):
    """Gaps of nodes that end: the outcome sum of a node less its point times its rounds."""

    totals: Integers
    """Where the outcome sum of each starts, in the array that it is in."""
    siblings: Integers
    """And the sum of its finished siblings, to which the outcome sum is added."""
    counts: Array
    """The rounds of these siblings."""
    gaps: Array
    """A column for each."""
    sizes: Array
    """Their norms."""


# Which streams.


@strict
def _take(
    i: int, row: int, count: int, limit: int, whole: Integers, places: Integers, rows: Integers, nows: Integers
) -> int:
    """Take outcome `i`, 1 or 0, if its stream is not in the block yet and has less than `limit` rounds."""
    now = whole[row, 0]
    if now < 0 or now >= limit:
        return 0
    whole[row, 0] = ~now  # a mark, until the outcome is learned
    places[count], rows[count], nows[count] = i, row, now
    return 1


@strict
def _fill(given: Integers, queue: Queue, limit: int, whole: Integers, block: Block) -> tuple[Queue, int]:
    """Fill a block from what waits, and then from what comes next; return the queue after it, and how many it has."""
    low, high, waiting, at, held = queue
    places, rows, nows = block
    kept, count, wide = 0, 0, whole.shape[1]
    for n in range(held):
        i = waiting[n]
        if count < len(places) and _take(i, given[i], count, limit, whole, places, rows, nows):
            count += 1
        else:
            waiting[kept] = i
            kept += 1
    while at < len(given) and count < len(places) and kept < len(waiting):
        row = given[at]
        if low <= row < high:
            if at + _AHEAD < len(given):
                for k in range(0, wide, 8):
                    lanes.prefetch(whole, given[at + _AHEAD] * wide + k)
            taken = _take(at, row, count, limit, whole, places, rows, nows)
            count += taken
            waiting[kept] = at
            kept += 1 - taken
        at += 1
    return Queue(low, high, waiting, at, kept), count


# Gaps.


def outcome_rows(outcomes: Any, count: int, places: Integers, room: Array, starts: Integers) -> Array:
    """Return the array that the outcomes of a block are rows of, and note where each starts."""
    raise NotImplementedError


@overload(outcome_rows)
def _outcome_rows(outcomes: Any, count: Any, places: Any, room: Any, starts: Any) -> Any:
    if outcomes.ndim == 1:

        def found(outcomes: Any, count: Any, places: Any, room: Any, starts: Any) -> Any:
            room[:count] = 0.0
            for n in range(count):
                room[n, outcomes[places[n]]] = 1.0
                starts[n] = n * room.shape[1]
            return room

    else:

        def found(outcomes: Any, count: Any, places: Any, room: Any, starts: Any) -> Any:
            for n in range(count):
                starts[n] = places[n] * outcomes.shape[1]
            return outcomes

    return found


@strict
def _absorb(
    count: int, length: int, totals: Array, siblings: Array, tree: TreeArgs, mix: Mix | None, found: Gaps
) -> None:
    """Write the gaps of nodes of `length` rounds, and add their outcome sums to those of their siblings.

    A point is the mean of the node's finished siblings; for a first child the start point.
    """
    starts, owns, counts, gaps, first, dim = *found[:4], tree.first, len(tree.first)
    for n in range(count, count + -count % lanes.WIDTH):  # four at a time: the last one again
        starts[n], owns[n], counts[n] = starts[count - 1], owns[count - 1], counts[count - 1]
    rounds = lanes.lanes_of(float(length))
    for n in range(0, count, lanes.WIDTH):
        divisor = lanes.load(counts, n)
        s, t, u, v = starts[n], starts[n + 1], starts[n + 2], starts[n + 3]
        w, x, y, z = owns[n], owns[n + 1], owns[n + 2], owns[n + 3]
        for k in range(0, dim, lanes.WIDTH):
            some = min(dim - k, lanes.WIDTH)
            if some == lanes.WIDTH:
                a, b = lanes.load(totals, s + k), lanes.load(totals, t + k)
                c, d = lanes.load(totals, u + k), lanes.load(totals, v + k)
                e, f = lanes.load(siblings, w + k), lanes.load(siblings, x + k)
                g, h = lanes.load(siblings, y + k), lanes.load(siblings, z + k)
                lanes.store(siblings, w + k, lanes.plus(e, a))
                lanes.store(siblings, x + k, lanes.plus(f, b))
                lanes.store(siblings, y + k, lanes.plus(g, c))
                lanes.store(siblings, z + k, lanes.plus(h, d))
            else:
                a, b = lanes.load_some(totals, s + k, some), lanes.load_some(totals, t + k, some)
                c, d = lanes.load_some(totals, u + k, some), lanes.load_some(totals, v + k, some)
                e, f = lanes.load_some(siblings, w + k, some), lanes.load_some(siblings, x + k, some)
                g, h = lanes.load_some(siblings, y + k, some), lanes.load_some(siblings, z + k, some)
                lanes.store_some(siblings, w + k, lanes.plus(e, a), some)
                lanes.store_some(siblings, x + k, lanes.plus(f, b), some)
                lanes.store_some(siblings, y + k, lanes.plus(g, c), some)
                lanes.store_some(siblings, z + k, lanes.plus(h, d), some)
            a, b, c, d = lanes.transposed(a, b, c, d)
            e, f, g, h = lanes.transposed(e, f, g, h)
            _gap(gaps, k, n, a, e, divisor, rounds, first, mix)
            _gap(gaps, k + 1, n, b, f, divisor, rounds, first, mix)
            _gap(gaps, k + 2, n, c, g, divisor, rounds, first, mix)
            _gap(gaps, k + 3, n, d, h, divisor, rounds, first, mix)


@strict
def _gap(
    gaps: Array, k: int, n: int, total: Any, own: Any, divisor: Any, rounds: Any, first: Array, mix: Mix | None
) -> None:
    """Write coordinate `k` of four gaps; there is room for some that no point has."""
    own_k = min(k, len(first) - 1)
    point = lanes.over(own, divisor)
    if mix is not None:
        point = lanes.plus(lanes.times(point, lanes.lanes_of(mix.share)), lanes.lanes_of(mix.pull[own_k]))
    point = lanes.where_zero(divisor, lanes.lanes_of(first[own_k]), point)
    lanes.store(gaps, k * gaps.shape[1] + n, lanes.minus(total, lanes.times(rounds, point)))


@strict
def _clear(count: int, starts: Integers, sums: Array, dim: int) -> None:
    """Set sums to 0."""
    for n in range(count):
        start = starts[n]
        for k in range(0, dim, lanes.WIDTH):
            lanes.store_some(sums, start + k, lanes.lanes_of(0.0), min(dim - k, lanes.WIDTH))


# Rounds.


@strict
def _learn_leaves(
    outcomes: Any,
    count: int,
    block: Block,
    found: Gaps,
    room: Array,
    rising: Rising,
    tree: TreeArgs,
    mix: Mix | None,
    seen: bool,
    norm: int,
    pairs: Integers,
    records: Records,
) -> int:
    """Learn the outcomes of a block; return of how many streams a higher node ends, and note these.

    The scale of costs is the largest `seen`, or known beforehand.
    """
    near, whole, head, arity = records.near, records.whole, records.head, tree.arity
    places, rows, nows = block
    counts, siblings, sizes = found.counts, found.siblings, found.sizes
    higher, last = 0, arity - 1
    soon, far, stakes = rising.climbing, records.far, records.stakes
    for n in range(count):
        elder = nows[n] % arity
        counts[n] = elder
        siblings[n] = rows[n] * near.shape[1] + head
        soon[higher] = rows[n]
        higher += elder == last
    for n in range(higher):  # what higher nodes need is fetched meanwhile
        for k in range(0, len(tree.first) + 7, 8):
            lanes.prefetch(far, soon[n] * far.shape[1] + k)
        for k in range(0, stakes.shape[1] + 7, 8):
            lanes.prefetch(stakes, soon[n] * stakes.shape[1] + k)
    totals = outcome_rows(outcomes, count, places, room, found.totals)
    _absorb(count, 1, totals, near, tree, mix, found)
    norms(found.gaps, count, len(tree.first), norm, pairs, sizes)
    higher = 0
    rising_rows, rising_nows, ended = rising.rows, rising.nows, rising.ended
    for n in range(count):
        row, cost = rows[n], sizes[n]
        whole[row, 0] = nows[n] + 1
        rising_rows[higher], rising_nows[higher], ended[0, higher] = row, nows[n] + 1, cost
        higher += counts[n] == last
        cost *= counts[n] != last  # costs of the others are added when heights are weighed
        near[row, COST] += cost
        if seen:
            near[row, SCALE] = max(near[row, SCALE], cost)
    return higher


@strict
def _learn_higher(
    count: int,
    found: Gaps,
    rising: Rising,
    tree: TreeArgs,
    mix: Mix | None,
    norm: int,
    pairs: Integers,
    records: Records,
) -> None:
    """Carry sums up, and note the costs of the higher nodes that end."""
    dim, arity, near, far, head = len(tree.first), tree.arity, records.near, records.far, records.head
    rows, nows, ends, grown, ended, climbing = rising[:6]
    starts, siblings, counts, sizes = found.totals, found.siblings, found.counts, found.sizes
    for j in range(count):
        climbing[j], ends[j], grown[j] = j, 1, False
        starts[j] = rows[j] * near.shape[1] + head
    below, height, length = near, 1, arity
    while count > 0:
        for c in range(count):
            j = climbing[c]
            siblings[c] = rows[j] * far.shape[1] + (height - 1) * dim
            counts[c] = np.uint64(nows[j] - length) // np.uint64(length) % np.uint64(arity) * length
        _absorb(count, length, below, far, tree, mix, found)
        norms(found.gaps, count, dim, norm, pairs, sizes)
        _clear(count, starts, below, dim)
        left, last = 0, float((arity - 1) * length)
        for c in range(count):
            j = climbing[c]
            grown[j] = tree.depth == 0 and nows[j] == length  # then no node of this height has ended
            ended[height, j], ends[j] = sizes[c], height + 1 - grown[j]
            climbing[left], starts[left] = j, siblings[c]
            left += counts[c] == last
        below, count = far, left
        height += 1
        length *= arity


@strict
def learn_weighted(
    rows: Integers,
    outcomes: Any,
    queue: Queue,
    limit: int,
    tree: TreeArgs,
    mix: Mix | None,
    rule: Weighting,
    norm: int,
    pairs: Integers,
    records: Records,
) -> Queue:
    """Learn the outcomes of a queue; return what is left of it: those of streams that have `limit` rounds or more."""
    dim, size = len(tree.first), min(_SIZE, len(rows) + -len(rows) % lanes.WIDTH)
    block = Block(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64))
    gaps = np.empty((dim + -dim % lanes.WIDTH, size))
    found = Gaps(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size), gaps, np.empty(size))
    room, rising = np.empty((size, dim)), new_rising(size, records.heights)
    while True:
        queue, count = _fill(rows, queue, limit, records.whole, block)
        if count == 0:
            return queue
        seen = not rule.block
        count = _learn_leaves(outcomes, count, block, found, room, rising, tree, mix, seen, norm, pairs, records)
        _learn_higher(count, found, rising, tree, mix, norm, pairs, records)
        weigh_rising(count, rising, rule, records)
