"""Recalibrate a real model: `python examples/flights.py`, about five minutes.

A logistic regression, trained day by day through 2013, forecasts the delay of each departure from New York; correctors
recalibrate its probabilities, flight by flight. Prints scores before and after, as in docs/howto/recalibrate.md.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

import treecal as tc
from treecal.correctors import Centroids, Corrector, Scores
from treecal.streams import new_york_flights_model


def main() -> None:
    """Run every corrector over the stream and print what it changed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50_000)
    stream, rounds = new_york_flights_model(), parser.parse_args().rounds
    space = stream.space
    correctors: dict[str, Corrector] = {
        "group means, by top class": tc.Recalibrator(space, scores="exact"),
        "group means, 16 centroids": tc.Recalibrator(space, groups=Centroids(count=16), scores="exact"),
        "AdaptiveTreeCal in groups": tc.Recalibrator(space, make=lambda: tc.AdaptiveTreeCal(space), scores="exact"),
        "vector scaling": tc.VectorScaling(space, scores="exact"),
        "vector scaling, then means": tc.Chain([tc.VectorScaling(space), tc.Recalibrator(space)], scores="exact"),
    }
    table = Table(
        "corrector", "Brier", "calibration", "refinement", "log score", "ℓ1, binned at 0.1", title=stream.title
    )
    console = Console()
    for name, corrector in correctors.items():
        for forecast, outcome in zip(stream.forecasts[:rounds], stream.outcomes[:rounds], strict=True):
            corrector.predict(forecast / forecast.sum())  # the sum is 1 up to rounding
            corrector.update(outcome)
        report = corrector.report()
        if not table.rows:
            add(table, "the model itself", report.before, corrector.ledgers["before"])
        add(table, name, report.after, corrector.ledgers["after"])
    console.print(table)


def add(table: Table, name: str, scores: Scores, ledger: tc.Ledger) -> None:
    """Add one row of scores."""
    error = ledger.binned(resolution=0.1).error("l1")
    cells = (scores.brier, scores.calibration, scores.refinement, scores.log or 0.0, error)
    table.add_row(name, *(f"{cell:.3f}" for cell in cells))


if __name__ == "__main__":
    main()
