"""Draw `correlated-equilibrium.svg`: how fast joint play nears correlated equilibrium, and what it looks like there.

Run it from anywhere; it takes about a minute: python docs/tutorials/correlated_equilibrium.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from treecal import games, plots, swap

ROUNDS = 30_000
GAMES = {
    "Shapley's game": games.shapley(),
    "matching pennies": games.matching_pennies(),
    "chicken": games.chicken(),
    "rock, paper, scissors": games.rock_paper_scissors(),
    "random, 3 players × 3 actions": games.random_game((3, 3, 3), rng=np.random.default_rng(1)),
}
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"]  # told apart by the colour-blind too


def tree(actions: int) -> swap.Learner:
    """Return the swap-regret learner of the tutorial."""
    return swap.TreeSwap(lambda: swap.RegretMatching(actions), arity=16)


def meet(game: games.Game, make: Callable[[int], swap.Learner], *, record: bool = False) -> games.Play:
    """Let learners with different first impressions play."""
    rng = np.random.default_rng(0)
    players = [make(actions) for actions in game.shape]
    for player, actions in zip(players, game.shape, strict=True):
        player.observe(rng.random(actions))
    return games.play(game, players, rounds=ROUNDS, record=record)


def main() -> None:
    """Play, draw, and print the figures the tutorial quotes."""
    with plots.drawing(10.5, 4.6) as figure:
        draw(figure)
        picture = Path(__file__).parent / "correlated-equilibrium.svg"
        picture.write_text(plots.svg(figure), encoding="utf-8")


def draw(figure: Any) -> None:
    left, right = figure.subfigures(1, 2, width_ratios=[1.9, 1])
    curves = left.subplots()
    for colour, (name, game) in zip(COLOURS, GAMES.items(), strict=True):
        result = meet(game, tree)
        print(f"{name}: gap {result.correlated_gap:.4f} after {ROUNDS} rounds")
        curves.loglog(result.checkpoints, result.gaps, color=colour, label=name, lw=1.8)
    shapley = games.shapley()
    hedge = meet(shapley, swap.Hedge, record=True)
    print(f"Shapley's game with Hedge: correlated {hedge.correlated_gap:.4f}, coarse {hedge.coarse_gap:.4f}")
    curves.loglog(hedge.checkpoints, hedge.gaps, color=COLOURS[0], ls="--", lw=1.5, label="Shapley's game, plain Hedge")
    curves.axhline(0.05, color="0.6", lw=0.8, zorder=0)
    curves.text(1.05, 0.053, "0.05", color="0.5", fontsize=9, va="bottom")
    curves.set(xlabel="rounds", ylabel="correlated gap, in payoff units", xlim=(1, ROUNDS))
    curves.set_title("How far joint play is from correlated equilibrium")
    curves.legend(frameon=False, fontsize=9, loc="lower left")

    swapped = meet(shapley, tree, record=True)
    right.suptitle("Joint play in Shapley's game")
    for axes, moment in zip(right.subplots(2, 2).flat, [10, 100, 1_000, ROUNDS], strict=True):
        joint = swapped.plays[0][:moment].T @ swapped.plays[1][:moment] / moment
        axes.imshow(joint, cmap="Blues", vmin=0, vmax=0.3)
        for (row, column), weight in np.ndenumerate(joint):
            shade = "white" if weight > 0.18 else "black"
            axes.text(column, row, f"{weight:.2f}", ha="center", va="center", color=shade, fontsize=9)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.set_title(f"{moment:,} rounds\ngap {shapley.correlated_gap(joint):.3f}", fontsize=9)


if __name__ == "__main__":
    main()
