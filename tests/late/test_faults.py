"""Interrupts leave a round learned or not; states that cannot be are refused, and change nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.attack.subjects import kept
from tests.attack.test_interrupts import interrupted
from tests.late.things import THINGS, asked, outcomes, points
from tests.some import some
from treecal.exceptions import TreeCalError
from treecal.late import _rounds
from treecal.state import _flat, _nested, dumps, loads

NAMES = ["platt", "exact means", "tree", "guarded", "guarded scaling"]


def played(name: str) -> tc.Late:
    late = tc.Late(THINGS[name](), limit=6)
    space, thing = late.space, late.thing
    for t, (b, y) in enumerate(zip(points(space, 20, 1), outcomes(space, 20, 2), strict=True)):
        late.predict(*asked(thing, b), id=t, due=t + 8.0, now=t)
        if t % 3:
            late.update(t - 1, y)
    late.predict(*asked(thing, points(space, 1, 1)[0]), id="last")
    late.amend(18, outcomes(space, 3, 3)[2])
    return late


ACTS: dict[str, Callable[[tc.Late, Any, list[Any]], Any]] = {
    "update": lambda late, b, y: late.update("last", y[0]),
    "update_many": lambda late, b, y: late.update_many(["last", 19], y[:2]),
    "predict": lambda late, b, y: late.predict(*asked(late.thing, b), id="new", due=30, now=20),
    "expire": lambda late, b, y: late.expire(27),
    "amend": lambda late, b, y: late.amend(18, y[1] if (late.history(18)[-1] == y[0]).all() else y[0]),
}


@pytest.mark.parametrize(("name", "act"), some(product(NAMES, ACTS), every=4))
def test_an_interrupt_leaves_a_round_learned_or_not(name: str, act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rounds, "REMEMBERED", 12)
    base, rng = played(name), np.random.default_rng(0)
    b, y = points(base.space, 1, 7)[0], outcomes(base.space, 2, 8)
    ACTS[act](done := copy.deepcopy(base), b, y)
    before, after, place, seen = kept(base), kept(done), 0, set()
    steps = {str(before), str(after)}
    if act == "update_many":
        part = copy.deepcopy(base)
        part.update("last", y[0])
        steps.add(str(kept(part)))
    if act == "predict":  # time passes first
        part = copy.deepcopy(base)
        part.expire(20)
        steps.add(str(kept(part)))
    while True:
        trial = copy.deepcopy(base)
        if not interrupted(lambda trial=trial: ACTS[act](trial, b, y), place):  # type: ignore[misc]
            break
        state = kept(trial)
        assert str(state) in steps, place
        seen.add(str(state))
        assert kept(loads(dumps(trial))) == kept(trial)
        place += int(rng.integers(1, 120))
    assert {str(before), str(after)} & seen


def wrongs(value: Any) -> Iterator[Any]:
    """Yield what a value might be in a file that anybody wrote."""
    yield from (None, -1, 2**70, [], True, np.zeros((2, 2), np.int64))
    if isinstance(value, np.ndarray):
        yield value[:-1]
        yield np.concatenate([value, value])
        if value.size:
            for change in (1, -3, 77):
                other = value.copy()
                other.flat[0] = other.flat[0] + change if value.dtype != np.uint8 else change % 128
                yield other
            yield np.full_like(value, np.nan if value.dtype.kind == "f" else 0)


@pytest.mark.parametrize("name", ["platt", "tracker", "tree", "guarded scaling"])
def test_states_that_cannot_be_are_refused_or_work(name: str) -> None:
    late = played(name)
    before, flat, refused = kept(late), _flat(late.get_state()), 0
    own = [key for key in flat if key.split("/")[0] not in ("front", "copies", "ledger")]
    for key in own:
        for wrong in wrongs(flat[key]):
            try:
                late.set_state(_nested(flat | {key: wrong}))
            except TreeCalError:
                refused += 1
                assert kept(late) == before
                continue
            for each in late.pending:  # it was taken, so it works
                late.update(each, outcomes(late.space, 1, 0)[0])
            assert kept(loads(dumps(late))) == kept(late)
            late.set_state(_nested(flat))
        with pytest.raises(TreeCalError):
            late.set_state(_nested({k: v for k, v in flat.items() if k != key}))
    assert refused > 5 * len(own)
    with pytest.raises(TreeCalError):
        late.set_state(_nested(flat | {"more": 1}))


def test_a_state_is_of_its_own_kind() -> None:
    states = {name: played(name).get_state() for name in THINGS}
    for name in THINGS:
        for other in set(THINGS) - {name}:
            late = tc.Late(THINGS[name](), limit=6)
            before = kept(late)
            try:
                late.set_state(states[other])
            except TreeCalError:
                assert kept(late) == before
