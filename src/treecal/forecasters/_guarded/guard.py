"""Guarded: a good forecaster that speaks while its error is within a budget, and a certified one when it is not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treecal._states import check_count, check_names, check_number, resumed
from treecal._typing import Array, Changes, Saved
from treecal.exceptions import ParameterError, SnapshotError, UnsupportedError
from treecal.forecast import DecisionForecast, Forecast
from treecal.forecasters._base import Forecaster, LockedForecaster, reach
from treecal.forecasters._binary_grid import BinaryGrid
from treecal.forecasters._codebook import Codebook
from treecal.forecasters._decisions import Decisions
from treecal.forecasters._guarded.streams import GuardStreams
from treecal.forecasters._harmonic import Harmonic
from treecal.forecasters._regrets import Regrets
from treecal.forecasters._tally import Tally
from treecal.forecasters._tracker import Tracker
from treecal.forecasters._tree.treecal import TreeCal
from treecal.geometry import ConvexSet, Crps, Norm, Simplex, as_norm, l1, l2
from treecal.measures import Losses
from treecal.theory import Certificate

BUDGET = 0.1
"""What every round earns the eager part, as a share of what one of its own earns besides."""
CREDIT = 10
"""What the eager part may err before it has earned anything, in diameters of the set."""
FAIR = 0.5
"""The most that a round of its own earns it, in diameters."""
BLOCK = 4096
"""Rounds after which the default safe part starts anew."""
BINS = 16
"""Those of the default safe part of two classes."""


@dataclass(frozen=True)
class GuardReport:
    """What a guard did so far.

    Attributes
    ----------
    rounds
        Number of outcomes.
    eager_rounds, safe_rounds
        How many of them each part forecast.
    eager_error
        The total calibration error of the eager part's rounds, in the guard's norm; of points on a tree, by node.
    safe_bound
        What that of the safe part's rounds is at most.
    budget
        What the eager part's error may reach in the coming round, in total.
    left
        What is left of it: with less than the set's diameter the safe part forecasts.
    """

    rounds: int
    eager_rounds: int
    safe_rounds: int
    eager_error: float
    safe_bound: float
    budget: float
    left: float


class Guard:
    """Decides who forecasts: the eager part, if its error so far, plus the diameter, is within the budget; or safe.

    See `Guarded` for the budget and the theorem. Where the norm is losses, the error is the swap regret of the advice.
    """

    def __init__(
        self, space: ConvexSet, safe: Forecaster, *, budget: float, norm: Norm | Losses, error: float | None
    ) -> None:
        for name, value in (("budget", budget), ("error", error)):
            if not (value is None and name == "error") and not (
                isinstance(value, int | float | np.number) and 0 <= value < math.inf
            ):
                raise ParameterError.expected(name, value, "a number of 0 or more")
        if not isinstance(safe, Forecaster) or safe.rounds or safe.space != space:
            raise ParameterError.expected("safe", safe, f"a new Forecaster on {space!r}")
        if isinstance(norm, Losses) and safe.measure != norm:
            raise ParameterError.expected("safe", safe, "Decisions(space, losses) with the same losses")
        self.norm = norm
        self.diameter = reach(space, norm)
        self.budget = float(budget)
        self.error = None if error is None else float(error)
        self.space = space
        self.safe = deepcopy(safe)
        self.tally: Tally | Regrets
        self.tally = Regrets.empty(norm) if isinstance(norm, Losses) else Tally.empty(norm, space.dim)
        self._bounds: dict[int, float] = {}
        self.rounds = 0
        self.best = 0.0  # the most by which what the eager part earned ever exceeded its error
        self.rate = 0.0
        if error is None:
            self.bound(1)  # raises where there is none
            if not isinstance(norm, Losses):
                self.rate = min(safe._rate(norm), FAIR * self.diameter)
        self.credit = CREDIT * self.diameter if error is None and budget else 0.0
        self._opened()

    @property
    def allowed(self) -> float:
        """The budget for the coming round."""
        if self.error is not None:
            return self.error * (self.rounds + 1)
        return self.earned_by_all(self.rounds) + self.rate * (self.tally.rounds + 1) - self.best

    def earned_by_all(self, rounds: int) -> float:
        """Return what the eager part may err beyond what it earns in its own rounds."""
        if self.rate:
            return self.credit + self.budget * self.rate * rounds
        # The bound at the last power of two: the budget never falls, and is known beforehand.
        return self.credit + self.budget * self.bound(1 << (rounds.bit_length() - 1)) if rounds else self.credit

    def _opened(self) -> Guard:
        """Decide who forecasts the coming round."""
        self.open = self.tally.total + self.diameter <= self.allowed
        return self

    def after(self, announced: Forecast, outcome: Array) -> Guard:
        """Return the guard after a round, given what was announced in it."""
        if self.open:
            return self.after_eager(announced, outcome)
        twin = self.after_safe()
        twin.safe = self.safe._fork()
        twin.safe._learn(outcome)
        return twin

    def after_eager(self, announced: Forecast, outcome: Array) -> Guard:
        """Return the guard after a round in which the eager part forecast."""
        tally = self.tally.after(announced, outcome)
        rounds = self.rounds + 1
        earned = self.budget * self.rate * rounds + self.rate * tally.rounds
        return self._copied(rounds=rounds, tally=tally, best=max(self.best, earned - tally.total))._opened()

    def after_safe(self) -> Guard:
        """Return the guard after a round in which a safe part forecast, which has learned the outcome or will."""
        return self._copied(rounds=self.rounds + 1)._opened()

    def _copied(self, **changes: Any) -> Guard:
        twin = object.__new__(Guard)
        vars(twin).update(vars(self), **changes)
        return twin

    def bound(self, rounds: int) -> float:
        """Return safe's bound on its total error."""
        if rounds not in self._bounds:
            found = self.safe.certificate(self.norm, rounds=rounds)
            if found is None:
                raise UnsupportedError(
                    f"{self.safe!r} has no certificate in {self.norm!r}, so there is no budget.",
                    hint="error= for a budget of your own.",
                )
            if len(self._bounds) > 100:
                self._bounds.clear()
            self._bounds[rounds] = found.bound * rounds
        return self._bounds[rounds]

    def certify(self, norm: Norm | Losses, rounds: int) -> Certificate | None:
        """Return the guarantee of the whole: the budget and safe's bound, added."""
        if norm != self.norm:
            return None
        found = self.safe.certificate(norm, rounds=rounds)
        if found is None:
            return None
        more = self.error if self.error is not None else self.earned_by_all(rounds) / rounds
        return Certificate(min(found.bound + more, self.diameter), f"guard: {more:.3g} + {found.why}")

    def may_err(self, rounds: int, eager: int, copies: int = 1) -> float:
        """Return what the eager part's error may reach after so many rounds, so many of them its own.

        Of late outcomes, with no more rounds open at once than there are copies: see `tc.Late`.
        """
        most = self.error * rounds if self.error is not None else self.earned_by_all(rounds) + self.rate * eager
        return most - self.best + (copies - 1) * max(self.diameter, self.credit)

    def certify_more(self, norm: Norm | Losses, rounds: int) -> Certificate | None:
        """Return the guarantee after so many rounds more, given what the eager part's error is so far."""
        every = self.rounds + rounds
        whole = self.certify(norm, every)
        if whole is None:
            return None
        bound = (self.may_err(every, self.tally.rounds) + self.bound(self.safe.rounds + rounds)) / every
        return replace(whole, bound=bound, why="guard, as it stands") if bound < whole.bound else whole

    def report(self) -> GuardReport:
        """Return what the guard did so far."""
        eager, allowed = self.tally, self.allowed
        rounds = self.safe.rounds
        try:
            bound = self.bound(rounds) if rounds else 0.0
        except UnsupportedError:
            bound = rounds * self.diameter
        return GuardReport(self.rounds, eager.rounds, rounds, eager.total, bound, allowed, allowed - eager.total)

    def get_state(self) -> Saved:
        """Return the state, as arrays, numbers and dictionaries of them."""
        parts = {"safe": self.safe.get_state(), "eager": self.tally.get_state()}
        return {"rounds": self.rounds, "best": self.best} | parts

    def resumed(self, state: Any) -> Guard:
        """Return the guard of such a state, once it is found to be valid."""
        check_names("the guard", state, ["rounds", "best", "safe", "eager"])
        safe = resumed(self.safe, state["safe"])
        twin = self.resumed_late(state)._copied(safe=safe)
        if twin.tally.rounds + safe.rounds != twin.rounds:
            raise SnapshotError(f"the parts of the guard do not agree on {twin.rounds} rounds.")
        return twin

    def resumed_late(self, state: Saved) -> Guard:
        """Return the guard of a state without its safe part."""
        check_count("rounds", state["rounds"])
        rounds = int(state["rounds"])
        check_number(
            "what is left at best", state["best"], least=0.0, most=(1 + self.budget) * self.rate * rounds * (1 + 1e-6)
        )
        tally = self.tally.resumed(state["eager"], self.space)
        if tally.rounds > rounds:
            raise SnapshotError(f"the parts of the guard do not agree on {rounds} rounds.")
        return self._copied(rounds=rounds, best=float(state["best"]), tally=tally)._opened()


