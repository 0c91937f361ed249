"""The default forecaster on the real streams that were held out, beside others: figures of docs/explanation/guard.md.

The others are the default before this one, whose figures stand in `held_out.csv`, as its code is gone; fixed radii: the
tracker's forecast moved to the nearest point announced before within a radius, by the radius that errs least so far; a
moving average in tenths that knows its best half-life; AdaptiveTreeCal; and BinaryGrid. Printed are the means, and the
streams on which the error is more than 1.25 times the least of those, or the Brier score 0.01 above the least. It takes
some minutes; `--chosen` plays the streams by which choices may be made, and `--short` the first rounds of each, beside
the parts of the default alone: python examples/held_out.py
"""

from __future__ import annotations

import argparse
import csv
from copy import deepcopy
from pathlib import Path

import numpy as np

import treecal as tc
from treecal.arena import CHOSEN, HELD_OUT, Recorded, Standing, hindsight, standings
from treecal.engine import GuardedRun

RADII = (0.05, 0.1, 0.2, 0.3, 0.5)
BETTER = 1.2  # how many times as much another radius must err before it is left
WORSE = 1.25
WORSE_SCORE = 0.01
SHORT = (25, 50, 100, 200)
KEPT = Path(__file__).with_name("held_out.csv")
Figures = tuple[float, float]
"""ℓ1 error and Brier score."""


class Radius:
    """The points that are announced if none is new within a radius of an old one, and their biases."""

    def __init__(self, radius: float, dim: int) -> None:
        self.radius = radius
        self.points = np.empty((0, dim))
        self.biases = np.empty((0, dim))
        self.error = 0.0

    def choose(self, q: np.ndarray) -> int:
        """Return the place of the nearest point, which is a new one if none is near enough."""
        away = np.abs(self.points - q).sum(axis=1)
        if len(away) and away.min() <= self.radius:
            return int(away.argmin())
        self.points = np.vstack([self.points, q])
        self.biases = np.vstack([self.biases, np.zeros(len(q))])
        return len(away)

    def learn(self, place: int, outcome: np.ndarray) -> None:
        """Count the outcome of a round in which a point was chosen."""
        self.error -= float(np.abs(self.biases[place]).sum())
        self.biases[place] += outcome - self.points[place]
        self.error += float(np.abs(self.biases[place]).sum())


def radii(space: tc.Simplex, outcomes: np.ndarray) -> Figures:
    """Return the figures of the tracker's forecasts by the radius that errs least so far."""
    tracker = tc.Tracker(space)
    books = [Radius(radius, space.dim) for radius in RADII]
    lead = books[0]
    announced = np.empty_like(outcomes)
    for t, y in enumerate(outcomes):
        q = tracker.mean_forecast
        places = [book.choose(q) for book in books]
        announced[t] = lead.points[places[books.index(lead)]]
        for book, place in zip(books, places, strict=True):
            book.learn(place, y)
        least = min(books, key=lambda book: book.error)
        if lead.error > BETTER * least.error:
            lead = least
        tracker.update(y)
    distinct, home = np.unique(announced, axis=0, return_inverse=True)
    biases = np.zeros_like(distinct)
    np.add.at(biases, home.ravel(), outcomes - announced)
    return float(np.abs(biases).sum() / len(outcomes)), float(np.square(outcomes - announced).sum() / len(outcomes))


def played(forecaster: tc.Forecaster, outcomes: np.ndarray) -> Figures:
    """Return the figures of a forecaster."""
    at_once = isinstance(forecaster, tc.Guarded | tc.AdaptiveTreeCal)
    record = tc.replay(outcomes, forecaster) if at_once else tc.streams.play(forecaster, outcomes)
    if isinstance(record, GuardedRun) and (safe := record.forecaster.report().safe_rounds):
        print(f"safe forecast {safe} of {len(outcomes)} rounds: ", end="")
    reading = record.exact()
    return reading.error("l1"), reading.brier(float(len(outcomes))).score


def begin(streams: dict[str, Recorded]) -> None:
    """Print the figures of the default and of its parts alone on the first rounds of streams."""
    for rounds in SHORT:
        found: dict[tuple[str, str], Figures] = {}
        for name, stream in streams.items():
            whole = tc.Guarded(stream.space)
            parts = {"Guarded": whole, "its eager part": whole.eager, "its safe part": whole.safe}
            for who, forecaster in parts.items():
                found[name, who] = played(deepcopy(forecaster), np.asarray(stream.outcomes)[:rounds])
        print(f"the first {rounds} rounds")
        conclude(found)


def race(streams: dict[str, Recorded], before: dict[str, Figures]) -> dict[tuple[str, str], Figures]:
    """Return the figures of all, by stream and name."""
    found: dict[tuple[str, str], Figures] = {}
    for name, stream in streams.items():
        outcomes = np.asarray(stream.outcomes)
        makers = [tc.Guarded, tc.AdaptiveTreeCal, *[tc.BinaryGrid] * (stream.space.dim == 2)]
        for make in makers:
            found[name, make.__name__] = played(make(stream.space), outcomes)
        found[name, "fixed radii"] = radii(stream.space, outcomes)
        found[name, "average, best half-life"] = hindsight(outcomes)[:2]
        if name in before:
            found[name, "Guarded before"] = before[name]
        print(f"{name}: " + ", ".join(f"{who} {e:.3f} {b:.3f}" for (s, who), (e, b) in found.items() if s == name))
    return found


def conclude(found: dict[tuple[str, str], Figures]) -> None:
    """Print the means, and where the default is not the best."""
    errors = {key: figures[0] for key, figures in found.items()}
    scores = {key: figures[1] for key, figures in found.items()}
    means: list[Standing] = standings(errors, scores, "Guarded")
    for each in means:
        figures = f"error {each.error:.3f}, Brier score {each.brier:.3f}"
        beside = f"{each.error_ratio:.2f} and {each.brier_ratio:.2f} times Guarded's on the same"
        print(f"{each.forecaster}, {each.streams} streams: {figures}; {beside}")
    for values, what in ((errors, "error"), (scores, "Brier score")):
        exceptions = []
        for stream in dict.fromkeys(stream for stream, _ in values):
            own = values[stream, "Guarded"]
            others = {who: value for (s, who), value in values.items() if s == stream and who != "Guarded"}
            best = min(others, key=lambda who: others[who])
            if own > (WORSE * others[best] if what == "error" else others[best] + WORSE_SCORE):
                exceptions.append((own / others[best], f"{stream}: {own:.3f}, {best} {others[best]:.3f}"))
        print(f"{what} above the limit on {len(exceptions)} streams:")
        print("".join(f"  {ratio:.2f} {text}\n" for ratio, text in sorted(exceptions, reverse=True)), end="")


def main() -> None:
    """Play, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chosen", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--streams", type=int, help="only so many of them")
    given = parser.parse_args()
    with KEPT.open(encoding="utf-8") as file:
        before = {row["stream"]: (float(row["error"]), float(row["brier"])) for row in csv.DictReader(file)}
    streams = dict(list((CHOSEN if given.chosen else HELD_OUT).items())[: given.streams])
    if given.short:
        begin(streams)
    else:
        conclude(race(streams, before))


if __name__ == "__main__":
    main()
