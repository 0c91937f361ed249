"""The loops of a guarded stream: Tracker, Codebook and the guard, and the measured error of a tree.

Every sum runs in the order of the classes that forecast one round at a time, so that decisions are the same.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array, Integers
from treecal.engine._compile import carries, digits, inlined, strict
from treecal.engine._kernels import _place, add_outcome
from treecal.engine._state import Mix, TreeArgs


class TrackerArrays(NamedTuple):
    """The tracker: configuration, then state. `numbers` holds its rounds and the last class."""

    rates: Array
    share: float
    scale: float
    centre: Array
    classes: bool
    weights: Array
    means: Array
    followed: Array
    counts: Array
    numbers: Integers


class BookArrays(NamedTuple):
    """The books, all of full capacity: configuration, then state. `numbers` holds rounds and the book followed."""

    aims: Array
    skill: float
    prior: float
    ahead: float
    better: float
    points: Array
    biases: Array
    sizes: Array
    used: Integers
    growth: Array
    squares: Array
    numbers: Integers


class SpokenArrays(NamedTuple):
    """What the eager part announced: of each distinct point, its bias, rounds, outcome sum and what rounding lost of it.

    `slots` has the point of each book and column; `numbers` how many there are.
    """

    points: Array
    biases: Array
    rounds: Array
    sums: Array
    lost: Array
    slots: Integers
    numbers: Integers


@inlined
def _size(bias: Array, squared: bool) -> float:
    """Return the ℓ1 or ℓ2 norm, added from left to right."""
    total = 0.0
    for j in range(len(bias)):
        total += bias[j] * bias[j] if squared else abs(bias[j])
    return math.sqrt(total) if squared else total


@strict
def _track(tracker: TrackerArrays, experts: Array, q: Array) -> None:
    """Write the forecast of each expert, and their mixture."""
    plain = len(tracker.means)
    for i in range(plain):
        experts[i] = tracker.means[i]
    last = tracker.numbers[1]
    for i in range(plain, len(experts)):
        for j in range(len(q)):
            experts[i, j] = tracker.centre[j] if last < 0 else tracker.followed[last, j] / tracker.counts[last]
    for j in range(len(q)):
        total = tracker.weights[0] * experts[0, j]
        for i in range(1, len(experts)):
            total += tracker.weights[i] * experts[i, j]
        q[j] = total


@strict
def _follow(tracker: TrackerArrays, experts: Array, outcome: Array) -> None:
    """Learn an outcome, as `Tracker` does."""
    weights, top, rounds, last = tracker.weights, 0, tracker.numbers[0], tracker.numbers[1]
    for j in range(1, len(outcome)):
        if outcome[j] > outcome[top]:
            top = j
    total = 0.0
    for i in range(len(experts)):
        if tracker.classes and outcome[top] == 1:
            success = experts[i, top]
        else:
            miss = 0.0
            for j in range(len(outcome)):
                miss += (outcome[j] - experts[i, j]) ** 2
            success = 1 - miss / tracker.scale
        weights[i] *= success
        total += weights[i]
    for i in range(len(experts)):
        weights[i] = (1 - tracker.share) * (weights[i] / total) + tracker.share / len(weights)
    least = 1 / (rounds + 2)
    for i in range(len(tracker.means)):
        step = max(tracker.rates[i], least)
        for j in range(len(outcome)):
            tracker.means[i, j] += step * (outcome[j] - tracker.means[i, j])
    if len(tracker.followed) and last >= 0:
        for j in range(len(outcome)):
            tracker.followed[last, j] += outcome[j]
        tracker.counts[last] += 1
    tracker.numbers[0], tracker.numbers[1] = rounds + 1, top


@strict
def _choose(book: BookArrays, classes: bool, q: Array, noise: Array, moved: Array, away: Array, columns: Integers) -> int:
    """Write the column of each book, `used` for a new point; return the book to follow."""
    rounds, total = book.numbers[0], 0.0
    for j in range(len(q)):
        spread = q[j] * (1 - q[j]) if classes else (book.prior + book.squares[j]) / (rounds + 1)
        noise[j] = math.sqrt(2 / math.pi * max(spread, 0.0))
        total += noise[j]
    for b in range(len(columns)):
        ahead = max(book.ahead, (rounds + 1) / book.aims[b])
        root, used = math.sqrt(ahead), book.used[b]
        moved[:used], away[:used] = 0.0, 0.0
        for j in range(len(q)):  # over the points inside, so that each is added up in order, four at once
            floor, entry = root * noise[j], q[j]
            points, biases = book.points[b, j], book.biases[b, j]
            for i in range(used):
                x = entry - points[i]
                moved[i] += max(abs(ahead * x + biases[i]), floor)
                away[i] += x * x
        least, column = math.inf, 0
        for i in range(used):
            cost = (moved[i] - book.sizes[b, i]) / ahead + book.skill * away[i]
            if cost < least:
                least, column = cost, i
        if least >= total / root and used < book.points.shape[2]:
            column = used
        columns[b] = column
    best, lead = 0, book.numbers[1]
    for b in range(1, len(columns)):
        if book.growth[b] < book.growth[best]:
            best = b
    return best if book.growth[best] * book.better < book.growth[lead] else lead


@strict
def _book_learn(
    book: BookArrays, classes: bool, q: Array, columns: Integers, lead: int, outcome: Array, spoken: SpokenArrays
) -> None:
    """Learn an outcome, as `Book` does; a new point gets the slot of an equal one, or the next."""
    rounds, slot = book.numbers[0] + 1, -1
    for b in range(len(columns)):
        i = columns[b]
        if i == book.used[b]:
            if slot < 0:
                slot = _slot(spoken, q)
            book.points[b, :, i] = q
            book.used[b] += 1
            spoken.slots[b, i] = slot
        size = 0.0
        for j in range(len(q)):
            book.biases[b, j, i] += outcome[j] - book.points[b, j, i]
            size += abs(book.biases[b, j, i])
        book.growth[b] = book.growth[b] + ((size - book.sizes[b, i]) - book.growth[b] / rounds)
        book.sizes[b, i] = size
    if not classes:
        for j in range(len(q)):
            book.squares[j] += (outcome[j] - q[j]) ** 2
    book.numbers[0], book.numbers[1] = rounds, lead


@strict
def _slot(spoken: SpokenArrays, q: Array) -> int:
    """Return the slot of a point, a new one if no point is equal."""
    for slot in range(spoken.numbers[0]):
        equal = True
        for j in range(len(q)):
            equal = equal and spoken.points[slot, j] == q[j]
        if equal:
            return slot
    slot = spoken.numbers[0]
    for j in range(len(q)):
        spoken.points[slot, j] = q[j] + 0.0
    spoken.numbers[0] += 1
    return slot


@strict
def guard_rounds(
    outcomes: Any,
    allowed: Array,
    diameter: float,
    squared: bool,
    tracker: TrackerArrays,
    book: BookArrays,
    spoken: SpokenArrays,
    announced: Integers,
) -> float:
    """Play the eager part round by round; note the slot of each point announced, −1 where safe forecasts.

    Return the error of the eager part's rounds.
    """
    dim, books = spoken.points.shape[1], len(book.used)
    experts = np.empty((len(tracker.weights), dim))
    q, noise, outcome = np.empty(dim), np.empty(dim), np.empty(dim)
    moved, away = np.empty(book.points.shape[2]), np.empty(book.points.shape[2])
    columns, error = np.empty(books, np.int64), 0.0
    for t in range(len(announced)):
        outcome[:] = 0.0
        add_outcome(outcome, outcomes, t)
        _track(tracker, experts, q)
        announced[t] = -1
        if error + diameter <= allowed[t]:
            lead = _choose(book, tracker.classes, q, noise, moved, away, columns)
            _book_learn(book, tracker.classes, q, columns, lead, outcome, spoken)
            slot = spoken.slots[lead, columns[lead]]
            bias = spoken.biases[slot]
            before = _size(bias, squared)
            for j in range(dim):
                bias[j] += outcome[j] - spoken.points[slot, j]
                total, y = spoken.sums[slot, j], outcome[j]
                spoken.sums[slot, j] = total + y
                seen = spoken.sums[slot, j] - total
                spoken.lost[slot, j] += (total - (spoken.sums[slot, j] - seen)) + (y - seen)
            error += _size(bias, squared) - before
            spoken.rounds[slot] += 1
            announced[t] = slot
        _follow(tracker, experts, outcome)
    return error


@strict
def tree_errors(
    outcomes: Any, tree: TreeArgs, mix: Mix | None, squared: bool, path: Array, sums: Array, errors: Array
) -> float:
    """Play TreeCal; write its total per-node error after each round, and return that of the nodes that ended."""
    closed, dim = 0.0, sums.shape[1]
    point, outcome = np.empty(dim), np.empty(dim)
    before = 0  # heights of the last forecast
    for t in range(len(errors)):
        outcome[:] = 0.0
        add_outcome(outcome, outcomes, t)
        heights = tree.depth if tree.depth > 0 else digits(t, tree.arity)
        if t > 0:
            ended, left = min(carries(t, tree.arity) + 1, before), 0.0
            for h in range(ended):
                left += _size(path[h], squared)
                path[h] = 0.0
            closed += left
        weight, now, length, total = 1 / heights, t, 1, 0.0
        for h in range(heights):
            _place(sums[h], now % tree.arity * length, tree, mix, point)
            for j in range(dim):
                path[h, j] += weight * (outcome[j] - point[j])
            total += _size(path[h], squared)
            now //= tree.arity
            length *= tree.arity
        before = heights
        errors[t] = closed + total
        for j in range(dim):
            sums[0, j] += outcome[j]
        if (t + 1) % tree.arity == 0:
            risen = carries(t + 1, tree.arity)
            if risen != tree.depth:
                for h in range(risen):
                    for j in range(dim):
                        sums[h + 1, j] += sums[h, j]
                        sums[h, j] = 0.0
    return closed
