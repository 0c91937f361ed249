"""Sets, norms and regularizers are tested by what defines them, not by golden numbers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.strategies import spaces
from treecal._typing import Array
from treecal.exceptions import GeometryError, ParameterError, TreeCalError, UnsupportedError
from treecal.geometry import Extent, Gauge, Lp, Mahalanobis, Norm, as_norm

seeds = st.integers(0, 2**32 - 1)


def norms(dim: int, rng: np.random.Generator) -> list[Norm]:
    root = rng.normal(size=(dim, dim)) + 3 * np.eye(dim)
    rows = np.vstack([np.eye(dim), rng.normal(size=(2, dim))])
    ellipsoid = Mahalanobis(root @ root.T)
    return [tc.l1, tc.l2, tc.linf, Lp(1.5), Lp(7), ellipsoid, Gauge(halfspaces=rows), Gauge(vertices=rows)]


# --- norms -----------------------------------------------------------------------------------------------------------


@given(seed=seeds, dim=st.integers(1, 4))
@settings(max_examples=12, deadline=None)
def test_norm_axioms_and_duality(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 5, dim))
    for norm in norms(dim, rng):
        assert (norm(x) > 0).all()
        assert norm(np.zeros(dim)) == 0
        np.testing.assert_allclose(norm(-3 * x), 3 * norm(x), rtol=1e-7)
        assert (norm(x + y) <= norm(x) + norm(y) + 1e-7).all()
        assert ((x * y).sum(-1) <= norm(x) * norm.dual(y) * (1 + 1e-7)).all()  # Hölder
        np.testing.assert_allclose(norm.dual.dual(x), norm(x), rtol=1e-7)
        np.testing.assert_allclose(norm.squared.between(x, y), norm(x - y) ** 2, rtol=1e-12)
        assert norm(x[0]).shape == ()
        assert norm(x.reshape(5, 1, dim)).shape == (5, 1)


@given(seed=seeds, dim=st.integers(1, 4), p=st.sampled_from([1, 1.5, 2, 3, math.inf]))
@settings(max_examples=40, deadline=None)
def test_dual_norm_is_attained(seed: int, dim: int, p: float) -> None:
    """sup {<v, s> : ‖s‖ <= 1} = ‖v‖*, by the unit ball's own minimiser."""
    v = np.random.default_rng(seed).normal(size=dim)
    best = tc.Ball(dim, norm=Lp(p)).minimise(-v)
    assert best @ v == pytest.approx(float(Lp(p).dual(v)), rel=1e-12)


def test_norms_by_name_and_by_value() -> None:
    assert as_norm("l1") is tc.l1
    assert Lp(2) == tc.l2
    assert hash(Lp(2)) == hash(tc.l2)
    assert Mahalanobis(np.eye(2)) == Mahalanobis([[1, 0], [0, 1]])
    assert Mahalanobis(np.eye(2)) != Mahalanobis(2 * np.eye(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lp(0.5), "p is 0.5, expected a number of 1 or more"),
        (lambda: Lp(math.nan), "p is nan"),
        (lambda: as_norm("l3"), "for other ℓp, Lp"),
        (lambda: Mahalanobis([[1, 2], [0, 1]]), "not symmetric"),
        (lambda: Mahalanobis([[1, 0], [0, -1]]), "eigenvalue -1"),
        (lambda: Mahalanobis([[1, 0]]), "expected a square"),
        (lambda: Gauge(halfspaces=[[1, 0]]), "unbounded"),
        (lambda: Gauge(vertices=[[1, 0]]), "flat"),
        (lambda: Gauge(), "not both or neither"),
        (lambda: Mahalanobis(np.eye(2))([1.0, 2.0, 3.0]), r"expected \(..., 2\)"),
    ],
)
def test_bad_norms(make: Any, message: str) -> None:
    with pytest.raises(TreeCalError, match=message):
        make()


# --- sets ------------------------------------------------------------------------------------------------------------


