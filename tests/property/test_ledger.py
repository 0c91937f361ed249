from __future__ import annotations

import copy
import math
import pickle
import signal
import threading
from fractions import Fraction
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.strategies import one_hot, play, spaces, streams
from treecal import ledger as ledger_module
from treecal._typing import Array
from treecal.exceptions import ForecastError, OutcomeError, ParameterError
from treecal.geometry import Mahalanobis, PNorm, QuadraticForm, Regularizer

seeds = st.integers(0, 2**32 - 1)


def regularizers(dim: int) -> list[Regularizer]:
    A = np.eye(dim) + 0.3
    return [
        tc.SquaredEuclidean(),
        tc.NegativeEntropy(),
        tc.SmoothedEntropy(dim),
        PNorm(1.5),
        QuadraticForm(A),
        tc.geometry.CustomRegularizer(lambda p: (p**4).sum(-1), lambda p: 4 * p**3),
    ]


@given(space=spaces(), seed=seeds, arity=st.integers(2, 5))
@settings(max_examples=60, deadline=None)
def test_labelled_is_at_least_unlabelled(space: tc.ConvexSet, seed: int, arity: int) -> None:
    _, ledger = play(tc.TreeCal(space, arity=arity), streams(space, 40, seed))
    distances = [tc.l1, tc.l2, tc.linf, tc.l2.squared, Mahalanobis(np.eye(space.dim) + 0.5), tc.SquaredEuclidean()]
    for distance in distances:
        assert ledger.error(distance, per_node=True) >= ledger.error(distance) * (1 - 1e-12)


@given(seed=seeds, cuts=st.tuples(st.integers(0, 50), st.integers(0, 50)))
@settings(max_examples=40, deadline=None)
def test_merging_is_associative_and_equals_one_big_ledger(seed: int, cuts: tuple[int, int]) -> None:
    """Bit for bit with one-hot outcomes, where every number in a ledger is an integer."""
    space = tc.Simplex(3)
    outcomes = one_hot(3, 50, np.random.default_rng(seed))
    forecasts, whole = play(tc.TreeCal(space, arity=3), outcomes)
    i, j = sorted(cuts)
    parts = []
    for low, high in ((0, i), (i, j), (j, 50)):
        part = tc.Ledger(space)
        for x, y in zip(forecasts[low:high], outcomes[low:high], strict=True):
            part.record(x, y)
        parts.append(part)
    a, b, c = parts
    for merged in (a.merge(b).merge(c), a.merge(b.merge(c)), c.merge(a).merge(b)):
        assert merged.rounds == 50
        for per_node in (False, True):
            for distance in (tc.l1, tc.l2, tc.linf, tc.NegativeEntropy()):
                assert merged.error(distance, per_node=per_node) == whole.error(distance, per_node=per_node)


@given(space=spaces(), seed=seeds)
@settings(max_examples=40, deadline=None)
def test_merging_reals_loses_nothing_that_matters(space: tc.ConvexSet, seed: int) -> None:
    outcomes = streams(space, 30, seed)
    forecasts, whole = play(tc.TreeCal(space, arity=2), outcomes)
    even, odd = tc.Ledger(space), tc.Ledger(space)
    for t, (x, y) in enumerate(zip(forecasts, outcomes, strict=True)):
        (odd if t % 2 else even).record(x, y)
    assert even.merge(odd).error("l2") == pytest.approx(whole.error("l2"), rel=1e-13, abs=1e-13)


def swap_regret(forecasts: list[tc.Forecast], outcomes: Array, R: Regularizer) -> float:
    """Full swap regret of ℓ_t = D_R(y_t|·) from its definition: the best swap of each point, by Lemma 2.1."""
    points = {tuple(p + 0.0) for x in forecasts for p in x.points}
    regret = 0.0
    for point in points:
        p = np.array(point)
        weights = np.array([x.weights[(x.points == p).all(axis=1)].sum() for x in forecasts])
        best = weights @ outcomes / weights.sum()
        played, swapped = R.between(outcomes, p), R.between(outcomes, best)
        used = weights > 0
        regret += float(weights[used] @ (played[used] - swapped[used]))
        # ... and no other swap is better
        for other in points:
            elsewhere = R.between(outcomes, np.array(other))
            assert weights[used] @ swapped[used] <= weights[used] @ elsewhere[used] + 1e-9
    return regret


