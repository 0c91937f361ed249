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


class RunningMeanStreams(Streams):
    """Of each stream the sum of its outcomes and what rounding dropped of it, `(rows, 2, dim)`."""

    thing: RunningMean

    def __init__(self, thing: RunningMean) -> None:
        super().__init__(thing)
        self._rounds, self._sums = np.zeros(0, np.int64), np.zeros((0, 2, thing.space.dim))

    @property
    def rounds(self) -> Integers:
        return self._rounds

    def reserve(self, rows: int) -> None:
        self._rounds, self._sums = longer(self._rounds, rows), longer(self._sums, rows)

    def clear(self, rows: Integers) -> None:
        self._rounds[rows], self._sums[rows] = 0, 0.0

    def announce(self, rows: Integers, forecasts: Array | None) -> Forecasts:
        rounds, total = self._rounds[rows, None], self._sums[rows, 0] + self._sums[rows, 1]
        points = np.where(rounds, total / np.maximum(rounds, 1), self.thing.start)
        return Forecasts(points[:, None], np.ones((len(rows), 1)), np.ones(len(rows), np.int64), self.thing.space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        from treecal.engine._simple_kernels import add

        add(rows, outcomes, self._sums, self._rounds)  # which nothing interrupts

    def state(self, rows: Integers) -> dict[str, Any]:
        return {"rounds": self._rounds[rows], "sum": self._sums[rows, 0], "lost": self._sums[rows, 1]}

    def resumed(self, state: dict[str, Any]) -> Self:
        check_names("the state", state, ("rounds", "sum", "lost"))
        rounds, space = check_rounds("rounds", state["rounds"], np.size(state["rounds"])), self.thing.space
        for name in ("sum", "lost"):
            check_array(name, state[name], (len(rounds), space.dim))
        for sums in (state["sum"], state["sum"] + state["lost"]):
            check_sums("the sums", sums, rounds.astype(np.float64), space, rounds=float(rounds.max(initial=0)))
        twin = type(self)(self.thing)
        twin._rounds, twin._sums = rounds.copy(), np.stack([state["sum"], state["lost"]], axis=1)
        return twin


class GridStreams(Streams):
    """Of each stream the biases of the points of its grid, `(rows, bins + 1)`."""

    thing: BinaryGrid

    def __init__(self, thing: BinaryGrid) -> None:
        super().__init__(thing)
        self._rounds, self._biases = np.zeros(0, np.int64), np.zeros((0, thing.bins + 1))

    @property
    def rounds(self) -> Integers:
        return self._rounds

    def reserve(self, rows: int) -> None:
        self._rounds, self._biases = longer(self._rounds, rows), longer(self._biases, rows)

    def clear(self, rows: Integers) -> None:
        self._rounds[rows], self._biases[rows] = 0, 0.0

    def announce(self, rows: Integers, forecasts: Array | None) -> Forecasts:
        from treecal.engine._simple_kernels import announce_grids

        points, weights = np.zeros((len(rows), 4, 2)), np.zeros((len(rows), 4))
        sizes = np.empty(len(rows), np.int64)
        announce_grids(rows, self._biases, points, weights, sizes)
        most = int(sizes.max(initial=1))
        return Forecasts(points[:, :most], weights[:, :most], sizes, self.thing.space)

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> None:
        from treecal.engine._simple_kernels import play_grids

        play_grids(rows, outcomes, self._biases, self._rounds)  # which nothing interrupts

    def state(self, rows: Integers) -> dict[str, Any]:
        return {"rounds": self._rounds[rows], "bias": self._biases[rows]}

    def resumed(self, state: dict[str, Any]) -> Self:
        check_names("the state", state, ("rounds", "bias"))
        rounds = check_rounds("rounds", state["rounds"], np.size(state["rounds"]))
        check_array("bias", state["bias"], (len(rounds), self.thing.bins + 1))
        self.thing._check_streams(rounds, state["bias"])
        twin = type(self)(self.thing)
        twin._rounds, twin._biases = rounds.copy(), np.array(state["bias"], order="C")
        return twin


def longer(array: Any, rows: int) -> Any:
    """Return an array with room for so many rows, the new ones zeros."""
    new = np.zeros((rows, *array.shape[1:]), array.dtype)
    new[: len(array)] = array
    return new
