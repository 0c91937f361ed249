"""Codebook: what it is described to be, points that repeat, and books that fill up."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.forecasters.oracle_guarded import LiteralCodebook
from tests.strategies import spaces, streams
from treecal._typing import Array
from treecal.exceptions import ParameterError
from treecal.forecasters._codebook import Book, Shelf
from treecal.streams import iid, play, random_walk, regime_switches


def literal(space: tc.ConvexSet, capacity: int = 320) -> LiteralCodebook:
    classes = isinstance(space, tc.Simplex)
    return LiteralCodebook(capacity, classes=classes, dim=space.dim, l2_diameter=float(space.diameter("l2")))


def assert_same(f: tc.Codebook, slow: LiteralCodebook, outcomes: Array, *, skip: tuple[int, ...] = ()) -> None:
    """Announces the points of the slow one; in rounds to skip another forecast is announced, and the book stays."""
    size = max(1.0, float(np.abs(outcomes).max()))
    for t, y in enumerate(outcomes):
        if t in skip:
            f._overlook(y)
            continue
        expected = slow.announce(f.source.predict().mean.tolist())
        np.testing.assert_allclose(f.predict().points, [expected], rtol=1e-12, atol=1e-12 * size)
        f.update(y)
        slow.learn(y.tolist())
    assert f.points.shape == (len(slow.points), f.space.dim)
    np.testing.assert_allclose(f.points, slow.points, rtol=1e-12, atol=1e-12 * size)


@pytest.mark.parametrize("dim", [2, 3, 10])
@pytest.mark.parametrize("capacity", [2, 3, 11, 160])
def test_it_is_what_it_is_described_to_be(dim: int, capacity: int) -> None:
    space, rng = tc.Simplex(dim), np.random.default_rng(dim)
    for outcomes in (iid(space, 250, rng), regime_switches(space, 250, rng, every=40)):
        f = tc.Codebook(tc.Tracker(space), capacity=capacity)
        assert_same(f, literal(space, capacity), outcomes)


@pytest.mark.parametrize(
    "space", [tc.Ball(2), tc.Ball(3, norm="l1"), tc.Box([-1.0, 0.0], [1.0, 5.0]), tc.Product(tc.Simplex(2), tc.Ball(1))]
)
def test_it_is_what_it_is_described_to_be_elsewhere(space: tc.ConvexSet) -> None:
    for outcomes in (streams(space, 200, 0), 0.5 * streams(space, 200, 1) + 0.5 * space.centre):
        f = tc.Codebook(tc.Tracker(space))
        assert_same(f, literal(space), outcomes)


def test_rounds_of_another_forecast_teach_the_source_alone() -> None:
    space = tc.Simplex(3)
    outcomes = random_walk(space, 300, np.random.default_rng(3))
    f, tracker = tc.Codebook(tc.Tracker(space)), tc.Tracker(space)
    assert_same(f, literal(space), outcomes, skip=(0, 1, 7, *range(50, 120), 299))
    for y in outcomes:
        tracker.update(y)
    assert np.array_equal(f.source.mean_forecast, tracker.mean_forecast)
    assert f.rounds == 300


class Scripted(tc.Forecaster):
    """Announces what it will be asked to."""

    def __init__(self, space: tc.ConvexSet, script: Array) -> None:
        self.space, self.script, self._state = space, script, tc.RunningMean(space)._state

    def _announce(self) -> tc.Forecast:
        return tc.Forecast([self.script[self.rounds]], space=self.space)

    def _after(self, state: object, outcome: Array) -> object:
        return tc.RunningMean(self.space)._after(state, outcome)  # type: ignore[arg-type]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_source_on_any_set(data: st.DataObject) -> None:
    """Arbitrary forecasts, never more points than the capacity, and only those that were forecast."""
    space, rounds = data.draw(spaces()), data.draw(st.integers(1, 50))
    script, outcomes = (streams(space, rounds, data.draw(st.integers(0, 10**6))) for _ in range(2))
    repeats = data.draw(st.integers(1, rounds))
    script = script[np.arange(rounds) % repeats]
    capacity = data.draw(st.integers(2, 9))
    f = tc.Codebook(Scripted(space, script), capacity=capacity)
    asked, seen = {row.tobytes() for row in script}, set()
    for y in outcomes:
        x = f.predict()
        assert len(x) == 1
        assert x.points[0].tobytes() in asked
        seen.add(x.points[0].tobytes())
        f.update(y)
        state = f.get_state()
        assert state["used"] <= capacity
        assert state["points"].shape == state["biases"].shape
        assert state["points"].shape[0] == space.dim
        assert state["points"].shape[1] <= max(2, capacity)
    assert len(seen) <= capacity


@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_arbitrary_forecasts_of_classes(seed: int, dim: int, capacity: int) -> None:
    space, rng = tc.Simplex(dim), np.random.default_rng(seed)
    script, outcomes = rng.dirichlet(np.ones(dim), 60), np.eye(dim)[rng.integers(dim, size=60)]
    f = tc.Codebook(Scripted(space, script), capacity=capacity)
    assert_same(f, literal(space, capacity), outcomes)


def test_a_forecast_that_repeats_is_announced_as_it_is() -> None:
    """Exactly, and without a second point: a new one at the same place would be no better."""
    space, rng = tc.Simplex(3), np.random.default_rng(0)
    q = np.array([0.2, 0.3, 0.5])
    f = tc.Codebook(Scripted(space, np.tile(q, (400, 1))))
    for y in np.eye(3)[rng.choice(3, size=400, p=q)]:
        assert np.array_equal(f.predict().points, q[None])
        f.update(y)
    assert f.points.tolist() == [q.tolist()]


def test_a_full_book_announces_the_best_of_its_points() -> None:
    """However far it is: three corners are known, and the source is asked for a fourth."""
    space = tc.Simplex(4)
    script = np.eye(4)[[0, 1, 2] * 10 + [3] * 30]
    f = tc.Codebook(Scripted(space, script), capacity=3)
    for t, y in enumerate(script):
        x = f.predict()
        if t >= 30:
            assert x.points[0, 3] == 0
        f.update(y)
    assert np.array_equal(f.points, np.eye(4)[:3])
    used = np.argmax(f.get_state()["biases"][3, :3])
    assert f.get_state()["biases"][3, used] > 0


def test_a_book_keeps_room_for_forecasts_unlike_all_before() -> None:
    """Those that are alike fill half of it, however long they come; then comes a season that was not seen yet."""
    space, rng = tc.Simplex(3), np.random.default_rng(0)
    early, late = rng.dirichlet([8, 8, 2], size=1500), np.tile([0.02, 0.02, 0.96], (101, 1))
    f = tc.Codebook(Scripted(space, np.concatenate([early, late])), capacity=12)
    for q in early:
        f.update(np.eye(3)[rng.choice(3, p=q)])
    assert len(f.points) == 6
    for y in np.eye(3)[[2] * 100]:
        f.update(y)
    assert len(f.points) == 7
    assert f.predict().points[0, 2] == 0.96


def test_memory_is_bounded_and_most_points_repeat() -> None:
    space, rng = tc.Simplex(5), np.random.default_rng(0)
    f, sizes = tc.Codebook(tc.Tracker(space), capacity=20), []
    ledger = tc.Ledger(space)
    for y in random_walk(space, 3000, rng):
        ledger.record(f.predict(), y)
        f.update(y)
        if f.rounds % 500 == 0:
            sizes.append(sum(a.nbytes for a in f.get_state().values() if isinstance(a, np.ndarray)))
    assert sizes[-1] == sizes[-2] <= 20 * 8 * (2 * 5 + 2) + 200
    assert len(ledger.exact()) <= 20
    assert ledger.error("l1") < play(tc.Tracker(space), random_walk(space, 3000, rng)).error("l1") / 2


def test_a_round_that_is_given_up_leaves_no_trace() -> None:
    """Its book shares its arrays with that of the round before, and never writes to them."""
    space, rng = tc.Simplex(3), np.random.default_rng(0)
    book = Book(space, capacity=12)
    plain, trying = Shelf(book, book.empty()), Shelf(book, book.empty())
    for y in np.eye(3)[rng.integers(3, size=60)]:
        q, key = rng.dirichlet(np.ones(3)), object()
        choice = trying.choice(key, lambda q=q: q)  # type: ignore[misc]
        assert trying.choice(key, lambda: pytest.fail("it was asked for twice")) is choice
        before = deepcopy(trying.books)
        for lost in np.eye(3):
            trying.after(choice, lost)
        assert trying.books == before
        trying = trying.after(choice, y)
        plain = plain.after(plain.choice((), lambda q=q: q), y)  # type: ignore[misc]
        assert trying.books == plain.books
    assert plain.books.used == 6


def test_the_source_is_copied_and_must_be_new() -> None:
    source = tc.Tracker(tc.Simplex(2))
    f = tc.Codebook(source)
    f.update([1, 0])
    assert source.rounds == 0
    source.update([1, 0])
    for bad in (source, "tracker", None):
        with pytest.raises(ParameterError, match="source"):
            tc.Codebook(bad)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="capacity"):
        tc.Codebook(tc.Tracker(tc.Simplex(2)), capacity=1)
