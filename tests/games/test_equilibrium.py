from __future__ import annotations

from typing import Any

import numpy as np
import pygambit
import pyspiel
import pytest
from hypothesis import example, given, strategies as st

from tests.games.support import any_game, game_and_joint, literal_gaps, product
from treecal import games
from treecal._typing import Array
from treecal.exceptions import ParameterError, TreeCalError
from treecal.games import _normal_form as normal_form

seeds = st.integers(0, 2**32)


@given(game_and_joint())
def test_gaps_are_those_of_the_definition(pair: tuple[games.Game, Array]) -> None:
    game, joint = pair
    correlated, coarse = literal_gaps(game, joint)
    assert game.correlated_gap(joint) == pytest.approx(correlated, abs=1e-9)
    assert game.coarse_gap(joint) == pytest.approx(coarse, abs=1e-9)


def openspiel_gaps(game: games.Game, joint: Array) -> tuple[float, float]:
    """OpenSpiel's own measure, from a device that draws a profile and tells each player its part."""
    turns = pyspiel.convert_to_turn_based(pyspiel.create_tensor_game(list(game.payoffs)))
    state, told = turns.new_initial_state(), []
    while not state.is_terminal():
        told.append(state.information_state_string())
        state.apply_action(0)
    device = []
    for profile in np.ndindex(*game.shape):
        parts = {
            where: [(b, float(b == a)) for b in range(n)] for where, a, n in zip(told, profile, game.shape, strict=True)
        }
        device.append((float(joint[profile]), pyspiel.TabularPolicy(parts)))
    correlated, coarse = pyspiel.ce_dist(turns, device), pyspiel.cce_dist(turns, device)
    return max(correlated.deviation_incentives), max(coarse.deviation_incentives)


@pytest.mark.parametrize("shape", [(2, 2), (3, 4), (2, 3, 2), (2, 2, 2, 2)])
def test_gaps_are_those_of_openspiel(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape))
    for _ in range(5):
        game = games.random_game(shape, rng=rng)
        joint = rng.dirichlet(np.full(game.payoffs[0].size, 0.3)).reshape(shape)
        correlated, coarse = openspiel_gaps(game, joint)
        assert game.correlated_gap(joint) == pytest.approx(correlated, abs=1e-12)
        assert game.coarse_gap(joint) == pytest.approx(coarse, abs=1e-12)


def nash_equilibria(game: games.Game) -> list[Array]:
    """Joint distributions of the Nash equilibria Gambit finds: all extreme ones of two players, else by polynomials."""
    there = game.to_gambit()
    if game.players == 2:
        found = pygambit.nash.enummixed_solve(there, rational=False).equilibria
    else:
        found = pygambit.nash.enumpoly_solve(there).equilibria
    return [
        product([np.array([float(x[p][s]) for s in there.get_strategies(p)]) for p in there.players]) for x in found
    ]


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (4, 3), (2, 2, 2), (3, 2, 2)])
def test_nash_equilibria_have_no_gap_and_lie_within_what_the_program_finds(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(shape[0])
    for _ in range(3):
        game = games.random_game(shape, rng=rng)
        equilibria = nash_equilibria(game)
        assert equilibria
        welfare = game.expected_payoffs(game.correlated_equilibrium()).sum()
        best = game.expected_payoffs(game.correlated_equilibrium(objective=0))[0]
        worst = game.expected_payoffs(game.correlated_equilibrium(objective=-game.payoffs[0]))[0]
        for joint in equilibria:
            assert game.correlated_gap(joint) < 1e-6  # Gambit's tolerance on polynomial systems
            paid = game.expected_payoffs(joint)
            assert paid.sum() <= welfare + 1e-6
            assert worst - 1e-6 <= paid[0] <= best + 1e-6


# HiGHS with its presolve calls the program of the coarse equilibrium infeasible.
PRESOLVED = games.Game(
    [
        [[-775, -774, -774, -774], [-776, -774, -774, -774], [-777, -773, -710, -774], [-776, -772, 0, -774]],
        [[-6, 775, 774, 774], [774, 1254, 774, 774], [774, 774, 774, 774], [150, 535, 774, 775]],
    ]
)


@example(PRESOLVED)
@given(any_game())
def test_solved_equilibria_have_no_gap(game: games.Game) -> None:
    scale = max(1.0, game.span.max())
    correlated, coarse = game.correlated_equilibrium(), game.coarse_equilibrium()
    assert game.correlated_gap(correlated) <= 1e-9 * scale
    assert game.coarse_gap(coarse) <= 1e-9 * scale
    better = game.expected_payoffs(coarse).sum() - game.expected_payoffs(correlated).sum()
    assert better >= -1e-8 * scale * game.players  # every correlated equilibrium is a coarse one


@pytest.mark.parametrize("shape", [(20, 30), (8, 8, 8), (3, 3, 3, 3)])
def test_solved_equilibria_of_larger_games(shape: tuple[int, ...]) -> None:
    game = games.random_game(shape, rng=np.random.default_rng(1))
    for objective in ("welfare", 1, np.random.default_rng(2).standard_normal(shape)):
        assert game.correlated_gap(game.correlated_equilibrium(objective=objective)) <= 1e-9


def test_there_are_more_coarse_equilibria() -> None:
    game, draws = games.rock_paper_scissors(), np.eye(3)
    coarse, correlated = game.coarse_equilibrium(objective=draws), game.correlated_equilibrium(objective=draws)
    # Always drawing leaves no single action to gain by; but whoever is told rock knows that the other plays it too.
    np.testing.assert_allclose(coarse, draws / 3, atol=1e-9)
    assert game.correlated_gap(coarse) == pytest.approx(1)
    np.testing.assert_allclose(correlated, 1 / 9, atol=1e-9)


def test_a_solution_with_a_gap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normal_form, "GAP", -1.0)
    with pytest.raises(TreeCalError, match="expected at most -1"):
        games.chicken().correlated_equilibrium()


@pytest.mark.parametrize(
    ("joint", "problem"),
    [
        ([0.5, 0.5], r"joint has shape \(2,\), expected \(2, 2\)"),
        ([[0.5, 0.5], [0.5, 0.5]], "joint sums to 2, expected 1 within 1e-09"),
        ([[1.5, -0.5], [0.0, 0.0]], r"joint is -0.5 at \[0, 1\], expected 0 or more"),
        ([[np.nan, 0.5], [0.5, 0.0]], r"joint holds nan at \[0, 0\]"),
        ([[1e308, 1e308], [0.0, 0.0]], "joint sums to inf"),
        ("abcd", "expected real numbers"),
    ],
)
def test_bad_joints(joint: Any, problem: str) -> None:
    game = games.chicken()
    for read in (game.correlated_gap, game.coarse_gap, game.expected_payoffs):
        with pytest.raises(ParameterError, match=problem):
            read(joint)


@pytest.mark.parametrize(
    ("objective", "problem"),
    [
        ("wealth", "'wealth', expected \"welfare\""),
        (2, "objective is 2, expected a player's number, below 2"),
        (True, "objective is True"),
        (-1, "objective is -1"),
        ([1, 2], r"objective has shape \(2,\), expected \(2, 2\)"),
        ([[1, 2], [3, np.inf]], "objective holds inf"),
    ],
)
def test_bad_objectives(objective: Any, problem: str) -> None:
    for solve in (games.chicken().correlated_equilibrium, games.chicken().coarse_equilibrium):
        with pytest.raises(ParameterError, match=problem):
            solve(objective=objective)
