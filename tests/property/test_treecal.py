from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treecal as tc
from tests.strategies import one_hot, play, spaces, streams
from treecal.exceptions import GeometryError, ParameterError
from treecal.tree import Clock

seeds = st.integers(0, 2**32 - 1)


@given(space=spaces(), seed=seeds, arity=st.integers(2, 6), mix=st.sampled_from([0.0, 0.3]))
@settings(max_examples=80, deadline=None)
def test_forecasts_lie_in_the_set(space: tc.ConvexSet, seed: int, arity: int, mix: float) -> None:
    for x in play(tc.TreeCal(space, arity=arity, mix=mix), streams(space, 30, seed))[0]:
        assert space.contains(x.points).all()


@given(seed=seeds, dim=st.integers(2, 6), arity=st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_permuting_coordinates_permutes_forecasts(seed: int, dim: int, arity: int) -> None:
    rng = np.random.default_rng(seed)
    space, order = tc.Simplex(dim), rng.permutation(dim)
    outcomes = streams(space, 40, seed)
    a, _ = play(tc.TreeCal(space, arity=arity), outcomes)
    b, _ = play(tc.TreeCal(space, arity=arity), outcomes[:, order])
    for x, z in zip(a, b, strict=True):
        assert np.array_equal(x.points[:, order], z.points)


@given(seed=seeds, dim=st.integers(2, 5), image=st.integers(1, 4), arity=st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_commutes_with_linear_maps(seed: int, dim: int, image: int, arity: int) -> None:
    """TreeCal of the image of a stream is the image of TreeCal: what the polytope bound of SPEC §4 rests on."""
    vertices = np.random.default_rng(seed).normal(size=(dim, image))
    outcomes = streams(tc.Simplex(dim), 40, seed)
    above, upper = play(tc.TreeCal(tc.Simplex(dim), arity=arity), outcomes)
    polytope = tc.Polytope(vertices=vertices)
    below, lower = play(tc.TreeCal(polytope, arity=arity), outcomes @ vertices)
    for x, z in zip(above, below, strict=True):
        np.testing.assert_allclose(x.points @ vertices, z.points, rtol=1e-10, atol=1e-10)
        assert x.labels is not None
        assert np.array_equal(x.labels, z.labels)  # type: ignore[arg-type]
    # ‖V(p − q)‖ <= (D/2)‖p − q‖₁ for zero-sum p − q
    diameter = polytope.diameter("l2")
    assert lower.error("l2", labelled=True) <= diameter / 2 * upper.error("l1", labelled=True) + 1e-9


@given(arity=st.integers(2, 7), depth=st.one_of(st.none(), st.integers(1, 6)), rounds=st.integers(0, 5000))
@settings(max_examples=60, deadline=None)
def test_clock_ticks_as_it_seeks(arity: int, depth: int | None, rounds: int) -> None:
    if depth is not None:
        rounds = min(rounds, arity**depth - 1)
    ticking, sought = Clock(arity, depth), Clock(arity, depth)
    for _ in range(rounds):
        ticking.tick()
    sought.seek(rounds)
    assert (ticking.digits, ticking.powers, ticking.rounds) == (sought.digits, sought.powers, sought.rounds)
    assert sum(d * p for d, p in zip(ticking.digits, ticking.powers, strict=True)) == rounds


@given(seed=seeds, arity=st.integers(2, 5), mix=st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_mixing_moves_labels_to_the_centre(seed: int, arity: int, mix: float) -> None:
    space, outcomes = tc.Simplex(3), one_hot(3, 40, np.random.default_rng(seed))
    plain, _ = play(tc.TreeCal(space, arity=arity), outcomes)
    mixed, _ = play(tc.TreeCal(space, arity=arity, mix=mix), outcomes)
    for x, z in zip(plain, mixed, strict=True):
        np.testing.assert_allclose(z.points, (1 - mix) * x.points + mix * space.centre, atol=1e-15)


def test_memory_does_not_grow_with_rounds() -> None:
    f = tc.TreeCal(tc.Simplex(3), arity=8)
    y = np.array([1.0, 0.0, 0.0])
    for _ in range(5000):
        f.update(y)
    assert f.get_state()["sums"].shape == (5, 3)  # 8^4 <= 5000 < 8^5


def test_a_deep_tree_is_no_trouble() -> None:
    f = tc.TreeCal(tc.Simplex(2), arity=10, depth=300)
    f.update([1, 0])
    x = f.predict()
    assert len(x) == 300
    assert x.points[0].tolist() == [1.0, 0.0]
    assert (x.points[1:] == 0.5).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"arity": 1}, "arity is 1, expected a whole number of 2 or more"),
        ({"arity": 2.5}, "arity is 2.5"),
        ({"arity": True}, "arity is True"),
        ({"depth": 0}, "depth is 0, expected a whole number of 1 or more"),
        ({"mix": 1.5}, "mix is 1.5, expected a number from 0 to 1"),
        ({"mix": float("nan")}, "mix is nan"),
        ({"start": [1.0, 1.0]}, "start lies outside"),
        ({"start": [1.0]}, "start has shape"),
    ],
)
def test_bad_parameters(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        tc.TreeCal(tc.Simplex(2), **arguments)  # type: ignore[arg-type]


def test_bad_sets() -> None:
    class Off(tc.ConvexSet):
        dim, centre = 2, np.array([5.0, 5.0])

        def contains(self, points: object, *, tol: float = 0.0) -> np.bool_:  # type: ignore[override]
            return np.bool_((np.abs(np.asarray(points)) <= 1 + tol).all())

    with pytest.raises(GeometryError, match="is not one of its points"):
        tc.TreeCal(Off())
    with pytest.raises(ParameterError, match=r"for d classes, Simplex\(d\)"):
        tc.TreeCal(3)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="default_rng"):
        tc.SampleTreeCal(tc.Simplex(2), block=2, rng=7)  # type: ignore[arg-type]
