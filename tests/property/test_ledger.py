from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treecal as tc
from tests.strategies import one_hot, play, spaces, streams
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
        ([0.5, 0.6], [1, 0], ForecastError, "point 0 lies outside"),
        ([0.5, 0.25, 0.25], [1, 0], ForecastError, "3 coordinates, expected 2"),
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
    with pytest.raises(ParameterError, match="'l1', 'l2', 'linf' or a Norm"):
        ledger.error("l7")
    with pytest.raises(ParameterError, match="resolution is 0"):
        ledger.binned(resolution=0)