@given(space=spaces(), seed=seeds)
@settings(max_examples=120, deadline=None)
def test_points_of_a_set(space: tc.ConvexSet, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inside = space.sample(rng, 20)
    assert inside.shape == (20, space.dim)
    assert space.contains(inside).all()
    assert space.contains(space.centre)
    assert space.sample(rng).shape == (space.dim,)
    low, high = space.bounds()
    size = np.abs([low, high]).max()
    assert (inside >= low - 1e-9 * size).all()
    assert (inside <= high + 1e-9 * size).all()
    assert not space.contains(high + 1e-3 * (1 + size))
    for hole in (np.nan, np.inf, -np.inf):
        spoilt = np.where(np.arange(space.dim) == 0, hole, space.centre)
        assert not space.contains(spoilt)
        assert not space.admits(spoilt)


@given(space=spaces(), seed=seeds)
@settings(max_examples=80, deadline=None)
def test_linear_minimiser_is_in_the_set_and_least(space: tc.ConvexSet, seed: int) -> None:
    rng = np.random.default_rng(seed)
    directions, others = rng.normal(size=(4, space.dim)), space.sample(rng, 30)
    best = space.minimise(directions)
    assert best.shape == directions.shape
    assert space.contains(best).all()
    values = (best * directions).sum(-1)
    assert (values <= (others @ directions.T).min(axis=0) + 1e-9 * (1 + np.abs(values))).all()


@given(space=spaces(), seed=seeds)
@settings(max_examples=80, deadline=None)
def test_projection_obeys_its_variational_inequality(space: tc.ConvexSet, seed: int) -> None:
    """<x − Πx, q − Πx> <= 0 for every q of the set, and points of the set stay where they are."""
    rng = np.random.default_rng(seed)
    size = float(np.abs(space.bounds()).max()) + 1e-9
    x, others = 3 * size * rng.normal(size=(3, space.dim)), space.sample(rng, 30)
    nearest = space.project(x)
    assert space.contains(nearest, tol=1e-8).all()
    for far, near in zip(x, nearest, strict=True):
        assert ((others - near) @ (far - near) <= 1e-7 * size * (size + np.abs(far).max())).all()
    np.testing.assert_allclose(space.project(others), others, atol=1e-8 * size)
    np.testing.assert_allclose(space.project(x[0]), nearest[0], rtol=1e-12, atol=1e-12 * size)
    np.testing.assert_allclose(space.minimise(x[0]), space.minimise(x)[0], rtol=1e-12, atol=1e-12 * size)


@given(space=spaces(max_dim=3), seed=seeds)
@settings(max_examples=60, deadline=None)
def test_sizes_bound_the_set(space: tc.ConvexSet, seed: int) -> None:
    rng = np.random.default_rng(seed)
    extreme = space.minimise(rng.normal(size=(40, space.dim)))
    points = np.concatenate([extreme, space.sample(rng, 10)])
    about = space.sample(rng)
    for norm in norms(space.dim, rng)[:7]:
        diameter, radius, circumradius = space.diameter(norm), space.radius(norm), space.circumradius(norm)
        slack = 1 + 1e-9
        pairs = norm(points[:, None] - points[None])
        assert pairs.max() <= diameter * slack
        assert norm(points - space.centre).max() <= radius * slack
        assert norm(points - about).max() <= space.radius(norm, about=about) * slack
        assert circumradius <= radius * slack
        assert diameter <= 2 * circumradius * slack or not diameter.exact
        assert pairs.max() <= 2 * circumradius * slack


def corners(space: tc.ConvexSet) -> Array:
    if isinstance(space, tc.Simplex):
        return np.eye(space.dim)
    assert isinstance(space, tc.Box)
    return np.array(list(itertools.product(*zip(space.low, space.high, strict=True))))


@pytest.mark.parametrize("space", [tc.Simplex(2), tc.Simplex(4), tc.Box([0, -1, 2], [1, 3, 2.5]), tc.Box(0, 1, dim=1)])
def test_exact_sizes_are_attained(space: tc.ConvexSet) -> None:
    vertices = corners(space)
    for norm in norms(space.dim, np.random.default_rng(1)):
        diameter, radius = space.diameter(norm), space.radius(norm)
        assert diameter.exact
        assert norm(vertices[:, None] - vertices[None]).max() == pytest.approx(diameter, rel=1e-9)
        assert norm(vertices - space.centre).max() == pytest.approx(radius, rel=1e-9)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, math.inf])
@pytest.mark.parametrize("q", [1, 1.5, 2, 3, math.inf])
def test_ball_sizes_are_attained(p: float, q: float) -> None:
    """The farthest point of an ℓp ball in ℓq is an axis or a diagonal."""
    ball = tc.Ball(3, norm=Lp(p), radius=2.0)
    ends = np.array([[1.0, 0, 0], [1.0, 1, 1]])
    ends *= 2 / Lp(p)(ends)[:, None]
    assert ball.contains(ends).all()
    assert ball.circumradius(Lp(q)).exact
    assert Lp(q)(ends).max() == pytest.approx(ball.circumradius(Lp(q)), rel=1e-12)


