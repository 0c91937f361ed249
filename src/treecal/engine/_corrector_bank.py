"""Many correctors at once, each with its own rounds, in arrays with a row for each."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from threading import RLock
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike

from treecal._states import check_array, check_names, check_rounds, check_sums
from treecal._sums import two_sum
from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.correctors import (
    Corrector,
    PlattScaling,
    Recalibrator,
    Scaling,
    TemperatureScaling,
    TopClass,
    VectorScaling,
)
from treecal.correctors._newton import Newton
from treecal.correctors._scaling import _STEEPEST as STEEPEST
from treecal.correctors._scaling import LARGEST
from treecal.engine._outcomes import Outcomes, read_outcomes
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, SnapshotError, TreeCalError
from treecal.geometry import ConvexSet
from treecal.geometry._rows import read_forecast_rows

EPS = float(np.finfo(np.float64).eps)
Columns = dict[str, Array]
"""State by name, the first axis of each array being that of the rows."""


class Rounds(Protocol):
    """The arithmetic of one corrector on rows of states, forecasts and outcomes that belong together."""

    places: int
    """Rows of state of one stream; a round reads and changes one of them."""

    def start(self) -> Columns:
        """Return the state of a new stream, `(places, …)`."""

    def place(self, forecasts: Array) -> Integers:
        """Return which of the stream's rows each forecast belongs to."""

    def announce(self, now: Columns, forecasts: Array) -> Array:
        """Return what is announced in place of each forecast."""

    def play(self, now: Columns, at: Integers, forecasts: Array, outcomes: Array) -> Array:
        """Learn rounds in order, each in the row `at` of the states, which change; return what is announced."""

    def check(self, state: Columns, rounds: Integers) -> None:
        """Raise unless so many streams can have this state, whose shapes are right."""


class _Scalings:
    """Rounds of scalings: the step of `Scaling` for one copy, with parameters of its own for each stream."""

    places = 1

    def __init__(self, corrector: Scaling) -> None:
        if corrector.forget:
            raise ParameterError.expected(
                "corrector", corrector, "one with forget=False: streams in a bank do not forget"
            )
        self._of = corrector

    def start(self) -> Columns:
        return {"theta": self._of._state.theta, "curvature": self._of._state.curvature}

    def place(self, forecasts: Array) -> Integers:
        return np.zeros(len(forecasts), np.int64)

    def announce(self, now: Columns, forecasts: Array) -> Array:
        from treecal.correctors import _newton_kernels as kernels

        of, means = self._of, np.empty(forecasts.shape)
        kernels.announce_streams(now["theta"], of._values(of._logs(forecasts)), of._design, means)
        return means

    def play(self, now: Columns, at: Integers, forecasts: Array, outcomes: Array) -> Array:
        from treecal.correctors import _newton_kernels as kernels

        of, (theta, A), means = self._of, (now["theta"], now["curvature"]), np.empty(forecasts.shape)
        values, Y, row = of._values(of._logs(forecasts)), np.array(outcomes), 0
        while (row := kernels.play_streams(theta, A, at, values, Y, row, of._design, means)) < len(at):
            own = at[row : row + 1]
            after = of._careful(Newton(theta[own], A[own], np.ones(1), 0.0), values[row], Y[row], 1.0)
            theta[own], A[own] = after.theta, after.curvature
            row += 1
        return means

    def check(self, state: Columns, rounds: Integers) -> None:
        of, theta, A = self._of, state["theta"], state["curvature"]
        seen = rounds + of._state.seen
        steepest = np.abs(A).max(axis=(1, 2, 3), initial=0.0) > of.ridge + seen * STEEPEST
        if np.abs(theta).max(initial=0.0) > LARGEST or steepest.any():
            raise SnapshotError("theta or the curvature is more than the rounds can give.")
        if np.sqrt((theta**2).sum(axis=1)).max(initial=0.0) > of.radius * (1 + 1e-9):
            raise SnapshotError(f"theta is longer than the radius {of.radius:g}.")
        values = np.linalg.eigvalsh(A)
        lost = (rounds + of.rounds)[:, None] * EPS * values[..., -1]
        if not np.allclose(A, A.swapaxes(-1, -2), rtol=1e-9, atol=0) or (values[..., 0] < of.ridge / 2 - lost).any():
            raise SnapshotError(f"the curvature is not a symmetric matrix of at least ridge·I, ridge={of.ridge:g}.")


