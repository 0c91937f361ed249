"""Whatever a bank keeps, each stream is what the thing alone would be, through adds, drops, snapshots and copies."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import treecal as tc
from treecal.correctors import TopClass
from treecal.state import dumps, loads
from treecal.testing import sample_outcomes

TWO, THREE = tc.Simplex(2), tc.Simplex(3)
KINDS: dict[str, Callable[[], Any]] = {
    "TreeCal": lambda: tc.TreeCal(THREE, arity=2),
    "AdaptiveTreeCal": lambda: tc.AdaptiveTreeCal(THREE, arity=2),
    "AdaptiveTreeCal, another norm": lambda: tc.AdaptiveTreeCal(tc.Ball(2), arity=3, norm=tc.Lp(3)),
    "RunningMean": lambda: tc.RunningMean(tc.Ball(3)),
    "BinaryGrid": lambda: tc.BinaryGrid(bins=7),
    "Guarded": lambda: tc.Guarded(THREE),
    "Tracker": lambda: tc.Tracker(THREE),
    "Sampled": lambda: tc.Sampled(tc.TreeCal(TWO), block=2, rng=np.random.default_rng(3)),
    "scaling": lambda: tc.VectorScaling(THREE, forget=False),
    "scaling that forgets": lambda: tc.PlattScaling(TWO),
    "means": lambda: tc.Recalibrator(THREE, groups=TopClass(bins=3), forget=False),
    "shifts": lambda: tc.Recalibrator(TWO, make="shift", groups=TopClass(bins=3), forget=False),
    "means that forget": lambda: tc.Recalibrator(TWO),
    "a chain": lambda: tc.Chain([tc.TemperatureScaling(TWO), tc.Recalibrator(TWO)]),
}
NAMES = ["", "a", "b", "a\0b", "Århus", "ÅrhusÅrhusÅrhus", "東京", "🜁", "a" * 40, "a" * 41]


class Streams(RuleBasedStateMachine):
    """A bank beside separate objects, one for each stream, that are told the same."""

    kind = "TreeCal"

    @initialize(named=st.booleans(), seed=st.integers(0, 999))
    def make(self, named: bool, seed: int) -> None:
        self.thing = KINDS[self.kind]
        self.named, self.rng = named, np.random.default_rng(seed)
        self.bank: Any = tc.Bank(self.thing(), names=[]) if named else tc.Bank(self.thing())
        self.alone: dict[Any, Any] = {}
        self.corrects = isinstance(self.bank.thing, tc.Corrector)

    @rule(data=st.data(), count=st.integers(1, 3))
    def add(self, data: st.DataObject, count: int) -> None:
        if self.named:
            new = [name for name in NAMES if name not in self.alone]
            keys: Any = data.draw(st.lists(st.sampled_from(new), max_size=3, unique=True)) if new else []
            self.bank.add(keys)
        else:
            keys = self.bank.add(count).tolist()
        assert not set(keys) & set(self.alone)
        self.alone |= {key: self.thing() for key in keys}

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        if self.alone:
            keys = data.draw(st.lists(st.sampled_from(list(self.alone)), max_size=3, unique=True))
            self.bank.drop(keys)
            for key in keys:
                del self.alone[key]
            if keys:
                with pytest.raises(tc.TreeCalError, match="key 0"):
                    self.bank.update(keys[:1], sample_outcomes(self.bank.space, 1, self.rng), **self.forecasts(1))

    def forecasts(self, count: int) -> dict[str, Any]:
        return {"forecasts": self.bank.space.sample(self.rng, count)} if self.corrects else {}

    @rule(data=st.data(), more=st.booleans())
    def update(self, data: st.DataObject, more: bool) -> None:
        known = NAMES if self.named and more else list(self.alone)
        keys = data.draw(st.lists(st.sampled_from(known), max_size=10)) if known else []
        Y, given = sample_outcomes(self.bank.space, len(keys), self.rng), self.forecasts(len(keys))
        said = self.bank.update(keys, Y, **given, **({"add": more} if self.named else {}))
        for i, key in enumerate(keys):
            own = self.alone.setdefault(key, self.thing())
            if self.corrects:
                assert (own.predict(given["forecasts"][i]).mean == said[i]).all()
            own.update(Y[i])

    @rule(way=st.sampled_from(["snapshot", "pickle", "copy"]))
    def again(self, way: str) -> None:
        bank = self.bank
        self.bank = (
            loads(dumps(bank))
            if way == "snapshot"
            else pickle.loads(pickle.dumps(bank))
            if way == "pickle"
            else copy(bank)
        )

    @invariant()
    def every_stream_is_its_own(self) -> None:
        keys = list(self.bank.keys)
        assert len(self.bank) == len(keys) == len(self.alone)
        assert set(keys) == set(self.alone)
        assert self.bank.rounds.tolist() == [self.alone[key].rounds for key in keys]
        if self.corrects:
            P = self.forecasts(len(keys))["forecasts"]
            found = self.bank.predict(keys, forecasts=P)
            for key, b, x in zip(keys, P, found, strict=True):
                assert (self.alone[key].predict_many(b[None])[0] == x).all()
        else:
            forecasts = self.bank.predict()
            assert list(forecasts) == [self.alone[key].predict() for key in keys]
            assert list(self.bank.predict(keys[::-1])) == list(forecasts)[::-1]
            for mean, x in zip(forecasts.mean, forecasts, strict=True):
                assert mean == pytest.approx(x.mean, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_each_stream_is_the_thing_alone(kind: str) -> None:
    machine = type("Machine", (Streams,), {"kind": kind})
    run_state_machine_as_test(machine, settings=settings(max_examples=8, stateful_step_count=15, deadline=None))
