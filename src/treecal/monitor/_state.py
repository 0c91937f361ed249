"""The evidence of streams as data: what a new one is, and what a state must satisfy to be one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from treecal._states import check_array
from treecal._typing import Array, Integers
from treecal.exceptions import SnapshotError
from treecal.monitor._bets import FARTHEST, Family

MOST = 1e280
"""Of a capital: what exceeds it stands for infinity."""
CAPITAL, RUN, SINCE, LENGTH, EXCESS = range(5)


class Evidence(NamedTuple):
    """The state of some streams: one row for each. `cells[row, bet]` holds five numbers.

    `CAPITAL` is what the starts so far have and the next one gets; `RUN` the largest product of factors that ends now,
    or 1 (Page's CUSUM), `SINCE` the round in which it begins, `LENGTH` how many rounds of the stream that are, and
    `EXCESS` the sum in them of what the bet is on: outcome less forecast.
    """

    rounds: Integers
    cells: Array
    learned: Array

    def copy(self) -> Evidence:
        """Return a copy, to be changed."""
        return Evidence(self.rounds.copy(), self.cells.copy(), self.learned.copy())

    def first(self, streams: int) -> Evidence:
        """Return a copy of the first streams'."""
        return Evidence(self.rounds[:streams].copy(), self.cells[:streams].copy(), self.learned[:streams].copy())

    def row(self, r: int) -> Evidence:
        """Return a copy of one stream's."""
        return Evidence(self.rounds[r : r + 1].copy(), self.cells[r : r + 1].copy(), self.learned[r : r + 1].copy())

    def values(self, shares: Array, *, restarts: bool) -> Array:
        """Return the value of each stream, bit for bit as the kernel finds it: from left to right."""
        base = 1.0 if restarts else 0.0
        totals = np.add.accumulate((self.cells[:, :, CAPITAL] - base) * shares, axis=1)[:, -1]
        return np.asarray(totals if restarts else totals + 1 / (self.rounds + 2))


def fresh(family: Family, *, restarts: bool) -> Evidence:
    """Return the evidence of a new stream."""
    cells = np.zeros((1, len(family.bets), 5))
    cells[..., CAPITAL] = 1.0 if restarts else 0.5
    cells[..., RUN] = cells[..., SINCE] = 1.0
    table = family.table
    if table.classes:
        learned = np.ones((1, family.learned))
    else:  # for each rate a direction, and the mean square of what it is off
        learned = np.zeros((1, family.learned))
        learned[0, len(table.centre) :: len(table.centre) + 1] = table.diameter**2 / 4
    return Evidence(np.zeros(1, np.int64), cells, learned)


def stacked(parts: list[Evidence]) -> Evidence:
    """Return the rows of several as one."""
    return Evidence(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def read_evidence(state: Any, streams: int, rounds: int, family: Family, *, restarts: bool) -> Evidence:
    """Return a copy of so many streams' evidence, or raise unless so many rounds allow it."""
    check_array("the evidence's rounds", state["rounds"], (streams,), np.int64)
    check_array("the evidence's cells", state["cells"], (streams, len(family.bets), 5))
    check_array("what is learned", state["learned"], (streams, family.learned))
    e = Evidence(state["rounds"], state["cells"], state["learned"]).copy()
    if (e.rounds < 0).any() or (e.rounds > rounds).any():
        raise SnapshotError(f"the evidence's rounds are not from 0 to {rounds}.")
    capital, run, since, length, excess = np.moveaxis(e.cells, 2, 0)
    n = e.rounds[:, None]
    least = 1.0 if restarts else (1 - 1e-9) / ((n + 1.0) * (n + 2.0))
    whole = (since % 1 == 0) & (length % 1 == 0)
    table = family.table
    if table.classes:
        widest = 1.0
        held = (e.learned >= (1 - 1e-9) / FARTHEST) & (e.learned <= FARTHEST * (1 + 1e-9))
    else:
        widest = max(float(table.ranges.max(initial=0.0)), 1.0)
        held = np.abs(e.learned) <= max(table.diameter, table.diameter**2) * (1 + 1e-6)
        held[:, len(table.centre) :: len(table.centre) + 1] &= (
            e.learned[:, len(table.centre) :: len(table.centre) + 1] >= 0
        )
    sound = whole & (capital >= least) & (capital <= 2 * MOST) & (run >= 1) & (run <= MOST)
    sound &= (since >= 1) & (since <= rounds + 1) & (length >= 0) & (length <= n)
    sound &= np.abs(excess) <= length * widest * (1 + 1e-6)
    if not (sound.all() and held.all()):
        raise SnapshotError(f"the evidence is not one of {rounds} rounds.")
    return e
