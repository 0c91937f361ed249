"""Which arity? The study of docs/explanation/arity.md: `python examples/arity.py`, about five minutes on two cores.

TreeCal and AdaptiveTreeCal of several arities on the arena's synthetic streams. For each: its ℓ1 error as a multiple of
the best arity's on the same stream, in the geometric mean over streams and dimensions; the worst such multiple; and the
certificate.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import numpy as np
from rich.console import Console
from rich.table import Table

import treecal as tc
from treecal import arena

ARITIES = (2, 3, 4, 6, 8, 16, 32)


def main() -> None:
    """Race the arities and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 5, 20])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--folder", default=".arena")
    options = parser.parse_args()
    console = Console()
    for kind in (tc.TreeCal, tc.AdaptiveTreeCal):
        makers: dict[str, arena.Maker] = {f"{kind.__name__} {a}": partial(kind, arity=a) for a in ARITIES}
        table = arena.race(
            makers,
            arena.STREAMS,
            [tc.Simplex(dim) for dim in options.dims],
            rounds=options.rounds,
            seeds=range(options.seeds),
            folder=options.folder,
            progress=lambda done, total: print(f"\r{done} of {total} runs ", end="", file=sys.stderr),
        )
        errors = arena.final(table)
        columns = sorted({key[:2] for key in errors})
        best = {c: min(errors[*c, name] for name in makers) for c in columns}
        shown = Table("arity", "geometric mean", "worst", "on", "certificate, d = 5", title=kind.__name__)
        for arity, name in zip(ARITIES, makers, strict=True):
            ratios = {c: errors[*c, name] / best[c] for c in columns}
            worst = max(ratios, key=lambda c: ratios[c])
            mean = np.exp(np.mean(np.log(list(ratios.values()))))
            bound = tc.certificate(tc.Simplex(5), "l1", rounds=options.rounds, arity=arity).bound
            certificate = f"{bound:.2f}" if kind is tc.TreeCal else ""
            shown.add_row(str(arity), f"{mean:.2f}", f"{ratios[worst]:.2f}", f"{worst[1]}, {worst[0]}", certificate)
        console.print(shown)


if __name__ == "__main__":
    main()
