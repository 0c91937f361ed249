"""Hedge over the heights of a tree: its rate, and what it may lose to the best height."""

from __future__ import annotations

import math

from treecal._validate import whole_number
from treecal.tree import Tree


def hedge_rate(arity: int, depth: int, *, grows: bool) -> float:
    """Return Hedge's rate for costs in [0, 1]: `√(8 ln depth / N)`, `N` the top nodes of the tree, or of its epoch."""
    top_nodes = arity - 1 if grows and depth > 1 else arity
    return math.sqrt(8 * math.log(depth) / top_nodes)


def block_regret(rounds: int, *, arity: int, depth: int | None = None, diameter: float) -> float:
    """Return the most that `AdaptiveTreeCal(rule="block")` can lose to the best height, and so to TreeCal, in total.

    Hedge's rounds are the top nodes, `N` of them of `B = arity^(depth−1)` rounds, and a height's cost in each is at
    most `diameter` times its rounds. With rate `η = √(8 ln depth / N) / (diameter·B)` the per-node error is at most
    `min_j E_j + ln(depth)/η + η·Σ(diameter·length)²/8`; when all are complete the last two sum to
    `diameter·B·√(N ln(depth)/2)`. `min_j E_j` is at most the mean of the `E_j`, which is TreeCal's per-node error. A
    tree without `depth` sums over epochs, `N = arity − 1` in each, with the least `E_j` of each.

    Parameters
    ----------
    rounds
        Rounds played.
    arity, depth
        As for the forecaster.
    diameter
        Of the set, in the norm of the heights' costs.

    Examples
    --------
    >>> block_regret(8**4, arity=8, depth=4, diameter=2.0) == 2 * 8**3 * math.sqrt(8 * math.log(4) / 2)
    True
    >>> round(block_regret(64**4, arity=64, diameter=2.0) / 64**4, 2)  # per round
    0.21
    """
    tree = Tree(arity, depth)
    rounds = whole_number("rounds", rounds, least=0)
    tree.check(rounds)
    epochs = tree.epochs(rounds)
    return math.fsum(_epoch_regret(end - begin, arity, m, grows=depth is None) for begin, end, m in epochs) * diameter


def _epoch_regret(rounds: int, arity: int, depth: int, *, grows: bool) -> float:
    """Return the regret of one run of Hedge, at diameter 1."""
    if depth == 1:
        return 0.0
    longest: int = arity ** (depth - 1)
    rate = hedge_rate(arity, depth, grows=grows)
    complete, part = divmod(rounds, longest)
    regret = longest * (math.log(depth) / rate + rate * (complete + (part / longest) ** 2) / 8)
    return min(regret, float(rounds))  # no round costs more than the diameter
