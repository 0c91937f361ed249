"""The most that simple calibeating can lose."""

from __future__ import annotations

import math

import numpy as np

from treecal._validate import positive_number, whole_number
from treecal.correctors._forgetting import tracking_bound


def calibeating_bound(rounds: int, *, groups: int, diameter: float, prior: float = 1.0, forget: bool = False) -> float:
    """Return the most that simple calibeating can lose to the best constants, in Brier score per round.

    With `κ` the prior, `m_t = (κs + Σ_{i≤t} y_i)/(κ + t)` minimises `κ‖q − s‖² + Σ_{i≤t} ‖y_i − q‖²`, and that minimum
    grows by `(1 − 1/(κ+t))·‖y_t − m_{t−1}‖²` in round `t`. So a group of `n` rounds has
    `Σ_t ‖y_t − m_{t−1}‖² <= Σ_t ‖y_t − ȳ‖² + κ‖ȳ − s‖² + Σ_t ‖y_t − m_{t−1}‖²/(κ+t)`, and loses at most
    `D²·(κ + Σ_{t≤n} 1/(κ+t))`, with `κ = 0` too. That is concave in `n`: the worst case is groups of equal size.

    Parameters
    ----------
    rounds
        Rounds played.
    groups
        Number of groups met.
    diameter
        The set's ℓ2 diameter: `√2` on the simplex. For shifts, twice that.
    prior
        As for `Recalibrator`.
    forget
        Whether groups forget: adds `2D²·tracking_bound(rounds of a group)` for each.

    Examples
    --------
    >>> round(calibeating_bound(10_000, groups=20, diameter=math.sqrt(2)), 4)
    0.0272
    """
    rounds = whole_number("rounds", rounds, least=1)
    groups = whole_number("groups", groups, least=1)
    prior = positive_number("prior", prior, or_zero=True)
    groups = min(groups, rounds)
    each, more = divmod(rounds, groups)
    lost = groups * (prior + math.fsum(1 / (prior + np.arange(1, each + 1)))) + more / (prior + each + 1)
    if forget:
        sizes = ((groups - more, each), (more, each + 1))
        lost += 2 * sum(count * tracking_bound(size) for count, size in sizes if count)
    return float(diameter**2 * lost / rounds)
