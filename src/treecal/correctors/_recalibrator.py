"""Recalibrator: another model's forecasts corrected online, for any model and any outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from treecal._states import MOST_ROUNDS, Entries, check_names
from treecal._typing import Array, Changes, Integers, Saved
from treecal._validate import positive_number
from treecal.correctors import _forgetting as forgetting, _group_kernels as kernels
from treecal.correctors._base import Corrector, Scored
from treecal.correctors._batch import Batch, Group
from treecal.correctors._frames import Frame, Levels, LocationSpread, Residuals, Together
from treecal.correctors._group_kernels import GroupState, Rule, Visits, check_copies, check_seen, checked_names
from treecal.correctors._groups import ByKey, Cells, Centroids, Groups, TopClass
from treecal.correctors._location_scale import checked_numbers
from treecal.correctors._mean_streams import MeanStreams
from treecal.correctors._scores import Correction
from treecal.exceptions import ParameterError, SnapshotError, UnsupportedError
from treecal.forecast import Forecast
from treecal.forecasters import AdaptiveTreeCal, Forecaster, TreeCal, reach
from treecal.geometry import Box, Cdf, ConvexSet, Simplex, l2

Simple = Literal["mean", "shift"]


FIRST = 4
"""The shortest half-life of a group is `2^4` visits: with shorter ones, streams where nothing changes pay too much."""


@lru_cache
def _rule(copies: int, prior: float, ends: float, shift: bool, scale: float, forget: bool, scored: bool) -> Rule:
    """Return how visits are learned while there are so many copies: one object for all rounds."""
    kept = np.array(forgetting.kept(copies, FIRST))
    most = 2.0 ** (FIRST + copies - 1) if forget else math.inf
    return Rule(kept, most, prior, ends, shift, scale, forgetting.SHARE, forgetting.LASTING, scored)


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

    Means and shifts forget where that pays. A group has copies that forget, of half-lives of 16, 32, 64, … visits, up
    to the number of its visits, and one that never does; it announces their mean by trust. Trust is
    `exp(−Σ‖y − q‖²/(2D²))` over a copy's past forecasts `q`, `D` the set's ℓ2 diameter, with fixed share. That factor
    is concave in `q`, so for any forecasts and outcomes a group's Brier score is, in total, within
    `2D²·tracking_bound(...)` of that of any sequence of its copies, and within `O(log T)` of that of the one that never
    forgets: with `forget=True` the bounds above hold with `calibeating_bound(..., forget=True)`.

    On distributions of a number (`tc.Cdf`) means are of residuals: outcomes less the forecast's mean, in units of its
    spread, within cells of both (`LocationSpread`). The law of the residuals so far, with the group's first forecast
    counted as 10 more, is announced at the place and the width of the forecast of the round. The bounds are those of
    residuals, for the copy that never forgets. It is for rounds in order: see `ordered`.

    Rows of `fit` are rounds in all of these bounds, as if they had been announced: what a log taught wrongly about the
    rounds after it is not within them.

    A weight that is a whole number up to 16 counts as exactly so many rounds; any other is learned in up to 16 equal
    steps, which sums and half-lives count as so many rounds too.

    A round costs `O(dim·log T)` (and `log T` projections for a shift), or a round of one forecaster, however many
    groups there are. It is online histogram binning, with groups as bins: after `fit` it announces what their
    frequencies were.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    groups
        Which forecasts form a group: `TopClass`, `Cells`, `Centroids` of `treecal.correctors`, or a function from
        a forecast to the group's name. By default `TopClass()` on a simplex, and on a `Box` of one coordinate, whose
        points are bare numbers, ten cells.
    make
        "mean", the default, "shift", the default in those ten cells, or each group's forecaster: one to make more of,
        or a function that makes equal ones.
    prior
        How many outcomes a group's first forecast counts for in "mean" and "shift", 1 by default; with 0 and
        `forget=False` it is calibeating exactly as published.
    forget
        Whether means and shifts forget. By default they do, on sets that know their size.
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
    after     0.4632        0.0078       0.4554      0.6640
    mean      0.4632        0.0078       0.4554      0.6640
    Brier scores of the best in 20 groups: constants 0.4422, shifts 0.4421

    References
    ----------
    Foster and Hart, "Calibeating: Beating Forecasters at Their Own Game", 2023.
    """

    _fields: ClassVar[tuple[str, ...]] = ("space", "groups", "make", "prior", "forget", "scores", "tolerance")

    def __init__(
        self,
        space: ConvexSet,
        *,
        groups: Groups | Callable[[Array], Hashable] | None = None,
        make: Forecaster | Callable[[], Forecaster] | Simple | None = None,
        prior: float | None = None,
        forget: bool | None = None,
        scores: Scored | None = "binned",
        tolerance: float = 1e-6,
    ) -> None:
        super().__init__(space, scores=scores, tolerance=tolerance)
        if groups is None and isinstance(space, Box) and space.dim == 1:
            groups = Cells(width=float(space.high[0] - space.low[0]) / 10)
            make = "shift" if make is None else make
        elif groups is None:
            groups = LocationSpread() if isinstance(space, Cdf) else TopClass()
        make = "mean" if make is None else make
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
        self._frame = self._frame_of(space) if isinstance(space, Cdf) and make == "mean" else None
        self.forget, self._scale = self._forgetting(forget)
        if make == "shift":
            space.project(space.centre)  # raises for a set without a projection
        self._rule = self.groups.fresh(space)
        self._known: Entries[Hashable, GroupState] = Entries()
        self._last: tuple[Array | None, Hashable] = None, None

    def _forgetting(self, forget: bool | None) -> tuple[bool, float]:
        """Return whether groups forget, and `2D²`, by which the squares of their errors are divided."""
        if forget not in (None, True, False) or (forget and self._make):
            expected = "True or False" if self._make is None else "nothing, because make decides"
            raise ParameterError.expected("forget", forget, expected)
        if forget is False or self._make:
            return False, 1.0
        if self._frame is not None:
            return True, self._frame.scale
        try:
            return True, max(2 * reach(self.space, "l2") ** 2, 1e-300)
        except UnsupportedError:  # the set does not know its size
            if forget:
                raise
            return False, 1.0

    def _frame_of(self, space: Cdf) -> Frame:
        return Residuals(space)

    @property
    def _dim(self) -> int:
        return self.space.dim if self._frame is None else self._frame.dim

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield means, shifts and forecasters, in groups of every kind."""
        if isinstance(space, Cdf):
            yield cls(space)
        rule = None if isinstance(space, Simplex) else Cells(width=1.0)
        yield cls(space, groups=rule)
        yield cls(space, groups=Cells(width=0.3), prior=0.0)
        yield cls(space, groups=Centroids(count=3), forget=False, scores=None)
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

    def _streams(self) -> MeanStreams | None:
        """Those of groups that are a few numbers each, and as many for all streams."""
        plain = not self.forget and isinstance(self.make, str) and isinstance(self.groups, TopClass)
        return MeanStreams(self) if plain else None

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

    def _mean(self, forecast: Array) -> Array:
        group = self._groups().get(self._key(forecast))
        return forecast if group is None else self._corrected(group, forecast)

    def _corrected(self, group: GroupState, forecast: Array) -> Array:
        """Return the mean by trust of what the copies forecast."""
        points = self._points(group, forecast)
        mean = np.asarray(np.add.accumulate(group.trust[:, None] * points, axis=0)[-1])
        return mean if self._frame is None else self._frame.leave(mean[None], forecast[None])[0]

    def _points(self, group: GroupState, forecast: Array) -> Array:
        """Return the forecast of each copy, first of the one that never forgets."""
        sums = np.vstack([self._lasting(group), group.copies])
        if self._ends:
            sums[1:] += np.append(self._ends, np.full(self._dim, 0.5 * self._ends))
        points = sums[:, 1:] / sums[:, :1]
        return np.asarray(self.space.project(forecast + points) if self.make == "shift" else points)

    @property
    def _prior(self) -> float:
        if self.prior is not None:
            return self.prior
        return 1.0 if self._frame is None else self._frame.prior

    @property
    def _ends(self) -> float:
        return 0.0 if self._frame is None else self._frame.ends

    def _lasting(self, group: GroupState) -> Array:
        """Return the weight and the sum of the copy that never forgets, with the prior."""
        dim, (total, lost, _) = self._dim, group.sums
        y = slice(3, 3 + dim)
        b = slice(3 + dim, None)
        if self.make == "shift":
            return np.append(self._prior + total[0], total[y] - total[b] + (lost[y] - lost[b]))
        return np.append(self._prior + total[0], self._prior * group.first + total[y] + lost[y])

    def _announce_many(self, forecasts: Array, groups: Any) -> Array:
        """Find each group's mean once; what is not a mean is announced one by one."""
        if self.make != "mean" or groups is not None or self._frame is not None:
            return super()._announce_many(forecasts, groups)
        met = self._groups()
        means = np.array(forecasts)
        for key, rows in self._rows_of(forecasts).items():
            if key in met:
                means[rows] = self._corrected(met[key], forecasts[rows[0]])
        return means

    def _rows_of(self, forecasts: Array) -> dict[Hashable, list[int]]:
        """Return the rows of each group, by its name."""
        rows: dict[Hashable, list[int]] = {}
        for i, key in enumerate(self._rule.keys(forecasts)):
            rows.setdefault(key, []).append(i)
        return rows

    def _after(self, forecast: Array, outcome: Array, *, weight: float = 1.0) -> Changes:
        """Learn on copies of the rule and of the round's group: there may be very many groups."""
        key = self._key(forecast)
        rule = self._rule
        group = self._group_after(self._groups().get(key), forecast, outcome, weight)
        if learned := rule.get_state():
            rule = self.groups.fresh(self.space)
            rule.set_state(deepcopy(learned))
        rule.learn(forecast)
        return {"_known": self._known.after({key: group}), "_rule": rule}

    def _group_after(
        self, group: GroupState | None, forecast: Array, outcome: Array, weight: float, *, scored: bool = True
    ) -> GroupState:
        """Return a group, or a new one, after one more round; change nothing."""
        if self._frame is not None:
            forecast, outcome = self._frame.enter(np.array([forecast, outcome]), np.array([forecast, forecast]))
        if group is None:
            group = self._new_group(forecast, len(self._groups()))
        if group.forecaster is not None:
            if weight != 1.0:
                raise UnsupportedError("a forecaster in each group knows no weights: its rounds count alike.")
            learned = group.forecaster._fork()
            learned.update(outcome)
            group = group._replace(forecaster=learned)
        batch = Batch(forecast[None], outcome[None], weights=None if weight == 1.0 else np.array([weight]))
        return (
            self._visited(group, batch, scored=scored)[0] if self.make == "mean" else self._moved(group, batch, scored)
        )

    def _new_group(self, forecast: Array, number: int) -> GroupState:
        dim = self._dim
        forecaster = self._make() if self._make else None
        return GroupState(
            number, np.array(forecast), np.zeros((3, 3 + 2 * dim)), np.zeros((0, 1 + dim)), np.ones(1), forecaster
        )

    def _visited(self, group: GroupState, batch: Batch, *, scored: bool) -> tuple[GroupState, Array]:
        """Return a group of means after rounds in it, and what is announced in them; change nothing."""
        now = group.copied()
        announced = np.empty(batch.forecasts.shape)
        steps = Visits(np.array(batch.forecasts), np.array(batch.outcomes), *forgetting.steps_of(batch))
        visits = kernels.visits.for_rows(len(steps.rows))
        at = 0
        while at < len(steps.rows):
            at = visits(now.arrays, self._rule_of_visits(len(now.trust), scored), steps, at, announced)
            now = self._joined(now)
        return now, announced

    def _moved(self, group: GroupState, batch: Batch, scored: bool) -> GroupState:
        """Return a group of shifts, or of a forecaster, after one round; change nothing."""
        now = group.copied()
        b = np.array(batch.forecasts[0])
        y = np.array(batch.outcomes[0])
        for weight in forgetting.steps_of(batch)[1].tolist():
            points = self._points(now, b) if len(now.copies) else b[None]
            kernels.visit.now(now.arrays, self._rule_of_visits(len(now.trust), scored), points, b, y, weight)
            now = self._joined(now)
        return now

    def _rule_of_visits(self, copies: int, scored: bool) -> Rule:
        """Return how visits are learned while there are so many copies."""
        return _rule(copies, self._prior, self._ends, self.make != "mean", self._scale, self.forget, scored)

    def _joined(self, now: GroupState) -> GroupState:
        """Return a group with the copies that its weight asks for."""
        met = now.sums[0, 0]
        count = len(now.trust)
        if not self.forget or (wanted := forgetting.copies(met, FIRST)) == count:
            return now
        # After so many rounds a copy holds 1/(1 − kept) of weight at most; only a heavy round makes it more.
        parts = np.minimum(1.0, 1 / (1 - forgetting.kept(wanted, FIRST)[count:]) / met)
        copies = np.vstack([now.copies, parts[:, None] * self._lasting(now)])
        return now._replace(copies=copies, trust=forgetting.joined(now.trust, wanted))

    def _played(self, batch: Batch) -> tuple[Array, Changes] | None:
        """Learn group by group, which makes no difference to any of them."""
        return self._visited_all(batch, scored=True) if self._by_group else None

    @property
    def _by_group(self) -> bool:
        """Whether the groups of rows do not depend on those before them, and each learns its rows at once."""
        return self.make == "mean" and not self._rule.get_state()

    def _visited_all(self, batch: Batch, *, scored: bool) -> tuple[Array, Changes]:
        """Return what is announced in rounds, and the attributes that differ after them."""
        met = self._groups()
        new = dict[Hashable, GroupState]()
        given = batch.forecasts
        if self._frame is not None:
            entered, outcomes = (self._frame.enter(each, given) for each in (given, batch.outcomes))
            batch = replace(batch, forecasts=entered, outcomes=outcomes)
        announced = np.array(batch.forecasts)
        known = np.ones(len(batch), np.bool_)  # rows of groups that were met before
        rows = self._rows_of(given)
        counted = batch.all_weights() > 0.0
        begins: list[tuple[int, Hashable]] = []
        for key, own in rows.items():
            if key not in met:
                begin = next((i for i in own if counted[i]), len(batch))
                known[[i for i in own if i <= begin]] = False
                begins.append((begin, key))
        for begin, key in sorted(begins, key=itemgetter(0)):
            if begin < len(batch):
                new[key] = self._new_group(batch.forecasts[begin], len(met) + len(new))
        for key, own in rows.items():
            if (group := met.get(key) or new.get(key)) is not None:
                new[key], announced[own] = self._visited(group, batch.of(own), scored=scored)
        if self._frame is not None:
            announced = np.where(known[:, None], self._frame.leave(announced, given), given)
        return announced, {"_known": self._known.after(new)}

    def _fit(self, batch: Batch) -> None:
        """Learn all rows into copies of the groups, which then take the place of the groups, all at once."""
        if self._by_group:
            _, changes = self._visited_all(batch, scored=False)
            vars(self).update(changes, **self._counted(len(batch)))
            return
        met = dict(self._groups())
        rule = self.groups.fresh(self.space)
        rule.set_state(deepcopy(self._rule.get_state()))
        for i, (b, y) in enumerate(zip(batch.forecasts, batch.outcomes, strict=True)):
            key = rule.key(b)
            group = self._group_after(met.get(key), b, y, batch.weight(i), scored=False)
            met[key] = group if key in met else group._replace(number=len(met))
            rule.learn(b)
        vars(self).update(_known=Entries(met), _rule=rule, _last=(None, None), **self._counted(len(batch)))

    def _group(self, key: Hashable) -> GroupState:
        """Return a group; one not met has no weight."""
        met = self._groups()
        group = met.get(key)
        return self._new_group(np.zeros(self._dim), len(met)) if group is None else group

    def _met(self, key: Hashable, group: GroupState) -> Changes:
        """Return the attributes that differ after a round in a group, which was learned as it stands."""
        return {"_known": self._known.after({key: self._joined(group)})}

    def _groups(self) -> dict[Hashable, GroupState]:
        """Return the groups met, by name."""
        return self._known.read()

    def _check_given(self, group: Group, weight: float) -> None:
        super()._check_given(group, weight)
        if self._make is not None and weight != 1.0:
            raise UnsupportedError("a forecaster in each group knows no weights: its rounds count alike.")

    @property
    def ordered(self) -> bool:
        """True where each group has a forecaster, whose certificate is one of rounds in order; and on a `Cdf`.

        There the errors of a series last, so that copies which forget would be trusted for what late outcomes taught.
        """
        return self._make is not None or self._frame is not None

    def report(self) -> Correction:
        """Return Brier and log scores before and after, the two parts of the Brier score, and what groups could do."""
        with self._lock:
            report = super().report()
            sums = np.array([scored for *_, scored in (group.sums for group in self._groups().values()) if scored[0]])
            if self._frame is not None:
                return replace(report, groups=len(sums))
        (weight, squares, errors), (outcomes, forecasts) = sums[:, :3].T, np.split(sums[:, 3:], 2, axis=1)
        scatter = math.fsum(squares) - math.fsum(l2.square(outcomes) / weight)
        left = math.fsum(errors) - math.fsum(l2.square(outcomes - forecasts) / weight)
        return replace(
            report,
            groups=len(sums),
            group_refinement=max(0.0, scatter) / math.fsum(weight),
            shift_refinement=max(0.0, left) / math.fsum(weight),
        )

    def _check_savable(self) -> None:
        given = self.make.arguments() if isinstance(self.make, Forecaster) else {}
        if any(isinstance(value, np.random.Generator) for value in given.values()):
            raise SnapshotError(
                f"a {type(self.make).__name__} in every group cannot be saved: groups may share one generator.",
                hint="use a forecaster that announces its distribution, and draw from that with x.sample(rng).",
            )

    def _own_state(self) -> Saved:
        self._check_savable()
        groups = self._groups().values()
        dim = self._dim
        return {
            "names": list(self._groups()),
            "first": np.array([group.first for group in groups]).reshape(-1, dim),
            "sums": np.array([group.sums for group in groups]).reshape(-1, 3, 3 + 2 * dim),
            "copies": np.concatenate([np.zeros((0, 1 + dim)), *(group.copies for group in groups)]),
            "trust": np.concatenate([np.zeros(0), *(group.trust for group in groups)]),
            "rule": self._rule.get_state(),
            "inside": {str(group.number): group.forecaster.get_state() for group in groups if group.forecaster},
        }

    def _own_resumed(self, state: Saved, rounds: int) -> Changes:
        self._check_savable()
        check_names("the groups", state, ("names", "first", "sums", "copies", "trust", "rule", "inside"))
        names = checked_names(state["names"])
        check_seen(self._dim, len(names), state["first"], state["sums"], rounds)
        weights = state["sums"][:, 0, 0]
        counts = [forgetting.copies(weight, FIRST) if self.forget else 1 for weight in weights.tolist()]
        check_copies(self._dim, counts, state["copies"], state["trust"])
        check_names("inside", state["inside"], [str(number) for number in range(len(names))] if self._make else [])
        rule = self.groups.fresh(self.space)
        rule.set_state(state["rule"])
        met: dict[Hashable, GroupState] = {}
        end = 0
        for number, (name, first, sums) in enumerate(zip(names, state["first"], state["sums"], strict=True)):
            forecaster = self._make() if self._make else None
            if forecaster is not None:
                forecaster.set_state(state["inside"][str(number)])
                if forecaster.rounds != sums[0, 0]:
                    raise SnapshotError(f"the forecaster of group {number} is not one of {sums[0, 0]:g} rounds.")
            start = end
            end = end + counts[number]
            copies = state["copies"][start - number : end - number - 1]
            trust = state["trust"][start:end]
            met[name] = GroupState(number, first.copy(), sums.copy(), copies.copy(), trust.copy(), forecaster)
        return {"_rule": rule, "_known": Entries(met), "_last": (None, None)}


