"""Mixture: several models at once, trusted by their past success, then corrected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from treecal._elementary import applied, exp, power
from treecal._states import State, check_array, check_count, check_like, check_names, resumed
from treecal._typing import Array, Changes, Integers, Saved
from treecal._validate import positive_number, whole_number
from treecal.correctors._base import Corrector, Scored, checked_part
from treecal.correctors._batch import Batch, Group, one_each
from treecal.correctors._number_kernels import pool_one
from treecal.exceptions import ForecastError, ParameterError, SnapshotError, UnsupportedError
from treecal.forecast import Forecast
from treecal.forecasters import reach
from treecal.geometry import ROUNDING, Cdf, ConvexSet, Simplex, frozen, listed, read_forecast, read_forecast_rows

MOST_KEPT = 256
"""Rows of the history; when it is full, every second one goes."""


class History(NamedTuple):
    """Weights over time."""

    rounds: Integers
    """Numbers of rounds, equally spaced, from 0 on: at most 256 of them."""
    weights: Array
    """The weights after so many rounds, `(len(rounds), models)`."""


@dataclass(eq=False)
class Shares(State):
    """The weights of the models now, and at every `step`-th number of rounds."""

    weights: Array
    step: int
    past: Array

    def after(self, weights: Array, rounds: int) -> Shares:
        """Return the shares after so many rounds."""
        if rounds % self.step:
            return Shares(weights, self.step, self.past)
        past = np.concatenate([self.past, weights[None]])
        return Shares(weights, self.step, past) if len(past) < MOST_KEPT else Shares(weights, 2 * self.step, past[::2])


class Mixture(Corrector):
    """Several models at once: announces a mixture of their forecasts, with weights that follow their success.

    A `Corrector` whose forecast of a round is a list, one forecast for each model: `predict([b1, b2, b3])`, or
    `predict({"icon": b1, "gfs": b2})`. `predict_many`, `update_many` and `fit` take those of `n` rounds, as an array
    `(n, models, dim)` or by name, `{"icon": P1, "gfs": P2}`, each `(n, dim)`.

    A round multiplies a model's weight by the probability it gave the outcome (`Π_i p_i^{y_i}` if the outcome is not
    one class), then every model gets the share `γ` of all weight in equal parts, so that a change of the best model is
    followed (fixed share). With `N` models,
    after `T` rounds, the total log score of the mixture exceeds that of *any sequence of models* with `k` changes by at
    most `ln N + k·ln(N/γ) − (T−1−k)·ln(1−γ)`: `regret(changes=k)`. On other sets the factor is `exp(−‖y − p‖²/(2D²))`,
    `D` the set's ℓ2 diameter, and the bound is `2D²` times as large and holds for the squared score. Both follow from a
    factor that is concave in the forecast, so that the mixture earns at least the mean factor. The rounds of `fit` are
    among the `T`. The bound is for all of them together, as if they had been announced; for those after `fit` alone it
    holds with one more change, since every model then has the weight `γ/N` at least.

    Of distributions of a number (`tc.Cdf`) the factor is `exp(−CRPS/Λ)` and the mixture that of Vovk's aggregating
    algorithm, `Λ` about twice the score that the forecasts expect of themselves; the bound is one of the scores in
    units of `Λ`: see `AutoCorrector`. A mixture of calibrated forecasts is not calibrated but too wide (Ranjan and
    Gneiting 2010): let `corrector=tc.AutoCorrector(space)` follow.

    A corrector may follow, which learns from the mixture; the bound is that of the mixture. In `report` "before" is the
    plain average of the models. Costs `O(N·dim)` a round, and a round of the corrector.

    Parameters
    ----------
    space
        The set outcomes and forecasts lie in.
    models
        The models' names, or how many there are.
    corrector
        Applied to the mixture, a copy of it; by default none.
    share
        The share `γ` of the weight that is dealt out in each round, more than 0 and at most ½. About `k/T` is best.
    scores, tolerance
        As for every `Corrector`; the tolerance is by default that of the corrector, if there is one.

    Examples
    --------
    The first model knows the outcome for 200 rounds, then the second does.

    >>> import treecal as tc
    >>> f = tc.Mixture(tc.Simplex(2), ["icon", "gfs"])
    >>> for t in range(400):
    ...     good, bad = [0.9, 0.1], [0.5, 0.5]
    ...     x = f.predict([good, bad] if t < 200 else [bad, good])
    ...     f.update([1, 0])
    >>> {name: round(weight, 3) for name, weight in f.weights.items()}
    {'icon': 0.002, 'gfs': 0.998}
    >>> rounds, weights = f.history
    >>> rounds[50].item(), weights[50].round(3)
    (100, array([0.998, 0.002]))

    References
    ----------
    Herbster and Warmuth, "Tracking the Best Expert", 1998.
    """

    _several = True
    _fields = ("space", "models", "corrector", "share", "scores", "tolerance")

    def __init__(
        self,
        space: ConvexSet,
        models: Sequence[str] | int,
        *,
        corrector: Corrector | None = None,
        share: float = 0.002,
        scores: Scored | None = "binned",
        tolerance: float | None = None,
    ) -> None:
        part = None if corrector is None else checked_part("corrector", corrector, on := f"a Corrector on {space!r}")
        if tolerance is None:
            tolerance = ROUNDING if part is None else part.tolerance
        super().__init__(space, scores=scores, tolerance=tolerance)
        self.models = _names(models)
        self.share = positive_number("share", share)
        if self.share > 0.5:
            raise ParameterError.expected("share", share, "more than 0 and at most 0.5")
        if part is not None and part.space != space:
            raise ParameterError.expected("corrector", corrector, on)
        self._scale = 0.0 if isinstance(space, Simplex | Cdf) else 2 * reach(space, "l2") ** 2
        self._widths = np.array(space.widths) if isinstance(space, Cdf) else None
        equal = np.full(len(self.models), 1 / len(self.models))
        last = None if part is None else part._unscored()
        self._now: tuple[Shares, Corrector | None] = Shares(equal, 1, equal[None].copy()), last

    @property
    def corrector(self) -> Corrector | None:
        """What is applied to the mixture, as it is now."""
        return self._now[1]

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each model in the coming round, by name."""
        return dict(zip(self.models, self._now[0].weights.tolist(), strict=True))

    @property
    def history(self) -> History:
        """The weights over time, in at most 256 rows: the step doubles as rounds go by."""
        now = self._now[0]
        return History(np.arange(len(now.past), dtype=np.int64) * now.step, now.past.copy())

    @property
    def ordered(self) -> bool:
        """Whether the corrector needs its outcomes in order."""
        return self.corrector is not None and self.corrector.ordered

    def regret(self, *, changes: int = 0) -> float:
        """Return the most by which the total score can exceed that of the best sequence of models, so far.

        It is the log score on a simplex and the squared score elsewhere, of the mixture before any corrector, for
        rounds of weight 1 or less; those of `fit` are among them.

        Parameters
        ----------
        changes
            How often the sequence changes from one model to another.

        Examples
        --------
        >>> import treecal as tc
        >>> f = tc.Mixture(tc.Simplex(2), 3)
        >>> x = f.update_many([[[1, 0], [0, 1], [0.5, 0.5]]] * 1000, [[1, 0]] * 1000)
        >>> round(f.regret(), 1), round(f.regret(changes=2), 1)
        (3.1, 17.7)
        """
        changes = whole_number("changes", changes, least=0)
        models = len(self.models)
        kept = max(self.rounds - 1 - changes, 0)
        bound = math.log(models) + changes * math.log(models / self.share) - kept * math.log1p(-self.share)
        return self._scale * bound if self._scale else bound

    def _mixed(self, forecasts: Array, shares: Shares | None = None) -> Array:
        weights = (self._now[0] if shares is None else shares).weights
        return _mean(weights, forecasts) if self._widths is None else self._pooled(weights, forecasts)[0]

    def _pooled(self, weights: Array, forecasts: Array) -> tuple[Array, float]:
        """Return the mixture of distributions of a number, and the unit in which their scores count."""
        assert self._widths is not None
        mean = np.empty(self.space.dim)
        scale = pool_one.now(np.array(forecasts), weights, self._widths, mean)
        return mean, scale

    def _announce(self, forecast: Array, *, group: Group = None) -> Forecast:
        corrector = self.corrector
        mixed = self._mixed(forecast)
        if corrector is not None:
            return corrector._announced(mixed, group)
        self._check_given(group, 1.0)
        return self._point(mixed)

    def _check_given(self, group: Group, weight: float) -> None:
        if self.corrector is not None:
            self.corrector._check_given(group, weight)
        elif group is not None:
            raise UnsupportedError("a Mixture without a corrector knows no groups.", hint="corrector=tc.ByGroup(...).")

    def _after(self, forecast: Array, outcome: Array, *, group: Group = None, weight: float = 1.0) -> Changes:
        shares, corrector = self._now
        if corrector is not None:
            corrector = corrector._learned(self._mixed(forecast), outcome, group, weight)
        return {"_now": (self._next(shares, forecast, outcome, weight, self._rounds + 1), corrector)}

    def _passed(self) -> Changes:
        shares, corrector = self._now
        return {"_now": (shares.after(shares.weights, self._rounds + 1), corrector)}

    def _fit(self, batch: Batch) -> None:
        """Learn the weights in order, then fit the corrector to the mixtures."""
        shares, corrector = self._now
        mixed = np.empty((len(batch), self.space.dim))
        for i, (each, y) in enumerate(zip(batch.forecasts, batch.outcomes, strict=True)):
            mixed[i] = self._mixed(each, shares)
            shares = self._next(shares, each, y, batch.weight(i), self._rounds + i + 1)
        if corrector is not None:
            corrector = corrector._fitted_to(replace(batch, forecasts=mixed))
        vars(self).update(_now=(shares, corrector), **self._counted(len(batch)))

    def _next(self, shares: Shares, forecasts: Array, outcome: Array, weight: float, rounds: int) -> Shares:
        """Return the shares after round `rounds`."""
        weights = shares.weights * _powers(self._factors(forecasts, outcome, shares), weight)
        total = weights.sum()
        # Where all models exclude the outcome, none is worse than another.
        weights = weights / total if total > 0 else shares.weights
        weights = (1 - self.share) * weights + self.share / len(weights)
        return shares.after(weights / weights.sum(), rounds)

    def _factors(self, forecasts: Array, outcome: Array, shares: Shares) -> Array:
        """Return how well each model did, relative to the best."""
        if isinstance(self.space, Simplex):
            met = outcome > 0
            factors = np.ones(len(forecasts))
            for p, y in zip(np.maximum(forecasts[:, met], 0.0).T, outcome[met].tolist(), strict=True):
                factors *= _powers(p, y)
            best = factors.max()
            return np.asarray(factors / best if best > 0 else factors)
        squares = (outcome - forecasts) ** 2
        if self._widths is not None:
            scale = self._pooled(shares.weights, forecasts)[1]
            losses = (squares * self._widths).sum(axis=1) / (scale or 1.0)
            return applied(exp, losses.min() - losses)
        losses = squares.sum(axis=1) / (self._scale or 1.0)
        return applied(exp, losses.min() - losses)

    def _scored(self, forecast: Array) -> Array:
        return np.asarray(forecast.mean(axis=0))

    def _read(self, forecast: Any) -> Array:
        """Return the models' forecasts of a round as read-only rows, `(models, dim)`, or raise."""
        return frozen(self._one_each_model(forecast, self._rounds + 1))

    def _read_many(self, forecasts: Any) -> Array:
        """Return the models' forecasts of rounds, `(n, models, dim)`, or raise."""
        if isinstance(forecasts, Mapping):
            if forecasts.keys() != set(self.models):
                problem, hint = self._unlike(forecasts)
                raise ForecastError(f"forecasts from round {self._rounds + 1} on have {problem}.", hint=hint)
            models = [self._of_model(i, forecasts[name]) for i, name in enumerate(self.models)]
            for name, own in zip(self.models, models, strict=True):
                one_each(f"forecasts of {name}", own, len(models[0]))
            return frozen(np.stack(models, axis=1))
        raw = np.asarray(forecasts) if isinstance(forecasts, np.ndarray) else None
        if raw is not None and raw.ndim == 3 and raw.shape[1] == len(self.models):
            return frozen(np.stack([self._of_model(i, raw[:, i]) for i in range(len(self.models))], axis=1))
        if not isinstance(forecasts, Iterable) or isinstance(forecasts, str | bytes):
            n = f"(n, {len(self.models)}, {self.space.dim})"
            raise ForecastError(f"forecasts from round {self._rounds + 1} on are {forecasts!r}, expected shape {n}.")
        rows = [self._one_each_model(given, number) for number, given in enumerate(forecasts, self._rounds + 1)]
        return frozen(np.array(rows).reshape(-1, len(self.models), self.space.dim))

    def _of_model(self, place: int, forecasts: Any) -> Array:
        """Return the forecasts of one model, `(n, dim)`, or raise."""
        try:
            return read_forecast_rows(self.space, forecasts, before=self._rounds, tolerance=self.tolerance)
        except ForecastError as error:
            raise self._of(error, place) from None

    def _of(self, error: ForecastError, place: int) -> ForecastError:
        """Return an error that says whose forecast it was."""
        name = self.models[place]
        if not error.round:
            return ForecastError(f"of {name}: {error.args[0]}", hint=error.hint)
        return ForecastError.at(error.round, f"of {name} {error.problem}", hint=error.hint)

    def _unlike(self, given: Mapping[Any, Any]) -> tuple[str, str]:
        """Return which models are missing from forecasts by name, and which are none of the mixture; and a hint."""
        missing = [repr(name) for name in self.models if name not in given]
        extra = [repr(name) for name in given if name not in self.models]
        found = [f"no forecast of {listed(missing)}"] * bool(missing) + [f"one of {listed(extra)}"] * bool(extra)
        return ", and ".join(found), f"the models are {listed([repr(name) for name in self.models])}."

    def _one_each_model(self, given: Any, number: int) -> Array:
        if isinstance(given, Mapping):
            if given.keys() != set(self.models):
                problem, hint = self._unlike(given)
                raise ForecastError.at(number, f"has {problem}.", hint=hint)
            given = [given[name] for name in self.models]
        if isinstance(given, np.ndarray) and given.ndim:
            given = list(given)  # rows
        if not isinstance(given, list | tuple) or len(given) != len(self.models):
            kind = f"has {len(given)} entries" if isinstance(given, list | tuple) else f"is a {type(given).__name__}"
            expected = f"expected {len(self.models)} points, one for each of {', '.join(self.models)}"
            raise ForecastError.at(number, f"{kind}, {expected}.")
        found = np.empty((len(self.models), self.space.dim))
        for i, b in enumerate(given):
            try:
                found[i] = read_forecast(self.space, b, number, self.tolerance)
            except ForecastError as error:
                raise self._of(error, i) from None
        return found

    def _own_state(self) -> Saved:
        shares, corrector = self._now
        last = {} if corrector is None else {"corrector": corrector._past()}
        return {"shares": dict(vars(shares))} | last

    def _own_resumed(self, state: Saved, rounds: int) -> Changes:
        shares, corrector = self._now
        check_names("the mixture", state, ["shares", *["corrector"] * (corrector is not None)])
        check_like(dict(vars(shares)), state["shares"], "the shares")
        shares = Shares(**deepcopy(state["shares"]))
        check_count("the history's step", shares.step)
        check_array("the history", shares.past, (rounds // max(shares.step, 1) + 1, len(self.models)))
        check_array("the weights", shares.weights, (len(self.models),))
        if shares.step < 1 or len(shares.past) >= MOST_KEPT or (shares.weights <= 0).any():
            raise SnapshotError("the history's step, or a weight, is not one of a mixture.")
        return {"_now": (shares, None if corrector is None else resumed(corrector, state["corrector"]))}


def _names(models: Any) -> tuple[str, ...]:
    """Return the models' names, all different."""
    if isinstance(models, int | np.integer) and not isinstance(models, bool):
        models = [f"model {i}" for i in range(1, whole_number("models", models, least=1) + 1)]
    if isinstance(models, str) or not isinstance(models, Sequence):
        raise ParameterError.expected("models", models, "their names, or how many there are")
    names = tuple(models)
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ParameterError.expected("models", models, "one name or more, all different")
    return names


def _mean(weights: Array, points: Array) -> Array:
    """Return the mean of points by weight, added up in order."""
    return np.asarray(np.add.accumulate(weights[:, None] * points, axis=0)[-1])


def _powers(numbers: Array, exponent: float) -> Array:
    """Return a few numbers from 0 to 1, each to a power."""
    return numbers if exponent == 1.0 else np.array([power(number, exponent) for number in numbers.tolist()])
