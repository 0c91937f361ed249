"""Well-known games, and random ones."""

from __future__ import annotations

import numpy as np

from treecal._validate import whole_number
from treecal.exceptions import ParameterError
from treecal.games._normal_form import Game


def chicken() -> Game:
    """Return Aumann's chicken: yield or dare. The best correlated equilibrium pays more than every Nash equilibrium.

    Examples
    --------
    >>> game = chicken()
    >>> float(game.expected_payoffs(game.correlated_equilibrium()).sum().round(9))
    10.5

    References
    ----------
    R. J. Aumann, Subjectivity and correlation in randomized strategies, 1974.
    """
    return Game([[[6, 2], [7, 0]], [[6, 7], [2, 0]]])


def matching_pennies() -> Game:
    """Return matching pennies: the first player wins on equal sides, the second on unequal ones.

    Examples
    --------
    >>> matching_pennies().correlated_equilibrium().tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """
    return Game.zero_sum([[1, -1], [-1, 1]])


def prisoners_dilemma() -> Game:
    """Return the prisoners' dilemma: be silent or confess. Both confess in every correlated equilibrium.

    Examples
    --------
    >>> prisoners_dilemma().correlated_equilibrium().tolist()
    [[0.0, 0.0], [0.0, 1.0]]
    """
    return Game([[[3, 0], [5, 1]], [[3, 5], [0, 1]]])


def rock_paper_scissors() -> Game:
    """Return rock, paper, scissors.

    Examples
    --------
    >>> rock_paper_scissors().payoffs[0].tolist()
    [[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]
    """
    return Game.zero_sum([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])


def shapley() -> Game:
    """Return Shapley's game, on which fictitious play cycles ever more slowly and never converges.

    The first player wants to match the second, who wants to be one step ahead.

    Examples
    --------
    >>> shapley().payoffs[1].tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]

    References
    ----------
    L. S. Shapley, Some topics in two-person games, 1964.
    """
    match = np.eye(3)
    return Game([match, np.roll(match, 1, axis=1)])


def random_game(shape: tuple[int, ...], *, rng: np.random.Generator) -> Game:
    """Return a game with payoffs drawn independently and uniformly from `[0, 1)`.

    Parameters
    ----------
    shape
        Number of actions of each player.
    rng
        Draws the payoffs.

    Examples
    --------
    >>> random_game((2, 3, 4), rng=np.random.default_rng(0))
    Game(3 players with 2 × 3 × 4 actions)
    """
    if len(shape) < 2:
        raise ParameterError.expected("shape", shape, "numbers of actions of two or more players")
    shape = tuple(whole_number(f"shape[{i}]", n, least=2) for i, n in enumerate(shape))
    return Game([rng.random(shape) for _ in shape])