class PitMap(Recalibrator):
    """Announces `G∘F`: a forecast of a number whose levels are renamed to what they turned out to be.

    `G` is the distribution function of `F(y)`, the probability integral transform of the outcomes so far: of those
    where an outcome fell below the forecast's 10 % quantile, in 17 % of the rounds, that quantile becomes the one of
    17 %. Within a cell of the thresholds `F(y)` is spread evenly, as if drawn. It starts as the identity, which counts
    for 50 rounds, and forgets as the groups of a `Recalibrator` do, with one group for all forecasts. A copy that
    forgets remembers few outcomes, and counts half a one more, at both ends: the next may lie outside of these.

    It gives intervals their coverage, and nothing else: the score may get worse, since it is the same for forecasts of
    every kind. Use it after `tc.LocationScale`, and where the score counts inside `tc.AutoCorrector` or `tc.Gated`.

    Parameters
    ----------
    space
        A `Cdf`.
    scores, tolerance
        As for every `Corrector`.

    Examples
    --------
    Half as unsure as it should be: the 90 % interval becomes wider.

    >>> import treecal as tc
    >>> rng = np.random.default_rng(0)
    >>> f = tc.PitMap(tc.Cdf(0, 100))
    >>> means = rng.uniform(30, 70, size=2000)
    >>> x = f.update_many({"mean": means, "sd": np.full(2000, 5.0)}, rng.normal(means, 10).clip(0, 100))
    >>> low, high = f.predict({"mean": 50, "sd": 5}).interval(0.9)
    >>> bool(high - low > 25)
    True

    References
    ----------
    Kuleshov, Fenner and Ermon, "Accurate Uncertainties for Deep Learning Using Calibrated Regression", 2018.
    """

    name = "pit-map"
    _fields: ClassVar[tuple[str, ...]] = ("space", "scores", "tolerance")

    def __init__(self, space: ConvexSet, *, scores: Scored | None = "binned", tolerance: float = 1e-6) -> None:
        checked_numbers(space, "it renames the levels of distributions of a number")
        super().__init__(space, groups=Together(), scores=scores, tolerance=tolerance)

    def _frame_of(self, space: Cdf) -> Frame:
        return Levels()

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield the only one there is, on distributions of numbers."""
        if isinstance(space, Cdf):
            yield cls(space)

    @classmethod
    def methods(cls) -> dict[str, Callable[..., Corrector]]:
        """Return the class by its name."""
        return {"pit-map": cls}
