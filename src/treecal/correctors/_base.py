"""What every corrector does: take a model's forecast, announce a better one, then learn the outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from threading import RLock, get_ident
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from treecal._states import Resume, check_count, check_like, check_names, check_number
from treecal._typing import Array
from treecal.correctors._report import ROLES, Correction, scores
from treecal.exceptions import (
    ForecastError,
    OutcomeError,
    ParameterError,
    SnapshotError,
    TreeCalError,
    UnsupportedError,
)
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import checked_space
from treecal.geometry import ConvexSet, Simplex
from treecal.geometry._convex import LARGEST
from treecal.geometry._outcomes import read_outcome
from treecal.ledger import Ledger

_Pending = tuple[int, Array, Forecast]  # rounds before it; the forecast, and what was announced in its place
_Round = tuple[int, Array, Forecast, Array]  # its number, the two forecasts, and the outcome


class Corrector(ABC):
    """An online corrector: `predict(b)` announces a forecast in place of `b`, `update(y)` learns, round after round.

    `b` is a point of the set: the forecast of a model, a person, a column of a table. A `predict` that no `update`
    follows has no effect: the last one before `update` counts.

    A subclass defines `_announce` and `_learn`, names its constructor's arguments in `_fields`, and keeps its past in
    `_state`, a dataclass of arrays and numbers. The base class does the rest: it validates forecasts and outcomes,
    copies states in and out, and lets a copy learn, whose state is taken over only if nothing fails or interrupts.

    Several threads may use a corrector. Each has its own forecast that awaits an outcome: `update` closes the last one
    of the same thread, or the only one there is.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    audit
        Keep the scores that `report` needs, and with them every distinct forecast.

    Examples
    --------
    A corrector that adds the mean of all past errors; `treecal.testing.check_corrector` passes it.

    >>> from dataclasses import dataclass
    >>> from treecal.geometry import Simplex
    >>> @dataclass
    ... class Errors:
    ...     total: np.ndarray
    >>> class Shift(Corrector):
    ...     def __init__(self, space, *, audit=True):
    ...         super().__init__(space, audit=audit)
    ...         self._state = Errors(np.zeros(space.dim))
    ...
    ...     def _announce(self, forecast):
    ...         point = self.space.project(forecast + self._state.total / max(self.rounds, 1))
    ...         return Forecast([point], space=self.space)
    ...
    ...     def _learn(self, forecast, outcome):
    ...         self._state.total += outcome - forecast
    >>> f = Shift(Simplex(2))
    >>> for y in [[1, 0], [1, 0], [0, 1], [1, 0]]:
    ...     x = f.predict([0.5, 0.5])
    ...     f.update(y)
    >>> f.predict([0.5, 0.5]).mean, f.rounds
    (array([0.75, 0.25]), 4)
    """

    _fields: ClassVar[tuple[str, ...]] = ("space", "audit")
    _state: Any
    space: ConvexSet

    def __init__(self, space: ConvexSet, *, audit: bool = True) -> None:
        self.space = checked_space(space)
        if not isinstance(audit, bool):
            raise ParameterError.expected("audit", audit, "True or False")
        self.audit = audit
        self._ledgers = {role: Ledger(space) for role in ROLES} if audit else None
        self._squares = 0.0  # the sum of all ‖y‖², where there are ledgers
        self._rounds = 0
        self._pending: dict[int, _Pending] = {}  # by thread
        self._closed: _Pending | None = None  # of those the one whose outcome was learned last
        self._unrecorded: tuple[_Round, ...] = ()
        self._recording = False
        self._lock = RLock()

    @abstractmethod
    def _announce(self, forecast: Array) -> Forecast:
        """Return the forecast to announce in place of this one, without changing the state."""

    def _learn(self, forecast: Array, outcome: Array) -> None:
        """Learn the outcome of this forecast's round (the caller's array: copy it to keep it)."""
        raise NotImplementedError(f"{type(self).__name__} defines neither _learn nor _after")

    def _after(self, forecast: Array, outcome: Array) -> dict[str, Any]:
        """Return the attributes that differ once the outcome is learned, by name; change nothing.

        A copy finds them by `_learn`. A class whose state is large defines this instead.
        """
        twin, before = object.__new__(type(self)), dict(vars(self))
        vars(twin).update(before)
        twin._set_own_state(deepcopy(self._own_state()))
        twin._learn(forecast, outcome)
        return {name: value for name, value in vars(twin).items() if value is not before.get(name)}

    def _point(self, point: Array) -> Forecast:
        """Return the forecast of one point of the set."""
        return Forecast.trusted(point[None], uniform(1), None, self.space)

    def _own_state(self) -> dict[str, Any]:
        """Return everything that `_learn` changes: arrays, JSON values, or dictionaries of them. The caller copies."""
        return dict(vars(self._state))

    def _set_own_state(self, state: dict[str, Any]) -> None:
        """Resume from a copy of what `_own_state` returned."""
        self._state = type(self._state)(**state)

    def _own_prepared(self, state: dict[str, Any], rounds: int) -> Resume:
        """Check what `_own_state` returned after so many rounds; return what puts it in place."""
        check_like(self._own_state(), state)
        own = deepcopy(state)
        self._check(type(self._state)(**own), rounds)
        return lambda: self._set_own_state(own)

    def _check(self, state: Any, rounds: int) -> None:  # noqa: B027 # most have nothing more to check
        """Raise unless the arguments allow this state, whose names and kinds of values are right."""

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield correctors of this class on the set, for the tests; none if the class does not support the set."""
        yield from ()

    @classmethod
    def methods(cls) -> dict[str, Callable[..., Corrector]]:
        """Return its names in `treecal recalibrate --method`, each with a function that makes it from a set.

        A function with a parameter `groups` is given the rule of `--groups`.
        """
        return {}

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._rounds

    @property
    def ledgers(self) -> dict[str, Ledger]:
        """Three ledgers: "before" for the model's forecasts, "after" for those announced, "mean" for their means."""
        if self._ledgers is None:
            raise ParameterError("audit is False, so no scores were kept.", hint="make the corrector with audit=True.")
        with self._lock:
            self._catch_up()
            return self._ledgers

    def predict(self, forecast: ArrayLike) -> Forecast:
        """Return the forecast to announce; the same one for the same input until `update`.

        Parameters
        ----------
        forecast
            The forecast to correct, a point of the set.
        """
        b = np.array(read_outcome(self.space, forecast, self._rounds + 1, error=ForecastError))
        b.setflags(write=False)
        with self._lock:
            self._catch_up()
            pending = self._pending.get(get_ident())
            if (
                pending is None
                or pending is self._closed
                or pending[0] != self._rounds  # another thread has learned since
                or not np.array_equal(pending[1], b)
            ):
                x = self._announce(b)
                if x.space is not self.space and x.space != self.space:
                    x = Forecast(x.points, weights=x.weights, nodes=x.nodes, space=self.space)
                pending = self._pending[get_ident()] = self._rounds, b, x
            return pending[2]

    def update(self, outcome: ArrayLike) -> None:
        """Learn the outcome of the round. An invalid one raises a `TreeCalError` and changes nothing."""
        y = read_outcome(self.space, outcome, self._rounds + 1)
        with self._lock:
            self._catch_up()
            vars(self).update(self._changes(y))  # the round is learned: all of it, at once
            self._catch_up()

    def _changes(self, outcome: Array) -> dict[str, Any]:
        """Return all attributes that differ once the round is over, by name; change nothing."""
        closed = _, b, x = self._awaiting()
        changes = self._after(b, outcome)
        changes["_rounds"], changes["_closed"] = self._rounds + 1, closed
        if self._ledgers is not None:
            changes["_squares"] = self._squares + float(outcome @ outcome)
            changes["_unrecorded"] = (*self._unrecorded, (self._rounds + 1, b, x, np.array(outcome)))
        return changes

    def _learned(self, forecast: Array, outcome: Array) -> Self:
        """Return a corrector, without scores, that has learned a round: for those that are made of others."""
        self.predict(forecast)
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), **self._after(forecast, outcome))
        twin._rounds, twin._pending, twin._closed = self._rounds + 1, {}, None
        return twin

    def _awaiting(self) -> _Pending:
        """Return the forecast that awaits its outcome, and what was announced in its place."""
        awaiting = {thread: pending for thread, pending in self._pending.items() if pending is not self._closed}
        own = awaiting.get(get_ident())
        if own is not None:
            return own
        if len(awaiting) == 1:
            return next(iter(awaiting.values()))
        if not awaiting:
            hint = "call predict(b) once before each update(y)."
            raise OutcomeError.at(self._rounds + 1, "came before its forecast.", hint=hint)
        raise OutcomeError.at(
            self._rounds + 1,
            f"came in a thread that made no forecast, and those of {len(awaiting)} others await their outcomes.",
            hint="call predict(b) and update(y) of a round in one thread.",
        )

    def _catch_up(self) -> None:
        """Do what remains to be done for rounds that were learned: record them. If interrupted, the next call does."""
        if self._ledgers is None or not self._unrecorded:
            return
        if self._recording:
            raise TreeCalError(
                f"{type(self).__name__} was used while it records a round, by a signal handler or a finalizer.",
                hint="let the handler set a flag, and look at it in the loop.",
            )
        self._recording = True
        try:
            for number, b, x, outcome in self._unrecorded:
                for role, each in zip(ROLES, (self._point(b), x, self._point(x.mean)), strict=True):
                    if self._ledgers[role].rounds < number:
                        self._ledgers[role].record(each, outcome)
            self._unrecorded = ()
        finally:
            self._recording = False

    def report(self, *, resolution: float | None = 0.1) -> Correction:
        """Return Brier and log scores before and after, and the two parts of the Brier score.

        Parameters
        ----------
        resolution
            Width of the cells in which forecasts are binned, before and after. None compares them exactly, which is
            informative only where forecasts repeat. With many classes and few rounds choose wider cells: in a cell of a
            handful of rounds, chance is read as error.
        """
        with self._lock:
            before, after, mean = (scores(ledger, self._squares, resolution) for ledger in self.ledgers.values())
            return Correction(self.rounds, resolution, before, after, mean)

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name."""
        return {name: getattr(self, name) for name in self._fields}

    def get_state(self) -> dict[str, Any]:
        """Return a copy of the state: arrays, JSON values, dictionaries of them; and any pending forecast."""
        with self._lock:
            state = self._past()
            with suppress(OutcomeError):
                state["pending"] = self._awaiting()[1]
            return deepcopy(state)

    def _past(self) -> dict[str, Any]:
        self._catch_up()
        state = {"rounds": self._rounds, "squares": self._squares, "own": self._own_state()}
        return state | {"ledgers": {role: ledger.get_state() for role, ledger in (self._ledgers or {}).items()}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from a state that `get_state` returned. Any other raises a `TreeCalError` and changes nothing."""
        self._prepared(state)()

    def _prepared(self, state: dict[str, Any]) -> Resume:
        """Check a state, a copy of which is kept; return what puts it in place."""
        waits = isinstance(state, dict) and "pending" in state
        check_names("the state", state, ["rounds", "squares", "own", "ledgers", *["pending"] * waits])
        rounds, squares, ledgers = state["rounds"], state["squares"], self._ledgers or {}
        check_count("rounds", rounds)
        check_number("squares", squares, least=0.0, most=self._most_squares(rounds) if ledgers else 0.0)
        check_names("ledgers", state["ledgers"], ledgers)
        parts = [ledger._prepared(state["ledgers"][role]) for role, ledger in ledgers.items()]
        if any(state["ledgers"][role]["rounds"] != rounds for role in ledgers):
            raise SnapshotError(f"the ledgers are not those of {rounds} rounds.")
        parts.append(self._own_prepared(state["own"], rounds))
        if waits:
            rehearsal = deepcopy(self)  # what cannot be announced is refused before anything has changed
            rehearsal.set_state({name: value for name, value in state.items() if name != "pending"})
            rehearsal.predict(state["pending"])

        def resume() -> None:
            for part in parts:
                part()
            self._rounds, self._squares = int(rounds), float(squares)
            self._pending, self._closed, self._unrecorded = {}, None, ()
            if waits:
                self.predict(state["pending"])

        return resume

    def _most_squares(self, rounds: int) -> float:
        """Return the most that the squared lengths of so many outcomes can sum to, with a little room for rounding."""
        if isinstance(self.space, Simplex):
            return rounds * (1 + 1e-6)
        try:
            longest = np.abs(self.space.bounds()).max(axis=0)
        except UnsupportedError:  # a set that does not know its size
            longest = np.full(self.space.dim, LARGEST)
        return float(rounds * (longest @ longest) * (1 + 1e-6))

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            self._catch_up()
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=RLock())

    def __copy__(self) -> Self:
        return deepcopy(self)  # a shallow copy would share arrays that change

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.arguments().items() if v is not None and k != "space")
        return f"{type(self).__name__}({self.space!r}{', ' * bool(shown)}{shown})"
