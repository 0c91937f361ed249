"""The forecast of a round, given those to mix, and how far they are then trusted: of classes and of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from treecal._compile import strict
from treecal._elementary import exp, log
from treecal._states import State
from treecal._typing import Array
from treecal.correctors._number_kernels import pool_one, score

SHARE = 0.002
"""The most that is dealt out again in a round; after `t` rounds it is at most `1/t`."""
LEAST = 0.01
"""Of what a class has in the mean of all forecasts: it is given no less, and more where the guarantee has room."""
ENOUGH = 2e-4
"""Weights are good enough if none have a log score that is better by more than this a row."""


@dataclass(eq=False)
class Weights(State):
    """How far the forecasts are trusted."""

    weights: Array  # of the model, then of the corrections
    model: float  # that of the model when rounds began
    seen: int  # rounds learned since
    lifted: float  # by how much the score may be above the guarantee, because of classes that were given more

    def after(self) -> Weights:
        """Return those after one more round, before it is weighed."""
        return Weights(self.weights.copy(), self.model, self.seen + 1, self.lifted)


class Mixing(NamedTuple):
    """Whether it is distributions of a number that are mixed, the widths of their cells, and the first weights."""

    numbers: bool
    widths: Array
    start: Array


@strict
def mix(given: Array, weights: Array, rule: Mixing, means: Array) -> None:
    """Write the forecast of each row, given those to mix, `(rows, forecasts, dim)`."""
    costs = np.empty(means.shape[1])
    for row in range(len(means)):
        _mix_one(given[row], weights, rule, costs, means[row])


@strict
def _mix_one(points: Array, weights: Array, rule: Mixing, costs: Array, mean: Array) -> float:
    """Write the forecast of a round, and return the unit in which the scores of those mixed count."""
    if rule.numbers:
        return pool_one(points, weights, rule.widths, mean)
    _mix(points, weights, costs, mean)
    return 1.0


@strict
def _mix(points: Array, weights: Array, costs: Array, mean: Array) -> None:
    """Write the forecast, and the `G_k` that it is within, up to a constant."""
    dim = len(mean)
    costs[:] = 0.0
    for i in range(len(points)):
        square = 0.0
        for k in range(dim):
            square += points[i, k] * points[i, k]
        for k in range(dim):
            costs[k] += weights[i] * exp(2.0 * points[i, k] - square - 1.0)
    for k in range(dim):
        costs[k] = -log(costs[k])
    # Which classes are above 0 is found from all of them on: to leave one out lowers the level of the others.
    level = math.inf
    while True:
        total = 2.0
        count = 0
        for k in range(dim):
            if costs[k] < level:
                total += costs[k]
                count += 1
        if total / count >= level:
            break
        level = total / count
    short = False
    for k in range(dim):
        mean[k] = max(level - costs[k], 0.0) / 2.0
        short = short or mean[k] < LEAST * _average(points, weights, k)
    if short:
        share = _share(points, weights, costs, mean)
        for k in range(dim):
            mean[k] = (1.0 - share) * mean[k] + share * _average(points, weights, k)
    total = 0.0
    for k in range(dim):
        total += mean[k]
    for k in range(dim):
        mean[k] /= total


@strict
def _average(points: Array, weights: Array, k: int) -> float:
    """Return what the forecasts give a class in the mean."""
    own: float = weights[0] * points[0, k]
    for i in range(1, len(points)):
        own += weights[i] * points[i, k]
    return own


@strict
def _share(points: Array, weights: Array, costs: Array, mean: Array) -> float:
    """Return how far the forecast may go towards the mean of all: it stays within every `G_k`, or is `LEAST`."""
    dim = len(mean)
    square = 0.0
    inner = 0.0
    length = 0.0
    for k in range(dim):
        away = _average(points, weights, k) - mean[k]
        square += mean[k] * mean[k]
        inner += mean[k] * away
        length += away * away
    if length == 0.0:  # of differences too small for their squares
        return LEAST
    share = 1.0
    for k in range(dim):  # the largest root of `‖e_k − mean − share·away‖² = G_k`
        slope = inner - (_average(points, weights, k) - mean[k])
        room = max(costs[k] - 1.0 + 2.0 * mean[k] - square, 0.0)
        root = math.sqrt(slope * slope + length * room)
        share = min(share, room / (root + slope) if slope > 0.0 else (root - slope) / length)
    return max(share, LEAST)


@strict
def play(
    given: Array,
    outcomes: Array,
    row_weights: Array,
    weights: Array,
    seen: int,
    rule: Mixing,
    means: Array,
) -> float:
    """Announce and weigh rounds in order, those of weight 0 are only announced.

    Return by how much the score of classes is above what the weights allow.
    """
    costs = np.empty(means.shape[1])
    lifted = 0.0
    for row in range(len(means)):
        scale = _mix_one(given[row], weights, rule, costs, means[row])
        if row_weights[row] > 0.0:
            seen += 1
            lifted += weigh(given[row], outcomes[row], row_weights[row], scale, means[row], weights, seen, rule)
    return lifted


@strict
def weigh(
    points: Array, outcome: Array, weight: float, scale: float, mean: Array, weights: Array, seen: int, rule: Mixing
) -> float:
    """Weigh the forecasts of a round, the last of so many; return what `play` adds up."""
    count = len(weights)
    losses = np.empty(count)
    least = math.inf
    for i in range(count):
        losses[i] = score(points[i], outcome, rule.widths)
        least = min(least, losses[i])
    lifted = 0.0
    if not rule.numbers:
        allowed = 0.0
        for i in range(count):
            allowed += weights[i] * exp(-(losses[i] - least))
        over = score(mean, outcome, rule.widths) - (least - log(allowed))
        if over > 1e-12:  # more than rounding
            lifted = weight * over
    total = 0.0
    for i in range(count):
        if scale > 0.0:
            weights[i] *= exp(-weight * (losses[i] - least) / scale)
        total += weights[i]
    share = min(SHARE, 1.0 / seen)
    for i in range(count):
        weights[i] = (1.0 - share) * (weights[i] / total) + share * rule.start[i]
    return lifted


@strict
def stack(costs: Array, counts: Array, prior: Array) -> Array:
    """Return the weights that forecasts with these costs, `(forecasts, rows)`, should have had in a mixture.

    They maximise `Σ counts·ln Σ_i w_i·exp(−cost_i) + Σ prior_i·ln w_i`, by expectation maximisation. Since it is
    concave, others are better by no more than the largest `share_i/w_i`, less the sum of all shares.
    """
    odds = np.empty((len(counts), len(prior)))
    for row in range(len(counts)):
        least = costs[:, row].min()
        for i in range(len(prior)):
            odds[row, i] = exp(least - costs[i, row])
    weights = prior.copy()
    sums = np.empty(len(prior))
    shares = np.empty(len(prior))
    while True:
        sums[:] = 0.0
        for row in range(len(counts)):
            total = 0.0
            for i in range(len(prior)):
                total += weights[i] * odds[row, i]
            amount = counts[row] / total
            for i in range(len(prior)):
                sums[i] += amount * odds[row, i]
        total = 0.0
        best = 0.0
        for i in range(len(prior)):
            shares[i] = prior[i] + weights[i] * sums[i]
            total += shares[i]
            best = max(best, shares[i] / weights[i])
        for i in range(len(prior)):
            weights[i] = shares[i] / total
        if not best > (1.0 + ENOUGH) * total:
            return weights
