"""The binned audit: one pass over the rows, however many, in memory that does not grow with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treecal._typing import Array, Integers
from treecal.auditing._groups import Groups, Key
from treecal.auditing._result import Bins
from treecal.io import Outcomes
from treecal.io._sources import library

_MEMORY = 1 << 29


class Tallies:
    """For each group, class and bin: how many rows, how often the class happened, and the sum of its probabilities.

    Parameters
    ----------
    classes, bins
        How many there are.
    by
        Names of the columns to group by.
    """

    def __init__(self, classes: int, bins: int, by: Sequence[str]) -> None:
        library("numba")
        self.groups = Groups(by, most=max(1, _MEMORY // ((classes + 1) * bins * 32)))
        self._bins = bins
        self.table: Integers = np.zeros((4, 1, classes + 1, bins), np.int64)
        self.scores: Integers = np.zeros((2, 1), np.int64)

    def add(self, outcomes: Outcomes, batch: Any, before: int) -> int:
        """Add the good rows of a batch that so many rows came before; return how many."""
        by = [batch.column(f"by{k}") for k in range(len(self.groups.by))]
        counted = self._add(outcomes.columns(batch, "p"), outcomes.indices(batch), by, outcomes.tolerance)
        if counted < batch.num_rows:  # a bad row comes soon: let it be told
            chunk = outcomes.read(batch.slice(counted), before + counted)
            assert chunk.forecasts is not None
            forecasts, by = list(chunk.forecasts.T), [chunk.kept[name] for name in self.groups.by]
            more = self._add(forecasts, np.asarray(chunk.outcomes, np.int64), by, outcomes.tolerance)
            assert more == len(chunk.rows), "the kernel and Outcomes.read differ about what a good row is"
            counted += more
        return counted

    def _add(self, forecasts: Sequence[Array], outcomes: Integers, by: Sequence[Any], tolerance: float) -> int:
        """Add rows, from the first one on, as long as they are good; return how many."""
        from treecal.auditing import _kernels as kernels

        groups = self.groups.of(by, len(outcomes))
        room = self.scores.shape[1]
        if (count := len(self.groups.index)) > room:  # double, so that groups cost O(1) each
            more = max(count, min(2 * room, self.groups.most)) - room
            self.table, self.scores = (
                np.concatenate([old, np.zeros((len(old), more, *old.shape[2:]), np.int64)], axis=1)
                for old in (self.table, self.scores)
            )
        columns = [np.ascontiguousarray(column, np.float64) for column in forecasts]
        where = np.array([column.__array_interface__["data"][0] for column in columns], np.int64)
        return int(kernels.tally(where, outcomes, groups, tolerance, self._bins, self.table, self.scores))

    def read(self, key: Key | None) -> tuple[int, float, list[Bins]]:
        """Return rows, Brier score and bins (for each class, then for the likeliest) of a group, or of all rows."""
        at = slice(None) if key is None else slice(g := self.groups.index[key], g + 1)
        cells = self.table[:, at].astype(object).sum(axis=1)  # whole numbers that cannot run over
        rows = int(cells[0, -1].sum())
        ones, rest = self.scores[:, at].astype(object).sum(axis=1)
        edges = np.arange(self._bins + 1) / self._bins  # 0.3 lies in [0.3, 0.4), where linspace would put it below
        return rows, 2 * _mean(ones, rest, rows), [Bins(edges, *_columns(cells[:, k])) for k in range(cells.shape[1])]


def _columns(cells: Any) -> tuple[Integers, Array, Array]:
    """Return rows, mean probability and frequency of each bin."""
    rows, hits, ones, rest = cells
    said = np.array([_mean(*cell) for cell in zip(ones, rest, rows, strict=True)])
    return rows.astype(np.int64), said, np.array([h / n if n else np.nan for h, n in zip(hits, rows, strict=True)])


def _mean(ones: int, rest: int, rows: int) -> float:
    """Return the mean of a sum in two parts, to the 15 decimals that are certain."""
    from treecal.auditing._kernels import DIGITS

    return round(((ones << DIGITS) + rest) / (rows << DIGITS), 15) if rows else np.nan
