"""What every corrector does: take a model's forecast, announce a better one, then learn the outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal.correctors._report import Correction, ScoreKeeper
from treecal.correctors._state import nested, unnested
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.forecast import Forecast
from treecal.forecasters._base import checked_space
from treecal.geometry import ConvexSet
from treecal.geometry._outcomes import read_outcome
from treecal.ledger import Ledger


class Corrector(ABC):
    """An online corrector: `predict(b)` announces a forecast in place of `b`, `update(y)` learns, round after round.

    `b` is a point of the set: the forecast of a model, a person, a column of a table. A `predict` that no `update`
    follows has no effect: the last one before `update` counts.

    A subclass gives `_announce` and `_learn`, the names of its constructor's arguments in `_fields`, and keeps its past
    in `_state`, a dataclass of arrays and numbers. Everything else is done here, once: forecasts and outcomes reach it
    checked; states are copied, in and out; and an update that fails for whatever reason leaves everything as it was.

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
        self._scores = ScoreKeeper(space) if audit else None
        self._rounds = 0
        self._pending: tuple[Array, Forecast] | None = None

    @abstractmethod
    def _announce(self, forecast: Array) -> Forecast:
        """Return what to announce in place of this forecast, and leave the state as it is."""

    @abstractmethod
    def _learn(self, forecast: Array, outcome: Array) -> None:
        """Learn the outcome of the round of this forecast (the caller's array: copy what is to be kept)."""

    def _own_state(self) -> dict[str, Any]:
        """Return all that `_learn` changes, as arrays and JSON values; they will be copied."""
        return {field.name: getattr(self._state, field.name) for field in fields(self._state)}

    def _set_own_state(self, state: dict[str, Any]) -> None:
        """Resume from a state that `_own_state` returned, here a copy to keep."""
        self._state = type(self._state)(**state)

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield correctors of this class to try on the set, for the tests; none where it is not for such sets."""
        yield from ()

    @classmethod
    def methods(cls) -> dict[str, Callable[..., Corrector]]:
        """Return the names that `treecal recalibrate --method` knows it by, each with a function from the set.

        A function with a parameter `groups` takes the rule of `--groups`.
        """
        return {}

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._rounds

    @property
    def ledgers(self) -> dict[str, Ledger]:
        """Three ledgers: "before" of the model's forecasts, "after" of those announced, "mean" of their means."""
        return self._kept().ledgers

    def predict(self, forecast: ArrayLike) -> Forecast:
        """Return the forecast to announce; the same one for the same input until `update`.

        Parameters
        ----------
        forecast
            The forecast to correct, a point of the set.
        """
        b = read_forecast(self.space, forecast, self._rounds + 1)
        if self._pending is None or not np.array_equal(self._pending[0], b):
            x = self._announce(b)
            if x.space is not self.space and x.space != self.space:
                x = Forecast(x.points, weights=x.weights, nodes=x.nodes, space=self.space)
            self._pending = b, x
        return self._pending[1]

    def update(self, outcome: ArrayLike) -> None:
        """Learn the outcome of the round. An invalid one raises a `TreeCalError` and changes nothing."""
        y = read_outcome(self.space, outcome, self._rounds + 1)
        undo = self._checkpoint()
        try:
            self._learn(self._round()[0], y)
        except BaseException:
            undo()
            raise
        self._close(y)

    def _round(self) -> tuple[Array, Forecast]:
        """Return the forecast that awaits its outcome, and what was announced in its place."""
        if self._pending is None:
            raise OutcomeError.at(
                self._rounds + 1, "came before its forecast.", hint="call predict(b) once before each update(y)."
            )
        return self._pending

    def _checkpoint(self) -> Callable[[], None]:
        """Return a function that takes back what `_learn` is about to do; override it where the state is large."""
        self._round()
        state = deepcopy(self._own_state())
        return lambda: self._set_own_state(state)

    def _close(self, outcome: Array) -> None:
        """Count the round, which has been learned."""
        if self._scores is not None:
            self._scores.record(*self._round(), outcome)
        self._rounds += 1
        self._pending = None

    def report(self, *, resolution: float | None = 0.1) -> Correction:
        """Return Brier and log scores before and after, and the two parts of the Brier score.

        Parameters
        ----------
        resolution
            Width of the cells in which forecasts are binned, before and after. None compares them exactly, which is
            informative only where forecasts repeat. With many classes and few rounds choose wider cells: in a cell of a
            handful of rounds, chance is read as error.
        """
        return self._kept().report(resolution=resolution)

    def _kept(self) -> ScoreKeeper:
        if self._scores is None:
            raise ParameterError("audit is False, so no scores were kept.", hint="make the corrector with audit=True.")
        return self._scores

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name."""
        return {name: getattr(self, name) for name in self._fields}

    def get_state(self) -> dict[str, Any]:
        """Return a copy of all that the past has left, as arrays and JSON values; a pending forecast, too."""
        state = self._past()
        if self._pending is not None:
            state["pending"] = self._pending[0]
        return deepcopy(state)

    def _past(self) -> dict[str, Any]:
        state: dict[str, Any] = {"rounds": self._rounds} | nested("own", self._own_state())
        if self._scores is not None:
            state |= nested("audit", self._scores.get_state())
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from a state that `get_state` returned, which is copied."""
        state = deepcopy(state)
        self._rounds = state["rounds"]
        self._set_own_state(unnested("own", state))
        if self._scores is not None:
            self._scores.set_state(unnested("audit", state))
        self._pending = None
        if "pending" in state:
            self.predict(state["pending"])

    def __copy__(self) -> Self:
        return deepcopy(self)  # a copy that shared arrays would learn what the other is told

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.arguments().items() if v is not None and k != "space")
        return f"{type(self).__name__}({self.space!r}{', ' * bool(shown)}{shown})"


def read_forecast(space: ConvexSet, value: Any, round_: int) -> Array:
    """Return the forecast as a read-only vector of the set, a copy, or an error that names the round.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> read_forecast(Simplex(2), [0.5, 0.4], 7)
    Traceback (most recent call last):
    ...
    treecal.exceptions.ForecastError: forecast at round 7 lies outside Simplex(2): entries sum to 0.9, ...
    """
    forecast = np.array(read_outcome(space, value, round_, error=ForecastError))
    forecast.setflags(write=False)
    return forecast
