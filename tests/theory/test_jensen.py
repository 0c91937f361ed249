from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from treecal.exceptions import UnsupportedError
from treecal.geometry import Gauge, Lp, Mahalanobis, Norm, SmoothedEntropy, log_vertices, vertices
from treecal.theory import jensen_gap
from treecal.theory._jensen import entropy, euclidean, polytope, quadratic_form

seeds = st.integers(0, 2**32 - 1)


def test_the_table_of_closed_forms() -> None:
    for d in (2, 3, 4, 5, 8, 9, 40):
        c = d if d % 2 == 0 else (d * d - 1) / d
        assert jensen_gap(tc.Simplex(d), "l1").value == pytest.approx(min(2 * math.log(d), c * (1 - 1 / d)))
        assert jensen_gap(tc.Simplex(d), "l2").value == pytest.approx(1 - 1 / d)
        assert jensen_gap(tc.Simplex(d), "linf").value == pytest.approx((1 - 1 / d) ** 2)
        assert jensen_gap(tc.Ball(d), "l2").value == pytest.approx(1)
        assert polytope(tc.Ball(d, norm="l1"), tc.l1).value == pytest.approx(2 * math.log(2 * d))  # type: ignore[union-attr]
    A = np.array([[2.0, 0.5], [0.5, 1.0]])
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    norm = Mahalanobis(A)
    gap = jensen_gap(tc.Box(0, 1, dim=2), norm)
    assert gap.route == "ellipsoidal norm"
    assert gap.value == pytest.approx(float(np.square(norm(corners - 0.5)).max()))


@pytest.mark.parametrize("d", [2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("name", ["l1", "linf"])
def test_zero_sum_constants_hold_and_are_attained(d: int, name: str) -> None:
    """‖x‖² <= (1/α)‖x‖₂² on zero-sum vectors, with equality for half against half, or one against all others."""
    norm: Norm = getattr(tc, name)
    gap = euclidean(tc.Simplex(d), norm)
    assert gap is not None
    constant = gap.value / (1 - 1 / d)
    x = np.random.default_rng(d).normal(size=(500, d))
    x -= x.mean(axis=1, keepdims=True)
    assert (norm(x) ** 2 <= constant * tc.l2(x) ** 2 * (1 + 1e-12)).all()
    worst = np.where(np.arange(d) < (d // 2 if name == "l1" else 1), 1.0, 0.0)
    worst -= worst.mean()
    assert norm(worst) ** 2 == pytest.approx(constant * tc.l2(worst) ** 2)


@given(seed=seeds, d=st.integers(2, 6), count=st.integers(2, 8))
@settings(max_examples=60, deadline=None)
def test_no_distribution_has_a_greater_gap(seed: int, d: int, count: int) -> None:
    """E[R(y)] − R(E[y]) for the regularizers of the table, on random laws over vertices and points."""
    rng = np.random.default_rng(seed)
    space = tc.Simplex(d)
    points = np.concatenate([np.eye(d), space.sample(rng, count)])
    law = rng.dirichlet(np.full(len(points), 0.3))
    mean = law @ points
    R = tc.NegativeEntropy()
    jensen = float(law @ R.value(points) - R.value(mean))
    for p in (1, 1.5, 2, 4, math.inf):
        modulus = R.modulus(Lp(p), dim=d)
        assert modulus is not None
        gap = entropy(space, Lp(p))
        assert gap is not None
        assert jensen / modulus <= gap.value + 1e-9
    variance = float(law @ np.square(tc.l2(points - mean)))
    assert variance <= jensen_gap(space, "l2").value + 1e-12


@given(seed=seeds, d=st.integers(1, 3), count=st.integers(2, 6), name=st.sampled_from(["l1", "linf", "gauge"]))
@settings(max_examples=15, deadline=None)
def test_the_quadratic_form_is_feasible_and_at_least_as_good(seed: int, d: int, count: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    norm: Norm = (
        Gauge(halfspaces=np.vstack([np.eye(d), rng.normal(size=(2, d))])) if name == "gauge" else getattr(tc, name)
    )
    space = tc.Polytope(vertices=rng.normal(size=(count + d, d)))
    found, plain = quadratic_form(space, norm), euclidean(space, norm)
    assert found is not None
    assert plain is not None
    assert found.matrix is not None
    assert found.value <= plain.value * (1 + 1e-5)
    points = space.sample(rng, 40)
    x = (points[:, None] - points[None]).reshape(-1, d)
    assert (np.einsum("ni,ij,nj->n", x, found.matrix, x) >= norm(x) ** 2 * (1 - 1e-9) - 1e-12).all()
    law = rng.dirichlet(np.full(40, 0.2))
    offsets = points - law @ points
    assert law @ np.einsum("ni,ij,nj->n", offsets, found.matrix, offsets) <= found.value * (1 + 1e-9)
    assert jensen_gap(space, norm, optimise=True).value <= found.value


@pytest.mark.parametrize("d", [2, 3, 4, 5])
def test_the_program_finds_the_closed_forms_of_the_simplex(d: int) -> None:
    for norm in (tc.l1, tc.linf):
        found, closed = quadratic_form(tc.Simplex(d), norm), euclidean(tc.Simplex(d), norm)
        assert found is not None
        assert closed is not None
        assert found.value == pytest.approx(closed.value, rel=1e-6)


@given(seed=seeds, d=st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_rates_bound_the_divergence(seed: int, d: int) -> None:
    """The rate given with an entropy gap is that of the smoothed entropy (erratum 3)."""
    gap = entropy(tc.Simplex(d), tc.l1)
    assert gap is not None
    assert gap.rate is not None
    assert gap.rate == pytest.approx(4 * math.log(d + 1))
    points = np.concatenate([np.eye(d), tc.Simplex(d).sample(np.random.default_rng(seed), 20)])
    assert SmoothedEntropy(d).between(points[:, None], points[None]).max() <= gap.rate + 1e-12


def test_smaller_sets_have_smaller_gaps() -> None:
    for name in ("l1", "l2", "linf"):
        simplex = [jensen_gap(tc.Simplex(d), name).value for d in range(2, 40)]
        assert simplex == sorted(simplex)
        balls = [jensen_gap(tc.Ball(3, radius=r), name).value for r in (0.5, 1, 2)]
        assert balls == sorted(balls)


def test_vertices() -> None:
    for space, count in (
        (tc.Simplex(4), 4),
        (tc.Box([0, 0, 1], [1, 2, 1]), 4),
        (tc.Ball(3, norm="l1", centre=1.0, radius=2.0), 6),
        (tc.Ball(3, norm="linf"), 8),
        (tc.Ball(1), 2),
        (tc.Polytope(vertices=[[0.0], [1.0], [0.0]]), 2),
        (tc.Product(tc.Simplex(3), tc.Box(0, 1, dim=2)), 12),
    ):
        corners, log_count = vertices(space), log_vertices(space)
        assert corners is not None
        assert log_count is not None
        assert len(corners) == round(math.exp(log_count)) == count
        assert space.contains(corners).all()
        assert tc.l2(corners - space.centre).max() == pytest.approx(space.radius("l2"))
    assert vertices(tc.Ball(3)) is None
    assert vertices(tc.Simplex(600)) is None


def test_what_is_not_known_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="no Jensen gap is known"):
        jensen_gap(tc.Ball(2), Gauge(vertices=np.eye(2)))
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(UnsupportedError, match=r"the extra theory"):
        quadratic_form(tc.Simplex(3), tc.l1)
    assert jensen_gap(tc.Simplex(3), "l1", optimise=True).route == "Euclidean"
