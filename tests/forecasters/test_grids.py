from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.forecasters.adversaries import AgainstTheLedger, duel, opponent, stream
from tests.forecasters.oracle_grids import LiteralBinaryGrid
from tests.strategies import play
from treecal._typing import Array
from treecal.exceptions import ParameterError
from treecal.forecasters._simplex_grid import MOST_POINTS, USUAL_POINTS, _minimax, _simplex_grid, grid_width, points


@pytest.mark.parametrize("bins", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("soft", [False, True])
def test_binary_grid_is_what_it_is_described_to_be(bins: int, soft: bool) -> None:
    rng = np.random.default_rng(bins)
    second = rng.random(200) if soft else rng.integers(2, size=200).astype(float)
    f, literal = tc.BinaryGrid(bins=bins), LiteralBinaryGrid(bins)
    for y in second:
        expected = literal.play()
        x = f.predict().merged()
        assert dict(zip(np.rint(x.points[:, 1] * bins).astype(int).tolist(), x.weights, strict=True)) == pytest.approx(
            expected, abs=1e-9
        )
        literal.learn(y)
        f.update([1 - y, y])
    np.testing.assert_allclose(f.get_state()["bias"], literal.V, atol=1e-10)


def bound(f: tc.Forecaster, rounds: int, norm: str = "l1") -> float:
    found = f.certificate(norm, rounds=rounds)
    assert found is not None
    return found.bound


class AgainstThePotential:
    """Plays the class that raises ΣV_i² most, the quantity that the certificate is about."""

    def __init__(self, forecaster: tc.BinaryGrid) -> None:
        self.f = forecaster

    def __call__(self, x: tc.Forecast) -> Array:
        bias, rows = self.f.get_state()["bias"], np.rint(x.points[:, 1] * self.f.bins).astype(int)
        weights = np.bincount(rows, x.weights, len(bias))
        grid = np.arange(len(bias)) / self.f.bins
        second = max((0.0, 1.0), key=lambda y: float(np.sum((bias + weights * (y - grid)) ** 2)))
        return np.array([1 - second, second])


@pytest.mark.parametrize("bins", [1, 2, 5, 30])
@pytest.mark.parametrize("kind", ["iid", "mean", "ledger", "potential", "soft"])
def test_binary_grid_keeps_its_certificate(kind: str, bins: int) -> None:
    rng, f, ledger = np.random.default_rng(bins), tc.BinaryGrid(bins=bins), tc.Ledger(tc.Simplex(2))
    adversary: Any = (
        AgainstThePotential(f)
        if kind == "potential"
        else stream(rng.dirichlet([0.5, 0.5], 1500))
        if kind == "soft"
        else opponent(kind, 2, 1500, bins)
    )
    for t in range(1, 1501):
        x = f.predict()
        y = adversary(x)
        ledger.record(x, y)
        f.update(y)
        bias = f.get_state()["bias"]
        assert math.sqrt(bias @ bias) <= math.sqrt(t) + t / (2 * math.sqrt(2) * bins)
        assert 2 * np.abs(bias).sum() / t <= bound(f, t)
        assert bias[0] >= 0 >= bias[-1]
    assert ledger.error("l1") == pytest.approx(2 * np.abs(bias).sum() / 1500, abs=1e-9)


def test_two_classes_against_the_ledger_adversary() -> None:
    """At 20,000 rounds with 30 bins at most 0.06; a tree has six times as much and more."""
    adversary = AgainstTheLedger(2, np.random.default_rng(0))
    assert duel(tc.BinaryGrid(bins=30), adversary, 20_000).error("l1") <= 0.06
    adversary = AgainstTheLedger(2, np.random.default_rng(0))
    assert duel(tc.TreeCal(tc.Simplex(2), arity=4), adversary, 3000).error("l1") > 0.36


def test_outcomes_a_rounding_outside_do_not_turn_the_ends() -> None:
    f = tc.BinaryGrid(bins=1)
    for _ in range(50):
        f.update([1 + 5e-10, -5e-10])
        f.update([-5e-10, 1 + 5e-10])
    assert f.get_state()["bias"][0] >= 0 >= f.get_state()["bias"][1]


def test_bound_in_figures() -> None:
    one_coordinate = math.sqrt(51 / 20_000) + math.sqrt(51) / (100 * math.sqrt(2))
    f = tc.BinaryGrid(bins=50)
    assert bound(f, 20_000) == pytest.approx(2 * one_coordinate)
    assert bound(f, 20_000, "l2") == pytest.approx(math.sqrt(2) * one_coordinate)
    assert bound(f, 20_000, "linf") == pytest.approx(one_coordinate)
    assert min(bound(tc.BinaryGrid(bins=n), 10**6) for n in range(1, 1000)) == pytest.approx(2 * 0.0377, abs=2e-4)


def test_no_norm_is_certified_by_a_factor_that_does_not_hold() -> None:
    """How far apart two norms are on the set says nothing on how far apart they are in every direction."""
    steep = tc.Mahalanobis(np.diag([1.0, 1e-9, 1e-9]))
    assert tc.SimplexGrid(tc.Simplex(3)).certificate(steep, rounds=10**6) is None
    assert tc.BinaryGrid().certificate(tc.Mahalanobis(np.eye(2)), rounds=10**6) is None


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 8, 60, 128, 500])
def test_a_grid_nobody_chose_is_the_finest_of_few_points(dim: int) -> None:
    f = tc.SimplexGrid(tc.Simplex(dim))
    if dim == 2:
        assert f.resolution == tc.BinaryGrid().bins
    elif 2 < dim <= USUAL_POINTS:
        assert points(dim, f.resolution) <= USUAL_POINTS < points(dim, f.resolution + 1)
    else:
        assert f.resolution == 1
    assert f.predict().points.shape == (1, dim)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 10**6))
