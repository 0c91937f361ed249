"""What is announced inside a group: the mean of its outcomes, a shift by its mean error, or a forecaster's word."""

from __future__ import annotations

from typing import Any

import numpy as np

from treecal._sums import two_sum
from treecal._typing import Array, Integers
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster
from treecal.geometry import ConvexSet
from treecal.geometry._value import Value


class GroupMean:
    """Announces the mean of the group's past outcomes; or, to shift, the forecast plus the mean of its past errors.

    The group's first forecast counts as `prior` outcomes, or as `prior` errors of 0. For any forecasts and outcomes
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
        """Learn the outcome of a round of the group."""
        total, lost = two_sum(self._sum, outcome - forecast if self.shift else outcome)
        self._sum, self._lost, self._rounds = total, self._lost + lost, self._rounds + 1

    def get_state(self) -> dict[str, Any]:
        """Return the first forecast, the number of rounds, and the sum in two parts."""
        return {"first": self._first, "rounds": self._rounds, "sum": self._sum, "lost": self._lost}

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
        self._first, self._rounds, self._sum, self._lost = (state[k] for k in ("first", "rounds", "sum", "lost"))


class GroupForecaster:
    """Announces what a forecaster does that sees the group's outcomes alone; its nodes are the group's own.

    Parameters
    ----------
    forecaster
        A new one.
    group
        The group's number.
    """

    def __init__(self, forecaster: Forecaster, *, group: int) -> None:
        self.forecaster, self.group = forecaster, group

    def announce(self, forecast: Array) -> Forecast:
        """Return the forecast for a round of the group, whatever the model's."""
        x = self.forecaster.predict()
        if x.nodes is None:
            return x
        nodes = nodes_of_group(self.group, x.nodes)
        return Forecast.trusted(x.points, x.weights, nodes, self.forecaster.space)

    def learn(self, forecast: Array, outcome: Array) -> None:
        """Learn the outcome of a round of the group."""
        self.forecaster.update(outcome)

    def get_state(self) -> dict[str, Any]:
        """Return the forecaster's state."""
        return self.forecaster.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Resume from such a state."""
        self.forecaster.set_state(state)


def nodes_of_group(group: int, nodes: Integers) -> Integers:
    """Return names for the nodes of a group's tree that no node of another group has, however high the trees are.

    The height becomes the place of `(group, height)` in Cantor's enumeration of all pairs: one number for each pair.

    Examples
    --------
    >>> nodes = np.array([[0, 6], [1, 3], [2, 1]])
    >>> [nodes_of_group(group, nodes)[:, 0].tolist() for group in range(3)]
    [[0, 2, 5], [1, 4, 8], [3, 7, 12]]
    """
    heights = nodes[:, 0]
    diagonal = group + heights
    named = np.column_stack([diagonal * (diagonal + 1) // 2 + heights, nodes[:, 1]])
    named.setflags(write=False)
    return named


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
