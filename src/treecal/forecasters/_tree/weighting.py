"""How the heights of a tree are weighted, given what each has cost. TreeCal weighs them equally and needs none of this.

A node keeps one weight for its life, so the per-node error is `Σ_nodes weight·rounds·‖mean − point‖`: heights are
experts whose running costs are known as nodes end.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from treecal._compile import also_compiled
from treecal._elementary import exp
from treecal._typing import Array
from treecal.theory import hedge_rate
from treecal.tree import Tree

Numbers = list[float] | Array
WeightState = tuple[list[float], list[float], float]
"""Of one stream: the cost and the weight of each height, lowest first; and the scale of costs per round."""


class Weighting(NamedTuple):
    """Exponential weights over the heights. `depth` is 0 for a growing tree.

    By the number of heights: `rates`, and in `longest` the rounds of the top nodes.

    With `block`, weights change only when a top node starts (Hedge, which restarts when the tree grows); otherwise
    whenever nodes start.
    """

    arity: int
    depth: int
    block: bool
    rates: Array
    longest: Array


def weighting(tree: Tree, *, block: bool, rate: float) -> Weighting:
    """Return the stick rule with this rate, or the block rule, whose rate follows from the tree."""
    rates = np.full(tree.most_heights + 1, rate)
    if block:
        rates[1:] = [hedge_rate(tree.arity, heights, grows=tree.depth is None) for heights in range(1, len(rates))]
    longest = np.array([0.0, *(float(tree.arity**height) for height in range(tree.most_heights))])
    return Weighting(tree.arity, tree.depth or 0, block, rates, longest)


@also_compiled
def weigh(
    rule: Weighting, rounds: int, heights: int, ended: Numbers, scale: float, costs: Numbers, weights: Numbers
) -> float:
    """Update one stream's costs and weights in place after a round; return the scale of costs per round.

    `rounds` and `heights` are those after the round, and `ended` the costs of the nodes that ended with it, lowest
    first. The nodes that start share out the weight of those that ended, in proportion to `exp(−η·cost)`: the
    stick-breaking rule, by which each takes the share `w_j / Σ_{i≤j} w_i` of what those above have left, telescopes to
    `w_j / Σ_i w_i` of all that is free. A plain function of numbers and sequences: kernels compile it as it stands.
    """
    length = 1
    starting = len(ended)
    for height in range(len(ended)):
        costs[height] += ended[height]
        if not rule.block:
            scale = max(scale, ended[height] / length)
        length *= rule.arity
    if rounds % length == 0:  # the top node has ended
        if rule.depth > 0:
            return scale  # the tree is full: nothing starts
        least = costs[0]
        total = 0.0
        starting = heights
        for height in range(heights - 1):
            least = min(least, costs[height])
            total += costs[height]
        # Where a stream settles down the longest intervals are best, and the new ones are longer than any before; half
        # the lead is what regimes that end soon after can still afford.
        costs[heights - 1] = 1.5 * least - 0.5 * (total / (heights - 1))
        for height in range(heights):
            weights[height] = 0.0
            if rule.block:
                costs[height] = 0.0
    if starting < heights and (starting == 1 or rule.block):
        return scale

    longest = rule.longest[heights]
    unit = scale * longest if rule.block else scale * (1 + math.sqrt(float(rounds) * longest))
    if unit == 0:
        unit = 1.0  # without any gap yet, all costs are 0
    least = costs[0]
    held = 0.0
    total = 0.0
    for height in range(starting):
        least = min(least, costs[height])
    for height in range(starting, heights):
        held += weights[height]
    free = max(0.0, 1.0 - held)
    for height in range(starting):
        weights[height] = exp(rule.rates[heights] * ((least - costs[height]) / unit))
        total += weights[height]
    for height in range(starting):
        weights[height] = free * (weights[height] / total)
    return scale
