"""The exact audit: forecasts told apart by all their digits, counted by the database, judged as a `Ledger` would."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from treecal._exact import Array
from treecal.auditing import sql
from treecal.auditing.groups import Groups, Key
from treecal.geometry import Distance
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
        self._parts: list[float] = []

    def add(self, terms: Array) -> None:
        """Add some terms."""
        # fsum rounds correctly, so what it leaves of the terms gets smaller each time, until nothing is left.
        rest = terms.tolist()
        while part := math.fsum(rest):
            self._parts.append(part)
            if not math.isfinite(part):
                break
            rest.append(-part)

    @property
    def value(self) -> float:
        """The sum of all terms."""
        return math.fsum(self._parts)


@dataclass(frozen=True)
class Exact:
    """Exact calibration errors.

    Attributes
    ----------
    forecasts
        Number of distinct forecasts.
    errors
        `Σ_p m_p · D(ν_p, p) / T`, by the name of the distance `D`.
    """

    forecasts: int
    errors: dict[str, float]


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
    question = sql.forecasts(rows, classes=d, by=len(by), good=good)
    counts: dict[int, tuple[int, int]] = {}
    sums: dict[int, dict[str, ExactSum]] = {}
    seen = 0
    for batch in outcomes.source.batches(question, rows=outcomes.rows):
        points, came = (np.column_stack([batch.column(f"{c}{k}").to_numpy() for k in range(d)]) for c in "pn")
        rounds = batch.column("rounds").to_numpy().astype(np.float64)
        means = came / rounds[:, None]
        home = groups.of([batch.column(f"by{k}") for k in range(len(by))], len(rounds))
        shares = {name: rounds * distance.between(means, points) for name, distance in distances.items()}
        for g in np.unique(home).tolist():
            mine = home == g
            forecasts, total = counts.get(g, (0, 0))
            counts[g] = forecasts + int(mine.sum()), total + int(rounds[mine].sum())
            for name, share in shares.items():
                sums.setdefault(g, {}).setdefault(name, ExactSum()).add(share[mine])
        seen += len(rounds)
        watch(seen)
    return {
        key: Exact(counts[g][0], {name: total.value / counts[g][1] for name, total in sums[g].items()})
        for key, g in groups.index.items()
    }
