"""scikit-learn: classifiers and regressors that recalibrate others, by `fit` or row by row; their errors as scores."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from treecal._optional import require
from treecal._typing import Array
from treecal._validate import finite_array, sample_weights
from treecal.correctors import Corrector
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, UnsupportedError
from treecal.geometry import Distance, Simplex, by_column, check_pairs, is_series, read_forecast_rows
from treecal.integrations._common import (
    WIDTH,
    Make,
    check_takes_weight,
    checked_label,
    error_of,
    new_corrector,
)

require("sklearn", extra="sklearn", what="treecal.integrations.sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import cross_val_predict
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from treecal.integrations._regressor import (
    CoverageScorer,
    CrpsScorer,
    QuantileModels,
    RecalibratedRegressor,
    Wrapper,
    is_fitted,
)

__all__ = [
    "CalibrationScorer",
    "CoverageScorer",
    "CrpsScorer",
    "QuantileModels",
    "RecalibratedClassifier",
    "RecalibratedRegressor",
    "calibration_error",
]


class RecalibratedClassifier(Wrapper, ClassifierMixin, BaseEstimator):  # type: ignore[misc] # untyped
    """A classifier whose probabilities are recalibrated by a corrector, and kept calibrated as outcomes arrive.

    A corrector must learn from the model's probabilities for rows that the model has not learned from.

    - `partial_fit(X, y)` is for a model in use. The model gives its probabilities for all rows of `X`; then the
      corrector learns, row by row, from these and `y`. After that a model with `partial_fit` learns too, on a copy; any
      other, and one in a `FrozenEstimator`, stays as it is. A model that is not fitted is fitted on the first batch,
      from which the corrector then learns nothing.
    - `fit(X, y)` starts over. The corrector is fitted to cross-validated probabilities: the order of the rows does not
      matter to the default, nor to scalings. The model is fitted on all rows. One in a `FrozenEstimator` is
      not fitted: it should not have seen these rows.

    `predict_proba` gives the mean of the corrected forecast and changes nothing. Sample weights go to the model and to
    the corrector, and each must know them; from a row of weight 0 the corrector learns nothing.

    Parameters
    ----------
    estimator
        A classifier with `predict_proba`; fitted, if `partial_fit` is to resume from there.
    make
        Makes the corrector from a `Simplex` of as many classes: a class such as `treecal.Recalibrator`, or a function.
        By default `treecal.AutoCorrector` without an audit.
    cv
        Folds for `fit`, as `sklearn.model_selection.cross_val_predict` takes them.

    Attributes
    ----------
    estimator_
        The model.
    corrector_
        The corrector, trained.
    classes_
        The labels, sorted.
    n_features_in_, feature_names_in_
        Those of the model, if it has them.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, noise = rng.normal(size=(4000, 1)), rng.logistic(size=4000)
    >>> model = LogisticRegression().fit(X[:1000], 5 * X[:1000, 0] + noise[:1000] > 0)
    >>> drifted = X[:, 0] + noise > 0  # the model is far too confident now
    >>> online = RecalibratedClassifier(model).partial_fit(X[1000:3000], drifted[1000:3000])
    >>> score = CalibrationScorer()
    >>> [round(score(m, X[3000:], drifted[3000:]), 2) for m in (model, online)]
    [-0.23, -0.02]
    """

    def __init__(self, estimator: Any, *, make: Make | None = None, cv: Any = 5) -> None:
        self.estimator = estimator
        self.make = make
        self.cv = cv

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model, and the corrector on the probabilities of cross-validated copies of the model.

        Parameters
        ----------
        X
            Rows of features.
        y
            Their labels.
        sample_weight
            The weight of each row; by default 1.
        """
        labels = _read_labels(X, y)
        weights = _read_weights(X, sample_weight)
        self._check_probabilities()
        given = {} if weights is None else {"sample_weight": weights}
        model = clone(self.estimator)
        if isinstance(self.estimator, FrozenEstimator):
            forecasts = model.fit(X, labels).predict_proba(X)
        else:
            model.fit(X, labels, **given)
            forecasts = cross_val_predict(
                self.estimator, X, labels, cv=self.cv, method="predict_proba", params=given or None
            )
        corrector = new_corrector(self.make, Simplex(len(model.classes_)))
        corrector.fit(_checked(forecasts), _outcomes(labels, model.classes_), weights=weights)
        return self._keep(model, model.classes_, corrector)

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from a batch of outcomes; the corrector learns row by row, in order.

        Parameters
        ----------
        X
            Rows of features.
        y
            Their labels.
        classes
            All labels that can occur. For the first call; by default those of the model, if it is fitted.
        sample_weight
            The weight of each row; by default 1.
        """
        labels = _read_labels(X, y)
        weights = _read_weights(X, sample_weight)
        given = {} if weights is None else {"sample_weight": weights}
        if hasattr(self, "corrector_"):
            model = self.estimator_
            known = self.classes_
            corrector = self.corrector_
        else:
            self._check_probabilities()
            if not is_fitted(self.estimator):
                return self._first_batch(X, labels, classes, given)
            model = deepcopy(self.estimator) if self._updates() else self.estimator
            known = model.classes_ if classes is None else np.unique(classes)
            corrector = new_corrector(self.make, Simplex(len(known)))
        forecasts = _ask(model, X, known)
        outcomes = _outcomes(labels, known)
        for weight in np.unique([] if weights is None else weights):
            check_takes_weight(corrector, float(weight))
        if self._updates():
            model.partial_fit(X, labels, **given)
        counted = slice(None) if weights is None else weights > 0
        corrector.update_many(
            forecasts[counted], outcomes[counted], weights=None if weights is None else weights[counted]
        )
        return self._keep(model, known, corrector)

    def _first_batch(self, X: Any, labels: Any, classes: ArrayLike | None, given: dict[str, Any]) -> Self:
        """Fit the model on the batch: there are no probabilities yet for a corrector to learn from."""
        if classes is None:
            raise ParameterError(
                "classes is None in the first partial_fit of a model that is not fitted, expected all labels.",
                hint="partial_fit(X, y, classes=[...]), or fit(X, y) first.",
            )
        model = clone(self.estimator)
        known = np.unique(classes)
        _places(labels, known)
        if self._updates():
            model.partial_fit(X, labels, classes=known, **given)
        else:
            model.fit(X, labels, **given)
        return self._keep(model, known, new_corrector(self.make, Simplex(len(known))))

    def predict_proba(self, X: Any) -> Array:
        """Return the corrected probability of each class for each row.

        Parameters
        ----------
        X
            Rows of features.
        """
        check_is_fitted(self)
        found = self.corrector_.predict_many(_ask(self.estimator_, X, self.classes_))
        return np.minimum(found, 1.0)  # sums are rounded, and scikit-learn's scores refuse 1 + 2e-16

    def predict(self, X: Any) -> Any:
        """Return the most likely class of each row.

        Parameters
        ----------
        X
            Rows of features.
        """
        forecasts = self.predict_proba(X)
        return self.classes_[forecasts.argmax(axis=1)]

    def _check_probabilities(self) -> None:
        if not hasattr(self.estimator, "predict_proba"):
            raise UnsupportedError(
                f"{self.estimator!r} has no predict_proba, which gives the probabilities to correct.",
                hint="wrap it in sklearn.calibration.CalibratedClassifierCV.",
            )

    def _keep(self, model: Any, classes: Any, corrector: Corrector) -> Self:
        self.estimator_ = model
        self.classes_ = classes
        self.corrector_ = corrector
        return self


@dataclass(frozen=True)
class CalibrationScorer:
    """A scorer for `cross_val_score`, `GridSearchCV` and others: minus the calibration error, so that higher is better.

    Parameters
    ----------
    norm, resolution
        As for `calibration_error`.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = make_classification(3000, n_redundant=10, random_state=0)
    >>> for model in GaussianNB(), RecalibratedClassifier(GaussianNB()):
    ...     print(cross_val_score(model, X, y, scoring=CalibrationScorer()).mean().round(2))
    -0.08
    -0.03
    """

    norm: Distance | str | None = None
    resolution: float | None = WIDTH

    def __call__(self, estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the error of the estimator's probabilities for these rows, which may have weights."""
        return -calibration_error(
            y,
            estimator.predict_proba(X),
            classes=estimator.classes_,
            norm=self.norm,
            resolution=self.resolution,
            sample_weight=sample_weight,
        )


