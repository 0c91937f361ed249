from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pygambit
import pyspiel
import pytest
from hypothesis import given, settings

from tests.games.support import any_game
from treecal import games
from treecal.exceptions import ParameterError, UnsupportedError


@given(any_game())
@settings(max_examples=30)
def test_gambit_and_its_files_give_back_every_bit(tmp_path_factory: pytest.TempPathFactory, game: games.Game) -> None:
    there = game.to_gambit()
    assert games.Game.from_gambit(there) == game
    path = tmp_path_factory.mktemp("nfg") / "game.nfg"
    path.write_text(there.to_nfg())
    assert games.Game.read(path) == games.Game.read(str(path)) == game


def test_an_nfg_file_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "game.nfg"
    # Payoffs of all players profile by profile, the first player's action moving fastest.
    path.write_text('NFG 1 R "by hand" { "row" "column" } { 2 3 }\n1 -1 2 -2 1/2 0 4 0.25 5 0 6 1e2\n')
    game = games.Game.read(path)
    assert game.names == (("row", ("1", "2")), ("column", ("1", "2", "3")))
    assert game == games.Game(game.payoffs)
    with pytest.raises(ParameterError, match="expected one for each player"):
        games.Game(game.payoffs, names=[("row", ["up", "down"]), ("column", ["left", "right"])])
    assert game.payoffs[0].tolist() == [[1, 0.5, 5], [2, 4, 6]]
    assert game.payoffs[1].tolist() == [[-1, 0, 0], [-2, 0.25, 100]]


def test_an_extensive_gambit_game_is_taken_in_normal_form() -> None:
    poker = pygambit.catalog.load("books/myerson1991/fig2_1")
    game = games.Game.from_gambit(poker)
    assert game.shape == (4, 2)
    np.testing.assert_array_equal(game.payoffs[0], -game.payoffs[1])


def test_bad_nfg_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        games.Game.read(tmp_path / "none.nfg")
    path = tmp_path / "bad.nfg"
    path.write_text('NFG 1 R "short" { "1" "2" } { 2 2 }\n1 2 3\n')
    with pytest.raises(ParameterError, match=r"bad\.nfg is not a game in nfg format: Parse error"):
        games.Game.read(path)
    path.write_text('NFG 1 R "alone" { "1" } { 2 }\n1 2\n')
    with pytest.raises(ParameterError, match="two or more players"):
        games.Game.read(path)


def test_openspiel_matrix_and_tensor_games() -> None:
    assert games.Game.from_openspiel(pyspiel.load_game("matrix_rps")) == games.rock_paper_scissors()
    assert games.Game.from_openspiel(pyspiel.load_game("matrix_mp")) == games.matching_pennies()
    game = games.random_game((2, 3, 4), rng=np.random.default_rng(0))
    assert games.Game.from_openspiel(pyspiel.create_tensor_game(list(game.payoffs))) == game


def test_openspiel_one_shot_games() -> None:
    blotto = games.Game.from_openspiel(pyspiel.load_game("blotto(players=3,coins=4,fields=2)"))
    assert blotto.shape == (5, 5, 5)
    np.testing.assert_array_equal(sum(blotto.payoffs), np.zeros((5, 5, 5)))


def test_openspiel_games_of_several_moves_are_sent_back_with_a_way_out() -> None:
    kuhn = pyspiel.load_game("kuhn_poker")
    with pytest.raises(UnsupportedError, match="extensive_to_tensor_game"):
        games.Game.from_openspiel(kuhn)
    game = games.Game.from_openspiel(pyspiel.extensive_to_tensor_game(kuhn))
    joint = game.correlated_equilibrium()
    assert game.expected_payoffs(joint)[0] == pytest.approx(-1 / 18, abs=1e-9)  # the value of Kuhn poker


@pytest.mark.parametrize("package", ["pygambit", "pyspiel"])
def test_a_missing_package_is_named_with_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    convert = games.Game.from_gambit if package == "pygambit" else games.Game.from_openspiel
    with pytest.raises(
        UnsupportedError, match=rf"{package}.*not installed.*\n\nHint: pip install .*\(the extra games\)"
    ):
        convert(object())


def test_other_objects() -> None:
    with pytest.raises(ParameterError, match="expected a pygambit Game"):
        games.Game.from_gambit("rps")
    with pytest.raises(ParameterError, match="expected an OpenSpiel Game"):
        games.Game.from_openspiel("rps")
