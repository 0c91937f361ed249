"""The rounds of guarded streams, compiled: tracker, books and guard, one stream or many. Of safe, when it forecasts.

Every sum runs in the order of the classes that forecast one round at a time, so that decisions are the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from treecal._compile import copy_into, inlined, strict
from treecal._typing import Array, Integers
from treecal.forecasters._codebook import CHANCE, SHARE_AHEAD, URGENT
from treecal.forecasters._guarded.pages import (
    CONTEXT_ROOM,
    ROOM,
    SLOT_ROOM,
    Pages,
    Pool,
    add_columns,
    add_contexts,
    add_slots,
    opened,
)
from treecal.forecasters._tracker import BACKING, DEPTH, FOG, RECENT


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
    """The tracker: rates of the averages, the share of the weight that is spread, and how misses are scaled.

    Then the most contexts; the periods, and where those of each season begin; and the weights of what is remembered.
    """

    rates: Array
    share: float
    scale: float
    centre: Array
    classes: bool
    contexts: int
    lags: Integers
    begins: Integers
    fades: Array


class BookRules(NamedTuple):
    """The book: a variance to begin with, and how many points it holds."""

    prior: float
    capacity: int
    classes: bool


class Rules(NamedTuple):
    """What all streams share."""

    guard: GuardRules
    tracker: TrackerRules
    book: BookRules


class Now(NamedTuple):
    """The state of streams, a row for each, all but the certified parts and the pages.

    Rounds, and those of the safe part; the error of the eager part, and the most by which what it earned ever exceeded
    that; then the tracker's arrays, and that of the book.
    """

    rounds: Integers
    safe_rounds: Integers
    error: Array
    best: Array
    weights: Array
    means: Array
    past: Integers
    holds: Array
    squares: Array


class Tracker(NamedTuple):
    """The tracker of one stream."""

    weights: Array
    means: Array
    past: Integers
    holds: Array


class Told(NamedTuple):
    """The outcomes of some rounds: classes, or rows of numbers where there are none. One type, so compiled once."""

    classes: Integers
    rows: Array


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
    ahead: Array
    root: Array
    path: Integers


@strict
def _desk(rules: Rules, experts: int) -> Desk:
    dim = len(rules.tracker.centre)
    return Desk(
        np.empty((experts, dim)),
        np.empty(dim),
        np.empty(dim),
        np.empty(dim),
        np.empty(rules.book.capacity),
        np.empty(rules.book.capacity),
        np.empty(rules.book.capacity),
        np.empty(DEPTH + 1, np.int64),
    )


@inlined
def _ago(past: Integers, place: int, lag: int) -> int:
    """Return the class of so many rounds ago, 1 for the last one, given the place of the coming one."""
    return int(past[place - lag if lag <= place else place - lag + len(past)])


@inlined
def _walk(tracker: Tracker, pages: Pages, rounds: int, path: Integers) -> int:
    """Write the contexts of the coming round, the shortest first; return how many they are."""
    if pages.contexts[0] == 0:
        return 0
    path[0] = 0
    length = 1
    place = rounds % len(tracker.past)
    while length <= min(DEPTH, rounds):
        longer = pages.longer[path[length - 1], _ago(tracker.past, place, length)]
        if longer == 0:
            break
        path[length] = longer
        length += 1
    return length


@inlined
def _season(rules: TrackerRules, tracker: Tracker, rounds: int, season: int, law: Array) -> None:
    """Write what the outcomes of earlier periods say, for the period that held most often, of those of a season."""
    lag = 0
    most = -math.inf
    for i in range(rules.begins[season], rules.begins[season + 1]):
        if 2 * rules.lags[i] > rounds:
            break
        score = tracker.holds[i] - 0.5 / math.sqrt(rounds - rules.lags[i] + 1)
        if score > most:
            most = score
            lag = rules.lags[i]
    dim = len(law)
    if lag == 0:
        copy_into(law, rules.centre)
        return
    law[:] = 0.0
    total = FOG
    place = rounds % len(tracker.past)
    for cycle in range(1, len(rules.fades) + 1):
        if cycle * lag <= min(rounds, len(tracker.past)):
            law[_ago(tracker.past, place, cycle * lag)] += rules.fades[cycle - 1]
            total += rules.fades[cycle - 1]
    for j in range(dim):
        law[j] = (law[j] + FOG / dim) / total


@inlined
def _track(rules: TrackerRules, tracker: Tracker, pages: Pages, rounds: int, desk: Desk) -> int:
    """Write the forecast of each expert, and their mixture; return how many contexts there are."""
    experts = desk.experts
    q = desk.q
    length = 0
    at = len(tracker.means)
    for i in range(at):
        for j in range(len(q)):
            experts[i, j] = tracker.means[i, j]
    if len(experts) > at:
        length = _walk(tracker, pages, rounds, desk.path)
        law = desk.noise
        copy_into(law, rules.centre)
        for order in range(DEPTH + 1):
            if order < length:
                context = desk.path[order]
                seen = pages.seen[context] + BACKING
                for j in range(len(q)):
                    law[j] = pages.sums[context, j] / seen + BACKING / seen * law[j]
            if order:
                for j in range(len(q)):
                    experts[at, j] = law[j]
                at += 1
        for season in range(len(rules.begins) - 1):
            _season(rules, tracker, rounds, season, experts[at])
            at += 1
    for j in range(len(q)):
        total = tracker.weights[0] * experts[0, j]
        for i in range(1, len(experts)):
            total += tracker.weights[i] * experts[i, j]
        q[j] = total
    return length


@inlined
def _follow(rules: TrackerRules, tracker: Tracker, pages: Pages, rounds: int, length: int, desk: Desk) -> None:
    """Learn an outcome, as `Tracker` does; there is room for a context more."""
    weights = tracker.weights
    experts = desk.experts
    outcome = desk.outcome
    top = 0
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
    if len(experts) > len(tracker.means):
        place = rounds % len(tracker.past)
        for i in range(len(rules.lags)):
            lag = rules.lags[i]
            if lag <= rounds:
                held = 1.0 if _ago(tracker.past, place, lag) == top else 0.0
                since = rounds - lag + 2
                step = RECENT if since * RECENT > 1 else 1 / since  # a division takes as long as the rest
                tracker.holds[i] += step * (held - tracker.holds[i])
        _add_context(rules, tracker, pages, rounds, length, desk)
        tracker.past[rounds % len(tracker.past)] = top


@inlined
def _add_context(rules: TrackerRules, tracker: Tracker, pages: Pages, rounds: int, length: int, desk: Desk) -> None:
    """Learn what followed the contexts of the round; one that came again has a longer one."""
    path = desk.path
    outcome = desk.outcome
    for i in range(length):
        for j in range(len(outcome)):
            pages.sums[path[i], j] += outcome[j]
        pages.seen[path[i]] += 1
    new = pages.contexts[0]
    again = length == 0 or (length <= min(DEPTH, rounds) and pages.seen[path[length - 1]] > 1)
    if not again or new == rules.contexts:
        return
    if length:
        pages.longer[path[length - 1], _ago(tracker.past, rounds % len(tracker.past), length)] = new
    for j in range(len(outcome)):
        pages.sums[new, j] = outcome[j]
        pages.longer[new, j] = 0
    pages.seen[new] = 1.0
    pages.contexts[0] = new + 1


@inlined
def _choose(rules: BookRules, pages: Pages, squares: Array, rounds: int, desk: Desk) -> int:
    """Return the column of the point to announce; `used` for a new one."""
    q = desk.q
    noise = desk.noise
    moved = desk.moved
    ahead = desk.ahead
    root = desk.root
    used = pages.used[0]
    least = math.sqrt(rounds + 1.0)
    for i in range(used):
        ahead[i] = max(least, SHARE_AHEAD * pages.visits[i])
        root[i] = math.sqrt(ahead[i])
        moved[i] = 0.0
    alone = 0.0
    for j in range(len(q)):
        spread = q[j] * (1 - q[j]) if rules.classes else (rules.prior + squares[j]) / (rounds + 1)
        noise[j] = CHANCE * math.sqrt(abs(spread))
        alone += noise[j]
    for j in range(len(q)):  # over the points inside, so that each is added up in order, four at once
        chance = noise[j]
        entry = q[j]
        points = pages.points[j]
        biases = pages.biases[j]
        for i in range(used):
            moved[i] += max(abs((entry - points[i]) * ahead[i] + biases[i]), chance * root[i])
    least = math.inf
    column = 0
    for i in range(used):
        cost = (moved[i] - pages.sizes[i]) / root[i]
        if cost < least:
            least = cost
            column = i
    if 2 * used >= rules.capacity:
        alone *= URGENT
    return int(used if used == 0 or (least >= alone and used < rules.capacity) else column)


@inlined
def _book_learn(rules: BookRules, pages: Pages, squares: Array, column: int, desk: Desk) -> None:
    """Learn an outcome, as `Book` does."""
    q = desk.q
    outcome = desk.outcome
    if column == pages.used[0]:
        for j in range(len(q)):
            pages.points[j, column] = q[j]
            pages.biases[j, column] = 0.0
        pages.visits[column] = 0.0
        pages.slots[column] = -1
        pages.used[0] += 1
    total = 0.0
    for j in range(len(q)):
        pages.biases[j, column] += outcome[j] - pages.points[j, column]
        total += abs(pages.biases[j, column])
    pages.sizes[column] = total
    pages.visits[column] += 1
    if not rules.classes:
        for j in range(len(q)):
            squares[j] += (outcome[j] - q[j]) ** 2


@inlined
def _slot(pages: Pages, column: int) -> int:
    """Return the place of a point among those announced; one that equals none of them is the next."""
    slot = pages.slots[column]
    if slot >= 0:
        return int(slot)
    count, dim = int(pages.announced[0]), pages.points.shape[0]
    for slot in range(count):
        equal = True
        for j in range(dim):
            equal = equal and pages.told[slot, j] == pages.points[j, column]
        if equal:
            pages.slots[column] = slot
            return slot
    for j in range(dim):
        pages.told[count, j] = pages.points[j, column] + 0.0
        pages.owed[count, j] = 0.0
    pages.slots[column] = count
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
def _fits(pages: Pages, column: int, rules: Rules) -> bool:
    """Return whether a stream's blocks have room for the point chosen, and for another context."""
    numbers = pages.numbers
    fits = column < numbers[ROOM]
    fits = fits and (pages.announced[0] < numbers[SLOT_ROOM] or numbers[SLOT_ROOM] == rules.book.capacity)
    return bool(fits and (pages.contexts[0] < numbers[CONTEXT_ROOM] or numbers[CONTEXT_ROOM] == rules.tracker.contexts))


