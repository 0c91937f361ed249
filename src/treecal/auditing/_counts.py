"""What an engine counts, and the audit that follows from it: the same for every engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from treecal.auditing._calibration import Calibration
from treecal.auditing._cells import DIGITS, LOG_SCALE, WEIGHT_SCALE, AuditRows, BinCounts
from treecal.auditing._exact import ErrorSums
from treecal.auditing._groups import ByKey, Groups, Key, in_order
from treecal.auditing._result import Audit
from treecal.io import Problems
from treecal.measures import Bins, Interval, LossTable, Payoff, best_actions, largest_surprise, mean_interval

_UNCOMPILED = 1 << 16  # probabilities: Python takes less than a second for them, where compiling takes several


def tally(rows: AuditRows, counts: BinCounts) -> None:
    """Add valid rows to the counts, by the kernel, which is imported when it is first needed."""
    from treecal.auditing._kernels import tally as kernel

    run = kernel.now if rows.forecasts.size <= _UNCOMPILED else kernel
    run(rows, counts)


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


@dataclass(eq=False)
class AuditCounts:
    """All that an engine counts: groups, cells, and the sums of exact errors; what a weight of 1 counts; actions."""

    groups: Groups
    cells: BinCounts
    exact: ErrorSums | None = None
    scale: float | None = None
    actions: Actions | None = None

    @classmethod
    def empty(
        cls, groups: Groups, *, classes: int, bins: int, scale: float | None = None, table: LossTable | None = None
    ) -> AuditCounts:
        """Return the counts of no rows; with a table of losses, those of actions as well."""
        actions = None if table is None else Actions(table)
        return cls(groups, BinCounts.empty(classes=classes, bins=bins), None, scale, actions)

    def add(self, rows: AuditRows) -> None:
        """Count valid rows in the cells of their groups, and what was done with each action."""
        self.cells = self.cells.with_room(self.groups)
        if len(rows.weights):
            self.cells.rows[:] += np.bincount(rows.groups, minlength=len(self.cells.rows))
        tally(rows, self.cells)
        if self.actions is not None:
            self.actions.add(rows, len(self.groups.index))

    def audit(self, source: str, classes: tuple[str, ...], columns: tuple[str, ...], problems: Problems) -> Audit:
        """Return the audit of these rows."""
        keys = in_order(self.groups.index) if self.groups.by else []
        groups = ByKey((key, self._calibration(key, classes)) for key in keys)
        whole = self._calibration(None, classes)
        what: dict[str, Any] = {"source": source, "classes": classes, "columns": columns, "problems": problems}
        return Audit(by=self.groups.by, whole=whole, groups=groups, **what)

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
            note = f"{impossible / unit:,.6g} outcome{'' if impossible == unit else 's'} had forecast 0"
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


def _mean(ones: int, rest: int, rows: int) -> float:
    """Return the mean of a sum in two parts, to the 15 decimals that are correct."""
    return round(((ones << DIGITS) + rest) / (rows << DIGITS), 15) if rows else np.nan
