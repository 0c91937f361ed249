"""scikit-learn: a regressor whose forecasts are corrected distributions of a number; CRPS and coverage as scores."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, check_array, check_consistent_length, column_or_1d, get_tags, indexable
from sklearn.utils.validation import check_is_fitted

from treecal._typing import Array
from treecal.correctors import Corrector
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.geometry import Cdf, Distribution, quantile_levels
from treecal.integrations._common import cdf_around, new_corrector
from treecal.measures import crps, read_laws

Numbers = dict[Any, Array]
"""Forecasts as columns: quantiles by level, mean and sd, or members."""


class Wrapper(MetaEstimatorMixin):  # type: ignore[misc] # untyped
    """What is known of an estimator that wraps another: rows are passed to the model unchanged."""

    estimator: Any

    @property
    def _model(self) -> Any:
        return getattr(self, "estimator_", self.estimator)

    @property
    def n_features_in_(self) -> int:
        """The model's number of features."""
        return int(self._model.n_features_in_)

    @property
    def feature_names_in_(self) -> Any:
        """The model's names of features."""
        return self._model.feature_names_in_

    def _updates(self) -> bool:
        return hasattr(self.estimator, "partial_fit") and not isinstance(self.estimator, FrozenEstimator)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


class QuantileModels(Wrapper, RegressorMixin, BaseEstimator):  # type: ignore[misc] # untyped
    """A model for each level, as quantile regression needs; `predict` gives a column for each.

    Parameters
    ----------
    estimator
        A regressor of one quantile: with a parameter `quantile`, or `alpha`, which is set to each level.
    levels
        The levels.

    Examples
    --------
    >>> from sklearn.linear_model import QuantileRegressor
    >>> X = np.arange(100.0)[:, None]
    >>> QuantileModels(QuantileRegressor(alpha=0), levels=(0.1, 0.5, 0.9)).fit(X, X[:, 0] % 10).predict(X[:1]).shape
    (1, 3)
    """

    def __init__(self, estimator: Any, levels: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)) -> None:
        self.estimator = estimator
        self.levels = levels

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit a copy of the model for each level."""
        known = self.estimator.get_params(deep=False)
        name = "quantile" if "quantile" in known else "alpha"
        if name not in known:
            hint = "such as QuantileRegressor, or GradientBoostingRegressor(loss='quantile')."
            raise ParameterError.expected("estimator", self.estimator, "a regressor of one quantile", hint=hint)
        level_of = {given: level for level, given in quantile_levels(self.levels).items()}
        self.levels_ = tuple(level_of[given] for given in self.levels)
        self.estimators_ = [clone(self.estimator).set_params(**{name: level}).fit(X, y) for level in self.levels_]
        return self

    def predict(self, X: Any) -> Array:
        """Return the quantiles of each row, `(n, levels)`; those that cross are sorted."""
        check_is_fitted(self)
        found = np.sort(np.column_stack([each.predict(X) for each in self.estimators_]), axis=1)
        return np.asarray(found[:, np.argsort(np.argsort(self.levels_))])


class RecalibratedRegressor(Wrapper, RegressorMixin, BaseEstimator):  # type: ignore[misc] # untyped
    """A regressor with distributions for forecasts, which are corrected, and kept calibrated as outcomes arrive.

    The model is any regressor. Its forecast of a row is the distribution that it gives: the quantiles of `levels`,
    where these are given; mean and standard deviation, if `predict` takes `return_std`; otherwise a point, which is
    taken as the mean of a normal distribution as wide as the model's errors are when the corrector starts.

    - `partial_fit(X, y)` is for a model in use: the corrector learns, row by row, from what the model says of rows that
      it has not learned from, and `y`. Then a model with `partial_fit` learns too, on a copy; any other, and one in a
      `FrozenEstimator`, stays as it is. A model that is not fitted is fitted on the first batch, from which the
      corrector then learns nothing.
    - `fit(X, y)` starts over. The corrector learns from forecasts of cross-validated copies, the model from all rows.

    Parameters
    ----------
    estimator
        A regressor; fitted, if `partial_fit` is to resume from there.
    levels
        Of a model that predicts quantiles, in a column each: their levels. To a `predict` that takes `quantiles` they
        are passed. `QuantileModels` makes such a model of one that has one quantile.
    make
        Makes the corrector from a `treecal.Cdf`: a class such as `treecal.LocationScale`, or a function. By default
        `treecal.AutoCorrector`.
    low, high
        What the number can be at the least and at the most; numbers beyond count as the end. By default an interval
        twice as wide as that of the first numbers there are.
    cv
        Folds for `fit`, as `sklearn.model_selection.check_cv` takes them.

    Attributes
    ----------
    estimator_
        The model.
    corrector_
        The corrector, trained.
    space_
        The set of distributions.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1500, 1))
    >>> y = X[:, 0] + (1 + (np.arange(1500) > 500)) * rng.normal(size=1500)  # twice as noisy since the 500th row
    >>> online = RecalibratedRegressor(LinearRegression().fit(X[:200], y[:200]), low=-10, high=10)
    >>> for rows in np.split(np.arange(200, 1300), 11):
    ...     online = online.partial_fit(X[rows], y[rows])
    >>> low, high = online.predict_interval(X[1300:], coverage=0.9).T
    >>> round(float(((low <= y[1300:]) & (y[1300:] <= high)).mean()), 1)
    0.9
    """

    def __init__(
        self,
        estimator: Any,
        *,
        levels: Sequence[float] | None = None,
        make: Callable[[Cdf], Corrector] | None = None,
        low: float | None = None,
        high: float | None = None,
        cv: Any = 5,
    ) -> None:
        self.estimator = estimator
        self.levels = levels
        self.make = make
        self.low = low
        self.high = high
        self.cv = cv

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit the model, and the corrector on forecasts of cross-validated copies of the model.

        Parameters
        ----------
        X
            Rows of features.
        y
            Their numbers.
        """
        numbers = _read_numbers(X, y)
        if isinstance(self.estimator, FrozenEstimator):
            return self._start(self.estimator, numbers, _ask(self.estimator, X, self.levels))
        model = clone(self.estimator).fit(X, numbers)
        parts: list[tuple[Any, Numbers]] = []
        (X,) = indexable(X)
        for train, test in check_cv(self.cv).split(X, numbers):
            copy = clone(self.estimator).fit(_safe_indexing(X, train), numbers[train])
            parts.append((test, _ask(copy, _safe_indexing(X, test), self.levels)))
        rows = np.concatenate([test for test, _ in parts])
        order = np.argsort(rows, kind="stable")
        forecasts = {name: np.concatenate([part[name] for _, part in parts])[order] for name in parts[0][1]}
        return self._start(model, numbers[rows[order]], forecasts)

    def partial_fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn from a batch of outcomes; the corrector learns row by row, in order.

        Parameters
        ----------
        X
            Rows of features.
        y
            Their numbers.
        """
        numbers = _read_numbers(X, y)
        updates = self._updates()
        started = hasattr(self, "corrector_")
        if not started and not hasattr(self, "estimator_"):
            if not is_fitted(self.estimator):
                model = clone(self.estimator)
                self.estimator_ = model.partial_fit(X, numbers) if updates else model.fit(X, numbers)
                return self
            self.estimator_ = deepcopy(self.estimator) if updates else self.estimator
        forecasts = _ask(self.estimator_, X, self.levels)
        if started:
            self.corrector_.update_many(self._spread(forecasts), numbers)
        else:
            self._start(self.estimator_, numbers, forecasts)
        if updates:
            self.estimator_.partial_fit(X, numbers)
        return self

    def _start(self, model: Any, numbers: Array, forecasts: Numbers) -> Self:
        """Make the set and the corrector, which learns these rows."""
        errors = numbers - (forecasts["mean"] if "mean" in forecasts else np.mean([*forecasts.values()], axis=0))
        sd = float(np.sqrt(np.mean(errors**2)))
        self.sd_ = sd or 1e-6 * max(float(np.abs(numbers).max()), 1.0)
        self.space_ = cdf_around([numbers, *self._spread(forecasts).values()], self.sd_, self.low, self.high)
        self.estimator_ = model
        self.corrector_ = new_corrector(self.make, self.space_)
        self.corrector_.update_many(self._spread(forecasts), numbers)
        return self

    def _spread(self, forecasts: Numbers) -> Numbers:
        """Return forecasts, points with the spread that their errors had."""
        if forecasts.keys() == {"mean"}:
            return forecasts | {"sd": np.full(len(forecasts["mean"]), self.sd_)}
        return forecasts

    def predict_distribution(self, X: Any) -> Distribution:
        """Return the corrected distribution of each row, an array of them. Changes nothing.

        Parameters
        ----------
        X
            Rows of features.
        """
        check_is_fitted(self, "estimator_")
        forecasts = _ask(self.estimator_, X, self.levels)
        if not hasattr(self, "corrector_"):
            raise ForecastError(
                "the model has learned one batch, and the corrector none yet.", hint="partial_fit another, or fit."
            )
        return self.space_.distribution(self.corrector_.predict_many(self._spread(forecasts)))

    def predict(self, X: Any) -> Array:
        """Return the mean of each row's distribution; before the corrector has learned, what the model predicts.

        Parameters
        ----------
        X
            Rows of features.
        """
        check_is_fitted(self, "estimator_")
        if not hasattr(self, "corrector_"):
            return np.asarray(self.estimator_.predict(X))
        return np.asarray(self.predict_distribution(X).mean)

    def predict_quantiles(self, X: Any, levels: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)) -> Array:
        """Return quantiles of each row, `(n, levels)`.

        Parameters
        ----------
        X
            Rows of features.
        levels
            Their levels.
        """
        law = self.predict_distribution(X)
        return np.column_stack([law.quantile(level) for level in levels])

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Return the central interval of each row, `(n, 2)`.

        Parameters
        ----------
        X
            Rows of features.
        coverage
            Its probability.
        """
        return np.column_stack(self.predict_distribution(X).interval(coverage))


