"""Recalibrator: another model's forecasts put right, online, whatever the model and whatever the outcomes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from treecal._typing import Array
from treecal.correctors._base import Corrector, Source
from treecal.correctors._calibeating import GroupForecaster, GroupMean, Recipe, at_least_zero
from treecal.correctors._groups import ByKey, Groups, TopClass
from treecal.correctors._report import Correction, nested, unnested
from treecal.exceptions import ParameterError
from treecal.forecast import Forecast, uniform
from treecal.forecasters._base import Forecaster
from treecal.geometry import ConvexSet, Simplex, l2

Simple = Literal["mean", "shift"]


class Recalibrator(Corrector):
    """Calibeating: keeps what a model's forecasts tell apart, and corrects what they say.

    Forecasts `b` that are alike form a group, and each group has a forecaster of its own that sees only the group's
    outcomes. In a group's first round `b` itself is announced: nothing else is known there, and a model's word is on
    the whole nearer than the set's centre.

    - `make="mean"`, simple calibeating: announce the mean of the group's past outcomes, with the group's first `b`
      counted as `prior` more outcomes. For any forecasts and outcomes the Brier score is at most
      `R + calibeating_bound(rounds, ...)`, where `R` is the score of the best constant forecast for each group, the
      group-refinement, and the rest is `O(groups·log T/T)`. The prior keeps small groups from announcing a certainty,
      which the log score would not forgive.
    - `make="shift"`: announce `b` plus the mean of the group's past errors `y − b`, brought back into the set. It
      keeps what `b` tells apart within a group, and so suits few groups and many classes: the Brier score is at most
      that of `b`, less the groups' squared mean errors, plus the same bound at twice the diameter. A shift can rule a
      class out, which the log score may not forgive.
    - Calibrated calibeating: `make()` gives each group a calibrated forecaster. What is announced is then calibrated
      as a ledger counts: the error is at most the sum of the groups' errors, and the Brier score is at most `R` plus
      the groups' squared ℓ2 errors, each group's first round among them.

    Costs a round of one group's forecaster, and that of the audit.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    groups
        Which forecasts are alike: `TopClass`, `Cells`, `Centroids` of `treecal.correctors._groups`, or a function from
        a forecast to the group's name. By default `TopClass()`, which needs a simplex.
    make
        "mean", "shift", or a function that makes a group's forecaster, the same one each time.
    prior
        How many outcomes a group's first forecast counts for in "mean" and "shift", 1 by default; 0 is calibeating to
        the letter.
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
    Brier scores of the best in 20 groups: constants 0.4422, shifts 0.4421

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
        make: Callable[[], Forecaster] | Simple = "mean",
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
        if not (callable(make) or make in get_args(Simple)):
            raise ParameterError.expected("make", make, "'mean', 'shift', or a function that makes a forecaster")
        if prior is not None and (callable(make) or not at_least_zero(prior)):
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
        self._groups = self.groups.fresh(space)
        self._index: dict[Hashable, int] = {}
        self._inside: list[GroupMean | GroupForecaster] = []
        self._met = np.zeros((0, 1 + 2 * space.dim))  # each group's rounds, outcome sum and forecast sum
        self._key: Hashable = None

    def _open(self, group: int, forecast: Array) -> GroupMean | GroupForecaster:
        if callable(self.make):
            return GroupForecaster(self.make(), group=group)
        prior = 1.0 if self.prior is None else self.prior
        return GroupMean(self.space, first=forecast, prior=prior, shift=self.make == "shift")

    def _announce(self, forecast: Array) -> Forecast:
        self._key = self._groups.key(forecast)
        group = self._index.get(self._key)
        if group is None:
            return Forecast.trusted(forecast[None], uniform(1), None, self.space)
        return self._inside[group].announce(forecast)

    def _learn(self, forecast: Array, outcome: Array) -> None:
        group = self._index.get(self._key, len(self._inside))
        new = group == len(self._inside)
        inside = self._open(group, forecast) if new else self._inside[group]
        inside.learn(forecast, outcome)  # may refuse, so it comes first
        if new:
            self._index[self._key] = group
            self._inside.append(inside)
            self._met = np.vstack([self._met, np.zeros(self._met.shape[1])])
        self._met[group] += np.concatenate([[1.0], outcome, forecast])
        self._groups.learn(forecast)

    def report(self, *, resolution: float | None = 0.1) -> Correction:
        """Return Brier and log scores before and after, the two parts of the Brier score, and what groups could do.

        Parameters
        ----------
        resolution
            As for every corrector: forecasts in cells of this width count as alike, or None for exact.
        """
        report, dim = super().report(resolution=resolution), self.space.dim
        counts, outcomes, forecasts = self._met[:, 0], self._met[:, 1 : 1 + dim], self._met[:, 1 + dim :]
        return replace(
            report,
            groups=len(self._inside),
            group_refinement=self._kept().scatter(counts, outcomes),
            shift_refinement=report.before.brier
            - float(np.sum(l2.square(outcomes - forecasts) / counts)) / self.rounds,
        )

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, by name; a function `make` as the recipe of what it made."""
        return super().arguments() | {"make": self.make if self._recipe is None else self._recipe}

    def _own_state(self) -> dict[str, Any]:
        if self._recipe is not None:
            self._recipe.check_savable()
        names = [list(key) if isinstance(key, tuple) else key for key in self._index]
        state = {"names": names, "met": self._met} | nested("groups", self._groups.get_state())
        for i, inside in enumerate(self._inside):
            state |= nested(f"inside {i}", inside.get_state())
        return state

    def _set_own_state(self, state: dict[str, Any]) -> None:
        self._index = {tuple(k) if isinstance(k, list) else k: i for i, k in enumerate(state["names"])}
        self._met = np.array(state["met"])
        self._groups = self.groups.fresh(self.space)
        self._groups.set_state(unnested("groups", state))
        self._inside = [self._open(i, self.space.centre) for i in range(len(self._index))]
        # One pass over the state: a search for each group's part would be quadratic.
        parts: list[dict[str, Any]] = [{} for _ in self._inside]
        for key, value in state.items():
            if key.startswith("inside "):
                name, _, rest = key.removeprefix("inside ").partition("/")
                parts[int(name)][rest] = value
        for inside, part in zip(self._inside, parts, strict=True):
            inside.set_state(part)
