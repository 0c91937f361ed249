"""Many streams of a scaling: temperature, Platt or vector scaling, that forgets or does not."""

from __future__ import annotations

import math
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from treecal._states import MOST_ROUNDS, check_array, check_names, check_rounds
from treecal._typing import Array, Integers, Outcomes
from treecal.columns import ROUNDS, Columns, ColumnStreams, Field, Schema
from treecal.correctors import _forgetting as forgetting
from treecal.correctors import _scaling_steps as kernels
from treecal.correctors._newton import FIRST


def scaling_schema(thing: Any) -> Schema:
    """Return what is kept of a stream: parameters and curvature of each copy, the trust in it, and the rounds seen."""
    copies = partial(_copies_of, thing.forget)
    own = thing._state
    seen = Field("seen", new=own.seen, least=0.0, most=MOST_ROUNDS * 1e12)
    arrays = {"theta": own.theta, "curvature": own.curvature, "trust": own.trust}
    return Schema(
        (ROUNDS, seen, *(Field(name, array.shape[1:], new=array, length=copies) for name, array in arrays.items()))
    )


def _copies_of(forget: bool, columns: Any) -> Integers:
    """Return how many copies each row has: `forgetting.copies`."""
    seen: Array = columns["seen"]
    if not forget:
        return np.ones(len(seen), np.int64)
    return np.asarray(1 + np.maximum(0, np.frexp(seen)[1] - FIRST) * (seen >= 1), np.int64)


class ScalingStreams(ColumnStreams):
    """The state of `Scaling` with an axis for streams; all have room for the copies of the longest stream."""

    def __init__(self, thing: Any) -> None:
        super().__init__(thing, scaling_schema(thing))

    def announce(self, rows: Integers, forecasts: Array | None) -> Array:
        assert forecasts is not None
        of, means = self.thing, np.empty(forecasts.shape)
        now, values = _scalings(self.columns), of._values(of._logs(forecasts))
        kernels.announce(now, rows, values, of._design, self._speeds, means)
        return means

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> Array:
        """Learn on copies of the states, which are put in place at the end."""
        assert forecasts is not None
        of, means = self.thing, np.empty(forecasts.shape)
        Y = np.array(outcomes) if outcomes.ndim == 2 else np.eye(of.space.dim)[outcomes]
        touched, home, counts = np.unique(rows, return_inverse=True, return_counts=True)
        values, at, now = of._values(of._logs(forecasts)), 0, self.columns.take(touched)
        while True:
            at = kernels.play(_scalings(now), home, values, Y, at, of._design, self._speeds, means)
            if at == len(rows):
                break
            for field in self.schema.of(length=True):  # a stream needs another copy
                now.widen(field.name, now[field.name].shape[1] + 1)
        now["rounds"][:] += counts
        self.torn = True
        self.columns.put(touched, now)
        self.torn = False
        return means

    def _copies(self, seen: float) -> int:
        return forgetting.copies(float(seen), FIRST) if self.thing.forget else 1

    @cached_property
    def _speeds(self) -> kernels.Speeds:
        most = self._copies(MOST_ROUNDS * 1e12) if self.thing.forget else 1
        kept, ends = np.ones((most + 2, most + 1)), np.full(most + 2, math.inf)
        for count in range(1, most + 1 if self.thing.forget else 0):
            kept[count, :count], ends[count] = forgetting.kept(count, FIRST), 2.0 ** (FIRST + count - 1)
        return kernels.Speeds(kept, ends, forgetting.LASTING)

    def state(self, rows: Integers) -> dict[str, Any]:
        """Return an array for each part of the state; without what is the same for all where nothing is forgotten."""
        kept = self.rows(rows)
        if self.thing.forget:
            return kept
        return {"rounds": kept["rounds"], **{name: kept[name][:, 0] for name in ("theta", "curvature")}}

    def resumed(self, state: dict[str, Any]) -> Self:
        if self.thing.forget:
            return self.with_rows(state)
        check_names("the state", state, ("rounds", "theta", "curvature"))
        rounds = check_rounds("rounds", state["rounds"], np.size(state["rounds"]))
        for name, shape in (("theta", self.thing._state.theta.shape), ("curvature", self.thing._state.curvature.shape)):
            check_array(name, state[name], (len(rounds), *shape[1:]))
        copies = {name: state[name][:, None] for name in ("theta", "curvature")}
        rest = {"seen": rounds + self.thing._state.seen, "trust": np.ones((len(rounds), 1))}
        return self.with_rows({"rounds": rounds} | rest | copies)


def _scalings(columns: Columns) -> kernels.Scalings:
    return kernels.Scalings(*(columns[name] for name in ("theta", "curvature", "trust", "seen")))
