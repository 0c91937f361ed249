"""Recalibrator: another model's forecasts corrected online, for any model and any outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from treecal._states import MOST_ROUNDS, Resume, check_array, check_finite, check_names, check_sums
from treecal._sums import two_sum
from treecal._typing import Array, Integers
from treecal._validate import positive_number, whole_number
from treecal.correctors._base import Corrector, Kept
from treecal.correctors._groups import ByKey, Cells, Centroids, Groups, TopClass
from treecal.correctors._report import Correction
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast
from treecal.forecasters import AdaptiveTreeCal, Forecaster, TreeCal
from treecal.geometry import ConvexSet, Simplex, l2

Simple = Literal["mean", "shift"]


@dataclass(frozen=True)
class _Group:
    """What a group has seen, as arrays that are replaced and never changed; and its forecaster, if groups have one."""

    number: int
    first: Array
    sums: Array  # (2, 3 + 2·dim): rounds, ‖y‖², ‖y − b‖², y, b; and below them what rounding took from the sums
    forecaster: Forecaster | None

    def after(self, forecast: Array, outcome: Array) -> _Group:
        total, lost = two_sum(self.sums[0], _amounts(forecast, outcome))
        return replace(self, sums=np.stack([total, self.sums[1] + lost]))


def _amounts(forecast: Array, outcome: Array) -> Array:
    off = outcome - forecast
    return np.concatenate([[1.0, outcome @ outcome, off @ off], outcome, forecast])


def _another(pattern: Forecaster) -> Forecaster:
    """Return a new forecaster with the same arguments."""
    return type(pattern)(**pattern.arguments())


def _checked(made: Forecaster, space: ConvexSet) -> Forecaster:
    """Return what `make()` gave if it can be a group's forecaster."""
    if not isinstance(made, Forecaster) or made.rounds or made.space != space:
        seen = f" after {made.rounds} rounds" if isinstance(made, Forecaster) and made.rounds else ""
        raise ParameterError(
            f"make() gave {made!r}{seen}, expected a new forecaster on {space!r}.", hint="make=lambda: TreeCal(space)."
        )
    return made


