"""`treecal game`: learners meet in a game, and approach a correlated equilibrium."""

from __future__ import annotations

import json as reader
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from rich.markup import escape
from rich.text import Text

from treecal import games
from treecal.cli._options import Json, Rounds
from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, emit, page, table
from treecal.exceptions import ParameterError
from treecal.swap import BlumMansour, Hedge, InternalRegretMatching, RegretMatching, TreeSwap

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from treecal._typing import Array
    from treecal.games import Game, Play, Player

Learner = Literal["treeswap", "blum-mansour", "internal-regret-matching", "hedge", "regret-matching"]
_CLASSICS = ("chicken", "matching-pennies", "prisoners-dilemma", "rock-paper-scissors", "shapley")
_LEARNERS: dict[Learner, Callable[[int, int], Player]] = {
    "treeswap": lambda actions, arity: TreeSwap(partial(RegretMatching, actions), arity=arity),
    "blum-mansour": lambda actions, _: BlumMansour(partial(Hedge, actions), actions=actions),
    "internal-regret-matching": lambda actions, _: InternalRegretMatching(actions),
    "hedge": lambda actions, _: Hedge(actions),
    "regret-matching": lambda actions, _: RegretMatching(actions),
}
_SHOWN = 36  # profiles; larger joint distributions are for --json


def game(
    name: str,
    /,
    *,
    learner: Learner = "internal-regret-matching",
    arity: int = 16,
    rounds: Rounds = 2000,
    seed: int = 0,
    json: Json = False,
) -> int:
    """Let learners play a game repeatedly, and measure how close they come to a correlated equilibrium.

    The correlated gap is the most that a player would gain per round by a fixed rule "whenever you play a, play b
    instead". internal-regret-matching and blum-mansour drive it to 0 in every game. treeswap brings it below a bound
    that its arity and the rounds set, and no further; hedge and regret-matching need not bring it down at all.

        treecal game chicken
        treecal game shapley --learner hedge --rounds 10000
        treecal game payoffs.json

    Exit codes: 0 success, 2 invalid input, 130 interrupted.

    Parameters
    ----------
    name
        chicken, matching-pennies, prisoners-dilemma, rock-paper-scissors, shapley; or a file: .nfg, or .json with one
        array of payoffs per player.
    learner
        The learner of every player.
    arity
        Arity of treeswap.
    seed
        Random seed of the losses that each learner sees before the first round: from a symmetric start it might never
        move.
    """
    played = getattr(games, name.replace("-", "_"))() if name in _CLASSICS else _read(name)
    if rounds < 1 or seed < 0:
        raise ParameterError(f"--rounds is {rounds} and --seed is {seed}, expected at least 1 and at least 0.")
    players = [_LEARNERS[learner](actions, arity) for actions in played.shape]
    rng = np.random.default_rng(seed)
    for player, actions in zip(players, played.shape, strict=True):
        player.act()
        player.observe(rng.random(actions))
    with progress("rounds") as done:
        result = games.play(played, players, rounds=rounds, progress=done)
    best = played.correlated_equilibrium()
    if json:
        over_time = zip(result.checkpoints, result.gaps, strict=True)
        document = {
            "players": played.players,
            "rounds": result.rounds,
            "correlated_gap": result.correlated_gap,
            "coarse_gap": result.coarse_gap,
            "swap_regrets": result.swap_regrets,
            "over_time": [{"rounds": t, "correlated_gap": gap} for t, gap in over_time],
            "joint": result.joint,
            "payoffs": played.expected_payoffs(result.joint),
            "best_equilibrium": best,
            "best_payoffs": played.expected_payoffs(best),
        }
        emit(document)
    else:
        _print(name, result, best)
    return Exit.FINE


def _read(path: str) -> Game:
    if path.lower().endswith(".nfg"):
        return games.Game.read(path)
    if not path.lower().endswith(".json"):
        near = get_close_matches(path, _CLASSICS, 1)
        hint = f"did you mean {near[0]}?" if near else None
        known = f"{', '.join(_CLASSICS)}, or a file that ends in .json or .nfg"
        raise ParameterError.expected("game", path, known, hint=hint)
    try:
        payoffs = reader.loads(Path(path).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"{path!r} is not JSON: {error}.") from None
    if not isinstance(payoffs, list):
        raise ParameterError(f"{path!r} holds no list, expected one array of payoffs per player.")
    return games.Game(payoffs)


def _print(name: str, result: Play, best: Array) -> None:
    paper = page()
    shown = table("Gap to correlated equilibrium", ">rounds", ">gap", "")
    longest = float(result.gaps.max()) or 1.0
    # About one line for each doubling.
    keep = {int(result.checkpoints.searchsorted(2.0**k)) for k in range(int(result.rounds).bit_length())}
    for i in sorted(i for i in keep | {len(result.gaps) - 1} if i < len(result.gaps)):
        bar = "█" * round(40 * float(result.gaps[i]) / longest)
        shown.add_row(f"{result.checkpoints[i]:,}", f"{result.gaps[i]:.4f}", Text(bar, "cyan"))
    paper.print(shown)
    if result.joint.size <= _SHOWN:
        paper.print(_profiles(result, best))
    got, could = (
        ", ".join(f"{payoff:.3f}" for payoff in result.game.expected_payoffs(joint)) for joint in (result.joint, best)
    )
    paper.print(
        f"After {result.rounds:,} rounds no player of {name} would gain more than {result.correlated_gap:.4f} per "
        f"round by any fixed swap of actions. Payoffs: {got}; in the equilibrium with the greatest sum: {could}.",
        soft_wrap=True,
        markup=False,
    )


def _profiles(result: Play, best: Array) -> Table:
    names = result.game.names
    players = (f">{escape(player)}" for player, _ in names)
    shown = table("Frequency of each profile", *players, ">share", ">best equilibrium")
    for index, share in sorted(np.ndenumerate(result.joint), key=lambda entry: -entry[1]):
        if share >= 5e-4 or best[index] >= 5e-4:
            profile = (Text(actions[k]) for (_, actions), k in zip(names, index, strict=True))
            shown.add_row(*profile, f"{share:.3f}", f"{best[index]:.3f}")
    return shown
