"""Many streams at once, each on its own clock, in one array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.engine._outcomes import read_outcomes
from treecal.exceptions import HorizonError, OutcomeError, ParameterError
from treecal.forecast import Forecast, TreeForecast, uniform
from treecal.forecasters._base import checked_space
from treecal.forecasters._treecal import LabelledPath
from treecal.geometry import ConvexSet


class Forecasts:
    """The forecasts of many streams. `forecasts[i]` is the `Forecast` of the i-th, as TreeCal would announce it.

    Attributes
    ----------
    points
        The labels of each stream's path, `(streams, heights, d)`, lowest height first. Above a stream's own height
        they have no weight.
    weights
        Their weights, `(streams, heights)`.
    mean
        The mean forecast of each stream, `(streams, d)`.
    """

    def __init__(self, points: Array, heights: Integers, rounds: Integers, arity: int, space: ConvexSet) -> None:
        self.points, self._heights, self._rounds, self._arity, self._space = points, heights, rounds, arity, space
        self.weights = (np.arange(points.shape[1]) < heights[:, None]) / heights[:, None]
        for array in (self.points, self.weights):
            array.setflags(write=False)

    @property
    def mean(self) -> Array:
        """The mean forecast of each stream, `(streams, d)`."""
        return np.asarray(np.einsum("sh,shd->sd", self.weights, self.points))

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, index: int) -> Forecast:
        height = int(self._heights[index])
        points, rounds = self.points[index, :height], int(self._rounds[index])
        return TreeForecast(points, uniform(height), rounds, self._arity, self._space)

    def __iter__(self) -> Iterator[Forecast]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Forecasts({len(self)} streams in R^{self.points.shape[2]})"


class Bank:
    """As many `TreeCal`s as there are streams, bit for bit, stepped together.

    State is one array, `(heights, streams, d)`, and a count of rounds for each stream, so that a step over all streams
    is a walk over memory. Each stream has a clock of its own: any subset can be updated, in any order. The first call
    compiles, or takes what an earlier process compiled.

    Parameters
    ----------
    space
        The set the outcomes of every stream lie in.
    streams
        How many streams there are; `add` makes more.
    arity, depth, mix, start
        As for `TreeCal`.

    Examples
    --------
    >>> import treecal as tc
    >>> bank = tc.Bank(tc.Simplex(2), streams=3, arity=2)
    >>> bank.update([0, 2, 0], [[1, 0], [0, 1], [1, 0]])  # stream 0 twice, in this order
    >>> bank.rounds
    array([2, 0, 1])
    >>> bank.predict([0, 2]).mean
    array([[0.75, 0.25],
           [0.  , 1.  ]])
    """

    _fields = ("space", "arity", "depth", "mix", "start")

    def __init__(
        self,
        space: ConvexSet,
        *,
        streams: int = 0,
        arity: int = 8,
        depth: int | None = None,
        mix: float = 0.0,
        start: ArrayLike | None = None,
    ) -> None:
        self.space = checked_space(space)
        self._path = LabelledPath(space, arity=arity, depth=depth, mix=mix, start=start)  # parameters, checked
        self.arity, self.depth = self._path.clock.arity, self._path.clock.depth
        self.mix, self.start = self._path.mix, self._path.start
        self._streams = 0
        self._rounds = np.zeros(0, np.int64)
        self._sums = np.zeros((self.depth or 1, 0, space.dim))
        self.add(whole_number("streams", streams, least=0))

    @property
    def rounds(self) -> NDArray[np.int64]:
        """Number of outcomes each stream has seen, read-only."""
        view = self._rounds[: self._streams].view()
        view.setflags(write=False)
        return view

    def __len__(self) -> int:
        return self._streams

    def add(self, count: int = 1) -> NDArray[np.int64]:
        """Add new streams; return their keys."""
        old, self._streams = self._streams, self._streams + whole_number("count", count, least=0)
        if self._streams > len(self._rounds):  # double, so that adding one at a time costs O(1) each
            room = max(self._streams, 2 * old)
            self._rounds = np.concatenate([self._rounds, np.zeros(room - len(self._rounds), np.int64)])
            sums = np.zeros((len(self._sums), room, self.space.dim))
            sums[:, :old] = self._sums[:, :old]
            self._sums = sums
        return np.arange(old, self._streams)

    def predict(self, keys: ArrayLike | None = None) -> Forecasts:
        """Return the forecasts of these streams for their coming rounds; of all when none are named."""
        from treecal.engine._kernels import bank_labels

        chosen = np.arange(self._streams) if keys is None else self._keys(keys)
        rounds = self._rounds[chosen]
        if self.depth is not None:
            self._check_horizon(np.unique(chosen))
        heights = np.full(len(chosen), self.depth or 1)
        if self.depth is None:
            for height in range(1, len(self._sums)):
                heights += rounds >= self.arity**height
        points = np.empty((len(chosen), int(heights.max(initial=1)), self.space.dim))
        path = self._path
        bank_labels(chosen, rounds, self._sums, self.arity, path.first, path.mix, path.pull, points)
        return Forecasts(points, heights, rounds, self.arity, self.space)

    def update(self, keys: ArrayLike, outcomes: ArrayLike) -> None:
        """Learn one outcome for each key, in the order given. A bad one raises and changes nothing.

        Parameters
        ----------
        keys
            The streams, as integers; one that comes twice learns twice.
        outcomes
            Points of the set, `(n, d)`; or, on a simplex, the `n` classes as integers.
        """
        from treecal.engine._kernels import bank_add, bank_count

        chosen = self._keys(keys)
        try:
            rows = read_outcomes(self.space, outcomes)
        except OutcomeError as error:
            raise OutcomeError(f"in this update, whose rows are counted as rounds: {error}") from None
        if len(rows) != len(chosen):
            raise ParameterError(f"{len(chosen)} keys came with {len(rows)} outcomes, expected one each.")
        if self.depth is not None:
            self._check_horizon(chosen)
        add, done = bank_count if rows.ndim == 1 else bank_add, 0
        while True:
            done = add(chosen, rows, self._rounds, self._sums, self.arity, self.depth is None, done)
            if done == len(chosen):
                break
            self._sums = np.concatenate([self._sums, np.zeros((1, *self._sums.shape[1:]))])  # a tree has outgrown them

    def _keys(self, keys: ArrayLike) -> NDArray[np.int64]:
        try:
            chosen = np.asarray(keys)
        except ValueError:  # ragged
            chosen = np.empty((), object)
        if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and chosen.size):
            raise ParameterError(f"keys are {chosen.dtype} of shape {chosen.shape}, expected integers of shape (n,).")
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < self._streams:
            at = int(np.argmax((chosen < 0) | (chosen >= self._streams)))
            raise ParameterError.expected(
                f"key {at}", int(chosen[at]), f"0 to {self._streams - 1}", hint="bank.add(n) makes n new streams."
            )
        return chosen.astype(np.int64, copy=False)

    def _check_horizon(self, keys: NDArray[np.int64]) -> None:
        horizon = self.arity ** (self.depth or 0)
        if len(keys) and int(self._rounds[keys].max()) + len(keys) > horizon:  # perhaps; so count
            after = self._rounds[keys] + np.bincount(keys, minlength=self._streams)[keys]
            if after.max() > horizon:
                raise HorizonError(
                    f"stream {keys[after.argmax()]} would have {after.max()} rounds: arity {self.arity} and depth "
                    f"{self.depth} make {horizon}.",
                    hint="a greater depth, or none at all: without depth= the tree grows as long as the stream does.",
                )

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name; the streams are part of the state."""
        return {name: getattr(self, name) for name in self._fields}

    def get_state(self) -> dict[str, Any]:
        """Return each stream's rounds and carried sums, as arrays."""
        return {"rounds": self._rounds[: self._streams].copy(), "sums": self._sums[:, : self._streams].copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from such a state."""
        self._rounds, self._sums = np.array(state["rounds"]), np.array(state["sums"])
        self._streams = len(self._rounds)

    def __repr__(self) -> str:
        return f"Bank({self.space!r}: {self._streams} streams, arity {self.arity})"
