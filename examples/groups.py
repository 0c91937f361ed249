"""Overlapping groups on real departures: `python examples/groups.py`, about two minutes.

A model's forecasts of 335,934 departures, corrected as they come, by correctors that know no groups and by one that
knows airport, carrier and hour. The worst of the 25 groups counts: `‖mean of y − p‖₁` over its rounds, and the same
summed over bins of a tenth of each class.
"""

from __future__ import annotations

import argparse
from time import process_time

import numpy as np
from rich.console import Console
from rich.table import Table

import treecal as tc
from treecal._typing import Array
from treecal.streams import ModelStream, new_york_flights_model

LARGE = 1000
"""Rounds from which on the bins of a group say something."""
BINS = 10


def errors(stream: ModelStream, announced: Array) -> dict[str, tuple[int, float, float]]:
    """Return of each group its rounds, its error, and its error in bins."""
    off, cells = stream.outcomes - announced, np.minimum((announced * BINS).astype(int), BINS - 1)
    found = {}
    for name in sorted({name for groups in stream.groups for name in groups}):
        own = np.array([name in groups for groups in stream.groups])
        rounds, binned = int(own.sum()), 0.0
        for bins, errors_ in zip(cells[own].T, off[own].T, strict=True):
            binned += float(np.abs(np.bincount(bins, errors_)).sum()) / rounds
        found[name] = rounds, float(np.abs(off[own].mean(axis=0)).sum()), binned
    return found


def correctors(space: tc.Simplex) -> dict[str, tc.Corrector]:
    """Return those compared, by name."""
    return {
        "VectorScaling": tc.VectorScaling(space, scores=None),
        "Recalibrator": tc.Recalibrator(space, scores=None),
        "Multicalibrator": tc.Multicalibrator(space, scores=None),
    }


def correct(stream: ModelStream, corrector: tc.Corrector) -> Array:
    """Return what the corrector announces, round after round."""
    groups = stream.groups if isinstance(corrector, tc.Multicalibrator) else None
    return corrector.update_many(stream.forecasts, stream.outcomes, groups=groups)


def main() -> None:
    """Print the table of the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, help="days of the year; by default all")
    stream = new_york_flights_model(days=parser.parse_args().days)
    table = Table(title="25 overlapping groups")
    for column in ("", "Brier", "log", "worst group", f"of {LARGE:,} rounds", "the same, binned", "µs a round"):
        table.add_column(column, justify="right" if column else "left")
    made: dict[str, tc.Corrector | None] = {"the model": None, **correctors(stream.space)}
    for name, corrector in made.items():
        start = process_time()
        announced = stream.forecasts if corrector is None else correct(stream, corrector)
        cost = (process_time() - start) / len(stream) * 1e6
        found = errors(stream, announced)
        large = [each for each in found.values() if each[0] >= LARGE]
        logs = -np.log(np.maximum((announced * stream.outcomes).sum(axis=1), 1e-9))
        table.add_row(
            name,
            f"{((stream.outcomes - announced) ** 2).sum(axis=1).mean():.4f}",
            f"{logs.mean():.4f}",
            f"{max(error for _, error, _ in found.values()):.3f}",
            f"{max(error for _, error, _ in large):.3f}",
            f"{max(binned for _, _, binned in large):.3f}",
            "" if corrector is None else f"{cost:.0f}",
        )
        if isinstance(corrector, tc.Multicalibrator):
            bounds = {group: corrector.bound(group) for group in found}
            kept = all(found[group][1] <= bounds[group] for group in found)
            largest = max(found, key=lambda group: found[group][0])
            print(f"every group within its bound: {kept}; {largest}: {found[largest][1]:.4f} <= {bounds[largest]:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
