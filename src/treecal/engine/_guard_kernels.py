"""The rounds of guarded streams, compiled: tracker, books and guard, one stream or many. Of safe, when it forecasts.

Every sum runs in the order of the classes that forecast one round at a time, so that decisions are the same.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from treecal._compile import inlined, strict
from treecal._typing import Array, Integers
from treecal.columns import add_outcome
from treecal.engine._guard_pages import ROOM, SLOT_ROOM, Pages, Pool, add_columns, add_slots, opened
from treecal.forecasters import CHANCE


class GuardRules(NamedTuple):
    """The guard: what a round of eager's earns, and every round; the credit; or the error per round, if not negative.

    `squares` are the weights of the squares in the norm, none for ℓ1; `bounds` are those of safe in powers of two of
    rounds, times the budget, for rounds that earn nothing.
    """

    diameter: float
    squares: Array
    rate: float
    share: float
    credit: float
    error: float
    bounds: Array


class TrackerRules(NamedTuple):
    """The tracker: rates of the averages, the share of the weight that is spread, and how misses are scaled."""

    rates: Array
    share: float
    scale: float
    centre: Array
    classes: bool


class BookRules(NamedTuple):
    """The books: how many points each aims at, what skill is worth, and how much a book holds."""

    aims: Array
    skill: float
    prior: float
    ahead: float
    better: float
    capacity: int
    classes: bool


class Rules(NamedTuple):
    """What all streams share."""

    guard: GuardRules
    tracker: TrackerRules
    book: BookRules


class Now(NamedTuple):
    """The state of streams, a row for each, all but the certified parts and the pages of the books.

    Rounds, those of the safe part, the last class, and the book followed; the error of the eager part, and the most by
    which what it earned ever exceeded that; then the tracker's arrays, and those of the books.
    """

    rounds: Integers
    safe_rounds: Integers
    last: Integers
    lead: Integers
    error: Array
    best: Array
    weights: Array
    means: Array
    followed: Array
    seen: Array
    growth: Array
    squares: Array


class Tracker(NamedTuple):
    """The tracker of one stream."""

    weights: Array
    means: Array
    followed: Array
    seen: Array


class Notes(NamedTuple):
    """What is noted of each round, where there is room: the point that eager announces, and its place.

    That is its place among those the stream has announced; −1 where safe forecasts.
    """

    points: Array
    slots: Integers


class Desk(NamedTuple):
    """Room to work in."""

    experts: Array
    q: Array
    noise: Array
    outcome: Array
    moved: Array
    away: Array
    columns: Integers


@strict
def _desk(rules: Rules, experts: int) -> Desk:
    dim, books = len(rules.tracker.centre), len(rules.book.aims)
    return Desk(
        np.empty((experts, dim)),
        np.empty(dim),
        np.empty(dim),
        np.empty(dim),
        np.empty(rules.book.capacity),
        np.empty(rules.book.capacity),
        np.empty(books, np.int64),
    )


@strict
def _track(rules: TrackerRules, tracker: Tracker, last: int, experts: Array, q: Array) -> None:
    """Write the forecast of each expert, and their mixture."""
    plain = len(tracker.means)
    for i in range(plain):
        for j in range(len(q)):
            experts[i, j] = tracker.means[i, j]
    for i in range(plain, len(experts)):
        for j in range(len(q)):
            experts[i, j] = rules.centre[j] if last < 0 else tracker.followed[last, j] / tracker.seen[last]
    for j in range(len(q)):
        total = tracker.weights[0] * experts[0, j]
        for i in range(1, len(experts)):
            total += tracker.weights[i] * experts[i, j]
        q[j] = total


@strict
def _follow(rules: TrackerRules, tracker: Tracker, rounds: int, last: int, experts: Array, outcome: Array) -> int:
    """Learn an outcome, as `Tracker` does; return its class."""
    weights, top = tracker.weights, 0
    for j in range(1, len(outcome)):
        if outcome[j] > outcome[top]:
            top = j
    total = 0.0
    for i in range(len(experts)):
        if rules.classes and outcome[top] == 1:
            success = experts[i, top]
        else:
            miss = 0.0
            for j in range(len(outcome)):
                miss += (outcome[j] - experts[i, j]) ** 2
            success = 1 - miss / rules.scale
        weights[i] *= success
        total += weights[i]
    for i in range(len(experts)):
        weights[i] = (1 - rules.share) * (weights[i] / total) + rules.share / len(weights)
    least = 1 / (rounds + 2)
    for i in range(len(tracker.means)):
        step = max(rules.rates[i], least)
        for j in range(len(outcome)):
            tracker.means[i, j] += step * (outcome[j] - tracker.means[i, j])
    if len(tracker.followed) and last >= 0:
        for j in range(len(outcome)):
            tracker.followed[last, j] += outcome[j]
        tracker.seen[last] += 1
    return top


@strict
def _choose(rules: BookRules, pages: Pages, growth: Array, squares: Array, rounds: int, lead: int, desk: Desk) -> int:
    """Write the column of each book, `used` for a new point; return the book to follow."""
    q, noise, moved, away, columns, total = desk.q, desk.noise, desk.moved, desk.away, desk.columns, 0.0
    for j in range(len(q)):
        spread = q[j] * (1 - q[j]) if rules.classes else (rules.prior + squares[j]) / (rounds + 1)
        noise[j] = math.sqrt(abs(spread))
        total += noise[j]
    for b in range(len(columns)):
        ahead = max(rules.ahead, (rounds + 1) / rules.aims[b])
        root, used = math.sqrt(ahead), pages.used[b]
        moved[:used], away[:used] = 0.0, 0.0
        for j in range(len(q)):  # over the points inside, so that each is added up in order, four at once
            floor, entry = CHANCE * root * noise[j], q[j]
            points, biases = pages.points[b, j], pages.biases[b, j]
            for i in range(used):
                x = entry - points[i]
                moved[i] += max(abs(ahead * x + biases[i]), floor)
                away[i] += x * x
        least, column = math.inf, 0
        for i in range(used):
            cost = moved[i] - pages.sizes[b, i] + ahead * rules.skill * away[i]
            if cost < least:
                least, column = cost, i
        if least >= CHANCE * total * root and used < rules.capacity:
            column = used
        columns[b] = column
    best = 0
    for b in range(1, len(columns)):
        if growth[b] < growth[best]:
            best = b
    return best if growth[best] * rules.better < growth[lead] else lead


@strict
def _book_learn(rules: BookRules, pages: Pages, growth: Array, squares: Array, rounds: int, desk: Desk) -> None:
    """Learn an outcome, as `Book` does."""
    q, outcome = desk.q, desk.outcome
    for b in range(len(desk.columns)):
        i = desk.columns[b]
        if i == pages.used[b]:
            for j in range(len(q)):
                pages.points[b, j, i], pages.biases[b, j, i] = q[j], 0.0
            pages.sizes[b, i], pages.slots[b, i] = 0.0, -1
            pages.used[b] += 1
        total = 0.0
        for j in range(len(q)):
            pages.biases[b, j, i] += outcome[j] - pages.points[b, j, i]
            total += abs(pages.biases[b, j, i])
        growth[b] = growth[b] + ((total - pages.sizes[b, i]) - growth[b] / rounds)
        pages.sizes[b, i] = total
    if not rules.classes:
        for j in range(len(q)):
            squares[j] += (outcome[j] - q[j]) ** 2


@strict
def _slot(pages: Pages, book: int, column: int) -> int:
    """Return the place of a point among those announced; one that equals none of them is the next."""
    slot = pages.slots[book, column]
    if slot >= 0:
        return int(slot)
    count, dim = int(pages.announced[0]), pages.points.shape[1]
    for slot in range(count):
        equal = True
        for j in range(dim):
            equal = equal and pages.told[slot, j] == pages.points[book, j, column]
        if equal:
            pages.slots[book, column] = slot
            return slot
    for j in range(dim):
        pages.told[count, j] = pages.points[book, j, column] + 0.0
        pages.owed[count, j] = 0.0
    pages.slots[book, column] = count
    pages.announced[0] = count + 1
    return count


@inlined
def size(bias: Array, squares: Array) -> float:
    """Return the ℓ1 norm, or a root of weighted squares, added from left to right."""
    total = 0.0
    for j in range(len(bias)):
        total += squares[j] * (bias[j] * bias[j]) if len(squares) else abs(bias[j])
    return math.sqrt(total) if len(squares) else total


@strict
def _opens(rules: GuardRules, rounds: int, safe: int, error: float, best: float) -> bool:
    """Return whether the eager part forecasts the coming round of a stream."""
    if rules.error >= 0:
        allowed = rules.error * (rounds + 1)
    else:
        credit = rules.credit
        if rules.rate > 0:
            credit = credit + rules.share * rounds
        elif rounds > 0:
            power = 0
            while rounds >> (power + 1):
                power += 1
            credit = credit + rules.bounds[power]
        allowed = credit + rules.rate * (rounds - safe + 1) - best
    return bool(error + rules.diameter <= allowed)


@inlined
def _fits(pages: Pages, columns: Integers, most: int) -> bool:
    """Return whether a stream's blocks have room for the points chosen."""
    fits = pages.announced[0] < pages.numbers[SLOT_ROOM] or pages.numbers[SLOT_ROOM] == most
    for b in range(len(columns)):
        fits = fits and columns[b] < pages.numbers[ROOM]
    return bool(fits)