def test_the_grid_and_its_width(dim: int, resolution: int, seed: int) -> None:
    grid = _simplex_grid(tc.Simplex(dim), resolution)
    assert len(grid) == math.comb(resolution + dim - 1, dim - 1) == len(np.unique(grid, axis=0))
    assert tc.Simplex(dim).contains(grid).all()
    assert np.array_equal(np.rint(grid * resolution) / resolution, grid)
    away = tc.Simplex(dim).sample(np.random.default_rng(seed), 30)
    nearest = tc.l2(away[:, None] - grid).min(axis=1)
    assert nearest.max() <= grid_width(dim, resolution) + 1e-12
    half = dim // 2
    if resolution >= half > 0:  # a deep hole of the lattice, near a corner
        hole = (np.eye(dim)[0] * (resolution - half) + half / dim) / resolution
        assert tc.l2(hole - grid).min() == pytest.approx(grid_width(dim, resolution))


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 40), st.integers(2, 5), st.integers(0, 10**6))
def test_minimax_is_maximin(rows: int, columns: int, seed: int) -> None:
    costs = np.random.default_rng(seed).normal(size=(rows, columns))
    x, y = _minimax(costs), _minimax(-costs.T)
    assert x.min() >= 0
    assert x.sum() == pytest.approx(1)
    assert (x @ costs).max() == pytest.approx((costs @ y).min(), abs=1e-7)


@pytest.mark.parametrize(("dim", "resolution", "rounds"), [(2, 8, 100), (3, 5, 120), (4, 3, 100)])
@pytest.mark.parametrize("kind", ["iid", "mean", "ledger"])
def test_simplex_grid_keeps_its_certificate(kind: str, dim: int, resolution: int, rounds: int) -> None:
    space = tc.Simplex(dim)
    f, ledger, adversary = (
        tc.SimplexGrid(space, resolution=resolution),
        tc.Ledger(space),
        opponent(kind, dim, rounds, 1),
    )
    grid, width = _simplex_grid(space, resolution), grid_width(dim, resolution)
    for t in range(1, rounds + 1):
        x = f.predict()
        bias = f.get_state()["bias"]
        slope = bias / np.sqrt((bias**2).sum(axis=1) + 2 * t / len(grid))[:, None]
        rows = [int(np.argmin(tc.l1(grid - p))) for p in x.points]
        drift = x.weights @ (slope[rows] - np.sum(slope[rows] * x.points, axis=1, keepdims=True))
        assert drift.max() <= width + 1e-7  # whatever the outcome
        y = adversary(x)
        ledger.record(x, y)
        f.update(y)
        assert tc.l2(f.get_state()["bias"]).sum() / t <= bound(f, t, "l2")
    assert ledger.error("l2") == pytest.approx(tc.l2(f.get_state()["bias"]).sum() / rounds, abs=1e-9)


def test_simplex_grid_beats_the_trees_on_three_classes() -> None:
    grid = duel(tc.SimplexGrid(tc.Simplex(3), resolution=6), opponent("ledger", 3, 600, 0), 600).error("l1")
    tree = duel(tc.AdaptiveTreeCal(tc.Simplex(3)), opponent("ledger", 3, 600, 0), 600).error("l1")
    assert grid < 0.7 * tree


def test_sizes_that_cannot_work_say_what_they_would_need() -> None:
    with pytest.raises(ParameterError, match=r"on Simplex\(10\) has 92378 points(.|\n)*resolution=6 is the finest"):
        tc.SimplexGrid(tc.Simplex(10), resolution=10)
    with pytest.raises(ParameterError, match=rf"has 20000 points, expected at most {MOST_POINTS}(.|\n)*Hint: Adaptive"):
        tc.SimplexGrid(tc.Simplex(20_000), resolution=1)
    with pytest.raises(ParameterError, match=r"space is .*, expected a Simplex"):
        tc.SimplexGrid(tc.Ball(2), resolution=3)
    with pytest.raises(ParameterError, match=r"space is Simplex\(3\), expected Simplex\(2\)"):
        tc.BinaryGrid(tc.Simplex(3))
    with pytest.raises(ParameterError, match="bins is 0"):
        tc.BinaryGrid(bins=0)


def test_the_middle_is_where_it_starts() -> None:
    for bins in (4, 7):
        x = tc.BinaryGrid(bins=bins).predict()
        assert np.array_equal(x.mean, [0.5, 0.5])
        assert len(x) == 1 + bins % 2
    _, ledger = play(tc.BinaryGrid(bins=4), np.eye(2)[[0, 1] * 10])
    assert ledger.rounds == 20
