"""Recalibrator: another model's forecasts put right, online, whatever the model and whatever the outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from treecal._exact import Array, Labels, two_sum, whole_number
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast, uniform
from treecal.forecasters.base import Forecaster
from treecal.forecasters.correction import Correction, nested, unnested
from treecal.forecasters.corrector import Corrector, Source
from treecal.forecasters.groups import ByKey, Groups, TopClass
from treecal.geometry import ConvexSet, Simplex
from treecal.geometry._value import Value

_HEIGHTS = 64  # no tree is higher, so that labels of many trees fit side by side


class Recalibrator(Corrector):
    """Calibeating: keeps what a model's forecasts tell apart, and corrects what they say.

    Forecasts `b` that are alike form a group, and each group has a forecaster of its own that sees only the group's
    outcomes. In a group's first round `b` itself is announced: nothing else is known there, and a model's word is on
    the whole nearer than the set's centre.

    - Simple calibeating, the default: announce the mean of the group's past outcomes, with the group's first `b`
      counted as `prior` more outcomes. For any forecasts and outcomes the Brier score is at most
      `R + calibeating_bound(rounds, ...)`, where `R` is the score of the best constant forecast for each group, the
      group-refinement, and the rest is `O(groups·log T/T)`. The prior keeps small groups from announcing a certainty,
      which the log score would not forgive.
    - Calibrated calibeating: `make` gives each group a calibrated forecaster. What is announced is then calibrated
      too: the error is at most the sum of the groups' errors, and the Brier score is at most `R` plus the groups'
      squared ℓ2 errors, each group's first round aside.

    Costs a round of one group's forecaster, and that of the audit.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    groups
        Which forecasts are alike: `TopClass`, `Cells`, `Centroids` of `treecal.forecasters.groups`, or a function from
        a forecast to the group's name. By default `TopClass()`, which needs a simplex.
    make
        Makes a group's forecaster, the same one each time; by default the group's mean.
    prior
        How many outcomes a group's first forecast counts for in the group's mean, 1 by default; 0 is calibeating to
        the letter. Only without `make`.
    source
        Where forecasts come from, a function or a fitted classifier; by default `predict` is given them.
    audit
        Keep the scores that `report` needs, and with them every distinct forecast.

    Examples
    --------
    >>> import treecal as tc
    >>> rng, space = np.random.default_rng(0), tc.Simplex(2)
    >>> f = tc.Recalibrator(space)
    >>> for _ in range(2000):
    ...     b = rng.random()
    ...     rain = rng.random() < 0.25 + 0.5 * b  # the model is too sure of itself
    ...     x = f.predict([1 - b, b])
    ...     f.update([0, 1] if rain else [1, 0])
    >>> print(f.report())
    2,000 rounds, forecasts alike in cells of 0.1
               Brier = calibration + refinement   log score
    before    0.4754        0.0312       0.4442      0.7235
    after     0.4629        0.0083       0.4546      0.6637
    mean      0.4629        0.0083       0.4546      0.6637
    best constants of the 20 groups: Brier 0.4422

    References
    ----------
    Foster and Hart, "Calibeating: Beating Forecasters at Their Own Game", 2023.
    """

    _fields = ("space", "groups", "make", "prior", "source", "audit")

    def __init__(
        self,
        space: ConvexSet,
        *,
        groups: Groups | Callable[[Array], Hashable] | None = None,
        make: Callable[[], Forecaster] | None = None,
        prior: float | None = None,
        source: Source | None = None,
        audit: bool = True,
    ) -> None:
        super().__init__(space, source=source, audit=audit)
        if groups is None:
            if not isinstance(space, Simplex):
                raise ParameterError.expected(
                    "groups", groups, f"a rule that puts forecasts on {space!r} in groups", hint="Cells(width=0.1)."
                )
            groups = TopClass()
        self.groups = groups if isinstance(groups, Groups) else ByKey(groups)
        if prior is not None and (make is not None or not _at_least_zero(prior)):
            raise ParameterError.expected(
                "prior", prior, "a number of 0 or more" if make is None else "nothing, because make decides"
            )
        self.prior = prior if prior is None else float(prior)
        self._recipe = None if make is None else Recipe(make())
        if self._recipe is not None and self._recipe.pattern.space != space:
            raise ParameterError(f"make() gives a forecaster on {self._recipe.pattern.space!r}, expected {space!r}.")
        self.make = make
        self._groups = self.groups.fresh(space)
        self._index: dict[Hashable, int] = {}
        self._inside: list[Forecaster] = []
        self._met = np.zeros((0, 1 + space.dim))  # each group's rounds and outcome sum
        self._key: Hashable = None

    def _open(self, forecast: Array) -> Forecaster:
        if self.make is None:
            return GroupMean(self.space, start=forecast, weight=1.0 if self.prior is None else self.prior)
        return self.make()

    def _announce(self, forecast: Array) -> Forecast:
        self._key = self._groups.key(forecast)
        group = self._index.get(self._key)
        if group is None:
            return Forecast.trusted(forecast[None], uniform(1), None, self.space)
        x = self._inside[group].predict()
        if x.labels is None:
            return x
        return Forecast.trusted(x.points, x.weights, partial(_relabelled, x, group), self.space)

    def _learn(self, forecast: Array, outcome: Array) -> None:
        group = self._index.get(self._key, len(self._inside))
        new = group == len(self._inside)
        forecaster = self._open(forecast) if new else self._inside[group]
        forecaster.update(outcome)  # may refuse, so it comes first
        if new:
            self._index[self._key] = group
            self._inside.append(forecaster)
            self._met = np.vstack([self._met, np.zeros(self._met.shape[1])])
        self._met[group, 0] += 1
        self._met[group, 1:] += outcome
        self._groups.learn(forecast)

    def report(self, *, resolution: float | None = 0.1) -> Correction:
        """Return Brier and log scores before and after, the two parts of the Brier score, and the group-refinement.

        Parameters
        ----------
        resolution
            As for every corrector: cells of this width, or None for exact.
        """
        scatter = self._kept().scatter(self._met[:, 0], self._met[:, 1:]) if self.rounds else None
        return replace(super().report(resolution=resolution), groups=len(self._inside), group_refinement=scatter)

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name; for `make`, what it made, as a recipe that can be saved."""
        return super().arguments() | {"make": self._recipe}

    def _own_state(self) -> dict[str, Any]:
        names = [list(key) if isinstance(key, tuple) else key for key in self._index]
        state = {"names": names, "met": self._met} | nested("groups", self._groups.get_state())
        for i, forecaster in enumerate(self._inside):
            state |= nested(f"inside {i}", forecaster.get_state())
        return state

    def _set_own_state(self, state: dict[str, Any]) -> None:
        self._index = {tuple(k) if isinstance(k, list) else k: i for i, k in enumerate(state["names"])}
        self._met = np.array(state["met"])
        self._groups = self.groups.fresh(self.space)
        self._groups.set_state(unnested("groups", state))
        self._inside = [self._open(self.space.centre) for _ in self._index]
        # One pass over the state: a search for each group's part would be quadratic.
        parts: list[dict[str, Any]] = [{} for _ in self._inside]
        for key, value in state.items():
            if key.startswith("inside "):
                name, _, rest = key.removeprefix("inside ").partition("/")
                parts[int(name)][rest] = value
        for forecaster, part in zip(self._inside, parts, strict=True):
            forecaster.set_state(part)


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

    def arguments(self) -> dict[str, Any]:
        """Return the pattern, unless it draws: one generator for many forecasters is not data of one of them."""
        if any(isinstance(value, np.random.Generator) for value in self.pattern.arguments().values()):
            raise SnapshotError(
                f"a {type(self.pattern).__name__} in every group cannot be saved: the groups draw from generators "
                "that a snapshot could not tell apart.",
                hint="use a forecaster that announces its distribution, and draw from that with x.sample(rng).",
            )
        return super().arguments()


