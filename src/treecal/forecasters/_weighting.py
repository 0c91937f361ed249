"""How the heights of the tree are weighted: parts of their own, which know costs and weights and no outcomes.

TreeCal weighs all heights alike, and needs no part. Where weights are constant while a node lives, the per-node error
is `Σ_nodes weight·rounds·‖mean − point‖`, so heights are experts whose running costs are known as nodes end.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import reduce

from treecal.theory._hedge import hedge_rate
from treecal.tree import Tree

WeightState = tuple[list[float], list[float], float]
"""Of one stream: the cost and the weight of each height, lowest first; and the scale of costs per round."""


@dataclass(frozen=True)
class Weighting:
    """Exponential weights over the heights: `exp(−η·cost)`.

    The nodes that start share out the weight of those that ended. It is the stick-breaking rule: from the top down each
    takes the share `w_j / Σ_{i≤j} w_i` of what the ones above have left, which telescopes to `w_j / Σ_i w_i` of all
    that is free.

    Parameters
    ----------
    tree
        The tree.
    block
        Whether weights change only when a top node starts (Hedge, which starts anew when the tree grows), or whenever
        nodes start.
    rate
        Of the stick rule; Hedge's follows from the tree.
    scale
        All costs of a round lie within it: for Hedge the set's diameter. The stick rule learns it, and starts at 0.
    """

    tree: Tree
    block: bool
    rate: float
    scale: float

    def fresh(self) -> WeightState:
        """Return the state before the first round: equal weights."""
        heights = self.tree.depth or 1
        return [0.0] * heights, [1 / heights] * heights, self.scale

    def step(self, state: WeightState, rounds: int, ended: list[float]) -> WeightState:
        """Return the state after so many rounds, given the costs of the nodes that ended last, lowest first."""
        costs, weights, scale = state[0].copy(), state[1].copy(), state[2]
        arity, heights = self.tree.arity, len(costs)
        for height, cost in enumerate(ended):
            costs[height] += cost
            if not self.block:
                scale = max(scale, cost / arity**height)
        risen = len(ended) - 1 if rounds // arity ** (len(ended) - 1) % arity else heights
        if risen == heights:
            if self.tree.depth is not None:  # the tree is full: nothing starts
                return costs, weights, scale
            self._grow(costs)
            heights += 1
            weights = [0.0] * heights
        if risen == heights - 1 or (risen and not self.block):
            self._share(costs, weights, risen + 1, rounds, scale)
        return costs, weights, scale

    def _grow(self, costs: list[float]) -> None:
        """Take in a new top height."""
        if self.block:
            costs[:] = [0.0] * (len(costs) + 1)
        else:
            # Where a stream settles down the longest intervals are best, and the new ones are longer than any before;
            # half the lead is what regimes that end soon after can still afford.
            costs.append(1.5 * min(costs) - 0.5 * (_plain_sum(costs) / len(costs)))

    def _share(self, costs: list[float], weights: list[float], count: int, rounds: int, scale: float) -> None:
        """Share the weight that is free among the nodes of the `count` lowest heights, which start now."""
        longest: int = self.tree.arity ** (len(costs) - 1)
        if self.block:
            rate, unit = hedge_rate(self.tree.arity, len(costs), grows=self.tree.depth is None), scale * longest
        else:
            rate, unit = self.rate, scale * (1 + math.sqrt(rounds * longest))
        least, unit = min(costs[:count]), unit or 1.0  # without any gap yet, all costs are 0
        shares = [math.exp(rate * ((least - cost) / unit)) for cost in costs[:count]]
        free, total = max(0.0, 1.0 - _plain_sum(weights[count:])), _plain_sum(shares)
        weights[:count] = [free * (share / total) for share in shares]


def _plain_sum(terms: list[float]) -> float:
    """Add from left to right, as kernels do; Python's own sum does more from 3.12 on."""
    return reduce(operator.add, terms, 0.0)
