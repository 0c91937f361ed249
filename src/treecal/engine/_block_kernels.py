"""Many streams with weighted heights learn, a block of them at a time: see `Records`.

Streams do not depend on each other, so a block takes one outcome of each of many, and does with all of them what a
round does with one: gaps of the nodes that end, their norms, sums, weights. What cannot be taken yet, because its
stream is in the block already or needs more heights, waits; a stream's outcomes stay in their order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from treecal._compile import inlined, strict
from treecal._typing import Array, Integers
from treecal.engine import _lanes as lanes
from treecal.engine._compile import remainder
from treecal.engine._norm_kernels import norms
from treecal.engine._state import Mix, TreeArgs
from treecal.engine._tree_kernels import AHEAD, fetch
from treecal.engine._tree_records import COST, SCALE, Records
from treecal.engine._weigh_kernels import Rising, new_rising, put_in_order, weigh_one_by_one, weigh_rising
from treecal.forecasters._weighting import Weighting

_SIZE = 1024  # streams of a block
_TILE = 64  # gaps that are computed at once, and stay near the processor
WAITING = 128  # outcomes that may wait for another block


class Queue(NamedTuple):
    """Outcomes of the streams in rows from `low` to `high`: those from `at` on, and `held` earlier ones that wait."""

    low: int
    high: int
    waiting: Integers
    at: int = 0
    held: int = 0


class Block(NamedTuple):
    """The streams of a block."""

    places: Integers
    """Which outcomes are theirs."""
    rows: Integers
    """Where their records are."""
    nows: Integers
    """Their rounds before."""
    costs: Array
    """What their leaves cost."""


class Gaps(NamedTuple):
    """Gaps of nodes that end: the outcome sum of a node less its point times its rounds."""

    totals: Integers
    """Where the outcome sum of each starts, in the array that it is in."""
    siblings: Integers
    """And the sum of its finished siblings, to which the outcome sum is added."""
    counts: Array
    """The rounds of these siblings."""
    gaps: Array
    """A column for each of the few that are computed at once."""


# Which streams.


@inlined
def _take(i: int, row: int, count: int, limit: int, whole: Integers, block: Block) -> int:
    """Take outcome `i`, 1 or 0, if its stream is not in the block yet and has less than `limit` rounds."""
    start = row * whole.shape[1]
    now = lanes.get(whole, start)
    free = 0 <= now < limit
    lanes.put(whole, start, ~now if free else now)  # a mark, until the outcome is learned
    lanes.put(block.places, count, i)
    lanes.put(block.rows, count, row)
    lanes.put(block.nows, count, now)
    return 1 if free else 0


@strict
def _fill(
    given: Integers, outcomes: Any, queue: Queue, limit: int, tree: TreeArgs, records: Records, block: Block
) -> tuple[Queue, int]:
    """Fill a block from what waits, and then from what comes next; return the queue after it, and how many it has."""
    low, high, waiting, at, held = queue
    whole, far, arity, used = records.whole, records.far, tree.arity, records.top + len(tree.first)
    kept, count, size, each = 0, 0, len(block.places), outcomes.size // max(1, len(outcomes))
    for n in range(held):
        i, taken = waiting[n], 0
        if count < size:
            taken = _take(i, given[i], count, limit, whole, block)
        waiting[kept] = i
        count += taken
        kept += 1 - taken
    while at < len(given) and count < size and kept < len(waiting):
        row = lanes.get(given, at)
        if low <= row < high:
            soon = min(at + AHEAD, len(given) - 1)
            fetch(whole, lanes.get(given, soon) * whole.shape[1], whole.shape[1])
            fetch(outcomes, soon * each, each)
            taken = _take(at, row, count, limit, whole, block)
            rises = remainder(lanes.get(block.nows, count), arity) == arity - 1
            fetch(far, row * far.shape[1] if rises else 0, used)  # without branches
            lanes.put(waiting, kept, at)
            count += taken
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
    count: int,
    length: int,
    totals: Array,
    siblings: Array,
    tree: TreeArgs,
    mix: Mix | None,
    norm: int,
    pairs: Integers,
    found: Gaps,
    costs: Array,
) -> None:
    """Write the costs of nodes of `length` rounds, and add their outcome sums to those of their siblings."""
    starts, owns, counts = found.totals, found.siblings, found.counts
    for n in range(count, count + -count % lanes.WIDTH):  # four at a time: the last one again
        starts[n], owns[n], counts[n] = starts[count - 1], owns[count - 1], counts[count - 1]
    for begin in range(0, count, _TILE):
        end = min(begin + _TILE, count)
        _write_gaps(begin, end, length, totals, siblings, tree, mix, found)
        norms(found.gaps, end - begin, len(tree.first), norm, pairs, costs[begin:end])


@strict
def _write_gaps(
    begin: int, end: int, length: int, totals: Array, siblings: Array, tree: TreeArgs, mix: Mix | None, found: Gaps
) -> None:
    """Write the gaps of some of the nodes, and add their outcome sums to those of their siblings.

    A point is the mean of the node's finished siblings; for a first child the start point.
    """
    starts, owns, counts, gaps = found
    first, dim, wide = tree.first, len(tree.first), gaps.shape[1]
    rounds, nothing = lanes.lanes_of(float(length)), lanes.lanes_of(0.0)
    for n in range(begin, end, lanes.WIDTH):
        s, t, u, v = starts[n], starts[n + 1], starts[n + 2], starts[n + 3]
        w, x, y, z = owns[n], owns[n + 1], owns[n + 2], owns[n + 3]
        i, j = lanes.lanes_of(counts[n]), lanes.lanes_of(counts[n + 1])
        o, p = lanes.lanes_of(counts[n + 2]), lanes.lanes_of(counts[n + 3])
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
                if length > 1:  # these are sums, and carried up
                    lanes.store(totals, s + k, nothing)
                    lanes.store(totals, t + k, nothing)
                    lanes.store(totals, u + k, nothing)
                    lanes.store(totals, v + k, nothing)
            else:
                a, b = lanes.load_some(totals, s + k, some), lanes.load_some(totals, t + k, some)
                c, d = lanes.load_some(totals, u + k, some), lanes.load_some(totals, v + k, some)
                e, f = lanes.load_some(siblings, w + k, some), lanes.load_some(siblings, x + k, some)
                g, h = lanes.load_some(siblings, y + k, some), lanes.load_some(siblings, z + k, some)
                lanes.store_some(siblings, w + k, lanes.plus(e, a), some)
                lanes.store_some(siblings, x + k, lanes.plus(f, b), some)
                lanes.store_some(siblings, y + k, lanes.plus(g, c), some)
                lanes.store_some(siblings, z + k, lanes.plus(h, d), some)
                if length > 1:
                    lanes.store_some(totals, s + k, nothing, some)
                    lanes.store_some(totals, t + k, nothing, some)
                    lanes.store_some(totals, u + k, nothing, some)
                    lanes.store_some(totals, v + k, nothing, some)
            start = lanes.load_some(first, k, some)
            a, b = _gap(k, some, a, e, i, rounds, start, mix), _gap(k, some, b, f, j, rounds, start, mix)
            c, d = _gap(k, some, c, g, o, rounds, start, mix), _gap(k, some, d, h, p, rounds, start, mix)
            a, b, c, d = lanes.transposed(a, b, c, d)
            at = k * wide + n - begin
            lanes.store(gaps, at, a)
            lanes.store(gaps, at + wide, b)
            lanes.store(gaps, at + 2 * wide, c)
            lanes.store(gaps, at + 3 * wide, d)


@inlined
def _gap(k: int, some: int, total: Any, own: Any, divisor: Any, rounds: Any, start: Any, mix: Mix | None) -> Any:
    """Return some coordinates of a gap."""
    point = lanes.over(own, divisor)
    if mix is not None:
        point = lanes.plus(lanes.times(point, lanes.lanes_of(mix.share)), lanes.load_some(mix.pull, k, some))
    return lanes.minus(total, lanes.times(rounds, lanes.where_zero(divisor, start, point)))


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
    places, rows, nows, costs = block
    counts, siblings = found.counts, found.siblings
    for n in range(count):
        counts[n] = remainder(nows[n], arity)
        siblings[n] = rows[n] * near.shape[1] + head
    totals = outcome_rows(outcomes, count, places, room, found.totals)
    _absorb(count, 1, totals, near, tree, mix, norm, pairs, found, costs)
    higher, last = 0, arity - 1
    for n in range(count):
        start, cost = rows[n] * near.shape[1], costs[n]
        lanes.put(whole, start, nows[n] + 1)
        lanes.put(rising.rows, higher, rows[n])
        lanes.put(rising.nows, higher, nows[n] + 1)
        lanes.put(rising.ended, higher, cost)
        higher += counts[n] == last
        cost *= counts[n] != last  # costs of the others are added when heights are weighed
        lanes.put(near, start + COST, lanes.get(near, start + COST) + cost)
        if seen:
            lanes.put(near, start + SCALE, max(lanes.get(near, start + SCALE), cost))
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
    dim, arity, near, far = len(tree.first), tree.arity, records.near, records.far
    rows, nows, reach, ended = rising[:4]
    starts, siblings, counts = found.totals, found.siblings, found.counts
    for p in range(count):
        starts[p] = rows[p] * near.shape[1] + records.head
    below, at, height, length = near, records.top, 1, arity
    while reach[height] > 0:
        count = reach[height]
        for p in range(count):
            siblings[p] = rows[p] * far.shape[1] + at
            counts[p] = remainder(nows[p] - length, length * arity)
        _absorb(count, length, below, far, tree, mix, norm, pairs, found, ended[height])
        height += 1
        length *= arity
        for p in range(reach[height]):  # slices would take a second to compile
            starts[p] = siblings[p]
        below, at = far, at + dim


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
    block = Block(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size))
    gaps = np.empty((dim + -dim % lanes.WIDTH, min(size, _TILE)))
    found = Gaps(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size), gaps)
    room, rising = np.empty((size, dim)), new_rising(size, records.heights)
    while True:
        queue, count = _fill(rows, outcomes, queue, limit, tree, records, block)
        if count == 0:
            return queue
        seen = not rule.block
        count = _learn_leaves(outcomes, count, block, found, room, rising, tree, mix, seen, norm, pairs, records)
        put_in_order(count, rising, tree.arity)
        _learn_higher(count, found, rising, tree, mix, norm, pairs, records)
        if rule.block:
            weigh_one_by_one(count, rising, rule, records)
        else:
            weigh_rising(count, rising, rule, records)
