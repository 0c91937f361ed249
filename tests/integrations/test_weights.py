"""Sample weights in river and scikit-learn: of the model, the corrector and the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from river import linear_model
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB

import treecal as tc
from treecal._typing import Array
from treecal.correctors import Corrector
from treecal.exceptions import ParameterError, UnsupportedError
from treecal.integrations import river, sklearn


@dataclass
class Errors:
    total: Array
    weight: float


class Shift(Corrector):
    """Adds the mean of all past errors, by their weights."""

    def __init__(self, space: tc.ConvexSet) -> None:
        super().__init__(space)
        self._state = Errors(np.zeros(space.dim), 0.0)

    def _announce(self, forecast: Array) -> tc.Forecast:
        point = self.space.project(forecast + self._state.total / max(self._state.weight, 1e-9))
        return tc.Forecast([point], space=self.space)

    def _learn(self, forecast: Array, outcome: Array, *, weight: float) -> None:
        self._state.total += weight * (outcome - forecast)
        self._state.weight += weight


RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 2))
Y = (X[:, 0] + RNG.logistic(size=200) > 0).astype(int)
W = RNG.integers(0, 3, size=200).astype(float)


def test_scikit_learns_weights_reach_the_model_and_the_corrector() -> None:
    f = sklearn.RecalibratedClassifier(GaussianNB(), make=Shift).fit(X, Y, sample_weight=W)
    forecasts = cross_val_predict(GaussianNB(), X, Y, cv=5, method="predict_proba", params={"sample_weight": W})
    expected = (W[:, None] * (np.eye(2)[Y] - forecasts)).sum(axis=0)
    assert f.corrector_._state.total == pytest.approx(expected)
    assert (f.corrector_._state.weight, f.corrector_.rounds) == (W.sum(), int((W > 0).sum()))
    assert f.estimator_.class_prior_ == pytest.approx(GaussianNB().fit(X, Y, sample_weight=W).class_prior_)
    ones = sklearn.RecalibratedClassifier(GaussianNB()).fit(X, Y, sample_weight=np.ones(200))
    assert np.array_equal(
        ones.predict_proba(X), sklearn.RecalibratedClassifier(GaussianNB()).fit(X, Y).predict_proba(X)
    )


def test_partial_fit_takes_weights_and_refuses_them_before_anything_is_learned() -> None:
    model = GaussianNB().fit(X[:50], Y[:50])
    frozen = sklearn.RecalibratedClassifier(FrozenEstimator(model), make=Shift)
    frozen.partial_fit(X[50:], Y[50:], sample_weight=W[50:])
    expected = W[50:, None] * (np.eye(2)[Y[50:]] - model.predict_proba(X[50:]))
    assert frozen.corrector_._state.total == pytest.approx(expected.sum(axis=0))
    online = sklearn.RecalibratedClassifier(GaussianNB(), make=Shift)
    online.partial_fit(X[:50], Y[:50], classes=[0, 1], sample_weight=W[:50])
    assert online.estimator_.class_count_.sum() == W[:50].sum()
    plain = sklearn.RecalibratedClassifier(model, make=tc.GuardedCorrector).partial_fit(X[50:60], Y[50:60])
    count, rounds = plain.estimator_.class_count_.copy(), plain.corrector_.rounds
    with pytest.raises(UnsupportedError, match="knows no weights"):
        plain.partial_fit(X[60:], Y[60:], sample_weight=np.full(140, 2.0))
    assert (plain.estimator_.class_count_.tolist(), plain.corrector_.rounds) == (count.tolist(), rounds)
    for bad, message in ((-W, "weights"), (W[:-1], "inconsistent"), (np.full(200, np.nan), "NaN")):
        with pytest.raises(ValueError, match=message):
            sklearn.RecalibratedClassifier(GaussianNB(), make=Shift).fit(X, Y, sample_weight=bad)


@pytest.mark.parametrize(("norm", "resolution"), [(None, 0.1), ("l1", 0.1), ("l1", None)])
def test_scores_of_weighted_rows_are_those_of_repeated_ones(norm: str | None, resolution: float | None) -> None:
    model = GaussianNB().fit(X, Y)
    times = np.repeat(np.arange(200), W.astype(int))
    score = sklearn.CalibrationScorer(norm, resolution)
    assert score(model, X, Y, sample_weight=W) == score(model, X[times], Y[times])
    metric, repeated = (river.CalibrationError(norm, resolution) for _ in range(2))
    forecasts = [dict(enumerate(p)) for p in model.predict_proba(X).tolist()]
    for p, y, w in zip(forecasts, Y.tolist(), W.tolist(), strict=True):
        metric.update(y, p, w)
        for _ in range(int(w)):
            repeated.update(y, p)
    assert metric.get() == repeated.get() == pytest.approx(-score(model, X, Y, sample_weight=W))
    with pytest.raises(ParameterError, match="all rows have weight 0"):
        sklearn.calibration_error(Y, model.predict_proba(X), sample_weight=np.zeros(200))


def test_the_metric_reverts_any_weight_exactly() -> None:
    metric = river.CalibrationError()
    rounds: list[Any] = [("a", {"a": 0.3, "b": 0.7}, w) for w in (0.1, 0.2, 0.3, 0.0, 1e-12, 1e12)]
    for y, p, w in rounds:
        metric.update(y, p, w)
    with pytest.raises(ParameterError, match=r"weight 0\.4"):
        metric.revert("a", {"a": 0.3, "b": 0.7}, 0.4)
    for y, p, w in rounds:
        metric.revert(y, p, w)
    assert (metric._counts, metric.get()) == ({}, 0.0)


def test_rivers_weight_reaches_the_classifier_and_the_corrector() -> None:
    model: Any = river.RecalibratedClassifier(linear_model.LogisticRegression(), make=Shift, classes=[False, True])
    alone: Any = linear_model.LogisticRegression()
    by_hand = Shift(tc.Simplex(2))
    for row, y, w in zip(X.tolist(), (Y == 1).tolist(), W.tolist(), strict=True):
        x = dict(enumerate(row))
        if w:
            p = alone.predict_proba_one(x)
            by_hand.learn([p[False], p[True]], int(y), weight=w)
        alone.learn_one(x, y, w=w)
        model.learn_one(x, y, w=w)
    assert model.corrector is not None
    assert np.array_equal(model.corrector._state.total, by_hand._state.total)
    assert model.classifier.weights == alone.weights
    plain: Any = river.RecalibratedClassifier(
        linear_model.LogisticRegression(), make=tc.GuardedCorrector, classes=[False, True]
    )
    with pytest.raises(UnsupportedError, match="knows no weights"):
        plain.learn_one({0: 1.0}, True, w=2.0)
    assert plain.classifier.weights == {}
    with pytest.raises(ParameterError, match="w is -1"):
        plain.learn_one({0: 1.0}, True, w=-1)
