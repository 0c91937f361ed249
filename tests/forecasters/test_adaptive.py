from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.forecasters.adversaries import AgainstTheLedger, AgainstTheMean, duel, opponent, stream
from tests.forecasters.oracle_adaptive import Node, Oracle
from tests.strategies import one_hot, play, spaces, streams
from treecal._typing import Array
from treecal.exceptions import HorizonError, ParameterError
from treecal.theory import block_regret


@pytest.mark.parametrize("rule", ["stick", "block"])
@pytest.mark.parametrize(("arity", "depth"), [(2, None), (3, None), (4, None), (2, 6), (3, 4)])
@pytest.mark.parametrize("space", [tc.Simplex(3), tc.Box(-3, 10, dim=2)], ids=repr)
def test_it_is_what_it_is_described_to_be(space: tc.ConvexSet, arity: int, depth: int | None, rule: Any) -> None:
    outcomes = streams(space, 64, 5)
    f = tc.AdaptiveTreeCal(space, arity=arity, depth=depth, rule=rule, rate=5.0)
    oracle = Oracle(
        outcomes,
        arity=arity,
        depth=depth,
        norm=f.norm,
        rule=rule,
        rate=5.0,
        start=np.asarray(space.centre),
        diameter=space.diameter(f.norm),
    )
    forecasts, _ = play(f, outcomes)
    for x, path in zip(forecasts, oracle.path, strict=True):
        np.testing.assert_allclose(x.points, [label for label, _ in path], rtol=0, atol=1e-12)
        np.testing.assert_allclose(x.weights, [weight for _, weight in path], rtol=0, atol=1e-11)


def node_table(forecasts: list[tc.Forecast], outcomes: Array) -> dict[Node, tuple[float, Array, Array]]:
    """Return weight, label and the outcomes met of every node; a weight or label that changes in its life fails."""
    table: dict[Node, tuple[float, Array, list[Array]]] = {}
    for x, y in zip(forecasts, outcomes, strict=True):
        assert x.nodes is not None
        for (height, index), p, w in zip(x.nodes.tolist(), x.points, x.weights, strict=True):
            weight, label, met = table.setdefault((height, index), (float(w), p, []))
            assert weight == w
            assert np.array_equal(label, p)
            met.append(y)
    return {node: (weight, label, np.array(met)) for node, (weight, label, met) in table.items()}


@settings(max_examples=60, deadline=None)
@given(spaces(3), st.integers(2, 5), st.integers(1, 90), st.sampled_from(["stick", "block"]), st.integers(0, 10**6))
def test_labelled_error_is_that_of_its_node_table(
    space: tc.ConvexSet, arity: int, rounds: int, rule: Any, seed: int
) -> None:
    outcomes = streams(space, rounds, seed)
    forecasts, ledger = play(tc.AdaptiveTreeCal(space, arity=arity, rule=rule), outcomes)
    table = node_table(forecasts, outcomes)
    for norm in (tc.l1, tc.l2):
        total = sum(w * len(met) * float(norm(met.mean(axis=0) - label)) for w, label, met in table.values())
        assert ledger.error(norm, per_node=True, total=True) == pytest.approx(total, rel=1e-9, abs=1e-9)


def height_costs(outcomes: Array, arity: int, depth: int | None, space: tc.ConvexSet) -> dict[int, dict[int, float]]:
    """Return the ℓ1 cost of each height in each epoch, from TreeCal's own nodes, unfinished ones with what they met."""
    forecasts, _ = play(tc.TreeCal(space, arity=arity, depth=depth), outcomes)
    costs: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    epochs: dict[Node, int] = {}
    for x in forecasts:
        assert x.nodes is not None
        for height, index in x.nodes.tolist():
            epochs.setdefault((height, index), len(x))
    for (height, index), (_, label, met) in node_table(forecasts, outcomes).items():
        costs[epochs[height, index]][height] += len(met) * float(tc.l1(met.mean(axis=0) - label))
    return costs


class Recorder:
    """An adversary, and what it played."""

    def __init__(self, adversary: Any) -> None:
        self.adversary, self.played = adversary, []  # type: ignore[var-annotated]

    def __call__(self, x: tc.Forecast) -> Array:
        self.played.append(self.adversary(x))
        last: Array = self.played[-1]
        return last


class AgainstTheHeavy:
    """Plays the vertex farthest from the node that carries most weight: what Hedge must answer to."""

    def __call__(self, x: tc.Forecast) -> Array:
        heavy = x.points[int(np.argmax(x.weights))]
        outcome: Array = np.eye(len(heavy))[int(np.argmin(heavy))]
        return outcome


