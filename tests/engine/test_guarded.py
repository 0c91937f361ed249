"""A replayed guard is the guard, round by round: the same points, decisions, errors and future, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.engine.support import corners, rows_of
from tests.some import some
from tests.strategies import streams
from treecal._typing import Array
from treecal.engine import GuardedRun
from treecal.exceptions import OutcomeError, ParameterError
from treecal.geometry import Lp
from treecal.state import dumps
from treecal.streams import LedgerAdversary, drift, iid, play, regime_switches

Make = Callable[[], tc.Guarded]


def stream_through(f: tc.Guarded, outcomes: Array) -> tuple[list[tc.Forecast], list[bool], tc.Ledger]:
    forecasts, spoke, ledger = [], [], tc.Ledger(f.space)
    for y in outcomes:
        spoke.append(f.eager_speaks)
        forecasts.append(f.predict())
        ledger.record(forecasts[-1], y)
        f.update(y)
    return forecasts, spoke, ledger


def assert_same_future(a: tc.Guarded, b: tc.Guarded, outcomes: Array) -> None:
    """They go on identically; one may keep room for more points than the other."""
    for y in outcomes:
        assert a.predict() == b.predict()
        assert a.report() == b.report()
        a.update(y)
        b.update(y)
    assert a.report() == b.report()


def assert_same(make: Make, outcomes: Array, *, more: Array | None = None, given: Any = None) -> GuardedRun:
    """Replay `given`, by default the outcomes, and compare with a round at a time."""
    f = make()
    run = tc.replay(outcomes if given is None else given, make())
    forecasts, spoke, ledger = stream_through(f, outcomes)
    assert isinstance(run, GuardedRun)
    assert run.rounds == len(outcomes)
    assert ((run.announced >= 0) == spoke).all()
    for t, x in enumerate(forecasts):
        if spoke[t]:
            assert np.array_equal(run.points[run.announced[t]], x.points[0])
        if spoke[t] or t % 17 == 0:
            assert run.forecast(t) == x
    assert run.forecaster.report() == f.report()
    again = run.ledger()
    assert again.rounds == ledger.rounds
    ours, theirs = rows_of(again), rows_of(ledger)
    assert ours.keys() == theirs.keys()
    for name, total in theirs.items():
        assert ours[name] == pytest.approx(total, rel=1e-12, abs=1e-12)  # trees add in another order
    if not len(outcomes):
        return run
    for distance in (tc.l1, tc.linf):
        error = ledger.error(distance)
        assert run.error(distance) == pytest.approx(error, rel=1e-12, abs=1e-15)
        assert run.error(distance, per_node=True) == pytest.approx(ledger.error(distance, per_node=True), rel=1e-12)
        assert again.error(distance) == pytest.approx(error, rel=1e-12, abs=1e-15)
    if more is not None:
        assert run.forecast(run.rounds) == f.predict()
        assert_same_future(run.forecaster, f, more)
    return run


def mixed_rows(dim: int, rounds: int, seed: int) -> Array:
    """Corners and inner points by turns, some of them equal."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(dim), rounds)
    rows[::2] = np.eye(dim)[rng.integers(dim, size=len(rows[::2]))]
    rows[::5] = rows[0]
    return rows


OPTIONS: dict[str, dict[str, Any]] = {
    "usual": {},
    "large budget": {"budget": 2},
    "no budget": {"budget": 0},
    "error": {"error": 0.2},
    "no error": {"error": 0},
    "l2": {"norm": "l2"},
    "l2 error": {"norm": "l2", "error": 0.1},
}


@pytest.mark.parametrize(("name", "dim"), some(product(OPTIONS, [2, 3, 10]), every=2))
def test_simplices(name: str, dim: int) -> None:
    options = OPTIONS[name]
    space, rng = tc.Simplex(dim), np.random.default_rng(dim)
    outcomes = regime_switches(space, 240, rng, every=50)
    run = assert_same(lambda: tc.Guarded(space, **options), outcomes[:200], more=outcomes[200:])
    assert (run.announced >= 0).any() == (0 not in options.values())
    assert len(np.unique(run.points, axis=0)) == len(run.points) == len(set(run.announced.tolist()) - {-1})


@pytest.mark.parametrize("dim", [2, 3, 10])
@pytest.mark.parametrize("options", [{}, {"norm": "l2"}, {"error": 0.3}])
def test_outcomes_that_are_not_classes(dim: int, options: dict[str, Any]) -> None:
    rows = mixed_rows(dim, 200, dim)
    assert_same(lambda: tc.Guarded(tc.Simplex(dim), **options), rows[:160], more=rows[160:])


