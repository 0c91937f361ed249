"""Scores against scikit-learn and literal definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from tests.measures.worlds import world
from treecal.exceptions import TreeCalError
from treecal.measures import accuracy, brier, ece, log_score, skill


@pytest.mark.parametrize("d", [2, 3, 10])
@pytest.mark.parametrize("weighted", [False, True])
def test_as_scikit_learn(d: int, weighted: bool) -> None:
    rng = np.random.default_rng(d)
    P, y = world(d, sharp=1.5)(200, rng)
    w = rng.random(200) if weighted else None
    labels = list(range(d))
    half = brier_score_loss(np.eye(d)[y], P, sample_weight=w, scale_by_half=False)
    assert brier(P, y, weights=w) == pytest.approx(half)
    assert log_score(P, y, weights=w) == pytest.approx(log_loss(y, P, sample_weight=w, labels=labels))
    assert accuracy(P, y, weights=w) == pytest.approx(accuracy_score(y, P.argmax(axis=1), sample_weight=w))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_skill_is_one_less_the_ratio_to_the_best_constant(seed: int, d: int) -> None:
    P, y = world(d)(40, np.random.default_rng(seed))
    base = np.tile(np.bincount(y, minlength=d) / 40, (40, 1))
    if len(np.unique(y)) > 1:
        assert skill(P, y) == pytest.approx(1 - brier(P, y) / brier(base, y))
        assert skill(P, y, score="log") == pytest.approx(1 - log_score(P, y) / log_score(base, y))
        assert skill(base, y) == pytest.approx(0)
        other = P[0]
        against = brier(np.tile(other, (40, 1)), y)
        assert skill(P, y, climatology=other) == pytest.approx(1 - brier(P, y) / against)


def test_weights_are_repeated_rows() -> None:
    P, y = world(3, sharp=2)(50, np.random.default_rng(0))
    w = np.random.default_rng(1).integers(1, 4, 50)
    again = np.repeat(np.arange(50), w)
    for measure in (brier, log_score, accuracy, skill, ece):
        assert measure(P, y, weights=w) == pytest.approx(measure(P[again], y[again]))


def test_one_class_only() -> None:
    assert skill([1.0, 1.0], [1, 1]) == 0
    assert skill([0.9, 1.0], [1, 1]) == -np.inf
    assert log_score([1.0, 0.0], [1, 1]) == np.inf


@pytest.mark.parametrize(
    ("P", "y", "weights", "words"),
    [
        ([[0.5, 0.5], [0.7, 0.7]], [0, 1], None, "forecast in row 1 has least entry 0.7 and sum 1.4"),
        ([0.5, 1.5], [0, 1], None, "forecast in row 1 is 1.5, expected a probability from 0 to 1"),
        ([0.5, np.nan], [0, 1], None, "P holds nan at"),
        ([0.5, 0.5], [0, 2], None, "outcome in row 1 is 2, expected a class from 0 to 1"),
        ([0.5, 0.5], [0.0, 1.0], None, "expected a class index for each of 2 rows"),
        ([0.5, 0.5], [0], None, "expected a class index for each of 2 rows"),
        ([], [], None, "P has shape (0,)"),
        ([0.5, 0.5], [0, 1], [1, -1], "weights have shape (2,) and least entry -1"),
        ([0.5, 0.5], [0, 1], [0, 0], "not all 0"),
        ([0.5, 0.5], [0, 1], [1, np.inf], "weights holds inf"),
    ],
)
def test_invalid_rows(P: list[float], y: list[int], weights: list[float] | None, words: str) -> None:
    with pytest.raises(TreeCalError) as error:
        brier(P, y, weights=weights)
    assert words in str(error.value)
