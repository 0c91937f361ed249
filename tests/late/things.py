"""What Late is tried on, and Late as it would be written without a thought for speed, files or interrupts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import treecal as tc
from treecal.correctors import Cells

TWO, THREE, BOX = tc.Simplex(2), tc.Simplex(3), tc.Box(-1, 1, dim=2)

THINGS: dict[str, Callable[[], Any]] = {
    "platt": lambda: tc.PlattScaling(TWO),
    "exact means": lambda: tc.Recalibrator(THREE, groups=Cells(width=0.5), scores="exact"),
    "tracker": lambda: tc.Tracker(BOX),
    "codebook": lambda: tc.forecasters.Codebook(tc.Tracker(THREE)),
    "tree": lambda: tc.TreeCal(TWO, arity=2),
    "box": lambda: tc.TreeCal(BOX, arity=3),
    "guarded": lambda: tc.Guarded(TWO, error=0.3),
    "guarded tracker": lambda: tc.Guarded(THREE, eager=tc.Tracker(THREE), error=0.2),
    "guarded tree": lambda: tc.Guarded(TWO, eager=tc.TreeCal(TWO, arity=3), error=0.4),
    "guarded model": lambda: tc.GuardedCorrector(TWO, error=0.3),
    "guarded scaling": lambda: tc.GuardedCorrector(TWO, corrector=tc.VectorScaling(TWO), error=0.3),
    "trees in groups": lambda: tc.Recalibrator(TWO, make=tc.TreeCal(TWO, arity=2), groups=Cells(width=0.5)),
}

POOLS = [name for name in THINGS if THINGS[name]().ordered]
SHARED = ["guarded", "guarded tracker", "guarded scaling"]


def asked(thing: Any, b: Any) -> list[Any]:
    """Return the arguments of `predict`."""
    return [b] if isinstance(thing, tc.Corrector) else []


def points(space: tc.ConvexSet, count: int, seed: int) -> list[Any]:
    """Return points of the set, of which many are equal."""
    rng, corners = np.random.default_rng(seed), 4
    if isinstance(space, tc.Simplex):
        tenths = rng.multinomial(10, np.ones(space.dim) / space.dim, corners) / 10
        return list(tenths[rng.integers(corners, size=count)])
    return list(rng.uniform(-1, 1, (corners, space.dim))[rng.integers(corners, size=count)])


def outcomes(space: tc.ConvexSet, count: int, seed: int) -> list[Any]:
    """Return outcomes: corners of a simplex, or points."""
    rng = np.random.default_rng(seed)
    if isinstance(space, tc.Simplex):
        return list(np.eye(space.dim)[rng.integers(space.dim, size=count)])
    return list(rng.uniform(-1, 1, (count, space.dim)))


class Plain:
    """Late, literally: everything is kept for ever, and copies are played again from the first round.

    For things that learn as outcomes come, and for pools that share nothing.
    """

    def __init__(self, make: Callable[[], Any], limit: int | None) -> None:
        self.make, self.limit = make, limit
        self.front = None if make().ordered else make()
        self.pending: list[dict[str, Any]] = []
        self.outcomes: dict[Any, list[Any]] = {}
        self.void: list[Any] = []
        self.copies: list[list[Any]] = []  # what each has learned, in order
        self.arrivals: list[Any] = []
        self.now = -np.inf
        self.amended = 0
        self.too_late = 0

    def replayed(self, learned: list[Any]) -> Any:
        thing = self.make()
        for b, y in learned:
            thing.predict(*asked(thing, b))
            thing.update(y)
        return thing

    def pass_time(self, now: float) -> None:
        self.now = max(self.now, now)
        for each in sorted(self.pending, key=lambda each: each["due"]):
            if each["due"] < self.now:
                self.give_up(each)

    def give_up(self, each: dict[str, Any]) -> None:
        self.pending.remove(each)
        self.void.append(each["id"])

    def predict(self, b: Any, name: Any, due: float, now: float) -> Any:
        self.pass_time(now)
        if len(self.pending) == self.limit:
            self.give_up(self.pending[0])
        number = None
        if self.front is None:
            busy = [each["copy"] for each in self.pending]
            free = [i for i in range(len(self.copies)) if i not in busy]
            if not free:
                self.copies.append([])
                free = [len(self.copies) - 1]
            number = max(free, key=lambda i: len(self.copies[i]))
            thing = self.replayed(self.copies[number])
            x = thing.predict(*asked(thing, b))
        elif isinstance(self.front, tc.Corrector):
            x = self.front.predict(b)
            self.front.cancel()
        else:
            x = self.front.predict()
        self.pending.append({"id": name, "b": b, "due": due, "copy": number, "x": x})
        return x

    def update(self, name: Any, y: Any) -> None:
        each = next(each for each in self.pending if each["id"] == name)
        self.pending.remove(each)
        self.outcomes[name] = [y]
        self.arrivals.append((each["b"], y, each["x"]))
        if self.front is None:
            self.copies[each["copy"]].append((each["b"], y))
        elif isinstance(self.front, tc.Corrector):
            self.front.learn(each["b"], y, announced=each["x"])
        else:
            self.front.update(y)
