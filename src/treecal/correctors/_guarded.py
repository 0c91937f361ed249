"""GuardedCorrector: any model's forecasts, with a calibration certificate on every sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from treecal._states import check_names, resumed
from treecal._typing import Array, Changes, Saved
from treecal._validate import whole_number
from treecal.correctors._base import Corrector, Scored, checked_part
from treecal.correctors._batch import Batch
from treecal.correctors._scaling_kinds import VectorScaling
from treecal.exceptions import ParameterError, SnapshotError, UnsupportedError
from treecal.forecast import DecisionForecast, Forecast
from treecal.forecasters import (
    BUDGET,
    CAPACITY,
    Book,
    Candidate,
    Decisions,
    Forecaster,
    Guard,
    GuardReport,
    Shelf,
    TreeCal,
    as_measure,
    certified,
    default_safe,
    guarded_measure,
)
from treecal.geometry import ConvexSet, Norm, Simplex
from treecal.ledger import Ledger
from treecal.measures import Losses
from treecal.theory import Certificate

_Now = tuple[Corrector | None, tuple[Guard, ...], Shelf | None]


MANY = 256
"""Rounds of a batch for which it pays to copy the guard and the book."""


class GuardedCorrector(Corrector):
    """Announces a model's forecasts while their calibration error is within a budget, and a certified one's otherwise.

    The model's forecast of the round, or what a corrector makes of it, is moved to a point announced before, as by
    `Codebook`; the rest is as in `Guarded`: these forecasts are announced only if their calibration error so far,
    plus the set's diameter, is within the budget. So any model keeps its skill where it deserves trust, and the
    total calibration error is at most that of `Guarded` on every sequence, whatever the model forecasts.

    **With losses** it is the swap regret of the advice that is bounded, as in `Guarded` and `Decisions`, and forecasts
    have `action` and `actions`. Points need not repeat, so forecasts are announced as they are. Of one decision each
    action has a guard of its own, which sees the rounds in which the model's forecast calls for that action: so advice
    that proves wrong is replaced, by what `Decisions` makes of those rounds, while the rest is followed. The swap
    regret after T rounds is at most `A·c + (1 + κ)·A·U(T/A)` for A actions, `U(n)` that of `Decisions`; since that
    holds against any fixed action in the rounds of each advice, no more is paid, beyond that bound, than by the best
    exchange of the model's advice in hindsight, so never more than by following the model.

    `fit` teaches the corrector and the points of the codebook. Nobody was given a forecast for the rows of a log, so
    the guard does not count them: its budget is new, and the guarantee is one of the rounds after `fit`.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    corrector
        A new corrector to apply to the model's forecasts first; by default none.
    safe, budget, norm, error, losses
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
    _fields = ("space", "corrector", "safe", "budget", "norm", "error", "losses", "scores", "tolerance")

    def __init__(
        self,
        space: ConvexSet,
        *,
        corrector: Corrector | None = None,
        safe: Forecaster | None = None,
        budget: float = BUDGET,
        norm: Norm | str | None = None,
        error: float | None = None,
        losses: Any = None,
        scores: Scored | None = "binned",
        tolerance: float = 1e-6,
    ) -> None:
        super().__init__(space, scores=scores, tolerance=tolerance)
        if corrector is not None:
            part = checked_part("corrector", corrector, new := f"a new Corrector on {space!r}")
            if part.rounds or part.space != space:
                raise ParameterError.expected("corrector", corrector, new)
        self.losses = None if losses is None else Losses.read(space, losses)
        of = guarded_measure(space, norm, self.losses)
        self.norm = None if isinstance(of, Losses) else of
        guard = Guard(space, default_safe(space, of) if safe is None else safe, budget=budget, norm=of, error=error)
        self.budget = guard.budget
        self.error = guard.error
        inner = None if corrector is None else corrector._unscored()  # the scores are kept here
        book = Book(space, CAPACITY)
        shelf = Shelf(book, book.empty()) if self.losses is None else None
        single = isinstance(of, Losses) and of.names is None
        self._now: _Now = inner, (guard,) * (len(of.tables[0].actions) if single else 1), shelf  # type: ignore[union-attr]
        self._asked: tuple[Any, Array, Array, int] | None = None

    @property
    def corrector(self) -> Corrector | None:
        """What is applied to the model's forecasts first."""
        return self._now[0]

    @property
    def safe(self) -> Forecaster:
        """The certified part; with losses that of the first action."""
        return self._now[1][0].safe

    @property
    def measure(self) -> Norm | Losses:
        """What the guard bounds: the error in its norm, or the swap regret of the advice by these losses."""
        return self._now[1][0].norm

    @property
    def ordered(self) -> bool:
        """True: the guarantee is one of rounds in order."""
        return True

    def _corrected(self, forecast: Array) -> tuple[Array, int]:
        """Return what the corrector makes of a forecast, and the number of the guard that decides about it."""
        corrector, guards, _ = self._now
        asked = self._asked
        if asked is None or asked[0] is not corrector or asked[1] is not forecast:
            point = forecast if corrector is None else corrector._announced(forecast, None).mean
            number = 0 if len(guards) == 1 or self.losses is None else self.losses.tables[0].best(point)
            self._asked = asked = corrector, forecast, point, number
        return asked[2:]

    def _choice(self, shelf: Shelf, forecast: Array) -> Candidate:
        point = self._corrected(forecast)[0]
        return shelf.choice(point, lambda: point)

    def _announce(self, forecast: Array) -> Forecast:
        _, guards, shelf = self._now
        if shelf is not None or self.losses is None:
            assert shelf is not None
            guard = guards[0]
            return self._point(shelf.point(self._choice(shelf, forecast))) if guard.open else guard.safe.predict()
        point, number = self._corrected(forecast)
        guard = guards[number]
        return DecisionForecast(self._point(point), self.losses) if guard.open else guard.safe.predict()

    def _after(self, forecast: Array, outcome: Array) -> Changes:
        (corrector, guards, shelf), announced = self._now, self._announce(forecast)
        number = 0 if shelf is not None else self._corrected(forecast)[1]
        guard = guards[number]
        if guard.open and shelf is not None:
            shelf = shelf.after(self._choice(shelf, forecast), outcome)
        if corrector is not None:
            corrector = corrector._learned(forecast, outcome)
        guards = (*guards[:number], guard.after(announced, outcome), *guards[number + 1 :])
        return {"_now": (corrector, guards, shelf)}

    def _played(self, batch: Batch) -> tuple[Array, Changes] | None:
        """Play rounds while the guard is open, on copies; None once it is not, since safe announces distributions."""
        corrector, guards, shelf = self._now
        if shelf is None or len(batch) < MANY or not guards[0].open:
            return None
        points = batch.forecasts
        if corrector is not None:
            if (found := corrector._played(replace(batch, inner=True))) is None:
                return None
            points, changes = found
            corrector = corrector._with(changes, len(batch))
        guard = deepcopy(guards[0])  # guards and shelves of successive rounds share what they keep
        shelf = deepcopy(shelf)
        means = np.empty(points.shape)
        for i, (point, outcome) in enumerate(zip(points, batch.outcomes, strict=True)):
            if not guard.open:
                return None
            choice = shelf.book.choose(shelf.books, point)
            means[i] = shelf.point(choice)
            shelf = shelf.after(choice, outcome)
            guard = guard.after(self._point(means[i]), outcome)
        return means, {"_now": (corrector, (guard,), shelf)}

    def _fit(self, batch: Batch) -> None:
        """Fit the corrector, and let the books learn what it makes of the log; the guard sees rounds only."""
        corrector, guards, shelf = self._now
        points = batch.forecasts
        if corrector is not None:
            corrector = corrector._fitted_to(batch)
            points = corrector._announce_many(points, None)
        if shelf is not None:
            shelf = deepcopy(shelf)  # shelves of successive rounds share their arrays
            for point, outcome in zip(points, batch.outcomes, strict=True):
                shelf = shelf.after(shelf.book.choose(shelf.books, point), outcome)
        vars(self).update(_now=(corrector, guards, shelf), **self._counted(len(batch)))

    def guard(self) -> GuardReport:
        """Return what the guard did so far: rounds and errors of model and safe part, and the budget."""
        reports = [astuple(guard.report()) for guard in self._now[1]]
        return GuardReport(*map(sum, zip(*reports, strict=True)))

    def guards(self) -> dict[Any, GuardReport]:
        """Return what was done so far with the advice of each action, by its name; of several decisions with all."""
        if self.losses is None or self.losses.names is not None:
            return {"": self.guard()}
        reports = (guard.report() for guard in self._now[1])
        return dict(zip(self.losses.actions, reports, strict=True))

    def certificate(
        self, norm: Norm | str | Losses | None = None, *, rounds: int, after: Ledger | None = None
    ) -> Certificate | None:
        """Return the bound on the error per round that is guaranteed on every sequence; None where none is known.

        Parameters
        ----------
        norm, rounds, after
            As for every forecaster: a ledger is one of what was announced in the rounds after `fit`.
        """
        guards = self._now[1]
        of: Any = self.measure if norm is None else as_measure(norm, self.space)
        rounds = whole_number("rounds", rounds, least=1)
        if of != self.measure and (isinstance(of, Losses) or self.losses is not None):
            return None
        played = sum(guard.rounds for guard in guards)
        found: Certificate | None
        if len(guards) > 1:
            found = self._certify_each(rounds, None if after is None else played)
        else:
            found = guards[0].certify(of, rounds) if after is None else guards[0].certify_more(of, rounds)
        return certified(found, of, rounds, played, self.space, after)

    def _certify_each(self, rounds: int, played: int | None) -> Certificate:
        """Return the certificate of a guard for each action, however rounds divide: it is a concave function of them.

        Given how many were played, it is that after so many more; the regrets of the safe parts are then known.
        """
        guards = self._now[1]
        count = len(guards)
        every = rounds + (played or 0)
        share = math.ceil(every / count)
        safe = guards[0].safe
        assert isinstance(safe, Decisions)
        budget = guards[0].budget * guards[0].bound(share) + guards[0].credit
        eager = count * budget if self.error is None else self.error * every
        most = count * guards[0].bound(share)
        if played:
            squares = sum(guard.safe.squares for guard in guards if isinstance(guard.safe, Decisions))
            most = min(most, safe._within(every, count * (squares + rounds)).bound * every)
        return Certificate((eager + most) / every, f"{count} guards: {eager / every:.3g} + regret matching")

    def _own_state(self) -> Saved:
        corrector = {} if self.corrector is None else {"corrector": self.corrector.get_state()}
        _, guards, shelf = self._now
        books = {} if shelf is None else {"books": dict(vars(shelf.books))}
        states = {name: guard.get_state() for name, guard in zip(self._guard_names, guards, strict=True)}
        return books | states | corrector

    @property
    def _guard_names(self) -> list[str]:
        count = len(self._now[1])
        return ["guard"] if count == 1 else [f"guard {i}" for i in range(count)]

    def _own_resumed(self, state: Saved, rounds: int) -> Changes:
        corrector, guards, shelf = self._now
        books = ["books"] * (shelf is not None)
        check_names("the state", state, [*books, *self._guard_names, *["corrector"] * (corrector is not None)])
        if shelf is not None:
            shelf = shelf.resumed(state["books"])
        guards = tuple(guard.resumed(state[name]) for name, guard in zip(self._guard_names, guards, strict=True))
        if corrector is not None:
            corrector = resumed(corrector, state["corrector"])
        # The guard counts no rows of logs, and none of the parts rounds of weight 0.
        learned = rounds if corrector is None else corrector.rounds
        booked = 0 if shelf is None else shelf.books.rounds
        if not sum(guard.rounds for guard in guards) <= learned <= rounds or booked > learned:
            raise SnapshotError(f"the parts do not agree on {rounds} rounds.")
        return {"_now": (corrector, guards, shelf)}

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield the usual one, and one with a corrector and another safe part."""
        with suppress(UnsupportedError):  # a set that does not know its size
            yield cls(space)
        if isinstance(space, Simplex):
            yield cls(space, corrector=VectorScaling(space), safe=TreeCal(space, arity=3), budget=0.2)
            for part, f in zip((VectorScaling(space), None), Decisions.examples(space), strict=False):
                yield cls(space, corrector=part, losses=f.measure)

    @classmethod
    def methods(cls) -> dict[str, Callable[..., Corrector]]:
        """Return the model under guard, as it is and after scaling."""

        def scaled(space: ConvexSet, *, losses: Any = None) -> GuardedCorrector:
            return cls(space, corrector=VectorScaling(space), losses=losses)

        return super().methods() | {"vector-then-guarded": scaled}
