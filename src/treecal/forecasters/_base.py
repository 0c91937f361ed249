"""What every forecaster does: announce a distribution, then learn the outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import fields, replace
from threading import RLock
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from treecal._states import Configured, Locked, check_count, check_like, check_names, resumed
from treecal._typing import Array, Changes, Saved
from treecal._validate import whole_number
from treecal.columns import Streams
from treecal.exceptions import GeometryError, ParameterError, TreeCalError, UnsupportedError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Norm, as_norm, own_point, read_outcome
from treecal.ledger import Ledger
from treecal.measures import Losses
from treecal.theory import Certificate

REGISTRY: dict[str, type[Forecaster]] = {}
"""The forecasters that have a name, for `recommend`, the arena, the command line, snapshots and tests."""


def register(registry: dict[str, Any], cls: Any) -> None:
    """Put a class into a registry under its own name, if it has one; raise if another class has that."""
    if name := vars(cls).get("name"):
        known = registry.get(name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):  # not defined again
            raise ParameterError(f"the name {name!r} of {cls.__name__} is taken by {known.__name__}; choose another.")
        registry[name] = cls


class Forecaster(Configured, ABC):
    """An online forecaster: `predict()` announces, `update(y)` learns, round after round.

    A forecaster is a configuration, which never changes, and a state. A subclass gives `_announce` and `_after`, the
    names of its constructor's arguments in `_fields`, and keeps its past in `_state`: a dataclass of arrays and
    numbers, with the number of `rounds` among them, so that `get_state`, `tc.save` and copies need no more code. Other
    forecasters (or correctors, ledgers) that it plays with are named in `_parts`, and their states become part of its
    own. Outcomes reach `_after` already checked: an invalid one raises and changes nothing.

    A round is learned by one assignment, so that an interrupt leaves it learned or not, never half, and several threads
    may call `predict` and `update`; see docs/howto/threads.md.

    Examples
    --------
    A forecaster that always announces the centre; `treecal.testing.check_forecaster` would pass it.

    >>> from dataclasses import dataclass
    >>> from treecal.geometry import Simplex
    >>> @dataclass(frozen=True)
    ... class Seen:
    ...     rounds: int = 0
    >>> class Centre(Forecaster):
    ...     def __init__(self, space):
    ...         self.space, self._state = space, Seen()
    ...
    ...     def _announce(self):
    ...         return Forecast([self.space.centre], space=self.space)
    ...
    ...     def _after(self, state, outcome):
    ...         return Seen(state.rounds + 1)
    >>> f = Centre(Simplex(4))
    >>> f.update([1, 0, 0, 0])
    >>> f.predict().mean, f.rounds, f.get_state()
    (array([0.25, 0.25, 0.25, 0.25]), 1, {'rounds': 1})
    """

    _fields: ClassVar[tuple[str, ...]] = ("space",)
    _parts: ClassVar[tuple[str, ...]] = ()
    """The attributes whose states are part of this one's."""
    _state: Any
    space: ConvexSet
    symmetric: ClassVar[bool] = True
    """Whether permuting the classes permutes the forecasts (on the simplex, from a symmetric start)."""
    ordered: ClassVar[bool] = True
    """Whether it needs each outcome before the next forecast: False for those that learn outcomes as they come."""
    _announced: tuple[int, Forecast] | None = None  # and the rounds before it
    _block = 1

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return int(self._state.rounds)

    @abstractmethod
    def _announce(self) -> Forecast:
        """Return the forecast for the coming round."""

    def _after(self, state: Any, outcome: Array) -> Any:
        """Return the state after one more outcome (the caller's array: copy what is kept); change nothing."""
        raise NotImplementedError(f"{type(self).__name__} defines neither _after nor _learn")

    def _learn(self, outcome: Array) -> None:
        """Learn a checked outcome: replace the state, at once."""
        while True:
            state = self._state
            after = self._after(state, outcome)
            if self._state is state:  # no other thread has learned meanwhile
                self._state = after
                return

    def predict(self) -> Forecast:
        """Return the forecast for the coming round; the same one until `update`."""
        announced, rounds = self._announced, self.rounds
        if announced is None or announced[0] != rounds:
            announced = self._announced = rounds, self._announce()
        return announced[1]

    @property
    def mean_forecast(self) -> Array:
        """The mean of the forecast for the coming round, `(d,)`."""
        return self.predict().mean

    @property
    def mixture(self) -> Forecast:
        """What an adversary may see before it chooses: the forecast, or the distribution it is drawn from."""
        return self.predict()

    def update(self, outcome: ArrayLike) -> None:
        """Learn the outcome of the round. An invalid one raises a `TreeCalError` and changes nothing."""
        own = own_point(self.space, outcome)
        self._learn(read_outcome(self.space, outcome, self.rounds + 1) if own is None else own)

    def _overlook(self, outcome: Array) -> None:
        """Learn a checked outcome of a round in which another forecast was announced: for `Guarded`."""
        self._learn(outcome)

    def _in_blocks(self, block: int) -> None:
        """From now on learn blocks of outcomes, each as one round, by `_learn_block`: for `Sampled`."""
        self._block = block

    def _learn_block(self, total: Array) -> None:
        """Learn the mean outcome of a block as one round."""
        self._learn(total / self._block)

    def get_state(self) -> Saved:
        """Return the state, as arrays and numbers that never change afterwards."""
        own = {name: _copy(value) for name, value in self._own_state().items()}
        return own | {name: getattr(self, name).get_state() for name in self._parts}

    def _own_state(self) -> Saved:
        state = self._state
        return {field.name: getattr(state, field.name) for field in fields(state)}

    def set_state(self, state: Saved) -> None:
        """Resume from a state that `get_state` returned. Any other raises a `SnapshotError` and changes nothing."""
        for name, value in self._resumed(state).items():
            setattr(self, name, value)

    def _resumed(self, state: Saved) -> Changes:
        """Return the attributes, by name, that a copy of this state makes; any other raises."""
        own = self._own_state()
        check_names("the state", state, [*own, *self._parts])
        given = {name: state[name] for name in own}
        check_like(own, given)
        past = type(self._state)(**{name: _copy(value) for name, value in given.items()})
        self._check(past)
        parts = {name: resumed(getattr(self, name), state[name]) for name in self._parts}
        return {**parts, "_state": past, "_announced": None}

    def _check(self, state: Any) -> None:
        """Raise unless the arguments allow this state, whose names and kinds of values are right."""
        if not isinstance(rounds := getattr(state, "rounds", 0), np.ndarray):
            check_count("rounds", rounds)

    def _light_fork(self) -> Self:
        """Fork a class that replaces its state and never changes it: the two share it."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def _streams(self) -> Streams | None:
        """Return no streams yet, in arrays, each of which will be a copy of this one; None where objects have to do.

        Banks ask the class that defines it, and none of its subclasses, which may do anything.
        """
        return None

    def _usual(self, value: Any, default: Any) -> bool:
        """Return whether an argument has its default value; that of a start point is the centre."""
        if isinstance(value, np.ndarray):
            return default is None and np.array_equal(value, self.space.centre)
        return value is default or bool(value == default) or isinstance(value, np.random.Generator)

    # What the package asks of every forecaster. It all has defaults; see docs/howto/own-forecaster.md.

    name: ClassVar[str | None] = None
    """Its name on the command line. A class that defines a name is in `REGISTRY` under it."""

    def __init__(self, space: ConvexSet) -> None:
        self.space = checked_space(space)

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        register(REGISTRY, cls)

    @property
    def measure(self) -> Norm | Losses:
        """What a certificate is of by default: the norm of the error, or the losses of what is advised."""
        return self.space.default_norm

    def certificate(
        self, norm: Norm | str | Losses | None = None, *, rounds: int, after: Ledger | None = None
    ) -> Certificate | None:
        """Return the bound on the error per round that is guaranteed on every sequence; None where none is known.

        Parameters
        ----------
        norm
            The norm of the error, by default `measure`; if that is losses, the swap regret of the advice is bounded, in
            the loss's unit. `UnsupportedError` is raised for norms and sets that no proof covers.
        rounds
            Number of rounds.
        after
            A ledger of rounds before these, which count as well: the bound is on the error of all of them, the exact
            one so far and whatever comes. Of a new forecaster, any ledger; of another one, that of all its rounds.

        Examples
        --------
        >>> import treecal as tc
        >>> f, ledger = tc.Guarded(tc.Simplex(2)), tc.Ledger(tc.Simplex(2))
        >>> for t in range(5000):
        ...     ledger.record(f.predict(), [t % 3 > 0, t % 3 == 0])
        ...     f.update([t % 3 > 0, t % 3 == 0])
        >>> round(ledger.error("l1"), 3), round(f.certificate("l1", rounds=500, after=ledger).bound, 3)
        (0.008, 0.063)
        """
        of: Any = self.measure if norm is None else as_measure(norm, self.space)
        rounds = whole_number("rounds", rounds, least=1)
        if isinstance(of, Losses) and of != self.measure:
            return None
        found = self._certify(of, rounds) if after is None else self._certify_more(of, rounds)
        return certified(found, of, rounds, self.rounds, self.space, after)

    def _certify_more(self, norm: Norm, rounds: int) -> Certificate | None:
        """Return the certificate for the rounds so far and so many more."""
        return self._certify(norm, self.rounds + rounds)

    def _certify(self, norm: Norm, rounds: int) -> Certificate | None:
        """Return the certificate, if there is one; its bound may exceed the diameter."""
        return None

    def _rate(self, norm: Norm) -> float:
        """Return by how much the certified total error grows in every round at least; 0 does for all."""
        return 0.0

    @classmethod
    def tuned(cls, space: ConvexSet, norm: Norm, *, rounds: int) -> Forecaster:
        """Return the forecaster of this class with the least certified error, for `recommend`."""
        return cls(space)

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield new forecasters on a set to test the class on; none if it does not support the set."""
        with suppress(TreeCalError):
            yield cls(space)