@pytest.mark.parametrize(
    "space", [tc.Ball(2), tc.Ball(3, norm="l1", radius=2.0), tc.Box([-1.0, 0.0], [1.0, 5.0]), tc.Box(0, 1, dim=1)]
)
@pytest.mark.parametrize("options", [{}, {"norm": "l1", "error": 0.6}, {"error": 0.2}])
def test_other_sets(space: tc.ConvexSet, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    for outcomes in (streams(space, 150, 0), drift(space, 150, rng)):
        assert_same(lambda: tc.Guarded(space, **options), outcomes[:125], more=outcomes[125:])


@pytest.mark.parametrize("safe", [{"arity": 2}, {"arity": 3, "start": [1.0, 0.0, 0.0]}, {"arity": 8}])
def test_other_trees(safe: dict[str, Any]) -> None:
    space = tc.Simplex(3)
    outcomes = iid(space, 400, np.random.default_rng(5))
    assert_same(
        lambda: tc.Guarded(space, safe=tc.TreeCal(space, **safe), error=0.1), outcomes[:333], more=outcomes[333:]
    )


@pytest.mark.parametrize("safe", [{"block": 5}, {"block": 64}, {"start": [1.0, 0.0, 0.0]}])
def test_harmonic_in_blocks_and_for_ever(safe: dict[str, Any]) -> None:
    space = tc.Simplex(3)
    outcomes = regime_switches(space, 256, np.random.default_rng(2), every=40)
    make = partial(tc.Guarded, space, safe=tc.Harmonic(space, **safe), error=0.1)
    run = assert_same(make, outcomes[:200], more=outcomes[200:])
    assert (run.announced < 0).sum() > 20


def test_grids_with_other_bins_and_sources_with_other_books() -> None:
    space = tc.Simplex(2)
    outcomes = regime_switches(space, 500, np.random.default_rng(4), every=60)[:260]
    for bins in (1, 2, 7):
        safe = tc.BinaryGrid(space, bins=bins)
        assert_same(partial(tc.Guarded, space, safe=safe, error=0.1), outcomes[:200], more=outcomes[200:])
    for period, capacity in ((None, 3), (60, 2), (120, 40)):
        book = tc.Codebook(tc.Tracker(space, period=period), capacity=capacity)
        assert_same(partial(tc.Guarded, space, eager=book), outcomes[:200], more=outcomes[200:])


@pytest.mark.parametrize("dim", [2, 3, 5])
def test_outcomes_of_an_adversary(dim: int) -> None:
    """The guard shuts and opens many times."""
    space, ledger, outcomes = tc.Simplex(dim), tc.Ledger(tc.Simplex(dim)), []
    f, adversary = tc.Guarded(space), LedgerAdversary(space, rng=np.random.default_rng(0))
    for _ in range(350):
        outcomes.append(adversary.outcome(f.predict()))
        ledger.record(f.predict(), outcomes[-1])
        f.update(outcomes[-1])
    run = assert_same(lambda: tc.Guarded(space), np.array(outcomes[:300]), more=np.array(outcomes[300:]))
    assert np.abs(np.diff(run.announced >= 0)).sum() > 5
    assert run.forecaster.report() == f.report()


@given(st.integers(2, 12), st.integers(0, 80), st.integers(0, 10**6), st.booleans())
@settings(max_examples=15, deadline=None)
def test_classes_are_corners(dim: int, rounds: int, seed: int, as_lists: bool) -> None:
    rng = np.random.default_rng(seed)
    classes = rng.choice(dim, size=rounds, p=rng.dirichlet(np.ones(dim)))
    given = classes.tolist() if as_lists else classes.astype(np.int16)
    assert_same(lambda: tc.Guarded(tc.Simplex(dim)), corners(dim, classes), given=given, more=np.eye(dim))


def test_iterators_and_other_arrays() -> None:
    space = tc.Simplex(3)
    classes = np.random.default_rng(1).choice(3, size=300, p=[0.5, 0.3, 0.2])
    rows = corners(3, classes)

    def pieces(whole: Any) -> Iterator[Any]:
        return iter([whole[:0], whole[:1], whole[1:200], whole[200:]])

    plain = tc.replay(rows, tc.Guarded(space))
    for form in (pieces(rows), pieces(classes), rows.astype(np.float32), rows.tolist(), rows[::-1][::-1]):
        run = tc.replay(form, tc.Guarded(space))
        assert np.array_equal(run.announced, plain.announced)
        assert np.array_equal(run.points, plain.points)
        assert run.error("l1") == plain.error("l1")
        assert dumps(run.forecaster) == dumps(plain.forecaster)


def test_pieces_of_rows_and_of_classes_may_be_mixed() -> None:
    classes = np.random.default_rng(1).choice(3, size=100)
    run = tc.replay(iter([classes[:40], corners(3, classes[40:])]), tc.Guarded(tc.Simplex(3)))
    assert run.error("l1") == tc.replay(classes, tc.Guarded(tc.Simplex(3))).error("l1")


def test_streams_of_no_rounds_and_of_one() -> None:
    space = tc.Simplex(3)
    nothing: list[Any] = [[], np.empty((0, 3)), iter([])]
    for outcomes in nothing:
        run = tc.replay(outcomes, tc.Guarded(space))
        assert (run.rounds, len(run.points), len(run.announced)) == (0, 0, 0)
        assert run.forecast(0) == tc.Guarded(space).predict()
        assert run.ledger().rounds == 0
        assert_same_future(run.forecaster, tc.Guarded(space), np.eye(3))
    assert_same(lambda: tc.Guarded(space), np.eye(3)[:1], more=np.eye(3))
    assert_same(lambda: tc.Guarded(space, error=5.0), np.eye(3)[:1], more=np.eye(3))


def test_a_run_never_changes() -> None:
    """Not by what its forecaster learns afterwards, nor by what is done to the outcomes."""
    space = tc.Simplex(3)
    outcomes = iid(space, 300, np.random.default_rng(0))
    new = tc.Guarded(space)
    before = dumps(new)
    run = tc.replay(outcomes, new)
    again = tc.replay(outcomes.copy(), tc.Guarded(space))
    f, points, announced = run.forecaster, run.points.copy(), run.announced.copy()
    for y in np.eye(3)[[0, 1, 2] * 20]:
        f.update(y)
    assert dumps(new) == before
    assert np.array_equal(run.points, points)
    assert np.array_equal(run.announced, announced)
    assert run.error("l1") == again.error("l1")
    assert run.forecast(299) == again.forecast(299)
    assert rows_of(run.ledger()) == rows_of(again.ledger())


def test_the_forecaster_of_a_run_can_be_saved() -> None:
    space = tc.Simplex(3)
    outcomes = regime_switches(space, 500, np.random.default_rng(0), every=90)
    budgets: list[dict[str, Any]] = [{}, {"error": 0.2}]
    for options in budgets:
        f = tc.replay(outcomes[:400], tc.Guarded(space, **options)).forecaster
        again = tc.state.loads(dumps(f))
        assert_same_future(again, deepcopy(f), outcomes[400:])


def test_what_cannot_be_replayed() -> None:
    space = tc.Simplex(3)
    for f in (
        tc.Guarded(space, eager=tc.Tracker(space)),
        tc.Guarded(space, eager=tc.Codebook(tc.RunningMean(space))),
        tc.Guarded(space, safe=tc.SimplexGrid(space)),
        tc.Guarded(space, safe=tc.AdaptiveTreeCal(space), error=0.1),
        tc.Guarded(space, safe=tc.TreeCal(space, arity=2, depth=3)),
        tc.Guarded(space, norm="linf"),
        tc.Guarded(space, norm=Lp(3)),
    ):
        with pytest.raises(ParameterError, match=r"streams\.play"):
            tc.replay(np.eye(3), f)
        assert play(f, np.eye(3)).rounds == 3
    old = tc.Guarded(space)
    old.update([1, 0, 0])
    with pytest.raises(ParameterError, match="has seen outcomes"):
        tc.replay(np.eye(3), old)


def test_invalid_outcomes_are_named() -> None:
    space, rows = tc.Simplex(3), np.tile(np.eye(3), (10, 1))
    bad = rows.copy()
    bad[20] = [0.5, 0.6, 0.0]
    for form in (bad, iter([bad[:15], bad[15:]])):
        with pytest.raises(OutcomeError, match="round 21"):
            tc.replay(form, tc.Guarded(space))
    with pytest.raises(OutcomeError, match="round 4"):
        tc.replay(np.array([0, 1, 2, 3]), tc.Guarded(space))
    with pytest.raises(OutcomeError):
        tc.replay(np.eye(4), tc.Guarded(space))
    for t in (-1, 31, 0.5):
        with pytest.raises(ParameterError, match="t"):
            tc.replay(rows, tc.Guarded(space)).forecast(t)  # type: ignore[arg-type]


def test_table_and_reading() -> None:
    run = tc.replay(iid(tc.Simplex(3), 500, np.random.default_rng(0)), tc.Guarded(tc.Simplex(3)))
    table = run.table("l1")
    assert table.weight @ table.gap / run.rounds == pytest.approx(run.error("l1"), rel=1e-12)
    assert run.error("l1", total=True) == pytest.approx(500 * run.error("l1"))
    assert "500 rounds" in repr(run)
