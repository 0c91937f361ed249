"""The headline race of the docs: `make arena`, or `python examples/arena.py`. It resumes when interrupted.

Every forecaster of the registry, and two variants; eight streams on the simplex with 2, 3, 5, 10 and 50 classes over
1,000, 10,000 and 100,000 rounds, seeds 0 to 4, and four real streams. To race a forecaster again after a change, remove
its files from the folder: `rm .arena/guarded-*`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

import treecal as tc
from treecal import arena, plots
from treecal.forecasters import REGISTRY

DOCS = Path(__file__).parents[1] / "docs/explanation"
FORECASTERS: dict[str, arena.Maker] = {
    **{kind.__name__: kind for kind in REGISTRY.values()},  # TreeCal's arity is 8
    "TreeCal, arity 2": partial(tc.TreeCal, arity=2),
    "AdaptiveTreeCal, block": partial(tc.AdaptiveTreeCal, arity=8, rule="block"),
}
LIMITS = {1_000: 10.0, 10_000: 30.0, 100_000: 25.0}
"""Seconds of processor time for one forecaster on one stream, by the number of rounds."""
HEADLINE = 10_000
"""Rounds of the race that the ranking shows."""
MARKS = [m * 10**k for k in range(6) for m in (1, 3)]


def main() -> None:
    """Run the race, and print, write or draw what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[*LIMITS], help="numbers of rounds")
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 3, 5, 10, 50], help="numbers of classes")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--forecasters", nargs="+", choices=FORECASTERS, default=[*FORECASTERS], metavar="NAME")
    parser.add_argument("--folder", default=".arena", help="where finished runs are kept")
    parser.add_argument("--quick", action="store_true", help="a race of seconds, to see that all is there")
    parser.add_argument("--cells", type=Path, help="write all means and deviations to this .csv or .json file")
    parser.add_argument("--rank", metavar="NAME", help="print how one forecaster compares with the best, worst first")
    parser.add_argument("--measure", choices=("error", "brier"), default="error", help="what --rank compares")
    parser.add_argument(
        "--write", action="store_true", help="write the tables and pictures of docs/explanation/arena.md"
    )
    options = parser.parse_args()
    if options.quick:
        options.lengths, options.dims, options.seeds = [100], [2, 3], 2
    makers = {name: FORECASTERS[name] for name in options.forecasters}
    races = list(run(makers, options))
    table = pa.concat_tables(races)
    if options.cells:
        write_cells(arena.summary(table), options.cells)
    if options.rank:
        print_rank(arena.rank(table, options.rank, measure=options.measure))
    elif options.write:
        write_page(table)
        draw(table)
    else:
        print(tables(table))


def run(makers: dict[str, arena.Maker], options: Any) -> Iterator[pa.Table]:
    """Yield the tables of all races: the real streams, each with its set and length, then the others by length."""
    for name, stream in arena.REAL.items():
        source = replace(stream, most=200) if options.quick else stream
        yield race(name, makers, {name: source}, [source.space], rounds=source.rounds, limit=60.0, options=options)
    for rounds in options.lengths:
        spaces = [tc.Simplex(dim) for dim in options.dims]
        limit = LIMITS.get(rounds, 20.0)
        yield race(f"{rounds:,} rounds", makers, arena.STREAMS, spaces, rounds=rounds, limit=limit, options=options)


def race(
    title: str, makers: dict[str, arena.Maker], streams: Any, spaces: Any, *, options: Any, **how: Any
) -> pa.Table:
    """Run one race, with a count on standard error."""

    def progress(done: int, total: int) -> None:
        if done == total or sys.stderr.isatty():
            print(f"\r{title}: {done} of {total} runs ", end="\n" * (done == total), file=sys.stderr, flush=True)

    seeds, folder = range(options.seeds), options.folder
    return arena.race(makers, streams, spaces, at=MARKS, seeds=seeds, folder=folder, progress=progress, **how)


def write_cells(cells: pa.Table, path: Path) -> None:
    """Write the summary as CSV, or as a JSON list of objects."""
    if path.suffix == ".json":
        import json

        path.write_text(json.dumps(cells.to_pylist(), indent=1), encoding="utf-8")
    else:
        pyarrow.csv.write_csv(cells, path)