@dataclass(frozen=True)
class CrpsScorer:
    """A scorer for `cross_val_score` and others: minus the CRPS of distributions, of points minus the absolute error.

    Parameters
    ----------
    levels
        Of a model that predicts quantiles: their levels. Then only quantiles of these are scored, also of models with
        whole distributions, so that they compare.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import BayesianRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianRidge().fit(X, y)
    >>> print(round(CrpsScorer()(model, X, y)), round(CoverageScorer()(model, X, y), 2))
    -30 -0.0
    """

    levels: Sequence[float] | None = None

    def __call__(self, estimator: Any, X: Any, y: ArrayLike) -> float:
        """Return minus the CRPS of the estimator's forecasts of these rows."""
        return -crps(_forecasts(estimator, X, self.levels), _read_numbers(X, y))


@dataclass(frozen=True)
class CoverageScorer:
    """A scorer: minus how far the share of outcomes in central intervals is from what it should be.

    Parameters
    ----------
    coverage
        What it should be.
    levels
        Of a model that predicts quantiles: their levels, those of both ends among them.

    Examples
    --------
    >>> CoverageScorer(coverage=0.8)
    CoverageScorer(coverage=0.8, levels=None)
    """

    coverage: float = 0.9
    levels: Sequence[float] | None = None

    def __call__(self, estimator: Any, X: Any, y: ArrayLike) -> float:
        """Return minus the distance for the estimator's forecasts of these rows."""
        numbers = _read_numbers(X, y)
        ends = [(1 - self.coverage) / 2, (1 + self.coverage) / 2]
        laws = read_laws(_forecasts(estimator, X, self.levels))
        low, high = (laws.quantile(round(end, 12)) for end in ends)
        return -abs(float(((low <= numbers) & (numbers <= high)).mean()) - self.coverage)


