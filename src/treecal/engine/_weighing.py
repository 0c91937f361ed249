"""The hot loop of AdaptiveTreeCal's weights."""

from __future__ import annotations

import math

import numpy as np

from treecal._typing import Array, Integers
from treecal.engine._compile import strict


@strict
def weigh(
    before: int,
    size: int,
    arity: int,
    offsets: Integers,
    node_costs: Array,
    ends: Array,
    grows: bool,
    rates: Array,
    block: bool,
    heights: int,
    scale: float,
    costs: Array,
    weights: Array,
    given: Array,
) -> tuple[int, float]:
    """Play AdaptiveTreeCal's weights over one piece; return the number of heights and the largest gap after it.

    `node_costs` are the costs of the nodes within the piece, height by height from `offsets[height]` on, and `ends` of
    those above that end with it; `given` takes the weight of each node within. `costs` and `weights`, by height, go on.
    """
    inner = len(offsets)
    for i in range(size):
        count = 1
        for height in range(inner):  # the nodes that start with this leaf
            if i % count != 0:
                break
            given[offsets[height] + i // count] = weights[height]  # 0 above the tree
            count *= arity
        rest, count, height = before + i, 1, 0
        while height < heights:  # those that end with it
            cost = node_costs[offsets[height] + i // count] if height < inner else ends[height - inner]
            costs[height] += cost
            if not block:
                scale = max(scale, cost / count)
            if rest % arity + 1 < arity:
                break
            rest //= arity
            count *= arity
            height += 1
        now = before + i + 1
        risen, rest = 0, now
        while rest % arity == 0:
            rest //= arity
            risen += 1
        if risen >= heights:
            if not grows:
                break  # the tree is full
            least, total = costs[0], 0.0
            for height in range(heights):
                least = min(least, costs[height])
                total += costs[height]
            costs[heights] = 1.5 * least - 0.5 * (total / heights)
            heights += 1
            for height in range(heights):
                weights[height] = 0.0
                if block:
                    costs[height] = 0.0
        if risen == heights - 1 or (risen > 0 and not block):
            longest = 1
            for _ in range(heights - 1):
                longest *= arity
            unit = scale * longest if block else scale * (1 + np.sqrt(float(now) * float(longest)))
            _share(risen + 1, heights, rates[heights], unit, costs, weights)
    return heights, scale


@strict
def _share(count: int, heights: int, rate: float, unit: float, costs: Array, weights: Array) -> None:
    """Share the free weight among the lowest heights, as `AdaptiveTreeCal._share` does, operation by operation."""
    if unit == 0:
        unit = 1.0
    least, held = costs[0], 0.0
    for height in range(count):
        least = min(least, costs[height])
    for height in range(count, heights):
        held += weights[height]
    free, total = max(0.0, 1.0 - held), 0.0
    for height in range(count):
        weights[height] = math.exp(rate * ((least - costs[height]) / unit))
        total += weights[height]
    for height in range(count):
        weights[height] = free * (weights[height] / total)
