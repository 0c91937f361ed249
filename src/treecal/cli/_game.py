"""`treecal game`: learners meet in a game, and reach a correlated equilibrium."""

from __future__ import annotations

import json as reader
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.table import Table
from rich.text import Text

from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, emit, page
from treecal.exceptions import ParameterError

if TYPE_CHECKING:
    from treecal._typing import Array
    from treecal.games import Game, Play, Player

Learns = Literal["treeswap", "blum-mansour", "internal-regret-matching", "hedge", "regret-matching"]
_CLASSICS = ("chicken", "matching-pennies", "prisoners-dilemma", "rock-paper-scissors", "shapley")
_SHOWN = 36  # profiles; larger joint distributions are for --json


def game(
    which: str,
    /,
    *,
    learner: Learns = "treeswap",
    arity: int = 16,
    rounds: int = 2000,
    seed: int = 0,
    json: bool = False,
) -> int:
    """Let learners play a game over and over, and show how near they come to a correlated equilibrium.

    The gap is the most that any one player would gain a round by a fixed rule "whenever you play a, play b instead".
    Learners without swap regret (treeswap, blum-mansour, internal-regret-matching) drive it to nothing in every game;
    hedge and regret-matching need not.

        treecal game chicken

        treecal game shapley --learner hedge --rounds 10000

        treecal game payoffs.json

    Exit codes: 0 fine, 2 bad input, 130 interrupted.

    Parameters
    ----------
    which
        chicken, matching-pennies, prisoners-dilemma, rock-paper-scissors, shapley; or a file: .nfg, or .json with one
        array of payoffs for each player.
    learner
        Who plays, on all sides.
    arity
        TreeSwap's.
    rounds
        How often they meet.
    seed
        Each learner first sees one round of losses by chance: a start in perfect balance would never be left.
    json
        Write one JSON document.
    """
    import numpy as np

    from treecal import games

    played = getattr(games, which.replace("-", "_"))() if which in _CLASSICS else _read(which)
    if rounds < 1 or seed < 0:
        raise ParameterError(f"--rounds is {rounds} and --seed {seed}, expected 1 or more, and 0 or more.")
    players: list[Player] = [_player(learner, actions, arity) for actions in played.shape]
    rng = np.random.default_rng(seed)
    for player, actions in zip(players, played.shape, strict=True):
        player.act()
        player.observe(rng.random(actions))
    with progress("rounds") as done:
        result = games.play(played, players, rounds=rounds, progress=done)
    best = played.correlated_equilibrium()
    if json:
        _emit(result, best)
    else:
        _print(which, result, best)
    return Exit.FINE


def _player(learner: Learns, actions: int, arity: int) -> Player:
    from treecal.swap import BlumMansour, Hedge, InternalRegretMatching, RegretMatching, TreeSwap

    match learner:
        case "treeswap":
            return TreeSwap(partial(RegretMatching, actions), arity=arity)
        case "blum-mansour":
            return BlumMansour(partial(Hedge, actions), actions=actions)
        case "internal-regret-matching":
            return InternalRegretMatching(actions)
        case "hedge":
            return Hedge(actions)
        case "regret-matching":
            return RegretMatching(actions)


def _read(path: str) -> Game:
    from treecal.games import Game

    if path.lower().endswith(".nfg"):
        return Game.read(path)
    if not path.lower().endswith(".json"):
        raise ParameterError.expected("game", path, f"{', '.join(_CLASSICS)}, or a file that ends in .json or .nfg")
    try:
        payoffs = reader.loads(Path(path).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"{path!r} is not JSON: {error}.") from None
    if not isinstance(payoffs, list):
        raise ParameterError(f"{path!r} holds no list, expected one array of payoffs for each player.")
    return Game(payoffs)


def _emit(result: Play, best: Array) -> None:
    emit(
        {
            "players": result.game.players,
            "rounds": result.rounds,
            "gap": result.correlated_gap,
            "coarse_gap": result.coarse_gap,
            "swap_regrets": result.swap_regrets,
            "over_time": [{"rounds": t, "gap": g} for t, g in zip(result.checkpoints, result.gaps, strict=True)],
            "joint": result.joint,
            "payoffs": result.game.expected_payoffs(result.joint),
            "best_equilibrium": best,
            "best_payoffs": result.game.expected_payoffs(best),
        }
    )


def _print(name: str, result: Play, best: Array) -> None:
    paper = page()
    table = Table(title="Gap to correlated equilibrium", title_justify="left")
    table.add_column("rounds", justify="right")
    table.add_column("gap", justify="right")
    table.add_column("")
    longest = float(result.gaps.max()) or 1.0
    # About one line for each doubling.
    keep = {int(result.checkpoints.searchsorted(2.0**k)) for k in range(int(result.rounds).bit_length())}
    for i in sorted(i for i in keep | {len(result.gaps) - 1} if i < len(result.gaps)):
        bar = "█" * round(40 * float(result.gaps[i]) / longest)
        table.add_row(f"{result.checkpoints[i]:,}", f"{result.gaps[i]:.4f}", Text(bar, "cyan"))
    paper.print(table)
    if result.joint.size <= _SHOWN:
        paper.print(_profiles(result, best))
    got, could = (result.game.expected_payoffs(joint) for joint in (result.joint, best))
    paper.print(
        f"After {result.rounds:,} rounds no player of {name} would gain more than {result.correlated_gap:.4f} a round "
        f"by any fixed swap of actions. Payoffs: {_numbers(got)}; in the equilibrium with the greatest sum: "
        f"{_numbers(could)}.",
        soft_wrap=True,
        markup=False,
    )


def _profiles(result: Play, best: Array) -> Table:
    table = Table(title="How often each profile was played", title_justify="left")
    for i in range(result.game.players):
        table.add_column(f"player {i + 1}", justify="right")
    table.add_column("share", justify="right")
    table.add_column("best equilibrium", justify="right")
    for index, share in sorted(_entries(result.joint), key=lambda each: -each[1]):
        if share >= 5e-4 or best[index] >= 5e-4:
            table.add_row(*(str(action) for action in index), f"{share:.3f}", f"{best[index]:.3f}")
    return table


def _entries(joint: Array) -> list[tuple[tuple[int, ...], float]]:
    import numpy as np

    return [(index, float(share)) for index, share in np.ndenumerate(joint)]


def _numbers(values: Array) -> str:
    return ", ".join(f"{value:.3f}" for value in values)
