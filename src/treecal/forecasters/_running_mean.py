"""RunningMean: the baseline that a calibrated forecaster has to beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from treecal._states import State, check_array
from treecal._sums import two_sum
from treecal._typing import Array
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