def guarded_measure(space: ConvexSet, norm: Norm | str | None, losses: Losses | None) -> Norm | Losses:
    """Return what a guard's error is measured in: a norm, or the losses that its advice is for."""
    if losses is None:
        return space.default_norm if norm is None else as_norm(norm, space)
    if norm is not None:
        raise ParameterError.expected("norm", norm, "none beside losses: the guarantee is of the advice")
    return losses


def default_eager(space: ConvexSet, norm: Norm | Losses) -> Forecaster:
    """Return the usual eager part; points that repeat are needed for an error, and not for advice."""
    return Tracker(space) if isinstance(norm, Losses) else Codebook(Tracker(space))


def default_safe(space: ConvexSet, norm: Norm | Losses) -> Forecaster:
    """Return the certified forecaster for a guard: the best bound among those whose cost a round does not grow."""
    if isinstance(norm, Losses):
        return Decisions(space, norm)
    if isinstance(space, Simplex) and space.dim == 2:
        return BinaryGrid(space, bins=BINS)
    harmonic = Harmonic(space, block=BLOCK)
    try:
        harmonic.certificate(norm, rounds=1)
    except UnsupportedError:
        return TreeCal(space)
    return harmonic


class Guarded(LockedForecaster):
    """Good on ordinary streams, certified on every stream: an eager forecaster under the guard of a safe one.

    The eager part forecasts a round only if the calibration error of its rounds so far, plus the set's diameter, is
    within a budget. Otherwise the safe part forecasts, and it learns the outcomes of its own rounds only. By default
    the eager part is `Codebook(Tracker(space))`, and the safe part a certified forecaster whose cost a round does not
    grow: `BinaryGrid` for two classes, `Harmonic` in blocks of 4,096 rounds elsewhere.

    **The budget.** Let `U(n)` bound safe's total error in `n` rounds, and `r` be a rate at which it grows at least:
    `U(m) − U(n) >= r·(m − n)`. A round of the eager part's saves safe a round, and so earns `r`; every round earns
    `κ·r`. After `e` rounds of the eager part among `t`, its error `A` may reach

        B = c + E − M,    E = r·e + κ·r·t,

    with `κ` the `budget`, `c` a credit of ten diameters to begin with, and `M` the most that `E − A` has been after one
    of its rounds: what it earned and did not spend is not saved up, so that a stream that was kind for long is not
    given more to lose. The budget grows with every round: after the eager part was suspended, it is tried again. Of
    safe parts that do not know their rate `r` is 0, and `κ·U(t)` takes the place of `κ·r·t`. `r` is at most half the
    diameter.

    **Theorem.** After `T` rounds the total error is at most `c + κ·r·T + U(T)`, whatever the outcomes. *Proof.* A round
    adds at most the diameter to `A`, and the eager part forecasts only where that is within `B`; so `A <= c + κ·r·T +
    r·e`, as `M >= 0`. Safe's rounds are a sequence like any other: their error is at most `U(T − e) <= U(T) − r·e`. The
    error of all rounds is at most the sum of both, point by point.

    **From any round on**, `n` rounds later, the total error is at most `A + c + κ·r·(n + m) + U(s + n)`, with `A` of
    now, `s` the rounds of safe, and `m` those since the eager part last forecast: after `f` more rounds of the eager
    part its error is at most `A + c + κ·r·(n + m) + r·f`, as `M >= E − A` after its last round, and safe's is at most
    `U(s + n − f)`. See `certificate(after=)`.

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
        The share `κ`: what every round earns the eager part, in those of its own.
    norm
        The norm of the errors and of the guarantee; by default ℓ1 on the simplex, ℓ2 elsewhere.
    error
        Instead: the eager part may add this much to the error per round, `B = error·t`.
    losses
        What each action costs under each class, for forecasts that are acted on: see `Losses`. The error is then the
        swap regret of the advice, in the loss's unit, `safe` is `Decisions`, `eager` by default `Tracker`, and the
        bound does not depend on the number of classes. The theorem holds as it stands, since the swap regret of all
        rounds is at most the sum of those of two parts of them; the most that a round adds, the span of the costs,
        takes the place of the diameter. Forecasts have `action` and `actions`.

    Examples
    --------
    >>> import treecal as tc
    >>> from treecal.streams import play, regime_switches
    >>> space = tc.Simplex(3)
    >>> outcomes = regime_switches(space, 2000, np.random.default_rng(0))
    >>> f = tc.Guarded(space)
    >>> round(play(f, outcomes).error("l1"), 2), round(play(tc.Harmonic(space), outcomes).error("l1"), 2)
    (0.1, 0.4)
    >>> f.report().safe_rounds
    0
    >>> round(f.certificate("l1", rounds=10_000).bound, 2)
    0.55

    With losses it is the advice that is guaranteed:

    >>> costs = {"bet on 0": [0, 1, 1], "bet on 1": [1, 0, 1], "pass": [0.6, 0.6, 0.6]}
    >>> f = tc.Guarded(space, losses=costs)
    >>> for y in outcomes:
    ...     x = f.predict()
    ...     f.update(y)
    >>> x.action, round(f.certificate(rounds=10_000).bound, 3)
    ('pass', 0.023)
    """

    name = "guarded"
    _fields = ("space", "eager", "safe", "budget", "norm", "error", "losses")
    symmetric = False

    def __init__(
        self,
        space: ConvexSet,
        *,
        eager: Forecaster | None = None,
        safe: Forecaster | None = None,
        budget: float = BUDGET,
        norm: Norm | str | None = None,
        error: float | None = None,
        losses: Any = None,
    ) -> None:
        super().__init__(space)
        self.losses = None if losses is None else Losses.read(space, losses)
        of = guarded_measure(space, norm, self.losses)
        self.norm = None if isinstance(of, Losses) else of
        guard = Guard(space, default_safe(space, of) if safe is None else safe, budget=budget, norm=of, error=error)
        eager = default_eager(space, of) if eager is None else eager
        if not isinstance(eager, Forecaster) or eager.rounds or eager.space != space:
            raise ParameterError.expected("eager", eager, f"a new Forecaster on {space!r}")
        self.budget = guard.budget
        self.error = guard.error
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
    def measure(self) -> Norm | Losses:
        """What the guard bounds: the error in its norm, or the swap regret of the advice by these losses."""
        return self._now[1].norm

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
        x = eager.predict() if guard.open else guard.safe.predict()
        return x if self.losses is None or not guard.open else DecisionForecast(x, self.losses)

    def _learn(self, outcome: Array) -> None:
        announced = Forecaster.predict(self)
        eager, guard = self._now
        after, eager = guard.after(announced, outcome), eager._fork()
        if guard.open:
            eager._learn(outcome)
        else:
            eager._overlook(outcome)
        self._now = eager, after

    _fork = Forecaster._light_fork

    @property
    def usual(self) -> bool:
        """Whether compiled code can play its parts, in its norm."""
        eager = self.eager
        parts = type(eager) is Codebook and type(eager.source) is Tracker
        safe = type(self.safe) in (BinaryGrid, Harmonic, TreeCal) and getattr(self.safe, "depth", None) is None
        return type(self) is Guarded and parts and safe and (self.norm in (l1, l2) or isinstance(self.norm, Crps))

    def _streams(self) -> GuardStreams | None:
        return GuardStreams(self) if self.usual else None

    @property
    def guard(self) -> Guard:
        """What decides who forecasts the coming round."""
        return self._now[1]

    def report(self) -> GuardReport:
        """Return what the guard did so far: rounds and errors of both parts, and the budget."""
        return self._now[1].report()

    def get_state(self) -> Saved:
        """Return the states of both parts and of the guard."""
        with self._lock:
            eager, guard = self._now
            return {"eager": eager.get_state(), "guard": guard.get_state()}

    def _resumed(self, state: Saved) -> Changes:
        check_names("the state", state, ("eager", "guard"))
        eager, guard = resumed(self.eager, state["eager"]), self._now[1].resumed(state["guard"])
        if eager.rounds != guard.rounds:
            raise SnapshotError(f"the eager part has seen {eager.rounds} rounds, and the guard {guard.rounds}.")
        return {"_now": (eager, guard), "_announced": None}

    def _certify(self, norm: Norm | Losses, rounds: int) -> Certificate | None:
        return self._now[1].certify(norm, rounds)

    def _certify_more(self, norm: Norm | Losses, rounds: int) -> Certificate | None:
        return self._now[1].certify_more(norm, rounds)

    def _usual(self, value: Any, default: Any) -> bool:
        of = self.measure
        if isinstance(value, Forecaster):
            return repr(value) in (repr(default_eager(self.space, of)), repr(default_safe(self.space, of)))
        return super()._usual(value, default) or (default is None and value == self.space.default_norm)

    @classmethod
    def tuned(cls, space: ConvexSet, norm: Norm, *, rounds: int) -> Forecaster:
        """Return the guard of the safe part with its best parameters."""
        safe = default_safe(space, norm)
        return cls(
            space, safe=safe if isinstance(safe, Harmonic) else safe.tuned(space, norm, rounds=rounds), norm=norm
        )

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield guards with the three kinds of budget, and codebooks, which have no name of their own."""
        with suppress(UnsupportedError):  # a set that does not know its size
            yield cls(space)
            yield cls(space, eager=Tracker(space), safe=TreeCal(space, arity=2), budget=0.5)
            yield cls(space, eager=TreeCal(space, arity=3), error=0.1)
            yield from Codebook.examples(space)
            for f in Decisions.examples(space):
                yield f
                yield cls(space, losses=f.measure)
