"""Many streams at once, each with its own rounds, in one array."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from treecal._states import Resume, check_like
from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.engine._outcomes import Outcomes, read_outcomes
from treecal.engine._state import TreeForecaster, kernel_args, new_tree_forecaster, node_costs
from treecal.exceptions import HorizonError, OutcomeError, ParameterError, TreeCalError
from treecal.forecast import Forecast, TreeForecast, uniform
from treecal.forecasters import AdaptiveTreeCal
from treecal.forecasters._adaptive import AdaptiveState
from treecal.geometry import ConvexSet

_GAPS = 2**18  # numbers in the gaps of nodes that are held at once


class Forecasts:
    """The forecasts of many streams. `forecasts[i]` is the `Forecast` that the i-th forecaster would announce.

    Attributes
    ----------
    points
        The points of each stream's path, `(streams, heights, d)`, lowest height first. Above a stream's own height
        they have no weight.
    weights
        Their weights, `(streams, heights)`.
    heights
        The heights of each stream's path, `(streams,)`.
    uniform
        Whether each stream's weights are equal.
    mean
        The mean forecast of each stream, `(streams, d)`.
    """

    def __init__(
        self, points: Array, weights: Array | None, heights: Integers, rounds: Integers, arity: int, space: ConvexSet
    ) -> None:
        self.points, self.heights, self._rounds, self._arity, self._space = points, heights, rounds, arity, space
        self.uniform = weights is None
        if weights is None:
            weights = (np.arange(points.shape[1]) < heights[:, None]) / heights[:, None]
        self.weights = weights
        for array in (self.points, self.weights, self.heights):
            array.setflags(write=False)

    @property
    def mean(self) -> Array:
        """The mean forecast of each stream, `(streams, d)`."""
        return np.asarray(np.einsum("sh,shd->sd", self.weights, self.points))

    def __len__(self) -> int:
        return len(self.heights)

    def __getitem__(self, index: int) -> Forecast:
        height = int(self.heights[index])
        weights = uniform(height) if self.uniform else self.weights[index, :height]
        points, rounds = self.points[index, :height], int(self._rounds[index])
        return TreeForecast(points, weights, rounds, self._arity, self._space)

    def __iter__(self) -> Iterator[Forecast]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Forecasts({len(self)} streams in R^{self.points.shape[2]})"


class Bank:
    """A copy of a tree forecaster for each stream, bit for bit, stepped together.

    The state is the forecaster's own, with a column for each stream. Each stream has its own rounds: any subset can be
    updated, in any order. The first call compiles kernels, or loads them from the cache.

    Several threads may use a bank: one call runs at a time. An interrupt leaves an update done or not; only that of
    `AdaptiveTreeCal`, which takes several kernels, can be cut in half, and the bank then refuses to go on.

    Parameters
    ----------
    forecaster
        A new `TreeCal` or `AdaptiveTreeCal`, which is not changed; or a set, for `TreeCal` on it.
    streams
        Number of streams; `add` adds more.

    Examples
    --------
    >>> import treecal as tc
    >>> bank = tc.Bank(tc.TreeCal(tc.Simplex(2), arity=2), streams=3)
    >>> bank.update([0, 2, 0], [[1, 0], [0, 1], [1, 0]])  # stream 0 twice, in this order
    >>> bank.rounds
    array([2, 0, 1])
    >>> bank.predict([0, 2]).mean
    array([[0.75, 0.25],
           [0.  , 1.  ]])
    """

    def __init__(self, forecaster: ConvexSet | TreeForecaster, *, streams: int = 0) -> None:
        self.forecaster = new_tree_forecaster(forecaster)
        self.space, self.tree = self.forecaster.space, self.forecaster.tree
        self._fresh, self._state = self.forecaster._state, self.forecaster._state  # columns beyond `_streams` are room
        self._streams, self._torn, self._lock = 0, False, RLock()
        self.add(whole_number("streams", streams, least=0))

    @property
    def rounds(self) -> Integers:
        """Number of outcomes each stream has seen, read-only."""
        rounds = self._state.rounds[: self._streams]
        return np.asarray(memoryview(rounds.data).toreadonly())  # which NumPy does not let anyone make writable

    def __len__(self) -> int:
        return self._streams

    def add(self, count: int = 1) -> Integers:
        """Add new streams; return their keys."""
        count = whole_number("count", count, least=0)
        with self._lock:
            old, new, room = self._streams, self._streams + count, len(self._state.rounds)
            if new > room:
                self._reserve(max(new, 2 * room), len(self._state.sums))  # doubled, so that each costs O(1)
            self._streams = new
        return np.arange(old, new)

    def _reserve(self, streams: int, heights: int) -> None:
        """Make room for this many streams, which are new, and heights."""
        arrays = {}
        for name, old in vars(self._state).items():
            fresh = getattr(self._fresh, name)
            shape = (streams,) if old.ndim == 1 else (heights, streams, *old.shape[2:])
            new = arrays[name] = np.zeros(shape, old.dtype)
            new[: streams if old.ndim == 1 else len(fresh)] = fresh
            new[tuple(map(slice, old.shape))] = old
        self._state = type(self._state)(**arrays)

    def predict(self, keys: ArrayLike | None = None) -> Forecasts:
        """Return the forecasts of these streams, by default all, for their coming rounds."""
        with self._lock:
            return self._predict(keys)

    def _predict(self, keys: ArrayLike | None) -> Forecasts:
        from treecal.engine._kernels import bank_places

        self._check_whole()
        chosen = np.arange(self._streams) if keys is None else self._keys(keys)
        rounds = self._state.rounds[chosen]
        if self.tree.depth is not None:
            self._check_horizon(np.unique(chosen))
        heights = self.tree.heights(rounds)
        points = np.empty((len(chosen), int(heights.max(initial=1)), self.space.dim))
        bank_places(chosen, rounds, self._state.sums, *kernel_args(self.forecaster._path), points)
        weights = None
        if isinstance(self._state, AdaptiveState):
            weights = np.ascontiguousarray(self._state.weights[: points.shape[1], chosen].T)
        return Forecasts(points, weights, heights, rounds, self.tree.arity, self.space)

    def update(self, keys: ArrayLike, outcomes: ArrayLike) -> None:
        """Learn one outcome for each key, in the order given. An invalid one raises and changes nothing.

        Parameters
        ----------
        keys
            The streams, as integers; one that appears twice learns twice.
        outcomes
            Points of the set, `(n, d)`; or, on a simplex, the `n` classes as integers.
        """
        with self._lock:
            self._update(keys, outcomes)

    def _update(self, keys: ArrayLike, outcomes: ArrayLike) -> None:
        from treecal.engine._kernels import bank_learn

        self._check_whole()
        chosen = self._keys(keys)
        try:
            rows = read_outcomes(self.space, outcomes)
        except OutcomeError as error:
            if error.round:  # these are rows, not rounds
                raise OutcomeError.at(error.round - 1, error.problem, hint=error.hint, where="in row") from None
            raise
        if len(rows) != len(chosen):
            raise ParameterError(f"there are {len(chosen)} keys and {len(rows)} outcomes, expected one each.")
        self._check_horizon(chosen)
        longest = int(self._state.rounds[chosen].max(initial=0)) + len(chosen)
        if self.tree.heights(longest) > len(self._state.sums):
            self._reserve(len(self._state.rounds), self.tree.heights(longest))
        if isinstance(self._state, AdaptiveState):
            self._learn_and_weigh(chosen, rows, self._state)
        else:
            tree, _ = kernel_args(self.forecaster._path)
            bank_learn(chosen, rows, tree, self._state.rounds, self._state.sums)  # which nothing interrupts

    def _learn_and_weigh(self, keys: Integers, rows: Outcomes, state: AdaptiveState) -> None:
        """Learn outcomes; then update the weights, given the norms of the gaps of the nodes that ended."""
        from treecal.engine._kernels import bank_gaps, bank_weigh

        assert isinstance(self.forecaster, AdaptiveTreeCal)
        tree, mix = kernel_args(self.forecaster._path)
        room = max(_GAPS // self.space.dim, len(state.sums))
        gaps, nows = np.empty((room, self.space.dim)), np.empty(min(room, len(keys)), np.int64)
        self._torn = True
        while len(keys):
            now = nows[: len(keys)]
            batch = keys[: len(now)], rows[: len(now)]
            done, used = bank_gaps(*batch, tree, mix, state.rounds, state.sums, now, gaps)
            costs = node_costs(self.forecaster.norm, gaps[:used])
            bank_weigh(batch[0][:done], now, costs, self.forecaster._weighting, state.costs, state.weights, state.scale)
            keys, rows = keys[done:], rows[done:]
        self._torn = False

    def _check_whole(self) -> None:
        if self._torn:
            raise TreeCalError(
                "an update of this bank was interrupted halfway: some streams have learned a round and others not.",
                hint="load the last snapshot, and update from there.",
            )

    def _keys(self, keys: ArrayLike) -> Integers:
        return chosen_streams(keys, self._streams)

    def _check_horizon(self, keys: Integers) -> None:
        """Raise if one more round for each key would be more than a tree of fixed depth has."""
        horizon = self.tree.horizon
        if horizon is None or int(self._state.rounds[keys].max(initial=0)) + len(keys) <= horizon:
            return
        streams, counts = np.unique(keys, return_counts=True)
        after = self._state.rounds[streams] + counts
        try:
            self.tree.check(int(after.max()))
        except HorizonError as error:
            raise HorizonError(f"stream {streams[after.argmax()]}: {error}") from None

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name; the streams are part of the state."""
        return {"forecaster": self.forecaster}

    def get_state(self) -> dict[str, Any]:
        """Return the streams' state, as arrays that never change afterwards."""
        with self._lock:
            self._check_whole()
            n, heights = self._streams, self.tree.heights(int(self.rounds.max(initial=0)))
            return {
                name: (array[:n] if array.ndim == 1 else array[:heights, :n]).copy()
                for name, array in vars(self._state).items()
            }

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from such a state. Any other raises a `SnapshotError` and changes nothing."""
        self._prepared(state)()

    def _prepared(self, state: dict[str, Any]) -> Resume:
        """Check a state, whose shapes and counts kernels rely on; return what puts it in place."""
        check_like(vars(self._fresh), state)
        past: Any = type(self._fresh)(**{name: np.array(array, order="C") for name, array in state.items()})
        self.forecaster._check_streams(past)

        def resume() -> None:
            self._state, self._streams, self._torn = past, len(past.rounds), False

        return resume

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())

    def __copy__(self) -> Bank:
        return deepcopy(self)  # half a copy would share arrays that change

    def __repr__(self) -> str:
        return f"Bank({self.forecaster!r}: {self._streams} streams)"


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