def test_known_sizes() -> None:
    """Erratum 2: these diameters are 2, where the paper's text says 1."""
    assert float(tc.Simplex(5).diameter("l1")) == 2
    assert float(tc.Ball(5).diameter("l2")) == 2
    assert float(tc.Box(-1, 1, dim=5).diameter("linf")) == 2
    assert tc.Simplex(4).circumradius("l2") ** 2 == pytest.approx(1 - 1 / 4)
    assert tc.Simplex(4).circumradius("linf") == 1 - 1 / 4
    assert tc.Product(tc.Ball(2), tc.Ball(2)).diameter("l2") == pytest.approx(8**0.5)


def test_bounds_say_that_they_are_bounds() -> None:
    skew = Mahalanobis([[2.0, 1.0], [1.0, 2.0]])
    assert not tc.Ball(2).diameter(skew).exact
    assert "upper bound" in repr(tc.Ball(2).diameter(skew))
    square = tc.Polytope(halfspaces=([[1, 0], [-1, 0], [0, 1], [0, -1]], [1, 1, 1, 1]))
    assert square.diameter("linf").exact
    assert not square.diameter("l2").exact
    assert repr(Extent(1.5)) == "1.5"


@given(seed=seeds, dim=st.integers(1, 4), count=st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_smallest_enclosing_ball(seed: int, dim: int, count: int) -> None:
    """Jung: diameter/2 <= circumradius <= diameter·√(d/(2(d+1))); and the bound is the true radius, near enough."""
    space = tc.Polytope(vertices=np.random.default_rng(seed).normal(size=(count, dim)))
    radius, diameter = space.circumradius("l2"), space.diameter("l2")
    assert radius >= diameter / 2 * (1 - 1e-9)
    assert radius <= diameter * math.sqrt(dim / (2 * (dim + 1))) * (1 + 1e-6) + 1e-12


@given(seed=seeds, dim=st.integers(2, 4))
@settings(max_examples=20, deadline=None)
def test_vertices_and_halfspaces_of_one_polytope_agree(seed: int, dim: int) -> None:
    from scipy.spatial import ConvexHull

    rng = np.random.default_rng(seed)
    vertices = rng.normal(size=(dim + 4, dim))
    hull = ConvexHull(vertices)
    inner = tc.Polytope(vertices=vertices)
    outer = tc.Polytope(halfspaces=(hull.equations[:, :-1], -hull.equations[:, -1]))
    points = rng.normal(size=(20, dim))
    np.testing.assert_allclose(inner.project(points), outer.project(points), atol=1e-7)
    deep = np.abs((hull.equations[:, :-1] @ points.T + hull.equations[:, -1:]).max(axis=0)) > 1e-6
    assert (inner.contains(points) == outer.contains(points))[deep].all()
    v = rng.normal(size=dim)
    assert inner.minimise(v) @ v == pytest.approx(outer.minimise(v) @ v, abs=1e-7)


def test_class_names_are_part_of_a_simplex_and_of_nothing_it_computes() -> None:
    named, plain = tc.Simplex(classes=["rain", "snow", "sun"]), tc.Simplex(3)
    assert (named.dim, named.classes, plain.classes) == (3, ("rain", "snow", "sun"), None)
    assert named == tc.Simplex(classes=("rain", "snow", "sun"))
    assert hash(named) == hash(tc.Simplex(classes=("rain", "snow", "sun")))
    others = [tc.Simplex(classes=["sun", "snow", "rain"]), tc.Simplex(classes=["wet", "snow", "sun"])]
    assert len({named, plain, *others}) == 4
    assert repr(named) == "Simplex(classes=['rain', 'snow', 'sun'])"
    assert "'f', … 10 in all])" in repr(tc.Simplex(classes=list("abcdefghij")))
    assert (named.centre == plain.centre).all()
    assert named.diameter("l2") == plain.diameter("l2")
    assert (named.project([1.0, 2.0, 3.0]) == plain.project([1.0, 2.0, 3.0])).all()
    outcomes = np.random.default_rng(0).integers(3, size=40)
    for kind in (tc.TreeCal, tc.AdaptiveTreeCal, tc.Harmonic, tc.RunningMean):
        f, g = kind(named), kind(plain)
        for k in outcomes:
            f.update(np.eye(3)[k])
            g.update(np.eye(3)[k])
        assert f.predict() == g.predict()
    assert tc.replay(outcomes, named).error("l1") == tc.replay(outcomes, plain).error("l1")
    bounds = [tc.certificate(space, "l1", rounds=100, arity=4).bound for space in (named, plain)]
    assert bounds[0] == bounds[1]
    assert tc.BinaryGrid(tc.Simplex(classes=["no", "yes"])).predict() == tc.BinaryGrid(tc.Simplex(2)).predict()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tc.Simplex(0), "dim is 0, expected a whole number of 1 or more"),
        (lambda: tc.Simplex(2.0), "dim is 2.0"),  # type: ignore[arg-type]
        (lambda: tc.Simplex(), "the number of classes or their names"),
        (lambda: tc.Simplex(2, classes=["a", "b"]), "the number of classes or their names"),
        (lambda: tc.Simplex(classes=[]), "one or more names"),
        (lambda: tc.Simplex(classes="ab"), "classes is 'ab'"),
        (lambda: tc.Simplex(classes=["a", "b", "a"]), "distinct"),
        (lambda: tc.Simplex(classes=["a", ""]), "not empty"),
        (lambda: tc.Simplex(classes=["a", 1]), "one or more names"),  # type: ignore[list-item]
        (lambda: tc.Box(1, 0, dim=2), r"low\[0\] is 1, above high\[0\]"),
        (lambda: tc.Box([0, 0], [1, 1, 1]), "Box.0, 1, dim=3."),
        (lambda: tc.Box([0, 0], [1, 1, 1]), "one length"),
        (lambda: tc.Box([0, np.nan], [1, 1]), r"low holds nan at \[1\]"),
        (lambda: tc.Box("a", 1, dim=2), "low holds <U1 values"),
        (lambda: tc.Ball(2, radius=-1), "radius is -1, expected 0 or more"),
        (lambda: tc.Ball(2, centre=[0, 0, 0]), "centre has shape"),
        (lambda: tc.Ball(2, norm=Mahalanobis(np.eye(2))), "expected an ℓp norm"),
        (lambda: tc.Polytope(), "not both or neither"),
        (lambda: tc.Polytope(vertices=np.empty((0, 2))), "one point or more"),
        (lambda: tc.Polytope(halfspaces=([[1, 0]], [1])), "no bounded set"),
        (lambda: tc.Polytope(halfspaces=([[1.0], [-1.0]], [-2.0, 1.0])), "no bounded set"),
        (lambda: tc.Polytope(halfspaces=([[0, 0], [1, 0]], [1, 1])), "all zeros"),
        (lambda: tc.Product(), "one ConvexSet or more"),
        (lambda: tc.Simplex(3).contains([0.5, 0.5]), r"expected \(..., 3\)"),
        (lambda: tc.Simplex(3).radius("l2", about=[1.0]), "about has shape"),
    ],
)
def test_bad_sets(make: Any, message: str) -> None:
    with pytest.raises(TreeCalError, match=message):
        make()


