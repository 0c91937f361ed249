"""A bank is as many forecasters as it has streams, whatever is asked of it and in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import treecal as tc
from tests.engine.support import makers
from tests.strategies import spaces
from treecal.exceptions import HorizonError, OutcomeError, ParameterError
from treecal.state import dumps, loads
from treecal.testing import bad_outcomes, sample_outcomes


class Banks(RuleBasedStateMachine):
    """A bank beside separate forecasters, one for each stream, that are told the same."""

    @initialize(data=st.data(), streams=st.integers(0, 4))
    def make(self, data: st.DataObject, streams: int) -> None:
        self.space = data.draw(spaces(max_dim=3))
        self.forecaster = data.draw(makers(self.space))
        self.bank: Any = tc.Bank(self.forecaster(), streams=streams)
        self.alone = [self.forecaster() for _ in range(streams)]

    @rule(count=st.integers(0, 3))
    def add(self, count: int) -> None:
        old = len(self.alone)
        assert self.bank.add(count).tolist() == list(range(old, old + count))
        self.alone += [self.forecaster() for _ in range(count)]

    @rule(data=st.data(), seed=st.integers(0, 10**6))
    def update(self, data: st.DataObject, seed: int) -> None:
        keys = data.draw(st.lists(st.integers(0, len(self.alone) - 1), max_size=12)) if self.alone else []
        rng, classes = np.random.default_rng(seed), None
        outcomes = sample_outcomes(self.space, len(keys), rng)
        if isinstance(self.space, tc.Simplex) and data.draw(st.booleans()):
            classes = rng.integers(self.space.dim, size=len(keys))
            outcomes = np.eye(self.space.dim)[classes]
        given = outcomes if classes is None else classes
        if any(self.rounds_left(key) < keys.count(key) for key in keys):
            with pytest.raises(HorizonError):
                self.bank.update(keys, given)
            return
        self.bank.update(keys, given)
        for key, outcome in zip(keys, outcomes, strict=True):
            self.alone[key].update(outcome)

    def rounds_left(self, key: int) -> float:
        horizon = self.alone[key].tree.horizon
        return np.inf if horizon is None else horizon - self.alone[key].rounds

    @rule(data=st.data())
    def predict_some(self, data: st.DataObject) -> None:
        ready = [key for key in range(len(self.alone)) if self.rounds_left(key)]
        keys = data.draw(st.lists(st.sampled_from(ready), max_size=8)) if ready else []
        forecasts = self.bank.predict(keys)
        assert len(forecasts) == len(keys)
        assert list(forecasts) == [self.alone[key].predict() for key in keys]

    @rule()
    def save_and_load(self) -> None:
        self.bank = loads(dumps(self.bank), space=self.space)

    @rule(data=st.data(), what=st.sampled_from(["NaN", "infinite", "too long", "a string", "None"]))
    def learn_something_bad(self, data: st.DataObject, what: str) -> None:
        if not self.alone:
            return
        keys = data.draw(st.lists(st.integers(0, len(self.alone) - 1), min_size=1, max_size=6))
        outcomes: list[Any] = list(sample_outcomes(self.space, len(keys), np.random.default_rng(0)))
        at = data.draw(st.integers(0, len(keys) - 1))
        outcomes[at] = bad_outcomes(self.space)[what]
        with pytest.raises(OutcomeError, match=rf"\brow {at}\b"):
            self.bank.update(keys, outcomes)

    @invariant()
    def every_stream_is_a_forecaster_of_its_own(self) -> None:
        assert self.bank.rounds.tolist() == [alone.rounds for alone in self.alone]
        state = self.bank.get_state()
        for key, alone in enumerate(self.alone):
            for name, own in alone.get_state().items():
                column = state[name][key : key + 1] if own.ndim == 1 else state[name][:, key : key + 1]
                assert np.array_equal(column[: len(own)], own), name
                assert not column[len(own) :].any(), name
        if all(self.rounds_left(key) for key in range(len(self.alone))):
            forecasts = self.bank.predict()
            assert list(forecasts) == [alone.predict() for alone in self.alone]
            assert forecasts.points.shape[::2] == (len(self.alone), self.space.dim)
            assert forecasts.weights.shape == forecasts.points.shape[:2]
            for mean, alone in zip(forecasts.mean, self.alone, strict=True):
                assert mean == pytest.approx(alone.predict().mean, rel=1e-12, abs=1e-12)
        elif self.alone:
            with pytest.raises(HorizonError):
                self.bank.predict()


Banks.TestCase.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
test_a_bank_is_as_many_forecasters = Banks.TestCase


def state(bank: tc.Bank) -> dict[str, Any]:
    return {name: (array.shape, array.tobytes()) for name, array in bank.get_state().items()}


def full_bank(**options: Any) -> tc.Bank:
    bank = tc.Bank(tc.TreeCal(tc.Simplex(3), arity=3, **options), streams=5)
    rng = np.random.default_rng(0)
    bank.update(rng.integers(4, size=60), rng.integers(3, size=60))
    return bank


BAD: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "key too large": ([0, 5], [0, 0], ParameterError, "key 1 is 5, expected 0 to 4"),
    "negative key": ([-1], [0], ParameterError, "key 0 is -1, expected 0 to 4"),
    "huge key": (np.array([2**63], np.uint64), [0], ParameterError, "expected 0 to 4"),
    "float keys": ([0.0, 1.0], [0, 0], ParameterError, "keys are float64"),
    "bool keys": ([True, False], [0, 0], ParameterError, "keys are bool"),
    "keys of two axes": ([[0, 1]], [0, 0], ParameterError, r"shape \(1, 2\)"),
    "ragged keys": ([[0], [0, 1]], [0, 0], ParameterError, "expected integers"),
    "one key": (0, [0], ParameterError, "expected integers"),
    "no keys": (None, [0], ParameterError, "expected integers"),
    "names": (["a"], [0], ParameterError, "expected integers"),
    "fewer outcomes": ([0, 1, 2], [0, 0], ParameterError, "3 keys and 2 outcomes"),
    "more outcomes": ([0], np.eye(3), ParameterError, "1 keys and 3 outcomes"),
    "no outcomes": ([0], [], ParameterError, "1 keys and 0 outcomes"),
    "outside": ([0, 1, 2], [[1, 0, 0], [1, 1, 0], [0, 1, 0]], OutcomeError, "row 1 lies outside"),
    "NaN": ([0, 1, 2], [[1, 0, 0], [0, 0, 1], [0, 1, np.nan]], OutcomeError, "row 2 holds nan"),
    "wrong class": ([0, 1, 2], [0, 3, 0], OutcomeError, "row 1 is the class 3"),
    "class −1": ([0, 1, 2], [0, 0, -1], OutcomeError, "row 2 is the class -1"),
    "masked": ([0, 1], np.ma.masked_array([0, 1], [False, True]), OutcomeError, "row 1 is missing"),
    "too short": ([0, 1], [[1, 0], [0, 1]], OutcomeError, "row 0 has shape"),
    "None": ([0], None, OutcomeError, "expected numbers of shape"),
    "an object": ([0], object(), OutcomeError, "expected numbers of shape"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_updates_change_nothing(what: str) -> None:
    bank = full_bank()
    keys, outcomes, error, message = BAD[what]
    before = state(bank)
    with pytest.raises(error, match=message):
        bank.update(keys, outcomes)
    assert state(bank) == before
    if what.endswith(("key", "keys")) and what != "no keys":
        with pytest.raises(error, match=message):
            bank.predict(keys)


def test_the_horizon_is_each_streams_own() -> None:
    bank = tc.Bank(tc.TreeCal(tc.Simplex(2), arity=2, depth=2), streams=3)
    bank.update([0, 0, 0, 1], [0, 1, 1, 0])
    before = state(bank)
    for keys in ([1, 0, 0], [2] * 5, [0, 1, 2, 0]):
        with pytest.raises(
            HorizonError, match=r"stream [02]: round 5 is beyond the horizon: arity 2 and depth 2 make 4"
        ):
            bank.update(keys, [0] * len(keys))
        assert state(bank) == before
    bank.update([2, 0, 2, 2, 2], [0, 1, 1, 0, 1])  # both are full now
    assert bank.rounds.tolist() == [4, 1, 4]
    for ask in (None, [0], [1, 2]):
        with pytest.raises(HorizonError):
            bank.predict(ask)
    assert len(bank.predict([1] * 9)) == 9  # asking often is no round
    with pytest.raises(HorizonError):
        bank.update([0], [0])


@pytest.mark.parametrize(
    "empty", [([], []), (np.empty(0, int), np.empty((0, 3))), (np.empty(0, int), np.empty(0, int))]
)
def test_an_empty_update_is_none(empty: Any) -> None:
    bank = full_bank()
    before = state(bank)
    bank.update(*empty)
    assert state(bank) == before
    assert list(bank.predict([])) == []


def test_no_streams() -> None:
    bank = tc.Bank(tc.Simplex(3))
    assert (len(bank), len(bank.rounds), len(bank.predict())) == (0, 0, 0)
    bank.update([], [])
    with pytest.raises(ParameterError):
        bank.update([0], [0])


@pytest.mark.parametrize("form", [list, tuple, np.uint8, np.int32, np.uint64, lambda keys: np.repeat(keys, 2)[::2]])
def test_keys_of_any_form(form: Callable[[Any], Any]) -> None:
    keys = np.random.default_rng(1).integers(5, size=40)
    expected, bank = full_bank(), full_bank()
    expected.update(keys, keys % 3)
    bank.update(form(keys), keys % 3)
    assert state(bank) == state(expected)
    assert list(bank.predict(form(keys))) == list(expected.predict(keys))


def test_adding_one_at_a_time() -> None:
    bank = tc.Bank(tc.TreeCal(tc.Simplex(2), arity=2))
    for key in range(40):
        assert bank.add().tolist() == [key]
        bank.update(np.arange(key + 1), np.arange(key + 1) % 2)
    assert bank.rounds.tolist() == list(range(40, 0, -1))
    alone = tc.TreeCal(tc.Simplex(2), arity=2)
    for _ in range(40):
        alone.update([1, 0])
    assert bank.predict([0])[0] == alone.predict()
    assert repr(bank) == "Bank(TreeCal(Simplex(2), arity=2): 40 streams)"


def test_snapshots_in_files(tmp_path: Path) -> None:
    for options in ({}, {"depth": 6, "mix": 0.1, "start": [1.0, 0.0, 0.0]}):
        bank: Any = full_bank(**options)
        tc.save(bank, tmp_path / "bank")
        again = tc.load(tmp_path / "bank")
        assert type(again) is tc.Bank
        assert state(again) == state(bank)
        assert repr(again.arguments()) == repr(bank.arguments())
        for both in (bank, again):
            both.add(2)
            both.update([6, 0, 6], [2, 1, 0])
        assert state(again) == state(bank)
        assert list(again.predict()) == list(bank.predict())


def test_what_is_given_out_stays_as_it_is() -> None:
    bank = full_bank()
    forecasts, kept = bank.predict(), list(bank.predict())
    points = forecasts.points.copy()
    bank.update(np.arange(5), np.zeros(5, int))
    assert (forecasts.points == points).all()
    assert list(forecasts) == kept
    for array in (forecasts.points, forecasts.weights, forecasts[0].points, forecasts[0].weights, bank.rounds):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    held = bank.get_state()
    bank.update([0], [0])
    assert held["rounds"][0] == bank.rounds[0] - 1
    assert repr(forecasts) == "Forecasts(5 streams in R^3)"
    with pytest.raises(IndexError):
        forecasts[5]


def test_weights_are_those_of_each_streams_own_height() -> None:
    bank = tc.Bank(tc.TreeCal(tc.Simplex(2), arity=2), streams=3)
    bank.update([0] * 5 + [1] * 2, [0] * 7)
    forecasts = bank.predict()
    assert forecasts.weights.tolist() == [[1 / 3] * 3, [1 / 2, 1 / 2, 0], [1, 0, 0]]
    assert np.isfinite(forecasts.points).all()


@pytest.mark.parametrize("bad", [{"streams": -1}, {"streams": 1.5}])
def test_parameters_that_make_no_sense(bad: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(bad))):
        tc.Bank(tc.Simplex(2), **bad)
    with pytest.raises(ParameterError, match="a forecaster, a corrector, or a set"):
        tc.Bank("simplex")  # type: ignore[arg-type]
    seen = tc.TreeCal(tc.Simplex(2))
    seen.update([1, 0])
    with pytest.raises(ParameterError, match="expected a new one"):
        tc.Bank(seen)
    with pytest.raises(ParameterError, match="count"):
        tc.Bank(tc.Simplex(2)).add(-1)
