"""What every corrector does: take another model's forecast, announce a better one, then learn the outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from treecal._typing import Array
from treecal.correctors._report import Audit, Correction, nested, unnested
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.forecast import Forecast
from treecal.forecasters._base import checked_space
from treecal.geometry import ConvexSet
from treecal.geometry._outcomes import read_outcome
from treecal.ledger import Ledger


@runtime_checkable
class Classifier(Protocol):
    """A fitted classifier in scikit-learn's manner; its classes must be the coordinates of the set, in order."""

    def predict_proba(self, rows: Any, /) -> Any:
        """Return one row of probabilities for each row of features."""


Source = Callable[[Any], ArrayLike] | Classifier


class Corrector(ABC):
    """An online corrector: `predict(b)` announces in place of `b`, `update(y)` learns, round after round.

    `b` is a point of the set, the forecast of a model, a person, a column of a table. With a `source`, `predict` takes
    what the source takes: for a function its argument, for a fitted classifier one row of features. A `predict` that no
    `update` follows has no effect: the last one before `update` counts.

    A subclass gives `_announce` and `_learn`, its constructor's arguments in `_fields`, and its state as plain data.
    Forecasts and outcomes reach it already checked: a bad one raises, names the round, and changes nothing.
    """

    _fields: ClassVar[tuple[str, ...]] = ("space", "source", "audit")
    space: ConvexSet

    def __init__(self, space: ConvexSet, *, source: Source | None, audit: bool) -> None:
        self.space = checked_space(space)
        if not (source is None or callable(source) or isinstance(source, Classifier)):
            raise ParameterError.expected("source", source, "a function, or a classifier with predict_proba")
        if not isinstance(audit, bool):
            raise ParameterError.expected("audit", audit, "True or False")
        self.source, self.audit = source, audit
        self._asks = isinstance(source, Classifier)
        self._audit = Audit(space) if audit else None
        self._rounds = 0
        self._pending: tuple[Array, Forecast] | None = None

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._rounds

    @property
    def ledgers(self) -> dict[str, Ledger]:
        """The ledgers of the forecasts that came ("before"), those announced ("after"), and the means of these."""
        return self._kept().ledgers

    @abstractmethod
    def _announce(self, forecast: Array) -> Forecast:
        """Return what to announce in place of this forecast."""

    @abstractmethod
    def _learn(self, forecast: Array, outcome: Array) -> None:
        """Take in the outcome of the round in which this forecast came, the last that `_announce` was asked about."""

    @abstractmethod
    def _own_state(self) -> dict[str, Any]:
        """Return all that the past has left, as arrays and JSON values."""

    @abstractmethod
    def _set_own_state(self, state: dict[str, Any]) -> None:
        """Go on from a state that `_own_state` returned."""

    def predict(self, given: Any) -> Forecast:
        """Return the forecast to announce; the same one for the same input until `update`.

        Parameters
        ----------
        given
            The forecast to correct; with a source, what the source makes it from.
        """
        if self.source is not None:
            given = self.source.predict_proba([given])[0] if self._asks else self.source(given)  # type: ignore[union-attr, operator]
        b = read_forecast(self.space, given, self._rounds + 1)
        if self._pending is None or not np.array_equal(self._pending[0], b):
            self._pending = b, self._announce(b)
        return self._pending[1]

    def update(self, outcome: ArrayLike) -> None:
        """Learn the outcome of the round. A bad one raises a `TreeCalError` and changes nothing."""
        y = read_outcome(self.space, outcome, self._rounds + 1)
        if self._pending is None:
            raise OutcomeError.at(
                self._rounds + 1, "came before its forecast.", hint="call predict(b) once before each update(y)."
            )
        b, x = self._pending
        self._learn(b, y)
        if self._audit is not None:
            self._audit.record(b, x, y)
        self._rounds += 1
        self._pending = None

    def report(self, *, resolution: float | None = 0.1) -> Correction:
        """Return Brier and log scores before and after, and the two parts of the Brier score.

        Parameters
        ----------
        resolution
            Forecasts in one cell of a grid this wide count as alike, before and after. None tells them apart exactly,
            which says something only where forecasts repeat. With many classes and few rounds choose wider cells: what
            chance does in a cell of a handful of rounds is read as error.
        """
        return self._kept().report(resolution=resolution)

    def _kept(self) -> Audit:
        if self._audit is None:
            raise ParameterError("audit is False, so no scores were kept.", hint="make the corrector with audit=True.")
        return self._audit

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name."""
        return {name: getattr(self, name) for name in self._fields}

    def get_state(self) -> dict[str, Any]:
        """Return all that the past has left, as arrays and JSON values; a forecast that waits for its outcome, too."""
        state: dict[str, Any] = {"rounds": self._rounds} | nested("own", self._own_state())
        if self._audit is not None:
            state |= nested("audit", self._audit.get_state())
        if self._pending is not None:
            state["pending"] = self._pending[0]
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from a state that `get_state` returned."""
        self._rounds = state["rounds"]
        self._set_own_state(unnested("own", state))
        if self._audit is not None:
            self._audit.set_state(unnested("audit", state))
        b = state.get("pending")
        self._pending = None if b is None else (b, self._announce(b))

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.arguments().items() if v is not None and k != "space")
        return f"{type(self).__name__}({self.space!r}{', ' * bool(shown)}{shown})"


