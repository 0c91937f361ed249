"""What an engine counts, and the audit that follows from it: the same for every engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from treecal._typing import Array, Integers
from treecal.auditing._calibration import Calibration
from treecal.auditing._exact import ErrorSums
from treecal.auditing._groups import ByKey, Groups, Key
from treecal.auditing._result import Audit
from treecal.exceptions import ParameterError
from treecal.io import Problems
from treecal.measures import Bins, Interval, LossTable, Payoff, best_actions, largest_surprise, mean_interval

DIGITS = 51
"""Sums of probabilities are multiples of 2^-51."""
SCORES = ("brier", "brier squared", "log", "log squared", "weight")
"""Summed for each row: half its Brier score, its log score over 1,024, their squares, and its weight over 2^53.

All lie between 0 and 1. The second moments are for intervals; the last one is for rows that differ in weight.
"""
LOG_SCALE = 1024.0
WEIGHT_SCALE = 2.0**53
MAGIC = 1.5 * 2.0**-6
"""Added to a number of at most 2^-7, it rounds it to a multiple of 2^-58: the unit of squares."""
_MEMORY = 1 << 29


class AuditRows(NamedTuple):
    """Valid rows: the probability of each class, `(d, n)`, and the class and the group of each row, `(n,)`.

    If rows have weights, they are whole numbers, `(n,)`; otherwise that array is empty.
    """

    forecasts: Array
    outcomes: Integers
    groups: Integers
    weights: Integers


class BinCounts(NamedTuple):
    """The counts of each group, class and bin; as one more class, those of the most likely class of each row.

    All are whole numbers, so they depend neither on the order of the rows nor on their chunks. A sum is
    `ones + rest / 2^51`.

    Attributes
    ----------
    weight, hits
        Number of rows, and of those whose outcome is the class, `(g, d + 1, b)`: a row counts as often as its weight.
    ones, rest
        The sum of the probabilities, `(g, d + 1, b)`.
    score_ones, score_rest
        The sums of the `SCORES` of each group, `(g, 5)`.
    impossible
        Number of rows of each group whose outcome had forecast 0, `(g,)`: a row counts as often as its weight.
    rows
        Number of rows of each group, `(g,)`, if they have weights; otherwise 0.
    """

    weight: Integers
    hits: Integers
    ones: Integers
    rest: Integers
    score_ones: Integers
    score_rest: Integers
    impossible: Integers
    rows: Integers

    @classmethod
    def empty(cls, *, classes: int, bins: int) -> BinCounts:
        """Return the empty cells of one group."""
        shapes = [(1, classes + 1, bins)] * 4 + [(1, len(SCORES))] * 2 + [(1,)] * 2
        return cls(*(np.zeros(shape, np.int64) for shape in shapes))

    def with_room(self, groups: Groups) -> BinCounts:
        """Return the same cells with room for all groups, up to a limit of memory."""
        (room, *shape) = self.weight.shape
        count = len(groups.index)
        if count <= room:
            return self
        most = max(1, _MEMORY // (32 * math.prod(shape)))
        if count > most:
            raise ParameterError(
                f"there are more than {most:,} groups by {', '.join(groups.by)}.",
                hint="group by columns with fewer distinct values.",
            )
        more = max(count, min(2 * room, most)) - room  # double, so that groups cost O(1) each
        return BinCounts(*(np.concatenate([old, np.zeros((more, *old.shape[1:]), np.int64)]) for old in self))

    def plus(self, other: BinCounts) -> BinCounts:
        """Return the cells of the rows of both, of the same groups."""
        weight, hits, ones, rest, *scores, impossible, rows = (a + b for a, b in zip(self, other, strict=True))
        return BinCounts(weight, hits, *_carried(ones, rest), *_carried(*scores), impossible, rows)


class Actions:
    """What whoever acts on the forecasts did, and the outcomes, by group.

    Attributes
    ----------
    names, loss
        The actions, and what each costs under each class, `(a, d)`.
    counts
        The weight of each group, action and class, `(g, a, d)`.
    expected
        The sums of the forecasts of each group and action, `(g, a, d)`.
    """

    def __init__(self, table: LossTable) -> None:
        self.names = table.actions
        self.loss = table.costs
        self.counts = np.zeros((1, *self.loss.shape), np.int64)
        self.expected = np.zeros((1, *self.loss.shape))

    def add(self, rows: AuditRows, groups: int) -> None:
        """Add valid rows."""
        if (more := groups - len(self.counts)) > 0:
            room = ((0, more), (0, 0), (0, 0))
            self.counts = np.pad(self.counts, room)
            self.expected = np.pad(self.expected, room)
        home = rows.groups, best_actions(rows.forecasts, self.loss)
        weights = rows.weights if len(rows.weights) else np.ones(len(rows.outcomes), np.int64)
        np.add.at(self.counts, (*home, rows.outcomes), weights)
        np.add.at(self.expected, home, (rows.forecasts * weights).T)

    def read(self, at: slice, unit: float, worth: float) -> Payoff:
        """Return what acting on the forecasts of some groups cost."""
        counts = self.counts[at].sum(axis=0) / unit
        return Payoff(self.loss, counts, self.expected[at].sum(axis=0) / unit, worth, self.names)


@dataclass(frozen=True, eq=False)
class AuditCounts:
    """All that an engine counts: groups, cells, and the sums of exact errors; what a weight of 1 counts; actions."""

    groups: Groups
    cells: BinCounts
    exact: ErrorSums | None
    scale: float | None = None
    actions: Actions | None = None

    def audit(self, source: str, classes: tuple[str, ...], columns: tuple[str, ...], problems: Problems) -> Audit:
        """Return the audit of these rows."""
        keys = sorted(self.groups.index, key=_in_order) if self.groups.by else []
        groups = ByKey((key, self._calibration(key, classes)) for key in keys)
        whole = self._calibration(None, classes)
        return Audit(source, classes, columns, self.groups.by, whole, groups, problems)

    def _calibration(self, key: Key | None, classes: tuple[str, ...]) -> Calibration:
        at = slice(None) if key is None else slice(g := self.groups.index[key], g + 1)
        # Python integers, which do not overflow.
        *table, ones, rest, impossible, rows = (count[at].astype(object).sum(axis=0) for count in self.cells)
        total = int(table[0][-1].sum())
        brier, brier2, log, log2, square = (_mean(*score, total) for score in zip(ones, rest, strict=True))
        unit = 1.0 if self.scale is None else self.scale
        # Kish: (Σw)²/Σw² rows, for a total weight of Σw.
        worth = 1.0 if self.scale is None else float(f"{unit / (square * WEIGHT_SCALE):.9g}")
        found = []
        for weight, hits, *sums in zip(*table, strict=True):
            forecast = [_mean(*cell) for cell in zip(*sums, weight, strict=True)]
            outcome = [h / n if n else np.nan for h, n in zip(hits, weight, strict=True)]
            found.append(Bins(np.array(forecast), self._unscaled(weight), np.array(outcome), worth))
        *each, top = found
        count = worth * total / unit
        # Engines differ in the last bit of a logarithm.
        most = largest_surprise(top.forecast, len(classes))
        logs = mean_interval(round(LOG_SCALE * log, 9) + 0.0, round(LOG_SCALE**2 * log2, 6), count, most=most)
        if impossible:
            note = f"{impossible / unit:,.6g} outcomes had forecast 0"
            logs = Interval(math.inf, math.inf, math.inf, logs.level, note)
        return Calibration(
            rounds=total if self.scale is None else int(rows),
            weight=total / unit,
            top_label=top,
            classes=dict(zip(classes, each, strict=True)),
            exact=None if self.exact is None else self.exact.read(key, len(classes)),
            brier_interval=mean_interval(2 * brier, 4 * brier2, count, most=2.0),
            log_interval=logs,
            payoff=None if self.actions is None else self.actions.read(at, unit, worth),
        )

    def _unscaled(self, counts: Any) -> Any:
        """Return the weight of each bin: the number of its rows, if they have none."""
        return counts.astype(np.int64) if self.scale is None else counts.astype(np.float64) / self.scale


def _carried(ones: Integers, rest: Integers) -> tuple[Integers, Integers]:
    """Return a sum in two parts, the second of them less than one."""
    return ones + (rest >> DIGITS), rest & ((1 << DIGITS) - 1)


def _mean(ones: int, rest: int, rows: int) -> float:
    """Return the mean of a sum in two parts, to the 15 decimals that are correct."""
    return round(((ones << DIGITS) + rest) / (rows << DIGITS), 15) if rows else np.nan


def _in_order(key: Key) -> list[tuple[bool, str, Any]]:
    """Return a sort key: values of a type together, missing ones last."""
    return [(value is None, type(value).__name__, 0 if value is None else value) for value in key]