def nodes_of_group(group: int, nodes: Integers) -> Integers:
    """Return the nodes of a group's tree renamed, so that those of two groups never collide, at any height.

    The height becomes the place of `(group, height)` in Cantor's enumeration of all pairs.
    """
    heights = nodes[:, 0]
    diagonal = group + heights
    return np.column_stack([diagonal * (diagonal + 1) // 2 + heights, nodes[:, 1]])


class Recalibrator(Corrector):
    """Calibeating: keeps the distinctions that a model's forecasts make, and corrects the forecasts.

    A rule puts each forecast `b` into a group, and each group is corrected from its own outcomes alone. A group's first
    round announces `b` itself: nothing else is known, and a model's forecast is usually nearer than the set's centre.

    - `make="mean"`, simple calibeating: announce the mean of the group's past outcomes, with the group's first `b`
      counted as `prior` more outcomes. For any forecasts and outcomes the Brier score is at most
      `R + calibeating_bound(rounds, ...)`, where `R` is the score of the best constant forecast for each group, the
      group-refinement, and the rest is `O(groups·log T/T)`. The prior keeps small groups from announcing a
      probability of 0, which the log score punishes without limit.
    - `make="shift"`: announce `b` plus the mean of the group's past errors `y − b`, brought back into the set. It
      keeps the differences between forecasts of a group, and so suits few groups and many classes: the Brier score is
      at most that of `b`, less the groups' squared mean errors, plus the same bound at twice the diameter. A shift can
      give a class the probability 0, which the log score punishes without limit.
    - Calibrated calibeating: `make()` gives each group a calibrated forecaster. The announced forecasts are then
      calibrated: their error is at most the sum of the groups' errors, and the Brier score is at most `R` plus the
      groups' squared ℓ2 errors, each group's first round included.

    A round costs `O(dim)` (and a projection for a shift), or a round of one forecaster, however many groups there are.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    groups
        Which forecasts form a group: `TopClass`, `Cells`, `Centroids` of `treecal.correctors`, or a function from
        a forecast to the group's name. By default `TopClass()`, which needs a simplex.
    make
        "mean", "shift", or each group's forecaster: one to make more of, or a function that makes equal ones.
    prior
        How many outcomes a group's first forecast counts for in "mean" and "shift", 1 by default; with 0 it is
        calibeating exactly as published.
    scores, tolerance
        As for every `Corrector`.

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
    2,000 rounds, each class in bins of a tenth
               Brier = calibration + refinement   log score
    before    0.4754        0.0312       0.4442      0.7235
    after     0.4629        0.0083       0.4546      0.6637
    mean      0.4629        0.0083       0.4546      0.6637
    Brier scores of the best in 20 groups: constants 0.4422, shifts 0.4421

    References
    ----------
    Foster and Hart, "Calibeating: Beating Forecasters at Their Own Game", 2023.
    """

    _fields = ("space", "groups", "make", "prior", "scores", "tolerance")

    def __init__(
        self,
        space: ConvexSet,
        *,
        groups: Groups | Callable[[Array], Hashable] | None = None,
        make: Forecaster | Callable[[], Forecaster] | Simple = "mean",
        prior: float | None = None,
        scores: Kept | None = "binned",
        tolerance: float = 1e-6,
    ) -> None:
        super().__init__(space, scores=scores, tolerance=tolerance)
        groups = TopClass() if groups is None else groups
        self.groups = groups if isinstance(groups, Groups) else ByKey(groups)
        if isinstance(make, Forecaster):
            make = partial(_another, make)
        self._make = make if callable(make) else None
        if not (callable(make) or make in get_args(Simple)):
            raise ParameterError.expected("make", make, "'mean', 'shift', or a function that makes a forecaster")
        if prior is not None and callable(make):
            raise ParameterError.expected("prior", prior, "nothing, because make decides")
        self.prior = prior if prior is None else positive_number("prior", prior, or_zero=True)
        if self.prior is not None and self.prior > MOST_ROUNDS:
            raise ParameterError.expected("prior", prior, "at most 2**62, as many as there can be outcomes")
        self.make = _checked(make(), space) if callable(make) else make
        if make == "shift":
            space.project(space.centre)  # raises for a set without a projection
        self._rule = self.groups.fresh(space)
        self._met: dict[Hashable, _Group] = {}
        self._newest: tuple[Hashable, _Group] | None = None  # the group of the last round, perhaps not in `_met` yet
        self._last: tuple[Array | None, Hashable] = None, None

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield means, shifts and forecasters, in groups of every kind."""
        rule = None if isinstance(space, Simplex) else Cells(width=1.0)
        yield cls(space, groups=rule)
        yield cls(space, groups=Cells(width=0.3), prior=0.0)
        yield cls(space, groups=Centroids(count=3), scores=None)
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

    def _key(self, forecast: Array) -> Hashable:
        """Return the forecast's group; the rule is called once a round."""
        if self._last[0] is not forecast:
            self._last = forecast, self._rule.key(forecast)
        return self._last[1]

    def _announce(self, forecast: Array) -> Forecast:
        group = self._groups().get(self._key(forecast))
        if group is not None and group.forecaster is not None:
            x = group.forecaster.predict()
            nodes = None if x.nodes is None else nodes_of_group(group.number, x.nodes)
            return Forecast.trusted(x.points, x.weights, nodes, self.space)
        return self._point(forecast if group is None else self._corrected(group, forecast))

    def _corrected(self, group: _Group, forecast: Array) -> Array:
        prior = 1.0 if self.prior is None else self.prior
        (total, lost), end = group.sums[:, 2:], 1 + self.space.dim
        weight = prior + group.sums[0, 0]
        if self.make == "shift":
            errors = total[1:end] - total[end:] + (lost[1:end] - lost[end:])
            return self.space.project(forecast + errors / weight)
        return np.asarray((prior * group.first + total[1:end] + lost[1:end]) / weight)

    def _after(self, forecast: Array, outcome: Array) -> dict[str, Any]:
        """Learn on copies of the rule and of the round's group: there may be very many groups."""
        key, rule = self._key(forecast), self._rule
        group = self._groups().get(key) or self._new_group(forecast, np.zeros((2, 3 + 2 * self.space.dim)))
        if group.forecaster is not None:
            forecaster = group.forecaster._fork()
            forecaster.update(outcome)
            group = replace(group, forecaster=forecaster)
        if learned := rule.get_state():
            rule = self.groups.fresh(self.space)
            rule.set_state(deepcopy(learned))
        rule.learn(forecast)
        return {"_newest": (key, group.after(forecast, outcome)), "_rule": rule}

    def _groups(self) -> dict[Hashable, _Group]:
        """Return the groups met, by name."""
        if self._newest is not None:
            key, group = self._newest
            self._met[key] = group
        return self._met

    def _new_group(self, first: Array, sums: Array) -> _Group:
        return _Group(len(self._met), first, sums, self._make() if self._make else None)

    @property
    def ordered(self) -> bool:
        """True where each group has a forecaster: its certificate is one of rounds in order."""
        return self._make is not None

    def report(self) -> Correction:
        """Return Brier and log scores before and after, the two parts of the Brier score, and what groups could do."""
        with self._lock:
            report = super().report()
            sums = np.array([group.sums.sum(axis=0) for group in self._groups().values()])
        (rounds, squares, errors), (outcomes, forecasts) = sums[:, :3].T, np.split(sums[:, 3:], 2, axis=1)
        scatter = math.fsum(squares) - math.fsum(l2.square(outcomes) / rounds)
        left = math.fsum(errors) - math.fsum(l2.square(outcomes - forecasts) / rounds)
        return replace(
            report,
            groups=len(sums),
            group_refinement=max(0.0, scatter) / self.rounds,
            shift_refinement=max(0.0, left) / self.rounds,
        )

    def _check_savable(self) -> None:
        given = self.make.arguments() if isinstance(self.make, Forecaster) else {}
        if any(isinstance(value, np.random.Generator) for value in given.values()):
            raise SnapshotError(
                f"a {type(self.make).__name__} in every group cannot be saved: groups may share one generator.",
                hint="use a forecaster that announces its distribution, and draw from that with x.sample(rng).",
            )

    def _own_state(self) -> dict[str, Any]:
        self._check_savable()
        groups, dim = self._groups().values(), self.space.dim
        return {
            "names": list(self._met),
            "first": np.array([group.first for group in groups]).reshape(-1, dim),
            "sums": np.array([group.sums for group in groups]).reshape(-1, 2, 3 + 2 * dim),
            "rule": self._rule.get_state(),
            "inside": {str(group.number): group.forecaster.get_state() for group in groups if group.forecaster},
        }

    def _own_prepared(self, state: dict[str, Any], rounds: int) -> Resume:
        self._check_savable()
        check_names("the groups", state, ("names", "first", "sums", "rule", "inside"))
        names = _checked_names(state["names"])
        self._check_sums(len(names), state["first"], state["sums"], rounds)
        check_names("inside", state["inside"], [str(number) for number in range(len(names))] if self._make else [])
        rule = self.groups.fresh(self.space)
        rule.set_state(state["rule"])
        met: dict[Hashable, _Group] = {}
        for number, (name, first, sums) in enumerate(zip(names, state["first"], state["sums"], strict=True)):
            forecaster = self._make() if self._make else None
            if forecaster is not None:
                forecaster.set_state(state["inside"][str(number)])
                if forecaster.rounds != sums[0, 0]:
                    raise SnapshotError(f"the forecaster of group {number} is not one of {sums[0, 0]:g} rounds.")
            met[name] = _Group(number, first.copy(), sums.copy(), forecaster)

        def resume() -> None:
            self._rule, self._met, self._newest, self._last = rule, met, None, (None, None)

        return resume

    def _check_sums(self, groups: int, first: Array, sums: Array, rounds: int) -> None:
        """Raise unless so many groups can have seen this in so many rounds."""
        dim = self.space.dim
        check_array("first", first, (groups, dim))
        check_array("sums", sums, (groups, 2, 3 + 2 * dim))
        check_sums("the groups' first forecasts", first, np.ones(groups), self.space, rounds=1)
        counts = sums[:, 0, 0]
        if (counts != np.rint(counts)).any() or (counts < 1).any() or counts.sum() != rounds or sums[:, 1, 0].any():
            raise SnapshotError(f"the groups' rounds are not whole numbers with sum {rounds}.")
        for total in (sums[:, 0], sums.sum(axis=1)):  # without and with what rounding lost
            for what, part in (("outcomes", total[:, 3 : 3 + dim]), ("forecasts", total[:, 3 + dim :])):
                check_sums(f"the groups' {what}", part, counts, self.space, rounds=rounds)


def _checked_names(names: Any) -> list[Hashable]:
    """Return the names of groups: all different, and tuples where a file has lists."""
    if not isinstance(names, list):
        raise SnapshotError("the groups' names are not a list.")
    found = [tuple(name) if isinstance(name, list) else name for name in names]
    try:
        different = len(set(found)) == len(found)
        check_finite("the groups' names", found)
    except TypeError:  # not hashable
        different = False
    if not different:
        raise SnapshotError("the groups' names are not all different.")
    return found


def calibeating_bound(rounds: int, *, groups: int, diameter: float, prior: float = 1.0) -> float:
    """Return the most that simple calibeating can lose to the best constants, in Brier score per round.

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
    prior = positive_number("prior", prior, or_zero=True)
    groups = min(groups, rounds)
    each, more = divmod(rounds, groups)
    lost = prior + math.fsum(1 / (prior + np.arange(1, each + 1)))
    return float(diameter**2 * (groups * lost + more / (prior + each + 1)) / rounds)
