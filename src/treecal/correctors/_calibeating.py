"""What goes on inside a group: the mean of its outcomes, the mean of its errors, or a calibrated forecaster."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treecal._sums import two_sum
from treecal._typing import Array
from treecal._validate import whole_number
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster
from treecal.geometry import ConvexSet
from treecal.geometry._value import Value

_HEIGHTS = 64  # no tree is higher, so that labels of many trees fit side by side


class GroupMean:
    """Announces the mean of the group's past outcomes; or, to shift, the forecast plus the mean of its past errors.

    The group's first forecast counts as `prior` outcomes: as what it says, or as right. For any forecasts and outcomes
    the Brier score over `n` rounds exceeds that of the best constant, or of the best constant shift, by at most
    `D²·(prior + Σ_{t≤n} 1/(prior + t))` in total, `D` the set's ℓ2 diameter, or twice that for errors, which lie in the
    set less itself. Costs `O(dim)` a round, and a projection to shift.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    first
        The group's first forecast.
    prior
        How many outcomes it counts for.
    shift
        Whether errors are averaged, or outcomes.

    Examples
    --------
    >>> from treecal.geometry import Simplex
    >>> group = GroupMean(Simplex(2), first=np.array([0.5, 0.5]), prior=1.0, shift=False)
    >>> group.learn(np.array([0.5, 0.5]), np.array([1.0, 0.0]))
    >>> group.announce(np.array([0.6, 0.4])).mean
    array([0.75, 0.25])
    """

    def __init__(self, space: ConvexSet, *, first: Array, prior: float, shift: bool) -> None:
        self.space, self.prior, self.shift = space, prior, shift
        self._first = np.zeros(space.dim) if shift else first
        self._rounds = 0
        self._sum, self._lost = np.zeros(space.dim), np.zeros(space.dim)

    def announce(self, forecast: Array) -> Forecast:
        """Return the forecast for a round of the group."""
        total = self.prior + self._rounds
        mean = (self.prior * self._first + self._sum + self._lost) / total if total else self._first
        point = self.space.project(forecast + mean) if self.shift else mean
        return Forecast.trusted(point[None], uniform(1), None, self.space)

    def learn(self, forecast: Array, outcome: Array) -> None:
        """Take in the outcome of a round of the group."""
        self._sum, lost = two_sum(self._sum, outcome - forecast if self.shift else outcome)
        self._lost += lost
        self._rounds += 1

    def get_state(self) -> dict[str, Any]:
        """Return the first forecast, the number of rounds, and the sum in two parts."""
        return {"first": self._first, "rounds": self._rounds, "sum": self._sum, "lost": self._lost}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from such a state."""
        self._first, self._rounds = np.array(state["first"]), state["rounds"]
        self._sum, self._lost = np.array(state["sum"]), np.array(state["lost"])


class GroupForecaster:
    """Announces what a forecaster does that sees the group's outcomes alone; its labels are the group's own.

    Parameters
    ----------
    forecaster
        A new one.
    group
        The group's number.
    """

    def __init__(self, forecaster: Forecaster, *, group: int) -> None:
        self.forecaster, self.group = forecaster, group
        self.get_state, self.set_state = forecaster.get_state, forecaster.set_state

    def announce(self, forecast: Array) -> Forecast:
        """Return the forecast for a round of the group, whatever the model's."""
        x, space = self.forecaster.predict(), self.forecaster.space
        if x.nodes is None:
            return x
        return Forecast.trusted(x.points, x.weights, x.nodes + np.array([_HEIGHTS * self.group, 0]), space)

    def learn(self, forecast: Array, outcome: Array) -> None:
        """Take in the outcome of a round of the group."""
        self.forecaster.update(outcome)


class Recipe(Value):
    """How to make a forecaster anew: its class and its arguments, which are data where a function is code.

    Parameters
    ----------
    pattern
        A forecaster made that way.

    Examples
    --------
    >>> import treecal as tc
    >>> Recipe(tc.TreeCal(tc.Simplex(2), arity=3))().arity
    3
    """

    _fields = ("pattern",)

    def __init__(self, pattern: Forecaster) -> None:
        if not isinstance(pattern, Forecaster):
            raise ParameterError.expected("make()", pattern, "a forecaster", hint="make=lambda: TreeCal(space).")
        if pattern.rounds:
            raise ParameterError(
                f"make() gives a forecaster that has seen {pattern.rounds} rounds, expected a new one each time.",
                hint="make=lambda: TreeCal(space).",
            )
        self.pattern = pattern

    def __call__(self) -> Forecaster:
        """Make the forecaster."""
        return type(self.pattern)(**self.pattern.arguments())

    def check_savable(self) -> None:
        """Refuse what draws: a generator that many forecasters share is not data of one of them."""
        if any(isinstance(value, np.random.Generator) for value in self.pattern.arguments().values()):
            raise SnapshotError(
                f"a {type(self.pattern).__name__} in every group cannot be saved: the groups draw from generators "
                "that a snapshot could not tell apart.",
                hint="use a forecaster that announces its distribution, and draw from that with x.sample(rng).",
            )


def calibeating_bound(rounds: int, *, groups: int, diameter: float, prior: float = 1.0) -> float:
    """Return what simple calibeating may lose to the best constants, in Brier score per round: at most.

    With `κ` the prior, `m_t = (κs + Σ_{i≤t} y_i)/(κ + t)` minimises `κ‖q − s‖² + Σ_{i≤t} ‖y_i − q‖²`, and that minimum
    grows by `(1 − 1/(κ+t))·‖y_t − m_{t−1}‖²` in round `t`. So a group of `n` rounds has
    `Σ_t ‖y_t − m_{t−1}‖² <= Σ_t ‖y_t − ȳ‖² + κ‖ȳ − s‖² + Σ_t ‖y_t − m_{t−1}‖²/(κ+t)`, and loses at most
    `D²·(κ + Σ_{t≤n} 1/(κ+t))`, with `κ = 0` too. That is concave in `n`: the worst case is groups of equal size.

    Parameters
    ----------
    rounds
        Rounds played.
    groups
        Number of groups met.
    diameter
        The set's ℓ2 diameter: `√2` on the simplex. For shifts, twice that.
    prior
        As for `Recalibrator`.

    Examples
    --------
    >>> round(calibeating_bound(10_000, groups=20, diameter=math.sqrt(2)), 4)
    0.0272
    """
    rounds, groups = whole_number("rounds", rounds, least=1), whole_number("groups", groups, least=1)
    if not at_least_zero(prior):
        raise ParameterError.expected("prior", prior, "a number of 0 or more")
    groups = min(groups, rounds)
    each, more = divmod(rounds, groups)
    lost = prior + math.fsum(1 / (prior + np.arange(1, each + 1)))
    return float(diameter**2 * (groups * lost + more / (prior + each + 1)) / rounds)


def at_least_zero(value: Any) -> bool:
    """Return whether the value is a finite number of 0 or more."""
    return isinstance(value, int | float | np.number) and bool(0 <= value < math.inf)