def _forecasts(estimator: Any, X: Any, levels: Sequence[float] | None) -> Any:
    """Return an estimator's distributions, or what it gives in their place."""
    if hasattr(estimator, "predict_distribution"):
        law = estimator.predict_distribution(X)
        return law if levels is None else {level: np.asarray(law.quantile(level)) for level in levels}
    found = _ask(estimator, X, levels)
    return {"members": found["mean"][:, None]} if found.keys() == {"mean"} else found


def _ask(model: Any, X: Any, levels: Sequence[float] | None) -> Numbers:
    """Return what a model says of rows: quantiles, mean and sd, or means."""
    inner = model.estimator if isinstance(model, FrozenEstimator) else model
    try:
        takes = inspect.signature(inner.predict).parameters
    except ValueError:
        takes = {}  # type: ignore[assignment]
    if levels is not None:
        given = inner.predict(X, quantiles=[*levels]) if "quantiles" in takes else model.predict(X)
        found = np.asarray(given, np.float64)
        if found.ndim != 2 or found.shape[1] != len(levels):
            hint = "QuantileModels(estimator, levels) makes a model for each level."
            raise ForecastError(
                f"predictions have shape {found.shape}, expected a column for each of {len(levels)} levels.", hint=hint
            )
        return dict(zip(levels, found.T, strict=True))
    if "return_std" in takes:
        mean, sd = inner.predict(X, return_std=True)
        return {"mean": np.asarray(mean, np.float64), "sd": np.asarray(sd, np.float64)}
    found = np.asarray(model.predict(X), np.float64)
    if found.ndim != 1:
        hint = "name the levels of quantiles: levels=[0.1, 0.5, 0.9]."
        raise ForecastError(f"predictions have shape {found.shape}, expected one number a row.", hint=hint)
    return {"mean": found}


def _read_numbers(X: Any, y: ArrayLike) -> Array:
    """Return one finite number for each row."""
    if y is None:
        raise OutcomeError("fitting requires y to be passed, but the target y is None.")
    numbers = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"), warn=True)
    check_consistent_length(X, numbers)
    return np.asarray(numbers)


def is_fitted(estimator: Any) -> bool:
    """Return whether the estimator is fitted."""
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True
