"""Spectral certificates: the operators are the algorithms, and the bounds are bounds, and tight."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.strategies import play, streams
from treecal._typing import Array
from treecal.exceptions import HorizonError, ParameterError, UnsupportedError
from treecal.geometry import Mahalanobis, Norm
from treecal.theory import _harmonic as harmonic, _spectral as spectral, blocks_total, unit_total
from treecal.theory._harmonic import tabulate
from treecal.theory._spectral import Replay, spectral_certificate

Trees = tuple[int, int, int | None]  # rounds, arity, depth


@st.composite
def trees(draw: st.DrawFn, max_rounds: int = 60) -> Trees:
    rounds, arity = draw(st.integers(1, max_rounds)), draw(st.integers(2, 7))
    least = next(depth for depth in range(1, 99) if arity**depth >= rounds)
    return rounds, arity, draw(st.sampled_from([None, least, least + 1]))


def tree_matrices(rounds: int, arity: int, depth: int | None) -> tuple[Array, Array]:
    """P and Q as the package's TreeCal plays them: on the stream of basis vectors a forecast is its row of P."""
    forecaster = tc.TreeCal(tc.Box(-1, 1, dim=rounds), arity=arity, depth=depth)
    P: dict[tuple[int, ...], Array] = {}
    Q: dict[tuple[int, ...], Array] = {}
    for t, y in enumerate(np.eye(rounds)):
        x = forecaster.predict()
        assert x.nodes is not None
        for point, weight, label in zip(x.points, x.weights, x.nodes.tolist(), strict=True):
            P[tuple(label)] = point
            Q.setdefault(tuple(label), np.zeros(rounds))[t] = weight
        forecaster.update(y)
    nodes = sorted(P)
    return np.array([P[node] for node in nodes]), np.array([Q[node] for node in nodes]).T


def harmonic_matrices(rounds: int) -> tuple[Array, Array]:
    """P and Q from their definition, symbol by symbol."""
    h = [sum(1 / (2 * j + 1) for j in range(t)) for t in range(rounds + 1)]
    P, Q = np.zeros((rounds, rounds)), np.zeros((rounds, rounds))
    for t in range(rounds):
        for s in range(t):
            Q[t, s] = 1 / (h[t] * (2 * (t - s) - 1))
        for s in range(t + 1):
            P[t, s] = 1 / (h[t + 1] * (2 * (t - s) + 1))
    return P, Q


def gap_matrix(P: Array, Q: Array) -> Array:
    G: Array = Q.T - Q.sum(axis=0)[:, None] * P
    return G


def written_out(replay: Replay) -> Array:
    return np.asarray(replay.operator.matmat(np.eye(replay.rounds)))


def harmonic_error(outcomes: Array, start: Array) -> float:
    """The per-node ℓ2 error per round, played round by round."""
    rounds, dim = outcomes.shape
    h = np.concatenate([[0.0], np.cumsum(1 / (2.0 * np.arange(rounds) + 1))])
    stored, masses, sums = np.zeros((rounds, dim)), np.zeros(rounds), np.zeros((rounds, dim))
    for t, y in enumerate(outcomes):
        weights = 1 / (h[t] * (2 * (t - np.arange(t)) - 1)) if t else np.empty(0)
        masses[:t] += weights
        sums[:t] += weights[:, None] * y
        stored[t] = (1 / (h[t + 1] * (2 * (t - np.arange(t + 1)) + 1))) @ outcomes[: t + 1]
    gaps = np.linalg.norm(sums - masses[:, None] * stored, axis=1).sum() + np.linalg.norm(outcomes[0] - start)
    return float(gaps / rounds)


