"""Guarded streams in a bank are guarded forecasters, each by itself, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.strategies import streams
from treecal._typing import Array, Integers
from treecal.exceptions import SnapshotError, TreeCalError
from treecal.forecasters import GuardStreams
from treecal.streams import LedgerAdversary, regime_switches

Make = Callable[[], tc.Guarded]
TWO, THREE = tc.Simplex(2), tc.Simplex(3)


def exact(x: tc.Forecast) -> tuple[bytes, bytes, Any]:
    return x.points.tobytes(), x.weights.tobytes(), None if x.nodes is None else x.nodes.tolist()


class Pairs:
    """Streams in arrays, and each of them alone."""

    def __init__(self, make: Make, count: int) -> None:
        self.make, self.streams = make, GuardStreams(make())
        self.streams.reserve(count)
        self.alone = [make() for _ in range(count)]

    def step(self, rows: Integers, outcomes: Array, given: Any = None) -> None:
        announced = self.streams.play(rows, outcomes if given is None else given)
        for x, row, y in zip(announced, rows.tolist(), outcomes, strict=True):
            assert exact(x) == exact(self.alone[row].predict())
            self.alone[row].update(y)
        self.check()

    def check(self) -> None:
        assert self.streams.rounds.tolist() == [f.rounds for f in self.alone]
        for x, f in zip(self.streams.announce(np.arange(len(self.alone))), self.alone, strict=True):
            assert exact(x) == exact(f.predict())

    def resume(self) -> None:
        self.streams = self.streams.resumed(self.streams.state(np.arange(len(self.alone))))
        self.check()


def outcomes_of(space: tc.ConvexSet, rounds: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if isinstance(space, tc.Simplex):
        rows = regime_switches(space, rounds, rng, every=25)
        return (
            rows
            if seed % 2
            else np.where(rng.random((rounds, 1)) < 0.5, rows, rng.dirichlet(np.ones(space.dim), rounds))
        )
    return streams(space, rounds, seed)


MAKES: dict[str, Make] = {
    "three classes": lambda: tc.Guarded(THREE),
    "three classes, l2, much": lambda: tc.Guarded(THREE, norm="l2", budget=2),
    "three classes, error": lambda: tc.Guarded(THREE, safe=tc.Harmonic(THREE, block=7), error=0.2),
    "three classes, tree": lambda: tc.Guarded(THREE, safe=tc.TreeCal(THREE), budget=0.05),
    "another tree": lambda: tc.Guarded(THREE, safe=tc.TreeCal(THREE, arity=2, start=[1.0, 0.0, 0.0]), error=0.3),
    "small books": lambda: tc.Guarded(THREE, eager=tc.Codebook(tc.Tracker(THREE, period=9), capacity=3)),
    "two classes": lambda: tc.Guarded(TWO),
    "two classes, l2": lambda: tc.Guarded(TWO, norm="l2", safe=tc.BinaryGrid(TWO, bins=7), error=0.1),
    "box": lambda: tc.Guarded(tc.Box([-1.0, 0.0], [1.0, 5.0]), error=0.5),
    "ball": lambda: tc.Guarded(tc.Ball(3, norm="l1", radius=2.0), norm="l1", budget=1),
}


SOME = ("three classes, tree", "three classes, error", "two classes, l2", "another tree", "box")


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@given(st.data())
@settings(max_examples=8, deadline=None)
def test_each_row_is_a_forecaster(make: Make, data: st.DataObject) -> None:
    """Whatever the order of outcomes, with rows added, cleared and resumed on the way."""
    few = data.draw(st.sampled_from([0, 2, 512]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treecal.forecasters._guarded.streams._FEW", few)  # so that pages are packed often
        pairs = Pairs(make, data.draw(st.integers(1, 4)))
        for _ in range(data.draw(st.integers(1, 4))):
            count, seed = data.draw(st.integers(0, 60)), data.draw(st.integers(0, 10**6))
            rows = np.random.default_rng(seed).integers(len(pairs.alone), size=count)
            pairs.step(rows, outcomes_of(make().space, count + 1, seed)[:count])
            match data.draw(st.sampled_from(["go on", "add", "clear", "resume"])):
                case "add":
                    pairs.streams.reserve(len(pairs.alone) + 2)
                    pairs.alone += [make(), make()]
                case "clear":
                    gone = data.draw(st.integers(0, len(pairs.alone) - 1))
                    pairs.streams.clear(np.array([gone]))
                    pairs.alone[gone] = make()
                case "resume":
                    pairs.resume()
        pairs.check()


@pytest.mark.parametrize("dim", [2, 3])
def test_classes_are_corners(dim: int) -> None:
    pairs, rng = Pairs(lambda: tc.Guarded(tc.Simplex(dim)), 3), np.random.default_rng(dim)
    for _ in range(4):
        rows, classes = (
            rng.integers(3, size=70),
            rng.choice(dim, size=70, p=np.arange(1, dim + 1) / (dim * (dim + 1) / 2)),
        )
        pairs.step(rows, np.eye(dim)[classes], given=classes)


@pytest.mark.parametrize("safe", [None, tc.Harmonic(THREE, block=40), tc.TreeCal(THREE)])
def test_streams_of_an_adversary(safe: tc.Forecaster | None) -> None:
    """The guard of each shuts and opens by itself, and the certified part forecasts."""
    pairs = Pairs(lambda: tc.Guarded(THREE, safe=safe), 2)
    adversaries = [LedgerAdversary(THREE, rng=np.random.default_rng(seed)) for seed in range(2)]
    spoke = set()
    for t in range(260):
        row = t % 2
        x = pairs.streams.announce(np.array([row]))[0]
        spoke.add((row, x.nodes is None))
        pairs.step(np.array([row]), np.array([adversaries[row].outcome(x)]))
    assert spoke == {(0, True), (0, False), (1, True), (1, False)}
    pairs.resume()
    assert pairs.streams.announce(np.array([0, 1])).points.shape[0] == 2


@pytest.mark.parametrize("make", [MAKES[name] for name in SOME])
def test_a_row_can_go_on_alone(make: Make) -> None:
    pairs, space = Pairs(make, 2), make().space
    pairs.step(np.array([0, 1] * 60), outcomes_of(space, 120, 3))
    for row, f in enumerate(pairs.alone):
        again = pairs.streams.forecaster(row)
        for y in outcomes_of(space, 40, 5):
            assert again.report() == f.report()
            assert exact(again.predict()) == exact(f.predict())
            again.update(y)
            f.update(y)
        again.set_state(deepcopy(f.get_state()))


def test_state_of_some_rows() -> None:
    pairs, rng = Pairs(lambda: tc.Guarded(THREE), 5), np.random.default_rng(0)
    pairs.step(rng.integers(5, size=300), outcomes_of(THREE, 300, 1))
    state = pairs.streams.state(np.array([4, 1]))
    some = pairs.streams.resumed(state)
    assert [exact(x) for x in some.announce(np.arange(2))] == [exact(pairs.alone[k].predict()) for k in (4, 1)]
    again = some.state(np.arange(2))
    for name, array in state.items():
        parts = array.items() if isinstance(array, dict) else [(name, array)]
        for inner, value in parts:
            other = again[name][inner] if isinstance(array, dict) else again[name]
            assert value.tobytes() == other.tobytes()
            assert not np.shares_memory(value, other)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_records_are_those_of_single_streams(make: Make) -> None:
    """A record depends on its own stream alone, and streams come back from records in any company."""
    pairs, everyone = Pairs(make, 4), np.arange(4)
    pairs.step(np.random.default_rng(0).integers(3, size=200), outcomes_of(make().space, 200, 1))
    numbers, ends = pairs.streams.records(everyone)
    single = [pairs.streams.records(np.array([row]))[0] for row in everyone]
    assert numbers.tobytes() == np.concatenate(single).tobytes()
    assert np.diff(ends).tolist() == list(map(len, single))
    some = [2, 0, 3]
    ends = np.cumsum([0, *(len(single[row]) for row in some)])
    again = pairs.streams.recorded(pairs.streams.rounds[some], np.concatenate([single[row] for row in some]), ends)
    assert [exact(x) for x in again.announce(np.arange(3))] == [exact(pairs.alone[row].predict()) for row in some]
    for bad in (single[0][:-1], single[0][:3], np.append(single[0], 0.0), single[0] * np.nan):
        with pytest.raises(SnapshotError):
            pairs.streams.recorded(pairs.streams.rounds[:1], bad, np.array([0, len(bad)]))


def test_memory_follows_the_points_that_are_kept() -> None:
    """A new stream takes no pages, and outgrown pages are taken back."""
    make = MAKES["three classes"]
    many = GuardStreams(make(), 200)
    assert len(many._pool.sizes) == 0
    rng, everyone = np.random.default_rng(0), np.arange(200)
    for _ in range(60):
        many.learn(everyone, rng.choice(3, size=200, p=[0.6, 0.3, 0.1]))
    room, used = many._pool.numbers[:, 1], many._pool.used
    assert (room >= used).all()
    assert room.sum() <= 1.5 * used.sum() + 2 * 200
    assert len(many._pool.sizes) <= 1.5 * room.sum() + 3 * 200 + 512
    assert many.nbytes < 200 * 5_500


def broken(state: dict[str, Any], name: str, change: Callable[[Array], Any]) -> dict[str, Any]:
    state = deepcopy(state)
    *path, last = name.split("/")
    inner = state
    for part in path:
        inner = inner[part]
    inner[last] = change(inner[last])
    return state


PLACES = ("safe_rounds", "past", "used", "announced", "contexts", "slots", "longer")
"""What compiled code uses as places in arrays, or to count them."""


@pytest.mark.parametrize("make", [MAKES[name] for name in SOME])
def test_states_that_cannot_be_are_refused(make: Make) -> None:
    pairs, everyone = Pairs(make, 2), np.arange(2)
    pairs.step(np.array([0, 1, 0] * 30), outcomes_of(make().space, 90, 2))
    state = pairs.streams.state(everyone)
    names = [n for n, a in state.items() if isinstance(a, np.ndarray) and a.size]
    for name in names:
        changes: list[Callable[[Array], Any]] = [
            lambda a: a[:-1],
            lambda a: a.astype(np.float32),
            lambda a: a.tolist(),
            lambda a: a * np.nan,
        ]
        if name in PLACES:
            kind: Any = np.iinfo(state[name].dtype)
            changes += [lambda a, most=kind.max: np.full_like(a, most)]  # type: ignore[misc]
            if kind.min:
                changes += [lambda a, least=kind.min: np.full_like(a, least)]  # type: ignore[misc]
        for change in changes:
            with pytest.raises(SnapshotError):
                pairs.streams.resumed(broken(state, name, change))
    with pytest.raises(SnapshotError):
        pairs.streams.resumed(state | {"more": 1})
    with pytest.raises(SnapshotError):
        pairs.streams.resumed({n: a for n, a in state.items() if n != "told"})
    pairs.check()


def test_guards_are_compiled_once_for_all_sets() -> None:
    sets = (TWO, THREE, tc.Box(0, 1, dim=2), tc.Ball(3), tc.Cdf(0, 1))
    type_of: Any = numba.typeof
    assert len({type_of(GuardStreams(tc.Guarded(space))._rules) for space in sets}) == 1


def test_what_is_not_compiled_is_another_kind() -> None:
    assert tc.Guarded(THREE).usual
    for f in (
        tc.Guarded(THREE, eager=tc.Tracker(THREE)),
        tc.Guarded(THREE, safe=tc.AdaptiveTreeCal(THREE), error=0.1),
        tc.Guarded(THREE, safe=tc.TreeCal(THREE, arity=2, depth=9)),
        tc.Guarded(THREE, norm="linf"),
    ):
        assert not f.usual


def test_a_bank_of_guards() -> None:
    bank, alone = tc.Bank(tc.Guarded(THREE), streams=3), [tc.Guarded(THREE) for _ in range(3)]
    rng = np.random.default_rng(0)
    for _ in range(30):
        keys = rng.integers(3, size=5)
        classes = rng.choice(3, size=5, p=[0.6, 0.3, 0.1])
        bank.update(keys, classes)
        for key, k in zip(keys, classes, strict=True):
            alone[key].update(np.eye(3)[k])
    with pytest.raises(TreeCalError):
        bank.update([0, 1], [[0.2, 0.3, 0.5], [0.2, 0.3, 0.6]])
    again, copied = tc.state.loads(tc.state.dumps(bank)), deepcopy(bank)
    copied.update([0], [2])
    for each in (bank, again):
        assert [exact(x) for x in each.predict()] == [exact(f.predict()) for f in alone]
        assert each.predict().mean.shape == (3, 3)