class GroupMean(Forecaster):
    """The mean of all outcomes so far, with the first forecast counted as so many outcomes more.

    For any outcomes the Brier score over `n` rounds exceeds that of the best constant by at most
    `D²·(weight + Σ_{t≤n} 1/(weight + t))` in total, `D` the set's ℓ2 diameter. Costs `O(dim)` a round.

    Parameters
    ----------
    space
        The set outcomes lie in.
    start
        The first forecast.
    weight
        How many outcomes it counts for.

    Examples
    --------
    >>> import treecal as tc
    >>> f = GroupMean(tc.Simplex(2), start=np.array([0.5, 0.5]), weight=1.0)
    >>> f.update([1, 0])
    >>> f.predict().mean
    array([0.75, 0.25])
    """

    _fields = ("space", "start", "weight")

    def __init__(self, space: ConvexSet, *, start: Array, weight: float) -> None:
        self.space, self.start, self.weight = space, start, weight
        self._rounds = 0
        self._sum, self._lost = np.zeros(space.dim), np.zeros(space.dim)

    @property
    def rounds(self) -> int:
        """Number of outcomes seen."""
        return self._rounds

    def _announce(self) -> Forecast:
        total = self.weight + self._rounds
        point = (self.weight * self.start + self._sum + self._lost) / total if total else self.start
        return Forecast.trusted(point[None], uniform(1), None, self.space)

    def _learn(self, outcome: Array) -> None:
        self._sum, lost = two_sum(self._sum, outcome)
        self._lost += lost
        self._rounds += 1

    def get_state(self) -> dict[str, Any]:
        """Return the first forecast, the number of rounds, and the sum in two parts."""
        return {"start": self.start, "rounds": self._rounds, "sum": self._sum, "lost": self._lost}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from such a state."""
        self.start, self._rounds = np.array(state["start"]), state["rounds"]
        self._sum, self._lost = np.array(state["sum"]), np.array(state["lost"])
        self._announced = None


def calibeating_bound(rounds: int, *, groups: int, diameter: float, prior: float = 1.0) -> float:
    """Return what simple calibeating may lose to the group-refinement, in Brier score per round: at most.

    With `m_t = (κs + Σ_{i≤t} y_i)/(κ + t)` the minimiser of `κ‖q − s‖² + Σ_{i≤t} ‖y_i − q‖²`, that minimum grows by
    `(1 − 1/(κ+t))·‖y_t − m_{t−1}‖²` in round `t`. So a group of `n` rounds has
    `Σ_t ‖y_t − m_{t−1}‖² <= Σ_t ‖y_t − ȳ‖² + κ‖ȳ − s‖² + Σ_t ‖y_t − m_{t−1}‖²/(κ+t)`, and loses at most
    `D²·(κ + Σ_{t≤n} 1/(κ+t))`, with `κ = 0` too. That is concave in `n`: the worst case is groups of equal size.

    Parameters
    ----------
    rounds
        Rounds played.
    groups
        Number of groups met.
    diameter
        The set's ℓ2 diameter: `√2` on the simplex.
    prior
        As for `Recalibrator`.

    Examples
    --------
    >>> round(calibeating_bound(10_000, groups=20, diameter=math.sqrt(2)), 4)
    0.0272
    """
    rounds, groups = whole_number("rounds", rounds, least=1), whole_number("groups", groups, least=1)
    if not _at_least_zero(prior):
        raise ParameterError.expected("prior", prior, "a number of 0 or more")
    groups = min(groups, rounds)
    each, more = divmod(rounds, groups)
    lost = prior + math.fsum(1 / (prior + np.arange(1, each + 1)))
    return float(diameter**2 * (groups * lost + more / (prior + each + 1)) / rounds)


def _at_least_zero(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and bool(0 <= value < math.inf)


def _relabelled(x: Forecast, group: int) -> Labels:
    """Return the labels of a group's tree, told apart from those of the others."""
    assert x.labels is not None
    labels: Labels = x.labels + np.array([_HEIGHTS * group, 0])
    labels.setflags(write=False)
    return labels
