"""Recalibrator: another model's forecasts corrected online, whatever the model and whatever the outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from treecal._typing import Array
from treecal._validate import whole_number
from treecal.correctors._base import Corrector
from treecal.correctors._group_forecasts import GroupForecaster, GroupMean, Recipe
from treecal.correctors._groups import ByKey, Cells, Centroids, Groups, TopClass
from treecal.correctors._report import Correction
from treecal.correctors._state import nested, unnested
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast, uniform
from treecal.forecasters import AdaptiveTreeCal, Forecaster, TreeCal
from treecal.geometry import ConvexSet, Simplex, l2

Simple = Literal["mean", "shift"]


@dataclass
class _Group:
    """A group that has been met: what announces in it, and its rounds, outcome sum and forecast sum in one row."""

    inside: GroupMean | GroupForecaster
    tally: Array


class Recalibrator(Corrector):
    """Calibeating: keeps the distinctions that a model's forecasts make, and corrects the forecasts.

    A rule puts each forecast `b` into a group, and each group has a forecaster of its own that sees only the group's
    outcomes. In a group's first round `b` itself is announced: nothing else is known there, and on the whole a model's
    forecast is nearer than the set's centre.

    - `make="mean"`, simple calibeating: announce the mean of the group's past outcomes, with the group's first `b`
      counted as `prior` more outcomes. For any forecasts and outcomes the Brier score is at most
      `R + calibeating_bound(rounds, ...)`, where `R` is the score of the best constant forecast for each group, the
      group-refinement, and the rest is `O(groups·log T/T)`. The prior keeps small groups from announcing a certainty,
      which the log score punishes without limit.
    - `make="shift"`: announce `b` plus the mean of the group's past errors `y − b`, brought back into the set. It
      keeps the differences between forecasts of a group, and so suits few groups and many classes: the Brier score is
      at most that of `b`, less the groups' squared mean errors, plus the same bound at twice the diameter. A shift can
      give a class the probability 0, which the log score punishes without limit.
    - Calibrated calibeating: `make()` gives each group a calibrated forecaster. What is announced is then calibrated
      as a ledger counts: the error is at most the sum of the groups' errors, and the Brier score is at most `R` plus
      the groups' squared ℓ2 errors, each group's first round among them.

    Costs a round of one group's forecaster, however many groups there are, and that of the audit.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    groups
        Which forecasts form a group: `TopClass`, `Cells`, `Centroids` of `treecal.correctors`, or a function from
        a forecast to the group's name. By default `TopClass()`, which needs a simplex.
    make
        "mean", "shift", or a function that makes a group's forecaster, the same one each time.
    prior
        How many outcomes a group's first forecast counts for in "mean" and "shift", 1 by default; 0 is calibeating to
        the letter.
    audit
        Keep the scores that `report` needs, and with them every distinct forecast.

    Examples
    --------
    >>> import treecal as tc
    >>> rng, space = np.random.default_rng(0), tc.Simplex(2)
    >>> f = tc.Recalibrator(space)
    >>> for _ in range(2000):
    ...     b = rng.random()
    ...     rain = rng.random() < 0.25 + 0.5 * b  # the model is overconfident
    ...     x = f.predict([1 - b, b])
    ...     f.update([0, 1] if rain else [1, 0])
    >>> print(f.report())
    2,000 rounds, forecasts binned in cells of 0.1
               Brier = calibration + refinement   log score
    before    0.4754        0.0312       0.4442      0.7235
    after     0.4629        0.0083       0.4546      0.6637
    mean      0.4629        0.0083       0.4546      0.6637
    Brier scores of the best in 20 groups: constants 0.4422, shifts 0.4421

    References
    ----------
    Foster and Hart, "Calibeating: Beating Forecasters at Their Own Game", 2023.
    """

    _fields = ("space", "groups", "make", "prior", "audit")

    def __init__(
        self,
        space: ConvexSet,
        *,
        groups: Groups | Callable[[Array], Hashable] | None = None,
        make: Callable[[], Forecaster] | Simple = "mean",
        prior: float | None = None,
        audit: bool = True,
    ) -> None:
        super().__init__(space, audit=audit)
        if groups is None:
            if not isinstance(space, Simplex):
                raise ParameterError.expected(
                    "groups", groups, f"a rule that puts forecasts on {space!r} in groups", hint="Cells(width=0.1)."
                )
            groups = TopClass()
        self.groups = groups if isinstance(groups, Groups) else ByKey(groups)
        if not (callable(make) or make in get_args(Simple)):
            raise ParameterError.expected("make", make, "'mean', 'shift', or a function that makes a forecaster")
        if prior is not None and (callable(make) or not _at_least_zero(prior)):
            raise ParameterError.expected(
                "prior", prior, "nothing, because make decides" if callable(make) else "a number of 0 or more"
            )
        self.prior = prior if prior is None else float(prior)
        self._recipe = Recipe(make()) if callable(make) else None
        if self._recipe is not None and self._recipe.pattern.space != space:
            raise ParameterError(f"make() gives a forecaster on {self._recipe.pattern.space!r}, expected {space!r}.")
        if make == "shift":
            space.project(space.centre)  # a set that cannot project says so now
        self.make = make
        self._rule = self.groups.fresh(space)
        self._met: dict[Hashable, _Group] = {}  # in the order in which they were met: a group's place is its number
        self._last: tuple[Array | None, Hashable] = None, None

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield means, shifts and forecasters, in groups of every kind."""
        rule = None if isinstance(space, Simplex) else Cells(width=1.0)
        yield cls(space, groups=rule)
        yield cls(space, groups=Cells(width=0.3), prior=0.0)
        yield cls(space, groups=Centroids(count=3), audit=False)
        yield cls(space, groups=rule, make=lambda: TreeCal(space, arity=3))
        yield cls(space, groups=Centroids(count=2), make=lambda: AdaptiveTreeCal(space))
        if isinstance(space, Simplex):
            yield cls(space, make="shift", prior=2.0)

    @classmethod
    def methods(cls) -> dict[str, Callable[..., Corrector]]:
        """Return means, shifts, and a calibrated forecaster for each group."""

        def adaptive(space: ConvexSet, groups: Groups | None = None) -> Recalibrator:
            return cls(space, groups=groups, make=lambda: AdaptiveTreeCal(space))

        return {name: partial(cls, make=name) for name in get_args(Simple)} | {"adaptive": adaptive}

    def _open(self, group: int, forecast: Array) -> _Group:
        tally = np.zeros(1 + 2 * self.space.dim)
        if callable(self.make):
            return _Group(GroupForecaster(self.make(), group=group), tally)
        prior = 1.0 if self.prior is None else self.prior
        return _Group(GroupMean(self.space, first=forecast, prior=prior, shift=self.make == "shift"), tally)

    def _key(self, forecast: Array) -> Hashable:
        """Return the forecast's group; the rule is asked once in a round."""
        if self._last[0] is not forecast:
            self._last = forecast, self._rule.key(forecast)
        return self._last[1]

    def _announce(self, forecast: Array) -> Forecast:
        group = self._met.get(self._key(forecast))
        if group is None:
            return Forecast.trusted(forecast[None], uniform(1), None, self.space)
        return group.inside.announce(forecast)

    def _learn(self, forecast: Array, outcome: Array) -> None:
        key = self._key(forecast)
        group = self._met.get(key) or self._open(len(self._met), forecast)
        group.inside.learn(forecast, outcome)
        group.tally = group.tally + np.concatenate([[1.0], outcome, forecast])
        self._met[key] = group
        self._rule.learn(forecast)

    def _checkpoint(self) -> Callable[[], None]:
        """Remember the round's group alone: there may be very many."""
        key, rule = self._key(self._round()[0]), deepcopy(self._rule.get_state())
        group = self._met.get(key)
        before = None if group is None else (deepcopy(group.inside.get_state()), group.tally)

        def undo() -> None:
            self._rule.set_state(rule)
            if group is None or before is None:
                self._met.pop(key, None)
            else:
                group.inside.set_state(before[0])
                group.tally = before[1]

        return undo

    def report(self, *, resolution: float | None = 0.1) -> Correction:
        """Return Brier and log scores before and after, the two parts of the Brier score, and what groups could do.

        Parameters
        ----------
        resolution
            As for every corrector: the width of the cells in which forecasts are binned, or None for exact.
        """
        report, dim = super().report(resolution=resolution), self.space.dim
        counts, outcomes, forecasts = np.split(self._tallies(), [1, 1 + dim], axis=1)
        return replace(
            report,
            groups=len(self._met),
            group_refinement=self._kept().scatter(counts[:, 0], outcomes),
            shift_refinement=report.before.brier
            - float(np.sum(l2.square(outcomes - forecasts) / counts[:, 0])) / self.rounds,
        )

    def _tallies(self) -> Array:
        return np.array([group.tally for group in self._met.values()]).reshape(-1, 1 + 2 * self.space.dim)

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name; a function `make` as the recipe of what it made."""
        return super().arguments() | {"make": self.make if self._recipe is None else self._recipe}

    def _own_state(self) -> dict[str, Any]:
        if self._recipe is not None:
            self._recipe.check_savable()
        names = [list(key) if isinstance(key, tuple) else key for key in self._met]
        state = {"names": names, "met": self._tallies()} | nested("groups", self._rule.get_state())
        for i, group in enumerate(self._met.values()):
            state |= nested(f"inside {i}", group.inside.get_state())
        return state

    def _set_own_state(self, state: dict[str, Any]) -> None:
        self._rule = self.groups.fresh(self.space)
        self._rule.set_state(unnested("groups", state))
        # One pass over the state: a search for each group's part would be quadratic.
        parts: list[dict[str, Any]] = [{} for _ in state["names"]]
        for key, value in state.items():
            if key.startswith("inside "):
                name, _, rest = key.removeprefix("inside ").partition("/")
                parts[int(name)][rest] = value
        self._met, self._last = {}, (None, None)
        for i, (name, tally, part) in enumerate(zip(state["names"], state["met"], parts, strict=True)):
            group = self._open(i, self.space.centre)
            group.inside.set_state(part)
            group.tally = tally
            self._met[tuple(name) if isinstance(name, list) else name] = group


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
    if not _at_least_zero(prior):
        raise ParameterError.expected("prior", prior, "a number of 0 or more")
    groups = min(groups, rounds)
    each, more = divmod(rounds, groups)
    lost = prior + math.fsum(1 / (prior + np.arange(1, each + 1)))
    return float(diameter**2 * (groups * lost + more / (prior + each + 1)) / rounds)


def _at_least_zero(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and bool(0 <= value < math.inf)