class _Means:
    """Rounds of group means or shifts: a stream has a row for each group of its forecasts."""

    def __init__(self, corrector: Recalibrator) -> None:
        if corrector.forget or not isinstance(corrector.make, str) or not isinstance(corrector.groups, TopClass):
            expected = "one with forget=False, groups by TopClass, and make='mean' or 'shift'"
            raise ParameterError.expected("corrector", corrector, expected)
        self._of, self._groups, self._dim = corrector, corrector.groups, corrector.space.dim
        self.places = self._dim * self._groups.bins

    def start(self) -> Columns:
        d = self._dim
        first, sums = np.zeros((self.places, d)), np.zeros((self.places, 2, 1 + 2 * d))
        for name, group in self._of._groups().items():
            top, at = cast(tuple[int, int], name)  # as TopClass names them
            row = top * self._groups.bins + at
            first[row], sums[row] = group.first, group.sums[:2, [0, *range(3, 3 + 2 * d)]]
        return {"first": first, "sums": sums}

    def place(self, forecasts: Array) -> Integers:
        top, at = self._groups.places(forecasts)
        return np.asarray(top * self._groups.bins + at)

    def announce(self, now: Columns, forecasts: Array) -> Array:
        of, d = self._of, self._dim
        prior, (total, lost) = 1.0 if of.prior is None else of.prior, now["sums"].swapaxes(0, 1)
        weight, y, b = prior + total[:, :1], slice(1, 1 + d), slice(1 + d, None)
        met = total[:, 0] > 0
        if of.make == "shift":
            sums = total[:, y] - total[:, b] + (lost[:, y] - lost[:, b])
        else:
            sums = prior * now["first"] + total[:, y] + lost[:, y]
        means = np.divide(sums, weight, where=met[:, None], out=np.zeros_like(sums))
        found = of.space.project(forecasts + means) if of.make == "shift" else means
        return np.where(met[:, None], found, forecasts)

    def play(self, now: Columns, at: Integers, forecasts: Array, outcomes: Array) -> Array:
        means = np.empty(forecasts.shape)
        for rows in waves(at):  # the first round of each stream and group, then the second, and so on
            own, b = at[rows], forecasts[rows]
            before = {name: array[own] for name, array in now.items()}
            means[rows] = self.announce(before, b)
            total, lost = before["sums"].swapaxes(0, 1)
            now["first"][own] = np.where(total[:, :1] > 0, before["first"], b)
            total, more = two_sum(total, np.concatenate([np.ones((len(total), 1)), outcomes[rows], b], axis=1))
            now["sums"][own] = np.stack([total, lost + more], axis=1)
        return means

    def check(self, state: Columns, rounds: Integers) -> None:
        counts = state["sums"][:, 0, 0].reshape(len(rounds), self.places)
        # What came since the start is a number of rounds, but for rounding: the start may have any weight.
        (start, less), lost = self.start()["sums"][:, :, 0].T, state["sums"][:, 1, 0].reshape(counts.shape)
        own, near = (counts - start) + (lost - less), 8 * EPS * (1 + counts)
        if not (counts >= 0).all() or (own < -near).any() or (np.abs(own - np.rint(own)) > near).any():
            raise SnapshotError("the groups' rounds are not counted in whole numbers.")
        if (np.abs(own.sum(axis=1) - rounds) > near.sum(axis=1)).any():
            raise SnapshotError("the groups' rounds are not those of their streams.")
        met, d, most = counts.ravel() > 0, self._dim, float(counts.sum())
        check_sums("the groups' first forecasts", state["first"][met], np.ones(met.sum()), self._of.space, rounds=1)
        for total in (state["sums"][met, 0], state["sums"][met].sum(axis=1)):  # without and with what rounding lost
            for what, part in (("outcomes", total[:, 1 : 1 + d]), ("forecasts", total[:, 1 + d :])):
                check_sums(f"the groups' {what}", part, total[:, 0], self._of.space, rounds=most)
        if state["sums"][~met].any() or state["first"][~met].any():
            raise SnapshotError("a group without rounds is not empty.")


def rounds_of(corrector: Corrector) -> Rounds:
    """Return the arithmetic of a corrector, if a bank knows it."""
    if type(corrector) in (PlattScaling, TemperatureScaling, VectorScaling):
        return _Scalings(corrector)  # type: ignore[arg-type]
    if type(corrector) is Recalibrator:
        return _Means(corrector)
    raise ParameterError.expected(
        "corrector", corrector, "PlattScaling, TemperatureScaling, VectorScaling or Recalibrator, with forget=False"
    )


