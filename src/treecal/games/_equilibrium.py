"""Correlated equilibria: the gain from deviating from a joint distribution, and the best equilibria by linear program.

A joint distribution over action profiles acts as a mediator: it draws a profile and recommends to each player its own
part. It is a *correlated* equilibrium if no player gains by deviating from its recommendation, and a *coarse* one if no
player gains by committing to one action before the draw. All losses here are scaled to `[0, 1]`; `Game` converts the
results to payoff units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treecal._typing import Array
from treecal.exceptions import TreeCalError

GAP = 1e-9
"""The largest gap, as a share of a player's range of payoffs, that a solved equilibrium may have."""


def deviations(losses: Array, joint: Array, *, player: int) -> Array:
    """Return `V[a, b]`: the player's loss where `a` is recommended, had it always played `b` there."""
    recommended = np.moveaxis(joint, player, 0).reshape(joint.shape[player], -1)
    played = np.moveaxis(losses, player, 0).reshape(joint.shape[player], -1)
    return np.asarray(recommended @ played.T)


def swap_gain(table: Array) -> float:
    """Return what the best swap of actions saves, `Σ_a max_b V[a, a] − V[a, b]`: never negative."""
    return float((table.diagonal() - table.min(axis=1)).sum())


def external_gain(table: Array) -> float:
    """Return what the best single action saves, `max_b Σ_a V[a, a] − V[a, b]`: negative if every one costs more."""
    return float(table.trace() - table.sum(axis=0).min())


def best_equilibrium(losses: Sequence[Array], reward: Array, *, coarse: bool) -> Array:
    """Return the (coarse) correlated equilibrium of greatest expected reward, by HiGHS on sparse constraints.

    The program is: over `x >= 0` with `Σ_s x(s) = 1`, maximise `Σ_s x(s)·reward(s)` subject to, for every player and
    every action `b`, `Σ_{s: s_i = a} x(s)·(ℓ_i(s) − ℓ_i(b, s_−i)) <= 0`: for every recommendation `a`, or, in a coarse
    equilibrium, summed over `a`. It has a solution for every game (Nash 1951).
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    shape = reward.shape
    profiles = np.arange(reward.size).reshape(shape)
    gains = []
    rows = []
    columns = []
    count = 0
    for player, loss in enumerate(losses):
        n = shape[player]
        recommended = np.moveaxis(profiles, player, 0).reshape(n, -1)
        cost = np.moveaxis(loss, player, 0).reshape(n, -1)
        for b in range(n):
            gain = cost - cost[b]
            row = np.full(n, count + b) if coarse else count + b * n + np.arange(n)
            keep = gain != 0
            gains.append(gain[keep])
            rows.append(np.broadcast_to(row[:, None], gain.shape)[keep])
            columns.append(recommended[keep])
        count += n if coarse else n * n
    constraints: Any = coo_array(  # linprog takes sparse arrays, but its stubs do not
        (np.concatenate(gains), (np.concatenate(rows), np.concatenate(columns))), shape=(count, reward.size)
    ).tocsr()
    total: Any = coo_array(np.ones((1, reward.size)))
    spread = float(np.ptp(reward)) or 1.0
    solution = linprog(
        -(reward.ravel() - reward.max()) / spread,  # in [0, 1], as the solver's tolerances are absolute
        A_ub=constraints,
        b_ub=np.zeros(count),
        A_eq=total,
        b_eq=[1.0],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if solution.x is None:
        raise TreeCalError(f"HiGHS found no equilibrium: {solution.message.strip()}")
    joint = np.maximum(np.reshape(solution.x, shape), 0)
    joint /= joint.sum()
    gain_of = external_gain if coarse else swap_gain
    worst = max(gain_of(deviations(loss, joint, player=i)) for i, loss in enumerate(losses))
    if not worst <= GAP:
        raise TreeCalError(f"the equilibrium has a gap of {worst:.3g} of a player's range, expected at most {GAP:g}.")
    return joint
