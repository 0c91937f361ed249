"""Tracker, Codebook and the guard as they are described, literally and slowly: plain numbers, lists and dictionaries.

The guard is in exact rationals. Nothing here is shared with the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from tests.oracle import Mixture, Point, calibration

Vector = list[float]
HALF_LIVES = [3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, math.inf]
GAMMA = 0.002
PERIODS = [24, 28, 30, 48, 52, 60, 96, 144, 168, 288, 336, 365]


class LiteralTracker:
    """Averages with half-lives, laws of order, seasons, and fixed share on the factor of each expert."""

    def __init__(self, centre: Sequence[float], *, classes: bool, diameter: float, period: int | None = None) -> None:
        self.centre, self.classes, self.diameter = list(centre), classes, diameter
        self.t = 0
        self.means = [list(centre) for _ in HALF_LIVES]
        self.past: list[int] = []  # the classes
        self.after: dict[tuple[int, ...], list[Vector]] = {}  # the outcomes that followed a context that is kept
        self.with_laws = classes and len(self.centre) <= 100
        self.most = max(len(self.centre) + 1, 4096 // len(self.centre))
        self.periods = [list(range(2, 15)), PERIODS if period is None else [period]]
        self.holds = {lag: 0.0 for lags in self.periods for lag in lags}
        self.kept = 3 * max(self.holds)
        self.count = len(HALF_LIVES) + 6 * self.with_laws
        self.weights = [1 / self.count] * self.count

    def contexts(self) -> list[tuple[int, ...]]:
        """The contexts of the coming round, the shortest first, the last class first in each."""
        contexts = [tuple(reversed(self.past))[:k] for k in range(5) if k <= self.t]
        known = [context in self.after for context in contexts]
        return contexts[: known.index(False) if False in known else len(known)]

    def law(self, order: int) -> Vector:
        law = self.centre
        for context in self.contexts()[: order + 1]:
            seen = self.after[context]
            law = [(sum(y[j] for y in seen) + 4 * law[j]) / (len(seen) + 4) for j in range(len(law))]
        return law

    def season(self, lags: list[int]) -> Vector:
        lags = [lag for lag in lags if 2 * lag <= self.t]
        if not lags:
            return self.centre
        scores = [self.holds[lag] - 0.5 / math.sqrt(self.t - lag + 1) for lag in lags]
        lag = lags[scores.index(max(scores))]
        weights = {k: 0.85 ** (k - 1) for k in range(1, 7) if k * lag <= min(self.t, self.kept)}
        total = 0.2 + sum(weights.values())
        law = [0.2 / len(self.centre)] * len(self.centre)
        for k, weight in weights.items():
            law[self.past[self.t - k * lag]] += weight
        return [entry / total for entry in law]

    def experts(self) -> list[Vector]:
        experts = [list(mean) for mean in self.means]
        if self.with_laws:
            experts += [self.law(order) for order in (1, 2, 3, 4)]
            experts += [self.season(lags) for lags in self.periods]
        return experts

    def q(self) -> Vector:
        columns = zip(*self.experts(), strict=True)
        return [sum(w * entry for w, entry in zip(self.weights, column, strict=True)) for column in columns]

    def factor(self, q: Sequence[float], y: Sequence[float]) -> float:
        """What a forecast earns: the probability of the class, or 1 − ‖y − q‖²/(2D²)."""
        if self.classes and 1.0 in y:
            return q[list(y).index(1.0)]
        return 1 - sum((a - b) ** 2 for a, b in zip(y, q, strict=True)) / (2 * self.diameter**2)

    def learn(self, y: Sequence[float]) -> None:
        weights = [w * self.factor(q, y) for w, q in zip(self.weights, self.experts(), strict=True)]
        total = sum(weights)
        self.weights = [(1 - GAMMA) * w / total + GAMMA / self.count for w in weights]
        for mean, half_life in zip(self.means, HALF_LIVES, strict=True):
            step = max(1 - 0.5 ** (1 / half_life), 1 / (self.t + 2))
            mean[:] = [m + step * (a - m) for m, a in zip(mean, y, strict=True)]
        top = max(range(len(y)), key=lambda j: (y[j], -j))
        if self.with_laws:
            contexts = self.contexts()
            for context in contexts:
                self.after[context].append(list(y))
            longest = contexts[-1] if contexts else None
            if longest is None:
                new: tuple[int, ...] | None = ()
            elif len(longest) < min(4, self.t) and len(self.after[longest]) > 1:
                new = tuple(reversed(self.past))[: len(longest) + 1]
            else:
                new = None
            if new is not None and len(self.after) < self.most:
                self.after[new] = [list(y)]
            for lag in self.holds:
                if lag <= self.t:
                    step = max(0.003, 1 / (self.t - lag + 2))
                    self.holds[lag] += step * ((self.past[self.t - lag] == top) - self.holds[lag])
        self.past.append(top)
        self.t += 1


class LiteralCodebook:
    """A book of points and their biases: it says where q goes, and learns what came."""

    def __init__(self, capacity: int, *, classes: bool, dim: int, l2_diameter: float) -> None:
        self.capacity, self.classes, self.prior = capacity, classes, l2_diameter**2 / (16 * dim)
        self.points: list[Vector] = []
        self.biases: list[Vector] = []
        self.visits: list[int] = []
        self.t, self.squares = 0, [0.0] * dim

    def announce(self, q: Vector) -> Vector:
        spread = [x * (1 - x) for x in q] if self.classes else [(self.prior + s) / (self.t + 1) for s in self.squares]
        noise = [math.sqrt(2 / math.pi * max(v, 0.0)) for v in spread]

        def cost(p: Vector, V: Vector, visits: int) -> float:
            n = max(math.sqrt(self.t + 1), visits / 8)
            added = [max(abs(V[j] + n * (q[j] - p[j])), math.sqrt(n) * noise[j]) - abs(V[j]) for j in range(len(q))]
            return sum(added) / math.sqrt(n)

        costs = [cost(*each) for each in zip(self.points, self.biases, self.visits, strict=True)]
        self.asked = list(q)
        urgent = 3 if len(self.points) >= self.capacity / 2 else 1
        if len(self.points) < self.capacity and (not costs or min(costs) >= urgent * sum(noise)):
            self.at = len(self.points)
            return self.asked
        self.at = costs.index(min(costs))
        return self.points[self.at]

    def learn(self, y: Sequence[float]) -> None:
        """Learn the outcome of a round in which a point was announced."""
        if self.at == len(self.points):
            self.points.append(self.asked)
            self.biases.append([0.0] * len(self.asked))
            self.visits.append(0)
        self.visits[self.at] += 1
        point = self.points[self.at]
        self.biases[self.at] = [V + (a - p) for V, a, p in zip(self.biases[self.at], y, point, strict=True)]
        self.squares = [s + (a - b) ** 2 for s, a, b in zip(self.squares, y, self.asked, strict=True)]
        self.t += 1


class LiteralGuard:
    """The guard, all in rationals. `spoke[t]` says whether eager forecast round t + 1."""

    def __init__(
        self,
        outcomes: Sequence[Point],
        eager: Sequence[Point],
        *,
        distance: Callable[[Point, Point], Fraction],
        diameter: Fraction,
        share: Fraction,
        rate: Fraction,
        error: Fraction | None = None,
    ) -> None:
        self.spoke: list[bool] = []
        self.eager_error = [Fraction(0)]  # after t rounds
        self.allowed: list[Fraction] = []  # the budget of each round
        self.most = [Fraction(0)]  # the theorem's
        unspent = Fraction(0)
        for t in range(len(outcomes)):
            mine = [s for s in range(t) if self.spoke[s]]
            credit = 10 * diameter + share * rate * t
            self.allowed.append(credit + rate * (len(mine) + 1) - unspent if error is None else error * (t + 1))
            self.spoke.append(self.eager_error[-1] + diameter <= self.allowed[-1])
            if self.spoke[-1]:
                mine.append(t)
            said: list[Mixture] = [[((0, 0), eager[s], Fraction(1))] for s in mine]
            self.eager_error.append(calibration(said, [outcomes[s] for s in mine], distance))
            credit = 10 * diameter + share * rate * (t + 1)
            if self.spoke[-1]:
                unspent = max(unspent, share * rate * (t + 1) + rate * len(mine) - self.eager_error[-1])
            self.most.append(credit + rate * len(mine) if error is None else error * (t + 1))


def sup_norm(a: Point, b: Point) -> Fraction:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))
