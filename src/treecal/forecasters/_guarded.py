"""Guarded: a good forecaster that speaks while its error is within a budget, and a certified one when it is not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from treecal._states import Resume, check_count, check_names, check_number
from treecal._typing import Array
from treecal.exceptions import ParameterError, SnapshotError, UnsupportedError
from treecal.forecast import Forecast
from treecal.forecasters._base import Forecaster, LockedForecaster, reach
from treecal.forecasters._binary_grid import BinaryGrid
from treecal.forecasters._codebook import Codebook
from treecal.forecasters._tally import Tally
from treecal.forecasters._tracker import Tracker
from treecal.forecasters._tree.treecal import TreeCal
from treecal.geometry import ConvexSet, Norm, Simplex, as_norm
from treecal.theory import Certificate

RESERVE = 0.2
"""The share of the budget that must be free before a suspended eager part forecasts again."""


@dataclass(frozen=True)
class GuardReport:
    """What a guard did so far.

    Attributes
    ----------
    rounds
        Number of outcomes.
    eager_rounds, safe_rounds
        How many of them each part forecast.
    eager_error, safe_error
        The total calibration error of those rounds, in the guard's norm; of points on a tree, by node.
    budget
        What the eager part's error may reach in the coming round, in total.
    left
        What is left of it: with less than the set's diameter the safe part forecasts.
    """

    rounds: int
    eager_rounds: int
    safe_rounds: int
    eager_error: float
    safe_error: float
    budget: float
    left: float


class Guard:
    """Decides who forecasts: the eager part, if its error so far, plus the diameter, is within the budget; or safe.

    The eager part's error grows by at most the diameter a round, so it never exceeds the budget. The budget is
    `κ` times the greatest error so far of a second copy of safe that forecasts every round unannounced ("measured"); or
    `κ` times safe's bound; or `error` times the rounds.
    """

    def __init__(
        self, space: ConvexSet, safe: Forecaster, *, budget: float, norm: Norm, error: float | None, measured: bool
    ) -> None:
        for name, value in (("budget", budget), ("error", error)):
            if not (value is None and name == "error") and not (
                isinstance(value, int | float | np.number) and 0 <= value < math.inf
            ):
                raise ParameterError.expected(name, value, "a number of 0 or more")
        if not isinstance(safe, Forecaster) or safe.rounds or safe.space != space:
            raise ParameterError.expected("safe", safe, f"a new Forecaster on {space!r}")
        if not isinstance(measured, bool):
            raise ParameterError.expected("measured", measured, "True or False")
        self.norm, self.diameter = norm, reach(space, norm)
        self.budget, self.error, self.measured = float(budget), None if error is None else float(error), measured
        self.space, self.safe = space, deepcopy(safe)
        self.shadow = deepcopy(safe) if error is None and measured else None
        self.eager_tally, self.safe_tally, self.shadow_tally = (Tally.empty(norm, space.dim) for _ in range(3))
        self.rounds, self.peak = 0, 0.0  # peak: the shadow's greatest error so far, or safe's bound
        self.suspended = False  # whether safe forecast the last round
        if error is None and not measured:
            self._bound(1)  # raises where there is none
        self._opened()

    @property
    def allowed(self) -> float:
        """The budget for the coming round."""
        if self.error is not None:
            return self.error * (self.rounds + 1)
        safe = self.safe_tally
        if self.shadow is None or not safe.rounds:
            return self.budget * self.peak
        # An adversary that answers the eager part may mislead the shadow. Then safe's own rounds tell what its error
        # would be; where they are few they tell little, and the shadow's error is less.
        return self.budget * min(self.peak, safe.total * (self.rounds / safe.rounds))

    def _opened(self) -> Guard:
        """Decide who forecasts the coming round."""
        # Once suspended, the eager part waits for a part of the budget to be free, and then forecasts for a while:
        # single rounds, in which its points do not repeat, would cost it most.
        share = 1 - RESERVE if self.suspended else 1.0
        self.open = self.eager_tally.total + self.diameter <= share * self.allowed
        return self

    def after(self, announced: Forecast, outcome: Array) -> Guard:
        """Return the guard after a round, given what was announced in it."""
        twin, rounds = object.__new__(Guard), self.rounds + 1
        vars(twin).update(vars(self))
        if self.open:
            twin.eager_tally = self.eager_tally.after(announced, outcome)
        else:
            twin.safe_tally = self.safe_tally.after(announced, outcome)
            twin.safe = self.safe._fork()
            twin.safe._learn(outcome)
        if self.shadow is not None:
            twin.shadow_tally = self.shadow_tally.after(self.shadow._announce(), outcome)
            twin.shadow = self.shadow._fork()
            twin.shadow._learn(outcome)
            twin.peak = max(self.peak, twin.shadow_tally.total)
        elif self.error is None and rounds & (rounds - 1) == 0:
            # The bound of the last power of two: the budget never falls, and is known beforehand.
            twin.peak = max(self.peak, self._bound(rounds))
        twin.rounds, twin.suspended = rounds, not self.open
        return twin._opened()

    def _bound(self, rounds: int) -> float:
        found = self.safe.certificate(self.norm, rounds=rounds)
        if found is None:
            raise UnsupportedError(
                f"{self.safe!r} has no certificate in {self.norm!r}, so there is no budget.",
                hint="measured=True, or error= for a budget of your own.",
            )
        return found.bound * rounds

    def certify(self, norm: Norm, rounds: int) -> Certificate | None:
        """Return the guarantee of the whole: the budget and safe's bound, added."""
        if norm != self.norm:
            return None
        found = self.safe.certificate(norm, rounds=rounds)
        if found is None:
            return None
        if self.error is None:
            bound, why = (1 + self.budget) * found.bound, f"{1 + self.budget:g} × {found.why}"
        else:
            bound, why = self.error + found.bound, f"{self.error:g} + {found.why}"
        return Certificate(min(bound, self.diameter), f"guard: {why}")  # no error is greater

    def report(self) -> GuardReport:
        """Return what the guard did so far."""
        eager, safe, allowed = self.eager_tally, self.safe_tally, self.allowed
        return GuardReport(
            self.rounds, eager.rounds, safe.rounds, eager.total, safe.total, allowed, allowed - eager.total
        )

    def get_state(self) -> dict[str, Any]:
        """Return the state, as arrays, numbers and dictionaries of them."""
        tallies = {name: getattr(self, name).get_state() for name in _TALLIES}
        shadow = {} if self.shadow is None else {"shadow": self.shadow.get_state()}
        numbers = {"rounds": self.rounds, "peak": self.peak, "suspended": self.suspended}
        return numbers | {"safe": self.safe.get_state()} | tallies | shadow

    def resumed(self, state: Any) -> Guard:
        """Return the guard of such a state, once it is found to be valid."""
        shadowed = ["shadow"] * (self.shadow is not None)
        check_names("the guard", state, ["rounds", "peak", "suspended", "safe", *_TALLIES, *shadowed])
        if not isinstance(state["suspended"], bool):
            raise SnapshotError("whether the eager part is suspended is not True or False.")
        check_count("rounds", state["rounds"])
        twin, rounds = object.__new__(Guard), int(state["rounds"])
        check_number("the peak", state["peak"], least=0.0, most=self.diameter * rounds * (1 + 1e-6))
        vars(twin).update(vars(self))
        twin.safe = self.safe._fork()
        twin.safe.set_state(state["safe"])
        if self.shadow is not None:
            twin.shadow = self.shadow._fork()
            twin.shadow.set_state(state["shadow"])
        for name in _TALLIES:
            setattr(twin, name, getattr(self, name).resumed(state[name], self.space))
        counts = [twin.eager_tally.rounds + twin.safe_tally.rounds, twin.shadow_tally.rounds, twin.safe.rounds]
        expected = [rounds, rounds * len(shadowed), twin.safe_tally.rounds]
        if twin.shadow is not None:
            counts, expected = [*counts, twin.shadow.rounds], [*expected, rounds]
        if counts != expected:
            raise SnapshotError(f"the parts of the guard do not agree on {rounds} rounds.")
        twin.rounds, twin.peak, twin.suspended = rounds, float(state["peak"]), state["suspended"]
        return twin._opened()


