"""Many running means, and many grids of two outcomes."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from treecal._states import check_array, check_names, check_rounds, check_sums
from treecal._typing import Array, Integers
from treecal.engine._forecasts import Forecasts
from treecal.engine._outcomes import Outcomes
from treecal.engine._streams import Streams
from treecal.forecasters import BinaryGrid, RunningMean


class _PastStreams(Streams):
    """Of each stream its rounds, and its past as numbers of some shape, which are 0 at first."""

    thing: RunningMean | BinaryGrid

    def __init__(self, thing: RunningMean | BinaryGrid, *shape: int) -> None:
        super().__init__(thing)
        self._rounds, self._past = np.zeros(0, np.int64), np.zeros((0, *shape))

    @property
    def rounds(self) -> Integers:
        return self._rounds

    def reserve(self, rows: int) -> None:
        self._rounds, self._past = _longer(self._rounds, rows), _longer(self._past, rows)

    def clear(self, rows: Integers) -> None:
        self._rounds[rows], self._past[rows] = 0, 0.0

    def _with(self, rounds: Integers, past: Array) -> Self:
        """Return other streams of the same kind, given arrays of their own."""
        twin = type(self)(self.thing)
        twin._rounds, twin._past = rounds, past
        return twin


class RunningMeanStreams(_PastStreams):
    """The past of a stream is the sum of its outcomes, and what rounding dropped of it: `(2, dim)`."""

    thing: RunningMean

    def __init__(self, thing: RunningMean) -> None:
        super().__init__(thing, 2, thing.space.dim)

    def announce(self, rows: Integers, forecasts: Array | None) -> Forecasts:
        rounds, total = self._rounds[rows, None], self._past[rows, 0] + self._past[rows, 1]
        points = np.where(rounds, total / np.maximum(rounds, 1), self.thing.start)
        return Forecasts(points[:, None], np.ones((len(rows), 1)), np.ones(len(rows), np.int64), self.thing.space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        from treecal.engine._simple_kernels import add

        add(rows, outcomes, self._past, self._rounds)  # which nothing interrupts

    def state(self, rows: Integers) -> dict[str, Any]:
        return {"rounds": self._rounds[rows], "sum": self._past[rows, 0], "lost": self._past[rows, 1]}

    def resumed(self, state: dict[str, Any]) -> Self:
        check_names("the state", state, ("rounds", "sum", "lost"))
        rounds, space = check_rounds("rounds", state["rounds"], np.size(state["rounds"])), self.thing.space
        for name in ("sum", "lost"):
            check_array(name, state[name], (len(rounds), space.dim))
        for sums in (state["sum"], state["sum"] + state["lost"]):
            check_sums("the sums", sums, rounds.astype(np.float64), space, rounds=float(rounds.max(initial=0)))
        return self._with(rounds.copy(), np.stack([state["sum"], state["lost"]], axis=1))


class GridStreams(_PastStreams):
    """The past of a stream is the biases of the points of its grid: `(bins + 1,)`."""

    thing: BinaryGrid

    def __init__(self, thing: BinaryGrid) -> None:
        super().__init__(thing, thing.bins + 1)

    def announce(self, rows: Integers, forecasts: Array | None) -> Forecasts:
        from treecal.engine._simple_kernels import announce_grids

        points, weights = np.zeros((len(rows), 4, 2)), np.zeros((len(rows), 4))
        sizes = np.empty(len(rows), np.int64)
        announce_grids(rows, self._past, points, weights, sizes)
        most = int(sizes.max(initial=1))
        return Forecasts(points[:, :most], weights[:, :most], sizes, self.thing.space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        from treecal.engine._simple_kernels import play_grids

        play_grids(rows, outcomes, self._past, self._rounds)  # which nothing interrupts

    def state(self, rows: Integers) -> dict[str, Any]:
        return {"rounds": self._rounds[rows], "bias": self._past[rows]}

    def resumed(self, state: dict[str, Any]) -> Self:
        check_names("the state", state, ("rounds", "bias"))
        rounds = check_rounds("rounds", state["rounds"], np.size(state["rounds"]))
        check_array("bias", state["bias"], (len(rounds), self.thing.bins + 1))
        self.thing._check_streams(rounds, state["bias"])
        return self._with(rounds.copy(), np.array(state["bias"], order="C"))


def _longer(array: Any, rows: int) -> Any:
    """Return an array with room for so many rows, the new ones zeros."""
    new = np.zeros((rows, *array.shape[1:]), array.dtype)
    new[: len(array)] = array
    return new
