"""Scores and evidence by stream are those of one corrector and one monitor for each, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.strategies import streams
from treecal._typing import Array
from treecal.correctors._scores import Round, Tallies
from treecal.exceptions import HorizonError, ParameterError, SnapshotError, UnsupportedError
from treecal.monitor import discoveries
from treecal.state import dumps, loads

TWO, THREE, BOX = tc.Simplex(2), tc.Simplex(3), tc.Box([-1.0, 0.0], [1.0, 5.0])
THINGS: dict[str, Callable[[], Any]] = {
    "guarded": lambda: tc.Guarded(THREE),
    "guarded, two": lambda: tc.Guarded(TWO),
    "tree": lambda: tc.TreeCal(THREE, arity=2),
    "adaptive": lambda: tc.AdaptiveTreeCal(THREE, arity=3),
    "tree, box": lambda: tc.TreeCal(BOX, arity=3),
    "tree, ten classes": lambda: tc.TreeCal(tc.Simplex(10), arity=2),
    "a mean": lambda: tc.RunningMean(THREE),
}


class Alone:
    """A forecaster, and beside it what a corrector counts and a monitor."""

    def __init__(self, thing: Any, monitor: tc.Monitor) -> None:
        self.thing, self.monitor = deepcopy(thing), deepcopy(monitor)
        self.tallies = Tallies(thing.space)
        self.sums = self.tallies.new()

    def step(self, outcome: Array) -> None:
        x = self.thing.predict()
        self.monitor.update(x, outcome)
        self.sums = self.tallies.after(self.sums, Round(x.mean, x, outcome, 1.0))
        self.thing.update(outcome)


def outcomes_of(space: tc.ConvexSet, rounds: int, seed: int) -> Array:
    if not isinstance(space, tc.Simplex):
        return streams(space, rounds, seed)
    rng = np.random.default_rng(seed)
    rows = np.eye(space.dim)[rng.choice(space.dim, size=rounds, p=rng.dirichlet(np.ones(space.dim)))]
    return (
        rows if seed % 2 else np.where(rng.random((rounds, 1)) < 0.8, rows, rng.dirichlet(np.ones(space.dim), rounds))
    )


def assert_same(bank: tc.Bank, alone: dict[int, Alone]) -> None:
    found, evidence = bank.scores(), bank.evidence()
    assert found.keys.tolist() == evidence.keys.tolist() == sorted(alone)
    assert found.before is None
    for at, key in enumerate(found.keys.tolist()):
        one = alone[key]
        assert evidence.rounds[at] == found.rounds[at] == one.thing.rounds
        assert evidence.statistic[at] == one.monitor.statistic
        assert evidence.peak[at] == one.monitor.peak
        assert evidence.alarmed[at] == (one.monitor.alarm is not None)
        assert bank.alarms.get(key) == one.monitor.alarm
        if not one.thing.rounds:
            assert np.isnan(found.after.brier[at])
            continue
        one.sums = one.tallies.added(one.sums)
        report = one.tallies.report(one.sums)
        for ours, theirs in ((found.after, report.after), (found.mean, report.mean)):
            assert ours.brier[at] == theirs.brier
            assert ours.calibration[at] == theirs.calibration
            assert ours.refinement[at] == theirs.refinement
            assert theirs.log is None if ours.log is None else ours.log[at] == theirs.log


@pytest.mark.parametrize("make", THINGS.values(), ids=THINGS)
@given(st.data())
@settings(max_examples=5, deadline=None)
def test_by_stream(make: Callable[[], Any], data: st.DataObject) -> None:
    thing, arl = make(), data.draw(st.sampled_from([None, 5.0]))
    monitor = tc.Monitor(thing.space, alpha=0.3, arl=arl)
    bank = tc.Bank(thing, streams=3, scores=True, monitor=monitor)
    alone = {key: Alone(thing, monitor) for key in range(3)}
    for _ in range(data.draw(st.integers(1, 3))):
        count, seed = data.draw(st.integers(0, 80)), data.draw(st.integers(0, 10**6))
        keys = np.random.default_rng(seed).choice(sorted(alone), size=count)
        outcomes = outcomes_of(thing.space, count + 1, seed)[:count]
        bank.update(keys, outcomes)
        for key, y in zip(keys.tolist(), outcomes, strict=True):
            alone[key].step(y)
        match data.draw(st.sampled_from(["go on", "add", "drop", "resume"])):
            case "add":
                alone |= {int(key): Alone(thing, monitor) for key in bank.add(1)}
            case "drop" if len(alone) > 1:
                gone = data.draw(st.sampled_from(sorted(alone)))
                bank.drop([gone])
                del alone[gone]
            case "resume":
                bank = loads(dumps(bank))
    assert_same(bank, alone)


def test_classes_are_corners() -> None:
    rng, monitor = np.random.default_rng(0), tc.Monitor(THREE)
    one, two = (tc.Bank(tc.TreeCal(THREE), streams=2, scores=True, monitor=monitor) for _ in range(2))
    keys, classes = rng.integers(2, size=200), rng.integers(3, size=200)
    one.update(keys, classes)
    two.update(keys, np.eye(3)[classes])
    assert dumps(one) == dumps(two)


CORRECTORS: dict[str, Callable[[], Any]] = {
    "platt": lambda: tc.PlattScaling(TWO, forget=False),
    "temperature": lambda: tc.TemperatureScaling(THREE, forget=False),
    "means": lambda: tc.Recalibrator(THREE, forget=False),
    "a chain": lambda: tc.Chain([tc.TemperatureScaling(THREE), tc.Recalibrator(THREE)]),
}


@pytest.mark.parametrize("make", CORRECTORS.values(), ids=CORRECTORS)
def test_correctors(make: Callable[[], Any]) -> None:
    """Before, after and in the mean: what each corrector alone would report."""
    corrector, rng = make(), np.random.default_rng(0)
    space, monitor = corrector.space, tc.Monitor(corrector.space)
    bank = tc.Bank(corrector, streams=3, scores=True, monitor=monitor)
    alone, monitors = [make() for _ in range(2)], [tc.Monitor(space) for _ in range(2)]
    for _ in range(4):
        keys, P = rng.integers(2, size=50), rng.dirichlet(np.ones(space.dim), 50)
        classes = rng.integers(space.dim, size=50)
        announced = bank.update(keys, classes, forecasts=P)
        for key, b, k, x in zip(keys.tolist(), P, classes.tolist(), announced, strict=True):
            assert np.array_equal(alone[key].predict(b).mean, x)
            monitors[key].update(x, k)
            alone[key].update(k)
    found, evidence = bank.scores(), bank.evidence()
    assert found.before is not None
    assert np.isnan(found.before.brier[2])
    for key, (one, watch) in enumerate(zip(alone, monitors, strict=True)):
        report = one.report()
        assert report.rounds == found.rounds[key]
        assert evidence.statistic[key] == watch.statistic
        for ours, theirs in ((found.before, report.before), (found.mean, report.mean)):
            assert ours.log is not None
            columns = (column[key] for column in ours[:4] if column is not None)
            assert tuple(columns) == (theirs.brier, theirs.calibration, theirs.refinement, theirs.log)
    again = loads(dumps(bank))
    assert dumps(again) == dumps(bank)


def test_errors_of_one_stream_change_nothing() -> None:
    """A horizon that is reached in the middle of an update, where each stream is an object."""
    thing = tc.Guarded(THREE, eager=tc.Tracker(THREE), safe=tc.TreeCal(THREE, arity=2, depth=2), budget=0)
    bank = tc.Bank(thing, streams=2, scores=True)
    bank.update([0, 0, 0], [0, 1, 2])
    before = bank.scores().after.brier.tobytes()
    with pytest.raises(HorizonError, match="stream 0"):
        bank.update([1, 0, 0, 0], [0, 1, 2, 0])
    assert bank.scores().after.brier.tobytes() == before
    assert bank.rounds.tolist() == [3, 0]
    bank.update([0], [0])


def test_alarms_and_discoveries() -> None:
    """Two of the streams change by turns, which a tree of one long interval never finds out."""
    monitor = tc.Monitor(TWO, alpha=0.01)
    bank, rng = tc.Bank(tc.TreeCal(TWO, arity=512, mix=0.5), streams=5, monitor=monitor), np.random.default_rng(0)
    for t in range(300):
        classes = rng.integers(2, size=5)
        classes[[1, 4]] = t // 30 % 2
        bank.update(np.arange(5), classes)
    assert set(bank.alarms) == {1, 4}
    assert all(alarm.e_value >= 100 for alarm in bank.alarms.values())
    evidence = bank.evidence()
    assert bank.discoveries().tolist() == discoveries(dict(zip(range(5), evidence.statistic, strict=True)))
    assert set(bank.discoveries().tolist()) == {1, 4}
    bank.drop([1])
    assert set(bank.alarms) == {4}
    assert bank.add().tolist() == [1]
    assert set(bank.alarms) == {4}
    assert bank.evidence().statistic[1] == 1.0


def test_names() -> None:
    bank = tc.Bank(tc.TreeCal(TWO, arity=512, mix=0.5), names=["a", "b"], scores=True, monitor=tc.Monitor(TWO))
    for t in range(200):
        bank.update(["b", "c", "a"], [t % 2, t // 40 % 2, t % 2], add=True)
    assert list(bank.alarms) == ["c"]
    assert bank.discoveries().tolist() == ["c"]
    assert bank.scores().keys.tolist() == bank.evidence().keys.tolist() == ["a", "b", "c"]
    again = loads(dumps(bank))
    assert again.alarms == bank.alarms
    again.drop(["c"])
    assert again.alarms == {}
    assert again.discoveries().tolist() == []


def test_off_unless_asked_for() -> None:
    plain = tc.Bank(THREE, streams=1)
    with pytest.raises(UnsupportedError, match="scores=True"):
        plain.scores()
    for read in (plain.evidence, plain.discoveries, lambda: plain.alarms):
        with pytest.raises(UnsupportedError, match="monitor="):
            read()
    only = tc.Bank(THREE, streams=1, scores=True)
    with pytest.raises(UnsupportedError, match="monitor="):
        only.evidence()
    with pytest.raises(UnsupportedError, match="no e-value"):
        tc.Bank(THREE, monitor=tc.Monitor(THREE, arl=100)).discoveries()
    assert plain.arguments().keys() == {"thing"}
    assert only.arguments().keys() == {"thing", "scores"}


def test_what_is_invalid_is_refused() -> None:
    learned = tc.Monitor(THREE)
    learned.update([0.2, 0.3, 0.5], 0)
    for monitor in (learned, tc.Monitor(THREE, by_group=True), tc.Monitor(TWO), "watch"):
        with pytest.raises(ParameterError, match="monitor"):
            tc.Bank(THREE, monitor=monitor)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="scores"):
        tc.Bank(THREE, scores="binned")  # type: ignore[arg-type]
    bank = tc.Bank(THREE, streams=2, scores=True, monitor=tc.Monitor(THREE))
    bank.update([0, 1], [0, 1])
    before = dumps(bank)
    with pytest.raises(tc.TreeCalError):
        bank.update([0, 1], [[0.2, 0.3, 0.5], [0.2, 0.3, 0.6]])
    assert dumps(bank) == before


def short(array: Array) -> Any:
    return array[:-1]


def listed(array: Array) -> Any:
    return array.tolist()


def nothing(array: Array) -> Any:
    return array * np.nan


def test_states_that_cannot_be_are_refused() -> None:
    bank = tc.Bank(THREE, streams=2, scores=True, monitor=tc.Monitor(THREE, alpha=0.5))
    for k in np.random.default_rng(0).integers(2, size=60):
        bank.update([0, 1], [k, 1 - k])
    assert bank.alarms
    state, before = bank.get_state(), dumps(bank)
    parts: list[tuple[str, tuple[str, ...]]] = [
        ("scores/after", ("totals", "cells")),
        ("evidence", ("rounds", "cells", "learned", "peaks")),
    ]
    for part, names in parts:
        for name in names:
            for change in (short, listed, nothing):
                broken = deepcopy(state)
                inner = broken
                for step in part.split("/"):
                    inner = inner[step]
                inner[name] = change(inner[name])
                with pytest.raises(SnapshotError):
                    bank.set_state(broken)
    wrong: list[Any] = [[], {}, [{"row": 7}], [*state["evidence"]["alarms"], {"row": 0}]]
    for alarms in wrong:
        with pytest.raises(SnapshotError):
            bank.set_state(state | {"evidence": state["evidence"] | {"alarms": alarms}})
    for missing in ("scores", "evidence"):
        with pytest.raises(SnapshotError):
            bank.set_state({name: value for name, value in state.items() if name != missing})
    with pytest.raises(SnapshotError):
        tc.Bank(THREE).set_state(state)
    assert dumps(bank) == before