def random_weights(replay: Replay, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.uniform(0.1, 1, len(replay.weights)), rng.uniform(0.1, 1, replay.rounds)


def scaled_norm(G: Array, c: Array, e: Array) -> float:
    return float(np.linalg.norm(G / np.sqrt(c)[:, None] / np.sqrt(e), 2))


@given(trees())
@settings(deadline=None, max_examples=60)
def test_the_tree_operator_is_treecal(tree: Trees) -> None:
    rounds, arity, depth = tree
    P, Q = tree_matrices(rounds, arity, depth)
    replay = Replay.tree(rounds, arity=arity, depth=depth)
    np.testing.assert_allclose(replay.weights, Q.sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(written_out(replay), gap_matrix(P, Q), atol=1e-14)
    np.testing.assert_allclose(replay.operator.rmatmat(np.eye(len(P))), gap_matrix(P, Q).T, atol=1e-14)
    np.testing.assert_allclose(written_out(Replay.dense(P, Q)), gap_matrix(P, Q), atol=1e-15)


@pytest.mark.parametrize("rounds", [1, 2, 3, 10, 61])
def test_the_harmonic_operator_is_the_algorithm(rounds: int) -> None:
    P, Q = harmonic_matrices(rounds)
    replay, own = Replay.harmonic(rounds), Replay.dense(P, Q)
    G = gap_matrix(P, Q)[:-1]  # the last forecast is never announced
    np.testing.assert_allclose(written_out(replay), G, atol=1e-14)
    np.testing.assert_allclose(replay.operator.rmatmat(np.eye(rounds - 1)), G.T, atol=1e-14)
    np.testing.assert_allclose(written_out(own), G, atol=1e-15)
    np.testing.assert_allclose(replay.weights, own.weights, rtol=1e-12)
    assert (own.opening, own.centred) == pytest.approx((1.0, True), abs=1e-12)
    assert spectral_certificate(own).bound == pytest.approx(spectral_certificate(replay).bound, rel=1e-9)


@pytest.mark.parametrize(
    "replay", [Replay.harmonic(5000), Replay.tree(5000, arity=3), Replay.tree(99, arity=2, depth=900)]
)
def test_adjoints_are_adjoint(replay: Replay) -> None:
    rng = np.random.default_rng(0)
    y, u = rng.standard_normal((replay.rounds, 3)), rng.standard_normal((len(replay.weights), 3))
    left = np.einsum("ij,ij->j", replay.operator.matmat(y), u)
    right = np.einsum("ij,ij->j", y, replay.operator.rmatmat(u))
    np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(replay.operator.matvec(y[:, 0]), replay.operator.matmat(y)[:, 0], atol=1e-12)
    if replay.centred:
        np.testing.assert_allclose(replay.operator.matvec(np.ones(replay.rounds)), 0, atol=1e-11)


@given(
    st.one_of(
        trees().map(lambda t: Replay.tree(t[0], arity=t[1], depth=t[2])), st.integers(2, 60).map(Replay.harmonic)
    ),
    st.integers(0, 99),
    st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_the_norm_is_bounded_from_above_and_closely(replay: Replay, seed: int, best: bool) -> None:
    """Both methods, with weights good and bad, against NumPy's norm."""
    c, e = random_weights(replay, seed)
    if best:
        found = spectral_certificate(replay, steps=20)
        c, e = found.c, found.e
    exact = scaled_norm(written_out(replay), c, e)
    below, above = spectral._norm_by_svd(replay, c, e)
    assert exact * (1 - 1e-12) <= above <= exact * (1 + 1e-9)
    below, above = spectral._norm_by_chebyshev(
        replay, c, e, tolerance=1e-3, failure=1e-9, rng=np.random.default_rng(seed)
    )
    assert below <= exact * (1 + 1e-12)
    assert exact <= above <= exact * 1.01


@pytest.mark.parametrize("rounds", [1, 2, 7, 40, 300])
@pytest.mark.parametrize("make", [Replay.harmonic, Replay.tree, lambda n: Replay.tree(n, arity=2)])
def test_certificates_hold_and_no_better_ones_exist(make: Callable[[int], Replay], rounds: int) -> None:
    """The hard stream is feasible in the semidefinite program whose dual the weights are: the two must enclose."""
    replay = make(rounds)
    found = spectral_certificate(replay)
    G = written_out(replay)
    exact = scaled_norm(G, found.c, found.e) if len(G) else 0.0
    total = exact * math.sqrt(found.c.sum() * found.e.sum()) + replay.opening
    assert total / rounds <= found.bound * (1 + 1e-12) <= 1.01 * total / rounds
    assert (np.linalg.norm(found.stream, axis=1) <= 1 + 1e-12).all()
    reached = np.linalg.norm(G @ found.stream, axis=1).sum() + replay.opening
    assert found.attained == pytest.approx(reached / rounds)
    assert 0.985 * found.bound <= found.attained <= found.bound
    assert found.method == ("svd" if rounds <= spectral.DENSE_ROUNDS else "chebyshev")


def test_more_work_is_tighter_and_zero_failure_is_deterministic() -> None:
    replay = Replay.harmonic(300)
    quick, slow = spectral_certificate(replay, steps=10), spectral_certificate(replay, dim=16, steps=150, failure=0)
    assert slow.bound < quick.bound
    assert (slow.method, slow.failure, quick.failure) == ("svd", 0.0, 1e-9)
    assert slow.bound / slow.attained < 1.001


@pytest.mark.parametrize(("rounds", "limit"), [(1_000, 0.49), (10_000, 0.41)])
def test_harmonic_beats_the_guessed_weights(rounds: int, limit: float) -> None:
    replay = Replay.harmonic(rounds)
    h = np.cumsum(1 / (2.0 * np.arange(rounds) + 1))
    guessed = spectral_certificate(replay, weights=(h[:-1] ** -2, h**-2), steps=1).bound
    best = spectral_certificate(replay, steps=30).bound
    assert guessed == pytest.approx(limit, abs=0.005)
    assert best < 0.9 * guessed


@pytest.mark.parametrize(("arity", "depth"), [(2, None), (3, None), (8, None), (4, 5), (10, 3), (2, 9)])
def test_certificates_hold_for_treecal(arity: int, depth: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    rounds, space = 500, tc.Ball(8)
    replay = Replay.tree(rounds, arity=arity, depth=depth)
    found = spectral_certificate(replay, space=space)
    rng = np.random.default_rng(arity)
    line = spectral_certificate(replay, dim=1).stream  # the hardest stream found on [−1, 1]
    axis, one = np.eye(8)[:1], np.ones((rounds, 1))
    tried = {
        "hard": found.stream,
        "hard in one dimension": line @ axis,
        "random": streams(space, rounds, 1),
        "random signs": rng.choice([-1.0, 1.0], (rounds, 1)) @ axis,
        "constant": one @ axis,
        "alternating": (-1.0) ** np.arange(rounds)[:, None] @ axis,
    }
    ratios = {}
    for name, outcomes in tried.items():
        y = outcomes / np.maximum(1.0, np.linalg.norm(outcomes, axis=1))[:, None]
        _, ledger = play(tc.TreeCal(space, arity=arity, depth=depth), y)
        ratios[name] = ledger.error("l2", per_node=True) / found.bound
        assert ledger.error("l2") <= ledger.error("l2", per_node=True) + 1e-12
        assert ratios[name] <= 1
    assert ratios["hard"] > 0.99
    assert ratios["hard in one dimension"] > 1 / 1.783  # Grothendieck: dimension one loses no more than that
    with capsys.disabled():
        print(f"\n arity {arity}, depth {depth}: bound {found.bound:.4f}, tightest {max(ratios.values()):.4f}", end=" ")


def test_certificates_hold_for_harmonic() -> None:
    rounds = 400
    found = spectral_certificate(Replay.harmonic(rounds))
    axis = np.eye(8)[:1]
    tried = [found.stream, streams(tc.Ball(8), rounds, 3), np.ones((rounds, 1)) @ axis]
    tried.append((-1.0) ** np.arange(rounds)[:, None] @ axis)
    ratios = [harmonic_error(y, np.zeros(8)) / found.bound for y in tried]
    assert max(ratios) <= 1
    assert ratios[0] > 0.99


@given(trees(max_rounds=200), st.integers(0, 10**6), st.booleans())
@settings(deadline=None, max_examples=25)
def test_any_set_any_start_and_ellipsoidal_norms(tree: Trees, seed: int, elongated: bool) -> None:
    """Off-centre start points too: their rows do not sum to 0, and the set is measured from them."""
    rounds, arity, depth = tree
    rng = np.random.default_rng(seed)
    space = (tc.Simplex(3), tc.Box(-1, [2.0, 1.0, 3.0]), tc.Polytope(vertices=rng.normal(size=(5, 3))))[seed % 3]
    norm: Norm = Mahalanobis(np.diag([9.0, 1.0, 0.5]) + 0.2) if elongated else tc.l2
    corners = np.array([space.minimise(v) for v in rng.normal(size=(rounds, 3))])
    start = corners[0]
    replay = Replay.tree(rounds, arity=arity, depth=depth)
    found = spectral_certificate(replay, space=space, norm=norm, start=start, steps=10)
    assert found.radius == space.radius(norm, about=start)
    forecaster = tc.TreeCal(space, arity=arity, depth=depth, start=start)
    outcomes = np.where(rng.random((rounds, 1)) < 0.5, corners[-1], corners)
    _, ledger = play(forecaster, outcomes)
    assert ledger.error(norm, per_node=True) <= found.bound


def test_only_what_lies_on_the_start_point_is_measured_from_it() -> None:
    space, start, rounds = tc.Simplex(3), [1.0, 0.0, 0.0], 50
    found = spectral_certificate(Replay.harmonic(rounds), space=space, start=start)
    assert found.radius == pytest.approx(math.sqrt(2 / 3))
    assert found.start_radius == pytest.approx(math.sqrt(2))
    outcomes = np.eye(3)[1 + np.arange(rounds) % 2]
    assert harmonic_error(outcomes, np.array(start)) <= found.bound
    unit = spectral_certificate(Replay.harmonic(rounds))
    assert found.bound == pytest.approx(found.radius * unit.bound + (found.start_radius - found.radius) / rounds)


def test_a_forecaster_of_ones_own() -> None:
    """Always say the first outcome: the hard stream then contradicts it, and the bound is 2 − 1/T."""
    rounds = 20
    P, Q = np.zeros((1, rounds)), np.ones((rounds, 1))
    P[0, 0], Q[0, 0] = 1.0, 0.0
    found = spectral_certificate(Replay.dense(P, Q), steps=200)
    assert found.bound == pytest.approx((2 * (rounds - 1) + 1) / rounds, rel=1e-6)
    centre = spectral_certificate(Replay.dense(np.zeros((1, rounds)), np.ones((rounds, 1))))
    assert centre.bound == pytest.approx(1.0)


@pytest.mark.parametrize("rounds", [0, -3, 2.5, math.nan, "ten", True])
def test_bad_rounds(rounds: Any) -> None:
    for make in (Replay.harmonic, Replay.tree):
        with pytest.raises(ParameterError, match="rounds is"):
            make(rounds)


def test_bad_trees() -> None:
    with pytest.raises(HorizonError, match="beyond the horizon"):
        Replay.tree(9, arity=2, depth=3)
    with pytest.raises(ParameterError, match="arity is 1"):
        Replay.tree(9, arity=1)


@pytest.mark.parametrize(
    ("P", "Q", "complaint"),
    [
        ([[1.0, 0.0]], [[0.0, 1.0]], "shape"),
        ([[1.0, 0.0]], [[0.0], [math.nan]], "nan"),
        ([[1.0, 0.5]], [[0.0], [0.0]], "sums to 1.5"),
        ([[1.0, 0.0]], [[0.0], [-1.0]], "holds -1"),
        ([[0.0, 1.0]], [[0.0], [1.0]], "averages outcomes up to round 1"),
        (np.empty((0, 0)), np.empty((0, 0)), "shape"),
    ],
)
def test_bad_matrices(P: Any, Q: Any, complaint: str) -> None:
    with pytest.raises(ParameterError, match=complaint):
        Replay.dense(P, Q)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tolerance": math.nan}, "tolerance is nan"),
        ({"failure": 1.0}, "failure is 1.0"),
        ({"failure": -1}, "failure is -1"),
        ({"steps": 0}, "steps is 0"),
        ({"dim": 0}, "dim is 0"),
        ({"start": [0.0]}, "without a space"),
        ({"weights": (np.ones(3), np.ones(10))}, "c has 3 weights"),
        ({"weights": (np.ones(9), -np.ones(10))}, "positive"),
        ({"weights": (np.full(9, math.nan), np.ones(10))}, "nan"),
        ({"norm": "l3"}, "norm is 'l3'"),
    ],
)
def test_bad_options(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ParameterError, match=complaint):
        spectral_certificate(Replay.harmonic(10), **options)


def test_other_norms_are_refused_with_a_way_out() -> None:
    for norm in (tc.l1, tc.linf, tc.Lp(3)):
        with pytest.raises(UnsupportedError, match=r"Cauchy(.|\n)*Hint: use a Mahalanobis"):
            spectral_certificate(Replay.harmonic(10), space=tc.Simplex(3), norm=norm)
    with pytest.raises(ParameterError, match="replay is 10"):
        spectral_certificate(10)  # type: ignore[arg-type]


@pytest.mark.heavy
def test_a_hundred_thousand_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        (Replay.harmonic(10**5), 0.28),
        (Replay.tree(10**5, arity=8), 0.77),
        (Replay.tree(10**5, arity=18, depth=4), 0.77),
    ]
    for replay, limit in cases:
        begun = time.perf_counter()
        found = spectral_certificate(replay)
        assert found.bound < limit
        assert found.attained > 0.985 * found.bound
        with capsys.disabled():
            print(f"\n {found}, {time.perf_counter() - begun:.0f} s", end=" ")


def table_holds(rounds: int) -> None:
    """An entry is the certificate, rounded up; between two of them the truth lies below the line."""
    found, tabulated = spectral_certificate(Replay.harmonic(rounds)), unit_total(rounds) / rounds
    assert found.attained <= tabulated <= 1.003 * found.bound
    if rounds in harmonic._AT:
        assert tabulated == pytest.approx(tabulate(rounds), rel=1e-12)


@pytest.mark.parametrize("rounds", [1, 2, 3, 17, 32, 35, 39, 46, 50, 182, 199, 512, 1000, 1449])
def test_the_table_of_harmonic_is_computed(rounds: int) -> None:
    table_holds(rounds)


@pytest.mark.heavy
@pytest.mark.parametrize("rounds", [*range(33, 300), 4096, 5000, 16384, 30_000, 65536, 100_000])
def test_the_whole_table_of_harmonic_is_computed(rounds: int) -> None:
    table_holds(rounds)


def test_totals_of_harmonic_grow_ever_more_slowly() -> None:
    """What the line between two entries relies on; the bounds themselves are computed to a hundredth or so."""
    at = np.array(harmonic._AT)
    totals = np.array([unit_total(rounds) for rounds in at.tolist()])
    slopes = np.diff(totals) / np.diff(at)
    assert (slopes > 0).all()
    assert (slopes[1:] <= 1.03 * slopes[:-1]).all()
    assert (slopes[4:] <= slopes[:-4]).all()


@pytest.mark.parametrize("block", [1, 2, 7, 40, 100, 4096])
def test_blocks_add_up(block: int) -> None:
    """The bound on the sum over blocks is never less than it, little more, and grows by the rate of a block."""
    counts = sorted({*range(1, 300), *range(block, 6 * block, max(1, block // 7)), 5 * block + 1})
    totals = np.array([blocks_total(rounds, block) for rounds in counts])
    sums = np.array([n // block * unit_total(block) + (unit_total(n % block) if n % block else 0) for n in counts])
    assert (totals >= sums * (1 - 1e-12)).all()
    assert blocks_total(50 * block, block) <= 1.02 * 50 * unit_total(block)
    assert (np.diff(totals) >= unit_total(block) / block * np.diff(counts) * (1 - 1e-9)).all()
