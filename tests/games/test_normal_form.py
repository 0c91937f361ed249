from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.games.support import any_game, product
from treecal import games
from treecal.exceptions import ParameterError, TreeCalError


@given(any_game(), st.integers(0, 2**32))
def test_losses_are_expectations_over_the_others(game: games.Game, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mixtures = [rng.dirichlet(np.ones(n)) for n in game.shape]
    losses = game.losses(mixtures)
    for player, loss in enumerate(losses):
        expected = np.zeros(game.shape[player])
        for profile in itertools.product(*map(range, game.shape)):
            weight = np.prod([w[a] for i, (w, a) in enumerate(zip(mixtures, profile, strict=True)) if i != player])
            scaled = (game.payoffs[player].max() - game.payoffs[player][profile]) / (game.span[player] or 1.0)
            expected[profile[player]] += weight * scaled
        np.testing.assert_allclose(loss, expected, atol=1e-12)
        assert loss.min() >= 0
        assert loss.max() <= 1
    paid = game.expected_payoffs(product(mixtures))
    for player, loss in enumerate(losses):
        back = game.high[player] - game.span[player] * (mixtures[player] @ loss)
        assert paid[player] == pytest.approx(back, abs=1e-9)


def test_scaling_reaches_both_ends_and_leaves_a_constant_player_without_loss() -> None:
    game = games.Game([[[3, 5], [7, 3]], [[2, 2], [2, 2]]])
    assert game.high.tolist() == [7, 2]
    assert game.span.tolist() == [4, 0]
    first, second = game.losses([[1, 0], [1, 0]])
    assert first.tolist() == [1, 0]
    assert second.tolist() == [0, 0]


def test_a_large_constant_does_not_drown_the_differences() -> None:
    shifted = games.Game([a + 2.0**40 for a in games.shapley().payoffs])
    joint = np.random.default_rng(0).dirichlet(np.ones(9)).reshape(3, 3)
    assert shifted.correlated_gap(joint) == games.shapley().correlated_gap(joint) > 0.05


def test_zero_sum() -> None:
    game = games.rock_paper_scissors()
    assert game == games.Game([game.payoffs[0], -game.payoffs[0]])
    assert hash(game) == hash(games.rock_paper_scissors())
    assert game != games.shapley()


def test_payoffs_are_copied_and_read_only() -> None:
    given = np.eye(2)
    game = games.Game([given, given])
    given[0, 0] = 9
    assert game.payoffs[0][0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        game.payoffs[0][0, 0] = 9


@pytest.mark.parametrize(
    ("payoffs", "problem"),
    [
        (5, "payoffs is 5, expected one array for each player"),
        ([], "length 0"),
        ([[1.0, 2.0]], "length 1.*\n\nHint: for a single player"),
        ([[[1, 2], [3, 4]], [[1, 2, 3], [4, 5, 6]]], r"payoffs\[1\] has shape \(2, 3\), expected \(2, 2\)"),
        ([[1, 2], [3, 4]], r"expected 2 dimensions.*\n\nHint: a zero-sum game"),
        ([np.zeros((2, 2, 2))] * 2, "expected 2 dimensions"),
        ([np.zeros((2, 1))] * 2, "player 1 has 1 action, expected 2 or more"),
        ([np.zeros((0, 2))] * 2, "player 0 has 0 actions"),
        ([[[1, 2], [3, np.nan]]] * 2, r"payoffs\[0\] holds nan at \[1, 1\]"),
        ([[[1, 2], [3, 4]], [[1, 2], [3, -np.inf]]], r"payoffs\[1\] holds -inf"),
        ([[[1, 2], [3, 1e300]]] * 2, "overflow"),
        ([[[1, 2], [3]]] * 2, "not an array of numbers"),
        ([[["a", "b"], ["c", "d"]]] * 2, "expected real numbers"),
    ],
)
def test_bad_payoffs(payoffs: Any, problem: str) -> None:
    with pytest.raises(TreeCalError, match=problem):
        games.Game(payoffs)


def test_bad_mixtures() -> None:
    game = games.chicken()
    with pytest.raises(ParameterError, match="mixtures has length 1, expected 2"):
        game.losses([[0.5, 0.5]])
    with pytest.raises(ParameterError, match=r"mixture of player 1 has shape \(3,\), expected \(2,\)"):
        game.losses([[0.5, 0.5], [0.5, 0.25, 0.25]])


@pytest.mark.parametrize(("shape", "problem"), [((3,), "two or more players"), ((2, 1), r"shape\[1\] is 1")])
def test_bad_random_games(shape: tuple[int, ...], problem: str) -> None:
    with pytest.raises(ParameterError, match=problem):
        games.random_game(shape, rng=np.random.default_rng(0))


def test_importing_games_imports_nothing_heavy() -> None:
    code = "import sys, treecal.games; print({'scipy', 'pygambit', 'pyspiel', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
