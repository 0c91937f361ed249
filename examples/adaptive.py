"""AdaptiveTreeCal against TreeCal of the same arity, at length: `python examples/adaptive.py`, about twenty minutes.

The arena's streams, 2, 5 and 20 classes, 10^4 rounds and for the first four kinds 10^5, means over five seeds of the
exact ℓ1 error. The error is kept as `Σ_p ‖V_p‖₁`, `V_p = Σ_t x_t(p)(y_t − p)`: what a ledger would give, at a
fraction of its cost.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np
from rich.console import Console
from rich.table import Table

import treecal as tc
from treecal import arena
from treecal.forecast import Forecast
from treecal.streams import Adversary, LedgerAdversary

KINDS = ("i.i.d.", "regimes of 997", "against the mean", "against the ledger")
KINDS += tuple(kind for kind in arena.STREAMS if kind not in KINDS)
LONG = 20_000  # rounds, beyond which only the first four are raced
MAKERS = {"TreeCal": lambda space: tc.TreeCal(space, arity=4), "AdaptiveTreeCal": tc.AdaptiveTreeCal}


class Tally(LedgerAdversary):
    """The biases that the ledger adversary keeps, for outcomes from any source."""

    def record(self, forecast: Forecast, outcome: np.ndarray) -> None:
        """Record one round."""
        for point, weight in zip(forecast.points + 0.0, forecast.weights, strict=True):
            name = point.tobytes()
            self._biases[name] = self._biases.get(name, 0.0) + weight * (outcome - point)

    def error(self, rounds: int) -> float:
        """Return the exact error per round."""
        return float(self.norm(np.array(list(self._biases.values()))).sum()) / rounds


def run(job: tuple[str, str, int, int, int]) -> float:
    """Return the error of one forecaster on one stream."""
    name, kind, dim, rounds, seed = job
    space, rng = tc.Simplex(dim), np.random.default_rng([KINDS.index(kind), dim, seed])
    forecaster, tally = MAKERS[name](space), Tally(space, rng=rng)
    stream = arena.STREAMS[kind](space, rounds, rng)
    for t in range(rounds):
        x = forecaster.predict()
        if isinstance(stream, LedgerAdversary):
            y = tally.outcome(x)  # which records the round as well
        else:
            y = stream.outcome(x) if isinstance(stream, Adversary) else stream[t]
            tally.record(x, y)
        forecaster.update(y)
    return tally.error(rounds)


def main() -> None:
    """Race them and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, nargs="+", default=[10**4, 10**5])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    table = Table("stream", "classes", "rounds", "TreeCal", "AdaptiveTreeCal", "ratio of means")
    with ProcessPoolExecutor() as pool:
        for rounds, kind, dim in product(options.rounds, KINDS, (2, 5, 20)):
            if rounds > LONG and kind not in KINDS[:4]:
                continue
            jobs = [(name, kind, dim, rounds, seed) for name in MAKERS for seed in range(options.seeds)]
            errors = np.reshape(list(pool.map(run, jobs)), (len(MAKERS), -1)).mean(axis=1)
            cells = [f"{rounds:,}", *(f"{error:.4f}" for error in errors), f"{errors[1] / errors[0]:.3f}"]
            table.add_row(kind, str(dim), *cells)
            print(kind, dim, *cells, flush=True)
    Console().print(table)


if __name__ == "__main__":
    main()
