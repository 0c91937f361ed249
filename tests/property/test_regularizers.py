from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.property.test_ledger import regularizers
from treecal.exceptions import GeometryError, ParameterError
from treecal.geometry import CustomRegularizer, Lp, Mahalanobis, PNorm, QuadraticForm

seeds = st.integers(0, 2**32 - 1)
KINDS = range(6)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, dim=st.integers(2, 5))
@settings(max_examples=20, deadline=None)
def test_gradient_is_the_derivative(kind: int, seed: int, dim: int) -> None:
    R, rng = regularizers(dim)[kind], np.random.default_rng(seed)
    p = 0.05 + 0.9 * rng.dirichlet(np.ones(dim))
    step = 1e-6 * np.eye(dim)
    numerical = (R.value(p + step) - R.value(p - step)) / 2e-6
    np.testing.assert_allclose(R.gradient(p), numerical, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, dim=st.integers(2, 5))
@settings(max_examples=20, deadline=None)
def test_divergence_is_its_definition(kind: int, seed: int, dim: int) -> None:
    R, rng = regularizers(dim)[kind], np.random.default_rng(seed)
    y, p = rng.dirichlet(np.ones(dim), (2, 6))
    literal = R.value(y) - R.value(p) - (R.gradient(p) * (y - p)).sum(-1)
    np.testing.assert_allclose(R.between(y, p), literal, rtol=1e-9, atol=1e-10)
    assert (R.between(y, p) >= 0).all()
    np.testing.assert_allclose(R.between(p, p), 0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, dim=st.integers(2, 5), count=st.integers(1, 8))
@settings(max_examples=20, deadline=None)
def test_bias_variance_identity(kind: int, seed: int, dim: int, count: int) -> None:
    """Lemma 2.1: E D_R(y|p) = D_R(ȳ|p) + E R(y) − R(ȳ)."""
    R, rng = regularizers(dim)[kind], np.random.default_rng(seed)
    y, weights, p = rng.dirichlet(np.ones(dim), count), rng.dirichlet(np.ones(count)), rng.dirichlet(np.ones(dim))
    mean = weights @ y
    left = weights @ R.between(y, p)
    right = R.between(mean, p) + weights @ R.value(y) - R.value(mean)
    assert left == pytest.approx(float(right), rel=1e-9, abs=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, dim=st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_strong_convexity_modulus_holds_on_the_simplex(kind: int, seed: int, dim: int) -> None:
    R, rng = regularizers(dim)[kind], np.random.default_rng(seed)
    y, p = rng.dirichlet(np.full(dim, 0.3), (2, 50))
    p = 0.999 * p + 0.001 / dim
    root = rng.normal(size=(dim, dim)) + 2 * np.eye(dim)
    for norm in (tc.l1, tc.l2, tc.linf, Lp(1.3), Lp(4), Mahalanobis(root @ root.T)):
        modulus = R.modulus(norm, dim=dim)
        if modulus is not None:
            assert (R.between(y, p) >= modulus * norm(y - p) ** 2 * (1 - 1e-9) - 1e-12).all()


def test_moduli_are_sharp_where_we_say_so() -> None:
    """Near the edge between two classes Pinsker is tight, so entropy has no modulus above ½ in ℓ1 (erratum 3)."""
    p, y = np.array([0.5, 0.5]), np.array([0.5 + 1e-3, 0.5 - 1e-3])
    for norm in (tc.l1, tc.l2, tc.linf, Lp(3)):
        ratio = tc.NegativeEntropy().between(y, p) / norm(y - p) ** 2
        assert ratio == pytest.approx(tc.NegativeEntropy().modulus(norm, dim=2), rel=1e-4)
    assert tc.SquaredEuclidean().modulus("l1", dim=4) == pytest.approx(
        tc.SquaredEuclidean().value(np.ones(4)) / tc.l1(np.ones(4)) ** 2
    )
    assert PNorm(3).modulus("l2", dim=2) is None


@given(seed=seeds, dim=st.integers(2, 30))
@settings(max_examples=40, deadline=None)
def test_smoothed_entropy_is_bounded(seed: int, dim: int) -> None:
    """Erratum 3: ‖y − p‖₁² <= D_R(y|p) <= 4 ln(d + 1) on the whole simplex, vertices included."""
    R, rng = tc.SmoothedEntropy(dim), np.random.default_rng(seed)
    points = np.concatenate([np.eye(dim), rng.dirichlet(np.full(dim, 0.2), 20)])
    y, p = points[:, None], points[None]
    divergence = R.between(y, p)
    assert (divergence >= tc.l1(y - p) ** 2 - 1e-9).all()
    assert (divergence <= 4 * math.log(dim + 1) + 1e-9).all()


def test_infinite_but_never_nan() -> None:
    points = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [-0.5, 1.5], [-1e-12, 1.0]])
    custom = CustomRegularizer(tc.NegativeEntropy().value, tc.NegativeEntropy().gradient)
    for R in (tc.NegativeEntropy(), custom):
        divergence = R.between(points[:, None], points[None])
        assert not np.isnan(divergence).any()
        assert divergence[0, 1] == math.inf  # the forecast rules out what happened
        assert divergence[3, 2] == math.inf  # outside the domain
        assert divergence[0, 0] == 0
    assert tc.NegativeEntropy().between(points[0], points[4]) == 0  # within tolerance of the simplex
    assert PNorm(1.5).gradient([0.0, 0.0]).tolist() == [0.0, 0.0]


def test_bad_regularizers() -> None:
    with pytest.raises(ParameterError, match="exponent is 1"):
        PNorm(1)
    with pytest.raises(GeometryError, match="eigenvalue"):
        QuadraticForm([[0.0]])
    with pytest.raises(GeometryError, match="the value is NaN"):
        CustomRegularizer(lambda p: p.sum(-1) * np.nan, lambda p: p).between([1.0], [0.0])
    with pytest.raises(GeometryError, match="the gradient has shape"):
        CustomRegularizer(lambda p: p.sum(-1), lambda p: p.sum(-1)).between([1.0], [0.0])
