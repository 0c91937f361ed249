"""GuardedCorrector: any model's forecasts, with a calibration certificate on every sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

from treecal._states import Resume, check_names
from treecal._typing import Array
from treecal.correctors._base import Corrector, Scored, checked_part
from treecal.correctors._batch import Batch
from treecal.correctors._scaling_kinds import VectorScaling
from treecal.exceptions import ParameterError, SnapshotError, UnsupportedError
from treecal.forecast import Forecast
from treecal.forecasters import (
    BUDGET,
    CAPACITY,
    Book,
    Candidate,
    Forecaster,
    Guard,
    GuardReport,
    Shelf,
    TreeCal,
    certified,
    default_safe,
)
from treecal.geometry import ConvexSet, Norm, Simplex, as_norm
from treecal.ledger import Ledger
from treecal.theory import Certificate

_Now = tuple[Corrector | None, Guard, Shelf]


class GuardedCorrector(Corrector):
    """Announces a model's forecasts while their calibration error is within a budget, and a certified one's otherwise.

    The model's forecast of the round, or what a corrector makes of it, is moved to a point announced before, as by
    `Codebook`; the rest is as in `Guarded`: these forecasts are announced only if their calibration error so far,
    plus the set's diameter, is within the budget. So any model keeps its skill where it deserves trust, and the
    total calibration error is at most that of `Guarded` on every sequence, whatever the model forecasts.

    `fit` teaches the corrector and the points of the codebook. Nobody was given a forecast for the rows of a log, so
    the guard does not count them: its budget is new, and the guarantee is one of the rounds after `fit`.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    corrector
        A new corrector to apply to the model's forecasts first; by default none.
    safe, budget, norm, error
        As for `Guarded`.
    scores, tolerance
        As for every `Corrector`.

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
    (1.03, 0.03)
    >>> f.guard().safe_rounds  # of the last thousand
    979
    """

    name = "guarded"
    _fields = ("space", "corrector", "safe", "budget", "norm", "error", "scores", "tolerance")

    def __init__(
        self,
        space: ConvexSet,
        *,
        corrector: Corrector | None = None,
        safe: Forecaster | None = None,
        budget: float = BUDGET,
        norm: Norm | str | None = None,
        error: float | None = None,
        scores: Scored | None = "binned",
        tolerance: float = 1e-6,
    ) -> None:
        super().__init__(space, scores=scores, tolerance=tolerance)
        if corrector is not None:
            part = checked_part("corrector", corrector, new := f"a new Corrector on {space!r}")
            if part.rounds or part.space != space:
                raise ParameterError.expected("corrector", corrector, new)
        self.norm = space.default_norm if norm is None else as_norm(norm, space)
        safe = default_safe(space, self.norm) if safe is None else safe
        guard = Guard(space, safe, budget=budget, norm=self.norm, error=error)
        self.budget = guard.budget
        self.error = guard.error
        inner = None if corrector is None else corrector._unscored()  # the scores are kept here
        book = Book(space, CAPACITY)
        self._now: _Now = inner, guard, Shelf(book, book.empty())

    @property
    def corrector(self) -> Corrector | None:
        """What is applied to the model's forecasts first."""
        return self._now[0]

    @property
    def safe(self) -> Forecaster:
        """The certified part."""
        return self._now[1].safe

    @property
    def ordered(self) -> bool:
        """True: the guarantee is one of rounds in order."""
        return True

    def _choice(self, forecast: Array) -> Candidate:
        corrector, _, shelf = self._now

        def corrected() -> Array:
            return forecast if corrector is None else corrector._announced(forecast, None).mean

        return shelf.choice((corrector, forecast), corrected)

    def _announce(self, forecast: Array) -> Forecast:
        _, guard, shelf = self._now
        return self._point(shelf.point(self._choice(forecast))) if guard.open else guard.safe.predict()

    def _after(self, forecast: Array, outcome: Array) -> dict[str, Any]:
        (corrector, guard, shelf), announced = self._now, self._announce(forecast)
        if guard.open:
            shelf = shelf.after(self._choice(forecast), outcome)
        if corrector is not None:
            corrector = corrector._learned(forecast, outcome)
        return {"_now": (corrector, guard.after(announced, outcome), shelf)}

    def _fit(self, batch: Batch) -> None:
        """Fit the corrector, and let the books learn what it makes of the log; the guard sees rounds only."""
        corrector, guard, shelf = self._now
        points = batch.forecasts
        if corrector is not None:
            corrector = corrector._fitted_to(batch)
            points = corrector._announce_many(points, None)
        shelf = deepcopy(shelf)  # shelves of successive rounds share their arrays
        for point, outcome in zip(points, batch.outcomes, strict=True):
            shelf = shelf.after(shelf.book.choose(shelf.books, point), outcome)
        vars(self).update(_now=(corrector, guard, shelf), **self._counted(len(batch)))

    def guard(self) -> GuardReport:
        """Return what the guard did so far: rounds and errors of model and safe part, and the budget."""
        return self._now[1].report()

    def certificate(self, norm: Norm | str, *, rounds: int, after: Ledger | None = None) -> Certificate | None:
        """Return the bound on the error per round that is guaranteed on every sequence; None where none is known.

        Parameters
        ----------
        norm, rounds, after
            As for every forecaster: a ledger is one of what was announced in the rounds after `fit`.
        """
        norm, guard = as_norm(norm, self.space), self._now[1]
        found = guard.certify(norm, rounds) if after is None else guard.certify_more(norm, rounds)
        return certified(found, norm, rounds, guard.rounds, self.space, after)

    def _own_state(self) -> dict[str, Any]:
        corrector = {} if self.corrector is None else {"corrector": self.corrector.get_state()}
        _, guard, shelf = self._now
        return {"books": dict(vars(shelf.books)), "guard": guard.get_state()} | corrector

    def _own_prepared(self, state: dict[str, Any], rounds: int) -> Resume:
        corrector, guard, shelf = self._now
        check_names("the state", state, ["books", "guard", *["corrector"] * (corrector is not None)])
        shelf = shelf.resumed(state["books"])
        guard = guard.resumed(state["guard"])
        if corrector is not None:
            corrector = deepcopy(corrector)
            corrector.set_state(state["corrector"])
        # The guard counts no rows of logs, and none of the parts rounds of weight 0.
        learned = rounds if corrector is None else corrector.rounds
        if not guard.rounds <= learned <= rounds or shelf.books.rounds > learned:
            raise SnapshotError(f"the parts do not agree on {rounds} rounds.")

        def resume() -> None:
            self._now = corrector, guard, shelf

        return resume

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield the usual one, and one with a corrector and another safe part."""
        with suppress(UnsupportedError):  # a set that does not know its size
            yield cls(space)
        if isinstance(space, Simplex):
            yield cls(space, corrector=VectorScaling(space), safe=TreeCal(space, arity=3), budget=0.2)

    @classmethod
    def methods(cls) -> dict[str, Callable[..., Corrector]]:
        """Return the model under guard, as it is and after scaling."""

        def scaled(space: ConvexSet) -> GuardedCorrector:
            return cls(space, corrector=VectorScaling(space))

        return super().methods() | {"vector-then-guarded": scaled}
