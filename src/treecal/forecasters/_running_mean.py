"""RunningMean: the baseline that a calibrated forecaster has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._compile import strict
from treecal._states import State, check_array
from treecal._sums import two_sum
from treecal._typing import Array, Integers, Outcomes
from treecal.columns import ROUNDS, ColumnStreams, Field, Forecasts, Schema, add_outcome
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster, checked_space
from treecal.geometry import ConvexSet, checked_start


@dataclass(eq=False)
class RunningSum(State):
    """The number of outcomes, their sum, and what rounding dropped of it."""

    rounds: int
    sum: Array
    lost: Array


class RunningMean(Forecaster):
    """Announces the mean of all outcomes so far: Follow-The-Leader for every proper score.

    The sharpest forecast of i.i.d. outcomes, but not calibrated as a ledger counts: its points hardly repeat, so no
    error averages out, and an adversary keeps its ℓ1 error at 1. Sums carry what rounding drops.

    Parameters
    ----------
    space
        The set outcomes lie in.
    start
        The first forecast; by default the set's centre.

    Examples
    --------
    >>> import treecal as tc
    >>> f = tc.RunningMean(tc.Simplex(2))
    >>> for y in [[1, 0], [1, 0], [0, 1], [0, 1]]:
    ...     f.update(y)
    >>> f.predict().mean
    array([0.5, 0.5])
    """

    name = "running-mean"
    ordered = False
    _fields = ("space", "start")

    def __init__(self, space: ConvexSet, *, start: ArrayLike | None = None) -> None:
        self.space = checked_space(space)
        self.start = checked_start(space, start)
        self._state = RunningSum(0, np.zeros(space.dim), np.zeros(space.dim))

    def _announce(self) -> Forecast:
        past = self._state
        point = (past.sum + past.lost) / past.rounds if past.rounds else self.start
        return Forecast.trusted(point[None], uniform(1), None, self.space)

    def _after(self, state: RunningSum, outcome: Array) -> RunningSum:
        total, lost = two_sum(state.sum, outcome)
        return RunningSum(state.rounds + 1, total, state.lost + lost)

    _fork = Forecaster._light_fork

    def _check(self, state: RunningSum) -> None:
        super()._check(state)
        for name, array in (("sum", state.sum), ("lost", state.lost)):
            check_array(name, array, (self.space.dim,))

    def _streams(self) -> RunningMeanStreams:
        return RunningMeanStreams(self)


class RunningMeanStreams(ColumnStreams):
    """Many running means: of each stream the sum of its outcomes, and what rounding dropped of it."""

    def __init__(self, thing: RunningMean) -> None:
        super().__init__(thing, Schema((ROUNDS, *(Field(name, (thing.space.dim,)) for name in ("sum", "lost")))))

    def announce(self, rows: Integers, forecasts: Array | None) -> Forecasts:
        rounds = self.rounds[rows, None]
        total = self.columns["sum"][rows] + self.columns["lost"][rows]
        points = np.where(rounds, total / np.maximum(rounds, 1), self.thing.start)
        return Forecasts(points[:, None], np.ones((len(rows), 1)), np.ones(len(rows), np.int64), self.thing.space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        add(rows, outcomes, self.columns["sum"], self.columns["lost"], self.rounds)  # which nothing interrupts


@strict
def add(rows: Integers, outcomes: Any, sums: Array, lost: Array, rounds: Integers) -> None:
    """Add outcomes to their streams' sums, and what rounding drops to what it lost (Knuth's error-free addition)."""
    dim = sums.shape[1]
    outcome = np.empty(dim)
    for i in range(len(rows)):
        row = rows[i]
        outcome[:] = 0.0
        add_outcome(outcome, outcomes, i)
        for k in range(dim):
            a = sums[row, k]
            b = outcome[k]
            total = a + b
            seen = total - a
            sums[row, k] = total
            lost[row, k] += (a - (total - seen)) + (b - seen)
        rounds[row] += 1