@strict
def _room(pool: Pool, row: int, pages: Pages, column: int, rules: Rules) -> bool:
    """Return whether there is room for all of it, once the stream has taken what it needs from the pool."""
    numbers = pages.numbers
    if column == numbers[ROOM] and not add_columns(pool, row, rules.book.capacity):
        return False
    slots = rules.book.capacity
    if pages.announced[0] == numbers[SLOT_ROOM] < slots and not add_slots(pool, row, slots):
        return False
    contexts = rules.tracker.contexts
    return not (pages.contexts[0] == numbers[CONTEXT_ROOM] < contexts) or add_contexts(pool, row, contexts)


@strict
def guard_rounds(
    rows: Integers,
    told: Told,
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
    desk = _desk(rules, now.weights.shape[1])
    dim = pool.told.shape[1]
    guard = rules.guard
    outcome = desk.outcome
    point = np.empty(dim)
    s = -1
    # Taken out of their tuples once: in the loop each access would count references to the array.
    played = now.rounds
    played_safe = now.safe_rounds
    eager_error = now.error
    best = now.best
    for i in range(begin, len(rows)):
        if rows[i] != s:
            s = rows[i]
            squares = now.squares[s]
            tracker = Tracker(now.weights[s], now.means[s], now.past[s], now.holds[s])
            pages = opened(pool, s)
        rounds = played[s]
        spent = played_safe[s]
        eager = _opens(guard, rounds, spent, eager_error[s], best[s])
        slot = -1
        column = -1
        length = _track(rules.tracker, tracker, pages, rounds, desk)
        if eager:
            slot = 0
            column = _choose(rules.book, pages, squares, rounds - spent, desk)
            new = column == pages.used[0]
            for j in range(dim):
                point[j] = desk.q[j] if new else pages.points[j, column]
            if len(notes.points):
                for j in range(dim):
                    notes.points[i, j] = point[j]
        if learning:
            if not _fits(pages, column, rules):
                if not _room(pool, s, pages, column, rules):
                    return i
                pages = opened(pool, s)
            if len(told.classes):
                outcome[:] = 0.0
                outcome[told.classes[i]] = 1.0
            else:
                for j in range(dim):
                    outcome[j] = told.rows[i, j]
            if eager:
                _book_learn(rules.book, pages, squares, column, desk)
                slot = _slot(pages, column)
                bias = pages.owed[slot]
                less = size(bias, guard.squares)
                for j in range(dim):
                    bias[j] += outcome[j] - point[j]
                eager_error[s] += size(bias, guard.squares) - less
                earned = guard.share * (rounds + 1) + guard.rate * (rounds - spent + 1)
                best[s] = max(best[s], earned - eager_error[s])
            else:
                played_safe[s] = spent + 1
            _follow(rules.tracker, tracker, pages, rounds, length, desk)
            played[s] = rounds + 1
        if len(notes.slots):
            notes.slots[i] = slot
    return len(rows)