def print_rank(ranks: list[arena.Rank]) -> None:
    """Print a line for each cell."""
    for rank in ranks:
        where = f"{rank.stream}, {rank.dim} classes, {rank.rounds:,} rounds"
        gap = f"{rank.ratio:7.3f} {rank.value - rank.least:+8.4f}"
        print(f"{gap}  {where:48} {rank.value:.4f}, {rank.best} {rank.least:.4f}")


def tables(table: pa.Table) -> str:
    """Return the tables of the docs."""
    real = pa.compute.is_in(table["stream"], pa.array([*arena.REAL]))
    recorded, made = table.filter(real), table.filter(pa.compute.invert(real))
    text = ""
    for measure, title in (("error", "calibration error"), ("brier", "Brier score"), ("resolution", "resolution")):
        text += f"### Real streams: {title}\n\n{arena.show(recorded, measure=measure, split=False)}\n"
    for rounds in sorted(set(made["length"].to_pylist()), key=lambda rounds: (rounds != HEADLINE, rounds)):
        own = made.filter(pa.compute.equal(made["length"], rounds))
        for measure, title in (("error", "calibration error"), ("brier", "Brier score"), ("resolution", "resolution")):
            shown = arena.show(own, measure=measure).replace("### ", "#### ")
            text += f"### {rounds:,} rounds: {title}\n\n{shown}\n"
    return text.rstrip() + "\n"


def write_page(table: pa.Table) -> None:
    """Write the tables into the page, after its last heading, and all figures beside it."""
    page = DOCS / "arena.md"
    head, heading, _ = page.read_text("utf-8").partition("\n## The tables\n")
    page.write_text(f"{head}{heading}\n{tables(table)}", encoding="utf-8")
    write_cells(arena.summary(table), DOCS / "arena.csv")


def draw(table: pa.Table) -> None:
    """Draw the pictures of the docs page."""
    compute, lengths = pa.compute, set(table["length"].to_pylist()) - {s.rounds for s in arena.REAL.values()}
    real = compute.is_in(table["stream"], pa.array([*arena.REAL]))
    headline = HEADLINE if HEADLINE in lengths else max(lengths)
    shown = table.filter(compute.or_(real, compute.equal(table["length"], headline)))
    with plots.drawing(13, 5) as figure:
        ax = figure.subplots()
        plots.plot_ranking(arena.final(shown), ax=ax)
        ax.set_title(f"error as a multiple of the best forecaster's: {headline:,} rounds, and the real streams")
        save(figure, "arena-ranking")
    cells = arena.summary(table)
    with plots.drawing(17, 4.4) as figure:
        axes = figure.subplots(1, 4)
        for ax, (name, stream) in zip(axes, arena.REAL.items(), strict=True):
            plots.plot_scores(cells, stream=name, dim=stream.space.dim, ax=ax)
            ax.get_legend().remove()
        one_legend(figure, axes)
        save(figure, "arena-real")
    long = table.filter(compute.equal(table["length"], max(lengths)))
    with plots.drawing(15, 4.6) as figure:
        axes = figure.subplots(1, 3)
        tree = {"TreeCal": lambda t: tc.certificate(tc.Simplex(3), "l1", rounds=t, arity=8).bound}
        plots.plot_errors(long, stream="regimes of 997", dim=3, certificates=tree, ax=axes[0])
        plots.plot_errors(long, stream="against the ledger", dim=3, certificates=tree, ax=axes[1])
        plots.plot_times(long, ax=axes[2])
        for ax in axes[:2]:
            ax.set_xlim(left=10)
        for ax in axes:
            ax.get_legend().remove()
        one_legend(figure, axes)
        save(figure, "arena-curves")


def save(figure: Any, name: str) -> None:
    """Write a picture that follows light and dark pages."""
    (DOCS / f"{name}.svg").write_text(plots.svg(figure), encoding="utf-8")


def one_legend(figure: Any, axes: Any) -> None:
    """Put one legend under several plots."""
    found = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=6, fontsize=8, frameon=False)


if __name__ == "__main__":
    main()