@pytest.mark.parametrize(("arity", "depth", "rounds"), [(2, None, 700), (4, None, 900), (8, None, 700), (5, 4, 600)])
@pytest.mark.parametrize("kind", ["iid", "mean", "ledger", "heavy", "swings"])
def test_the_block_rule_keeps_its_certificate(kind: str, arity: int, depth: int | None, rounds: int) -> None:
    space, rng = tc.Simplex(3), np.random.default_rng(3)
    swings = np.eye(3)[np.arange(rounds) // (2 * arity) % 2]
    adversary = Recorder(
        {
            "iid": stream(one_hot(3, rounds, rng)),
            "mean": AgainstTheMean(3, rng),
            "ledger": AgainstTheLedger(3, rng),
            "heavy": AgainstTheHeavy(),
            "swings": stream(swings),
        }[kind]
    )
    error = duel(tc.AdaptiveTreeCal(space, arity=arity, depth=depth, rule="block"), adversary, rounds).error(
        "l1", per_node=True, total=True
    )
    outcomes = np.array(adversary.played)
    regret = block_regret(rounds, arity=arity, depth=depth, diameter=2.0)
    best = sum(min(of_epoch.values()) for of_epoch in height_costs(outcomes, arity, depth, space).values())
    assert error <= best + regret
    uniform = play(tc.TreeCal(space, arity=arity, depth=depth), outcomes)[1]
    assert best <= uniform.error("l1", per_node=True, total=True) + 1e-9


def test_block_regret_is_hedges() -> None:
    for arity, depth in ((2, 3), (8, 4), (5, 2)):
        top = arity ** (depth - 1)
        full = 3.0 * top * math.sqrt(arity * math.log(depth) / 2)
        assert block_regret(arity**depth, arity=arity, depth=depth, diameter=3.0) == pytest.approx(
            min(full, 3.0 * top * arity)
        )
    epochs = sum(8 ** (m - 1) * math.sqrt(7 * math.log(m) / 2) for m in range(2, 6))
    assert block_regret(8**5, arity=8, diameter=1.0) == pytest.approx(epochs)
    values = [block_regret(t, arity=3, diameter=1.0) for t in range(300)]
    assert values == sorted(values)
    assert all(value <= t for t, value in enumerate(values))
    assert values[:4] == [0.0] * 4  # one height: nothing to choose from
    with pytest.raises(HorizonError, match="round 9 is beyond the horizon"):
        block_regret(9, arity=2, depth=3, diameter=1.0)


def test_rate_zero_is_treecal() -> None:
    outcomes = one_hot(3, 200, np.random.default_rng(0))
    uniform, _ = play(tc.TreeCal(tc.Simplex(3), arity=3), outcomes)
    still, _ = play(tc.AdaptiveTreeCal(tc.Simplex(3), arity=3, rate=0.0), outcomes)
    for a, b in zip(uniform, still, strict=True):
        assert np.array_equal(a.points, b.points)
        np.testing.assert_allclose(a.weights, b.weights, atol=1e-14)


def test_units_do_not_matter() -> None:
    small, large = tc.Box(0, 1, dim=2), tc.Box(0, 1024, dim=2)
    outcomes = streams(small, 200, 1)
    for a, b in zip(
        play(tc.AdaptiveTreeCal(small), outcomes)[0], play(tc.AdaptiveTreeCal(large), outcomes * 1024)[0], strict=True
    ):
        assert np.array_equal(a.weights, b.weights)


def test_norms_by_default() -> None:
    assert tc.AdaptiveTreeCal(tc.Simplex(3)).norm == tc.l1
    assert tc.AdaptiveTreeCal(tc.Ball(3)).norm == tc.l2
    assert tc.AdaptiveTreeCal(tc.Ball(3), norm="linf").norm == tc.linf


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rule": "brick"}, "rule is 'brick', expected 'stick' or 'block'"),
        ({"rate": -1}, "rate is -1"),
        ({"rate": math.nan}, "rate is nan"),
        ({"norm": "l9"}, "norm is 'l9'"),
        ({"arity": 1}, "arity is 1"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        tc.AdaptiveTreeCal(tc.Simplex(2), **wrong)


def race(kind: str, dim: int, rounds: int, seeds: int) -> float:
    """Return AdaptiveTreeCal's mean ℓ1 error, TreeCal's of the same arity being 1."""
    space = tc.Simplex(dim)
    ours, theirs = (
        np.mean([duel(make(), opponent(kind, dim, rounds, s), rounds).error("l1") for s in range(seeds)])
        for make in (
            lambda: tc.AdaptiveTreeCal(space),
            lambda: tc.TreeCal(space, arity=tc.AdaptiveTreeCal(space).arity),
        )
    )
    return float(ours / theirs)


@pytest.mark.parametrize(("kind", "limit"), [("iid", 0.5), ("regimes", 1.05), ("mean", 1.05), ("ledger", 1.05)])
def test_it_beats_treecal(kind: str, limit: float) -> None:
    assert race(kind, 5, 3000, 2) <= limit


@pytest.mark.heavy
@pytest.mark.parametrize("dim", [2, 5, 20])
@pytest.mark.parametrize(("kind", "limit"), [("iid", 0.5), ("regimes", 1.05), ("mean", 1.05), ("ledger", 1.05)])
def test_it_beats_treecal_at_length(kind: str, dim: int, limit: float) -> None:
    assert race(kind, dim, 10_000, 5) <= limit