@strict
def _room(pool: Pool, row: int, pages: Pages, columns: Integers, capacity: int) -> bool:
    """Return whether there is room for the points chosen, once the stream has taken what it needs from the pool."""
    for b in range(len(columns)):
        if columns[b] == pages.numbers[ROOM] and not add_columns(pool, row, capacity):
            return False
    return pages.announced[0] < pages.numbers[SLOT_ROOM] or add_slots(pool, row, len(columns) * capacity)


@strict
def guard_rounds(
    rows: Integers,
    outcomes: Any,
    begin: int,
    rules: Rules,
    now: Now,
    pool: Pool,
    notes: Notes,
    learning: bool,
) -> int:
    """Play one round after another, from row `begin` on, or only note what is announced, if not `learning`.

    Safe's rounds are noted only. Return the first row that there was no room for in the pool; nothing of it is learned.
    """
    desk, dim, guard, s = _desk(rules, now.weights.shape[1]), pool.told.shape[1], rules.guard, -1
    outcome, capacity = desk.outcome, rules.book.capacity
    point = np.empty(dim)
    # Taken out of their tuples once: in the loop each access would count references to the array.
    played = now.rounds
    played_safe = now.safe_rounds
    last = now.last
    leads = now.lead
    eager_error = now.error
    best = now.best
    for i in range(begin, len(rows)):
        if rows[i] != s:
            s = rows[i]
            growth, squares = now.growth[s], now.squares[s]
            tracker = Tracker(now.weights[s], now.means[s], now.followed[s], now.seen[s])
            pages = opened(pool, s)
        rounds = played[s]
        spent = played_safe[s]
        eager = _opens(guard, rounds, spent, eager_error[s], best[s])
        slot = -1
        _track(rules.tracker, tracker, last[s], desk.experts, desk.q)
        if eager:
            lead, slot = _choose(rules.book, pages, growth, squares, rounds - spent, leads[s], desk), 0
            column = desk.columns[lead]
            new = column == pages.used[lead]
            for j in range(dim):
                point[j] = desk.q[j] if new else pages.points[lead, j, column]
            if len(notes.points):
                for j in range(dim):
                    notes.points[i, j] = point[j]
        if learning:
            outcome[:] = 0.0
            add_outcome(outcome, outcomes, i)
            if eager:
                if not _fits(pages, desk.columns, len(desk.columns) * capacity):
                    if not _room(pool, s, pages, desk.columns, capacity):
                        return i
                    pages = opened(pool, s)
                _book_learn(rules.book, pages, growth, squares, rounds - spent + 1, desk)
                leads[s], slot = lead, _slot(pages, lead, column)
                bias = pages.owed[slot]
                less = size(bias, guard.squares)
                for j in range(dim):
                    bias[j] += outcome[j] - point[j]
                eager_error[s] += size(bias, guard.squares) - less
                earned = guard.share * (rounds + 1) + guard.rate * (rounds - spent + 1)
                best[s] = max(best[s], earned - eager_error[s])
            else:
                played_safe[s] = spent + 1
            last[s] = _follow(rules.tracker, tracker, rounds, last[s], desk.experts, outcome)
            played[s] = rounds + 1
        if len(notes.slots):
            notes.slots[i] = slot
    return len(rows)
