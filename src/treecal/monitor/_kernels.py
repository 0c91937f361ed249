"""The loop over outcomes: a round of classes, or of the points of other sets.

Capitals are numbers, not logarithms, so that most bets take a multiplication and a division. They never fall below the
weight of the next start, and what exceeds `MOST` stands for infinity.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from treecal._compile import inlined, strict
from treecal._elementary import exp, log
from treecal._typing import Array, Integers
from treecal.monitor._bets import BINS, CAPITAL, COVERAGES, EXCESS, FARTHEST, LENGTH, MOST, RUN, SINCE, Bets, Evidence

INTERVALS = len(COVERAGES)
WIDE = COVERAGES.index(0.9)


@inlined
def _advance(cells: Array, i: int, factor: float, start: float, gap: float, number: int, staked: float) -> None:
    """Multiply one capital, of which a share is staked, and follow its run."""
    if staked < 1.0:  # and else not a bit differs
        factor = 1.0 + staked * (factor - 1.0)
    run = cells[i, RUN] * factor
    cells[i, CAPITAL] = min(cells[i, CAPITAL] * factor, MOST) + start
    if run > 1.0:
        cells[i, RUN] = min(run, MOST)
        cells[i, LENGTH] += staked
        cells[i, EXCESS] += staked * gap
    else:
        cells[i, RUN] = 1.0
        cells[i, SINCE] = number + 1.0
        cells[i, LENGTH] = 0.0
        cells[i, EXCESS] = 0.0


@inlined
def _start(rounds: int, restarts: bool) -> float:
    """Return the weight of the start in the round after the next."""
    return 1.0 if restarts else 1.0 / ((rounds + 2.0) * (rounds + 3.0))


@strict
def value(bets: Bets, e: Evidence, r: int) -> float:
    """Return a stream's e-value; or, where every start counts as much as the first, Shiryaev and Roberts' statistic."""
    base = 1.0 if bets.restarts else 0.0  # of all starts, the one to come has had no round
    total = 0.0
    for i in range(len(bets.shares)):
        total += bets.shares[i] * (e.cells[r, i, CAPITAL] - base)
    return total if bets.restarts else total + 1.0 / (e.rounds[r] + 2)


class Room(NamedTuple):
    """Where a round is worked out: the forecast, made to add up to 1, and the sums of its powers."""

    p: Array
    norms: Array


@strict
def _classes_round(bets: Bets, e: Evidence, r: int, b: Array, y: Array, number: int, room: Room, staked: float) -> None:
    cells = e.cells[r]
    own = e.learned[r]
    p = room.p
    norms = room.norms
    start = _start(e.rounds[r], bets.restarts)
    dim = len(b)
    total = 0.0
    top = 0
    refuted = -1
    for k in range(dim):
        total += b[k]
        if b[k] > b[top]:
            top = k
        if y[k] > 0.0 and b[k] <= 0.0:
            refuted = k
    for k in range(dim):
        p[k] = b[k] / total
    if refuted >= 0:
        _refute(bets, cells, p, y, refuted, start)
        return
    # Powers are whole twelfths, so that all of them take one logarithm and one root.
    powers = len(bets.twelfths)
    norms[:powers] = 0.0
    for k in range(dim):
        if p[k] > 0.0:
            root = exp(log(p[k]) / 12.0)
            product = 1.0
            last = 0
            for j in range(powers):
                while last < bets.twelfths[j]:
                    product *= root
                    last += 1
                norms[j] += product
    i = 0
    gap = y[top] - p[top]
    for j in range(powers):
        paid = 0.0
        power = (bets.twelfths[j] - 12) / 12.0
        for k in range(dim):
            if y[k] > 0.0:
                paid += y[k] * exp(power * log(p[k]))
        _advance(cells, i, paid / norms[j], start, gap, number, staked)
        i += 1
    for k in bets.watched:
        for odds in bets.odds:
            _advance(cells, i, (1.0 + y[k] * odds) / (1.0 + p[k] * odds), start, y[k] - p[k], number, staked)
            i += 1
    size = dim + dim + BINS
    for j in range(len(bets.rates)):
        at = j * size
        norm = 0.0
        paid = 0.0
        for k in range(dim):
            norm += p[k] * own[at + k]
            paid += y[k] * own[at + k]
        _advance(cells, i, 0.5 + 0.5 * paid / norm, start, gap, number, staked)
        for k in range(dim):
            step = 1.0 + staked * bets.rates[j] * (y[k] - p[k] * own[at + k] / norm)
            own[at + k] = min(max(own[at + k] * step, 1.0 / FARTHEST), FARTHEST)
        i += 1
    home = 0  # one of the bins, whatever the probability is: another thread may have written NaN since the check
    for edge in range(1, BINS):
        home += p[top] * BINS >= edge
    for j in range(len(bets.rates)):
        bin_ = j * size + dim + home
        class_ = j * size + dim + BINS + top
        odds = own[bin_] * own[class_] - 1.0
        _advance(cells, i, 0.5 + 0.5 * (1.0 + y[top] * odds) / (1.0 + p[top] * odds), start, gap, number, staked)
        step = 1.0 + staked * bets.rates[j] * (y[top] - p[top] * (1.0 + odds) / (1.0 + p[top] * odds))
        own[bin_] = min(max(own[bin_] * step, 1.0 / FARTHEST), FARTHEST)
        own[class_] = min(max(own[class_] * step, 1.0 / FARTHEST), FARTHEST)
        i += 1


@strict
def _refute(bets: Bets, cells: Array, p: Array, y: Array, refuted: int, start: float) -> None:
    """Learn an outcome that the forecast excludes: the bet on its class has won all there is, the others stay."""
    for i in range(len(cells)):
        cells[i, CAPITAL] += start
    for w in range(len(bets.watched)):
        k = bets.watched[w]
        if k == refuted or len(bets.watched) == 1:
            i = len(bets.twelfths) + w * len(bets.odds) + (len(bets.odds) - 1 if k == refuted else 0)
            cells[i, CAPITAL] = cells[i, RUN] = MOST
            cells[i, LENGTH] += 1.0
            cells[i, EXCESS] += y[k] - p[k]


@strict
def _points_round(bets: Bets, e: Evidence, r: int, b: Array, y: Array, number: int, staked: float) -> None:
    cells = e.cells[r]
    own = e.learned[r]
    start = _start(e.rounds[r], bets.restarts)
    dim = len(b)
    slope = 0.0
    off = 0.0
    i = 0
    rounding = 1.0 - 1e-9
    for k in range(dim):
        slope += (b[k] - bets.centre[k]) * (y[k] - b[k])
        off += (y[k] - b[k]) ** 2
    for k in range(dim):
        gap = y[k] - b[k]
        share = max(min(gap / bets.ranges[k], 1.0), -1.0) if bets.ranges[k] > 0.0 else 0.0
        for stake in bets.stakes:
            _advance(cells, i, 1.0 + stake * share, start, gap, number, staked)
            i += 1
    most = bets.spread * bets.diameter
    share = max(min(slope / most, 1.0), -1.0) if most > 0.0 else 0.0
    for stake in bets.stakes:
        _advance(cells, i, 1.0 + stake * share, start, share, number, staked)
        i += 1
    for j in range(len(bets.rates)):
        at = j * (dim + 1)
        rate = staked * bets.rates[j]
        seen = own[at + dim]
        length = 0.0
        paid = 0.0
        for k in range(dim):
            length += own[at + k] ** 2
            paid += own[at + k] * (y[k] - b[k])
        length = math.sqrt(length)
        if seen > 0.0 and length > 0.0:
            size = min(1.0 / seen, 0.5 * rounding / (length * bets.diameter))
            paid = max(size * paid, -0.5)
        else:
            paid = 0.0
        _advance(cells, i, 1.0 + paid, start, paid, number, staked)
        for k in range(dim):
            own[at + k] += rate * (y[k] - b[k] - own[at + k])
        own[at + dim] += rate * (off - seen)
        i += 1


@inlined
def _part_below(low: float, high: float, level: float) -> float:
    """Return which part of an interval of levels lies below one of them."""
    return 1.0 if high <= level else 0.0 if low >= level else (level - low) / (high - low)


@inlined
def _part_inside(low: float, high: float, share: float) -> float:
    """Return which part of an interval of levels lies inside the central one of so much probability."""
    if high <= low:
        return 1.0 if abs(low - 0.5) <= share / 2.0 else 0.0
    inside = min(high, 0.5 + share / 2.0) - max(low, 0.5 - share / 2.0)
    return max(inside, 0.0) / (high - low)


@strict
def _numbers_round(
    bets: Bets, e: Evidence, r: int, low: float, high: float, tied: bool, number: int, staked: float
) -> None:
    """Learn the interval of levels in which an outcome lay: its mean factor, or where it is tied its least.

    A factor has the mean 1 over levels that are uniform, and so over the intervals that they fall into.
    """
    cells = e.cells[r]
    start = _start(e.rounds[r], bets.restarts)
    i = 0
    if high <= low:  # the outcome had the probability 0
        for i in range(len(cells)):
            cells[i, CAPITAL] += start
        at = len(bets.stakes) + len(bets.spreads) - 1
        cells[at, CAPITAL] = cells[at, RUN] = MOST
        cells[at, LENGTH] += 1.0
        cells[at, EXCESS] -= 1.0
        return
    a = 2.0 * low - 1.0
    b = 2.0 * high - 1.0
    above = 0.5 - _part_below(low, high, 0.5)
    for stake in bets.stakes:
        factor = 1.0 + stake * (a + b) / 2.0
        if tied:
            factor = 1.0 + min(stake * a, stake * b)
        _advance(cells, i, factor, start, above, number, staked)
        i += 1
    held = _part_inside(low, high, bets.shares_held[WIDE]) - bets.shares_held[WIDE]
    for stake in bets.spreads:
        square = (a * a + a * b + b * b) / 3.0
        if tied:
            nearest = 0.0 if a * b <= 0.0 else min(a * a, b * b)
            square = nearest if stake > 0.0 else max(a * a, b * b)
        _advance(cells, i, 1.0 + stake * (3.0 * square - 1.0) / 2.0, start, held, number, staked)
        i += 1
    for k in range(len(bets.shares_held)):
        share = bets.shares_held[k]
        inside = _part_inside(low, high, share) if k < INTERVALS else _part_below(low, high, share)
        for odds in bets.odds:
            factor = (1.0 + inside * odds) / (1.0 + share * odds)
            if tied and 0.0 < inside < 1.0:
                factor = (1.0 + min(odds, 0.0)) / (1.0 + share * odds)
            _advance(cells, i, factor, start, inside - share, number, staked)
            i += 1


@strict
def _learn(bets: Bets, e: Evidence, r: int, b: Array, y: Array, number: int, room: Room, staked: float) -> float:
    """Learn a round of one stream; return its value."""
    if bets.classes:
        _classes_round(bets, e, r, b, y, number, room, staked)
    elif len(bets.spreads) > 0:
        _numbers_round(bets, e, r, b[0], b[1], y[0] > 0.0, number, staked)
    else:
        _points_round(bets, e, r, b, y, number, staked)
    e.rounds[r] += 1
    return value(bets, e, r)


@strict
def watch(
    bets: Bets, e: Evidence, P: Array, Y: Array, rows: Integers, stakes: Array, scales: Array, marks: Array
) -> int:
    """Learn rounds, in each the whole stream's row 0 and the row of its group, until there is an alarm.

    `stakes` is the share of its capital that each bet stakes in a round. `marks` holds the rounds so far, the largest
    value so far, and what it must reach for an alarm; it is changed. Returns how many rounds were learned.
    """
    room = Room(np.empty(P.shape[1]), np.empty(len(bets.shares)))
    for t in range(len(P)):
        number = int(marks[0]) + 1
        marks[0] = number
        alarm = False
        for part in range(2 if rows[t] > 0 else 1):
            r = rows[t] if part == 1 else 0
            now = scales[r] * _learn(bets, e, r, P[t], Y[t], number, room, stakes[t])
            marks[1] = max(marks[1], now)
            alarm = alarm or now >= marks[2]
        if alarm:
            return t + 1
    return len(P)


@strict
def watch_streams(bets: Bets, e: Evidence, P: Array, Y: Array, rows: Integers, peaks: Array, threshold: float) -> int:
    """Learn rounds, each in its stream's row, until one has its first alarm; return how many were learned."""
    room = Room(np.empty(P.shape[1]), np.empty(len(bets.shares)))
    for t in range(len(P)):
        r = rows[t]
        before = peaks[r]
        now = _learn(bets, e, r, P[t], Y[t], e.rounds[r] + 1, room, 1.0)
        peaks[r] = max(before, now)
        if before < threshold <= now:
            return t + 1
    return len(P)
