from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.games.support import any_game, literal_gaps, product
from tests.some import some
from treecal import games, swap
from treecal._typing import Array
from treecal.exceptions import ParameterError

CLASSICS = {
    "shapley": games.shapley(),
    "matching pennies": games.matching_pennies(),
    "chicken": games.chicken(),
    "rock paper scissors": games.rock_paper_scissors(),
    "random": games.random_game((3, 3, 3), rng=np.random.default_rng(1)),
}
LEARNERS = {
    "TreeSwap of regret matching": lambda n: swap.TreeSwap(lambda: swap.RegretMatching(n), arity=16),
    "Blum and Mansour": lambda n: swap.BlumMansour(lambda: swap.Hedge(n), actions=n),
}


class Noise:
    """Plays at random, keeps what it is told."""

    def __init__(self, actions: int, seed: int) -> None:
        self.actions, self.rng = actions, np.random.default_rng(seed)
        self.seen: list[Array] = []

    def act(self) -> Array:
        return self.rng.dirichlet(np.full(self.actions, 0.5))

    def observe(self, loss: Array) -> None:
        self.seen.append(loss)


def opinionated(make: Any, game: games.Game, seed: int = 0) -> list[swap.Learner]:
    """Learners that start apart: uniform play is an equilibrium of half of these games, and nobody would ever move."""
    rng, players = np.random.default_rng(seed), [make(n) for n in game.shape]
    for player, n in zip(players, game.shape, strict=True):
        player.observe(rng.random(n))
    return players


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("name", some(CLASSICS, every=3))
def test_swap_learners_reach_correlated_equilibrium(name: str, learner: str) -> None:
    game = CLASSICS[name]
    result = games.play(game, opinionated(LEARNERS[learner], game), rounds=3500)
    assert result.gaps.max() > 0.05
    assert result.correlated_gap < 0.05


def test_in_shapleys_game_hedge_finds_only_a_coarse_equilibrium_and_a_tree_of_it_a_correlated_one() -> None:
    game = games.shapley()
    hedge = games.play(game, opinionated(swap.Hedge, game), rounds=3000)
    assert hedge.coarse_gap < 0.01
    assert hedge.correlated_gap > 0.1
    tree = games.play(
        game, opinionated(lambda n: swap.TreeSwap(lambda: swap.Hedge(n, rounds=16), arity=16), game), rounds=3000
    )
    assert tree.correlated_gap < 0.01


@given(any_game(), st.integers(0, 2**32), st.integers(1, 40))
@settings(max_examples=25)
def test_the_books_agree(game: games.Game, seed: int, rounds: int) -> None:
    players = [Noise(n, seed + i) for i, n in enumerate(game.shape)]
    result = games.play(game, players, rounds=rounds, record=True)
    assert result.plays is not None
    profiles = [[x[t] for x in result.plays] for t in range(rounds)]
    np.testing.assert_allclose(result.joint, np.mean([product(p) for p in profiles], axis=0), atol=1e-12)
    scale = max(1.0, game.span.max())
    # The gap of the joint play is the largest swap regret; both in payoff units.
    assert result.correlated_gap == pytest.approx(result.swap_regrets.max(), abs=1e-9 * scale)
    assert result.coarse_gap == pytest.approx(max(0.0, result.external_regrets.max()), abs=1e-9 * scale)
    assert literal_gaps(game, result.joint) == pytest.approx(
        (result.correlated_gap, result.coarse_gap), abs=1e-9 * scale
    )
    assert result.checkpoints[0] == 1
    assert result.checkpoints[-1] == result.rounds == rounds
    for t, gap in zip(result.checkpoints, result.gaps, strict=True):
        early = np.mean([product(p) for p in profiles[:t]], axis=0)
        assert gap == pytest.approx(game.correlated_gap(early), abs=1e-9 * scale)
    for t, mixtures in enumerate(profiles):  # what each saw, it saw of the others' play in that round
        for player, loss in zip(players, game.losses(mixtures), strict=True):
            np.testing.assert_allclose(player.seen[t], loss, atol=1e-12)


def test_play_goes_on_with_what_was_learned() -> None:
    game = games.chicken()
    whole = games.play(game, opinionated(swap.Hedge, game), rounds=200, record=True)
    players = opinionated(swap.Hedge, game)
    parts = [games.play(game, players, rounds=n, record=True) for n in (50, 150)]
    for i in range(game.players):
        assert whole.plays is not None
        np.testing.assert_array_equal(whole.plays[i], np.concatenate([p.plays[i] for p in parts if p.plays]))
    assert games.play(game, players, rounds=1).plays is None


class Script:
    """Plays what it was given, in order."""

    def __init__(self, *plays: Any) -> None:
        self.plays = list(plays)

    def act(self) -> Any:
        return self.plays.pop(0)

    def observe(self, loss: Array) -> None:
        pass


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ([0.5, 0.25, 0.25], r"has shape \(3,\), expected \(2,\)"),
        ([1.5, -0.5], r"is -0.5 at \[1\], expected 0 or more"),
        ([np.nan, 1.0], r"holds nan at \[0\], expected finite"),
        ([0.5, 0.4], "sums to 0.9, expected 1 within 1e-09"),
        (0.5, r"has shape \(\)"),
        (None, "holds object values, expected real numbers"),
    ],
)
def test_bad_weights_are_laid_at_the_players_door(bad: Any, problem: str) -> None:
    players: list[games.Player] = [swap.Hedge(2), Script([0.5, 0.5], bad)]
    with pytest.raises(ParameterError, match=f"the play of player 1 in round 2 {problem}"):
        games.play(games.chicken(), players, rounds=5)


def test_rounding_in_the_weights_is_forgiven() -> None:
    players = [Script([1 + 1e-12, -1e-12]), Script([0.5, 0.5])]
    result = games.play(games.chicken(), players, rounds=1)
    assert result.joint.min() == 0
    assert result.joint.sum() == 1


def test_bad_players() -> None:
    game, one = games.chicken(), swap.Hedge(2)
    with pytest.raises(ParameterError, match="players has length 1, expected 2"):
        games.play(game, [one], rounds=1)
    with pytest.raises(ParameterError, match=r"one object twice.*\n\nHint"):
        games.play(game, [one, one], rounds=1)
    strangers: list[Any] = [object(), swap.Hedge]
    for other in strangers:
        with pytest.raises(ParameterError, match=r"players\[1\] is .* expected an object with act"):
            games.play(game, [one, other], rounds=1)
    for rounds in (0, 2.5, True):
        with pytest.raises(ParameterError, match="rounds is"):
            games.play(game, [one, swap.Hedge(2)], rounds=rounds)  # type: ignore[arg-type]


def test_progress_is_called_after_every_round() -> None:
    game, told = games.chicken(), list[tuple[int, int]]()
    games.play(game, opinionated(swap.Hedge, game), rounds=3, progress=lambda *counts: told.append(counts))
    assert told == [(1, 3), (2, 3), (3, 3)]