class CorrectorBank:
    """A copy of a corrector for each stream, bit for bit, stepped together.

    Scalings are compiled. For groups a batch is taken apart into waves, the first round of each group in it, then the
    second, and so on, and each wave is a few array operations: so a batch is fast if many streams are in it.

    Several threads may use a bank: one call runs at a time. If an interrupt cuts an update in half, the bank refuses to
    go on.

    Parameters
    ----------
    corrector
        A `PlattScaling`, `TemperatureScaling` or `VectorScaling`, or a `Recalibrator` of means or shifts in groups by
        `TopClass`, with `forget=False`. Each stream starts from its state, so from a fitted one if it was fitted. It is
        copied.
    streams
        Number of streams; `add` adds more.

    Examples
    --------
    >>> import treecal as tc
    >>> bank = tc.CorrectorBank(tc.PlattScaling(tc.Simplex(2), forget=False), streams=3)
    >>> for _ in range(100):  # stream 0 has the wrong class, and stream 2 the right one
    ...     x = bank.update([0, 2], [[0.1, 0.9], [0.1, 0.9]], [0, 1])
    >>> bank.predict([0, 1, 2], [[0.1, 0.9]] * 3).round(1)
    array([[1. , 0. ],
           [0.1, 0.9],
           [0. , 1. ]])
    >>> bank.rounds
    array([100,   0, 100])
    """

    def __init__(self, corrector: Corrector, *, streams: int = 0) -> None:
        if not isinstance(corrector, Corrector):
            raise ParameterError.expected("corrector", corrector, "a corrector")
        rounds_of(corrector)  # raises before the copy
        self.corrector = corrector._unscored()
        self.space: ConvexSet = corrector.space
        self._part = rounds_of(self.corrector)
        self._start = {name: np.array(array) for name, array in self._part.start().items()}
        self._rounds = np.zeros(0, np.int64)
        self._state = {name: array[:0].copy() for name, array in self._start.items()}
        self._torn, self._lock = False, RLock()
        self.add(streams)

    @property
    def rounds(self) -> Integers:
        """Number of outcomes each stream has seen, read-only."""
        return np.asarray(memoryview(self._rounds.data).toreadonly())

    def __len__(self) -> int:
        return len(self._rounds)

    def add(self, count: int = 1) -> Integers:
        """Add new streams; return their keys."""
        count = whole_number("count", count, least=0)
        with self._lock:
            self._check_whole()
            old = len(self._rounds)
            state = {
                name: np.concatenate([array, np.tile(self._start[name], (count, *[1] * (array.ndim - 1)))])
                for name, array in self._state.items()
            }
            rounds = np.concatenate([self._rounds, np.zeros(count, np.int64)])
            vars(self).update(_state=state, _rounds=rounds)
        return np.arange(old, old + count)

    def predict(self, keys: ArrayLike, forecasts: ArrayLike) -> Array:
        """Return what each stream would announce now in place of a forecast, `(n, dim)`; nothing changes.

        Parameters
        ----------
        keys
            The streams, as integers.
        forecasts
            The model's forecast for each key, `(n, dim)`.
        """
        with self._lock:
            self._check_whole()
            chosen, P = self._read(keys, forecasts)
            homes = chosen * self._part.places + self._part.place(P)
            return self._part.announce({name: array[homes] for name, array in self._state.items()}, P)

    def update(self, keys: ArrayLike, forecasts: ArrayLike, outcomes: ArrayLike) -> Array:
        """Learn a forecast and its outcome for each key, in the order given; return what was announced, `(n, dim)`.

        An invalid row raises and changes nothing.

        Parameters
        ----------
        keys
            The streams, as integers; one that appears twice learns twice.
        forecasts
            The model's forecasts, `(n, dim)`.
        outcomes
            Points of the set, `(n, dim)`; or, on a simplex, the `n` classes as integers.
        """
        with self._lock:
            self._check_whole()
            chosen, P = self._read(keys, forecasts)
            try:
                Y = read_outcomes(self.space, outcomes)
            except OutcomeError as error:
                if error.round:  # these are rows, not rounds
                    raise OutcomeError.at(error.round - 1, error.problem, hint=error.hint, where="in row") from None
                raise
            if len(Y) != len(chosen):
                raise ParameterError(f"there are {len(chosen)} keys and {len(Y)} outcomes, expected one each.")
            return self._learn(chosen, P, Y)

    def _learn(self, keys: Integers, forecasts: Array, outcomes: Outcomes) -> Array:
        part = self._part
        homes = keys * part.places + part.place(forecasts)
        touched, at = np.unique(homes, return_inverse=True)
        now = {name: array[touched] for name, array in self._state.items()}
        Y = outcomes if outcomes.ndim == 2 else np.eye(self.space.dim)[outcomes]
        announced = part.play(now, at, forecasts, Y)
        counts = np.bincount(keys, minlength=len(self._rounds))
        self._torn = True
        for name, array in now.items():
            self._state[name][touched] = array
        self._rounds = self._rounds + counts
        self._torn = False
        return announced

    def _read(self, keys: ArrayLike, forecasts: ArrayLike) -> tuple[Integers, Array]:
        chosen = chosen_streams(keys, len(self))
        try:
            P = read_forecast_rows(self.space, forecasts, tolerance=self.corrector.tolerance)
        except ForecastError as error:
            if error.round:
                raise ForecastError.at(error.round - 1, error.problem, hint=error.hint, where="in row") from None
            raise
        if len(P) != len(chosen):
            raise ParameterError(f"there are {len(chosen)} keys and {len(P)} forecasts, expected one each.")
        return chosen, P

    def _check_whole(self) -> None:
        if self._torn:
            raise TreeCalError(
                "an update of this bank was interrupted halfway: some streams have learned and others not.",
                hint="load the last snapshot, and update from there.",
            )

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name; the streams are part of the state."""
        return {"corrector": self.corrector}

    def get_state(self) -> dict[str, Any]:
        """Return the streams' state, and the corrector's, as arrays that never change afterwards."""
        with self._lock:
            self._check_whole()
            own = {name: array.copy() for name, array in self._state.items()}
            return {"start": self.corrector.get_state(), "rounds": self._rounds.copy(), "streams": own}

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from such a state. Any other raises a `SnapshotError` and changes nothing."""
        check_names("the state", state, ("start", "rounds", "streams"))
        corrector = deepcopy(self.corrector)
        corrector.set_state(state["start"])
        part = rounds_of(corrector)
        start = {name: np.array(array) for name, array in part.start().items()}
        streams = len(state["rounds"]) if isinstance(state["rounds"], np.ndarray) and state["rounds"].ndim == 1 else 0
        rounds = check_rounds("rounds", state["rounds"], streams).copy()
        check_names("the streams", state["streams"], start)
        own = {}
        for name, array in start.items():
            check_array(name, state["streams"][name], (streams * part.places, *array.shape[1:]))
            own[name] = np.array(state["streams"][name], order="C")
        part.check(own, rounds)
        with self._lock:
            vars(self).update(corrector=corrector, _part=part, _start=start, _rounds=rounds, _state=own, _torn=False)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())

    def __copy__(self) -> CorrectorBank:
        return deepcopy(self)  # half a copy would share arrays that change

    def __repr__(self) -> str:
        return f"CorrectorBank({self.corrector!r}: {len(self)} streams)"


