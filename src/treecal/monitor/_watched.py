"""Watched: a monitor in the place of a corrector, so that what takes correctors takes it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import numpy as np

from treecal._states import resumed
from treecal._typing import Array, Changes, Saved
from treecal.correctors import Batch, Corrector, Group, Scored
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast
from treecal.geometry import ROUNDING, ConvexSet
from treecal.monitor._monitor import Monitor


class Watched(Corrector):
    """A corrector that changes nothing, and watches: for outcomes by id (`tc.Late`), in chains, behind other wrappers.

    Announces each forecast as it is, and gives it with its outcome to a monitor. In `tc.Late(Watched(monitor))`
    outcomes count in order of arrival; what that means for the null hypothesis, `tc.Monitor` says. As the last part of
    a `Chain` it watches the corrected forecasts.

    Parameters
    ----------
    monitor
        The monitor, of which a copy is used.
    scores, tolerance
        As for every `Corrector`.

    Examples
    --------
    >>> import treecal as tc
    >>> late = tc.Late(Watched(tc.Monitor(tc.Simplex(2))))
    >>> monday = late.predict([0.5, 0.5], id="monday")
    >>> tuesday = late.predict([1.0, 0.0], id="tuesday")
    >>> late.update("tuesday", 1)
    >>> print(late.thing.monitor.alarm)
    alarm after round 1: the outcome was 1, to which the forecast gave the probability 0
    """

    _fields = ("monitor", "scores", "tolerance")

    def __init__(self, monitor: Monitor, *, scores: Scored | None = "binned", tolerance: float = ROUNDING) -> None:
        if not isinstance(monitor, Monitor):
            hint = "Watched(tc.Monitor(space))."
            raise ParameterError.expected("monitor", monitor, "a Monitor", hint=hint)
        super().__init__(monitor.space, scores=scores, tolerance=tolerance)
        self._watching = deepcopy(monitor)

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield one for the whole stream, and one for groups."""
        yield cls(Monitor(space))
        yield cls(Monitor(space, by_group=True, arl=50))

    @property
    def monitor(self) -> Monitor:
        """The monitor, as it is now."""
        return self._watching

    def _announce(self, forecast: Array, *, group: Group = None) -> Forecast:
        if group is not None:
            self.monitor._checked_group(group)
        return self._point(forecast)

    def _after(self, forecast: Array, outcome: Array, *, group: Group = None) -> Changes:
        return {"_watching": self.monitor._learned(forecast[None], outcome[None], None if group is None else [group])}

    def revised(self, before: Array, after: Array, group: Group = None) -> None:
        """Learn that a pending forecast was revised; both are points of the set."""
        self.monitor.learn_valid(before[None], after[None], None if group is None else [group])

    def _played(self, batch: Batch) -> tuple[Array, Changes]:
        counted = batch.counted()
        for group in {*(counted.groups or ())} - {None}:
            self.monitor._checked_group(group)
        learned = self.monitor._learned(counted.forecasts, counted.outcomes, counted.groups)
        return np.array(batch.forecasts), {"_watching": learned}

    def _own_state(self) -> Saved:
        return self.monitor.get_state()

    def _own_resumed(self, state: Saved, rounds: int) -> Changes:
        return {"_watching": resumed(self.monitor, state)}
