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


class LiteralTracker:
    """Averages with half-lives, the law given the last class, and fixed share on the factor of each expert."""

    def __init__(self, centre: Sequence[float], *, classes: bool, diameter: float) -> None:
        self.centre, self.classes, self.diameter = list(centre), classes, diameter
        self.t, self.last = 0, -1
        self.means = [list(centre) for _ in HALF_LIVES]
        self.after: dict[int, list[Vector]] = {}  # the outcomes that followed each class
        self.with_law = classes and len(self.centre) <= 100
        self.count = len(HALF_LIVES) + self.with_law
        self.weights = [1 / self.count] * self.count

    def experts(self) -> list[Vector]:
        experts = [list(mean) for mean in self.means]
        if self.with_law:
            seen = [self.centre, *self.after.get(self.last, [])]
            experts.append([sum(column) / len(seen) for column in zip(*seen, strict=True)])
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
        if self.with_law and self.last >= 0:
            self.after.setdefault(self.last, []).append(list(y))
        self.last, self.t = max(range(len(y)), key=lambda j: (y[j], -j)), self.t + 1


class LiteralBook:
    """One book: points and their biases. It says where q goes, and learns what came."""

    def __init__(self, size: int, capacity: int, *, classes: bool, skill: float, prior: float) -> None:
        self.size, self.capacity, self.classes, self.skill, self.prior = size, capacity, classes, skill, prior
        self.points: list[Vector] = []
        self.biases: list[Vector] = []
        self.growth = 0.0

    def choose(self, q: Vector, t: int, squares: Vector) -> int:
        """The number of the point; one more than there are for a new one."""
        spread = [x * (1 - x) for x in q] if self.classes else [(self.prior + s) / (t + 1) for s in squares]
        sigma = [math.sqrt(2 / math.pi * max(v, 0.0)) for v in spread]
        n = max(10.0, (t + 1) / self.size)

        def cost(p: Vector, V: Vector) -> float:
            added = sum(max(abs(V[j] + n * (q[j] - p[j])), math.sqrt(n) * sigma[j]) - abs(V[j]) for j in range(len(q)))
            return added / n + self.skill * sum((a - b) ** 2 for a, b in zip(q, p, strict=True))

        costs = [cost(p, V) for p, V in zip(self.points, self.biases, strict=True)]
        fresh = cost(q, [0.0] * len(q))
        if len(self.points) < self.capacity and (not costs or min(costs) >= fresh):
            return len(self.points)
        return costs.index(min(costs))

    def learn(self, at: int, q: Vector, y: Sequence[float], t: int) -> None:
        if at == len(self.points):
            self.points.append(list(q))
            self.biases.append([0.0] * len(q))
        before = sum(map(abs, self.biases[at]))
        self.biases[at] = [V + (a - p) for V, a, p in zip(self.biases[at], y, self.points[at], strict=True)]
        self.growth += sum(map(abs, self.biases[at])) - before - self.growth / (t + 1)


class LiteralCodebook:
    """Several books, of which the one whose error grew least lately is followed, once it is 1.2 times better."""

    def __init__(
        self,
        sizes: Sequence[int],
        capacity: int,
        *,
        classes: bool,
        dim: int,
        l1_diameter: float,
        l2_diameter: float,
    ) -> None:
        skill, prior = 10 / l1_diameter, l2_diameter**2 / (16 * dim)
        self.books = [LiteralBook(size, capacity, classes=classes, skill=skill, prior=prior) for size in sizes]
        self.lead, self.t, self.squares = len(sizes) - 1, 0, [0.0] * dim

    def announce(self, q: Vector) -> Vector:
        self.asked, self.at = list(q), [book.choose(q, self.t, self.squares) for book in self.books]
        growths = [book.growth for book in self.books]
        if 1.2 * min(growths) < growths[self.lead]:
            self.lead = growths.index(min(growths))
        points = self.books[self.lead].points
        at = self.at[self.lead]
        return self.asked if at == len(points) else points[at]

    def learn(self, y: Sequence[float]) -> None:
        """Learn the outcome of a round in which a point was announced."""
        for book, at in zip(self.books, self.at, strict=True):
            book.learn(at, self.asked, y, self.t)
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
