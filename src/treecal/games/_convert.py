"""Games from and to other packages: pygambit, its `.nfg` files, and OpenSpiel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from treecal._optional import require
from treecal._typing import Array
from treecal.exceptions import ParameterError, TreeCalError, UnsupportedError


def _package(name: str) -> Any:
    return require(name, extra="games", what="exchanging games")


def payoffs_of_gambit(game: Any) -> list[Array]:
    """Return each player's payoffs in a pygambit game."""
    if not isinstance(game, _package("pygambit").Game):
        raise ParameterError.expected("game", game, "a pygambit Game")
    # Gambit's numbers are exact, rational or decimal: each is rounded once.
    try:
        return [np.array(array, dtype=np.float64) for array in game.to_arrays(dtype=float)]
    except OverflowError:
        raise ParameterError("a payoff of the game is too large for a float, expected less than 1.8e308.") from None


def payoffs_of_nfg(path: str | os.PathLike[str]) -> list[Array]:
    """Return each player's payoffs in an `.nfg` file."""
    gambit = _package("pygambit")
    try:
        return payoffs_of_gambit(gambit.read_nfg(os.fspath(path)))
    except TreeCalError:
        raise
    except ValueError as error:
        raise ParameterError(f"{os.fspath(path)} is not a game in nfg format: {error}") from None


def gambit_game(payoffs: Sequence[Array]) -> Any:
    """Return the pygambit game of these payoffs."""
    return _package("pygambit").StrategicGame.from_arrays(*payoffs)


def payoffs_of_openspiel(game: Any) -> list[Array]:
    """Return each player's payoffs in an OpenSpiel game of one simultaneous move."""
    spiel = _package("pyspiel")
    if not isinstance(game, spiel.Game):
        raise ParameterError.expected("game", game, "an OpenSpiel Game", hint="pyspiel.load_game(name) makes one.")
    if not isinstance(game, spiel.MatrixGame | spiel.TensorGame):
        if game.get_type().information != spiel.GameType.Information.ONE_SHOT:
            raise UnsupportedError.by(
                game,
                "payoff arrays",
                "it is played over several moves",
                hint="pyspiel.extensive_to_tensor_game(game) converts a small one; the result is exponentially larger.",
            )
        game = spiel.extensive_to_tensor_game(game)
    return [np.array(game.player_utilities(i), dtype=np.float64) for i in range(game.num_players())]
