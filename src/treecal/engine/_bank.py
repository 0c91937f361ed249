"""Many streams at once, each with its own rounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from threading import RLock
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from treecal._states import Configured, Locked, check_names
from treecal._typing import Array, Integers, Outcomes, Saved
from treecal._validate import whole_number
from treecal.columns import Forecasts, RowError
from treecal.correctors import BankScores, Corrector, Scorecards
from treecal.engine._keys import Names, Numbers
from treecal.engine._object_streams import Thing, streams_of
from treecal.engine._outcomes import read_outcomes
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, TreeCalError, UnsupportedError
from treecal.forecasters import TreeCal
from treecal.geometry import ConvexSet
from treecal.monitor import Alarm, Monitor, StreamEvidence, WatchedStreams, discovered


class Bank(Locked, Configured):
    """A copy of a forecaster or corrector for each stream, bit for bit, stepped together.

    Each stream has its own rounds: any of them can be updated, in any order. Trees, guarded forecasters, running means,
    grids, scalings, and group means that do not forget are kept in arrays and stepped by compiled code, which the first
    call compiles or loads from the cache; many streams of `AdaptiveTreeCal` by all processors. Anything else is kept as
    an object for each stream.

    Several threads may use a bank: one call runs at a time. An interrupt leaves an update done or not. Some updates
    take several steps: after one of these that was cut in half the bank refuses to go on. Keys, classes and forecasts
    are copied before they are checked. Rows of outcomes are not, as that would take half as long again: what another
    thread writes to them meanwhile may be learned.

    Parameters
    ----------
    thing
        A new forecaster; a corrector, which may have been fitted; or a set, for `TreeCal` on it. It is copied.
    streams
        Number of streams, whose keys are 0, 1, 2, …; `add` adds more.
    names
        Instead, the names of the streams: their keys are then text.
    scores
        Whether what each stream announces is scored: see `scores()`.
    monitor
        A new `Monitor` without groups, of which each stream gets a copy: see `evidence()` and `alarms`.

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

    Names, and correctors, which take the model's forecasts:

    >>> bank = tc.Bank(tc.RunningMean(tc.Simplex(2)), names=["Oslo"])
    >>> bank.update(["Oslo", "Rome"], [0, 1], add=True)
    >>> bank.predict(["Rome"]).mean
    array([[0., 1.]])
    >>> bank = tc.Bank(tc.PlattScaling(tc.Simplex(2)), streams=2)
    >>> bank.update([0, 1], [0, 1], forecasts=[[0.1, 0.9], [0.1, 0.9]])
    array([[0.1, 0.9],
           [0.1, 0.9]])
    """

    def __init__(
        self,
        thing: ConvexSet | Thing,
        *,
        streams: int = 0,
        names: Any = None,
        scores: bool = False,
        monitor: Monitor | None = None,
    ) -> None:
        self._streams = streams_of(TreeCal(thing) if isinstance(thing, ConvexSet) else thing)
        self.thing = self._streams.thing
        self.space: ConvexSet = self.thing.space
        if not isinstance(scores, bool):
            raise ParameterError.expected("scores", scores, "True or False")
        self._scores = Scorecards(self.space, corrector=isinstance(self.thing, Corrector)) if scores else None
        self._evidence = None if monitor is None else WatchedStreams(monitor)
        if monitor is not None and monitor.space != self.space:
            raise ParameterError.expected("monitor", monitor, f"one of {self.space!r}")
        self._torn = False
        self._keys: Numbers | Names = Numbers() if names is None else Names()
        self._lock = RLock()
        if names is not None and streams:
            raise ParameterError.expected("streams", streams, "nothing, because names= names the streams")
        self.add(whole_number("streams", streams, least=0) if names is None else names)

    @property
    def keys(self) -> Any:
        """The keys of all streams, numbers or names, in the order of `rounds` and of `predict()`."""
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

    def add(self, streams: Any = 1) -> Any:
        """Add new streams: so many, or for a bank with names, those with these names. Return their keys.

        Rows, and with them numbers, of streams that were dropped are used again first.
        """
        with self._lock:
            self._check_whole()
            rows = self._keys.add(streams)
            try:
                self._make_room(rows)
            except BaseException:
                self._keys.drop(rows)
                raise
            return rows if isinstance(self._keys, Numbers) else streams

    def _make_room(self, rows: Integers) -> None:
        need = int(rows.max(initial=-1)) + 1
        room = len(self._streams.rounds)
        if need > room:
            for each in (self._streams, *self._kept().values()):
                each.reserve(max(need, room * 3 // 2))  # by a factor, so that each costs O(1)

    def _kept(self) -> dict[str, Any]:
        """Return what is kept of the forecasts beside the streams, by the names of their states."""
        kept = {"scores": self._scores, "evidence": self._evidence}
        return {name: each for name, each in kept.items() if each is not None}

    def drop(self, keys: Any) -> None:
        """Let these streams go; `add` uses their room again. Until then their keys are invalid."""
        with self._lock:
            self._check_whole()
            rows = np.unique(self._keys.find(keys))
            for each in (self._streams, *self._kept().values()):
                each.clear(rows)
            self._keys.drop(rows)

    @overload
    def predict(self, keys: Any = None, *, forecasts: None = None) -> Forecasts: ...
    @overload
    def predict(self, keys: Any = None, *, forecasts: ArrayLike) -> Array: ...
    def predict(self, keys: Any = None, *, forecasts: ArrayLike | None = None) -> Forecasts | Array:
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
            P = self._read_forecasts(forecasts)
            self._check_lengths(len(rows), None, P)
            with self._named():
                self._streams.check(rows, predict=True)
                return self._streams.announce(rows, P)

    @overload
    def update(self, keys: Any, outcomes: ArrayLike, *, forecasts: None = None, add: bool = False) -> None: ...
    @overload
    def update(self, keys: Any, outcomes: ArrayLike, *, forecasts: ArrayLike, add: bool = False) -> Array: ...
    def update(
        self, keys: Any, outcomes: ArrayLike, *, forecasts: ArrayLike | None = None, add: bool = False
    ) -> Array | None:
        """Learn one outcome for each key, in the order given. An invalid one raises and changes nothing.

        Parameters
        ----------
        keys
            The streams; one that appears twice learns twice.
        outcomes
            Points of the set, `(n, d)`; or, on a simplex, the `n` classes.
        forecasts
            For correctors, the model's forecasts, `(n, dim)`.
        add
            Whether names that are not known are new streams.

        Returns
        -------
        The points that correctors announced in place of the forecasts, `(n, dim)`; nothing for forecasters.
        """
        with self._lock:
            self._check_whole()
            Y = self._read_outcomes(outcomes)
            P = self._read_forecasts(forecasts)
            rows, new = self._found(keys, add)
            try:
                self._check_lengths(len(rows), Y, P)
                self._make_room(new)
                with self._named():
                    self._streams.check(rows)
                    return self._learned(rows, Y, P)
            except BaseException:
                rounds = self._streams.rounds
                if len(new) and not rounds[new[new < len(rounds)]].any():  # nothing was learned
                    self._keys.drop(new)
                raise

    def _learned(self, rows: Integers, outcomes: Outcomes, forecasts: Array | None) -> Array | None:
        """Learn; score what was announced, and watch it, if that is asked for."""
        streams = self._streams
        if self._scores is None and self._evidence is None:
            return streams.learn(rows, outcomes, forecasts)
        self._torn = True
        try:
            announced = streams.play(rows, outcomes, forecasts)
        except (RowError, TreeCalError):  # nothing was learned
            self._torn = False
            raise
        means = announced.mean if isinstance(announced, Forecasts) else announced
        if self._scores is not None:
            self._scores.learn(rows, announced, means, outcomes, forecasts)
        if self._evidence is not None:
            Y = outcomes if outcomes.ndim == 2 else np.eye(self.space.dim)[outcomes]
            self._evidence.learn(rows, means, Y)
        self._torn = False
        return None if isinstance(announced, Forecasts) else announced

    def _found(self, keys: Any, add: bool) -> tuple[Integers, Integers]:
        """Return the rows of keys, and which of them are new."""
        if not add:
            rows = self._keys.find(keys)
            return rows, rows[:0]
        if isinstance(self._keys, Numbers):
            raise ParameterError(
                "add=True needs names, and streams are numbered here.", hint="bank.add(n) adds streams."
            )
        return self._keys.found_or_added(keys)

    def _check_lengths(self, count: int, outcomes: Outcomes | None, forecasts: Array | None) -> None:
        for what, rows in (("outcomes", outcomes), ("forecasts", forecasts)):
            if rows is not None and len(rows) != count:
                raise ParameterError(f"there are {count} keys and {len(rows)} {what}, expected one each.")

    def _read_outcomes(self, outcomes: Any) -> Outcomes:
        try:
            rows = read_outcomes(self.space, outcomes, threads=self._streams.threads)
        except OutcomeError as error:
            if error.round:  # these are rows, not rounds
                raise OutcomeError.at(error.round - 1, error.problem, hint=error.hint, where="in row") from None
            raise
        return rows

    def _read_forecasts(self, forecasts: Any) -> Array | None:
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
        return rows

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Raise what a row cannot do with the key of its stream."""
        try:
            yield
        except RowError as error:
            raise type(error.error)(f"stream {self._keys.shown(error.row)}: {error.error}") from None

    def _check_whole(self) -> None:
        if self._torn or self._streams.torn:
            raise TreeCalError(
                "an update of this bank was interrupted halfway: some streams have learned a round and others not.",
                hint="load the last snapshot, and update from there.",
            )

    def scores(self) -> BankScores:
        """Return what each stream scored since it was added, in the order of `keys`; for a bank with `scores=True`.

        They are what a corrector reports (`Corrector.report`): of the model's forecasts and of what was announced.

        Examples
        --------
        >>> import numpy as np, treecal as tc
        >>> bank = tc.Bank(tc.Guarded(tc.Simplex(2)), streams=3, scores=True)
        >>> for k in np.random.default_rng(0).choice(2, size=300, p=[0.8, 0.2]):
        ...     bank.update([0, 2], [k, 1 - k])
        >>> bank.scores().after.brier.round(2)
        array([0.41,  nan, 0.41])
        """
        with self._lock:
            rows = self._keys.rows.all()
            if self._scores is None:
                raise UnsupportedError("this bank keeps no scores.", hint="make it with scores=True.")
            return self._scores.scores(rows, self._keys.listed, self._streams.rounds[rows])

    def evidence(self) -> StreamEvidence:
        """Return the evidence against each stream's announcements, in the order of `keys`; for a bank with `monitor=`.

        It is that of the monitor, had it been given the announcements of this stream alone.

        Examples
        --------
        >>> import numpy as np, treecal as tc
        >>> space = tc.Simplex(2)
        >>> slow = tc.TreeCal(space, arity=1000, mix=0.5)  # half the mean of all outcomes
        >>> bank, rng = tc.Bank(slow, streams=2, monitor=tc.Monitor(space, alpha=0.01)), np.random.default_rng(0)
        >>> for t in range(200):  # the second stream changes by turns
        ...     bank.update([0, 1], [rng.integers(2), t // 40 % 2])
        >>> bank.evidence().alarmed
        array([False,  True])
        >>> bank.alarms[1].round, bank.alarms[1].direction
        (28, 'too high')
        """
        with self._lock:
            return self._watched().evidence(self._keys.rows.all(), self._keys.listed)

    @property
    def alarms(self) -> dict[Any, Alarm]:
        """The first alarm of each stream that had one, by its key."""
        with self._lock:
            alarms = self._watched().alarms
            rows = np.array(sorted(alarms), np.int64)
            keys = self._keys.of(rows).tolist()
        return {key: alarms[row] for key, row in zip(keys, rows.tolist(), strict=True)}

    def discoveries(self, alpha: float = 0.05) -> Any:
        """Return the keys of the streams whose forecasts are off, the strongest evidence first.

        Of those that are right, `alpha` at most are among them, in expectation: `monitor.discoveries` of all e-values.

        Parameters
        ----------
        alpha
            The most that the false discovery rate may be.
        """
        with self._lock:
            watched = self._watched()
            watched.monitor._check_kind()
            rows = self._keys.rows.all()
            return self._keys.of(rows[discovered(watched.statistic(rows), alpha)])

    def _watched(self) -> WatchedStreams:
        if self._evidence is None:
            raise UnsupportedError("this bank has no monitor.", hint="make it with monitor=tc.Monitor(space).")
        return self._evidence

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name; the streams are part of the state."""
        named = {"names": ()} if isinstance(self._keys, Names) else {}
        scored = {} if self._scores is None else {"scores": True}
        watched = {} if self._evidence is None else {"monitor": self._evidence.monitor}
        return {"thing": self.thing} | named | scored | watched

    def get_state(self) -> Saved:
        """Return the streams' state, as arrays that never change afterwards."""
        with self._lock:
            self._check_whole()
            rows = np.arange(self._keys.rows.used)
            state = self._streams.state(rows) | {name: each.state(rows) for name, each in self._kept().items()}
            keys = self._keys.state()
            start = {"start": self.thing.get_state()} if isinstance(self.thing, Corrector) else {}
            return start | state | ({"keys": keys} if keys else {})

    def set_state(self, state: Saved) -> None:
        """Resume from such a state. Any other raises a `SnapshotError` and changes nothing."""
        check_names("the state", state, state if isinstance(state, dict) else ())
        given = dict(state)
        streams = self._streams
        names = given.pop("keys", {})
        if isinstance(self.thing, Corrector):
            thing = deepcopy(self.thing)
            thing.set_state(given.pop("start", None))
            streams = streams_of(thing)
        kept = self._kept()
        check_names("the state", {name: given[name] for name in kept if name in given}, kept)
        parts = {name: given.pop(name) for name in kept}
        streams = streams.resumed(given)
        twins = {f"_{name}": each.resumed(parts[name], streams.rounds) for name, each in kept.items()}
        keys = self._keys.resumed(names, len(streams.rounds))
        with self._lock:
            vars(self).update(_streams=streams, thing=streams.thing, _keys=keys, _torn=False, **twins)

    def __repr__(self) -> str:
        return f"Bank({self.thing!r}: {len(self)} streams)"
