"""One guard for late outcomes: the eager part and its budget in one place, and safe parts that are copied."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np

from treecal._states import check_array, check_count, check_names, resumed
from treecal._typing import Array, Changes, Saved
from treecal.exceptions import SnapshotError
from treecal.forecast import DecisionForecast, Forecast, uniform
from treecal.forecasters import Codebook, Forecaster, Guard, Guarded, Shelf
from treecal.geometry import Norm
from treecal.measures import Losses
from treecal.theory import Certificate

MARGIN = 1.1
"""How much better than a point that awaits its first outcome a new one must be."""


class LateGuard:
    """The eager part of a `Guarded`, its book and the guard, for outcomes that come late and in any order.

    The eager part learns every outcome when it comes. Let `A` be its calibration error in the rounds whose outcomes
    have come, `D` the diameter, `B` the budget as in `Guarded`, of the rounds learned, and `c >= D` the credit in it.
    The eager part forecasts if and only if `A + D <= B + (m−1)·(c − D)`, with `m` the most rounds that were open at
    once; otherwise a copy of the safe part does that awaits no outcome.

    **Theorem.** With at most `m` rounds open at once, the total error of `T` rounds is at most
    `m·c + κ·r·T + m·Û(T/m)`, whatever outcomes and delays, where `Û` is the least concave function above `U`. That is
    what `m` guards would promise, each for its own rounds; but each of those would know only its share.

    *Proof.* Let `t` and `e` be the rounds, and those of the eager part, that are learned when it forecasts for the last
    time: `A + D <= c + (m−1)·(c − D) + κ·r·t + r·(e + 1)` then. Of its rounds `m` are open from then on at most, this
    one included, and each adds `D` at most. If `j >= 1` of them are learned, `A <= m·c + κ·r·T + r·(e + j)`; if none
    is, `A` is what it was. The copies' rounds are sequences in order, and each round of the eager part's leaves one of
    them a round less: their error is at most `Σ_c U(n_c) <= m·Û(T/m) − r·(e + j)`, as `U` grows by `r` a round at
    least. The error of all rounds is at most the sum.

    **From any round on**, `n` rounds later, the total error is at most `max(A + p·D, m·c + κ·r·(t + n) + r·e − M) +
    m·Û((s + n)/m)`, with `A`, `t`, `e` and the `M` of the budget as they are, `s` the rounds that the copies learned,
    and `p` those of the eager part that are open: if it opens none that is learned, `A` grows by `D` for each of these
    at most; else the proof above holds from its last one, with `−M`, which never grows. See `Late.certificate`.

    A point that is open is in no book yet, and has no bias; one that is near enough is announced again, so that a late
    stream does not invent a point for every round that is open.
    """

    def __init__(self, thing: Guarded) -> None:
        eager = deepcopy(thing.eager)
        self.space = thing.space
        self.source: Forecaster = eager.source if isinstance(eager, Codebook) else eager
        self._shelf: Shelf | None = eager.shelf if isinstance(eager, Codebook) else None
        self._guard = thing.guard

    @property
    def rounds(self) -> int:
        """Number of outcomes learned."""
        return self.source.rounds

    def offer(self, flying: Callable[[], list[Array]], copies: int) -> Array | None:
        """Return the eager part's forecast, given those that are open, which are looked up only if need be.

        None if one of the copies has to forecast.
        """
        guard = self._guard
        more = (copies - 1) * max(0.0, guard.credit - guard.diameter)
        if guard.tally.total + guard.diameter > guard.allowed + more:
            return None
        q = self.source.mean_forecast
        if self._shelf is None:
            return q
        choice = self._shelf.choice(self.source, lambda: q)
        if choice.new and (points := flying()):
            near = self._shelf.book.nearest(self._shelf.books, q, np.array(points), MARGIN)
            if near is not None:
                return points[near]
        return self._shelf.point(choice)

    def learn(self, copy: object, outcome: Array) -> None:
        """Learn the outcome of a round, given the copy that announced in it, if one of ours did."""
        source = self.source._fork()
        source._learn(outcome)
        guard, shelf = self._guard, self._shelf
        if isinstance(copy, LateSafe):
            guard = guard.after_safe() if copy.point is None else guard.after_eager(copy.predict(), outcome)
            if shelf is not None and copy.point is not None:
                shelf = shelf.after(shelf.book.placed(shelf.books, copy.point), outcome)
        vars(self).update(source=source, _guard=guard, _shelf=shelf)

    def may_err(self, rounds: int, flying: int, copies: int) -> float:
        """Return what the eager part's error may reach after so many rounds more, with so many of its own open now."""
        guard = self._guard
        most = guard.may_err(guard.rounds + rounds, guard.tally.rounds, copies)
        return max(most, guard.tally.total + flying * guard.diameter)

    def get_state(self) -> Saved:
        """Return the states of the eager part, the book and the guard."""
        guard = self._guard
        state = {"rounds": guard.rounds, "best": guard.best, "eager": guard.tally.get_state()}
        shelf = {} if self._shelf is None else {"book": deepcopy(vars(self._shelf.books))}
        return {"source": self.source.get_state(), "guard": state} | shelf

    def set_state(self, state: Saved) -> None:
        """Resume from a state that `get_state` returned. Any other raises a `SnapshotError` and changes nothing."""
        check_names("the guard of late rounds", state, ["source", "guard", *["book"] * (self._shelf is not None)])
        source = resumed(self.source, state["source"])
        check_names("the guard", state["guard"], ["rounds", "best", "eager"])
        guard = self._guard.resumed_late(state["guard"])
        if guard.rounds > source.rounds:
            raise SnapshotError(f"the guard has seen {guard.rounds} rounds, and the eager part {source.rounds}.")
        shelf = None if self._shelf is None else self._shelf.resumed(state["book"])
        vars(self).update(source=source, _guard=guard, _shelf=shelf)