@pytest.mark.parametrize("index", range(6))
@given(seed=seeds, dim=st.integers(2, 4))
@settings(max_examples=15, deadline=None)
def test_calibration_is_full_swap_regret(index: int, seed: int, dim: int) -> None:
    """Lemma 2.2, for each regularizer; `mix` keeps the entropy finite."""
    R = regularizers(dim)[index]
    outcomes = streams(tc.Simplex(dim), 25, seed)
    forecasts, ledger = play(tc.TreeCal(tc.Simplex(dim), arity=3, mix=0.1), outcomes)
    assert ledger.error(R, total=True) == pytest.approx(swap_regret(forecasts, outcomes, R), rel=1e-8, abs=1e-9)


def test_infinite_divergence_is_infinite_error() -> None:
    ledger = tc.Ledger(tc.Simplex(2))
    ledger.record([1.0, 0.0], [0.0, 1.0])
    ledger.record([0.5, 0.5], [0.0, 1.0])
    assert ledger.error(tc.NegativeEntropy()) == math.inf
    assert ledger.error("l1") == 1.5


def test_zero_and_minus_zero_are_one_point() -> None:
    ledger = tc.Ledger(tc.Box(-1, 1, dim=1))
    ledger.record([0.0], [1.0])
    ledger.record([-0.0], [-1.0])
    assert len(ledger.exact()) == 1
    assert ledger.error("l1") == 0.0


def test_points_merge_exactly_when_their_rationals_are_equal() -> None:
    """1/3 as 1/3, 2/6, 3/9 … is one point; a float next to it is another."""
    ledger = tc.Ledger(tc.Box(0, 1, dim=1))
    for k in range(1, 200):
        ledger.record([k / (3 * k)], [0.5])
    ledger.record([np.nextafter(1 / 3, 1)], [0.5])
    assert len(ledger.exact()) == 2


