"""Many streams of a scaling: what is kept of each, and the steps of one stream, row by row."""

from __future__ import annotations

import math
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np

from treecal._compile import strict
from treecal._states import MOST_ROUNDS, check_array, check_names, check_rounds
from treecal._typing import Array, Integers, Outcomes
from treecal.columns import ROUNDS, Columns, ColumnStreams, Field, Schema
from treecal.correctors import _forgetting as forgetting
from treecal.correctors._forgetting import mixed
from treecal.correctors._newton_kernels import FIRST, Copies, Design, _law, _room, _step


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
        of = self.thing
        means = np.empty(forecasts.shape)
        now = _scalings(self.columns)
        values = of._values(of._logs(forecasts))
        announce(now, rows, values, of._design, self._speeds, means)
        return means

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> Array:
        """Learn on copies of the states, which are put in place at the end."""
        assert forecasts is not None
        of = self.thing
        means = np.empty(forecasts.shape)
        Y = np.array(outcomes) if outcomes.ndim == 2 else np.eye(of.space.dim)[outcomes]
        touched, home, counts = np.unique(rows, return_inverse=True, return_counts=True)
        rounds = Rounds(home, of._values(of._logs(forecasts)), Y)
        now = self.columns.take(touched)
        at = 0
        while True:
            at = play(_scalings(now), rounds, at, of._design, self._speeds, means)
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
    def _speeds(self) -> Speeds:
        most = self._copies(MOST_ROUNDS * 1e12) if self.thing.forget else 1
        kept = np.ones((most + 2, most + 1))
        ends = np.full(most + 2, math.inf)
        for count in range(1, most + 1 if self.thing.forget else 0):
            kept[count, :count] = forgetting.kept(count, FIRST)
            ends[count] = 2.0 ** (FIRST + count - 1)
        return Speeds(kept, ends, forgetting.LASTING)

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


def _scalings(columns: Columns) -> Scalings:
    return Scalings(*(columns[name] for name in ("theta", "curvature", "trust", "seen")))


class Scalings(NamedTuple):
    """The states of streams, with room for equally many copies; `seen` decides how many of them there are."""

    theta: Array  # (streams, copies, parameters)
    curvature: Array  # (streams, copies, blocks, size, size)
    trust: Array  # (streams, copies)
    seen: Array  # (streams,)


class Speeds(NamedTuple):
    """Of each number of copies, what each keeps of its past in a round, and the weight from which on it is one more."""

    kept: Array  # (most copies + 1, most copies)
    ends: Array  # (most copies + 1,)
    lasting: float


class Rounds(NamedTuple):
    """Rounds of many streams, each with its row in the state, the values of its forecast, and its outcome."""

    streams: Integers
    values: Array
    outcomes: Array


@strict
def _count(seen: float, speeds: Speeds) -> int:
    """Return how many copies there are after so many rounds."""
    count = 1
    while seen >= speeds.ends[count]:
        count += 1
    return count


@strict
def announce(now: Scalings, streams: Integers, values: Array, design: Design, speeds: Speeds, means: Array) -> None:
    """Write what the stream of each row announces."""
    logs = np.empty(means.shape[1])
    laws = np.empty((now.theta.shape[1], means.shape[1]))
    for row in range(len(values)):
        own = streams[row]
        count = _count(now.seen[own], speeds)
        for copy in range(count):
            _law(now.theta[own, copy], values[row], design, logs, laws[copy])
        mixed(now.trust[own, :count], laws, means[row])


@strict
def join(now: Scalings, own: int, count: int, design: Design, speeds: Speeds) -> None:
    """Add a copy to the `count` copies of a stream: one that remembers as much as it would hold."""
    theta = now.theta[own]
    A = now.curvature[own]
    trust = now.trust[own]
    part = min(1.0, 1.0 / (1.0 - speeds.kept[count + 1, count]) / now.seen[own])
    theta[count] = theta[0]
    for block in range(A.shape[1]):
        for i in range(A.shape[2]):
            for j in range(A.shape[2]):
                A[count, block, i, j] = part * A[0, block, i, j] + (1.0 - part) * (design.ridge if i == j else 0.0)
    left = 1.0 - (1.0 - speeds.lasting) * (1.0 - 1.0 / count)
    taken = (1.0 - speeds.lasting) / (count * (count + 1)) / left
    trust[count] = trust[0] * taken
    trust[0] *= 1.0 - taken


@strict
def play(now: Scalings, rounds: Rounds, at: int, design: Design, speeds: Speeds, means: Array) -> int:
    """Take a step of weight 1 for each round, from `at` on; write what its stream announces before it.

    Return the next row: their number, or one that needs room for another copy.
    """
    streams, values, outcomes = rounds
    most = now.theta.shape[1]
    room = _room(most, means.shape[1], now.theta.shape[2], design.blocks)
    for row in range(at, len(streams)):
        own = streams[row]
        count = _count(now.seen[own], speeds)
        seen = now.seen[own] + 1.0
        grows = seen >= speeds.ends[count]
        if grows and count == most:
            return row
        theta = now.theta[own, :count]
        trust = now.trust[own, :count]
        for copy in range(count):
            _law(theta[copy], values[row], design, room.logs, room.laws[copy])
        mixed(trust, room.laws, means[row])
        copies = Copies(theta, now.curvature[own, :count], trust, speeds.kept[count, :count])
        _step(copies, seen, values[row], outcomes[row], 1.0, design, room)
        now.seen[own] = seen
        if grows:
            join(now, own, count, design, speeds)
    return len(streams)