_TALLIES = "eager_tally", "safe_tally", "shadow_tally"


def default_safe(space: ConvexSet) -> Forecaster:
    """Return the certified forecaster for a guard: the best bound among those whose cost a round does not grow."""
    return BinaryGrid(space) if isinstance(space, Simplex) and space.dim == 2 else TreeCal(space)


class Guarded(LockedForecaster):
    """Good on ordinary streams, certified on every stream: an eager forecaster under the guard of a safe one.

    The eager part forecasts a round only if the calibration error of its rounds so far, plus the set's diameter, is
    within a budget; once suspended, only when a fifth of the budget is free again. Otherwise the safe part forecasts,
    and it learns the outcomes of its own rounds only. By
    default the eager part is `Codebook(Tracker(space))`, and the safe part a certified forecaster whose cost a round
    does not grow: `BinaryGrid` for two classes, `TreeCal` elsewhere.

    **Theorem.** On every sequence the total error is at most `B_T + U(T)`, with `B_t` the budget and `U` safe's bound
    on its total error. The eager part's error grows by at most the diameter in a round, and only while it stays within
    the budget, so it is at most `B_T`. Safe's rounds are a sequence like any other, and their error is at most
    `U(n) <= U(T)`. The error of all rounds is at most the sum of both, point by point.

    The budget is `budget` times the greatest error so far of a second copy of safe, which forecasts every round
    unannounced; or, if that is less, times the error that safe's own rounds suggest for all of them. It never exceeds
    `budget·U(T)`, so the total error is at most `(1 + budget)·U(T)`. It grows with time: after the eager part was
    suspended it is tried again, at a cost that is always within the budget.

    Costs about as much a round as its parts together; with the default parts a constant.

    Parameters
    ----------
    space
        The set outcomes lie in.
    eager
        A new forecaster; by default `Codebook(Tracker(space))`. It learns all outcomes. Any rule will do; if its points
        hardly repeat, wrap it in a `Codebook`, or memory grows with every round.
    safe
        A new forecaster with a certificate.
    budget
        The share `κ` of safe's error that the eager part may add.
    norm
        The norm of the errors and of the guarantee; by default ℓ1 on the simplex, ℓ2 elsewhere.
    error
        Instead of a share: the eager part may add this much to the error per round, `B_t = error·t`.
    measured
        Whether the budget follows the error safe would have on this sequence, or (False) safe's bound, which leaves
        the eager part more room.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.streams import play, regime_switches
    >>> space = tc.Simplex(3)
    >>> outcomes = regime_switches(space, 2000, np.random.default_rng(0))
    >>> f = tc.Guarded(space)
    >>> round(play(f, outcomes).error("l1"), 2), round(play(tc.TreeCal(space), outcomes).error("l1"), 2)
    (0.12, 0.38)
    >>> f.report().safe_rounds
    13
    >>> round(f.certificate("l1", rounds=10**6).bound, 2)
    1.26
    """

    name = "guarded"
    _fields = ("space", "eager", "safe", "budget", "norm", "error", "measured")
    symmetric = False

    def __init__(
        self,
        space: ConvexSet,
        *,
        eager: Forecaster | None = None,
        safe: Forecaster | None = None,
        budget: float = 0.5,
        norm: Norm | str | None = None,
        error: float | None = None,
        measured: bool = True,
    ) -> None:
        super().__init__(space)
        self.norm = space.default_norm if norm is None else as_norm(norm)
        safe = default_safe(space) if safe is None else safe
        guard = Guard(space, safe, budget=budget, norm=self.norm, error=error, measured=measured)
        eager = Codebook(Tracker(space)) if eager is None else eager
        if not isinstance(eager, Forecaster) or eager.rounds or eager.space != space:
            raise ParameterError.expected("eager", eager, f"a new Forecaster on {space!r}")
        self.budget, self.error, self.measured = guard.budget, guard.error, measured
        self._now = deepcopy(eager), guard

    @property
    def eager(self) -> Forecaster:
        """The part that forecasts while it is within the budget."""
        return self._now[0]

    @property
    def safe(self) -> Forecaster:
        """The certified part."""
        return self._now[1].safe

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._now[1].rounds

    @property
    def eager_speaks(self) -> bool:
        """Whether the eager part forecasts the coming round."""
        return self._now[1].open

    def _announce(self) -> Forecast:
        eager, guard = self._now
        return eager.predict() if guard.open else guard.safe.predict()

    def _learn(self, outcome: Array) -> None:
        announced, (eager, guard) = self.predict(), self._now
        after, eager = guard.after(announced, outcome), eager._fork()
        if guard.open:
            eager._learn(outcome)
        else:
            eager._overlook(outcome)
        self._now = eager, after

    _fork = Forecaster._light_fork

    def with_eager(self, eager: Forecaster) -> Self:
        """Return a copy whose eager part is this one, which must have as many rounds. The two share their other parts.

        Parameters
        ----------
        eager
            The part that forecasts while it is within the budget.
        """
        twin = self._fork()
        twin._now = eager, self._now[1]
        twin._announced = None
        return twin

    def report(self) -> GuardReport:
        """Return what the guard did so far: rounds and errors of both parts, and the budget."""
        return self._now[1].report()

    def get_state(self) -> dict[str, Any]:
        """Return the states of both parts and of the guard."""
        with self._lock:
            eager, guard = self._now
            return {"eager": eager.get_state(), "guard": guard.get_state()}

    def _prepared(self, state: dict[str, Any]) -> Resume:
        check_names("the state", state, ("eager", "guard"))
        eager, guard = self.eager._fork(), self._now[1].resumed(state["guard"])
        eager.set_state(state["eager"])
        if eager.rounds != guard.rounds:
            raise SnapshotError(f"the eager part has seen {eager.rounds} rounds, and the guard {guard.rounds}.")

        def resume() -> None:
            self._now, self._announced = (eager, guard), None

        return resume

    def _certify(self, norm: Norm, rounds: int) -> Certificate | None:
        return self._now[1].certify(norm, rounds)

    def _usual(self, value: Any, default: Any) -> bool:
        if isinstance(value, Forecaster):
            return repr(value) in (repr(Codebook(Tracker(self.space))), repr(default_safe(self.space)))
        return super()._usual(value, default) or (default is None and value == self.space.default_norm)

    @classmethod
    def tuned(cls, space: ConvexSet, norm: Norm, *, rounds: int) -> Forecaster:
        """Return the guard of the safe part with its best parameters."""
        safe = type(default_safe(space)).tuned(space, norm, rounds=rounds)
        return cls(space, safe=safe, norm=norm)

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield guards with the three kinds of budget, and codebooks, which have no name of their own."""
        with suppress(UnsupportedError):  # a set that does not know its size
            yield cls(space)
            yield cls(space, eager=Tracker(space), safe=TreeCal(space, arity=2), budget=0.2)
            yield cls(space, eager=TreeCal(space, arity=3), error=0.1)
            yield from Codebook.examples(space)
