"""What a calibrated forecaster has to beat."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._sums import two_sum
from treecal._typing import Array
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster, checked_space, checked_start
from treecal.geometry import ConvexSet


class RunningMean(Forecaster):
    """Announces the mean of all outcomes so far: Follow-The-Leader for every proper score.

    The sharpest forecast of i.i.d. outcomes, and never calibrated as a ledger counts: its points hardly repeat, so no
    error is averaged away, and an adversary holds its ℓ1 error at 1 for ever. Sums carry what rounding drops.

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
    _fields = ("space", "start")

    def __init__(self, space: ConvexSet, *, start: ArrayLike | None = None) -> None:
        self.space = checked_space(space)
        self.start = checked_start(space, start)
        self._rounds = 0
        self._sum, self._lost = np.zeros(space.dim), np.zeros(space.dim)

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._rounds

    def _announce(self) -> Forecast:
        point = (self._sum + self._lost) / self._rounds if self._rounds else self.start
        return Forecast.trusted(point[None], uniform(1), None, self.space)

    def _learn(self, outcome: Array) -> None:
        self._sum, lost = two_sum(self._sum, outcome)
        self._lost += lost
        self._rounds += 1

    def get_state(self) -> dict[str, Any]:
        """Return the number of rounds and the sum, in two parts."""
        return {"rounds": self._rounds, "sum": self._sum, "lost": self._lost}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from such a state."""
        self._rounds, self._sum, self._lost = state["rounds"], np.array(state["sum"]), np.array(state["lost"])
        self._announced = None
