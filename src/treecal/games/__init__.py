"""Games: normal form, repeated play of learners, and how far their joint play is from correlated equilibrium."""

from treecal.games._classics import (
    chicken,
    matching_pennies,
    prisoners_dilemma,
    random_game,
    rock_paper_scissors,
    shapley,
)
from treecal.games._normal_form import Game
from treecal.games._play import Play, Player, play

__all__ = [
    "Game",
    "Play",
    "Player",
    "chicken",
    "matching_pennies",
    "play",
    "prisoners_dilemma",
    "random_game",
    "rock_paper_scissors",
    "shapley",
]