def test_a_set_says_what_it_cannot_do() -> None:
    class Disc(tc.ConvexSet):
        dim, centre = 2, np.zeros(2)

        def contains(self, points: Any, *, tol: float = 1e-9) -> Any:
            return tc.l2(points) <= 1 + tol

    disc = Disc()
    for ask in (
        lambda: disc.minimise([1.0, 0.0]),
        lambda: disc.project([1.0, 0.0]),
        lambda: disc.sample(np.random.default_rng(0)),
        lambda: disc.diameter("l2"),
        lambda: disc.circumradius("l2"),
    ):
        with pytest.raises(UnsupportedError, match=r"<Disc> has no .*: its class defines no"):
            ask()
    assert disc != Disc()


def test_sets_are_values() -> None:
    for make in (
        lambda: tc.Simplex(3),
        lambda: tc.Box([0, -0.0], 1),
        lambda: tc.Ball(3, radius=2, norm="l1"),
        lambda: tc.Polytope(vertices=[[0.0], [1.0]]),
        lambda: tc.Polytope(halfspaces=([[1.0], [-1.0]], [1.0, 0.0])),
        lambda: tc.Product(tc.Simplex(2), tc.Box(0, 1, dim=2)),
    ):
        assert make() == make()
        assert hash(make()) == hash(make())
    assert tc.Simplex(2) != tc.Simplex(3)
    assert tc.Ball(2) != tc.Ball(2, radius=2)
    assert repr(tc.Ball(2)) == "Ball(2)"
    assert repr(tc.Ball(2, radius=2, norm="l1", centre=[1, 0])) == "Ball(2, radius=2, norm=l1, centre=[1.0, 0.0])"
    assert repr(tc.Polytope(vertices=np.eye(9))) == "Polytope(vertices=<array of shape (9, 9)>)"


def test_errors_are_of_one_family() -> None:
    assert issubclass(GeometryError, TreeCalError)
    assert issubclass(ParameterError, ValueError)
    assert issubclass(UnsupportedError, NotImplementedError)
