"""ATB and the smooth calibration error: literal definitions, and the properties they are chosen for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog

from tests.measures.worlds import draw_classes, literal_atb, world
from treecal._typing import Array
from treecal.exceptions import ParameterError
from treecal.measures import GapSums, atb, ece, smooth_calibration_error


def rows(seed: int, n: int, *, decimals: int | None = None) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    p = rng.random(n)
    p = p if decimals is None else p.round(decimals)
    return p, (rng.random(n) < p**1.5).astype(int)


def literal_smooth(p: Array, y: Array) -> float:
    """All pairs of points, and no thought."""
    n = len(p)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    upper = np.zeros((len(pairs), n))
    for row, (i, j) in enumerate(pairs):
        upper[row, i], upper[row, j] = 1, -1
    found: Any = linprog(-(y - p) / n, A_ub=upper, b_ub=[abs(p[i] - p[j]) for i, j in pairs], bounds=(-1, 1))
    return -float(found.fun)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.sampled_from([None, 1]))
def test_atb_is_its_integral_and_its_kernel(seed: int, n: int, decimals: int | None) -> None:
    p, y = rows(seed, n, decimals=decimals)
    g = p - y
    kernel = g @ (1 - np.abs(p[:, None] - p)) @ g / n**2
    assert atb(p, y) == pytest.approx(literal_atb(p, y), abs=1e-15)
    assert atb(p, y) == pytest.approx(kernel, abs=1e-15)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_the_other_class_says_the_same(seed: int) -> None:
    p, y = rows(seed, 30)
    for measure in (atb, smooth_calibration_error):
        assert measure(p, y) == pytest.approx(measure(1 - p, 1 - y))
    P, k = world(3, sharp=2)(30, np.random.default_rng(seed))
    for measure in (atb, smooth_calibration_error):
        each = [measure(P[:, j], (k == j).astype(int)) for j in range(3)]
        assert measure(P, k) == pytest.approx(np.mean(each))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_parts_of_a_log_add_up_bit_for_bit(seed: int, parts: int) -> None:
    p, y = rows(seed, 60, decimals=2)
    cuts = np.array_split(np.random.default_rng(seed).permutation(60), parts)
    total = GapSums.of(p[cuts[0]], y[cuts[0]])
    for cut in cuts[1:]:
        total = total + GapSums.of(p[cut], y[cut])
    assert total.atb() == atb(p, y)
    assert total.smooth() == smooth_calibration_error(p, y)
    assert len(GapSums.of(p + 1e-4 * (p < 0.5), y, decimals=2).points) == len(np.unique(p))


DISTORTIONS = {
    "always 1/2": lambda p: np.full_like(p, 0.5),
    "always the base rate": lambda p: np.full_like(p, p.mean()),
    "sharper": lambda p: p**2 / (p**2 + (1 - p) ** 2),
    "a little sharper": lambda p: p**1.1 / (p**1.1 + (1 - p) ** 1.1),
    "flatter": lambda p: 0.8 * p + 0.1,
    "a little flatter": lambda p: 0.98 * p + 0.01,
    "rounded": lambda p: p.round(1),
    "shifted": lambda p: np.clip(p + 0.02, 0, 1),
    "turned": lambda p: 1 - p,
    "yes or no": lambda p: (p > 0.5).astype(float),
}


@pytest.mark.parametrize("name", DISTORTIONS)
def test_the_truth_has_the_least_expectation(name: str) -> None:
    """Exactly, by the variances of the outcomes; and in simulation, where ECE fails."""
    rng = np.random.default_rng(0)
    for n in (1, 5, 200):
        mu = rng.random(n)
        q = DISTORTIONS[name](mu)

        def expected(p: Array, mu: Array = mu, n: int = n) -> float:
            kernel = 1 - np.abs(p[:, None] - p)
            return float((mu @ (1 - mu) + (p - mu) @ kernel @ (p - mu)) / n**2)

        assert expected(mu) <= expected(q) + 1e-15
        if n == 200:
            y = (rng.random((500, n)) < mu).astype(int)
            seen = np.array([atb(q, each) for each in y])
            assert seen.mean() == pytest.approx(expected(q), abs=5 * seen.std() / np.sqrt(len(y)))


def test_ece_is_not_truthful_and_atb_is() -> None:
    rng = np.random.default_rng(0)
    logs = [(mu, (rng.random(500) < mu).astype(int)) for mu in rng.random((50, 500))]
    half = np.full(500, 0.5)
    assert np.mean([ece(mu, y) for mu, y in logs]) > 1.5 * np.mean([ece(half, y) for _, y in logs])
    assert np.mean([atb(mu, y) for mu, y in logs]) < 0.75 * np.mean([atb(half, y) for _, y in logs])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 14), st.sampled_from([None, 1, 2]))
def test_the_smooth_error_is_the_linear_program(seed: int, n: int, decimals: int | None) -> None:
    p, y = rows(seed, n, decimals=decimals)
    assert smooth_calibration_error(p, y) == pytest.approx(literal_smooth(p, y), abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 0.1))
def test_the_smooth_error_is_continuous_and_below_the_exact_error(seed: int, by: float) -> None:
    p, y = rows(seed, 40, decimals=1)
    moved = np.clip(p + by * np.random.default_rng(seed).uniform(-1, 1, 40), 0, 1)
    # A weight changes by at most |p − q|, and so does the gap it is multiplied with.
    assert (
        abs(smooth_calibration_error(p, y) - smooth_calibration_error(moved, y)) <= 2 * np.abs(p - moved).mean() + 1e-12
    )
    exact = sum(abs((y - p)[p == v].sum()) for v in np.unique(p)) / 40
    assert abs(np.mean(y - p)) - 1e-12 <= smooth_calibration_error(p, y) <= exact + 1e-12


def test_many_forecasts_are_rounded_within_the_error_stated() -> None:
    from treecal.measures._gaps import _lipschitz

    p, y = rows(0, 9000)
    order = np.argsort(p)
    exact = _lipschitz(p[order], (y - p)[order] / 9000)
    assert abs(smooth_calibration_error(p, y) - exact) <= 6.2e-5 * np.abs(y - p).mean()


def test_the_truth_of_more_classes() -> None:
    rng = np.random.default_rng(0)
    q = rng.dirichlet(np.ones(4), 300)
    wrong = q**2 / (q**2).sum(axis=1, keepdims=True)
    pairs = [(atb(q, y), atb(wrong, y)) for y in (draw_classes(q, rng) for _ in range(40))]
    right, off = np.mean(pairs, axis=0)
    assert right < off


def test_a_class_that_is_none() -> None:
    with pytest.raises(ParameterError, match="view is 2, expected at most 1"):
        GapSums.of([0.5], [0], view=2)
