"""The headline race of the docs: `make arena`, or `python examples/arena.py --folder runs`.

Nine forecasters, eight streams, the simplex with 2, 3, 5, 10 and 50 classes. An interrupted race resumes.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import treecal as tc
from treecal import arena, plots
from treecal.forecasters import REGISTRY

DOCS = Path(__file__).parents[1] / "docs/explanation"
FORECASTERS: dict[str, arena.Maker] = {
    "TreeCal, arity 2": partial(tc.TreeCal, arity=2),
    "AdaptiveTreeCal, block": partial(tc.AdaptiveTreeCal, arity=8, rule="block"),
    **{kind.__name__: kind for kind in REGISTRY.values()},  # TreeCal's arity is 8
}


def main() -> None:
    """Run the race, print its table, and draw its pictures into the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 3, 5, 10, 50])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--folder", default=".arena")
    parser.add_argument("--draw", action="store_true", help="write the pictures of docs/explanation/arena.md")
    options = parser.parse_args()
    table = arena.race(
        FORECASTERS,
        arena.STREAMS,
        [tc.Simplex(dim) for dim in options.dims],
        rounds=options.rounds,
        seeds=range(options.seeds),
        folder=options.folder,
        progress=lambda done, total: print(f"\r{done} of {total} runs ", end="", file=sys.stderr),
    )
    print(arena.show(table))
    if options.draw:
        draw(table)


def draw(table: object) -> None:
    """Draw the pictures of the docs page."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(12, 4.6), layout="constrained")
    plots.plot_ranking(arena.final(table), ax=ax)  # type: ignore[arg-type]
    figure.savefig(DOCS / "arena-ranking.png", dpi=140)
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    tree = {"TreeCal": lambda t: tc.certificate(tc.Simplex(3), "l1", rounds=t, arity=8).bound}
    plots.plot_errors(table, stream="i.i.d.", dim=3, certificates=tree, ax=axes[0])  # type: ignore[arg-type]
    plots.plot_errors(table, stream="against the ledger", dim=3, certificates=tree, ax=axes[1])  # type: ignore[arg-type]
    plots.plot_times(table, ax=axes[2])  # type: ignore[arg-type]
    axes[1].get_legend().remove()
    figure.savefig(DOCS / "arena-curves.png", dpi=140)


if __name__ == "__main__":
    main()
