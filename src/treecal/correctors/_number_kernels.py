"""Distribution functions of numbers, moved, read in other coordinates and pooled: one arithmetic for one row and many.

A distribution function is its values at the thresholds of a `Cdf`, and linear between them: from 0 at the low end to 1
at the high end. Its mean is `high − ∫F`, and its spread `∫F(1 − F)`: the score that a forecast expects of itself, half
the mean distance of two draws from it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from treecal._compile import copy_into, strict
from treecal._elementary import exp, exponentials, log, power
from treecal._typing import Array, Integers
from treecal.correctors._forgetting import LASTING, SHARE, trusted

PRIOR = 3.0
"""Rounds that the curvature of shift and stretch counts more than it has seen, so that first steps are short."""
FARTHEST = 20.0
"""Spreads by which a forecast is shifted at most."""
WIDEST = 2.5
"""Of the logarithm of the stretch, in size: a factor of 12."""
STEPS = (0.5, 0.2)
"""The longest step of a round, of shift and of stretch."""
SURE = 0.02
"""Of the range: stands for the spread of a forecast that is sure of a number, so that it has a unit."""


class Grid(NamedTuple):
    """The thresholds of a set with both its ends, and the widths of the cells around them."""

    knots: Array  # (dim + 2,)
    widths: Array  # (dim,)


class Moves(NamedTuple):
    """What is learned of one stream, a row for each memory: shift and stretch, their curvature, and the trust in it."""

    theta: Array  # (memories, 2): in spreads, and the logarithm of a factor
    curvature: Array  # (memories, 3): of both, and between them
    weight: Array  # (memories,): of the rounds remembered
    trust: Array  # (memories,)
    kept: Array  # (memories,): what is left of the past after a round


@strict
def rises(xs: Array, levels: Array, found: Array) -> None:
    """Write the slope of a function in each of its cells; where it jumps nobody asks for one."""
    for cell in range(len(found)):
        found[cell] = (levels[cell + 1] - levels[cell]) / (xs[cell + 1] - xs[cell])


@strict
def interpolate(xs: Array, levels: Array, steep: Array, points: Array, found: Array, slopes: Array) -> None:
    """Write the values and slopes of a function at increasing points; beyond the ends it is constant.

    The function is linear between the places `xs`, which do not decrease, with the slopes `steep`; where several are
    equal it has jumped.
    """
    last = len(xs) - 1
    cell = 0
    for k in range(len(points)):
        x = points[k]
        if x < xs[0]:
            found[k] = levels[0]
            slopes[k] = 0.0
            continue
        while cell < last and xs[cell + 1] <= x:
            cell += 1
        found[k] = levels[cell]
        slopes[k] = 0.0
        if cell < last:
            slopes[k] = steep[cell]
            found[k] += slopes[k] * (x - xs[cell])


@strict
def extents(points: Array, grid: Grid, found: Array) -> None:
    """Write the mean and the unit of each row: its spread, or what stands for it where it is next to none."""
    low = grid.knots[0]
    high = grid.knots[-1]
    for row in range(len(points)):
        mean = high
        spread = 0.0
        widest = 0.0
        for k in range(len(grid.widths)):
            F = min(max(points[row, k], 0.0), 1.0)
            mean -= grid.widths[k] * F
            spread += grid.widths[k] * F * (1.0 - F)
            widest = max(widest, grid.widths[k])
        found[row, 0] = min(max(mean, low), high)
        found[row, 1] = spread if spread > 0.01 * widest else SURE * (high - low)


@strict
def cells(places: Array, grid: Grid, locations: int, found: Integers) -> None:
    """Write the cell of each forecast: the part of the range that its mean is in, and the power of two of its unit."""
    low = grid.knots[0]
    reach = grid.knots[-1] - low
    for row in range(len(places)):
        found[row, 0] = int(min(locations * ((places[row, 0] - low) / reach), locations - 1.0))
        found[row, 1] = math.frexp(places[row, 1] / reach)[1]


@strict
def _pad(point: Array, levels: Array) -> None:
    """Write a distribution function at the knots, from 0 to 1."""
    levels[0] = 0.0
    levels[-1] = 1.0
    for k in range(len(point)):
        levels[k + 1] = min(max(point[k], levels[k]), 1.0)


@strict
def _move(levels: Array, steep: Array, grid: Grid, extent: Array, shift: float, stretch: float, room: Array) -> None:
    """Write into `room` where the function is read, its values there and its slopes."""
    factor = exp(-stretch)
    for k in range(room.shape[1]):
        room[0, k] = extent[0] + (grid.knots[k + 1] - extent[0] - shift * extent[1]) * factor
    interpolate(grid.knots, levels, steep, room[0], room[1], room[2])


@strict
def _moved(levels: Array, steep: Array, grid: Grid, extent: Array, now: Moves, room: Array, found: Array) -> None:
    """Write what is announced: the function, moved by the mean of shift and stretch by trust."""
    shift = 0.0
    stretch = 0.0
    for i in range(len(now.trust)):
        shift += now.trust[i] * now.theta[i, 0]
        stretch += now.trust[i] * now.theta[i, 1]
    if shift == 0.0 and stretch == 0.0:
        copy_into(found, levels[1:-1])
        return
    _move(levels, steep, grid, extent, shift, stretch, room)
    copy_into(found, room[1])


@strict
def move(points: Array, grid: Grid, all_extents: Array, now: Moves, found: Array) -> None:
    """Write what is announced for each row."""
    levels = np.empty(len(grid.knots))
    steep = np.empty(len(levels) - 1)
    room = np.empty((3, points.shape[1]))
    for row in range(len(points)):
        _pad(points[row], levels)
        rises(grid.knots, levels, steep)
        _moved(levels, steep, grid, all_extents[row], now, room, found[row])


@strict
def learn_moves(
    points: Array,
    outcomes: Array,
    weights: Array,
    grid: Grid,
    all_extents: Array,
    now: Moves,
    seen: float,
    found: Array,
) -> float:
    """Announce and learn rows in order; those of weight 0 are only announced. Return the weight of all rounds.

    A memory takes a Gauss–Newton step on the score `Σ_k w_k·(F'_k − y_k)²`: with the derivatives `J` of `F'` by shift
    and stretch, `A ← kept·A + JᵀwJ` and `θ ← θ − A⁻¹·Jᵀw(F' − y)`. In expectation `JᵀwJ` is half the second derivative
    of the score of a forecast that is right.
    """
    dim = points.shape[1]
    levels = np.empty(dim + 2)
    steep = np.empty(dim + 1)
    room = np.empty((3, dim))
    losses = np.empty(len(now.trust))
    for row in range(len(points)):
        extent = all_extents[row]
        _pad(points[row], levels)
        rises(grid.knots, levels, steep)
        _moved(levels, steep, grid, extent, now, room, found[row])
        weight = weights[row]
        if weight == 0.0:
            continue
        seen += weight
        y = outcomes[row]
        for i in range(len(losses)):
            theta = now.theta[i]
            _move(levels, steep, grid, extent, theta[0], theta[1], room)
            factor = exp(-theta[1])
            loss = 0.0
            by_shift = 0.0
            by_stretch = 0.0
            a = 0.0
            b = 0.0
            c = 0.0
            for k in range(dim):
                w = grid.widths[k]
                off = room[1, k] - y[k]
                loss += w * off * off
                if room[2, k] > 0.0:
                    one = -room[2, k] * factor * extent[1]
                    two = -room[2, k] * (room[0, k] - extent[0])
                    by_shift += w * off * one
                    by_stretch += w * off * two
                    a += w * one * one
                    b += w * one * two
                    c += w * two * two
            losses[i] = loss / extent[1]
            kept = now.kept[i]
            left = kept if weight == 1.0 else power(kept, weight)
            A = now.curvature[i]
            A[0] = left * A[0] + weight * a
            A[1] = left * A[1] + weight * c
            A[2] = left * A[2] + weight * b
            now.weight[i] = left * now.weight[i] + weight
            more = 1.0 + PRIOR / now.weight[i]
            least = A[0] * more * (A[1] * more) - A[2] * A[2]
            if least > 0.0:
                one = weight * (A[1] * more * by_shift - A[2] * by_stretch) / least
                two = weight * (A[0] * more * by_stretch - A[2] * by_shift) / least
                theta[0] = min(max(theta[0] - min(max(one, -STEPS[0]), STEPS[0]), -FARTHEST), FARTHEST)
                theta[1] = min(max(theta[1] - min(max(two, -STEPS[1]), STEPS[1]), -WIDEST), WIDEST)
        trusted(now.trust, losses, seen, weight, SHARE, LASTING)
    return seen


@strict
def into_residuals(rows: Array, grid: Grid, all_extents: Array, residuals: Array, found: Array) -> None:
    """Write distribution functions as those of `(number − mean)/unit`, at the residuals."""
    levels = np.empty(len(grid.knots))
    steep = np.empty(len(levels) - 1)
    at = np.empty((2, len(residuals)))
    for row in range(len(rows)):
        _pad(rows[row], levels)
        rises(grid.knots, levels, steep)
        for k in range(len(residuals)):
            at[0, k] = all_extents[row, 0] + all_extents[row, 1] * residuals[k]
        interpolate(grid.knots, levels, steep, at[0], found[row], at[1])


@strict
def from_residuals(rows: Array, points: Array, grid: Grid, all_extents: Array, residuals: Array, found: Array) -> None:
    """Write distribution functions of residuals as those of numbers; beyond the residuals the forecasts' own."""
    dim = points.shape[1]
    at = np.empty((2, dim))
    steep = np.empty(len(residuals) - 1)
    for row in range(len(rows)):
        rises(residuals, rows[row], steep)
        for k in range(dim):
            at[0, k] = (grid.knots[k + 1] - all_extents[row, 0]) / all_extents[row, 1]
        interpolate(residuals, rows[row], steep, at[0], found[row], at[1])
        for k in range(dim):
            if at[0, k] < residuals[0]:
                found[row, k] = min(points[row, k], rows[row, 0])
            elif at[0, k] > residuals[-1]:
                found[row, k] = max(points[row, k], rows[row, -1])


