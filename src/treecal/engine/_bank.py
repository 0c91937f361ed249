"""Many streams at once, each with its own rounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from threading import RLock
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from treecal._states import check_names
from treecal._typing import Array, Integers
from treecal._validate import whole_number
from treecal.correctors import Corrector
from treecal.engine._forecasts import Forecasts
from treecal.engine._keys import Numbers
from treecal.engine._kinds import streams_of
from treecal.engine._outcomes import Outcomes, read_outcomes
from treecal.engine._streams import RowError, Thing
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, TreeCalError
from treecal.forecasters import TreeCal
from treecal.geometry import ConvexSet


class Bank:
    """A copy of a forecaster or corrector for each stream, bit for bit, stepped together.

    Each stream has its own rounds: any of them can be updated, in any order, and those that are in one call are stepped
    by compiled code. The first call compiles it, or loads it from the cache.

    Several threads may use a bank: one call runs at a time. An interrupt leaves an update done or not. Some updates
    take several steps: after one of these that was cut in half the bank refuses to go on.

    Parameters
    ----------
    thing
        A new forecaster, which is not changed; or a set, for `TreeCal` on it.
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

    def __init__(self, thing: ConvexSet | Thing, *, streams: int = 0) -> None:
        self._streams = streams_of(TreeCal(thing) if isinstance(thing, ConvexSet) else thing)
        self.thing = self._streams.thing
        self.space: ConvexSet = self.thing.space
        self._keys, self._lock = Numbers(), RLock()
        self.add(whole_number("streams", streams, least=0))

    @property
    def keys(self) -> Integers:
        """The keys of all streams, in the order of `rounds` and of `predict()`."""
        with self._lock:
            return self._keys.listed

    @property
    def rounds(self) -> Integers:
        """Number of outcomes that each stream has seen, in the order of `keys`."""
        with self._lock:
            rounds = self._streams.rounds[self._keys.rows.all()]
        rounds.setflags(write=False)
        return rounds

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, count: int = 1) -> Integers:
        """Add new streams; return their keys: first those that were dropped."""
        with self._lock:
            self._check_whole()
            rows = self._keys.fresh(count)
            self._make_room(rows)
            return self._keys.take(rows, count)

    def _make_room(self, rows: Integers) -> None:
        need, room = int(rows.max(initial=-1)) + 1, len(self._streams.rounds)
        if need > room:
            self._streams.reserve(max(need, 2 * room))  # doubled, so that each costs O(1)

    def drop(self, keys: ArrayLike) -> None:
        """Let these streams go; `add` uses their room again. Until then their keys are invalid."""
        with self._lock:
            self._check_whole()
            rows = np.unique(self._keys.find(keys))
            self._streams.clear(rows)
            self._keys.drop(rows)

    @overload
    def predict(self, keys: ArrayLike | None = None, *, forecasts: None = None) -> Forecasts: ...
    @overload
    def predict(self, keys: ArrayLike | None = None, *, forecasts: ArrayLike) -> Array: ...
    def predict(self, keys: ArrayLike | None = None, *, forecasts: ArrayLike | None = None) -> Forecasts | Array:
        """Return what these streams, by default all, would announce now; nothing changes.

        Parameters
        ----------
        keys
            The streams.
        forecasts
            For correctors, the model's forecast for each key, `(n, dim)`.

        Returns
        -------
        The `Forecasts` of forecasters; the points that correctors would announce, `(n, dim)`.
        """
        with self._lock:
            self._check_whole()
            rows = self._keys.rows.all() if keys is None else self._keys.find(keys)
            P = self._read_forecasts(forecasts, len(rows))
            with self._named():
                self._streams.check(rows, predict=True)
                return self._streams.announce(rows, P)

    @overload
    def update(self, keys: ArrayLike, outcomes: ArrayLike, *, forecasts: None = None) -> None: ...
    @overload
    def update(self, keys: ArrayLike, outcomes: ArrayLike, *, forecasts: ArrayLike) -> Array: ...
    def update(self, keys: ArrayLike, outcomes: ArrayLike, *, forecasts: ArrayLike | None = None) -> Array | None:
        """Learn one outcome for each key, in the order given. An invalid one raises and changes nothing.

        Parameters
        ----------
        keys
            The streams; one that appears twice learns twice.
        outcomes
            Points of the set, `(n, d)`; or, on a simplex, the `n` classes.
        forecasts
            For correctors, the model's forecasts, `(n, dim)`.

        Returns
        -------
        The points that correctors announced in place of the forecasts, `(n, dim)`; nothing for forecasters.
        """
        with self._lock:
            self._check_whole()
            rows = self._keys.find(keys)
            Y = self._read_outcomes(outcomes, len(rows))
            P = self._read_forecasts(forecasts, len(rows))
            with self._named():
                self._streams.check(rows)
                return self._streams.learn(rows, Y, P)

    def _read_outcomes(self, outcomes: Any, count: int) -> Outcomes:
        try:
            rows = read_outcomes(self.space, outcomes)
        except OutcomeError as error:
            if error.round:  # these are rows, not rounds
                raise OutcomeError.at(error.round - 1, error.problem, hint=error.hint, where="in row") from None
            raise
        if len(rows) != count:
            raise ParameterError(f"there are {count} keys and {len(rows)} outcomes, expected one each.")
        return rows

    def _read_forecasts(self, forecasts: Any, count: int) -> Array | None:
        if not isinstance(self.thing, Corrector):
            if forecasts is not None:
                raise ParameterError(f"{self.thing!r} corrects no forecasts, and forecasts were given.")
            return None
        if forecasts is None:
            raise ParameterError(f"{self.thing!r} corrects forecasts, and none were given.", hint="forecasts=P.")
        try:
            rows = self.thing._read_many(forecasts)
        except ForecastError as error:
            if error.round:
                at = error.round - 1 - self.thing.rounds
                raise ForecastError.at(at, error.problem, hint=error.hint, where="in row") from None
            raise
        if len(rows) != count:
            raise ParameterError(f"there are {count} keys and {len(rows)} forecasts, expected one each.")
        return rows

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Raise what a row cannot do with the key of its stream."""
        try:
            yield
        except RowError as error:
            raise type(error.error)(f"stream {self._keys.shown(error.row)}: {error.error}") from None

    def _check_whole(self) -> None:
        if self._streams.torn:
            raise TreeCalError(
                "an update of this bank was interrupted halfway: some streams have learned a round and others not.",
                hint="load the last snapshot, and update from there.",
            )

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name; the streams are part of the state."""
        return {"thing": self.thing}

    def get_state(self) -> dict[str, Any]:
        """Return the streams' state, as arrays that never change afterwards."""
        with self._lock:
            self._check_whole()
            state, keys = self._streams.state(np.arange(self._keys.rows.used)), self._keys.state()
            start = {"start": self.thing.get_state()} if isinstance(self.thing, Corrector) else {}
            return start | state | ({"keys": keys} if keys else {})

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from such a state. Any other raises a `SnapshotError` and changes nothing."""
        check_names("the state", state, state if isinstance(state, dict) else ())
        given, streams = dict(state), self._streams
        names = given.pop("keys", {})
        if isinstance(given.get("streams"), dict):  # older snapshots of correctors
            given |= given.pop("streams")
        if isinstance(self.thing, Corrector):
            thing = deepcopy(self.thing)
            thing.set_state(given.pop("start", None))
            streams = streams_of(thing)
        streams = streams.resumed(given)
        keys = self._keys.resumed(names, len(streams.rounds))
        with self._lock:
            vars(self).update(_streams=streams, thing=streams.thing, _keys=keys)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())

    def __copy__(self) -> Bank:
        return deepcopy(self)  # half a copy would share arrays that change

    def __repr__(self) -> str:
        return f"Bank({self.thing!r}: {len(self)} streams)"
