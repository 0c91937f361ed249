"""scikit-learn: its own checks pass, the wrapper is the corrector driven by hand, and scores are the ledger's."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss, make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import treecal as tc
from tests.integrations.streams import LABELS, SaidRows, drifting
from treecal.correctors._base import Corrector
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, TreeCalError, UnsupportedError
from treecal.integrations.river import CalibrationError
from treecal.integrations.sklearn import CalibrationScorer, RecalibratedClassifier, calibration_error

QUIET = partial(tc.Recalibrator, scores=None)
STUMP = DecisionTreeClassifier(max_depth=3, random_state=0)


def blobs(rows: int = 300, classes: int = 3) -> tuple[Any, Any]:
    X, y = make_classification(rows, n_classes=classes, n_informative=5, n_redundant=5, random_state=0)
    return X, np.array(LABELS)[y]


def by_hand(corrector: Corrector, forecasts: Any, labels: Any, classes: list[str]) -> Corrector:
    for b, label in zip(forecasts, labels, strict=True):
        corrector.predict(b)
        corrector.update(np.eye(len(classes))[classes.index(label)])
    return corrector


def means(corrector: Corrector, forecasts: Any) -> Any:
    return corrector.predict_many(forecasts)


class RoundedUp(tc.Recalibrator):
    """Announces, as sums of softmax may round, a little more than 1."""

    def predict_many(self, forecasts: Any, *, groups: Any = None) -> Any:
        found = super().predict_many(forecasts, groups=groups)
        return np.where(found == found.max(1, keepdims=True), np.nextafter(1.0, 2.0), 0.0)


def test_no_probability_is_more_than_scikit_learns_scores_take() -> None:
    X, y = blobs()
    found = RecalibratedClassifier(STUMP, make=RoundedUp).fit(X, y)
    assert log_loss(y, found.predict_proba(X)) > 0


# scikit-learn's own


@pytest.fixture
def array_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or one check would be skipped


def expected_to_fail(estimator: Any) -> dict[str, str]:
    """Return checks that no classifier of this kind passes, and why."""
    if not isinstance(estimator.estimator, GaussianNB):
        return {}
    return {
        "check_classifiers_one_label_sample_weights": "naive Bayes warns of a class that weighs nothing",
    }


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [RecalibratedClassifier(GaussianNB())], expected_failed_checks=expected_to_fail, xfail_strict=True
)
@pytest.mark.usefixtures("array_api")
def test_sklearn_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.heavy
@parametrize_with_checks([RecalibratedClassifier(STUMP, make=QUIET, cv=2)])  # type: ignore[untyped-decorator]
@pytest.mark.usefixtures("array_api")
def test_sklearn_checks_of_a_cross_fit(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


# What it is


@pytest.mark.parametrize("make", [None, tc.Recalibrator, tc.GuardedCorrector])
@pytest.mark.parametrize("freeze", [True, False])
def test_partial_fit_is_the_corrector_driven_by_hand(make: Any, freeze: bool) -> None:
    X, y = blobs()
    model = STUMP.fit(X[:100], y[:100]) if not freeze else GaussianNB().fit(X[:100], y[:100])
    f = RecalibratedClassifier(FrozenEstimator(model) if freeze else model, make=make)
    corrector = by_hand((make or tc.AutoCorrector)(tc.Simplex(3)), model.predict_proba(X[100:200]), y[100:200], LABELS)
    f.partial_fit(X[100:130], y[100:130]).partial_fit(X[130:131], y[130:131])
    f.predict_proba(X)  # leaves no trace
    f.partial_fit(X[131:200], y[131:200])
    np.testing.assert_allclose(f.predict_proba(X), means(corrector, model.predict_proba(X)), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(f.predict(X), f.classes_[f.predict_proba(X).argmax(axis=1)])
    assert f.corrector_.rounds == 100


def test_a_model_that_can_learn_does_so_after_it_has_spoken() -> None:
    X, y = blobs()
    model = GaussianNB().fit(X[:100], y[:100])
    alone, before = GaussianNB().fit(X[:100], y[:100]), pickle.dumps(model)
    corrector: Corrector = tc.AutoCorrector(tc.Simplex(3))
    f = RecalibratedClassifier(model)
    for batch in np.split(np.arange(100, 300), 20):
        by_hand(corrector, alone.predict_proba(X[batch]), y[batch], LABELS)
        alone.partial_fit(X[batch], y[batch])
        f.partial_fit(X[batch], y[batch])
    np.testing.assert_allclose(f.predict_proba(X), means(corrector, alone.predict_proba(X)), rtol=0, atol=1e-12)
    assert pickle.dumps(model) == before  # the copy learned


def test_fit_learns_from_rows_that_were_held_out() -> None:
    X, y = blobs()
    f = RecalibratedClassifier(STUMP, cv=3).fit(X, y)
    said = cross_val_predict(STUMP, X, y, cv=3, method="predict_proba")
    corrector = tc.AutoCorrector(tc.Simplex(classes=LABELS)).fit(said, y)
    expected = means(corrector, clone(STUMP).fit(X, y).predict_proba(X))
    np.testing.assert_allclose(f.predict_proba(X), expected, rtol=0, atol=1e-12)
    assert f.fit(X[:90], y[:90]).corrector_.rounds == 90  # starts over
    assert f.partial_fit(X[90:], y[90:]).corrector_.rounds == 300  # goes on


def test_fit_leaves_a_frozen_model_as_it_is() -> None:
    X, y = blobs()
    model = GaussianNB().fit(X[:100], y[:100])
    before = pickle.dumps(model)
    fitted = RecalibratedClassifier(FrozenEstimator(model)).fit(X[100:], y[100:])
    corrector = tc.AutoCorrector(tc.Simplex(classes=LABELS)).fit(model.predict_proba(X[100:]), y[100:])
    np.testing.assert_array_equal(fitted.predict_proba(X), means(corrector, model.predict_proba(X)))
    assert pickle.dumps(model) == before


def test_fit_of_rows_sorted_by_class() -> None:
    """As tables often are. The fit is the same, but for the folds; of a frozen model, altogether."""
    model = GaussianNB()
    X, y = load_digits(return_X_y=True)
    X, y, later, came = X[:900], y[:900], X[900:], y[900:]
    by_class = np.argsort(y, kind="stable")
    frozen = FrozenEstimator(model.fit(X[:400], y[:400]))
    one, other = (RecalibratedClassifier(frozen).fit(X[rows], y[rows]) for rows in (slice(None), by_class))
    np.testing.assert_allclose(one.predict_proba(later), other.predict_proba(later), rtol=0, atol=1e-9)
    one, other = (RecalibratedClassifier(model).fit(X[rows], y[rows]) for rows in (slice(None), by_class))
    assert log_loss(came, other.predict_proba(later)) < 1.1 * log_loss(came, one.predict_proba(later))


@pytest.mark.parametrize("base", [SGDClassifier(loss="log_loss", random_state=0), STUMP])
def test_the_first_batch_makes_the_model(base: Any) -> None:
    X, y = blobs()
    first = y[:100] != "cat"
    f = RecalibratedClassifier(clone(base)).partial_fit(X[:100][first], y[:100][first], classes=LABELS)
    assert f.corrector_.rounds == 0
    f.partial_fit(X[100:], y[100:])
    assert f.corrector_.rounds == 200
    assert f.predict_proba(X).shape == (300, 3)
    assert f.predict_proba(X)[:, 2].mean() > 0.01


def test_a_model_may_meet_a_class_that_it_does_not_know() -> None:
    X, y = blobs(2000)
    known = y[:500] != "bee"
    model = STUMP.fit(X[:500][known], y[:500][known])
    f = RecalibratedClassifier(model).partial_fit(X[500:], y[500:], classes=LABELS)
    assert f.classes_.tolist() == LABELS
    assert f.predict_proba(X[500:])[:, 1].mean() == pytest.approx((y[500:] == "bee").mean(), abs=0.1)


# What it does


@pytest.mark.parametrize("make", [None, QUIET])
def test_it_puts_a_drifting_model_right(make: Any) -> None:
    forecasts, labels = drifting(2000)
    f, said = RecalibratedClassifier(SaidRows().fit(None, LABELS), make=make), []
    for batch in np.split(np.arange(2000), 40):
        said.append(f.predict_proba(forecasts[batch]) if batch[0] else forecasts[batch])
        f.partial_fit(forecasts[batch], np.array(labels)[batch])
    raw, after = (calibration_error(labels, p) for p in (forecasts, np.concatenate(said)))
    assert after < 0.7 * raw


def test_it_is_an_estimator_like_others() -> None:
    X, y = blobs()
    f = RecalibratedClassifier(GaussianNB(), make=QUIET).fit(X, y)
    again, new = pickle.loads(pickle.dumps(f)), clone(f)
    np.testing.assert_array_equal(again.predict_proba(X), f.predict_proba(X))
    assert new.make.keywords == {"scores": None}
    assert not hasattr(new, "corrector_")
    assert f.get_params()["estimator__var_smoothing"] == 1e-9
    assert f.set_params(estimator__var_smoothing=0.1).estimator.var_smoothing == 0.1
    grid = {"estimator__var_smoothing": [1e-9, 0.1], "make": [None, QUIET]}
    search = GridSearchCV(new, grid, scoring=CalibrationScorer(), cv=2).fit(X, y)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"]) < 0


def test_names_of_features_are_the_models() -> None:
    X, y = blobs()
    frame = import_module("pandas").DataFrame(X).add_prefix("x")
    f = RecalibratedClassifier(STUMP, cv=2).fit(frame, y)
    assert f.feature_names_in_.tolist() == list(frame)
    assert f.predict(frame).shape == (300,)
    f.fit(X[:, :4], y)
    assert f.n_features_in_ == 4
    assert not hasattr(f, "feature_names_in_")


# What is refused


def test_unfitted() -> None:
    X, y = blobs()
    with pytest.raises(NotFittedError):
        RecalibratedClassifier(GaussianNB().fit(X, y)).predict_proba(X)
    with pytest.raises(ParameterError, match="expected all labels"):
        RecalibratedClassifier(GaussianNB()).partial_fit(X, y)


def test_a_model_without_probabilities() -> None:
    X, y = blobs()
    for act in (RecalibratedClassifier(LinearSVC()).fit, RecalibratedClassifier(LinearSVC()).partial_fit):
        with pytest.raises(UnsupportedError, match="CalibratedClassifierCV"):
            act(X, y)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [(3, "make is 3"), (lambda space: space, "a corrector on"), (tc.PlattScaling, "VectorScaling")],
)
def test_correctors_that_are_none(make: Any, complaint: str) -> None:
    with pytest.raises(ParameterError, match=complaint):
        RecalibratedClassifier(GaussianNB(), make=make).fit(*blobs())


def test_bad_batches_change_nothing() -> None:
    forecasts, labels = drifting(100)
    f: Any = RecalibratedClassifier(SaidRows().fit(None, LABELS)).partial_fit(forecasts[:50], labels[:50])
    before = f.predict_proba(forecasts)
    broken, unsummed = forecasts[50:].copy(), forecasts[50:].copy()
    broken[20, 1], unsummed[30] = np.nan, [0.5, 0.2, 0.27]
    cases: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: f.partial_fit(broken, labels[50:]), ForecastError, "row 20 holds nan"),
        (lambda: f.partial_fit(unsummed, labels[50:]), ForecastError, "row 30 .* sum to 0.97"),
        (lambda: f.predict_proba(unsummed), ForecastError, "row 30"),
        (lambda: f.partial_fit(forecasts[50:], ["dog", *labels[51:]]), OutcomeError, "'dog' is not one of the classes"),
        (lambda: f.partial_fit(forecasts[50:], labels[51:]), ValueError, "inconsistent numbers"),
        (lambda: f.partial_fit(forecasts[50:], None), OutcomeError, "y is None"),
        (lambda: f.fit(forecasts, ["ant", float("nan"), *labels[2:]]), OutcomeError, r"y\[1\] is nan"),
    ]
    for act, error, complaint in cases:
        with pytest.raises(error, match=complaint):
            act()
    np.testing.assert_array_equal(f.predict_proba(forecasts), before)
    assert f.corrector_.rounds == 50


def test_a_bad_first_batch_leaves_it_unfitted() -> None:
    X, y = blobs()
    for base in (GaussianNB(), GaussianNB().fit(X, y), STUMP):
        f = RecalibratedClassifier(base)
        with pytest.raises(OutcomeError, match="not one of the classes"):
            f.partial_fit(X, y, classes=["ant", "bee"])
        assert not hasattr(f, "corrector_")


# Scores


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.21, 0.5, 1.0]), st.integers(0, 1)), min_size=1, max_size=40),
    st.sampled_from(["l1", "l2", "linf"]),
    st.sampled_from([None, 0.1, 0.3]),
)
def test_scores_are_the_ledgers(rounds: list[Any], norm: str, resolution: float | None) -> None:
    ledger = tc.Ledger(tc.Simplex(2))
    for p, k in rounds:
        ledger.record([1 - p, p], np.eye(2)[k])
    reading = ledger.exact() if resolution is None else ledger.binned(resolution=resolution)
    second, labels = np.array(rounds).T
    for said in (second, np.stack([1 - second, second], axis=1)):
        error = calibration_error(labels, said, classes=[0, 1], norm=norm, resolution=resolution)
        assert error == pytest.approx(reading.error(norm), abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_default_is_the_class_wise_error_of_an_audit(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), 600)
    y = (P.cumsum(axis=1) > rng.random(600)[:, None]).argmax(axis=1)
    w = rng.choice([0.0, 0.5, 2.0], 600) if weighted else None
    labels = np.array(["ant", "bee", "cat", "dog"])[y]
    found = tc.audit(P, y, weight=w, exact=False).whole
    assert calibration_error(labels, P, sample_weight=w) == pytest.approx(found.classwise_ece, abs=1e-12)
    metric = CalibrationError()
    for p, label, each in zip(P, labels, np.ones(600) if w is None else w, strict=True):
        metric.update(label, dict(zip(["ant", "bee", "cat", "dog"], p.tolist(), strict=True)), w=float(each))
    assert metric.get() == pytest.approx(found.classwise_ece, abs=1e-12)


def test_of_many_classes_the_default_prefers_the_better_calibrated_model() -> None:
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))
    X, y = X[rows], y[rows]
    better = RecalibratedClassifier(GaussianNB(), make=tc.TemperatureScaling)
    scores = []
    for model in (GaussianNB(), better):
        said = cross_val_predict(model, X, y, cv=3, method="predict_proba")
        joint = calibration_error(y, said, norm="l1")
        scores.append((calibration_error(y, said), joint, log_loss(y, said)))
    (plain, joint, loss), (tempered, more, less) = scores
    assert less < loss / 2
    assert tempered < plain
    assert more > joint  # in joint cells the better one is behind
    with pytest.raises(ParameterError, match="resolution is None"):
        calibration_error(y, said, resolution=None)


def test_scorers_in_cross_validation() -> None:
    X, y = blobs()
    model = GaussianNB()
    scores = cross_val_score(model, X, y, cv=3, scoring=CalibrationScorer("l2", None))
    said = cross_val_predict(model, X, y, cv=3, method="predict_proba")
    assert scores.shape == (3,)
    # An exact error of forecasts that never repeat is the mean distance of forecasts from outcomes.
    gaps = tc.l2(np.eye(3)[[LABELS.index(label) for label in y]] - said)
    assert -scores.mean() == pytest.approx(gaps.mean())
    made = make_scorer(calibration_error, response_method="predict_proba", greater_is_better=False, norm="linf")
    for classes in (2, 3):
        X, y = blobs(300, classes)
        expected = cross_val_score(model, X, y, scoring=CalibrationScorer("linf"))
        np.testing.assert_allclose(cross_val_score(model, X, y, scoring=made), expected)


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (lambda: calibration_error(["a", "b"], [[0.5, 0.5]] * 2, norm="l7.."), "l7"),
        (lambda: calibration_error(["a", "b"], [[0.5, 0.5]] * 2, resolution=0), "resolution is 0"),
        (lambda: calibration_error(["a", "a"], [[0.5, 0.5]] * 2), "name the label of each column"),
        (lambda: calibration_error(["a", "b"], [[0.5, 0.5]] * 2, classes=["a", "c"]), "'b'.* not one of the classes"),
        (lambda: calibration_error(["a", "b"], [[0.5, 0.5], [0.5, 0.6]]), "row 1 .* sum to 1.1"),
        (lambda: calibration_error(["a", "b"], [[0.5, 0.5], [np.nan, 0.6]]), "holds nan"),
        (lambda: calibration_error(["a", "b"], [["0.5", "0.5"]] * 2), "expected real numbers"),
        (lambda: calibration_error(None, [[1.0]]), "y is None"),  # type: ignore[arg-type]
    ],
)
def test_scores_refuse(act: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(TreeCalError, match=complaint):
        act()
