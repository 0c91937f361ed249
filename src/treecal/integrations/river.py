"""river: a classifier that recalibrates another one as it learns, calibration error as a metric, and its drift."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from treecal._optional import require
from treecal._typing import Array
from treecal._validate import sample_weight
from treecal.correctors import Corrector
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, UnsupportedError
from treecal.geometry import Cdf, Distance, Distribution, Simplex, read_forecast
from treecal.integrations._common import (
    WIDTH,
    Make,
    check_takes_weight,
    checked_label,
    error_of,
    new_corrector,
)
from treecal.monitor import Alarm, Monitor

require("river", extra="river", what="treecal.integrations.river")
from river import base, metrics

__all__ = ["CalibrationDrift", "CalibrationError", "RecalibratedClassifier", "RecalibratedRegressor"]
Probabilities = dict[Any, float]


class WrappedClassifier(base.Wrapper[base.Classifier], base.Classifier):
    """What wrappers of a classifier of one label, in `classifier`, tell river."""

    def __init__(self, classifier: base.Classifier) -> None:
        if not isinstance(classifier, base.Classifier) or isinstance(classifier, base.MultiLabelClassifier):
            raise ParameterError.expected("classifier", classifier, "a river classifier of one label")
        self.classifier = classifier

    @property
    def _wrapped_model(self) -> base.Classifier:
        return self.classifier

    @property
    def _mutable_attributes(self) -> set[str]:
        return {"classifier"}  # gives access to its own mutable attributes


class RecalibratedClassifier(WrappedClassifier):
    """A classifier whose probabilities are recalibrated online, by a corrector.

    `learn_one(x, y)` first takes the classifier's probabilities for `x`, before it has seen `y`; then the classifier
    learns `y`, and the corrector learns from the probabilities and `y`. Where labels arrive late, these are the
    probabilities at the time of the label. A sample weight `w` goes to both, and each must know weights; other keyword
    arguments go only to the classifier.

    Labels may appear at any time, in `y` or in the classifier's probabilities. A corrector and its guarantee are for a
    fixed set of classes, so **a new label starts a new corrector**, for all labels, from the classifier's own
    probabilities; its guarantee counts from that round. Name rare labels in `classes` to avoid that. Until the
    classifier returns probabilities, all known labels count as equally likely. With fewer than two labels there is
    nothing to correct.

    Returns the mean of the corrector's forecast: one probability for each label is all that river's interface holds.

    Parameters
    ----------
    classifier
        Any river classifier with probabilities, or a pipeline that ends in one.
    make
        Makes the corrector from a `Simplex` of as many classes as there are labels: a class such as
        `treecal.Recalibrator`, or a function, which must have a name if the model is to be pickled. By default
        `treecal.AutoCorrector` without an audit, whose memory does not grow.
    classes
        Labels that are known in advance.

    Attributes
    ----------
    corrector
        The current corrector; None while there are fewer than two labels.

    Examples
    --------
    >>> from river import datasets, evaluate, naive_bayes
    >>> before = evaluate.progressive_val_score(datasets.Phishing(), naive_bayes.GaussianNB(), CalibrationError())
    >>> model = RecalibratedClassifier(naive_bayes.GaussianNB())
    >>> before, evaluate.progressive_val_score(datasets.Phishing(), model, CalibrationError())
    (CalibrationError: 0.0653, CalibrationError: 0.0366)
    """

    def __init__(
        self, classifier: base.Classifier, make: Make | None = None, classes: Iterable[Hashable] | None = None
    ) -> None:
        super().__init__(classifier)
        self.make = make
        self.classes = None if classes is None else list(classes)
        self._known: tuple[dict[Any, int], Corrector | None] = {}, None  # each label's coordinate, and the corrector
        self._known = self._for(checked_label(label) for label in self.classes or ())

    @property
    def corrector(self) -> Corrector | None:
        """The current corrector; None while there are fewer than two labels."""
        return self._known[1]

    def _for(self, labels: Iterable[Any]) -> tuple[dict[Any, int], Corrector | None]:
        """Return the index and the corrector for these labels and the known ones; new ones if a label is new."""
        known, corrector = self._known
        index = dict(known)
        for label in labels:
            index.setdefault(label, len(index))
        if len(index) == len(known):
            return index, corrector
        return index, new_corrector(self.make, Simplex(len(index))) if len(index) > 1 else None

    def _ask(self, x: dict[Any, Any], **kwargs: Any) -> Probabilities:
        try:
            return self.classifier.predict_proba_one(x, **kwargs)
        except NotImplementedError:
            raise UnsupportedError(f"{self.classifier} returns no probabilities to correct.") from None

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> Probabilities:
        """Return the corrected probability of each label; {} before the first one. Changes nothing.

        Parameters
        ----------
        x
            A dictionary of features.
        **kwargs
            Passed to the classifier.
        """
        given = self._ask(x, **kwargs)
        index, corrector = self._for(given)
        if corrector is None:
            return dict.fromkeys(index, 1.0)
        return dict(zip(index, corrector.predict_many([_vector(given, index)])[0].tolist(), strict=True))

    def learn_one(self, x: dict[Any, Any], y: Any, **kwargs: Any) -> None:
        """Update the classifier, and the corrector with the probabilities that the classifier gave before.

        Parameters
        ----------
        x
            A dictionary of features.
        y
            A label.
        **kwargs
            Passed to the classifier. A sample weight `w`, if there is one, also weighs the round of the corrector; with
            0 the corrector learns nothing.
        """
        weight = sample_weight(kwargs.get("w", 1.0), "w")
        given = self._ask(x)
        index, corrector = self._for([*given, checked_label(y)])
        b = _vector(given, index)
        if corrector is not None:  # what is invalid raises before anything is learned
            corrector.predict_many([b])
            check_takes_weight(corrector, weight)
        self.classifier.learn_one(x, y, **kwargs)
        if corrector is not None and weight:
            corrector.learn(b, index[y], weight=weight)
        self._known = index, corrector

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from river import linear_model

        yield {"classifier": linear_model.LogisticRegression()}


class RecalibratedRegressor(base.Wrapper[base.Regressor], base.Regressor):
    """A regressor with distributions for forecasts, which are corrected online.

    What the regressor predicts is taken as the mean of a normal distribution, as wide as its latest hundred errors.
    `learn_one(x, y)` takes that forecast, before anything has seen `y`; then the regressor learns, and the corrector.

    Parameters
    ----------
    regressor
        Any river regressor, or a pipeline that ends in one.
    low, high
        What the number can be at the least and at the most; numbers beyond count as the end.
    make
        Makes the corrector from a `treecal.Cdf`: a class such as `treecal.LocationScale`, or a function. By default
        `treecal.AutoCorrector`.
    points
        Thresholds of the set: some ten should lie between the 10 and the 90 % quantile of a forecast.

    Attributes
    ----------
    corrector
        The corrector.
    sd
        The standard deviation of the regressor's latest errors; None before the first.

    Examples
    --------
    >>> from river import datasets, linear_model, preprocessing
    >>> model = RecalibratedRegressor(preprocessing.StandardScaler() | linear_model.LinearRegression(), 0, 50)
    >>> held = []
    >>> for x, y in datasets.TrumpApproval():
    ...     low, high = model.predict_distribution_one(x).interval(0.9)
    ...     held.append(low <= y <= high)
    ...     model.learn_one(x, y)
    >>> round(sum(held[100:]) / len(held[100:]), 1)
    0.9
    """

    def __init__(
        self, regressor: base.Regressor, low: float, high: float, make: Make | None = None, points: int = 200
    ) -> None:
        if not isinstance(regressor, base.Regressor):
            raise ParameterError.expected("regressor", regressor, "a river regressor")
        self.regressor = regressor
        self.low = low
        self.high = high
        self.make = make
        self.points = points
        self.corrector = new_corrector(make, Cdf(low, high, points=points, clip=True))
        self.sd: float | None = None
        self._learned = 0

    def _ask(self, x: dict[Any, Any], **kwargs: Any) -> dict[str, float]:
        wide = (self.high - self.low) / 4
        return {"mean": float(self.regressor.predict_one(x, **kwargs)), "sd": wide if self.sd is None else self.sd}

    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> float:
        """Return the mean of the corrected distribution. Changes nothing.

        Parameters
        ----------
        x
            A dictionary of features.
        **kwargs
            Passed to the regressor.
        """
        return float(self.predict_distribution_one(x, **kwargs).mean)

    def predict_distribution_one(self, x: dict[Any, Any], **kwargs: Any) -> Distribution:
        """Return the corrected distribution, with its quantiles and intervals. Changes nothing.

        Parameters
        ----------
        x
            A dictionary of features.
        **kwargs
            Passed to the regressor.
        """
        given = read_forecast(self.corrector.space, self._ask(x, **kwargs), self._learned + 1)
        space = self.corrector.space
        assert isinstance(space, Cdf)
        return space.distribution(self.corrector.predict_many(given[None])[0])

    def learn_one(self, x: dict[Any, Any], y: float, **kwargs: Any) -> None:
        """Update the regressor, and the corrector with what the regressor predicted before.

        Parameters
        ----------
        x
            A dictionary of features.
        y
            The number.
        **kwargs
            Passed to the regressor.
        """
        given = self._ask(x)
        b = read_forecast(self.corrector.space, given, self._learned + 1)
        number = float(y)
        if number != number:
            raise OutcomeError.at(self._learned + 1, "is NaN, expected a number.")
        self.regressor.learn_one(x, y, **kwargs)
        self.corrector.learn(b, number)
        self._learned += 1
        square = (number - given["mean"]) ** 2
        kept = 1 - 1 / min(self._learned, 100)
        self.sd = math.sqrt(kept * (self.sd or 0.0) ** 2 + (1 - kept) * square)

    @property
    def _wrapped_model(self) -> base.Regressor:
        return self.regressor

    @property
    def _mutable_attributes(self) -> set[str]:
        return {"regressor"}  # gives access to its own mutable attributes

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from river import linear_model

        yield {"regressor": linear_model.LinearRegression(), "low": -500, "high": 500}


class CalibrationError(metrics.base.ClassificationMetric):
    """Calibration error per round: how far the mean outcome of each bin lies from its forecasts.

    By default that is the class-wise ECE of an audit: the mean over labels, each in ten bins of its own probability.
    With a norm it is the error of the vectors, joint over all labels, of a `Ledger`. A label without a probability has
    probability 0, so that labels may appear over time. `revert` is exact and frees the memory of a forecast: in
    `river.utils.Rolling` memory is bounded by the window. A round counts as much as its weight `w`. `get` takes time in
    proportion to the distinct forecasts.

    Parameters
    ----------
    norm
        None; or for the joint error "l1", "l2", "linf", or any other distance of a ledger, for vectors of any length.
    resolution
        Of a joint error, the width of the cells. None compares forecasts exactly, which is informative only where they
        repeat.

    Examples
    --------
    >>> metric = CalibrationError()
    >>> for y in ["rain", "rain", "rain", "sun"]:
    ...     metric.update(y, {"rain": 0.5, "sun": 0.5})
    >>> metric
    CalibrationError: 0.25
    """

    _fmt = ".4f"

    def __init__(self, norm: Distance | str | None = None, resolution: float | None = WIDTH) -> None:
        self.norm = norm
        self.resolution = resolution
        # How often each label was seen with each weight: so that reverting is exact, whatever the weights.
        self._counts: dict[frozenset[tuple[Any, float]], Counter[tuple[Any, float]]] = {}
        self._rounds = 0  # for messages only: what counts are the counts, one for each round at once
        self.get()  # raises if norm or resolution is invalid

    def update(self, y_true: Any, y_pred: Probabilities, w: float = 1.0) -> None:
        """Count one round: the outcome, and the probabilities that were forecast; and its weight."""
        forecast, outcome = self._read(y_true, y_pred, w)
        if outcome[1]:
            self._counts.setdefault(forecast, Counter())[outcome] += 1
        self._rounds += 1

    def revert(self, y_true: Any, y_pred: Probabilities, w: float = 1.0) -> None:
        """Remove a round that was counted; any other raises."""
        forecast, outcome = self._read(y_true, y_pred, w)
        outcomes = self._counts.get(forecast, Counter())
        if outcome[1] and not outcomes[outcome]:
            raise ParameterError(
                f"no round with label {y_true!r}, weight {w!r} and forecast {y_pred!r} is left to revert."
            )
        self._rounds -= 1
        if outcome[1]:
            outcomes[outcome] -= 1
            if not outcomes[outcome]:
                del outcomes[outcome]
            if not outcomes:
                del self._counts[forecast]

    def get(self) -> float:
        """Return the error per round, as they weigh; 0 before the first round, as river's metrics do."""
        labels = [
            label
            for forecast, outcomes in self._counts.items()
            for label in (*dict(forecast), *(label for label, _ in outcomes))
        ]
        index = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        points, counts = (np.zeros((len(self._counts), max(len(index), 1))) for _ in range(2))
        for row, (forecast, outcomes) in enumerate(self._counts.items()):
            for label, p in forecast:
                points[row, index[label]] = p
            for (label, weight), times in outcomes.items():
                counts[row, index[label]] += weight * times
        return error_of(points, counts, self.norm, self.resolution)

    def _read(
        self, y_true: Any, y_pred: Probabilities, w: float
    ) -> tuple[frozenset[tuple[Any, float]], tuple[Any, float]]:
        weight = sample_weight(w, "w")
        if not isinstance(y_pred, dict) or not y_pred:
            raise ForecastError(f"y_pred is {y_pred!r}, expected a dictionary with the probability of each label.")
        space = Simplex(len(y_pred))
        forecast = read_forecast(space, [*y_pred.values()], self._rounds + 1)
        pairs = zip(y_pred, forecast.tolist(), strict=True)
        return frozenset((label, p) for label, p in pairs if p), (checked_label(y_true), weight)

    @property
    def bigger_is_better(self) -> bool:
        """False: 0 is the best."""
        return False

    @property
    def requires_labels(self) -> bool:
        """False: it needs probabilities."""
        return False

    @property
    def works_with_weights(self) -> bool:
        """True: a round counts as much as it weighs."""
        return True


