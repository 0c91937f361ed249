"""Random games and joint distributions, and the definitions of the gaps read out literally."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from treecal import games
from treecal._typing import Array

shapes = st.one_of(st.tuples(*[st.integers(2, 4)] * 2), st.tuples(*[st.integers(2, 3)] * 3))
payoff = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e3, 1e3, width=32))


@st.composite
def any_game(draw: st.DrawFn) -> games.Game:
    shape = draw(shapes)
    return games.Game([draw(hnp.arrays(np.float64, shape, elements=payoff)) for _ in shape])


@st.composite
def game_and_joint(draw: st.DrawFn) -> tuple[games.Game, Array]:
    game = draw(any_game())
    weights = draw(hnp.arrays(np.float64, game.shape, elements=st.integers(0, 9)).filter(np.any))
    return game, weights / weights.sum()


def gain(game: games.Game, joint: Array, player: int, rule: Sequence[int]) -> float:
    """What the player gains by playing `rule[a]` whenever told `a`, profile by profile."""
    total = 0.0
    for profile in itertools.product(*map(range, game.shape)):
        other = list(profile)
        other[player] = rule[profile[player]]
        total += joint[profile] * (game.payoffs[player][tuple(other)] - game.payoffs[player][profile])
    return float(total)


def literal_gaps(game: games.Game, joint: Array) -> tuple[float, float]:
    """The correlated gap over every rule there is, and the coarse gap over the constant ones."""
    swaps, constants = [0.0], [0.0]
    for player, n in enumerate(game.shape):
        swaps += [gain(game, joint, player, rule) for rule in itertools.product(range(n), repeat=n)]
        constants += [gain(game, joint, player, [b] * n) for b in range(n)]
    return max(swaps), max(constants)


def product(mixtures: Sequence[Array]) -> Array:
    """The joint distribution of players who choose independently."""
    joint = np.ones(())
    for w in mixtures:
        joint = np.multiply.outer(joint, w)
    return joint
