"""Any interleaving of predictions, outcomes, amendments, time, copies and snapshots, against the literal model."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import treecal as tc
from tests.attack.subjects import kept
from tests.late.things import SHARED, THINGS, Plain, asked, outcomes, points
from treecal.exceptions import IdError
from treecal.state import dumps, loads

ALONE = [name for name in THINGS if name not in SHARED]
LIMIT = 4


class Interleavings(RuleBasedStateMachine):
    """Late beside its model."""

    name: str

    @initialize(limit=st.sampled_from([None, LIMIT]))
    def begin(self, limit: int | None) -> None:
        make = THINGS[self.name]
        self.late, self.model, self.made = tc.Late(make(), limit=limit), Plain(make, limit), 0
        self.points, self.ys = points(make().space, 200, 1), outcomes(make().space, 200, 2)
        self.predict(3, None, 0, text=True)

    def point(self) -> Any:
        return self.points[self.made % 200]

    def predict(self, count: int, waits: int | None, passes: int, *, text: bool) -> None:
        now = max(self.model.now, 0.0) + passes
        due = None if waits is None else now + waits
        for _ in range(count):
            self.made += 1
            name, b = str(self.made) if text else self.made, self.point()
            x = self.late.predict(*asked(self.late.thing, b), id=name, due=due, now=now)
            assert x == self.model.predict(b, name, np.inf if due is None else due, now)

    @rule(
        opens=st.integers(1, 5),
        waits=st.integers(0, 9) | st.none(),
        passes=st.integers(0, 2),
        text=st.booleans(),
        closes=st.integers(0, 4),
        at_once=st.booleans(),
        data=st.data(),
    )
    def play(
        self, opens: int, waits: int | None, passes: int, text: bool, closes: int, at_once: bool, data: st.DataObject
    ) -> None:
        self.predict(opens, waits, passes, text=text)
        names = [each["id"] for each in data.draw(st.permutations(self.model.pending))][:closes]
        ys = [self.ys[(len(self.model.arrivals) + i) % 200] for i in range(len(names))]
        if at_once:
            self.late.update_many(names, ys)
        for name, y in zip(names, ys, strict=True):
            self.model.update(name, y)
            if not at_once:
                self.late.update(name, y)

    def waiting(self, data: st.DataObject) -> dict[str, Any]:
        return data.draw(st.sampled_from(self.model.pending))

    @precondition(lambda self: self.model.pending)
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        each = self.waiting(data)
        given = asked(self.late.thing, each["b"])
        assert self.late.predict(*given, id=each["id"]) == each["x"]
        if given:
            other = next(p for p in self.points if not np.array_equal(p, each["b"]))
            with pytest.raises(IdError, match="another forecast"):
                self.late.predict(other, id=each["id"])

    @precondition(lambda self: self.model.outcomes)
    @rule(data=st.data())
    def second(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.outcomes, key=str)))
        last, other = self.model.outcomes[name][-1], self.ys[data.draw(st.integers(0, 9))]
        for y in (last, other):
            if any(np.array_equal(y, each) for each in self.model.outcomes[name]):
                self.late.update(name, y)
                assert self.late.update_many([name], [y]) == ["replayed"]
                continue
            with pytest.raises(IdError) as caught:
                self.late.update(name, y)
            assert caught.value.reason == "conflict"
            assert self.late.update_many([name], [y], strict=False) == ["conflict"]
        with pytest.raises(IdError, match="is closed"):
            self.late.predict(*asked(self.late.thing, self.point()), id=name)
        self.late.amend(name, other)
        if not np.array_equal(last, other):
            self.model.outcomes[name].append(other)
            self.model.amended += 1
        assert np.array_equal(self.late.history(name), self.model.outcomes[name])

    @precondition(lambda self: self.model.void)
    @rule(data=st.data())
    def too_late(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.model.void))
        for act in (self.late.update, self.late.amend):
            with pytest.raises(IdError, match="is void"):
                act(name, self.ys[0])
        self.model.too_late += 1

    @rule(passes=st.integers(0, 4))
    def expire(self, passes: int) -> None:
        now, before = max(self.model.now, 0.0) + passes, list(self.model.void)
        gone = self.late.expire(now)
        self.model.pass_time(now)
        assert before + gone == self.model.void
        for act in (self.late.update, self.late.amend):
            with pytest.raises(IdError, match="is not known"):
                act("nobody", self.ys[0])

    @rule(how=st.integers(0, 3))
    def resume(self, how: int) -> None:
        if how == 0:
            self.late = loads(dumps(self.late))
        elif how == 1:
            self.late = copy.copy(self.late)
        elif how == 2:
            self.late = pickle.loads(pickle.dumps(self.late))
        else:
            other = tc.Late(self.model.make(), limit=self.model.limit)
            other.set_state(self.late.get_state())
            self.late = other

    @invariant()
    def agree(self) -> None:
        late, model = self.late, self.model
        assert late.pending == [each["id"] for each in model.pending]
        assert late.counts == (
            self.made,
            len(model.arrivals),
            len(model.void),
            model.too_late,
            model.amended,
        )
        assert late.copies == len(model.copies)
        if model.front is not None:
            assert kept(late.thing) == kept(model.front)
        if isinstance(late.thing, tc.Forecaster):
            ledger = tc.Ledger(late.space)
            for _, y, x in model.arrivals:
                ledger.record(x, y)
            assert late.ledger.rounds == ledger.rounds
            assert late.ledger.error("l1", total=True) == ledger.error("l1", total=True)


@pytest.mark.parametrize("name", ALONE)
def test_any_interleaving_is_as_the_model_has_it(name: str) -> None:
    machine = type("Machine", (Interleavings,), {"name": name})
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    run_state_machine_as_test(
        machine, settings=settings(max_examples=10, stateful_step_count=20, deadline=None, suppress_health_check=slow)
    )