def test_repeated_points_within_one_forecast_add_up() -> None:
    ledger = tc.Ledger(tc.Simplex(2))
    ledger.record(tc.Forecast([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), [1, 0])
    assert sorted(ledger.exact().weights.tolist()) == pytest.approx([1 / 3, 2 / 3], rel=1e-15)
    assert ledger.error("l1") == pytest.approx(2 / 3, rel=1e-15)


@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_sampled_forecasts_give_the_pure_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    outcomes = one_hot(2, 30, rng)
    forecasts, _ = play(tc.TreeCal(tc.Simplex(2), arity=2), outcomes)
    draws = [x.sample(rng) for x in forecasts]
    ledger = tc.Ledger(tc.Simplex(2))
    for p, y in zip(draws, outcomes, strict=True):
        ledger.record(p, y)
    pure = 0.0
    for said in {tuple(draw) for draw in draws}:
        hit = np.array([tuple(draw) == said for draw in draws])
        pure += hit.sum() * np.abs(outcomes[hit].mean(axis=0) - said).sum()
    assert ledger.error("l1", total=True) == pytest.approx(pure, rel=1e-12, abs=1e-12)


@given(space=spaces(), seed=seeds, resolution=st.floats(1e-3, 10))
@settings(max_examples=40, deadline=None)
def test_binned_is_at_most_exact_and_says_so(space: tc.ConvexSet, seed: int, resolution: float) -> None:
    _, ledger = play(tc.RunningMean(space), streams(space, 30, seed))
    binned = ledger.binned(resolution=resolution)
    assert binned.error("l2") <= ledger.error("l2") * (1 + 1e-9)
    assert "binned" in repr(binned)
    assert binned.weights.sum() == pytest.approx(30)


def test_table_accounts_for_the_whole_error() -> None:
    _, ledger = play(tc.TreeCal(tc.Simplex(3)), one_hot(3, 100, np.random.default_rng(0)))
    table = ledger.table("l1")
    assert table.weight @ table.gap == pytest.approx(ledger.error("l1", total=True), rel=1e-12)
    assert (np.diff(table.weight * table.gap) <= 1e-12).all()
    assert table.weight.sum() == pytest.approx(100)


def test_general_weights() -> None:
    ledger = tc.Ledger(tc.Simplex(2))
    for weight in (0.9, 0.1, 0.25):
        ledger.record(tc.Forecast([[0.5, 0.5], [1.0, 0.0]], weights=[weight, 1 - weight]), [1, 0])
    masses = dict(zip([p[0] for p in ledger.exact().forecasts.tolist()], ledger.exact().weights, strict=True))
    assert masses == pytest.approx({0.5: 1.25, 1.0: 1.75})
    assert ledger.error("l1", total=True) == pytest.approx(1.25)


def test_a_point_of_weight_zero_was_never_forecast() -> None:
    ledger = tc.Ledger(tc.Simplex(2))
    ledger.record(tc.Forecast([[1.0, 0.0], [0.0, 1.0]], weights=[1.0, 0.0]), [1, 0])
    assert len(ledger.exact()) == 1
    assert ledger.error(tc.NegativeEntropy()) == 0.0


def test_bad_rounds_are_not_recorded() -> None:
    ledger = tc.Ledger(tc.Simplex(2))
    ledger.record([0.5, 0.5], [1, 0])
    before = {key: np.copy(value) for key, value in ledger.get_state().items()}
    bad = [
        ([0.5, 0.5], [np.nan, 1], OutcomeError, "outcome at round 2 holds nan at entry 0"),
        ([0.5, 0.5], [0.5, 0.6], OutcomeError, "entries sum to 1.1"),
        (
            [0.5, 0.6],
            [1, 0],
            ForecastError,
            r"lies outside Simplex\(2\) by 0.1: entries sum to 1.1, expected 1 within 1e-06",
        ),
        ([0.5, 0.25, 0.25], [1, 0], ForecastError, r"has shape \(3,\), expected 2"),
        (tc.Forecast([[2.0, -1.0]]), [1, 0], ForecastError, "entry 1 is -1"),
        ("half", [1, 0], ForecastError, "expected"),
        (None, [1, 0], ForecastError, "expected"),
    ]
    for forecast, outcome, kind, message in bad:
        with pytest.raises(kind, match=message):
            ledger.record(forecast, outcome)  # type: ignore[arg-type]
        state = ledger.get_state()
        assert all(np.array_equal(before[key], state[key]) for key in before)


def test_empty_and_foreign_ledgers() -> None:
    ledger = tc.Ledger(tc.Simplex(2))
    assert ledger.error("l1", total=True) == 0.0
    with pytest.raises(ParameterError, match="no round is recorded"):
        ledger.error("l1")
    with pytest.raises(ParameterError, match="do not add up"):
        ledger.merge(tc.Ledger(tc.Simplex(3)))
    with pytest.raises(ParameterError, match="'l1', 'l2', 'linf', 'crps' or a Norm"):
        ledger.error("l7")
    with pytest.raises(ParameterError, match="resolution is 0"):
        ledger.binned(resolution=0)


class LiteralLedger:
    """The ledger written out number by number: one round, one point, one coordinate after the other."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], list[list[float]]] = {}

    def record(self, x: tc.Forecast, outcome: Array) -> None:
        parts = len(x) if all(w == 1 / len(x) for w in x.weights.tolist()) else 0
        for i, point in enumerate(x.points.tolist()):
            node = (-1, -1) if x.nodes is None else tuple(x.nodes[i].tolist())
            row = self.rows.setdefault((*(entry + 0.0 for entry in point), *node, parts), [])
            if not row:
                row += [[0.0] * (1 + len(outcome)), [0.0] * (1 + len(outcome))]
            weight = 1.0 if parts else float(x.weights[i])
            for k, amount in enumerate([weight, *(weight * entry for entry in outcome.tolist())]):
                total = row[0][k] + amount
                seen = total - row[0][k]
                row[1][k] += (row[0][k] - (total - seen)) + (amount - seen)
                row[0][k] = total

    def state(self, dim: int) -> dict[str, list[Any]]:
        names = list(self.rows)
        return {
            "points": [list(name[:dim]) for name in names],
            "keys": [list(name[dim:]) for name in names],
            "totals": [self.rows[name] for name in names],
        }


def mixed_forecasts(rng: np.random.Generator, outcomes: Array) -> list[tc.Forecast]:
    """Of two trees and one with weights, pure ones, some without nodes, with equal points and with −0.0."""
    dim = outcomes.shape[1]
    space = tc.Simplex(dim)
    trees = [tc.TreeCal(space, arity=2), tc.TreeCal(space, arity=3, depth=7), tc.AdaptiveTreeCal(space, arity=2)]
    grid = np.vstack([np.eye(dim), np.eye(dim) - 0.0 * np.ones(dim), np.eye(dim) * np.where(np.eye(dim) > 0, 1, -1)])
    forecasts = []
    for y in outcomes:
        kind = rng.integers(6)
        points = grid[rng.integers(len(grid), size=rng.integers(1, 5))]
        forecasts.append(
            trees[kind].predict()
            if kind < 3
            else tc.Forecast(points)
            if kind == 3
            else tc.Forecast(points, weights=rng.dirichlet(np.ones(len(points))))
            if kind == 4
            else tc.Forecast(points, nodes=rng.integers(2, size=(len(points), 2)))
        )
        for tree in trees:
            tree.update(y)
    return forecasts


@pytest.mark.parametrize("one_hot_outcomes", [True, False])
@pytest.mark.parametrize("batch", [1, 7, 100, 4096])
def test_it_is_the_literal_ledger_bit_for_bit(
    batch: int, one_hot_outcomes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rounds are added up at once, and whenever someone looks."""
    monkeypatch.setattr(ledger_module, "_BATCH", batch)
    rng = np.random.default_rng(batch)
    outcomes = one_hot(3, 400, rng) if one_hot_outcomes else rng.dirichlet(np.ones(3), 400)
    ledger, literal = tc.Ledger(tc.Simplex(3)), LiteralLedger()
    exact: dict[tuple[Any, ...], Fraction] = {}
    for t, (x, y) in enumerate(zip(mixed_forecasts(rng, outcomes), outcomes, strict=True)):
        ledger.record(x, y)
        literal.record(x, y)
        for point, weight in zip(x.points.tolist(), x.weights.tolist(), strict=True):
            uniform = all(w == 1 / len(x) for w in x.weights.tolist())
            share = Fraction(1, len(x)) if uniform else Fraction(weight)
            exact[tuple(point)] = exact.get(tuple(point), Fraction(0)) + share
        if t % 90 == 5:
            ledger.error("l1")
    state = ledger.get_state()
    assert state["rounds"] == ledger.rounds == 400
    for name, rows in literal.state(3).items():
        assert state[name].tolist() == rows
    assert not np.signbit(state["points"]).any()
    reading = ledger.exact()
    assert len(reading) == len(exact)
    for point, weight in zip(reading.forecasts.tolist(), reading.weights.tolist(), strict=True):
        assert weight == pytest.approx(float(exact[tuple(point)]), rel=1e-15)


def test_whole_rounds_are_counted_in_whole_numbers() -> None:
    """Uniform forecasts and one-hot outcomes leave no fraction anywhere, in any order."""
    rng, space = np.random.default_rng(0), tc.Simplex(3)
    outcomes = one_hot(3, 3000, rng)
    forecasts, ledger = play(tc.TreeCal(space, arity=3), outcomes)
    totals = ledger.get_state()["totals"]
    assert np.array_equal(totals[:, 0], np.rint(totals[:, 0]))
    assert not totals[:, 1].any()
    shuffled = tc.Ledger(space)
    for t in rng.permutation(3000):
        shuffled.record(forecasts[t], outcomes[t])
    for distance in (tc.l1, tc.l2.squared):
        assert shuffled.error(distance, per_node=True) == ledger.error(distance, per_node=True)
        assert shuffled.error(distance) == ledger.error(distance)


def test_what_is_recorded_is_what_was_there_then() -> None:
    """A caller may use his arrays again."""
    ledger, again, rng = tc.Ledger(tc.Simplex(3)), tc.Ledger(tc.Simplex(3)), np.random.default_rng(0)
    point, outcome = np.empty(3), np.empty(3)
    for _ in range(20):
        point[:], outcome[:] = rng.dirichlet(np.ones(3), 2)
        ledger.record(point, outcome)
        again.record(point.tolist(), outcome.tolist())
    point[:] = outcome[:] = 0
    assert ledger.error("l1") == again.error("l1")


def test_states_and_copies_are_kept() -> None:
    outcomes = streams(tc.Simplex(3), 60, 0)
    forecasts, _ = play(tc.AdaptiveTreeCal(tc.Simplex(3), arity=2), outcomes)
    ledger = tc.Ledger(tc.Simplex(3))
    for t in range(30):
        ledger.record(forecasts[t], outcomes[t])
    ledger.error("l1")
    ledger.record(forecasts[30], outcomes[30])
    copies = [copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger)), tc.Ledger(ledger.space)]
    state = ledger.get_state()
    kept = copy.deepcopy(state)
    copies[2].set_state(state)
    for t in range(31, 60):
        for one in (ledger, *copies):
            one.record(forecasts[t], outcomes[t])
    assert all(one.error("l2", per_node=True) == ledger.error("l2", per_node=True) for one in copies)
    assert state["rounds"] == kept["rounds"] == 31
    assert all(np.array_equal(state[name], kept[name]) for name in ("points", "keys", "totals"))
    ledger.set_state(state)
    state["totals"][:] = 0
    again = tc.Ledger(ledger.space)
    again.set_state(kept)
    assert ledger.error("l2") == again.error("l2")


