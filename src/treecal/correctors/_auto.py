"""AutoCorrector: the corrector that needs no choice, and does no harm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from treecal._elementary import applied, exp, log_losses
from treecal._states import check_array, check_count, check_like, check_names, check_number, resumed
from treecal._typing import Array, Changes, Saved
from treecal.correctors import _forgetting as forgetting
from treecal.correctors._base import Corrector, Scored
from treecal.correctors._batch import Batch
from treecal.correctors._isotonic import IsotonicCalibration
from treecal.correctors._location_scale import LocationScale, extents_of, grid_of
from treecal.correctors._mixing import SHARE, Mixing, Weights, mix, play, stack
from treecal.correctors._number_rounds import Asked, Parts, Rounds
from treecal.correctors._recalibrator import PitMap, Recalibrator
from treecal.correctors._scaling_kinds import MatrixScaling, TemperatureScaling, VectorScaling
from treecal.exceptions import ParameterError, SnapshotError
from treecal.forecast import Forecast
from treecal.geometry import Cdf, ConvexSet, Simplex

MODEL = 0.9
"""The weight of the model before the first round."""
RAREST = 1e-6
"""The least probability that a log score counts."""
FULL = 4
"""Classes up to which vector scaling has its full curvature."""
FEW = 7
"""Classes up to which there is matrix scaling."""


class Known(NamedTuple):
    """What is known of a round before its outcome."""

    given: Array  # (1 + parts, dim): the forecasts to mix, the model's first
    mean: Array
    asked: Asked | None


class AutoCorrector(Corrector):
    """The corrector that needs no choice: announces a mixture of the model and of corrections, and does no harm.

    Mixed are the model's forecast as it is, vector and temperature scaling, isotonic calibration, the means of groups
    of similar forecasts and, for 3 to 7 classes, matrix scaling. Scalings and means forget where that pays.

    **Algorithm** (Vovk's aggregating algorithm for the Brier score; Vovk and Zhdanov 2009). The model begins with the
    weight 0.9, and the corrections share the rest. A round multiplies each weight by `exp(−‖y − p_i‖²)`; then a share
    `γ_t = min(0.002, 1/t)` of all weight is dealt out as at the start. What would be left of the weights if class `k`
    were the outcome is `exp(−G_k) = Σ_i w_i·exp(−‖e_k − p_i‖²)`. The forecast is the point of the simplex with
    `‖e_k − p‖² <= G_k` for every class: `p_k = max(0, s − G_k)/2`, with the `s` for which they sum to 1. It exists
    because the Brier score is mixable, and costs no more than the mean of the forecasts.

    Of distributions of a number (`tc.Cdf`) the same is done with the CRPS. Mixed are the model, `LocationScale`,
    `Recalibrator`, and `Recalibrator` and `PitMap` after `LocationScale`. At threshold `k`, where the forecasts lie
    between `a` and `b`, the squared loss is mixable at the rate `η_k = min_{a<=p<=b} 1/(2p(1 − p))`; so with the widths
    `w_k` of the cells and `Λ = Σ_k w_k/η_k`, about twice the score that the forecasts expect of themselves, there is by
    Hölder's inequality a forecast with `CRPS <= −Λ·ln Σ_i w_i·exp(−CRPS_i/Λ)`. Where it falls, isotonic regression
    brings it nearer to every outcome. A mixture is too wide, so its levels are corrected in turn: announced is a second
    such mixture, of the model, the first mixture, and a `PitMap` of that, of weights 0.1, 0.1 and 0.8 at first. The
    guarantee is one of the total of `CRPS/Λ`; `excess()` is in this unit, and 2.3 at first. Rounds are in order:
    `tc.Late` deals those that overlap to copies.

    **Guarantee**, for any model and outcomes. `‖y − p‖² <= −ln Σ_i w_i·exp(−‖y − p_i‖²)` holds at the vertices, and so
    for every point `y`: apart from `‖y‖²`, which both sides have, the left is linear in `y` and the right concave
    (Hölder). The sum over rounds telescopes: with sample weights of 1 or less, the total Brier score exceeds that of
    the model by at most `excess()`,

        `ln(1/0.9) + Σ_t −ln(1 − γ_t/10)`,

    which is 0.11 at first, 0.4 after 4,000 rounds and 0.8 after 200,000: in total, and not per round. That of any
    correction it exceeds by at most `ln(10·N) + Σ_t −ln(1 − γ_t)`, with `N` corrections.

    So that no class is excluded which some forecast allows, a forecast that gives a class less than a hundredth of what
    the mean by weight gives it is moved towards the mean, as far as stays within every `G_k`, and by a hundredth at
    least. What that costs where forecasts that are sure contradict each other, at most 0.02, is part of `excess()`.

    `fit` fits the corrections to all of a log, whatever the order of its rows, and weighs them, and the model like any
    of them, by what they make of half of it after fits to the other one, in turns; of a log in order of time
    (`in_order=True`), of the last quarter. Weights are those whose mean of the forecasts has the best log score there
    (stacking), with one more row, of which the model has half; of numbers they fall with the CRPS. The guarantee is
    then one of the rounds after it, with these weights in place of 0.9. A round costs those of its parts.

    Parameters
    ----------
    space
        A simplex, or a `Cdf`.
    scores, tolerance
        As for every `Corrector`.

    Examples
    --------
    A model that is right for 1,000 rounds, then three times as sure as it should be.

    >>> import numpy as np
    >>> import treecal as tc
    >>> rng = np.random.default_rng(0)
    >>> f = tc.AutoCorrector(tc.Simplex(2))
    >>> z = rng.normal(size=3000)
    >>> rain = (rng.random(3000) < 1 / (1 + np.exp(-z))).astype(int)
    >>> p = 1 / (1 + np.exp(-np.where(np.arange(3000) < 1000, z, 3 * z)))
    >>> P = np.column_stack([1 - p, p])
    >>> for rows in (slice(1000), slice(1000, 3000)):
    ...     announced = f.update_many(P[rows], rain[rows])
    ...     before, after = (((np.eye(2)[rain[rows]] - x) ** 2).sum(axis=1).mean() for x in (P[rows], announced))
    ...     print(f"Brier score {before:.3f} → {after:.3f}, weight of the model {f.weights['model']:.2f}")
    Brier score 0.413 → 0.413, weight of the model 0.92
    Brier score 0.486 → 0.423, weight of the model 0.01

    References
    ----------
    Vovk, "Aggregating strategies", 1990.
    Vovk and Zhdanov, "Prediction with expert advice for the Brier game", 2009.
    Herbster and Warmuth, "Tracking the Best Expert", 1998.
    Yao, Vehtari, Simpson and Gelman, "Using stacking to average Bayesian predictive distributions", 2018.
    """

    name: ClassVar[str | None] = "auto"

    def __init__(self, space: ConvexSet, *, scores: Scored | None = "binned", tolerance: float = 1e-6) -> None:
        if not isinstance(space, Simplex | Cdf):
            hint = "Recalibrator(space, groups=Cells(), make='shift')."
            raise ParameterError.expected("space", space, "a Simplex or Cdf, because it mixes probabilities", hint=hint)
        super().__init__(space, scores=scores, tolerance=tolerance)
        parts: list[Corrector]
        widths = np.array(space.widths) if isinstance(space, Cdf) else np.ones(space.dim)
        if isinstance(space, Cdf):
            parts, self._sources, self._start = self._of_numbers(space)
        else:
            parts = self._of_classes(space)
            self._sources = [0] * len(parts)  # what each corrects: the model, or the part of this number
            self._start = np.append(MODEL, np.full(len(parts), (1 - MODEL) / len(parts)))
        self._rule = Mixing(isinstance(space, Cdf), widths, self._start)
        own = float(self._start[0])
        self._now: tuple[tuple[Corrector, ...], Weights] = tuple(parts), Weights(self._start.copy(), own, 0, 0.0)
        self._asked: tuple[object, Array | None, Known] = None, None, Known(self._start, self._start, None)
        self._together: Rounds | None = None  # how a round of numbers is played
        if isinstance(parts[0], Pool):
            assert isinstance(space, Cdf)
            self._together = Rounds(space, self._all_parts())

    def _of_numbers(self, space: Cdf) -> tuple[list[Corrector], list[int], Array]:
        """Return the parts, what each corrects, and the weights at the start."""
        return [Pool(space, scores=None), PitMap(space, scores=None)], [0, 1], np.array([0.1, 0.1, 0.8])

    @staticmethod
    def _of_classes(space: Simplex) -> list[Corrector]:
        parts: list[Corrector] = [
            VectorScaling(space, curvature="full" if space.dim <= FULL else "by class", scores=None),
            TemperatureScaling(space, scores=None),
            IsotonicCalibration(space, scores=None),
            Recalibrator(space, scores=None),
        ]
        if 3 <= space.dim <= FEW:
            parts.append(MatrixScaling(space, scores=None))
        return parts

    @classmethod
    def examples(cls, space: ConvexSet) -> Iterator[Corrector]:
        """Yield the only one there is."""
        if isinstance(space, Simplex | Cdf):
            yield cls(space)

    @property
    def weights(self) -> dict[str, float]:
        """The weight of the model and of each correction in the coming round, by name."""
        parts, now = self._now
        if isinstance(parts[0], Pool):  # of the mixture that the last part corrects
            inner = parts[0].weights
            found = {name: float(now.weights[1]) * weight for name, weight in inner.items()}
            found["model"] += float(now.weights[0])
            return found | {"PitMap of these": float(now.weights[2])}
        names = ["model"]
        for part, source in zip(parts, self._sources, strict=True):
            names.append(type(part).__name__ + f" of {names[source]}" * (source > 0))
        return dict(zip(names, now.weights.tolist(), strict=True))

    @property
    def ordered(self) -> bool:
        """Whether its parts are for rounds in order: on a `Cdf`."""
        return any(part.ordered for part in self._now[0])

    def excess(self) -> float:
        """Return the most by which the total Brier score can exceed that of the model, since the first round or `fit`.

        On a `Cdf`, the total of the CRPS in units of `Λ`.

        Examples
        --------
        >>> import treecal as tc
        >>> round(tc.AutoCorrector(tc.Simplex(3)).excess(), 3)
        0.105
        """
        now = self._now[1]
        shares = np.minimum(SHARE, 1 / np.arange(1, min(now.seen, 10**6) + 1))
        others = 1 - float(self._start[0])
        lost = -math.fsum(np.log1p(-shares * others))
        if now.seen > 10**6:  # the rest of a sum of decreasing terms
            lost += others * math.log(now.seen / 10**6) / (1 - 1e-6)
        return -math.log(now.model) + lost + now.lifted

    def _pool(self) -> Pool:
        """Return the first part, of numbers."""
        pool = self._now[0][0]
        assert isinstance(pool, Pool)
        return pool

    def _all_parts(self) -> Parts:
        """Return those of the pool, and what maps its levels."""
        return (*self._pool()._now[0], self._now[0][1])  # type: ignore[return-value]

    def _known(self, forecast: Array) -> Known:
        """Return what is known of a round before its outcome: found once for both its halves."""
        now, b, known = self._asked
        if now is not self._now or b is not forecast:
            known = self._found(forecast)
            self._asked = self._now, forecast, known
        return known

    def _found(self, forecast: Array) -> Known:
        parts, now = self._now
        if self._together is not None:
            asked = self._together.ask(self._all_parts(), forecast, (self._pool()._now[1].weights, now.weights))
            return Known(asked.outer, asked.mean, asked)
        given = [forecast]
        for part, source in zip(parts, self._sources, strict=True):
            given.append(part._mean(given[source]))
        points = np.array(given)
        mean = np.empty(self.space.dim)
        mix.now(points[None], now.weights, self._rule, mean[None])
        return Known(points, mean, None)

    def _announce(self, forecast: Array) -> Forecast:
        return self._point(self._known(forecast).mean.copy())

    def _given_by(self, parts: Sequence[Corrector], forecasts: Array) -> Array:
        """Return the forecasts to mix of many rows, the model's first, `(n, 1 + parts, dim)`."""
        given = [forecasts]
        for part, source in zip(parts, self._sources, strict=True):
            given.append(part._announce_many(given[source], None))
        return np.stack(given, axis=1)

    def _announce_many(self, forecasts: Array, groups: Any) -> Array:
        parts, now = self._now
        means = np.empty(forecasts.shape)
        given = self._given_by(parts, forecasts)
        mix.for_rows(len(means))(given, now.weights, self._rule, means)
        return means

    def _after(self, forecast: Array, outcome: Array, *, weight: float = 1.0) -> Changes:
        parts, now = self._now
        given, _, asked = self._known(forecast)
        if self._together is not None and asked is not None and weight <= 1.0:  # heavier ones take several steps
            return self._together_after(self._together, asked, outcome, weight)
        sources = [forecast, *given[1:]]
        pairs = zip(parts, self._sources, strict=True)
        learned = tuple(part._with(part._after(sources[source], outcome, weight=weight), 1) for part, source in pairs)
        after = now.after()
        one = given[None], np.array(outcome)[None], np.array([weight])
        after.lifted += play.now(*one, after.weights, now.seen, self._rule, np.empty((1, self.space.dim)))
        return {"_now": (learned, after)}

    def _together_after(self, together: Rounds, asked: Asked, outcome: Array, weight: float) -> Changes:
        """Return the same, of numbers, in one compiled call."""
        pool = self._pool()
        both = (pool._now[1].after(), self._now[1].after())
        rules = (pool._rule, self._rule)
        given = together.learned(self._all_parts(), asked, outcome, weight, both, rules)
        parts = (pool._with({"_now": (given[:4], both[0])}, 1), given[4])
        return {"_now": (parts, both[1])}

    def _weighed(self, now: Weights, given: Array, batch: Batch) -> tuple[Array, Weights]:
        """Return what is announced in rounds in order, given what the parts announce; and the weights after them."""
        means = np.empty(batch.forecasts.shape)
        weights = now.weights.copy()
        rows = np.array(batch.outcomes), np.array(batch.all_weights())
        lifted = play.for_rows(len(means))(given, *rows, weights, now.seen, self._rule, means)
        return means, replace(now, weights=weights, seen=now.seen + len(batch.counted()), lifted=now.lifted + lifted)

    def _played(self, batch: Batch) -> tuple[Array, Changes] | None:
        parts, now = self._now
        own = replace(batch, inner=True)
        rounds = len(batch.counted())
        given = [np.array(batch.forecasts)]
        learned = []
        for part, source in zip(parts, self._sources, strict=True):
            found = part._played(replace(own, forecasts=given[source]))
            if found is None:
                return None
            given.append(found[0])
            learned.append(part._with(found[1], rounds))
        means, now = self._weighed(now, np.stack(given, axis=1), batch)
        return means, {"_now": (tuple(learned), now)}

    def _fit(self, batch: Batch) -> None:
        """Fit the parts to all of the log, and weigh them by what they make of rows that they were not fitted to."""
        if not len(batch):
            return
        parts, _ = self._now
        rounds = len(batch)
        if not batch.in_order:
            batch = _ranked(batch)
        prior = np.append(0.5, np.full(len(parts), 0.5 / len(parts)))  # a log is to be corrected: less doubt than 0.9
        found, counts = [np.empty((len(prior), 0))], [np.empty(0)]
        fitted = parts
        for own, held in _folds(batch):
            fitted = self._fitted_parts(own, fitted)
            given = self._given_by(fitted, held.forecasts)
            costs = np.empty((len(prior), len(held)))
            for i, points in enumerate(given.swapaxes(0, 1)):
                if isinstance(self.space, Cdf):
                    units = 2 * extents_of(held.forecasts, grid_of(self.space))[:, 1]
                    costs[i] = (self.space.widths * (held.outcomes - points) ** 2).sum(axis=1) / units
                else:
                    log_losses.for_rows(len(held))(points, held.outcomes, RAREST, costs[i])
            found.append(costs)
            counts.append(held.all_weights())
        costs, amounts = np.concatenate(found, axis=1), np.concatenate(counts)
        if isinstance(self.space, Cdf):
            losses = np.add.accumulate(amounts * costs, axis=1)[:, -1:].sum(axis=1)
            weights = prior * applied(exp, losses.min() - losses)
        else:
            weights = stack.for_rows(len(amounts))(costs, amounts, prior)
        weights = (1 - SHARE) * (weights / weights.sum()) + SHARE * self._start
        fitted = self._fitted_parts(batch if batch.in_order else batch.spread(), fitted)
        vars(self).update(_now=(fitted, Weights(weights, float(weights[0]), 0, 0.0)), **self._counted(rounds))

    def _fitted_parts(self, batch: Batch, near: tuple[Corrector, ...]) -> tuple[Corrector, ...]:
        """Return the parts after a log, each fitted to what those before it, now fitted, make of it.

        Others, fitted to a log like it, say where to search.
        """
        given = [batch.forecasts]
        fitted = []
        for part, like, source in zip(self._now[0], near, self._sources, strict=True):
            fitted.append(part._fitted_to(replace(batch, forecasts=given[source]), like))
            given.append(fitted[-1]._announce_many(given[source], None) if any(self._sources) else batch.forecasts)
        return tuple(fitted)

    def _own_state(self) -> Saved:
        parts, now = self._now
        return {"weighed": dict(vars(now)), "parts": {str(i): part._past() for i, part in enumerate(parts)}}

    def _own_resumed(self, state: Saved, rounds: int) -> Changes:
        check_names("the mixture", state, ("weighed", "parts"))
        check_like(dict(vars(self._now[1])), state["weighed"], "the weights")
        now = Weights(**deepcopy(state["weighed"]))
        check_array("the weights", now.weights, self._start.shape)
        check_count("the rounds that were weighed", now.seen, most=rounds)
        check_number("the model's first weight", now.model, least=SHARE * float(self._start[0]) / 2, most=1.0)
        if (now.weights <= 0).any():
            raise SnapshotError("the weights are not more than 0.")
        parts = self._now[0]
        check_names("the parts", state["parts"], [str(i) for i in range(len(parts))])
        return {"_now": (tuple(resumed(part, state["parts"][str(i)]) for i, part in enumerate(parts)), now)}


class Pool(AutoCorrector):
    """The mixture of corrections of a number, before its levels are corrected: a part of `AutoCorrector`."""

    name = None

    def _of_numbers(self, space: Cdf) -> tuple[list[Corrector], list[int], Array]:
        parts: list[Corrector] = [LocationScale(space, scores=None)]
        parts += [Recalibrator(space, scores=None), Recalibrator(space, scores=None), PitMap(space, scores=None)]
        return parts, [0, 0, 1, 1], np.append(MODEL, np.full(4, (1 - MODEL) / 4))


def _folds(batch: Batch) -> list[tuple[Batch, Batch]]:
    """Return rows to fit to and rows to score: the last quarter of a log in order, or both halves of a ranked one."""
    if batch.in_order:
        first = len(batch) - len(batch) // 4
        return [(batch.of(slice(first)), batch.of(slice(first, None)))] if first < len(batch) else []
    halves = [batch.of(slice(start, None, 2)).spread() for start in (0, 1)]
    return [(halves[0], halves[1]), (halves[1], halves[0])] if len(batch) > 1 else []


def _ranked(batch: Batch) -> Batch:
    """Return a log without an order, sorted; equal rows are one of their weight, there as often as it counts."""
    dim = batch.forecasts.shape[1]
    found, places = np.unique(np.hstack([batch.forecasts, batch.outcomes]), axis=0, return_inverse=True)
    weights = np.zeros(len(found))
    np.add.at(weights, places.ravel(), batch.all_weights())
    merged = replace(batch, forecasts=found[:, :dim], outcomes=found[:, dim:], weights=weights)
    rows, weights = forgetting.steps_of(merged)
    return replace(merged.of(rows), weights=weights)
