"""What an audit of forecasts of a number adds up: for each group the cells of the PIT, scores, and sums of quantiles.

Memory is that of the groups, and of a sample of the outcomes, for the score of their climatology.
"""

from __future__ import annotations

import numpy as np

from treecal._compile import strict
from treecal._typing import Array, Integers
from treecal.auditing._number_rows import Columns
from treecal.measures import Laws, Members, Quantiles, pinball_losses, up_to

LEVELS = tuple(k / 20 for k in range(1, 20))
"""The levels between the cells of the PIT, where all are known."""
SHOWN = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""Those whose quantiles are summed up, where all are known."""
FIXED = ("rows", "crps", "square", "outcome", "outcome_square", "gap")
"""The first columns of the totals: the outcome less the first one of all, and less the median."""
_SAMPLE = 10_000
_LAST = 200  # rows of the picture over time
_UNCOMPILED = 1 << 13  # numbers for which Python takes less time than a compiler


class NumberSums:
    """The sums of groups of rows.

    Parameters
    ----------
    columns
        What the forecasts are.

    Attributes
    ----------
    levels, shown
        The levels between the cells, and those whose pinball losses and quantiles are summed up.
    cells
        Rows by PIT, `(groups, levels + 1)`.
    totals
        `FIXED`, then pinball losses by level, then quantiles, `(groups, 6 + 2·shown)`.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.levels = columns.levels or LEVELS
        self.shown = columns.levels or SHOWN
        self.cells = np.zeros((1, len(self.levels) + 1))
        self.totals = np.zeros((1, len(FIXED) + 2 * len(self.shown)))
        self.origin: float | None = None

    def add(self, laws: Laws, y: Array, home: Integers, groups: int) -> None:
        """Add rows, each of the group `home`, of which there are so many now."""
        if self.origin is None and len(y):
            self.origin = float(y[0])
        if groups > len(self.cells):
            room = max(groups, 2 * len(self.cells)) - len(self.cells)
            self.cells = np.pad(self.cells, [(0, room), (0, 0)])
            self.totals = np.pad(self.totals, [(0, room), (0, 0)])
        if isinstance(laws, Quantiles):
            run = tally_quantiles.now if laws.values.size <= _UNCOMPILED else tally_quantiles
            middle = self.shown.index(0.5) if 0.5 in self.shown else -1
            tau = np.array(self.levels)
            values = np.ascontiguousarray(laws.values.T)
            run(values, y, home, tau, middle, self.origin or 0.0, self.cells, self.totals)
        else:
            self._add(laws, y, home)

    def _add(self, laws: Laws, y: Array, home: Integers) -> None:
        """Add rows of any form."""
        low, high = laws.pit(y)
        before = np.zeros(len(y))
        for k, tau in enumerate((*self.levels, 1.0)):
            upto = up_to(low, high, tau)
            self._sum(self.cells, k, upto - before, home)
            before = upto
        score = laws.crps(y)
        away = y - (self.origin or 0.0)
        fixed = [np.ones(len(y)), score, score**2, away, away**2]
        for k, each in enumerate(fixed):
            self._sum(self.totals, k, each, home)
        for k, tau in enumerate(self.shown):
            q = laws.quantile(tau)
            self._sum(self.totals, len(FIXED) + k, pinball_losses(tau, q, y), home)
            self._sum(self.totals, len(FIXED) + len(self.shown) + k, q, home)
            if tau == 0.5:
                self._sum(self.totals, FIXED.index("gap"), y - q, home)

    @staticmethod
    def _sum(table: Array, column: int, values: Array, home: Integers) -> None:
        table[:, column] += np.bincount(home, values, len(table))


