"""What every forecaster does: announce a distribution, then learn the outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import GeometryError, ParameterError, TreeCalError
from treecal.forecast import Forecast
from treecal.geometry import ConvexSet, Norm, as_norm
from treecal.geometry._outcomes import FLOAT64, read_outcome
from treecal.geometry._outcomes import checked_start as checked_start  # for the forecasters beside this file
from treecal.theory import Certificate


class Forecaster(ABC):
    """An online forecaster: `predict()` announces, `update(y)` learns, round after round.

    A subclass gives `_announce` and `_learn`, its constructor's arguments in `_fields`, and its state as plain data, so
    that `tc.save` can write it. Outcomes reach `_learn` already checked: a bad one raises and changes nothing.

    Examples
    --------
    A forecaster that always says the centre; `treecal.testing.check_forecaster` would pass it.

    >>> from treecal.geometry import Simplex
    >>> class Centre(Forecaster):
    ...     rounds = 0
    ...
    ...     def __init__(self, space):
    ...         self.space = space
    ...
    ...     def _announce(self):
    ...         return Forecast([self.space.centre], space=self.space)
    ...
    ...     def _learn(self, outcome):
    ...         self.rounds += 1
    ...
    ...     def get_state(self):
    ...         return {"rounds": self.rounds}
    ...
    ...     def set_state(self, state):
    ...         self.rounds = state["rounds"]
    >>> f = Centre(Simplex(4))
    >>> f.update([1, 0, 0, 0])
    >>> f.predict().mean, f.rounds
    (array([0.25, 0.25, 0.25, 0.25]), 1)
    """

    _fields: ClassVar[tuple[str, ...]] = ("space",)
    space: ConvexSet
    symmetric: ClassVar[bool] = True
    """Whether on the simplex, from a symmetric start, renaming the classes renames the forecasts and no more."""
    _announced: Forecast | None = None

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Number of outcomes seen."""

    @abstractmethod
    def _announce(self) -> Forecast:
        """Return the forecast for the coming round."""

    @abstractmethod
    def _learn(self, outcome: Array) -> None:
        """Take in a checked outcome (the caller's array: copy what is to be kept)."""

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Return all that the past has left, as arrays and JSON values."""

    @abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a state that `get_state` returned."""

    def predict(self) -> Forecast:
        """Return the forecast for the coming round; the same one until `update`."""
        forecast = self._announced
        if forecast is None:
            forecast = self._announced = self._announce()
        return forecast

    @property
    def mixture(self) -> Forecast:
        """What an adversary may see before it chooses: the forecast, or the distribution it is drawn from."""
        return self.predict()

    def update(self, outcome: ArrayLike) -> None:
        """Learn the outcome of the round. A bad one raises a `TreeCalError` and changes nothing."""
        space = self.space
        if not (  # what most rounds bring, taken without another call
            type(outcome) is np.ndarray
            and outcome.dtype is FLOAT64
            and outcome.shape == (space.dim,)
            and space.admits(outcome)
        ):
            outcome = read_outcome(space, outcome, self.rounds + 1)
        self._learn(outcome)
        self._announced = None

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name."""
        return {name: getattr(self, name) for name in self._fields}

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.arguments().items() if v is not None and k != "space")
        return f"{type(self).__name__}({self.space!r}{', ' * bool(shown)}{shown})"

    # What the package asks of every forecaster. All of it has a default; see docs/howto/own-forecaster.md.

    name: ClassVar[str | None] = None
    """What the command line calls it. A class that has a name of its own is in `REGISTRY` under it."""

    def __init__(self, space: ConvexSet) -> None:
        self.space = checked_space(space)

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if name := vars(cls).get("name"):
            REGISTRY[name] = cls

    def certificate(self, norm: Norm | str, *, rounds: int) -> Certificate | None:
        """Return the error per round that no sequence can push this forecaster beyond; None where none is known.

        Parameters
        ----------
        norm
            What errors are counted in. Some norms and sets are beyond what is proven: `UnsupportedError` says so.
        rounds
            Rounds to be played.
        """
        norm, rounds = as_norm(norm), whole_number("rounds", rounds, least=1)
        found = self._certify(norm, rounds)
        if found is None:
            return None
        return replace(found, bound=min(found.bound, float(self.space.diameter(norm))))  # no error is greater

    def _certify(self, norm: Norm, rounds: int) -> Certificate | None:
        """Return the certificate, if there is one; it need not be below the diameter."""
        return None

    @classmethod
    def tuned(cls, space: ConvexSet, norm: Norm, *, rounds: int) -> Forecaster:
        """Return the one of this class with the least certified error: `recommend` compares these."""
        return cls(space)

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield forecasters on a set to test the class on, fresh ones each time; none if it does not take the set."""
        with suppress(TreeCalError):
            yield cls(space)


REGISTRY: dict[str, type[Forecaster]] = {}
"""The forecasters that have a name. `recommend`, the arena, the command line, snapshots and tests go through it."""


def checked_space(space: ConvexSet) -> ConvexSet:
    """Return the set, or say why forecasts cannot be made on it."""
    if not isinstance(space, ConvexSet):
        raise ParameterError.expected("space", space, "a ConvexSet", hint="for d classes, Simplex(d).")
    centre = np.asarray(space.centre)
    if centre.shape != (space.dim,) or centre.dtype.kind != "f" or not space.admits(centre):
        raise GeometryError(f"the centre {centre!r} of {space!r} is not one of its points in R^{space.dim}.")
    return space