def test_rows_make_a_ledger() -> None:
    outcomes = one_hot(3, 50, np.random.default_rng(0))
    _, ledger = play(tc.TreeCal(tc.Simplex(3), arity=2), outcomes)
    state = ledger.get_state()
    totals, keys = state["totals"][:, 0], state["keys"]
    points = np.where(state["points"] == 0, -0.0, state["points"])
    arguments: dict[str, Any] = {"rounds": 50, "nodes": keys[:, :2], "parts": keys[:, 2]}
    again = tc.Ledger.from_rows(ledger.space, points, totals[:, 0], totals[:, 1:], **arguments)
    for per_node in (False, True):
        assert again.error("l1", per_node=per_node) == ledger.error("l1", per_node=per_node)
    assert again.merge(ledger).error("l1") == ledger.error("l1")
    again.record([1, 0, 0], [1, 0, 0])
    assert again.rounds == 51
    assert state["rounds"] == 50
    adaptive = tc.Ledger.from_rows(
        tc.Simplex(2), [[1, 0], [0, 1]], [0.5, 1.5], [[0.5, 0], [0.375, 1.125]], rounds=2, parts=0
    )
    assert adaptive.error("l1", total=True) == 0.75
    with pytest.raises(ParameterError, match=r"have shapes .*, expected \(n, 3\), \(n,\), \(n, 3\), \(n, 2\)"):
        tc.Ledger.from_rows(ledger.space, points, totals[:, 1:], totals[:, 1:], **arguments)
    with pytest.raises(ParameterError, match="weights holds nan"):
        tc.Ledger.from_rows(tc.Simplex(2), [[1, 0]], [math.nan], [[0, 1]], rounds=1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may hit a callback of the collector
def test_an_interrupt_leaves_whole_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever an exception out of a signal hits, the ledger holds the rounds it counts and no half of another."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise InterruptedError

    monkeypatch.setattr(ledger_module, "_BATCH", 24)
    rng = np.random.default_rng(0)
    forecasts, _ = play(tc.TreeCal(tc.Simplex(2), arity=2), one_hot(2, 60, rng))
    ledger, hits, first = tc.Ledger(tc.Simplex(2)), 0, np.array([1.0, 0.0])
    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(1500):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 1e-3))
                for x in forecasts[40:52]:
                    ledger.record(x, first)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except InterruptedError:
                hits += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert hits > 100
    reading = ledger.exact(per_node=True)
    assert math.fsum(reading.weights) == pytest.approx(ledger.rounds, rel=1e-12)
    assert np.array_equal(reading.outcomes, np.tile(first, (len(reading), 1)))
    heights = {len(x) for x in forecasts[40:52]}
    assert heights == {6}
    state = ledger.get_state()
    root = state["totals"][(state["keys"][:, :2] == [5, 1]).all(axis=1), 0]
    assert root.tolist() == [[ledger.rounds, ledger.rounds, 0]]