class Chain(Corrector):
    """Correctors one after the other: each corrects the mean of what the one before it announces.

    Online scaling learns a few numbers fast and forgets nothing of the forecast's shape; recalibration then puts right
    what no scaling can. Costs what its parts cost.

    Parameters
    ----------
    parts
        The correctors, in order, all on one set and without a source of their own.
    source
        Where forecasts come from; by default `predict` is given them.
    audit
        Keep the scores that `report` needs. Each part keeps its own besides, unless told not to.

    Examples
    --------
    >>> import treecal as tc
    >>> space = tc.Simplex(2)
    >>> f = tc.Chain([tc.PlattScaling(space), tc.Recalibrator(space)])
    >>> for k in np.random.default_rng(0).integers(2, size=1000):
    ...     x = f.predict([0.05, 0.95])  # far too sure: it is a fair coin
    ...     f.update(np.eye(2)[k])
    >>> f.predict([0.05, 0.95]).mean.round(1)
    array([0.5, 0.5])
    """

    _fields = ("parts", "source", "audit")

    def __init__(self, parts: Sequence[Corrector], *, source: Source | None = None, audit: bool = True) -> None:
        self.parts = tuple(parts)
        if not self.parts or not all(isinstance(part, Corrector) for part in self.parts):
            raise ParameterError.expected("parts", parts, "one corrector or more")
        for part in self.parts:
            if part.space != self.parts[0].space:
                raise ParameterError(f"parts are on {self.parts[0].space!r} and {part.space!r}, expected one set.")
            if part.source is not None:
                raise ParameterError(f"{part!r} has a source of its own.", hint="give the source to the chain.")
        super().__init__(self.parts[0].space, source=source, audit=audit)

    def _announce(self, forecast: Array) -> Forecast:
        x = self.parts[0].predict(forecast)
        for part in self.parts[1:]:
            x = part.predict(x.mean)
        return x

    def _learn(self, forecast: Array, outcome: Array) -> None:
        for part in self.parts:
            part.update(outcome)

    def _own_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for i, part in enumerate(self.parts):
            state |= nested(str(i), part.get_state())
        return state

    def _set_own_state(self, state: dict[str, Any]) -> None:
        for i, part in enumerate(self.parts):
            part.set_state(unnested(str(i), state))

    def __repr__(self) -> str:
        return f"Chain([{', '.join(map(repr, self.parts))}])"


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
    try:
        forecast = np.array(read_outcome(space, value, round_))
    except OutcomeError as error:  # the same is asked of both, so the same is wrong
        raise ForecastError(str(error).replace("outcome", "forecast")) from None
    forecast.setflags(write=False)
    return forecast
