"""The evidence of streams: what is kept of each, and which states can be that."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array, Integers
from treecal.columns import ROUNDS, Columns, Field, Schema
from treecal.exceptions import SnapshotError
from treecal.monitor._bets import FARTHEST, Bets, Family

MOST = 1e280
"""Of a capital: what exceeds it stands for infinity."""
CAPITAL, RUN, SINCE, LENGTH, EXCESS = range(5)
_ROUNDED = 1 + 1e-6


class Evidence(NamedTuple):
    """The state of some streams: one row for each. `cells[row, bet]` holds five numbers.

    `CAPITAL` is what the starts so far have and the next one gets; `RUN` the largest product of factors that ends now,
    or 1 (Page's CUSUM), `SINCE` the round in which it begins, `LENGTH` how many rounds of the stream that are, and
    `EXCESS` the sum in them of what the bet is on: outcome less forecast.
    """

    rounds: Integers
    cells: Array
    learned: Array

    def of(self, rows: Any) -> Evidence:
        """Return a copy of some streams'."""
        return Evidence(*(np.array(column[rows]) for column in self))

    def values(self, bets: Bets) -> Array:
        """Return the value of each stream, bit for bit as the kernel finds it: from left to right."""
        base = 1.0 if bets.restarts else 0.0
        totals = np.add.accumulate((self.cells[:, :, CAPITAL] - base) * bets.shares, axis=1)[:, -1]
        return np.asarray(totals if bets.restarts else totals + 1 / (self.rounds + 2))


def evidence_schema(family: Family) -> Schema:
    """Return what is kept of a stream's evidence."""
    bets = family.table
    cell = np.array([1.0 if bets.restarts else 0.5, 1.0, 1.0, 0.0, 0.0])
    learned = np.ones(family.learned)
    least, most = 1 / FARTHEST / _ROUNDED, FARTHEST * _ROUNDED
    if not bets.classes:  # for each rate a direction, and the mean square of what it is off
        learned[:] = 0.0
        learned[len(bets.centre) :: len(bets.centre) + 1] = bets.diameter**2 / 4
        most = max(bets.diameter, bets.diameter**2) * _ROUNDED
        least = -most
    return Schema(
        (
            ROUNDS,
            Field("cells", (len(family.bets), 5), new=cell),
            Field("learned", (family.learned,), new=learned, least=least, most=most),
        )
    )


def fresh(schema: Schema) -> Evidence:
    """Return the evidence of a new stream."""
    return evidence_of(Columns(schema, 1))


def evidence_of(columns: Columns) -> Evidence:
    """Return the evidence that columns hold, not copied."""
    return Evidence(*(columns[name] for name in Evidence._fields))


def stacked(parts: list[Evidence]) -> Evidence:
    """Return the rows of several as one."""
    return Evidence(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def read_columns(schema: Schema, state: Any, where: str = "the evidence") -> Columns:
    """Return columns with a copy of a state, or raise unless it can be that of streams."""
    columns = Columns.read(schema, state, where)
    cells = columns["cells"]
    if (cells[:, :, CAPITAL] < 0).any() or (cells[:, :, RUN] < 1).any() or (cells[:, :, SINCE] < 1).any():
        raise SnapshotError(f"{where} is not that of capitals.")
    return columns
