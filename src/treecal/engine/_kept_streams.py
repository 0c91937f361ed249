"""Streams of which scores and evidence are kept beside their state."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from treecal._states import check_names
from treecal._typing import Array, Integers, Outcomes
from treecal.columns import Forecasts, RowError, Streams
from treecal.correctors import Corrector, Scorecards
from treecal.exceptions import ParameterError, TreeCalError
from treecal.monitor import Monitor, WatchedStreams


class KeptStreams(Streams):
    """Other streams, and what becomes of their forecasts: they are scored, or watched, or both.

    Parameters
    ----------
    streams
        The streams, none yet.
    scores
        Whether what they announce is scored.
    monitor
        A new monitor, of which each stream gets a copy.
    """

    def __init__(self, streams: Streams, *, scores: bool = False, monitor: Monitor | None = None) -> None:
        super().__init__(streams.thing)
        if not isinstance(scores, bool):
            raise ParameterError.expected("scores", scores, "True or False")
        space = self.thing.space
        self._streams = streams
        self.scores = Scorecards(space, corrector=isinstance(self.thing, Corrector)) if scores else None
        self.evidence = None if monitor is None else WatchedStreams(monitor)
        if monitor is not None and monitor.space != space:
            raise ParameterError.expected("monitor", monitor, f"one of {space!r}")

    def _kept(self) -> dict[str, Any]:
        kept = {"scores": self.scores, "evidence": self.evidence}
        return {name: each for name, each in kept.items() if each is not None}

    @property
    def rounds(self) -> Integers:
        return self._streams.rounds

    def reserve(self, rows: int) -> None:
        self._streams.reserve(rows)
        for each in self._kept().values():
            each.reserve(rows)

    def clear(self, rows: Integers) -> None:
        self._streams.clear(rows)
        for each in self._kept().values():
            each.clear(rows)

    def check(self, rows: Integers, *, predict: bool = False) -> None:
        self._streams.check(rows, predict=predict)

    def announce(self, rows: Integers, forecasts: Array | None) -> Forecasts | Array:
        return self._streams.announce(rows, forecasts)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> Array | None:
        self.torn = True
        try:
            announced = self._streams.play(rows, outcomes, forecasts)
        except (RowError, TreeCalError):  # nothing was learned
            self.torn = self._streams.torn
            raise
        self._keep(rows, announced, outcomes, forecasts)
        self.torn = False
        return None if isinstance(announced, Forecasts) else announced

    def _keep(self, rows: Integers, announced: Forecasts | Array, outcomes: Outcomes, forecasts: Array | None) -> None:
        means = announced.mean if isinstance(announced, Forecasts) else announced
        if self.scores is not None:
            self.scores.learn(rows, announced, means, outcomes, forecasts)
        if self.evidence is not None:
            Y = outcomes if outcomes.ndim == 2 else np.eye(self.thing.space.dim)[outcomes]
            self.evidence.learn(rows, means, Y)

    def state(self, rows: Integers) -> dict[str, Any]:
        return self._streams.state(rows) | {name: each.state(rows) for name, each in self._kept().items()}

    def resumed(self, state: dict[str, Any]) -> Self:
        kept = self._kept()
        check_names("the state", {name: state.get(name) for name in kept if name in state}, kept)
        twin = object.__new__(type(self))
        own = self._streams.resumed({name: value for name, value in state.items() if name not in kept})
        vars(twin).update(vars(self), _streams=own, torn=False)
        for name, each in kept.items():
            setattr(twin, name, each.resumed(state[name], own.rounds))
        return twin
