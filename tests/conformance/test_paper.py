"""TreeCal and SampleTreeCal equal the paper's algorithms exactly, as rationals."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

import treecal as tc
from tests import oracle
from tests.strategies import one_hot, play
from treecal._typing import Array
from treecal.exceptions import HorizonError


def rationals(rows: Array) -> list[oracle.Point]:
    return [tuple(Fraction(entry) for entry in row) for row in rows.tolist()]


def assert_same(forecasts: Sequence[tc.Forecast], played: Sequence[oracle.Mixture]) -> None:
    """Every point is the rational one correctly rounded, under the same node and with the same weight."""
    for x, mixture in zip(forecasts, played, strict=True):
        assert x.nodes is not None
        ours = sorted(zip(x.nodes.tolist(), x.points.tolist(), x.weights.tolist(), strict=True))
        theirs = sorted(
            ([height, index], [float(entry) for entry in point], float(weight))
            for (height, index), point, weight in mixture
        )
        assert ours == [tuple(row) for row in theirs]


def centre(dim: int) -> oracle.Point:
    return (Fraction(1, dim),) * dim


@pytest.mark.parametrize("arity", [2, 3, 4, 5])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_fixed_depth_is_algorithm_1(arity: int, depth: int) -> None:
    rng = np.random.default_rng([arity, depth])
    outcomes = one_hot(3, arity**depth, rng)
    forecasts, ledger = play(tc.TreeCal(tc.Simplex(3), arity=arity, depth=depth), outcomes)
    played = oracle.treecal(rationals(outcomes), arity, depth, centre(3))
    assert_same(forecasts, played)
    for per_node in (False, True):
        for norm, exact in ((tc.l1, oracle.one_norm), (tc.l2.squared, oracle.squared_two_norm)):
            error = oracle.calibration(played, rationals(outcomes), exact, per_node=per_node)
            assert ledger.error(norm, per_node=per_node, total=True) == pytest.approx(
                float(error), rel=1e-14, abs=1e-14
            )


@pytest.mark.parametrize(("arity", "depth"), [(2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3), (4, 2), (5, 2)])
def test_every_number_of_rounds(arity: int, depth: int) -> None:
    """Algorithm 1 takes T; ours does not. It makes no difference, whichever T <= arity**depth is meant."""
    outcomes = one_hot(2, arity**depth, np.random.default_rng([arity, depth, 1]))
    forecasts, _ = play(tc.TreeCal(tc.Simplex(2), arity=arity, depth=depth), outcomes)
    for rounds in range(1, arity**depth + 1):
        played = oracle.treecal(rationals(outcomes[:rounds]), arity, depth, centre(2))
        assert_same(forecasts[:rounds], played)


@pytest.mark.parametrize("arity", [2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(3))
def test_without_horizon_is_its_definition(arity: int, seed: int) -> None:
    outcomes = one_hot(4, 200, np.random.default_rng([arity, seed]))
    forecasts, ledger = play(tc.TreeCal(tc.Simplex(4), arity=arity), outcomes)
    played = oracle.growing(rationals(outcomes), arity, centre(4))
    assert_same(forecasts, played)
    for per_node in (False, True):
        error = oracle.calibration(played, rationals(outcomes), oracle.one_norm, per_node=per_node)
        assert ledger.error("l1", per_node=per_node, total=True) == pytest.approx(float(error), rel=1e-14)


def test_a_given_start_and_dyadic_outcomes() -> None:
    """Exactness is not about one-hot outcomes but about sums that fit: dyadic outcomes and start do as well."""
    rng = np.random.default_rng(5)
    outcomes = rng.multinomial(64, [0.2, 0.3, 0.5], size=81) / 64
    start = np.array([0.25, 0.25, 0.5])
    forecasts, _ = play(tc.TreeCal(tc.Simplex(3), arity=3, depth=4, start=start), outcomes)
    assert_same(forecasts, oracle.treecal(rationals(outcomes), 3, 4, rationals(start[None])[0]))


@pytest.mark.parametrize("block", [1, 3, 4])
@pytest.mark.parametrize("depth", [None, 2, 3])
def test_sampling_is_algorithm_3(block: int, depth: int | None) -> None:
    arity, rounds = 3, 9 * block
    outcomes = one_hot(3, rounds, np.random.default_rng(block))
    f = tc.SampleTreeCal(tc.Simplex(3), arity=arity, depth=depth, block=block, rng=np.random.default_rng(1))
    forecasts, _ = play(f, outcomes)
    # The same draws, made from outside; the paper's path runs from root to leaf, ours from leaf to root.
    rng = np.random.default_rng(1)
    if depth is not None:
        pure = oracle.sample_treecal(
            rationals(outcomes), arity, depth, block, centre(3), lambda x: len(x) - 1 - int(rng.integers(len(x)))
        )
    else:
        means = [oracle.mean(rationals(outcomes)[i : i + block]) for i in range(0, rounds, block)]
        pure = []
        for mixture in oracle.growing(means, arity, centre(3)):
            pure += [mixture[int(rng.integers(len(mixture)))][:2] for _ in range(block)]
    for x, (node, point) in zip(forecasts, pure, strict=True):
        assert len(x) == 1
        assert x.nodes is not None
        assert tuple(x.nodes[0].tolist()) == node
        assert x.points[0].tolist() == [float(entry) for entry in point]


@pytest.mark.parametrize(("arity", "depth", "block"), [(2, 3, 1), (3, 2, 1), (2, 2, 3)])
def test_one_round_too_many(arity: int, depth: int, block: int) -> None:
    forecasters: list[tc.Forecaster] = [
        tc.SampleTreeCal(tc.Simplex(2), arity=arity, depth=depth, block=block, rng=np.random.default_rng(0))
    ]
    if block == 1:
        forecasters.append(tc.TreeCal(tc.Simplex(2), arity=arity, depth=depth))
    for f in forecasters:
        for _ in range(block * arity**depth):
            f.predict()
            f.update([1, 0])
        before = pickle.dumps(f.get_state())
        with pytest.raises(HorizonError, match=f"round {arity**depth + 1} is beyond the horizon"):
            f.predict()
        with pytest.raises(HorizonError, match="a tree without a depth grows"):
            f.update([1, 0])
        assert pickle.dumps(f.get_state()) == before
