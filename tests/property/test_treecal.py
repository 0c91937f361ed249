from __future__ import annotations

import copy
import pickle
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.strategies import one_hot, play, spaces, streams
from treecal._typing import Array
from treecal.exceptions import GeometryError, ParameterError

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
    """TreeCal of the image of a stream is the image of TreeCal: what the polytope bound rests on."""
    vertices = np.random.default_rng(seed).normal(size=(dim, image))
    outcomes = streams(tc.Simplex(dim), 40, seed)
    above, upper = play(tc.TreeCal(tc.Simplex(dim), arity=arity), outcomes)
    polytope = tc.Polytope(vertices=vertices)
    below, lower = play(tc.TreeCal(polytope, arity=arity), outcomes @ vertices)
    for x, z in zip(above, below, strict=True):
        np.testing.assert_allclose(x.points @ vertices, z.points, rtol=1e-10, atol=1e-10)
        assert x.nodes is not None
        assert np.array_equal(x.nodes, z.nodes)  # type: ignore[arg-type]
    # ‖V(p − q)‖ <= (D/2)‖p − q‖₁ for zero-sum p − q
    diameter = polytope.diameter("l2")
    assert lower.error("l2", per_node=True) <= diameter / 2 * upper.error("l1", per_node=True) + 1e-9


@given(seed=seeds, arity=st.integers(2, 5), mix=st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_mixing_moves_labels_to_the_centre(seed: int, arity: int, mix: float) -> None:
    space, outcomes = tc.Simplex(3), one_hot(3, 40, np.random.default_rng(seed))
    plain, _ = play(tc.TreeCal(space, arity=arity), outcomes)
    mixed, _ = play(tc.TreeCal(space, arity=arity, mix=mix), outcomes)
    for x, z in zip(plain, mixed, strict=True):
        np.testing.assert_allclose(z.points, (1 - mix) * x.points + mix * space.centre, atol=1e-15)


@pytest.mark.parametrize("kind", [tc.TreeCal, tc.AdaptiveTreeCal])
def test_what_is_held_never_changes_whatever_another_thread_does(kind: Callable[..., tc.Forecaster]) -> None:
    """One thread updates, another holds forecasts and compares them with what they were when it got them."""
    f, outcomes, done = kind(tc.Simplex(3), arity=2), one_hot(3, 500, np.random.default_rng(0)), threading.Event()

    def write() -> None:
        for _ in range(20):
            for y in outcomes:
                f.update(y)
        done.set()

    held: deque[tuple[tc.Forecast, bytes, bytes]] = deque(maxlen=64)
    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        x = f.predict()
        held.append((x, x.points.tobytes(), x.weights.tobytes()))
        for forecast, points, weights in held:
            assert (forecast.points.tobytes(), forecast.weights.tobytes()) == (points, weights)
            assert forecast.nodes is not None
            assert len(forecast.nodes) == len(forecast)
    writer.join()
    assert f.rounds == 10_000


@given(seed=seeds, dim=st.sampled_from([1, 2, 5, 17, 128, 129]), arity=st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_a_class_is_taken_like_any_other_outcome(seed: int, dim: int, arity: int) -> None:
    """Unit vectors have a shorter way, vectors of integers or with zeros of the other sign the common one."""
    rng, space = np.random.default_rng(seed), tc.Simplex(dim)
    short, common, whole = (tc.TreeCal(space, arity=arity) for _ in range(3))
    for _ in range(40):
        y = np.eye(dim)[rng.integers(dim)] if rng.random() < 0.8 else space.sample(rng)
        short.update(y)
        common.update(np.where(y == 0, -0.0, y))
        whole.update((y.astype(int) if set(y) <= {0.0, 1.0} else y).tolist())
        assert short.predict() == common.predict() == whole.predict()
        sums, others = (np.signbit(f.get_state()["sums"]) for f in (short, common))
        assert np.array_equal(sums, others)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
@pytest.mark.parametrize("kind", [tc.TreeCal, tc.AdaptiveTreeCal])
def test_copies_go_their_own_way(kind: Callable[[tc.ConvexSet], Any], again: Callable[[Any], Any]) -> None:
    outcomes = one_hot(3, 40, np.random.default_rng(0))
    f = kind(tc.Simplex(3))
    play(f, outcomes[:21])
    g, before = again(f), f.predict()
    assert g.predict() == before
    play(g, outcomes[21:])
    assert f.predict() == before
    play(f, outcomes[21:])
    assert f.predict() == g.predict()


def test_a_subclass_is_heard() -> None:
    """TreeCal keeps to the hooks that `Forecaster` documents."""

    class Loud(tc.TreeCal):
        heard = 0

        def _learn(self, outcome: Array) -> None:
            self.heard += 1
            super()._learn(outcome)

    f = Loud(tc.Simplex(2))
    f.update([1, 0])
    assert (f.heard, f.rounds) == (1, 1)


def test_memory_does_not_grow_with_rounds() -> None:
    f = tc.TreeCal(tc.Simplex(3), arity=8)
    y = np.array([1.0, 0.0, 0.0])
    for _ in range(5000):
        f.update(y)
    assert f.get_state()["sums"].shape == (5, 1, 3)  # 8^4 <= 5000 < 8^5


def test_the_deepest_tree_is_no_trouble() -> None:
    f = tc.TreeCal(tc.Simplex(2), arity=2, depth=63)
    f.update([1, 0])
    x = f.predict()
    assert len(x) == 63
    assert x.points[0].tolist() == [1.0, 0.0]
    assert (x.points[1:] == 0.5).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"arity": 1}, "arity is 1, expected a whole number of 2 or more"),
        ({"arity": 2.5}, "arity is 2.5"),
        ({"arity": True}, "arity is True"),
        ({"depth": 0}, "depth is 0, expected a whole number of 1 or more"),
        ({"arity": 2, "depth": 64}, "depth is 64, expected at most 63 for arity 2: rounds are counted in 64 bits"),
        ({"arity": 10, "depth": 300}, "depth is 300, expected at most 18 for arity 10"),
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
