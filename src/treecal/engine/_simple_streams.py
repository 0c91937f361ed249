"""Many running means, and many grids of two outcomes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from treecal._typing import Array, Integers
from treecal.columns import ROUNDS, Field, Schema
from treecal.engine._column_streams import ColumnStreams
from treecal.engine._forecasts import Forecasts
from treecal.engine._outcomes import Outcomes
from treecal.forecasters import BinaryGrid, RunningMean


class RunningMeanStreams(ColumnStreams):
    """Of each stream the sum of its outcomes, and what rounding dropped of it."""

    thing: RunningMean

    def __init__(self, thing: RunningMean) -> None:
        super().__init__(thing, Schema((ROUNDS, *(Field(name, (thing.space.dim,)) for name in ("sum", "lost")))))

    def announce(self, rows: Integers, forecasts: Array | None) -> Forecasts:
        rounds = self.rounds[rows, None]
        total = self.columns["sum"][rows] + self.columns["lost"][rows]
        points = np.where(rounds, total / np.maximum(rounds, 1), self.thing.start)
        return Forecasts(points[:, None], np.ones((len(rows), 1)), np.ones(len(rows), np.int64), self.thing.space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        from treecal.engine._simple_kernels import add

        add(rows, outcomes, self.columns["sum"], self.columns["lost"], self.rounds)  # which nothing interrupts


class GridStreams(ColumnStreams):
    """Of each stream the biases of the points of its grid."""

    thing: BinaryGrid

    def __init__(self, thing: BinaryGrid) -> None:
        super().__init__(thing, Schema((ROUNDS, Field("bias", (thing.bins + 1,)))))

    def announce(self, rows: Integers, forecasts: Array | None) -> Forecasts:
        from treecal.engine._simple_kernels import announce_grids

        points, weights = np.zeros((len(rows), 4, 2)), np.zeros((len(rows), 4))
        sizes = np.empty(len(rows), np.int64)
        announce_grids(rows, self.columns["bias"], points, weights, sizes)
        most = int(sizes.max(initial=1))
        return Forecasts(points[:, :most], weights[:, :most], sizes, self.thing.space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        from treecal.engine._simple_kernels import play_grids

        play_grids(rows, outcomes, self.columns["bias"], self.rounds)  # which nothing interrupts

    def with_rows(self, columns: Any) -> Self:
        twin = super().with_rows(columns)
        self.thing.check_bias(twin.columns["bias"])
        return twin
