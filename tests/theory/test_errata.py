"""Where the paper's constants fail: the instance that shows it, and what is true (docs/explanation/errata.md)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.strategies import streams
from treecal._typing import Array
from treecal.geometry import CustomRegularizer, Lp, PNorm, QuadraticForm
from treecal.streams import play

seeds = st.integers(0, 2**32 - 1)


def leaders(outcomes: Array, start: Array) -> tuple[Array, Array]:
    """Follow-The-Leader's and Be-The-Leader's points, from their definitions."""
    sums = np.cumsum(outcomes, axis=0)
    counts = np.arange(1, len(outcomes) + 1)[:, None]
    be = sums / counts
    return np.concatenate([start[None], be[:-1]]), be


def test_movement_can_exceed_the_squared_diameter() -> None:
    """Erratum 1. The main proof uses Σ‖p_h − p̃_h‖² <= diam²; on [0, 1] with y = 0, 1 and p_1 = 1 it is 1.25."""
    follow, be = leaders(np.array([[0.0], [1.0]]), np.array([1.0]))
    assert float(np.square(follow - be).sum()) == 1.25


@given(seed=seeds, rounds=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_movement_keeps_to_pi_squared_over_six(seed: int, rounds: int) -> None:
    """Lemma C.4, with the constant its proof gives: Σ 1/h² < π²/6."""
    for space in (tc.Simplex(3), tc.Ball(2), tc.Box(0, 1, dim=1)):
        outcomes = streams(space, rounds + 1, seed)
        follow, be = leaders(outcomes[1:], outcomes[0])
        for norm in (tc.l1, tc.l2, tc.linf):
            assert np.square(norm(follow - be)).sum() <= math.pi**2 / 6 * space.diameter(norm) ** 2


def node_errors(outcomes: Array, arity: int, depth: int, norm: Lp) -> tuple[float, float]:
    """Labelled squared errors per round of TreeSwap.FTL and TreeSwap.BTL on a complete tree."""
    rounds, dim = outcomes.shape
    assert rounds == arity**depth
    follow_error = be_error = 0.0
    for height in range(depth):
        means = outcomes.reshape(-1, arity**height, dim).mean(axis=1).reshape(-1, arity, dim)
        for siblings in means:
            follow, be = leaders(siblings, np.full(dim, 1 / dim))
            follow_error += arity**height / depth * float(np.square(norm(siblings - follow)).sum())
            be_error += arity**height / depth * float(np.square(norm(siblings - be)).sum())
    return follow_error / rounds, be_error / rounds


@given(seed=seeds, arity=st.integers(2, 5), depth=st.integers(1, 3), p=st.sampled_from([1, 2, math.inf]))
@settings(max_examples=40, deadline=None)
def test_claim_earthmover_with_its_constant(seed: int, arity: int, depth: int, p: float) -> None:
    """Claim C.3: Cal(FTL) − 2·Cal(BTL) <= (π²/3)·diam²/H per round, and the telescoped bound J/L on Cal(BTL)."""
    space, norm = tc.Simplex(3), Lp(p)
    outcomes = streams(space, arity**depth, seed)
    follow, be = node_errors(outcomes, arity, depth, norm)
    assert follow - 2 * be <= math.pi**2 / 3 * space.diameter(norm) ** 2 / arity
    assert be <= tc.certificate(space, norm, rounds=arity**depth, arity=arity, depth=depth).gap.value / depth + 1e-12
    f = tc.TreeCal(space, arity=arity, depth=depth)
    ledger = play(f, outcomes)
    assert ledger.error(norm.squared, per_node=True) == pytest.approx(follow, rel=1e-9)


def test_diameters_are_two() -> None:
    """Erratum 2. Where the text says 1."""
    assert float(tc.Simplex(3).diameter("l1")) == 2
    assert float(tc.Ball(3).diameter("l2")) == 2
    assert float(tc.Box(-1, 1, dim=3).diameter("linf")) == 2


def test_entropy_is_only_half_strongly_convex() -> None:
    """Erratum 3. D_R(y|p) >= ‖y − p‖₁² fails for R = Σ x ln x, by a factor of 2; 2Σ x ln x will do."""
    p, y = np.array([0.5, 0.5]), np.array([0.6, 0.4])
    divergence, square = tc.NegativeEntropy().between(y, p), tc.l1(y - p) ** 2
    assert divergence < 0.51 * square
    assert 2 * divergence >= square


def test_entropy_has_no_rate() -> None:
    """Erratum 3. Its divergence is unbounded on the simplex, so it cannot serve in the paper's proof as it stands."""
    assert tc.NegativeEntropy().between([0.0, 1.0], [1.0, 0.0]) == math.inf


def halved(R: tc.geometry.Regularizer) -> CustomRegularizer:
    """R′(p) = 4R(p/2)."""
    return CustomRegularizer(lambda p: 4 * R.value(p / 2), lambda p: 2 * R.gradient(p / 2))


def test_rate_equivalence_can_exceed_three() -> None:
    """Erratum 4. The display drops the 4 of R′: here the divergence is 8 times the range, where the text says 3."""
    R = CustomRegularizer(
        lambda p: np.maximum(2 * p[..., 0] - 1, 0), lambda p: np.where(p >= 0.5, 2.0, 0.0)
    )  # range [0, 1] on [−1, 1], the subgradient at 1/2 taken from the right
    assert halved(R).between([-1.0], [1.0]) == 8.0


@given(seed=seeds, dim=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_rate_equivalence_holds_with_twelve(seed: int, dim: int) -> None:
    """Lemma 2.4, one direction: D_{R′} <= 12ρ on a symmetric set where R ranges over ρ."""
    rng = np.random.default_rng(seed)
    ball = tc.Ball(dim)
    points = np.concatenate([ball.sample(rng, 20), ball.minimise(rng.normal(size=(20, dim)))])
    root = rng.normal(size=(dim, dim)) + 2 * np.eye(dim)
    for R in (tc.SquaredEuclidean(), QuadraticForm(root @ root.T), PNorm(1.5)):
        span = ball.minimise(rng.normal(size=(400, dim)))
        rho = float(R.value(np.concatenate([span, np.zeros((1, dim))])).max())
        assert halved(R).between(points[:, None], points[None]).max() <= 12 * rho


def test_weights_add_up_to_the_rounds() -> None:
    """Erratum 6. Σ_p Σ_t x_t(p) = T, where Corollary C.5's proof says 1."""
    space = tc.Simplex(2)
    ledger = play(tc.TreeCal(space, arity=2), streams(space, 37, 0))
    assert ledger.exact().weights.sum() == pytest.approx(37)


@given(seed=seeds, arity=st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_corollary_cauchy(seed: int, arity: int) -> None:
    """Corollary C.5: (Cal^{‖·‖}/T)² <= Cal^{‖·‖²}/T."""
    space = tc.Simplex(3)
    ledger = play(tc.TreeCal(space, arity=arity), streams(space, 60, seed))
    for norm in (tc.l1, tc.l2, tc.linf):
        assert ledger.error(norm) ** 2 <= ledger.error(norm.squared) * (1 + 1e-12)