def calibration_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    norm: Distance | str | None = None,
    resolution: float | None = WIDTH,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Return the calibration error per row: how far the labels of each bin lie from its forecasts.

    By default that is the class-wise ECE of an audit: the mean over classes, each in ten bins of its own probability.
    With a norm it is the error of the vectors, in joint cells, few of which hold many rows where there are many
    classes: so it does not tell such models apart.

    Parameters
    ----------
    y_true
        The labels.
    y_proba
        One row of probabilities each; or for two classes that of the second, as `sklearn.metrics.make_scorer` gives it.
        The columns of a table are read by their names.
    classes
        The label of each column; by default the labels in `y_true`, sorted.
    norm
        None; or for the joint error "l1", "l2", "linf", or any other distance of a ledger.
    resolution
        Of a joint error, the width of the cells. None compares forecasts exactly, which is informative only where they
        repeat.
    sample_weight
        The weight of each row; by default 1.

    Examples
    --------
    >>> calibration_error(["rain", "rain", "rain", "sun"], [[0.5, 0.5]] * 4)
    0.25
    >>> calibration_error(["rain", "sun"], [[0.5, 0.5]] * 2, sample_weight=[3, 1], norm="l1")
    0.5
    """
    labels = _read_labels(y_proba, y_true)
    known = np.unique(labels) if classes is None else np.asarray(classes)
    names = [str(label) for label in known.tolist()]
    if is_series(y_proba) and isinstance(name := getattr(y_proba, "name", None), str):
        check_pairs((name,), tuple(names))
    forecasts = finite_array("y_proba", by_column(names, y_proba, ForecastError))
    forecasts = np.stack([1 - forecasts, forecasts], axis=1) if forecasts.ndim == 1 else forecasts
    if forecasts.shape != (len(labels), len(known)):
        raise ForecastError(
            f"y_proba has shape {forecasts.shape}, expected ({len(labels)}, {len(known)}): labels {known.tolist()}.",
            hint=None if classes is not None else "name the label of each column in classes.",
        )
    points, row = np.unique(_checked(forecasts) + 0.0, axis=0, return_inverse=True)
    counts = np.zeros(points.shape)
    weights = _read_weights(y_proba, sample_weight)
    np.add.at(counts, (row, _places(labels, known)), 1 if weights is None else weights)
    if not counts.any():
        raise ParameterError("all rows have weight 0, so there is no error per row.")
    return error_of(points, counts, norm, resolution)


def _ask(model: Any, X: Any, classes: Any) -> Array:
    """Return the model's probabilities, checked, with a column for each class; 0 for one unknown to the model."""
    forecasts = np.asarray(model.predict_proba(X))
    rows = np.zeros((len(forecasts), len(classes)))
    rows[:, _places(model.classes_, classes)] = forecasts
    return _checked(rows)


