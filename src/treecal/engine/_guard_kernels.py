"""The loops of a guarded stream: Tracker, Codebook and the guard, and the measured error of a tree.

Every sum runs in the order of the classes that forecast one round at a time, so that decisions are the same.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from treecal._compile import inlined, strict
from treecal._typing import Array, Integers
from treecal.engine._compile import carries, digits
from treecal.engine._kernels import add_outcome, place
from treecal.engine._state import TreeArgs
from treecal.forecasters._codebook import CHANCE


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


class TreePart(NamedTuple):
    """TreeCal as a part: its tree, the carried sums, and the bias and point of each node of the path.

    `numbers` holds its rounds and the heights of its last forecast; `errors` the error of the nodes that ended, and of
    the path's.
    """

    tree: TreeArgs
    sums: Array
    path: Array
    places: Array
    numbers: Integers
    errors: Array


class GridPart(NamedTuple):
    """BinaryGrid as a part: its own biases, and those of its points.

    `kept[parts]` is a ledger: for each point weight and outcome sum, and what rounding lost, by the number of points in
    forecasts of equal weights; 0 for others.
    """

    bias: Array
    biases: Array
    kept: Array
    numbers: Integers
    errors: Array


class GuardArgs(NamedTuple):
    """The guard: whether the budget is measured; if not, the error per round, or safe's bounds by powers of two."""

    diameter: float
    squared: bool
    measured: bool
    budget: float
    reserve: float
    rate: float
    bounds: Array


