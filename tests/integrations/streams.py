"""A model that drifts away from the truth, as river and scikit-learn classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from river import base
from sklearn.base import BaseEstimator, ClassifierMixin

from tests.correctors.models import model
from treecal._typing import Array

LABELS = ["ant", "bee", "cat"]


def drifting(rounds: int, seed: int = 0) -> tuple[Array, list[str]]:
    """What the model says, and the labels that came."""
    said, outcomes = model("drifting", 3, rounds, seed)
    return said, [LABELS[k] for k in outcomes.argmax(axis=1)]


class Said(base.Classifier):
    """Says what it is given as features."""

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        if "refuse" in x:
            raise RuntimeError("no")

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        return {label: p for label, p in x.items() if label != "refuse"}


class SaidRows(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # untyped
    """Says what it is given as features, in rows."""

    def fit(self, X: Any, y: Any) -> SaidRows:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Any) -> Any:
        return X
