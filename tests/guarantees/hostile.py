"""Eager parts that mean harm, and opponents who help them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

import treecal as tc
from treecal._typing import Array
from treecal.forecasters import GuardReport
from treecal.streams import Adversary, LedgerAdversary, MeanAdversary
from treecal.testing import sample_outcomes


class World:
    """Where a hostile part sees the guard that judges it. Copies of the part see the same one."""

    guard: Any = None

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @property
    def report(self) -> GuardReport:
        report: GuardReport = self.guard.report() if isinstance(self.guard, tc.Guarded) else self.guard.guard()
        return report


@dataclass(frozen=True)
class Past:
    rounds: int
    sum: Array


class Hostile(tc.Forecaster):
    """Announces one point a round, which it may choose knowing everything about the guard."""

    def __init__(self, space: tc.ConvexSet, world: World) -> None:
        self.space, self.world, self._state = space, world, Past(0, np.zeros(space.dim))

    def _after(self, state: Past, outcome: Array) -> Past:
        return Past(state.rounds + 1, state.sum + outcome)

    def _announce(self) -> tc.Forecast:
        return tc.Forecast([self.point()], space=self.space)

    def point(self) -> Array:
        raise NotImplementedError

    @property
    def mean(self) -> Array:
        """Of all outcomes, rounded on the simplex, so that it repeats."""
        if not self._state.rounds:
            return np.asarray(self.space.centre)
        mean = self._state.sum / self._state.rounds
        return np.asarray(mean if not isinstance(self.space, tc.Simplex) else mean.round(1) / mean.round(1).sum())

    @property
    def opposite(self) -> Array:
        """The extreme point farthest from the outcomes."""
        return self.space.minimise(self._state.sum - self._state.rounds * self.space.centre + 1e-6)


class AlwaysWrong(Hostile):
    """Is sure of what came least."""

    def point(self) -> Array:
        return self.opposite


class Alternating(Hostile):
    """Is sure of one thing after another."""

    def point(self) -> Array:
        direction = np.zeros(self.space.dim)
        direction[self._state.rounds % self.space.dim] = -1.0
        return self.space.minimise(direction)


class NeverTheSame(Hostile):
    """Never announces a point twice, so that nothing averages out."""

    def point(self) -> Array:
        share = 1 / (2 + self._state.rounds)
        return np.asarray((1 - share) * self.opposite + share * self.space.centre)


class RightUntilTrusted(Hostile):
    """Forecasts well until it spoke ten times in a row, then wrongly for as long as it may."""

    def point(self) -> Array:
        return self.mean if self.world.report.eager_rounds % 20 < 10 else self.opposite


class SpendsAtTheEdge(Hostile):
    """Is right while there is room, and as wrong as can be, at a new point, when the budget just lets it speak."""

    def point(self) -> Array:
        room = self.space.diameter(self.world.guard.norm)
        if self.world.report.left >= 2 * room:
            return self.mean
        share = 1 / (100 + self._state.rounds)
        return np.asarray((1 - share) * self.opposite + share * self.space.centre)


HOSTILE = (AlwaysWrong, Alternating, NeverTheSame, RightUntilTrusted, SpendsAtTheEdge)
Opponent = Callable[[tc.Forecast, bool], Array]


class Accomplice(Adversary):
    """Contradicts eager as far as it can, and raises safe's error most when safe speaks."""

    def __init__(self, space: tc.ConvexSet, norm: Any) -> None:
        super().__init__(space)
        self._norm, self._ledger = norm, LedgerAdversary(space, norm=norm)

    def __call__(self, x: tc.Forecast, spoke: bool) -> Array:
        answer = self._ledger.outcome(x)
        if not spoke:
            return answer
        candidates = self.extremes(x.mean - self.space.centre)
        worst: Array = candidates[int(np.argmax(self._norm(candidates - x.mean)))]
        return worst

    def outcome(self, forecast: tc.Forecast) -> Array:
        return self._ledger.outcome(forecast)


def opponent(kind: str, space: tc.ConvexSet, norm: Any, rounds: int, seed: int) -> Opponent:
    """Return who chooses the outcomes: "mean", "ledger", "accomplice" or "random"."""
    rng = np.random.default_rng(seed)
    if kind == "accomplice":
        return Accomplice(space, norm)
    if kind == "random":
        rest = iter(sample_outcomes(space, rounds, rng))
        return lambda x, spoke: next(rest)
    adversary = MeanAdversary(space) if kind == "mean" else LedgerAdversary(space, norm=norm, rng=rng)
    return lambda x, spoke: adversary.outcome(x)
