from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.some import some
from tests.strategies import play
from treecal import streams
from treecal._typing import Array
from treecal.exceptions import HorizonError, TreeCalError, UnsupportedError
from treecal.geometry import Gauge, Lp, Mahalanobis, Norm
from treecal.theory import sample_certificate
from treecal.theory._certificates import Shares, _worst_norm, _worst_square, shares, type_two
from treecal.theory._plan import complete

seeds = st.integers(0, 2**32 - 1)


def literal_shares(rounds: int, arity: int, depth: int | None) -> tuple[float, float, float, dict[float, float]]:
    """κ, μ₀, μ₁ and the share of each stretch, by visiting every node."""
    nodes: dict[tuple[int, int], tuple[int, int]] = {}
    epochs: dict[int, int] = {}
    for t in range(rounds):
        m = depth or next(m for m in range(1, rounds + 1) if t < arity**m)
        epochs[m] = t + 1
        for height in range(m):
            index = t // arity**height
            nodes[height, index] = (nodes.get((height, index), (0, m))[0] + 1, m)
    first, moved = 0.0, 0.0
    later: dict[float, float] = {}
    for (height, index), (w, m) in nodes.items():
        elder = index % arity * arity**height
        if elder == 0:
            first += w / m
        else:
            moved += w / m * (w / (elder + w)) ** 2
            stretch = round((elder + w) / elder, 10)
            later[stretch] = later.get(stretch, 0.0) + w / m / rounds
    last = max(epochs)
    kappa = rounds / last + sum(arity**m * (1 / m - 1 / (m + 1)) for m in epochs if m < last)
    return kappa / rounds, first / rounds, moved / rounds, later


@given(arity=st.integers(2, 6), depth=st.one_of(st.none(), st.integers(1, 5)), rounds=st.integers(1, 700))
@settings(max_examples=150, deadline=None)
def test_shares_are_those_of_the_tree(arity: int, depth: int | None, rounds: int) -> None:
    if depth is not None:
        rounds = min(rounds, arity**depth)
    kappa, first, moved, later = literal_shares(rounds, arity, depth)
    share = shares(rounds, arity=arity, depth=depth)
    assert (share.kappa, share.first, share.moved) == pytest.approx((kappa, first, moved), rel=1e-12)
    ours: dict[float, float] = {}
    for stretch, weight in zip(share.stretch.round(10).tolist(), share.later, strict=True):
        ours[stretch] = ours.get(stretch, 0.0) + weight
    assert ours == pytest.approx(later, rel=1e-9)
    assert share.first + share.later.sum() == pytest.approx(1)


