"""TreeSwap against Blum and Mansour as actions grow: time for a round, and rounds to a given swap regret.

The losses are 16 vectors of zeros and ones in which every action loses in exactly 8, so no action is better than
another in itself. Two adversaries say which comes: *turns* plays each for 50 rounds and then the next; *reply* sees the
play and picks the one that costs it most. Since there are only 16 of them, the swap regret of n actions is read exactly
from n × 16 sums at any n, with every swap of actions allowed: no labels, no bounds, no samples.

Blum and Mansour's learners must know the horizon: each figure is the better of two, tuned as their theorem asks to all
rounds and to a quarter of them (less would not be one cycle of turns). TreeSwap grows its tree and knows nothing. Plain
Hedge runs along, up to 1,000 actions, to show which adversary is hard: its external regret is small, its swap regret
need not be. Times are processor time on one thread, of the learner alone.

    python benchmarks/swap.py                          # 10 to 100,000 actions, some four minutes on two cores
    python benchmarks/swap.py --actions 10 100 --rounds 1024
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

# One thread for everyone, and processor time instead of the wall's: other work on the machine then changes little.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from treecal.swap import ActionRegret, BlumMansour, Hedge, Learner, TreeSwap, treeswap_bound

Array = NDArray[np.float64]
TYPES, STRETCH = 16, 50
EXACT_BELOW = 200  # up to so many actions the swap regret is also recorded plainly, as a check on the benchmark itself


class Run(NamedTuple):
    """What one learner did against one adversary."""

    per_round: float  # median seconds of processor time
    regrets: dict[int, float]  # swap regret per round after so many rounds
    seconds: dict[int, float]  # the learner's own time until then
    rounds: int  # rounds played before time was up

    def reached(self, goal: float) -> tuple[int, float] | None:
        """The first checkpoint from which on the regret stays at or below the goal, and the time until then."""
        found = None
        for rounds in sorted(self.regrets, reverse=True):
            if self.regrets[rounds] > goal:
                break
            found = rounds, self.seconds[rounds]
        return found


def loss_vectors(actions: int, rng: np.random.Generator) -> Array:
    """TYPES vectors, (TYPES, actions), in which each action has as many ones as zeros."""
    return np.ascontiguousarray(rng.permuted(np.arange(TYPES) % 2 * np.ones((actions, 1)), axis=1).T)


def swap_regret(played: Array, losses: Array) -> float:
    """Σ_a max_b Σ_t x_t(a)(ℓ_t(a) − ℓ_t(b)), from the weight, (TYPES, actions), each action had under each loss."""
    others = np.unique(losses, axis=1)  # actions that never differ are one and the same alternative
    least = [(played[:, i : i + 200].T @ others).min(axis=1).sum() for i in range(0, played.shape[1], 200)]
    return float(np.vdot(played, losses)) - math.fsum(least)


def run(learner: Learner, *, adversary: str, actions: int, rounds: int, budget: float) -> Run:
    losses = loss_vectors(actions, np.random.default_rng(actions))
    played = np.zeros((TYPES, actions))
    plain = ActionRegret(actions) if actions <= EXACT_BELOW else None
    regrets, seconds, times, spent, t = {}, {}, [], 0.0, 0
    while t < rounds and spent < budget:
        before = time.process_time()
        x = learner.act()
        acted = time.process_time() - before
        kind = (t // STRETCH) % TYPES if adversary == "turns" else int(np.argmax(losses @ x))
        before = time.process_time()
        learner.observe(losses[kind])
        times.append(acted + time.process_time() - before)
        spent += times[-1]
        played[kind] += x
        t += 1
        if plain is not None:
            plain.record(x, losses[kind])
        if t >= 64 and t & (t - 1) == 0:  # powers of two
            regrets[t], seconds[t] = swap_regret(played, losses) / t, spent
            assert plain is None or abs(plain.swap() / t - regrets[t]) < 1e-9
    return Run(float(np.median(times)), regrets, seconds, t)


def guaranteed(actions: int, goal: float) -> tuple[float, float]:
    """Rounds after which the worst case is below the goal: Blum–Mansour's, and TreeSwap's with its best tree."""
    best = math.inf
    for depth in range(1, 60):
        left = goal - 1 / depth
        if left > 0:
            arity = max(2, math.ceil(math.log(actions) / (2 * left * left)))
            eta, rounds = math.sqrt(8 * math.log(actions) / arity), arity**depth

            def regret(steps: int, eta: float = eta) -> float:  # Hedge's, without making one of 10^9 actions
                return math.log(actions) / eta + eta * steps / 8

            if rounds < 2**63:  # those of larger trees cannot be counted
                assert treeswap_bound(rounds, arity=arity, depth=depth, regret=regret) <= 1.000001 * goal * rounds
            best = min(best, rounds)
    return actions * math.log(actions) / (2 * goal * goal), best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, nargs="+", default=[10, 100, 1000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=4096, help="the horizon")
    parser.add_argument("--arity", type=int, default=16, help="of TreeSwap's tree")
    parser.add_argument("--goals", type=float, nargs=2, default=[0.2, 0.1], help="swap regrets per round to reach")
    parser.add_argument("--seconds", type=float, default=25.0, help="for one learner against one adversary")
    parser.add_argument("--memory", type=float, default=0.5, help="GB that an n by n matrix may take")
    options = parser.parse_args()
    console, T = Console(width=120), options.rounds
    table = Table(title="Rounds to a swap regret per round, and the learner's own time until then")
    table.add_column("actions", justify="right")
    table.add_column("learner", no_wrap=True)
    table.add_column("ms a round", justify="right")
    columns = [(adversary, goal) for adversary in ("turns", "reply") for goal in options.goals]
    for adversary, goal in columns:
        table.add_column(f"{adversary}: {goal:g}", justify="right")
    table.add_column("at the end", justify="right", no_wrap=True)
    wins: list[str] = []
    for n in options.actions:
        learners: dict[str, list[tuple[int, Callable[[], Learner]]]] = {
            "TreeSwap": [(T, partial(TreeSwap, partial(Hedge, n, rounds=options.arity), arity=options.arity))],
            "Blum–Mansour": [
                (h, partial(BlumMansour, partial(Hedge, n, rounds=max(1, h // n)), actions=n)) for h in (T, T // 4)
            ],
            "Hedge alone": [(T, partial(Hedge, n, rounds=T))],
        }
        best: dict[tuple[str, str, float], tuple[int, float] | None] = {}
        for name, makers in learners.items():
            if name == "Hedge alone" and n > 1000:
                continue
            if name == "Blum–Mansour" and 8e-9 * n * n > options.memory:
                table.add_row(f"{n:,}", name, *["–"] * (len(columns) + 2))
                wins.append(f"{n:>9,}  Blum–Mansour not run: n by n matrices of {8e-9 * n * n:.3g} GB, n³ work a round")
                continue
            with console.status(f"{n:,} actions, {name}"):
                runs = {
                    a: [run(make(), adversary=a, actions=n, rounds=h, budget=options.seconds) for h, make in makers]
                    for a in ("turns", "reply")
                }
            cells = []
            for adversary, goal in columns:
                found = min(filter(None, (r.reached(goal) for r in runs[adversary])), default=None)
                best[name, adversary, goal] = found
                most = max(r.rounds for r in runs[adversary])
                cells.append(f"{found[0]} ({duration(found[1])})" if found else f"> {most}")
            ends = " / ".join(f"{list(r[0].regrets.values())[-1]:.3f}" if r[0].regrets else "?" for r in runs.values())
            pace = np.median([r.per_round for parts in runs.values() for r in parts])
            table.add_row(f"{n:,}", name, f"{1e3 * pace:.3g}", *cells, ends)
        table.add_section()
        for adversary, goal in columns:
            tree, rival = best["TreeSwap", adversary, goal], best.get(("Blum–Mansour", adversary, goal))
            alone = "" if ("Blum–Mansour", adversary, goal) in best else " (TreeSwap alone tried)"
            wins.append(f"{n:>9,}  {adversary} {goal:g}: {verdict(tree, rival)}{alone}")
    console.print(table)
    console.print("Where each wins (checkpoints are powers of 2; > means not within those rounds):")
    console.print("\n".join(wins), highlight=False)
    worst = Table(title="Rounds after which no adversary at all can do worse: n ln n/(2ε²), and the best tree's")
    for heading in ("actions", "ε", "Blum–Mansour", "TreeSwap", "fewer rounds"):
        worst.add_column(heading, justify="right")
    for n in [*options.actions, 10**6, 10**9]:
        for goal in (0.5, options.goals[0]):
            rival_rounds, tree_rounds = guaranteed(n, goal)
            fewer = "TreeSwap" if tree_rounds < rival_rounds else "Blum–Mansour"
            worst.add_row(f"{n:,}", f"{goal:g}", f"{rival_rounds:.2g}", f"{tree_rounds:.2g}", fewer)
    console.print(worst)


def duration(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def verdict(tree: tuple[int, float] | None, rival: tuple[int, float] | None) -> str:
    if tree is None or rival is None:
        return "TreeSwap" if tree else "Blum–Mansour" if rival else "neither"
    by_rounds = "a tie" if tree[0] == rival[0] else "TreeSwap" if tree[0] < rival[0] else "Blum–Mansour"
    return f"{by_rounds} by rounds, {'TreeSwap' if tree[1] < rival[1] else 'Blum–Mansour'} by time"


if __name__ == "__main__":
    main()
