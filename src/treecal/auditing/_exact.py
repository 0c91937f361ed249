"""The exact audit: forecasts told apart by all their digits, counted by the database, judged as a `Ledger` would."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecal._typing import Array, Integers
from treecal.auditing import _sql as sql
from treecal.auditing._groups import Groups, Key
from treecal.geometry import Distance, l1
from treecal.io import Outcomes


class ExactSum:
    """A sum of floats that is rounded once, at the end, so that their order leaves no trace.

    Examples
    --------
    >>> total = ExactSum()
    >>> for terms in ([1e100, 1.0], [-1e100]):
    ...     total.add(np.array(terms))
    >>> total.value
    1.0
    """

    def __init__(self) -> None:
        self.parts: list[float] = []

    def add(self, terms: Array) -> None:
        """Add some terms."""
        # fsum rounds correctly, so what it leaves of the terms gets smaller each time, until nothing is left.
        rest = terms.tolist()
        while part := math.fsum(rest):
            self.parts.append(part)
            if not math.isfinite(part):
                break
            rest.append(-part)

    @property
    def value(self) -> float:
        """The sum of all terms."""
        return math.fsum(self.parts)


@dataclass(frozen=True)
class Exact:
    """Exact calibration errors.

    Attributes
    ----------
    forecasts
        Number of distinct forecasts.
    errors
        `Σ_p m_p · D(ν_p, p) / T`, by the name of the distance `D`.
    classes
        The same of each class by itself, in the order of the classes: `Σ_p m_p · |ν_p − p| / T` over its distinct
        probabilities `p`.
    """

    forecasts: int
    errors: dict[str, float]
    classes: tuple[float, ...]


def exact_errors(
    outcomes: Outcomes,
    distances: Mapping[str, Distance],
    by: Sequence[str],
    *,
    most: int,
    watch: Callable[[int], None],
) -> dict[Key, Exact]:
    """Return the exact errors of each group, with bad rows left out.

    The database groups rows by forecast and counts, on disk if memory does not suffice. What comes of it is read once,
    and nothing is kept of it but sums.

    Parameters
    ----------
    outcomes
        The rows.
    distances
        What to measure with, by name.
    by
        The columns to group by: all that the rows keep, or none.
    most
        How many groups there may be.
    watch
        Called with the number of distinct forecasts read so far.
    """
    d, groups = len(outcomes.labels), Groups(by, most=most)
    rows = sql.indexed(outcomes.sql, labels=outcomes.labels, by=len(by))
    good = sql.good_rows(classes=d, tolerance=outcomes.tolerance) if outcomes.problems.count else "TRUE"

    def found(question: str, distances: Mapping[str, Distance], width: int, watch: Callable[[int], None]) -> Tally:
        tally = Tally(distances)
        for batch in outcomes.source.batches(question, rows=outcomes.rows):
            tally.add(batch, groups.of([batch.column(f"by{k}") for k in range(len(by))], batch.num_rows), width)
            watch(sum(tally.forecasts.values()))
        return tally

    joint = found(sql.forecasts(rows, classes=d, by=len(by), good=good), distances, d, watch)
    each = [
        found(sql.class_forecasts(rows, number=k, by=len(by), good=good), {"l1": l1}, 1, lambda seen: None)
        for k in range(d)
    ]
    return {
        key: Exact(joint.forecasts[g], joint.errors(g), tuple(tally.errors(g)["l1"] for tally in each))
        for key, g in groups.index.items()
    }


class Tally:
    """Forecasts, rounds and errors of each group, added up batch by batch of distinct forecasts."""

    def __init__(self, distances: Mapping[str, Distance]) -> None:
        self.forecasts: dict[int, int] = {}
        self.rounds: dict[int, int] = {}
        self._distances = distances
        self.sums: dict[int, dict[str, ExactSum]] = {}

    def add(self, batch: Any, home: Integers, width: int) -> None:
        """Add distinct forecasts of so many coordinates, each of the group that it is at home in."""
        points, came = (np.column_stack([batch.column(f"{c}{k}").to_numpy() for k in range(width)]) for c in "pn")
        rounds = batch.column("rounds").to_numpy().astype(np.float64)
        means = came / rounds[:, None]
        shares = {name: rounds * distance.between(means, points) for name, distance in self._distances.items()}
        for g in np.unique(home).tolist():
            mine = home == g
            self.forecasts[g] = self.forecasts.get(g, 0) + int(mine.sum())
            self.rounds[g] = self.rounds.get(g, 0) + int(rounds[mine].sum())
            for name, share in shares.items():
                self.sums.setdefault(g, {}).setdefault(name, ExactSum()).add(share[mine])

    def errors(self, g: int) -> dict[str, float]:
        """Return the errors of a group, per round, by the name of the distance."""
        return {name: total.value / self.rounds[g] for name, total in self.sums[g].items()}