class SpokenArrays(NamedTuple):
    """What the eager part announced: for each distinct point its bias, rounds, outcome sum, and what rounding lost.

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
def _choose(
    book: BookArrays, classes: bool, q: Array, noise: Array, moved: Array, away: Array, columns: Integers
) -> int:
    """Write the column of each book, `used` for a new point; return the book to follow."""
    rounds, total = book.numbers[0], 0.0
    for j in range(len(q)):
        spread = q[j] * (1 - q[j]) if classes else (book.prior + book.squares[j]) / (rounds + 1)
        noise[j] = math.sqrt(abs(spread))
        total += noise[j]
    for b in range(len(columns)):
        ahead = max(book.ahead, (rounds + 1) / book.aims[b])
        root, used = math.sqrt(ahead), book.used[b]
        moved[:used], away[:used] = 0.0, 0.0
        for j in range(len(q)):  # over the points inside, so that each is added up in order, four at once
            floor, entry = CHANCE * root * noise[j], q[j]
            points, biases = book.points[b, j], book.biases[b, j]
            for i in range(used):
                x = entry - points[i]
                moved[i] += max(abs(ahead * x + biases[i]), floor)
                away[i] += x * x
        least, column = math.inf, 0
        for i in range(used):
            cost = moved[i] - book.sizes[b, i] + ahead * book.skill * away[i]
            if cost < least:
                least, column = cost, i
        if least >= CHANCE * total * root and used < book.points.shape[2]:
            column = used
        columns[b] = column
    best, lead = 0, int(book.numbers[1])
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
    count = int(spoken.numbers[0])
    for slot in range(count):
        equal = True
        for j in range(len(q)):
            equal = equal and spoken.points[slot, j] == q[j]
        if equal:
            return slot
    for j in range(len(q)):
        spoken.points[count, j] = q[j] + 0.0
    spoken.numbers[0] += 1
    return count


@strict
def _tree_round(part: TreePart, outcome: Array, squared: bool) -> float:
    """Play a round of TreeCal; return its total per-node error."""
    tree, path, sums, t = part.tree, part.path, part.sums, part.numbers[0]
    heights = tree.depth if tree.depth > 0 else digits(t, tree.arity)
    if t > 0:
        left = 0.0
        for h in range(min(carries(t, tree.arity) + 1, part.numbers[1])):
            left += _size(path[h], squared)
            path[h] = 0.0
        part.errors[0] += left
    weight, now, length, total = 1 / heights, t, 1, 0.0
    for h in range(heights):
        place(sums[h], now % tree.arity * length, tree, None, part.places[h])
        for j in range(len(outcome)):
            path[h, j] += weight * (outcome[j] - part.places[h, j])
        total += _size(path[h], squared)
        now //= tree.arity
        length *= tree.arity
    for j in range(len(outcome)):
        sums[0, j] += outcome[j]
    if (t + 1) % tree.arity == 0:
        risen = carries(t + 1, tree.arity)
        if risen != tree.depth:  # when a tree of fixed depth is full, nothing is carried
            for h in range(risen):
                for j in range(len(outcome)):
                    sums[h + 1, j] += sums[h, j]
                    sums[h, j] = 0.0
    part.numbers[0], part.numbers[1], part.errors[1] = t + 1, heights, total
    return float(part.errors[0] + total)


@strict
def _middlemost(rows: Integers, count: int, last: int) -> int:
    """Keep those rows that are nearest to the middle, one or two; return how many."""
    least = abs(2 * rows[0] - last)
    for i in range(1, count):
        least = min(least, abs(2 * rows[i] - last))
    kept = 0
    for i in range(count):
        if abs(2 * rows[i] - last) == least:
            rows[kept] = rows[i]
            kept += 1
    return kept


@strict
def _grid_round(part: GridPart, outcome: Array, squared: bool) -> float:
    """Play a round of BinaryGrid; return its total error."""
    bias, bins = part.bias, len(part.bias) - 1
    rows, weights, point, found = np.empty(bins + 1, np.int64), np.empty(4), np.empty(2), 0
    for i in range(bins + 1):
        if bias[i] == 0:
            rows[found] = i
            found += 1
    if found:
        count = _middlemost(rows, found, bins)
        weights[:count] = 1 / count
    else:
        for i in range(bins):
            if bias[i] > 0 and bias[i + 1] < 0:
                rows[found] = i
                found += 1
        cells = _middlemost(rows, found, bins - 1)
        for c in range(cells - 1, -1, -1):
            i = rows[c]
            both = abs(bias[i + 1]) + abs(bias[i])
            rows[2 * c], rows[2 * c + 1] = i, i + 1
            weights[2 * c], weights[2 * c + 1] = abs(bias[i + 1]) / both / cells, abs(bias[i]) / both / cells
        count = 2 * cells
    equal, before, after = True, 0.0, 0.0
    for c in range(count):
        equal = equal and weights[c] == 1 / count
    for c in range(count):
        i, weight = rows[c], weights[c]
        point[0], point[1] = (bins - i) / bins, i / bins
        gap = ((outcome[1] - point[1]) - (outcome[0] - point[0])) / 2
        bias[i] += weight * min(max(gap, -point[1]), point[0])
        before += _size(part.biases[i], squared)
        for j in range(2):
            part.biases[i, j] += weight * (outcome[j] - point[j])
        after += _size(part.biases[i], squared)
        kept, share = part.kept[count if equal else 0, i], 1.0 if equal else weight
        for j in range(3):
            total, amount = kept[0, j], share if j == 0 else share * outcome[j - 1]
            kept[0, j] = total + amount
            seen = kept[0, j] - total
            kept[1, j] += (total - (kept[0, j] - seen)) + (amount - seen)
    part.numbers[0] += 1
    part.errors[0] += after - before
    return float(part.errors[0])


def _round(part: Any, outcome: Array, squared: bool) -> float:
    """Play a round of a certified part; return its total error."""
    return 0.0


@overload(_round)
def _one_round(part: Any, outcome: Any, squared: Any) -> Any:
    if part.instance_class is TreePart:

        def play(part: Any, outcome: Any, squared: Any) -> Any:
            return _tree_round(part, outcome, squared)

    else:

        def play(part: Any, outcome: Any, squared: Any) -> Any:
            return _grid_round(part, outcome, squared)

    return play


@strict
def guard_rounds(
    outcomes: Any,
    guard: GuardArgs,
    tracker: TrackerArrays,
    book: BookArrays,
    spoken: SpokenArrays,
    safe: Any,
    shadow: Any,
    announced: Integers,
    state: Array,
) -> None:
    """Play a guarded stream; note the slot of each point announced, −1 where safe forecasts.

    `state` holds the eager part's error, and the greatest error of the shadow, or safe's bound.
    """
    dim, books = spoken.points.shape[1], len(book.used)
    experts = np.empty((len(tracker.weights), dim))
    q, noise, outcome = np.empty(dim), np.empty(dim), np.empty(dim)
    moved, away = np.empty(book.points.shape[2]), np.empty(book.points.shape[2])
    columns = np.empty(books, np.int64)
    error, peak, safe_error, safe_rounds, bits, share = 0.0, 0.0, 0.0, 0, 0, 1.0
    for t in range(len(announced)):
        outcome[:] = 0.0
        add_outcome(outcome, outcomes, t)
        _track(tracker, experts, q)
        if guard.rate >= 0:
            allowed = guard.rate * (t + 1)
        elif len(guard.bounds):
            while t >> bits:
                peak, bits = max(peak, guard.bounds[bits]), bits + 1
            allowed = guard.budget * peak
        elif safe_rounds:
            allowed = guard.budget * min(peak, safe_error * (t / safe_rounds))
        else:
            allowed = guard.budget * peak
        if error + guard.diameter <= share * allowed:
            share = 1.0
            lead = _choose(book, tracker.classes, q, noise, moved, away, columns)
            _book_learn(book, tracker.classes, q, columns, lead, outcome, spoken)
            slot = spoken.slots[lead, columns[lead]]
            bias = spoken.biases[slot]
            before = _size(bias, guard.squared)
            for j in range(dim):
                bias[j] += outcome[j] - spoken.points[slot, j]
                total, y = spoken.sums[slot, j], outcome[j]
                spoken.sums[slot, j] = total + y
                seen = spoken.sums[slot, j] - total
                spoken.lost[slot, j] += (total - (spoken.sums[slot, j] - seen)) + (y - seen)
            error += _size(bias, guard.squared) - before
            spoken.rounds[slot] += 1
            announced[t] = slot
        else:
            safe_error = _round(safe, outcome, guard.squared)
            safe_rounds += 1
            announced[t] = -1
            share = 1 - guard.reserve
        if guard.measured:
            peak = max(peak, _round(shadow, outcome, guard.squared))
        _follow(tracker, experts, outcome)
    while len(announced) >> bits and len(guard.bounds):
        peak, bits = max(peak, guard.bounds[bits]), bits + 1
    state[0], state[1] = error, peak
