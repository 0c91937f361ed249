"""Decisions: forecasts to act on, whose advice has no regret, however many classes there are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from treecal._states import State, check_array, check_count
from treecal._typing import Array
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import DecisionForecast, Forecast, advised, uniform
from treecal.forecasters._base import Forecaster
from treecal.forecasters._regrets import Regrets, balanced, play_game
from treecal.geometry import ROUNDING, Cdf, ConvexSet, Simplex
from treecal.measures import Losses, LossTable
from treecal.theory import Certificate

_THIN = 1e-6
"""An action that nowhere costs less than the others by more than this, in units of the span, is never advised."""
_INSIDE = 0.01
"""How deep a point lies in its cell, as a share of what can be."""
_SETTLED = 1e-12
"""What a distribution over points may still lose to the worst class, beside the greatest regret."""


class Cells(NamedTuple):
    """The actions that are best somewhere, and for each where it is best by most: the centre of its cell.

    Attributes
    ----------
    actions
        Their numbers.
    centres, margins
        A forecast for each, `(k, d)`, under which it costs less than each other one by this, in units of the span.
    lost
        How much better an action that is left out may be than all of these together.
    step
        The most by which the squares of the regrets grow in a round, under its root.
    """

    actions: Array
    centres: Array
    margins: Array
    lost: float
    step: float

    @classmethod
    def of(cls, table: LossTable) -> Cells:
        """Return those of one decision: an action that is never the only best one is left out, the last one first."""
        kept = list(range(len(table.actions)))
        centres: dict[int, Array] = {}
        lost = 0.0
        for a in reversed(range(len(table.actions))):
            others = [b for b in kept if b != a]
            if not others:
                centres[a] = np.full(table.costs.shape[1], 1 / table.costs.shape[1])
                continue
            gains = table.scaled[others] - table.scaled[a]
            centres[a] = play_game(gains)[0]
            margin = _least(gains, centres[a])
            if margin <= _THIN:
                kept.remove(a)
                lost = max(lost, margin)
        points = np.array([centres[a] for a in kept])
        inner = [table.scaled[[b for b in kept if b != a]] - table.scaled[a] for a in kept]
        margins = np.array([_least(gains, p) if len(gains) else 1.0 for gains, p in zip(inner, points, strict=True)])
        return cls(np.array(kept), points, margins, lost, _step(table.scaled[kept]))

    def inside(self, number: int, point: Array, table: LossTable) -> Array:
        """Return the point nearest to this one, on the way to the centre, at which the action is clearly the best."""
        others = np.delete(self.actions, number)
        gains = table.scaled[others] - table.scaled[self.actions[number]]
        least = _INSIDE * self.margins[number]
        here = np.add.accumulate(gains * point, axis=1)[:, -1]
        there = np.add.accumulate(gains * self.centres[number], axis=1)[:, -1]
        short = here < least
        if not short.any():
            return point
        share = float(((least - here[short]) / (there[short] - here[short])).max())
        return np.asarray((1 - share) * point + share * self.centres[number])


@dataclass(frozen=True, eq=False)
class Decided(State):
    """What `Decisions` has seen: regrets, and for each action that it may advise the outcomes that followed.

    Attributes
    ----------
    rounds
        Number of outcomes.
    regrets
        `R[a, b]` of each decision, one after another.
    weights, sums
        The weight that each action was advised with, and the sum of the outcomes times it.
    points
        The point that stands for each.
    """

    rounds: int
    regrets: Array
    weights: Array
    sums: Array
    points: Array


class Decisions(Forecaster):
    """Forecasts to act on: advice whose swap regret is bounded on every sequence, in any number of classes.

    Who acts on a forecast takes the action that costs least if it is right. What matters then is the *swap regret* of
    the advice: over the rounds with the same advice, what another action would have saved, added up over all advice.
    Calibrated forecasts have none, and to bound it is much easier than to calibrate: the bound knows the number of
    actions, and not that of classes.

    **One decision.** Let `R[a, b]` be what b would have cost less in the rounds with advice a, weighted. Each round
    advises actions by weights x under which as much flows into each as out of it, by the positive part of R (Hart and
    Mas-Colell 2000). Then `Σ x(a)·R⁺[a, b]·(L_a(y) − L_b(y)) = 0` for every outcome y, so that `‖R⁺‖²` grows by at
    most `D² = max_{a,k} Σ_b (L_a(k) − L_b(k))²` a round, and the swap regret after T rounds is at most `√A·D·√T`: for
    A actions whose costs differ by at most 1, `√(A(A − 1)/T)` a round. The point that stands for an action is the mean
    outcome of its rounds, moved into the cell of forecasts that call for it, and renewed whenever their weight has
    doubled.

    **Several decisions** on one forecast: a point then calls for an action of each. The weights come from the game that
    has the points against the classes, with what the regrets make of a point and a class as its gain. Against a
    mixture q of classes the point q itself loses nothing, since every action it calls for is a best one; so the value
    is at most 0, and points that prove it are found one by one: solve the game of those so far, and add the mixture
    that beats them. The bound is that of each decision times the root of their number.

    This is no bound on the calibration error: see `Guarded` for that. Actions that are never the only best one are
    never advised; what is best is then the first of equal ones.

    A round costs `O(A³ + A·d)`, and memory is `O(A² + A·d)`. With several decisions a round costs some small linear
    programs.

    Parameters
    ----------
    space
        The classes, a `Simplex`; or of numbers a `Cdf`, whose cells between thresholds are then the classes.
    losses
        What each action costs under each class: see `Losses` for what may be given.

    Examples
    --------
    >>> import treecal as tc
    >>> space = tc.Simplex(classes=["fine", "fraud"])
    >>> f = tc.Decisions(space, {"pass": [0, 20], "ask": [1, 5], "block": [5, 0]})
    >>> for t in range(1000):
    ...     x = f.predict()
    ...     f.update("fraud" if t % 10 == 0 else "fine")
    >>> x.action, x.points.round(2).tolist()
    ('ask', [[0.9, 0.1]])
    >>> round(f.regret, 3), print(f.certificate(rounds=100_000))
    at most 0.137 (regret matching, 3 actions)
    (0.026, None)

    References
    ----------
    Foster and Vohra, "Calibrated Learning and Correlated Equilibrium", 1997; Hart and Mas-Colell, "A Simple Adaptive
    Procedure Leading to Correlated Equilibrium", 2000; Zhao et al., "Calibrating Predictions to Decisions", 2021; and,
    for points against their own mixture, Foster, "A Proof of Calibration via Blackwell's Approachability", 1999.
    """

    _fields = ("space", "losses")
    symmetric = False

    def __init__(self, space: ConvexSet, losses: Any) -> None:
        super().__init__(space)
        self.losses = Losses.read(space, losses)
        tables = self.losses.tables
        self._single = Cells.of(tables[0]) if len(tables) == 1 else None
        self._steps = [_step(table.scaled) for table in tables] if self._single is None else [self._single.step]
        none = Regrets.empty(self.losses)
        self._classes: ConvexSet = Simplex(tables[0].costs.shape[1]) if tables[0].numbers else space
        points = np.array(self._classes.centre)[None]
        if (cells := self._single) is not None:
            points = np.array([cells.inside(i, points[0], tables[0]) for i in range(len(cells.actions))])
        flat = none.get_state()["regrets"]
        self._state: Decided = Decided(0, flat, np.zeros(len(points)), np.zeros_like(points), points)
        self._none = none

    @property
    def regret(self) -> float:
        """The swap regret of the advice so far, per round: in the loss's unit, of several the greatest by its span."""
        return self._regrets(self._state).total / max(self.rounds, 1)

    @property
    def squares(self) -> float:
        """The squares of the positive regrets so far, each over the most by which they grow: 1 a round and decision."""
        squares = 0.0
        for table, step in zip(self._regrets(self._state).tables, self._steps, strict=True):
            inner = table if self._single is None else table[np.ix_(self._single.actions, self._single.actions)]
            squares += float((np.maximum(inner, 0.0) ** 2).sum()) / (step**2 or 1.0)
        return squares

    def _regrets(self, state: Decided) -> Regrets:
        sizes = [table.size for table in self._none.tables]
        parts = np.split(state.regrets, np.add.accumulate(sizes)[:-1])
        tables = (part.reshape(table.shape) for part, table in zip(parts, self._none.tables, strict=True))
        return Regrets.of(self.losses, state.rounds, tuple(tables))

    def _announce(self) -> Forecast:
        return self._announced_after(self._state)

    def _announced_after(self, state: Decided) -> DecisionForecast:
        """Return what is announced in the round after a state."""
        weights = self._weights(state)
        if isinstance(weights, tuple):
            points, weights = weights
        else:
            points = state.points
        used = weights > 0
        if not used.all():
            points = points[used]
            weights = weights[used]
        if self.losses.tables[0].numbers:
            points = np.minimum(np.add.accumulate(points, axis=1)[:, :-1], 1.0)
        x = Forecast.trusted(points.copy(), weights if len(weights) > 1 else uniform(1), None, self.space)
        return DecisionForecast(x, self.losses)

    def _weights(self, state: Decided) -> Any:
        """Return the weights of the actions' points; of several decisions points and their weights."""
        flows = [np.maximum(table, 0.0) for table in self._regrets(state).tables]
        if (cells := self._single) is None:
            return self._found(flows, state)
        flow = flows[0][np.ix_(cells.actions, cells.actions)]
        if flow.any():
            return balanced(flow)
        weights = np.zeros(len(cells.actions))
        mean = (np.add.accumulate(state.sums, axis=0)[-1] + self._classes.centre) / (state.rounds + 1)
        costs = np.add.accumulate(self.losses.tables[0].scaled[cells.actions] * mean, axis=1)[:, -1]
        weights[costs.argmin()] = 1.0
        return weights

    def _found(self, flows: list[Array], state: Decided) -> tuple[Array, Array]:
        """Return points and weights that lose nothing to any class, given what the regrets ask for."""
        tables = self.losses.tables
        # What class k gains from advice a of a decision: Σ_b R⁺[a, b]·(L_a(k) − L_b(k)), by the square of its step.
        asked = []
        for flow, table, step in zip(flows, tables, self._steps, strict=True):
            into = np.add.accumulate(flow[:, :, None] * table.scaled, axis=1)[:, -1]
            asked.append((np.add.accumulate(flow, axis=1)[:, -1:] * table.scaled - into) / step**2)
        scale = max(float(np.abs(gains).max()) for gains in asked)
        point = state.points[0]
        points = [point]
        if not scale:
            return np.array(points), np.ones(1)
        rows: list[Array] = []
        while True:
            row = np.zeros(self.space.dim)
            for gains, table in zip(asked, tables, strict=True):
                row = row + gains[table.cheapest(point)]
            if any(np.array_equal(row, known) for known in rows):  # all that rounding lets be found
                points.pop()
                break
            rows.append(row)
            point, weights = play_game(np.array(rows) / scale)
            if _least(np.array(rows) / scale, point) <= _SETTLED:
                break
            points.append(point)
        return np.array(points), weights

    def _after(self, state: Decided, outcome: Array) -> Decided:
        announced = self._announced
        known = announced is not None and announced[0] == state.rounds
        x = announced[1] if announced is not None and known else self._announced_after(state)
        regrets = self._regrets(state).after(x, outcome)
        shares = np.ones(1)
        if (cells := self._single) is not None:
            shares = advised(x, self.losses)[0][cells.actions]
        weights = state.weights + shares
        sums = state.sums + shares[:, None] * self.losses.tables[0].chances(outcome)
        points = state.points
        doubled = (np.frexp(weights)[1] > np.frexp(state.weights)[1]) & (weights >= 1)
        if doubled.any():
            points = points.copy()
            for i in np.flatnonzero(doubled).tolist():
                mean = (sums[i] + self._classes.centre) / (weights[i] + 1)
                points[i] = mean if cells is None else cells.inside(i, mean, self.losses.tables[0])
        return Decided(state.rounds + 1, regrets.get_state()["regrets"], weights, sums, points)

    _fork = Forecaster._light_fork

    @property
    def measure(self) -> Losses:
        """What the certificate is of by default: the losses."""
        return self.losses

    def _certify(self, norm: Any, rounds: int) -> Certificate | None:
        return self._within(rounds, rounds * len(self._steps)) if norm == self.losses else None

    def _certify_more(self, norm: Any, rounds: int) -> Certificate | None:
        if norm != self.losses:
            return None
        return self._within(self.rounds + rounds, self.squares + rounds * len(self._steps))

    def _within(self, rounds: int, squares: float) -> Certificate:
        """Return the bound after so many rounds, given what the squares of the regrets may be by then."""
        cells = self._single
        counts = [len(table.actions) for table in self.losses.tables] if cells is None else [len(cells.actions)]
        most = max(step * math.sqrt(count * squares) for step, count in zip(self._steps, counts, strict=True))
        most = self.losses.unit * (most / rounds + (0.0 if cells is None else cells.lost))
        decisions = "" if cells is not None else f", {len(counts)} decisions"
        return Certificate(most, f"regret matching, {max(counts)} action{'s' * (max(counts) > 1)}{decisions}")

    def _check(self, state: Decided) -> None:
        check_count("rounds", state.rounds)
        self._none.resumed({"rounds": state.rounds, "regrets": state.regrets})
        own = self._state
        check_array("the weights", state.weights, own.weights.shape)
        check_array("the sums", state.sums, own.sums.shape)
        check_array("the points", state.points, own.points.shape)
        means = (state.sums + self._classes.centre) / (np.maximum(state.weights, 0.0)[:, None] + 1)
        if not self._classes.contains(np.concatenate([state.points, means]), tol=ROUNDING).all():
            raise SnapshotError(f"a point, or a mean outcome, is none of {self._classes!r}.")
        if (cells := self._single) is not None:
            table = self.losses.tables[0]
            if [table.cheapest(point) for point in state.points] != cells.actions.tolist():
                raise SnapshotError("a point does not call for the action that it stands for.")

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Forecaster]:
        """Yield one of one decision, and one of two, on sets of classes; on a `Cdf` of where the number lies."""
        if isinstance(space, Cdf):
            cell = np.arange(space.dim + 1)
            yield cls(space, {"low": cell, "high": space.dim - cell})
        if isinstance(space, Simplex) and space.dim > 1:
            guess = 1.0 - np.eye(space.dim)
            yield cls(space, guess)
            with suppress(ParameterError):
                yield cls(space, {"guess": guess, "bet": {"yes": 2 * guess[0] - 1, "no": np.zeros(space.dim)}})


def _least(gains: Array, point: Array) -> float:
    return float(np.add.accumulate(gains * point, axis=1)[:, -1].min())


def _step(scaled: Array) -> float:
    """Return the root of the most that one action's costs differ from all others', squared and added up."""
    moves = scaled[:, None] - scaled
    return math.sqrt(float((moves**2).sum(axis=1).max()))
