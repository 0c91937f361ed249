"""Regressors of scikit-learn and river: their own checks pass, and the wrappers are the corrector driven by hand."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from river import checks, linear_model as river_models, preprocessing
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import BayesianRidge, LinearRegression, QuantileRegressor, Ridge, SGDRegressor
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import treecal as tc
from treecal.exceptions import ForecastError, ParameterError
from treecal.integrations import river
from treecal.integrations.sklearn import CoverageScorer, CrpsScorer, QuantileModels, RecalibratedRegressor
from treecal.measures import crps

QUICK = partial(tc.LocationScale, scores=None)
OnLine: Any = river_models.LinearRegression  # river leaves these untyped
LEVELS = (0.1, 0.5, 0.9)


def noisy(rows: int = 600) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    return X, X[:, 0] + rng.normal(size=rows)


@parametrize_with_checks([RecalibratedRegressor(Ridge(), make=QUICK)])  # type: ignore[untyped-decorator]
def test_sklearn_checks(estimator: Any, check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


def test_partial_fit_is_the_corrector_driven_by_hand() -> None:
    X, y = noisy()
    model = BayesianRidge().fit(X[:100], y[:100])
    f = RecalibratedRegressor(model, low=-8, high=8).partial_fit(X[100:300], y[100:300])
    f.partial_fit(X[300:400], y[300:400])
    mean, sd = model.predict(X, return_std=True)
    by_hand = tc.AutoCorrector(f.space_)
    by_hand.update_many({"mean": mean[100:400], "sd": sd[100:400]}, y[100:400])
    law = f.space_.distribution(by_hand.predict_many({"mean": mean[400:], "sd": sd[400:]}))
    np.testing.assert_array_equal(f.predict(X[400:]), law.mean)
    np.testing.assert_array_equal(f.predict_interval(X[400:], 0.8), np.column_stack(law.interval(0.8)))
    np.testing.assert_array_equal(f.predict_quantiles(X[400:], [0.25])[:, 0], law.quantile(0.25))
    assert f.estimator_ is model
    again = pickle.loads(pickle.dumps(f))
    np.testing.assert_array_equal(again.predict(X[400:]), law.mean)


@pytest.mark.parametrize(
    ("model", "levels"),
    [
        (LinearRegression(), None),
        (BayesianRidge(), None),
        (QuantileModels(QuantileRegressor(alpha=0), LEVELS), LEVELS),
    ],
    ids=["points", "mean and sd", "quantiles"],
)
def test_fit_learns_from_rows_that_were_held_out(model: Any, levels: Any) -> None:
    X, y = noisy(300)
    f = RecalibratedRegressor(model, levels=levels, make=QUICK).fit(X, y)
    assert f.corrector_.rounds == 300
    low, high = f.predict_interval(X, 0.8).T
    assert ((low <= y) & (y <= high)).mean() == pytest.approx(0.8, abs=0.07)
    assert 0 > CrpsScorer(levels)(f, X, y) > CrpsScorer()(LinearRegression().fit(X, y), X, y)
    assert not hasattr(clone(f), "corrector_")


def test_fit_leaves_a_frozen_model_as_it_is_and_partial_fit_teaches_others() -> None:
    X, y = noisy(300)
    model = FrozenEstimator(LinearRegression().fit(X[:100], y[:100]))
    before = pickle.dumps(model)
    assert RecalibratedRegressor(model, make=QUICK).fit(X[100:], y[100:]).corrector_.rounds == 200
    assert pickle.dumps(model) == before
    learner = SGDRegressor(random_state=0).fit(X[:100], y[:100])
    before = pickle.dumps(learner)
    online = RecalibratedRegressor(learner, make=QUICK).partial_fit(X[100:200], y[100:200])
    assert pickle.dumps(learner) == before  # the copy learned
    alone = pickle.loads(before).partial_fit(X[100:200], y[100:200])
    np.testing.assert_array_equal(online.estimator_.coef_, alone.coef_)


def test_the_first_batch_makes_the_model() -> None:
    X, y = noisy(200)
    f = RecalibratedRegressor(LinearRegression(), make=QUICK).partial_fit(X[:100], y[:100])
    np.testing.assert_array_equal(f.predict(X), LinearRegression().fit(X[:100], y[:100]).predict(X))
    with pytest.raises(ForecastError, match="the corrector none yet"):
        f.predict_interval(X)
    assert f.partial_fit(X[100:], y[100:]).corrector_.rounds == 100


def test_scores_are_the_measures() -> None:
    X, y = noisy(300)
    ridge = BayesianRidge().fit(X, y)
    mean, sd = ridge.predict(X, return_std=True)
    assert CrpsScorer()(ridge, X, y) == -crps({"mean": mean, "sd": sd}, y)
    plain = LinearRegression().fit(X, y)
    assert CrpsScorer()(plain, X, y) == pytest.approx(-np.abs(plain.predict(X) - y).mean())
    many = QuantileModels(QuantileRegressor(alpha=0), LEVELS).fit(X, y)
    turned = QuantileModels(QuantileRegressor(alpha=0), LEVELS[::-1]).fit(X, y)
    np.testing.assert_array_equal(turned.predict(X), many.predict(X)[:, ::-1])
    held = ((many.predict(X)[:, 0] <= y) & (y <= many.predict(X)[:, 2])).mean()
    assert CoverageScorer(0.8, LEVELS)(many, X, y) == pytest.approx(-abs(held - 0.8))
    assert cross_val_score(RecalibratedRegressor(Ridge(), make=QUICK), X, y, scoring=CoverageScorer()).min() > -0.15


def test_what_is_refused() -> None:
    X, y = noisy(100)
    many = QuantileModels(QuantileRegressor(alpha=0), LEVELS).fit(X, y)
    with pytest.raises(ForecastError, match="one number a row") as caught:
        RecalibratedRegressor(many).partial_fit(X, y)
    assert "levels=" in str(caught.value)
    with pytest.raises(ForecastError, match="a column for each of 2 levels"):
        RecalibratedRegressor(many, levels=[0.1, 0.9]).partial_fit(X, y)
    with pytest.raises(ParameterError, match="a regressor of one quantile"):
        QuantileModels(LinearRegression()).fit(X, y)
    with pytest.raises(ParameterError, match="from a Cdf to a corrector"):
        RecalibratedRegressor(LinearRegression(), make=3).fit(X, y)  # type: ignore[arg-type]


def test_river_checks() -> None:
    pipeline = preprocessing.StandardScaler() | OnLine()
    checks.check_estimator(river.RecalibratedRegressor(pipeline, -100, 100, make=QUICK))


def test_rivers_wrapper_is_the_corrector_driven_by_hand() -> None:
    X, y = noisy(100)
    space = tc.Cdf(-8, 8, points=200, clip=True)
    wrapped, alone, by_hand = OnLine(), OnLine(), tc.LocationScale(space)
    f = river.RecalibratedRegressor(wrapped, -8, 8, make=tc.LocationScale)
    sd: Any = 4.0
    errors: list[float] = []
    for row, number in zip(X, y, strict=True):
        x = dict(enumerate(row))
        forecast = {"mean": alone.predict_one(x), "sd": sd}
        said = by_hand.predict(forecast)
        assert f.predict_one(x) == said.distribution.mean
        assert f.predict_distribution_one(x).interval(0.9) == said.interval(0.9)
        by_hand.update(number)
        alone.learn_one(x, number)
        f.learn_one(x, number)
        errors.append((number - forecast["mean"]) ** 2)
        sd = float(np.sqrt(np.mean(errors)))
        assert f.sd == pytest.approx(sd)
        sd = f.sd
    with pytest.raises(ParameterError, match="a river regressor"):
        river.RecalibratedRegressor(3, 0, 1)  # type: ignore[arg-type]
