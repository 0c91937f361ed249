"""river: its own checks pass, the wrapper is the corrector driven by hand, and the metric is the ledger's."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from river import (
    base,
    checks,
    datasets,
    dummy,
    evaluate,
    linear_model,
    metrics,
    naive_bayes,
    preprocessing,
    tree,
    utils,
)

import treecal as tc
from tests.integrations.streams import LABELS, Said, drifting
from tests.some import some
from treecal.correctors import Corrector
from treecal.exceptions import ForecastError, OutcomeError, ParameterError, TreeCalError, UnsupportedError
from treecal.integrations.river import CalibrationError, RecalibratedClassifier

GaussianNB: Any = naive_bayes.GaussianNB  # river leaves these untyped
Accuracy: Any = metrics.Accuracy
ImageSegments: Any = datasets.ImageSegments
QUIET = partial(tc.Recalibrator, scores=None)
GUARDED = partial(tc.GuardedCorrector, scores=None)


def both(space: tc.Simplex) -> Corrector:
    return tc.Chain([tc.VectorScaling(space, scores=None), tc.Recalibrator(space, scores=None)], scores=None)


def said(p: Any) -> dict[Any, float]:
    return dict(zip(LABELS, p, strict=True))


# River's own


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("classifier", "make"),
    [
        pytest.param(preprocessing.StandardScaler() | linear_model.LogisticRegression(), None, id="two labels"),
        pytest.param(dummy.PriorClassifier(), None, id="labels found"),
        pytest.param(dummy.PriorClassifier(), QUIET, id="groups"),
        pytest.param(dummy.PriorClassifier(), GUARDED, id="guarded"),
        pytest.param(GaussianNB(), None, id="a slow classifier"),
    ],
)
def test_river_checks(classifier: base.Classifier, make: Any) -> None:
    model = RecalibratedClassifier(classifier, make)
    assert not model._unit_test_skips()
    checks.check_estimator(model)


# What it is


@pytest.mark.parametrize("make", [None, tc.VectorScaling, tc.Recalibrator, both, GUARDED])
def test_it_is_the_corrector_driven_by_hand(make: Any) -> None:
    forecasts, labels = drifting(200)
    space = tc.Simplex(3)
    f = RecalibratedClassifier(Said(), make, classes=LABELS)
    corrector = tc.AutoCorrector(space) if make is None else make(space)
    for b, label in zip(forecasts, labels, strict=True):
        assert f.predict_proba_one(said(b)) == said(corrector.predict(b).mean)
        f.predict_proba_one(said(b[::-1]))  # leaves no trace
        corrector.update(np.eye(3)[LABELS.index(label)])
        f.learn_one(said(b), label)
    assert f.corrector is not None
    assert f.corrector.rounds == 200


@pytest.mark.parametrize("make", some([None, QUIET, both], every=3), ids=["scaling", "groups", "both"])
def test_it_puts_a_drifting_model_right(make: Any) -> None:
    forecasts, labels = drifting(2000)
    raw, after = CalibrationError(), CalibrationError()
    f = RecalibratedClassifier(Said(), make)
    for b, label in zip(forecasts, labels, strict=True):
        raw.update(label, said(b))
        after.update(label, f.predict_proba_one(said(b)))
        f.learn_one(said(b), label)
    assert after.is_better_than(raw)
    assert after.get() < 0.7 * raw.get()


def test_it_learns_before_the_classifier_does() -> None:
    """What the corrector is told of a round, the classifier said before it knew the outcome."""
    f = RecalibratedClassifier(dummy.NoChangeClassifier(), partial(tc.Recalibrator, make="mean"), classes=[0, 1])
    for k in range(100):
        f.learn_one({}, k % 2)  # the classifier says what came last, and is always wrong
    for last in (0, 1):
        f.classifier.learn_one({}, last)
        assert f.predict_proba_one({})[1 - last] > 0.9


# Integers come over time


def test_labels_come_over_time() -> None:
    f = RecalibratedClassifier(GaussianNB())
    assert f.predict_proba_one({"a": 1.0}) == {}
    assert f.predict_one({"a": 1.0}) is None
    f.learn_one({"a": 1.0}, "ant")
    assert f.predict_proba_one({"a": 1.0}) == {"ant": 1.0}
    assert f.corrector is None
    f.learn_one({"a": 2.0}, "bee")
    first = f.corrector
    assert first is not None
    assert first.space == tc.Simplex(2)
    for k in range(50):
        f.learn_one({"a": k % 3}, LABELS[k % 2])
    assert f.corrector is first
    assert first.rounds == 51
    f.learn_one({"a": 5.0}, "cat")
    assert f.corrector is not None
    assert (f.corrector.space, f.corrector.rounds) == (tc.Simplex(3), 1)
    assert list(f.predict_proba_one({"a": 1.0})) == LABELS


def test_a_new_corrector_starts_from_the_classifiers_word() -> None:
    f = RecalibratedClassifier(Said())
    for _ in range(300):
        f.learn_one({"ant": 0.9, "bee": 0.1}, "bee")
    assert f.predict_proba_one({"ant": 0.9, "bee": 0.1})["bee"] > 0.5
    new = {"ant": 0.5, "bee": 0.2, "cat": 0.3}
    assert f.predict_proba_one(new) == pytest.approx(new)
    assert f.predict_proba_one({"ant": 0.9, "bee": 0.1})["bee"] > 0.5  # a prediction founds nothing
    f.learn_one(new, "dog")  # two new labels in one round
    assert list(f.predict_proba_one(new)) == [*LABELS, "dog"]
    assert f.predict_proba_one({}).keys() == {*LABELS, "dog"}


def test_named_classes_keep_the_corrector() -> None:
    f = RecalibratedClassifier(Said(), classes=LABELS)
    first = f.corrector
    for k in range(100):
        f.learn_one({"ant": 0.9, "bee": 0.1}, LABELS[k == 50])
    f.learn_one({"ant": 0.9, "bee": 0.1}, "cat")
    assert f.corrector is first
    assert first is not None
    assert first.rounds == 101


def test_saying_nothing_is_saying_that_all_are_alike() -> None:
    f = RecalibratedClassifier(Said(), classes=["ant", "bee"])
    for nothing in ({}, {"ant": 0.0, "bee": 0.0}, {"ant": 0.0}):
        assert f.predict_proba_one(nothing) == {"ant": 0.5, "bee": 0.5}
    assert f.predict_proba_one({"ant": np.float32(0.1), "bee": np.float32(0.9)})["ant"] == pytest.approx(0.1)


# Copies


def test_clones_forget_and_pickles_remember() -> None:
    f: Any = RecalibratedClassifier(GaussianNB(), QUIET, classes=())
    for x, y in datasets.Phishing().take(100):
        f.learn_one(x, y)
    again, new = pickle.loads(pickle.dumps(f)), f.clone()
    assert f.corrector is not None
    assert (new.corrector, new.make.keywords) == (None, {"scores": None})
    for x, y in datasets.Phishing().take(150):
        assert again.predict_proba_one(x) == f.predict_proba_one(x)
        for g in (f, again):
            g.learn_one(x, y)


def test_the_classifiers_attributes_can_be_mutated() -> None:
    f = RecalibratedClassifier(tree.HoeffdingTreeClassifier())
    f.mutate({"classifier": {"grace_period": 7}})
    assert f.classifier.grace_period == 7  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="not a mutable attribute"):
        f.mutate({"make": None})


# What is refused


@pytest.mark.parametrize("label", [None, float("nan"), [1], {"a"}, np.array([1])])
def test_labels_that_are_none(label: Any) -> None:
    f, metric = RecalibratedClassifier(Said(), classes=LABELS), CalibrationError()
    before = pickle.dumps(f)
    with pytest.raises(OutcomeError, match="the label is"):
        f.learn_one({"ant": 1.0}, label)
    assert pickle.dumps(f) == before
    with pytest.raises(OutcomeError, match="the label is"):
        metric.update(label, {"ant": 1.0})
    with pytest.raises(OutcomeError, match="the label is"):
        RecalibratedClassifier(Said(), classes=[label])


def test_a_pandas_na_is_no_label() -> None:
    with pytest.raises(OutcomeError, match="the label is <NA>"):
        RecalibratedClassifier(Said()).learn_one({"ant": 1.0}, import_module("pandas").NA)


@pytest.mark.parametrize(
    ("p", "complaint"),
    [((0.5, 0.47), "sum to 0.97"), ((float("nan"), 0.5), "nan"), ((1.5, -0.5), "is -0.5"), (("a", 0.5), "type|str")],
)
def test_forecasts_that_are_none_change_nothing(p: tuple[Any, Any], complaint: str) -> None:
    f, metric, bad = RecalibratedClassifier(Said()), CalibrationError(), dict(zip("ab", p, strict=True))
    f.learn_one({"a": 0.5, "b": 0.5}, "a")
    metric.update("a", {"a": 0.5, "b": 0.5})
    expected = f.predict_proba_one({"a": 0.5, "b": 0.5})
    for act in (lambda: f.predict_proba_one(bad), lambda: f.learn_one(bad, "c"), lambda: metric.update("a", bad)):
        with pytest.raises(ForecastError, match=complaint):
            act()
    assert f.predict_proba_one({"a": 0.5, "b": 0.5}) == expected
    assert metric.get() == 0.5


def test_a_classifier_that_refuses_leaves_the_corrector_alone() -> None:
    f = RecalibratedClassifier(Said(), classes=["a", "b"])
    for label in "ac":
        with pytest.raises(RuntimeError, match="no"):
            f.learn_one({"a": 0.5, "b": 0.5, "refuse": 1}, label)
    assert f.corrector is not None
    assert (f.corrector.space.dim, f.corrector.rounds) == (2, 0)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"classifier": linear_model.LinearRegression()}, "a river classifier"),
        ({"classifier": None}, "a river classifier"),
        ({"classifier": Said(), "make": 3, "classes": LABELS}, "make is 3"),
        ({"classifier": Said(), "make": lambda space: space, "classes": LABELS}, "a corrector on"),
        ({"classifier": Said(), "make": lambda space: tc.Recalibrator(tc.Simplex(9)), "classes": LABELS}, "on Simpl"),
        ({"classifier": Said(), "make": tc.PlattScaling, "classes": LABELS}, "VectorScaling"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ParameterError, match=complaint):
        RecalibratedClassifier(**arguments)


def test_a_classifier_without_probabilities() -> None:
    class Mute(Said):
        def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
            raise NotImplementedError

    with pytest.raises(UnsupportedError, match="Mute returns no probabilities"):
        RecalibratedClassifier(Mute()).predict_proba_one({})


# The metric

FORECASTS = st.sampled_from([(1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.5, 0.25, 0.25), (0.47, 0.3, 0.23), (0.0, 0.0, 1.0)])


@settings(deadline=None)
@given(
    st.lists(st.tuples(FORECASTS, st.integers(0, 2)), min_size=1, max_size=40),
    st.sampled_from(["l1", "l2", "linf"]),
    st.sampled_from([None, 0.1, 0.3]),
    st.integers(0, 39),
)
def test_the_metric_is_the_ledgers(rounds: list[Any], norm: str, resolution: float | None, back: int) -> None:
    metric, ledger = CalibrationError(norm, resolution), tc.Ledger(tc.Simplex(3))
    for i, (p, k) in enumerate(rounds):
        # A label of probability 0 may be left out, and the order of labels is no matter.
        whole = said(p) if i % 2 else {label: q for label, q in reversed(said(p).items()) if q}
        metric.update(LABELS[k], whole)
    for p, k in rounds[:back]:
        metric.revert(LABELS[k], said(p))
    for p, k in rounds[back:]:
        ledger.record(p, np.eye(3)[k])
    reading = ledger.exact() if resolution is None else ledger.binned(resolution=resolution)
    assert metric.get() == pytest.approx(reading.error(norm) if ledger.rounds else 0.0, abs=1e-12)


def test_the_metric_in_a_window() -> None:
    rolling: Any = utils.Rolling(CalibrationError, window_size=50)
    forecasts, labels = drifting(300)
    for b, label in zip(forecasts, labels, strict=True):
        rolling.update(label, said(b))
    alone = CalibrationError()
    for b, label in zip(forecasts[-50:], labels[-50:], strict=True):
        alone.update(label, said(b))
    assert rolling.get() == pytest.approx(alone.get())
    assert len(rolling._counts) == 50


def test_the_metric_among_rivers() -> None:
    model = RecalibratedClassifier(GaussianNB())
    together: Any = CalibrationError("linf") + Accuracy()
    evaluate.progressive_val_score(ImageSegments().take(300), model, together)
    error, accuracy = together.get()
    assert 0 < error < 1
    assert 0.3 < accuracy < 1
    metric = CalibrationError()
    assert (metric.bigger_is_better, metric.requires_labels, metric.works_with_weights) == (False, False, True)
    assert metric.works_with(model)
    assert not metric.works_with(linear_model.LinearRegression())
    assert repr(metric) == "CalibrationError: 0."
    again = together[0].clone()
    assert (again.norm, again.get()) == ("linf", 0.0)


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (lambda: CalibrationError("l7.."), "l7"),
        (lambda: CalibrationError(resolution=-1), "resolution is -1"),
        (lambda: CalibrationError().update("a", {"a": 1.0}, -2.0), "w is -2.0"),
        (lambda: CalibrationError().update("a", {}), "y_pred is {}"),
        (lambda: CalibrationError().update(True, 0.7), "y_pred is 0.7"),  # type: ignore[arg-type]
        (lambda: CalibrationError().revert("a", {"a": 1.0}), "no round"),
    ],
)
def test_the_metric_refuses(act: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(TreeCalError, match=complaint):
        act()


def test_a_round_is_reverted_once() -> None:
    metric = CalibrationError()
    metric.update("a", {"a": 1.0})
    metric.update("b", {"a": 1.0})
    metric.revert("b", {"a": 1.0})
    with pytest.raises(ParameterError, match="left to revert"):
        metric.revert("b", {"a": 1.0})
    assert metric.get() == 0.0