class LockedForecaster(Locked, Forecaster):
    """A forecaster of several parts, of which one thread at a time may change or read them."""

    def __init__(self, space: ConvexSet) -> None:
        super().__init__(space)
        self._lock = RLock()

    def predict(self) -> Forecast:
        """Return the forecast for the coming round; the same one until `update`."""
        with self._lock:
            return Forecaster.predict(self)

    def update(self, outcome: ArrayLike) -> None:
        """Learn the outcome of the round. An invalid one raises a `TreeCalError` and changes nothing."""
        with self._lock:
            Forecaster.update(self, outcome)

    def get_state(self) -> Saved:
        """Return the state, as arrays and numbers that never change afterwards."""
        with self._lock:
            return super().get_state()

    def set_state(self, state: Saved) -> None:
        """Resume from a state that `get_state` returned. Any other raises a `SnapshotError` and changes nothing."""
        with self._lock:
            super().set_state(state)


def _copy(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else deepcopy(value)


def certified(
    found: Certificate | None, norm: Norm | Losses, rounds: int, learned: int, space: ConvexSet, after: Ledger | None
) -> Certificate | None:
    """Return a certificate that is no more than the diameter; after a ledger, for its rounds and so many more.

    `learned` rounds were those of the forecaster itself, which is certified for them and the ones to come.
    """
    if found is None:
        return None
    diameter = largest_error(space, norm)
    bound = min(found.bound, diameter)
    if after is not None:
        if after.space != space or learned not in (0, after.rounds):
            raise ParameterError(
                f"the ledger is one of {after.rounds:,} rounds, and the forecaster has learned {learned:,}.",
                hint="record every round of the forecaster, or ask a new one.",
            )
        past = _past(after, norm) if after.rounds else 0.0
        added = (past + rounds * (diameter if learned else bound)) / (after.rounds + rounds)
        bound = min(bound, added) if learned else added
    return replace(found, bound=bound)


def as_measure(norm: Norm | str | Losses, space: ConvexSet) -> Norm | Losses:
    """Return losses as they are, and a norm by its name."""
    return norm if isinstance(norm, Losses) else as_norm(norm, space)


def largest_error(space: ConvexSet, norm: Norm | Losses) -> float:
    """Return the most that an error per round can be: the set's diameter, or the unit of the losses."""
    return norm.unit if isinstance(norm, Losses) else float(space.diameter(norm))


def _past(ledger: Ledger, norm: Norm | Losses) -> float:
    """Return the total error of a ledger; of several decisions the greatest regret, in units of its loss's span."""
    if not isinstance(norm, Losses):
        return ledger.error(norm, total=True)
    found = ledger.regret(norm)
    if norm.names is not None:
        found = max(found[name] / table.span for name, table in zip(norm.names, norm.tables, strict=True))
    return float(found * ledger.weight)


def checked_space(space: ConvexSet) -> ConvexSet:
    """Return the set, or raise if forecasts cannot be made on it."""
    if not isinstance(space, ConvexSet):
        raise ParameterError.expected("space", space, "a ConvexSet", hint="for d classes, Simplex(d).")
    centre = np.asarray(space.centre)
    if centre.shape != (space.dim,) or centre.dtype.kind != "f" or not space.admits(centre):
        raise GeometryError(f"the centre {centre!r} of {space!r} is not one of its points in R^{space.dim}.")
    return space


def reach(space: ConvexSet, norm: Norm | str | Losses) -> float:
    """Return the most that a round can add to the error: the set's diameter, or where that is not known its box's."""
    if isinstance(norm, Losses):
        return norm.unit
    norm = as_norm(norm, space)
    try:
        return float(space.diameter(norm))
    except UnsupportedError:
        low, high = space.bounds()
        return float(norm(high - low))
