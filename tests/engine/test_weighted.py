"""Weighted streams: whatever they learn together, each is bit for bit what it would be alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treecal as tc
from treecal._typing import Integers
from treecal.exceptions import OutcomeError
from treecal.forecasters import node_costs
from treecal.forecasters._tree.wide import costs_of

STREAMS = 384


def keys_of(order: str, rng: np.random.Generator) -> Integers:
    """Return keys: each once, some often, some in runs, or one alone."""
    match order:
        case "shuffled":
            return rng.permutation(STREAMS)
        case "repeated":
            return rng.integers(STREAMS, size=2 * STREAMS) ** 2 // STREAMS
        case "runs":
            return np.repeat(rng.permutation(STREAMS // 3), 9)
        case _:
            return np.zeros(512, np.int64)


@pytest.mark.parametrize("order", ["shuffled", "repeated", "runs", "one"])
@pytest.mark.parametrize("dim", [3, 10])
def test_streams_alone(order: str, dim: int) -> None:
    """Trees grow within an update, and classes are corners."""
    space, rng = tc.Simplex(dim), np.random.default_rng(dim)
    bank = tc.Bank(tc.AdaptiveTreeCal(space), streams=STREAMS)
    alone = [tc.AdaptiveTreeCal(space) for _ in range(STREAMS)]
    for turn in range(6):
        keys = keys_of(order, rng)
        classes = rng.integers(dim, size=len(keys))
        outcomes: Any = np.eye(dim)[classes] if turn % 2 else rng.dirichlet(np.ones(dim), len(keys))
        bank.update(keys, classes if turn % 2 else outcomes)
        for key, outcome in zip(keys.tolist(), outcomes, strict=True):
            alone[key].update(outcome)
    state = bank.get_state()
    for key, forecaster in enumerate(alone):
        own = vars(forecaster._state)
        heights = len(own["sums"])
        assert (state["rounds"][key], state["scale"][key]) == (own["rounds"][0], own["scale"][0])
        for name in ("sums", "costs", "weights"):
            assert state[name][:heights, key].tobytes() == own[name][:, 0].tobytes()
            assert not state[name][heights:, key].any()


@pytest.mark.parametrize("arity", [2, 3, 4, 5])
@pytest.mark.parametrize("depth", [None, 1, 2, 3])
@pytest.mark.parametrize("norm", ["l1", "l2", "linf", tc.geometry.Lp(3)])
def test_every_tree_up_to_its_last_round(arity: int, depth: int | None, norm: Any) -> None:
    """Of a full tree nothing is carried up."""
    space, rounds = tc.Simplex(3), 130 if depth is None else arity**depth

    def make() -> tc.AdaptiveTreeCal:
        return tc.AdaptiveTreeCal(space, arity=arity, depth=depth, norm=norm)

    outcomes = np.random.default_rng(arity).dirichlet(np.ones(3), rounds)
    bank, alone = tc.Bank(make(), streams=1), make()
    bank.update(np.zeros(rounds, np.int64), outcomes)
    for outcome in outcomes:
        alone.update(outcome)
    state, own = bank.get_state(), alone.get_state()
    assert {name: array.tobytes() for name, array in state.items()} == {n: own[n].tobytes() for n in state}


@pytest.mark.parametrize("depth", [None, 3])
def test_threads(depth: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share streams, whose results do not depend on how many there are; fixed trees are filled."""
    monkeypatch.setattr("treecal._platform._SHARE", 100)
    rng, states = np.random.default_rng(0), []
    orders = [rng.permutation(STREAMS) for _ in range(8)]
    classes = rng.integers(3, size=(8, STREAMS))
    for threads in (1, 2, 5):
        bank = tc.Bank(tc.AdaptiveTreeCal(tc.Simplex(3), arity=2, depth=depth), streams=STREAMS)
        bank._streams.threads = threads
        for keys, outcomes in zip(orders, classes, strict=True):
            bank.update(keys, outcomes)
        states.append({name: array.tobytes() for name, array in bank.get_state().items()})
    assert states[0] == states[1] == states[2]


def test_threads_name_the_first_invalid_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of them finds it; nothing is learned."""
    monkeypatch.setattr("treecal._platform._SHARE", 10)
    bank, outcomes = tc.Bank(tc.AdaptiveTreeCal(tc.Simplex(3)), streams=100), np.full((100, 3), 1 / 3)
    outcomes[[70, 90], 0] = np.nan
    for threads in (1, 2, 7):
        bank._streams.threads = threads
        with pytest.raises(OutcomeError, match="in row 70"):
            bank.update(np.arange(100), outcomes)
    assert not bank.rounds.any()


@pytest.mark.parametrize(("norm", "number"), [("l1", 1), ("l2", 2), ("linf", 3)])
@pytest.mark.parametrize("dim", [*range(1, 15), 31, 128])
def test_norms(norm: str, number: int, dim: int) -> None:
    """As AdaptiveTreeCal computes them one by one, tiny and huge ones too."""
    rng = np.random.default_rng(dim)
    gaps = rng.normal(size=(52, dim)) * 10.0 ** rng.integers(-200, 150, size=(52, 1))
    gaps[:5] = rng.integers(-1, 2, size=(5, dim))
    sizes = np.empty(50)
    costs_of(gaps.T.copy(), number, sizes)
    assert sizes.tobytes() == node_costs(tc.geometry.as_norm(norm), gaps[:50]).tobytes()