@strict
def into_levels(rows: Array, points: Array, levels: Array, found: Array) -> None:
    """Write the distribution function of `F(number)` at the levels: spread evenly where `F` rises within a cell."""
    dim = points.shape[1]
    xs = np.empty(dim + 2)
    ys = np.empty(dim + 2)
    steep = np.empty(dim + 1)
    slopes = np.empty(len(levels))
    for row in range(len(rows)):
        _pad(points[row], xs)
        _pad(rows[row], ys)
        rises(xs, ys, steep)
        interpolate(xs, ys, steep, levels, found[row], slopes)


@strict
def from_levels(rows: Array, points: Array, levels: Array, found: Array) -> None:
    """Write `G(F)` of each row."""
    xs = np.empty(len(levels) + 2)
    ys = np.empty(len(levels) + 2)
    steep = np.empty(len(levels) + 1)
    slopes = np.empty(points.shape[1])
    _pad(levels, xs)
    for row in range(len(rows)):
        _pad(rows[row], ys)
        rises(xs, ys, steep)
        interpolate(xs, ys, steep, points[row], found[row], slopes)


@strict
def pool_one(points: Array, weights: Array, widths: Array, mean: Array) -> float:
    """Write the forecast of a round, given those to pool; return `Λ`, in whose units the scores count.

    At threshold `k`, where the forecasts lie between `a` and `b`, the squared loss is mixable at the rate
    `η_k = min_{a<=p<=b} 1/(2p(1 − p))`; with `Λ = Σ_k w_k/η_k` and Hölder's inequality
    `Σ_k w_k·(p_k − y_k)² <= −Λ·ln Σ_i weight_i·exp(−CRPS_i/Λ)`.
    """
    dim = len(mean)
    most = np.empty(dim)
    inverse = np.empty(dim)
    exponents = np.empty((2, dim))
    both = np.empty((2, dim))
    sums = np.zeros((2, dim))
    copy_into(mean, points[0])
    copy_into(most, points[0])
    for i in range(1, len(points)):
        _reach(points[i], mean, most)
    scale = 0.0
    for k in range(dim):
        middle = min(max(0.5, mean[k]), most[k])
        inverse[k] = 2.0 * middle * (1.0 - middle)
        if most[k] - mean[k] > 1e-12 and inverse[k] > 1e-12:
            scale += widths[k] * inverse[k]
        else:  # all say the same
            most[k] = mean[k]
            inverse[k] = 1.0
    for i in range(len(points)):
        _exponents(points[i], mean, inverse, exponents)
        exponentials(exponents.reshape(2 * dim), both.reshape(2 * dim))
        for k in range(dim):
            own = weights[i] * both[0, k]
            sums[0, k] += own
            sums[1, k] += own * both[1, k]
    falls = False
    for k in range(dim):
        if most[k] > mean[k]:
            mean[k] = min(max(mean[k] + 0.5 * inverse[k] * log(sums[1, k] / sums[0, k]), mean[k]), most[k])
        falls = falls or (k > 0 and mean[k] < mean[k - 1])
    if falls:
        _rise(mean, widths)
    return scale