@given(seed=seeds, count=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_the_knapsacks_are_optimal(seed: int, count: int) -> None:
    """Against SciPy's LP for squares and SLSQP for norms."""
    from scipy.optimize import linprog, minimize

    rng = np.random.default_rng(seed)
    stretch = np.sort(1 + rng.exponential(size=count))[::-1]
    later, diameter = rng.dirichlet(np.ones(count)), rng.uniform(0.5, 2)
    budget = rng.uniform(0.001, 1.2) * diameter**2
    share = Shares(1.0, 0.0, later, stretch)
    squares: Any = linprog(-later, A_ub=[later / stretch**2], b_ub=[budget], bounds=[(0, diameter**2)] * count)
    assert _worst_square(share, budget, diameter) == pytest.approx(-squares.fun, rel=1e-9)
    solve: Any = minimize
    norms = solve(
        lambda z: -(later @ z),
        np.full(count, 0.1 * diameter),
        bounds=[(0, diameter)] * count,
        constraints={"type": "ineq", "fun": lambda z: budget - later @ np.square(z / stretch)},
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    ours = _worst_norm(share, budget, diameter)
    assert -norms.fun <= ours * (1 + 1e-6)
    assert ours == pytest.approx(-norms.fun, rel=1e-3)


@given(arity=st.integers(2, 2000), depth=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_complete_trees_in_groups_bound_the_exact_ones(arity: int, depth: int) -> None:
    exact, grouped = shares(arity**depth, arity=arity, depth=depth), complete(arity, depth)
    assert grouped.later.sum() == pytest.approx(exact.later.sum())
    for budget in (0.01, 0.3, 2.0):
        tight, loose = _worst_norm(exact, budget, 2.0), _worst_norm(grouped, budget, 2.0)
        assert tight * (1 - 1e-9) <= loose <= tight * 1.001


def pairs() -> list[tuple[tc.ConvexSet, Norm]]:
    skew = Mahalanobis([[2.0, 0.7], [0.7, 1.0]])
    hexagon = Gauge(halfspaces=[[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]])
    triangle = tc.Polytope(vertices=[[0.0, 0.0], [1.0, 0.2], [0.3, 1.0]])
    spaces: list[tc.ConvexSet] = [tc.Simplex(2), tc.Simplex(3), tc.Simplex(6), tc.Ball(2), tc.Ball(2, norm="l1")]
    spaces += [tc.Ball(2, norm=Lp(3)), tc.Box(0, 1, dim=2), tc.Box(-1, 1, dim=4), triangle]
    spaces += [tc.Product(tc.Simplex(2), tc.Ball(1))]
    norms: list[Norm] = [tc.l1, tc.l2, tc.linf, Lp(1.5), Lp(4)]
    grid = [(space, norm) for space in spaces for norm in norms]
    return grid + [(space, norm) for space in spaces if space.dim == 2 for norm in (skew, hexagon)]


def hard_streams(space: tc.ConvexSet, rounds: int, arity: int, rng: np.random.Generator) -> list[Array]:
    return [
        streams.iid(space, rounds, rng),
        streams.regime_switches(space, rounds, rng, every=max(1, rounds // 5)),
        streams.drift(space, rounds, rng),
        streams.random_walk(space, rounds, rng),
        streams.alternation(space, rounds, arity=arity),
        np.repeat(space.minimise(rng.normal(size=(1, space.dim))), rounds, axis=0),
    ]


@pytest.mark.parametrize("index", some(range(len(pairs())), every=2), ids=lambda i: "{!r}, {!r}".format(*pairs()[i]))
@given(seed=seeds, arity=st.integers(2, 9), depth=st.one_of(st.none(), st.integers(1, 6)), rounds=st.integers(1, 300))
@settings(max_examples=3, deadline=None)
def test_no_stream_breaks_a_certificate(index: int, seed: int, arity: int, depth: int | None, rounds: int) -> None:
    try_to_break(*pairs()[index], seed, arity, depth, rounds)


@pytest.mark.heavy
@pytest.mark.parametrize("index", range(len(pairs())), ids=lambda i: "{!r}, {!r}".format(*pairs()[i]))
@given(seed=seeds, arity=st.integers(2, 20), depth=st.one_of(st.none(), st.integers(1, 9)), rounds=st.integers(1, 900))
@settings(max_examples=25, deadline=None)
def test_a_long_search_breaks_none_either(index: int, seed: int, arity: int, depth: int | None, rounds: int) -> None:
    try_to_break(*pairs()[index], seed, arity, depth, rounds)


def try_to_break(space: tc.ConvexSet, norm: Norm, seed: int, arity: int, depth: int | None, rounds: int) -> None:
    if depth is not None:
        rounds = min(rounds, arity**depth)
    promise = tc.certificate(space, norm, rounds=rounds, arity=arity, depth=depth)
    assert promise.bound <= promise.minkowski * (1 + 1e-9)
    assert promise.squared <= promise.minkowski_squared * (1 + 1e-9)
    assert promise.bound**2 <= promise.squared * (1 + 1e-9)
    rng = np.random.default_rng(seed)
    ledgers = [
        play(tc.TreeCal(space, arity=arity, depth=depth), outcomes)[1]
        for outcomes in hard_streams(space, rounds, arity, rng)
    ]
    ledgers += [
        streams.play(tc.TreeCal(space, arity=arity, depth=depth), adversary, rounds=min(rounds, 120))
        for adversary in (streams.MeanAdversary(space), streams.LedgerAdversary(space, norm=norm))
        if rounds <= 120
    ]
    for ledger in ledgers:
        error, square = ledger.error(norm, per_node=True), ledger.error(norm.squared, per_node=True)
        assert error <= promise.bound * (1 + 1e-9)
        assert square <= promise.squared * (1 + 1e-9)


def test_how_tight_certificates_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Print the greatest ratio of error to bound over many streams; it must come near 1 on small trees."""
    best, where = 0.0, ""
    rng = np.random.default_rng(0)
    for space, norm in pairs()[:20]:
        for arity, depth in ((2, 1), (2, 3), (3, 2), (4, 3), (8, 2), (16, 2)):
            rounds = arity**depth
            promise = tc.certificate(space, norm, rounds=rounds, arity=arity, depth=depth)
            tried = hard_streams(space, rounds, arity, rng)
            for outcomes in tried:
                ledger = play(tc.TreeCal(space, arity=arity, depth=depth), outcomes)[1]
                ratio = ledger.error(norm, per_node=True) / promise.bound
                if ratio > best:
                    best, where = ratio, f"{space!r}, {norm!r}, arity {arity}, depth {depth}"
    with capsys.disabled():
        print(f"\ntightest certificate seen: error/bound = {best:.3f} on {where}")
    assert 0.6 < best <= 1


def test_certificates_never_rise_with_more_information() -> None:
    for space, norm in pairs():
        for arity in (2, 4, 16):
            bounds = [tc.certificate(space, norm, rounds=arity**L, arity=arity, depth=L).bound for L in range(1, 6)]
            assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(bounds))
    for name in ("l1", "l2", "linf"):
        for make in (lambda r: tc.Ball(3, radius=r), lambda r: tc.Box(0, r, dim=3), lambda r: tc.Simplex(int(r * 4))):
            sizes = [tc.certificate(make(r), name, rounds=4096, arity=8).bound for r in (0.5, 1.0, 2.0)]
            assert sizes == sorted(sizes)


def test_the_paper_beside_it_has_its_constants_put_right() -> None:
    c = tc.certificate(tc.Ball(3), "l2", rounds=8**4, arity=8, depth=4)
    assert c.paper_squared == pytest.approx(6 * 4 / 4 + math.pi**2 / 3 * 4 / 8)
    assert c.paper == pytest.approx(math.sqrt(c.paper_squared or 0))
    assert c.bound <= c.minkowski <= (c.paper or 0)
    assert tc.certificate(tc.Ball(3), "l2", rounds=8**4, arity=8).paper is None


@pytest.mark.parametrize("depth", [None, 3])
def test_the_block_rule_has_a_certificate_too(depth: int | None) -> None:
    space = tc.Simplex(3)
    promise = tc.certificate(space, "l1", rounds=500, arity=8, depth=depth, rule="block")
    plain = tc.certificate(space, "l1", rounds=500, arity=8, depth=depth)
    assert promise.bound == pytest.approx(min(2.0, plain.bound + promise.hedge))
    tried: list[Array | streams.Adversary] = [*hard_streams(space, 500, 8, np.random.default_rng(0))]
    for stream in [*tried, streams.LedgerAdversary(space)]:
        forecaster = tc.AdaptiveTreeCal(space, arity=8, depth=depth, rule="block")
        ledger = streams.play(forecaster, stream, rounds=500)
        assert ledger.error("l1", per_node=True) <= promise.bound
        assert ledger.error(tc.l1.squared, per_node=True) <= promise.squared
    with pytest.raises(TreeCalError, match="rule is 'stick'"):
        tc.certificate(space, "l1", rounds=500, rule="stick")  # type: ignore[arg-type]


def test_a_start_elsewhere_costs_more() -> None:
    centre = tc.certificate(tc.Simplex(2), "l1", rounds=64, arity=4, depth=3)
    corner = tc.certificate(tc.Simplex(2), "l1", rounds=64, arity=4, depth=3, start=[1.0, 0.0])
    assert (centre.radius, corner.radius) == (1.0, 2.0)
    assert corner.bound > centre.bound


@pytest.mark.parametrize("depth", [None, 3])
def test_pure_forecasts_keep_to_theirs(depth: int | None) -> None:
    space, block, rounds = tc.Simplex(2), 8, 8 * 27
    promise = sample_certificate(space, "l2", rounds=rounds, block=block, arity=3, depth=depth)
    errors = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        f = tc.SampleTreeCal(space, arity=3, depth=depth, block=block, rng=rng)
        errors.append(streams.play(f, streams.MeanAdversary(space), rounds=rounds).error("l2"))
    assert np.mean(errors) <= promise
    assert sample_certificate(space, "l2", rounds=3, block=8) == pytest.approx(2**0.5)


@given(seed=seeds, dim=st.integers(1, 8), p=st.sampled_from([1, 1.5, 2, 3, 8, math.inf]))
@settings(max_examples=60, deadline=None)
def test_type_two_constants(seed: int, dim: int, p: float) -> None:
    """E‖Σ ±d_i‖² <= K²Σ‖d_i‖² over all signs."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(8, dim)) * rng.integers(0, 2, size=(8, dim))
    signs = np.array(np.meshgrid(*[[-1, 1]] * 8)).reshape(8, -1).T
    mean = np.square(Lp(p)(signs @ steps)).mean()
    assert mean <= type_two(Lp(p), dim) ** 2 * np.square(Lp(p)(steps)).sum() * (1 + 1e-9)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: tc.certificate(tc.Ball(2), "l2", rounds=0), TreeCalError, "rounds is 0"),
        (lambda: tc.certificate(tc.Ball(2), "l2", rounds=math.nan), TreeCalError, "rounds is nan"),  # type: ignore[arg-type]
        (lambda: tc.certificate(tc.Ball(2), "l2", rounds=9, arity=2, depth=3), HorizonError, "beyond the horizon"),
        (lambda: tc.certificate(tc.Ball(2), "l2", rounds=9, arity=1), TreeCalError, "arity is 1"),
        (lambda: tc.certificate(tc.Ball(2), Gauge(vertices=np.eye(2)), rounds=9), UnsupportedError, "no Jensen gap"),
        (lambda: type_two(Gauge(halfspaces=np.eye(2)), 2), UnsupportedError, "type-2 constant"),
        (lambda: tc.plan(tc.Ball(2), "l2"), TreeCalError, "not both or neither"),
        (lambda: tc.plan(tc.Ball(2), "l2", rounds=-1), TreeCalError, "rounds is -1"),
        (lambda: tc.plan(tc.Ball(2), "l2", error=0.0), TreeCalError, "error is 0.0"),
        (lambda: tc.plan(tc.Ball(2), "l2", error=math.nan), TreeCalError, "error is nan"),
    ],
)
def test_bad_input(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