def test_several_threads_may_read() -> None:
    outcomes = one_hot(3, 400, np.random.default_rng(0))
    forecasts, whole = play(tc.TreeCal(tc.Simplex(3), arity=2), outcomes)
    for _ in range(20):
        ledger, errors = tc.Ledger(tc.Simplex(3)), []
        for x, y in zip(forecasts, outcomes, strict=True):
            ledger.record(x, y)
        threads = [threading.Thread(target=lambda: errors.append(ledger.error("l1"))) for _ in range(4)]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == [whole.error("l1")] * 4
        assert ledger.rounds == 400


def test_rows_that_appear_twice_are_added_up_and_later_rounds_find_their_own() -> None:
    space = tc.Simplex(2)
    ledger = tc.Ledger.from_rows(space, [[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]], [1, 1, 1], [[1, 0]] * 3, rounds=3)
    for point in ([0.25, 0.75], [0.75, 0.25]):
        ledger.record(point, [0, 1])
    reading = ledger.exact()
    weights = dict(zip(map(tuple, reading.forecasts.tolist()), reading.weights.tolist(), strict=True))
    assert weights == {(0.5, 0.5): 2, (1, 0): 1, (0.25, 0.75): 1, (0.75, 0.25): 1}
    with pytest.raises(tc.TreeCalError, match="expected integers"):
        tc.Ledger.from_rows(space, [[0.5, 0.5]], [1], [[1, 0]], rounds=1, nodes=[[0.0, 0.0]])


def test_forecasts_of_other_classes_are_refused() -> None:
    ledger = tc.Ledger(tc.Simplex(classes=["sun", "rain"]))
    with pytest.raises(tc.TreeCalError, match="classes are rain, sun; the ledger's sun, rain"):
        ledger.record(tc.TreeCal(tc.Simplex(classes=["rain", "sun"])).predict(), [1, 0])
    assert ledger.rounds == 0
