"""A group's visits: one arithmetic for a round and for many in order."""

from __future__ import annotations

import numpy as np

from treecal._compile import strict
from treecal._elementary import power
from treecal._typing import Array, Integers
from treecal.correctors._trust_kernels import mixed, trusted


@strict
def means(first: Array, sums: Array, copies: Array, prior: float, found: Array) -> None:
    """Write the mean of each copy, first of the one that never forgets, which has the prior."""
    dim, weight = len(first), prior + sums[0, 0]
    for k in range(dim):
        found[0, k] = (prior * first[k] + sums[0, 3 + k] + sums[1, 3 + k]) / weight
        for copy in range(len(copies)):
            found[1 + copy, k] = copies[copy, 1 + k] / copies[copy, 0]


@strict
def _add(sums: Array, at: int, amount: float, scored: bool) -> None:
    """Add to a sum, and keep what the rounding lost (Knuth's error-free addition)."""
    before = sums[0, at]
    total = before + amount
    seen = total - before
    sums[0, at] = total
    sums[1, at] += (before - (total - seen)) + (amount - seen)
    if scored:
        sums[2, at] += amount


@strict
def visit(
    sums: Array,
    copies: Array,
    trust: Array,
    kept: Array,
    points: Array,
    b: Array,
    y: Array,
    weight: float,
    shift: bool,
    scale: float,
    share: float,
    lasting: float,
    scored: bool,
) -> None:
    """Learn one visit: sums, the copies that forget, and the trust in them, by the points that they forecast."""
    dim, squares, errors = len(y), 0.0, 0.0
    for k in range(dim):
        squares += y[k] * y[k]
        errors += (y[k] - b[k]) * (y[k] - b[k])
    _add(sums, 0, weight, scored)
    _add(sums, 1, weight * squares, scored)
    _add(sums, 2, weight * errors, scored)
    for k in range(dim):
        _add(sums, 3 + k, weight * y[k], scored)
        _add(sums, 3 + dim + k, weight * b[k], scored)
    count = len(trust)
    if count == 1:
        return
    losses = np.empty(count)
    for copy in range(count):
        loss = 0.0
        for k in range(dim):
            loss += (y[k] - points[copy, k]) * (y[k] - points[copy, k])
        losses[copy] = loss / scale
    trusted(trust, losses, sums[0, 0], weight, share, lasting)
    for copy in range(count - 1):
        keeps = kept[1 + copy]
        left, counts = keeps, 1.0
        if weight != 1.0:
            left = power(keeps, weight)
            counts = (1.0 - left) / (1.0 - keeps)
        copies[copy, 0] = left * copies[copy, 0] + counts
        for k in range(dim):
            copies[copy, 1 + k] = left * copies[copy, 1 + k] + counts * (y[k] - b[k] if shift else y[k])


@strict
def visits(
    first: Array,
    sums: Array,
    copies: Array,
    trust: Array,
    kept: Array,
    most: float,
    forecasts: Array,
    outcomes: Array,
    rows: Integers,
    weights: Array,
    at: int,
    prior: float,
    scale: float,
    share: float,
    lasting: float,
    scored: bool,
    announced: Array,
) -> int:
    """Learn the steps of a group of means from `at` on, in order; one of weight 0 only announces.

    Returns the next step, which is not the last if there is weight for another copy, from `most` on.
    """
    points = np.empty((len(trust), len(first)))
    for step in range(at, len(rows)):
        row, weight, met = rows[step], weights[step], sums[0, 0] > 0.0
        if met:
            means(first, sums, copies, prior, points)
        if step == 0 or rows[step - 1] != row:
            if met:
                mixed(trust, points, announced[row])
            else:
                announced[row] = forecasts[row]
        if weight == 0.0:
            continue
        if not met:
            first[:] = forecasts[row]
        visit(
            sums,
            copies,
            trust,
            kept,
            points,
            forecasts[row],
            outcomes[row],
            weight,
            False,
            scale,
            share,
            lasting,
            scored,
        )
        if sums[0, 0] >= most:
            return step + 1
    return len(rows)