class LateSafe(Forecaster):
    """A copy of the safe part under a `LateGuard`: it announces its own forecast, or a point of the eager part."""

    def __init__(self, thing: Guarded) -> None:
        super().__init__(thing.space)
        self.guard: Guard = thing.guard  # as it was when new, which knows what it may add
        self.safe = deepcopy(thing.safe)
        self.point: Array | None = None
        self._eager = 0

    @property
    def measure(self) -> Norm | Losses:
        """What the guard bounds."""
        return self.guard.norm

    @property
    def rounds(self) -> int:
        """Number of outcomes learned, the eager part's rounds among them."""
        return self.safe.rounds + self._eager

    def announcing(self, point: Array | None) -> LateSafe:
        """Return one that announces a point of the eager part, or its own forecast; the two share the safe part."""
        twin = self._light_fork()
        twin.point = None if point is None else np.array(point)
        twin._announced = None
        return twin

    def _announce(self) -> Forecast:
        if self.point is None:
            return self.safe.predict()
        x, norm = Forecast.trusted(self.point[None], uniform(1), None, self.space), self.guard.norm
        return DecisionForecast(x, norm) if isinstance(norm, Losses) else x

    def _learn(self, outcome: Array) -> None:
        if self.point is None:
            self.safe._learn(outcome)
        else:
            self._eager += 1

    def _certify(self, norm: Norm | Losses, rounds: int) -> Certificate | None:
        return self.safe.certificate(norm, rounds=rounds) if norm == self.guard.norm else None

    def get_state(self) -> Saved:
        """Return the state of the safe part, and the point that is announced."""
        point = np.zeros((0, self.space.dim)) if self.point is None else self.point[None]
        return {"safe": self.safe.get_state(), "eager": self._eager, "point": point}

    def _resumed(self, state: Saved) -> Changes:
        check_names("a copy", state, ["safe", "eager", "point"])
        check_count("rounds of the eager part", state["eager"])
        given = np.shape(state["point"])
        check_array("the point", state["point"], (int(given[0] > 0) if given else 0, self.space.dim))
        if len(state["point"]) and not self.space.contains(state["point"]).all():
            raise SnapshotError(f"the point of a copy lies outside {self.space!r}.")
        point = np.array(state["point"][0]) if len(state["point"]) else None
        safe = resumed(self.safe, state["safe"])
        return {"safe": safe, "_eager": int(state["eager"]), "point": point, "_announced": None}