@strict
def _reach(point: Array, least: Array, most: Array) -> None:
    """Widen the range of what is forecast at each threshold."""
    for k in range(len(point)):
        least[k] = min(least[k], point[k])
        most[k] = max(most[k], point[k])


@strict
def _exponents(point: Array, least: Array, inverse: Array, found: Array) -> None:
    """Write the exponents of one forecast: loops of few arrays, which compilers take eight numbers at once."""
    for k in range(len(point)):
        found[0, k] = (least[k] * least[k] - point[k] * point[k]) / inverse[k]
    for k in range(len(point)):
        found[1, k] = 2.0 * (point[k] - least[k]) / inverse[k]


@strict
def _rise(values: Array, widths: Array) -> None:
    """Replace values by the nearest that do not fall, in the norm of the widths: nearer to all that do not."""
    count = 0
    blocks = np.empty((2, len(values)))
    sizes = np.empty(len(values), np.int64)
    for k in range(len(values)):
        blocks[0, count] = values[k]
        blocks[1, count] = widths[k]
        sizes[count] = 1
        count += 1
        while count > 1 and blocks[0, count - 2] > blocks[0, count - 1]:
            width = blocks[1, count - 2] + blocks[1, count - 1]
            total = blocks[1, count - 2] * blocks[0, count - 2] + blocks[1, count - 1] * blocks[0, count - 1]
            blocks[0, count - 2] = total / width
            blocks[1, count - 2] = width
            sizes[count - 2] += sizes[count - 1]
            count -= 1
    k = 0
    for block in range(count):
        for _ in range(sizes[block]):
            values[k] = blocks[0, block]
            k += 1


@strict
def score(point: Array, outcome: Array, widths: Array) -> float:
    """Return `Σ_k w_k·(p_k − y_k)²`, from left to right."""
    total = 0.0
    for k in range(len(point)):
        total += widths[k] * (point[k] - outcome[k]) * (point[k] - outcome[k])
    return total
