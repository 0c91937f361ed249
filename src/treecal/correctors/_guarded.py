"""GuardedCorrector: any model's forecasts, with a calibration certificate on every sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from treecal._typing import Array
from treecal.correctors._base import Corrector
from treecal.correctors._scaling import VectorScaling
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast
from treecal.forecasters import Forecaster, GuardReport, TreeCal
from treecal.forecasters._codebook import CAPACITY, SIZES, Book, Books
from treecal.forecasters._guarded import Guard, default_safe
from treecal.geometry import ConvexSet, Norm, Simplex, as_norm
from treecal.theory import Certificate


class GuardedCorrector(Corrector):
    """Announces a model's forecasts while their calibration error is within a budget, and a certified one's otherwise.

    The model's forecast of the round, or what a corrector makes of it, is moved to a point announced before, as by
    `Codebook`; the rest is as in `Guarded`: these forecasts are announced if and only if their calibration error so
    far, plus the set's diameter, is within the budget. So any model keeps its skill where it deserves trust, and the
    total calibration error is at most `(1 + budget)` times the bound of `safe` on every sequence, whatever the model
    forecasts.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    corrector
        A new corrector to apply to the model's forecasts first; by default none.
    safe, budget, norm, error, measured
        As for `Guarded`.
    audit
        Keep the scores that `report` needs.

    Examples
    --------
    A model that is right for 1,000 rounds, then always sure of the wrong class.

    >>> import numpy as np
    >>> import treecal as tc
    >>> space, rng = tc.Simplex(2), np.random.default_rng(0)
    >>> f, model, guarded = tc.GuardedCorrector(space), tc.Ledger(space), tc.Ledger(space)
    >>> for t in range(2000):
    ...     p = rng.integers(1, 10) / 10
    ...     y = np.eye(2)[int(rng.random() < p) if t < 1000 else 0]
    ...     b = [1 - p, p] if t < 1000 else [0, 1]
    ...     x = f.predict(b)
    ...     f.update(y)
    ...     model.record(b, y)
    ...     guarded.record(x, y)
    >>> round(model.error("l1"), 2), round(guarded.error("l1"), 2)
    (1.02, 0.08)
    >>> f.guard().safe_rounds > 900
    True
    """

    _fields = ("space", "corrector", "safe", "budget", "norm", "error", "measured", "audit")

    def __init__(
        self,
        space: ConvexSet,
        *,
        corrector: Corrector | None = None,
        safe: Forecaster | None = None,
        budget: float = 0.5,
        norm: Norm | str | None = None,
        error: float | None = None,
        measured: bool = True,
        audit: bool = True,
    ) -> None:
        super().__init__(space, audit=audit)
        if corrector is not None and (
            not isinstance(corrector, Corrector) or corrector.rounds or corrector.space != space
        ):
            raise ParameterError.expected("corrector", corrector, f"a new Corrector on {space!r}")
        self.corrector = deepcopy(corrector)
        self.norm = space.default_norm if norm is None else as_norm(norm)
        safe = default_safe(space) if safe is None else safe
        self._guard = Guard(space, safe, budget=budget, norm=self.norm, error=error, measured=measured)
        self.budget, self.error, self.measured = self._guard.budget, self._guard.error, measured
        self._book = Book(space, SIZES, CAPACITY)

    @property
    def safe(self) -> Forecaster:
        """The certified part."""
        return self._guard.safe

    def _announce(self, forecast: Array) -> Forecast:
        q = forecast if self.corrector is None else self.corrector.predict(forecast).mean
        if not self._guard.open:
            return self._guard.safe.predict()
        self._choice = self._book.choose(q)
        return self._point(self._book.point(self._choice))

    def _checkpoint(self, forecast: Array) -> Callable[[], None]:
        self._announce(forecast)  # the corrector may have been given another forecast since
        self._guard.prepare()
        return lambda: None  # the corrector undoes its own step, and nothing after it can fail

    def _learn(self, forecast: Array, outcome: Array) -> None:
        spoke, announced = self._guard.open, self._round()[1]
        if self.corrector is not None:
            self.corrector.update(outcome)
        if spoke:
            self._book.learn(self._choice, outcome)
        self._guard.learn(spoke, announced, outcome)

    def guard(self) -> GuardReport:
        """Return what the guard did so far: rounds and errors of model and safe part, and the budget."""
        return self._guard.report()

    def certificate(self, norm: Norm | str, *, rounds: int) -> Certificate | None:
        """Return the bound on the error per round that is guaranteed on every sequence; None where none is known."""
        return self._guard.certify(as_norm(norm), rounds)

    def _own_state(self) -> dict[str, Any]:
        corrector = {} if self.corrector is None else {"corrector": self.corrector.get_state()}
        return {"books": vars(self._book.state), "guard": self._guard.get_state()} | corrector

    def _set_own_state(self, state: dict[str, Any]) -> None:
        self._book.state = Books(**state["books"])
        self._guard.set_state(state["guard"])
        if self.corrector is not None:
            self.corrector.set_state(state["corrector"])

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield the usual one, and one with a corrector and another safe part."""
        yield cls(space)
        if isinstance(space, Simplex):
            yield cls(space, corrector=VectorScaling(space, audit=False), safe=TreeCal(space, arity=3), budget=0.2)

    @classmethod
    def methods(cls) -> dict[str, Callable[..., Corrector]]:
        """Return the model under guard, as it is and after scaling."""

        def scaled(space: ConvexSet) -> GuardedCorrector:
            return cls(space, corrector=VectorScaling(space, audit=False))

        return {"guarded": cls, "vector-then-guarded": scaled}
