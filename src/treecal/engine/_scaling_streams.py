"""Many streams of a scaling: temperature, Platt or vector scaling, that forgets or does not."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Self

import numpy as np

from treecal._states import MOST_ROUNDS, check_array, check_names, check_rounds
from treecal._typing import Array, Integers
from treecal.correctors import Scaling
from treecal.correctors import _forgetting as forgetting
from treecal.correctors._scaling import _STEEPEST as STEEPEST
from treecal.correctors._scaling import FIRST, LARGEST
from treecal.engine._outcomes import Outcomes
from treecal.engine._streams import Streams
from treecal.exceptions import SnapshotError

_ARRAYS = ("theta", "curvature", "trust", "seen")


class ScalingStreams(Streams):
    """The state of `Scaling` with an axis for streams; all have room for the copies of the longest stream."""

    thing: Scaling

    def __init__(self, thing: Scaling) -> None:
        super().__init__(thing)
        own = thing._state
        self._fresh = [np.array(array) for array in (own.theta, own.curvature, own.trust, own.seen)]
        self._arrays = [np.empty((0, *array.shape)) for array in self._fresh]
        self._rounds = np.zeros(0, np.int64)

    @property
    def rounds(self) -> Integers:
        return self._rounds

    def reserve(self, rows: int) -> None:
        more = np.zeros(rows - len(self._rounds), np.int64)
        self._arrays = [_longer(array, rows) for array in self._arrays]
        self._rounds = np.concatenate([self._rounds, more])
        self.clear(np.arange(rows - len(more), rows))

    def clear(self, rows: Integers) -> None:
        self._rounds[rows] = 0
        copies = len(self._fresh[2])
        for array, fresh in zip(self._arrays[:3], self._fresh, strict=False):
            array[rows, :copies] = fresh
        self._arrays[3][rows] = self._fresh[3]

    def announce(self, rows: Integers, forecasts: Array | None) -> Array:
        from treecal.engine import _scaling_kernels as kernels

        assert forecasts is not None
        of, means = self.thing, np.empty(forecasts.shape)
        now, values = kernels.Scalings(*self._arrays), of._values(of._logs(forecasts))
        kernels.announce(now, rows, values, of._design, self._speeds, means)
        return means

    def learn(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> Array:
        """Learn on copies of the states, which are put in place at the end."""
        from treecal.engine import _scaling_kernels as kernels

        assert forecasts is not None
        of, means = self.thing, np.empty(forecasts.shape)
        Y = np.array(outcomes) if outcomes.ndim == 2 else np.eye(of.space.dim)[outcomes]
        touched, home, counts = np.unique(rows, return_inverse=True, return_counts=True)
        values, at = of._values(of._logs(forecasts)), 0
        now = kernels.Scalings(*(array[touched] for array in self._arrays))
        while (at := kernels.play(now, home, values, Y, at, of._design, self._speeds, means)) < len(rows):
            self._arrays[:3] = (_wider(array) for array in self._arrays[:3])
            now = kernels.Scalings(_wider(now.theta), _wider(now.curvature), _wider(now.trust), now.seen)
        self.torn = True
        for array, new in zip(self._arrays, now, strict=True):
            array[touched] = new
        self._rounds[touched] += counts
        self.torn = False
        return means

    def _copies(self, seen: float) -> int:
        return forgetting.copies(float(seen), FIRST) if self.thing.forget else 1

    @cached_property
    def _speeds(self) -> Any:
        from treecal.engine import _scaling_kernels as kernels

        most = self._copies(MOST_ROUNDS * 1e12) if self.thing.forget else 1
        kept, ends = np.ones((most + 2, most + 1)), np.full(most + 2, math.inf)
        for count in range(1, most + 1 if self.thing.forget else 0):
            kept[count, :count], ends[count] = forgetting.kept(count, FIRST), 2.0 ** (FIRST + count - 1)
        return kernels.Speeds(kept, ends, forgetting.LASTING)

    def state(self, rows: Integers) -> dict[str, Any]:
        """Return an array for each part of the state; without what is the same for all where nothing is forgotten."""
        arrays = [array[rows] for array in self._arrays]
        if not self.thing.forget:
            return {"rounds": self._rounds[rows], "theta": arrays[0][:, 0], "curvature": arrays[1][:, 0]}
        copies = self._copies(arrays[3].max(initial=float(self._fresh[3])))
        for i in range(3):
            arrays[i] = arrays[i][:, :copies].copy()
        return {"rounds": self._rounds[rows], **dict(zip(_ARRAYS, arrays, strict=True))}

    def resumed(self, state: dict[str, Any]) -> Self:
        of, names = self.thing, _ARRAYS if self.thing.forget else _ARRAYS[:2]
        check_names("the state", state, ("rounds", *names))
        rounds = check_rounds("rounds", state["rounds"], np.size(state["rounds"]))
        n, before = len(rounds), float(self._fresh[3])
        copies = self._copies(rounds.max(initial=0) + before)
        shapes = {"seen": (n,), "trust": (n, copies)}
        for name, fresh in zip(names, self._fresh, strict=False):
            shape = shapes.get(name, (n, *[copies] * of.forget, *fresh.shape[1:]))
            check_array(name, state[name], shape)
        twin = type(self)(of)
        if of.forget:
            twin._arrays = [np.array(state[name], order="C") for name in names]
        else:
            twin._arrays = [np.array(state[name], order="C")[:, None] for name in names]
            twin._arrays += [np.ones((n, 1)), rounds + before]
        twin._rounds = rounds.copy()
        twin._check()
        return twin

    def _check(self) -> None:
        """Raise unless streams of so many rounds can have these states, whose shapes are right."""
        of, (theta, A, trust, seen), rounds = self.thing, self._arrays, self._rounds
        if (np.abs(seen - (rounds + self._fresh[3])) > 1e-9 * (1 + seen)).any():
            raise SnapshotError("what the streams have seen is not their rounds.")
        counts = 1 + np.maximum(0, np.frexp(seen)[1] - FIRST) * (of.forget and seen >= 1)
        own = np.arange(theta.shape[1]) < counts[:, None]
        if theta[~own].any() or A[~own].any() or trust[~own].any():
            raise SnapshotError("a stream has more copies than its rounds ask for.")
        if (trust < 0).any() or (np.abs(trust.sum(axis=1) - 1) > 1e-9).any():
            raise SnapshotError("the trust in the copies is not a distribution.")
        steepest = np.abs(A).max(axis=(1, 2, 3, 4), initial=0.0) > of.ridge + seen * STEEPEST
        if np.abs(theta).max(initial=0.0) > LARGEST or steepest.any():
            raise SnapshotError("theta or the curvature is more than the rounds can give.")
        if np.sqrt((theta**2).sum(axis=2)).max(initial=0.0) > of.radius * (1 + 1e-9):
            raise SnapshotError(f"theta is longer than the radius {of.radius:g}.")
        matrices = A[own]
        values = np.linalg.eigvalsh(matrices)
        played = np.broadcast_to((rounds + of.rounds)[:, None], own.shape)[own]
        lost = played[:, None] * float(np.finfo(np.float64).eps) * values[..., -1]
        symmetric = np.allclose(matrices, matrices.swapaxes(-1, -2), rtol=1e-9, atol=0)
        if not symmetric or (values[..., 0] < of.ridge / 2 - lost).any():
            raise SnapshotError(f"the curvature is not a symmetric matrix of at least ridge·I, ridge={of.ridge:g}.")


def _longer(array: Array, rows: int) -> Array:
    """Return the array with room for so many rows."""
    new = np.zeros((rows, *array.shape[1:]))
    new[: len(array)] = array
    return new


def _wider(array: Array) -> Array:
    """Return the array with room for one copy more."""
    new = np.zeros((array.shape[0], array.shape[1] + 1, *array.shape[2:]))
    new[:, :-1] = array
    return new
