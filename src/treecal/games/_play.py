"""Repeated play: learners play a game against each other, and their joint distribution is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.exceptions import ParameterError
from treecal.games._normal_form import Game, as_distribution
from treecal.streams import checkpoints
from treecal.swap import ActionRegret


@runtime_checkable
class Player(Protocol):
    """Anything that can play: the learners of `treecal.swap`, or any class with these two methods.

    Examples
    --------
    >>> class Stubborn:
    ...     def act(self):
    ...         return [1.0, 0.0]
    ...
    ...     def observe(self, loss):
    ...         pass
    >>> isinstance(Stubborn(), Player)
    True
    """

    def act(self) -> ArrayLike:
        """Return the weights of the player's actions for the coming round."""

    def observe(self, loss: Array, /) -> object:
        """Learn the expected loss, in `[0, 1]`, that each of the player's actions had in the round."""


@dataclass(frozen=True, eq=False, repr=False)
class Play:
    """The result of repeated play. Regrets and gaps are per round and in payoff units.

    Attributes
    ----------
    game
        The game that was played.
    rounds
        Number of rounds.
    joint
        The empirical joint distribution: the mean over rounds of the product of the players' mixtures.
    swap_regrets, external_regrets
        For each player, what it would have gained a round by the best fixed swap of its actions, or by the best single
        action. The largest swap regret is the correlated gap of `joint`.
    checkpoints, gaps
        Rounds, evenly spaced in logarithm, and the correlated gap of the joint play up to each.
    plays
        With `record=True`, the mixtures of each player, a `(rounds, actions)` array each. Otherwise None.
    """

    game: Game
    rounds: int
    joint: Array
    swap_regrets: Array
    external_regrets: Array
    checkpoints: Integers
    gaps: Array
    plays: tuple[Array, ...] | None

    @property
    def correlated_gap(self) -> float:
        """The ε for which the joint play is an ε-correlated equilibrium."""
        return self.game.correlated_gap(self.joint)

    @property
    def coarse_gap(self) -> float:
        """The ε for which the joint play is an ε-coarse correlated equilibrium."""
        return self.game.coarse_gap(self.joint)

    def __repr__(self) -> str:
        return f"Play({self.game!r}: {self.rounds} rounds, correlated gap {self.correlated_gap:.4g})"


def play(
    game: Game,
    players: Sequence[Player],
    *,
    rounds: int,
    record: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Play:
    """Let the players play the game for some rounds, each observing after every round the losses of its own actions.

    In a round all players act, and then each observes the expected loss, scaled to `[0, 1]`, of each of its actions
    against the mixtures of the others. If every player's swap regret vanishes, the joint play approaches the set of
    correlated equilibria (Foster and Vohra 1997); if only external regrets do, that of coarse ones.

    A round costs one pass over the payoffs for each player, besides the players' own work. Players keep what they have
    learned, so a second call resumes from there.

    Parameters
    ----------
    game
        The game.
    players
        One for each player of the game, each with `act()` and `observe(loss)`, in any mix.
    rounds
        Number of rounds.
    record
        Keep every mixture played.
    progress
        Called after every round with the number of rounds played so far and of all rounds.

    Examples
    --------
    >>> from treecal.games import chicken
    >>> from treecal.swap import BlumMansour, Hedge, RegretMatching, TreeSwap
    >>> row = TreeSwap(lambda: RegretMatching(2), arity=16)
    >>> column = BlumMansour(lambda: Hedge(2), actions=2)
    >>> result = play(chicken(), [row, column], rounds=1000)
    >>> result
    Play(Game(2 players with 2 × 2 actions): 1000 rounds, correlated gap 0.06128)
    >>> result.swap_regrets.round(4)
    array([0.036 , 0.0613])
    >>> result.joint.round(2)
    array([[0.06, 0.92],
           [0.  , 0.02]])
    """
    rounds = whole_number("rounds", rounds, least=1)
    _check_players(game, players)
    joint = np.zeros(game.shape)
    regrets = [ActionRegret(n) for n in game.shape]
    plays = tuple(np.empty((rounds, n)) for n in game.shape) if record else None
    marks = checkpoints(rounds)
    gaps = []
    due = set(marks.tolist())
    for t in range(1, rounds + 1):
        mixtures = [
            as_distribution(f"the play of player {i} in round {t}", player.act(), shape=game.shape[i : i + 1])
            for i, player in enumerate(players)
        ]
        losses = game.trusted_losses(mixtures)
        joint += reduce(np.multiply.outer, mixtures)
        for i, (player, x, loss) in enumerate(zip(players, mixtures, losses, strict=True)):
            regrets[i].record(x, loss)
            if plays is not None:
                plays[i][t - 1] = x
            player.observe(loss)
        if t in due:
            gaps.append(game.correlated_gap(joint / t))
        if progress is not None:
            progress(t, rounds)
    return Play(
        game=game,
        rounds=rounds,
        joint=joint / rounds,
        swap_regrets=game.span * [regret.swap() / rounds for regret in regrets],
        external_regrets=game.span * [regret.external() / rounds for regret in regrets],
        checkpoints=marks,
        gaps=np.array(gaps),
        plays=plays,
    )


def _check_players(game: Game, players: Sequence[Player]) -> None:
    if len(players) != game.players:
        raise ParameterError(f"players has length {len(players)}, expected {game.players} for {game!r}.")
    for i, player in enumerate(players):
        if isinstance(player, type) or not isinstance(player, Player):
            raise ParameterError.expected(f"players[{i}]", player, "an object with act() and observe(loss)")
    if len({id(player) for player in players}) < len(players):
        raise ParameterError(
            "players holds one object twice, expected a separate learner for each player.",
            hint="use [Learner(...) for _ in range(n)], not [learner] * n.",
        )