def waves(homes: Integers) -> Iterator[Integers]:
    """Yield the rows that come first in their home, then the second ones, and so on, each wave in order.

    Examples
    --------
    >>> [rows.tolist() for rows in waves(np.array([7, 5, 7, 7, 5]))]
    [[0, 1], [2, 4], [3]]
    """
    order = np.argsort(homes, kind="stable")
    starts = np.flatnonzero(np.diff(homes[order], prepend=-1))
    counts = np.diff(starts, append=len(homes))
    rank = np.empty(len(homes), np.int64)
    rank[order] = np.arange(len(homes)) - np.repeat(starts, counts)
    by_rank = np.argsort(rank, kind="stable")
    yield from np.split(by_rank, np.cumsum(np.bincount(rank))[:-1]) if len(homes) else ()


def chosen_streams(keys: ArrayLike, streams: int) -> Integers:
    """Return the keys of a bank of so many streams as integers, or raise."""
    try:
        chosen = np.asarray(keys)
    except ValueError:  # ragged
        chosen = np.empty((), object)
    if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and chosen.size):
        raise ParameterError(f"keys are {chosen.dtype} of shape {chosen.shape}, expected integers of shape (n,).")
    if chosen.size and not 0 <= chosen.min() <= chosen.max() < streams:
        at = int(np.argmax((chosen < 0) | (chosen >= streams)))
        raise ParameterError.expected(
            f"key {at}", int(chosen[at]), f"0 to {streams - 1}", hint="bank.add(n) adds n new streams."
        )
    return chosen.astype(np.int64, copy=False)