def _read_weights(X: Any, given: ArrayLike | None) -> Array | None:
    """Return the weight of each row, if there are any."""
    if given is None:
        return None
    weights = check_array(given, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    check_consistent_length(X, weights)
    return sample_weights(weights, len(weights))


def _read_labels(X: Any, y: ArrayLike) -> Any:
    """Return one finite label for each row, as an array."""
    if y is None:
        raise OutcomeError("fitting requires y to be passed, but the target y is None.")
    for row, label in enumerate(np.asarray(y, dtype=object).ravel()):  # NumPy reads NaN among strings as "nan"
        checked_label(label, f"y[{row}]")
    labels = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
    check_consistent_length(X, labels)
    check_classification_targets(labels)
    return labels


def _places(labels: Any, classes: Any) -> Any:
    """Return each label's position among the classes; raises for one that is not among them."""
    index = {label: place for place, label in enumerate(classes.tolist())}
    at = np.array([index.get(label, -1) for label in labels.tolist()], np.intp)
    if (at < 0).any():
        unknown = labels[at < 0].tolist()[0]
        raise OutcomeError(
            f"label {unknown!r} is not one of the classes {list(index)}.",
            hint="give all classes; a classifier's are fixed in fit, or in the first partial_fit(X, y, classes=[...]).",
        )
    return at


def _outcomes(labels: Any, classes: Any) -> Array:
    """Return each label as a corner of the simplex; raises for one that is not among the classes."""
    return np.asarray(np.eye(len(classes))[_places(labels, classes)])


def _checked(forecasts: Array) -> Array:
    """Return rows of probabilities, divided by their sums where these were rounded; the first invalid one raises."""
    try:
        return read_forecast_rows(Simplex(forecasts.shape[1]), forecasts, before=-1)
    except ForecastError as error:
        raise ForecastError.at(error.round, error.problem, where="in row") from None