class CalibrationDrift(base.DriftDetector):
    """A drift detector for probabilities: an alarm when they are provably off, whatever the accuracy does.

    As river's detectors do, it begins anew with the next update after a drift. While the probabilities are right, a
    drift is ever detected with probability `alpha` at most since it last began: see `treecal.Monitor`.

    Parameters
    ----------
    classes
        All labels.
    alpha
        The probability of a false alarm.

    Attributes
    ----------
    monitor
        The monitor of the stretch since the last drift.
    alarm
        The latest alarm, which says since when, which label, in which direction; its rounds count from where that
        stretch began. None before the first.

    Examples
    --------
    >>> drift = CalibrationDrift(["rain", "sun"])
    >>> for day in range(42):
    ...     drift.update(({"rain": 0.2, "sun": 0.8}, "rain" if day % 5 == 0 or day > 30 else "sun"))
    ...     if drift.drift_detected:
    ...         print(day, drift.alarm.where, drift.alarm.direction)
    39 sun too high
    """

    def __init__(self, classes: Iterable[Hashable], alpha: float = 0.05) -> None:
        super().__init__()
        self.classes = list(classes)
        self.alpha = alpha
        self._index = {checked_label(label): k for k, label in enumerate(self.classes)}
        if len(self._index) < len(self.classes) or len(self._index) < 2:
            raise ParameterError.expected("classes", self.classes, "two or more distinct labels")
        self.monitor = Monitor(Simplex(len(self._index)), alpha=alpha)
        self._alarm: Alarm | None = None

    @property
    def alarm(self) -> Alarm | None:
        """The latest alarm, with the label itself; None before the first."""
        found = self._alarm
        if found is None or found.kind not in ("class", "base rate") or not isinstance(found.where, int):
            return found
        label: Any = self.classes[found.where]
        return replace(found, where=label)

    def update(self, x: Any) -> None:
        """Take one data point: the probabilities that were forecast, and the label.

        Parameters
        ----------
        x
            `(probabilities, label)`, the first a dictionary as `predict_proba_one` returns it.
        """
        if not isinstance(x, tuple) or len(x) != 2 or not isinstance(x[0], dict):
            raise ParameterError.expected("x", x, "a tuple of probabilities by label, and the label")
        given, label = x
        if unknown := [other for other in (*given, checked_label(label)) if other not in self._index]:
            raise ParameterError(f"{unknown[0]!r} is not one of the classes.", hint="name all of them in classes.")
        b = _vector(given, self._index)
        monitor = self.monitor
        if self.drift_detected:
            monitor = Monitor(monitor.space, alpha=self.alpha)
        monitor.update(b, self._index[label])
        self.monitor, self._drift_detected = monitor, monitor.alarm is not None
        self._alarm = monitor.alarm or self._alarm

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"classes": ["rain", "sun"]}


def _vector(given: Probabilities, index: dict[Any, int]) -> Array | list[Any]:
    """Return the classifier's probabilities as a vector; equal ones if it gives none."""
    if not any(given.values()):
        return np.full(len(index), 1 / len(index))
    return [given.get(label, 0.0) for label in index]