@strict
def tally_quantiles(
    q: Array, y: Array, home: Integers, tau: Array, middle: int, origin: float, cells: Array, totals: Array
) -> None:
    """Add rows of quantiles, `(levels, n)`, in order of their levels; `middle` is the place of the median, or -1."""
    count = len(tau)
    for i in range(len(y)):
        group = home[i]
        outcome = y[i]
        below = 0
        upto = 0
        loss = 0.0
        for j in range(count):
            away = outcome - q[j, i]
            pinball = (tau[j] - 1.0) * away
            if away > 0.0:
                below += 1
                pinball = tau[j] * away
            if away >= 0.0:
                upto += 1
            loss += pinball
            totals[group, 6 + j] += pinball
            totals[group, 6 + count + j] += q[j, i]
        score = 2.0 * loss / count
        totals[group, 0] += 1.0
        totals[group, 1] += score
        totals[group, 2] += score * score
        totals[group, 3] += outcome - origin
        totals[group, 4] += (outcome - origin) * (outcome - origin)
        if middle >= 0:
            totals[group, 5] += outcome - q[middle, i]
        if upto <= below + 1:
            cells[group, below] += 1.0
        else:  # it equals several quantiles, and lies anywhere between their levels
            start = tau[below - 1] if below > 0 else 0.0
            span = (tau[upto - 1] if upto > 0 else 0.0) - start
            for j in range(below, upto):
                cells[group, j] += (tau[j] - (tau[j - 1] if j > 0 else 0.0)) / span


class OutcomeSample:
    """A sample of the outcomes of a log, drawn by the numbers of their rows: the same however they are read."""

    def __init__(self) -> None:
        self._outcomes = np.empty(0)
        self._ranks = np.empty(0, np.uint64)
        self._most = np.uint64(2**64 - 1)  # ranks of rows that may be among the lowest so far
        self.rows = 0

    def add(self, y: Array) -> None:
        """Add the next rows."""
        number = np.arange(self.rows + 1, self.rows + len(y) + 1, dtype=np.uint64)
        self.rows += len(y)
        rank = number * np.uint64(0x9E3779B97F4A7C15)  # splitmix64
        rank = (rank ^ (rank >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        rank = (rank ^ (rank >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        rank ^= rank >> np.uint64(31)
        lower = rank <= self._most
        self._ranks = np.concatenate([self._ranks, rank[lower]])
        self._outcomes = np.concatenate([self._outcomes, y[lower]])
        if len(self._ranks) > 2 * _SAMPLE:
            self._trim()

    def _trim(self) -> None:
        """Keep the rows of the lowest ranks."""
        kept = np.argsort(self._ranks)[:_SAMPLE]
        self._ranks = self._ranks[kept]
        self._outcomes = self._outcomes[kept]
        self._most = self._ranks[-1]

    @property
    def outcomes(self) -> Array:
        """The outcomes, in the order of their ranks where not all are kept."""
        if len(self._ranks) > _SAMPLE:
            self._trim()
        return self._outcomes

    def climatology(self, levels: tuple[float, ...]) -> float:
        """Return the score of the distribution of all outcomes; for quantiles of some levels, that of these."""
        y = self.outcomes
        if levels:
            q = np.quantile(y, levels)
            return float(Quantiles(levels, np.tile(q, (len(y), 1))).crps(y).mean())
        score = Members(y[None], fair=True).crps(np.zeros(1))  # E|Y| − ½·E|Y − Y'|
        return float(np.abs(y).mean() - score[0])


class LastRows:
    """The last rows of a log, for a picture of forecasts over time: outcomes, and quantiles of the levels `shown`."""

    def __init__(self, columns: Columns) -> None:
        self.shown = columns.levels or SHOWN
        self._columns = columns
        self._forecasts = np.empty((0, len(columns.forecast)))
        self.outcomes = np.empty(0)

    def add(self, forecasts: Array, y: Array) -> None:
        """Add the next rows."""
        self._forecasts = np.concatenate([self._forecasts, forecasts[-_LAST:]])[-_LAST:]
        self.outcomes = np.concatenate([self.outcomes, y[-_LAST:]])[-_LAST:]

    @property
    def quantiles(self) -> Array:
        """The quantiles of each row, `(rows, shown)`."""
        laws = self._columns.laws(self._forecasts)
        return np.column_stack([laws.quantile(tau) for tau in self.shown])
