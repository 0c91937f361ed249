"""Rounds stay apart: those of several threads, those that are open while others are learned, and those of a batch."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import pytest

import treecal as tc
from treecal.exceptions import ForecastError, OutcomeError, TreeCalError
from treecal.state import dumps, loads

TWO = tc.Simplex(2)
B = [0.3, 0.7]


def elsewhere(act: Callable[[], Any]) -> None:
    thread = Thread(target=act)
    thread.start()
    thread.join()


def test_a_closed_round_does_not_come_back() -> None:
    f = tc.PlattScaling(TWO)
    f.predict(B)
    elsewhere(lambda: f.predict([0.6, 0.4]))
    f.update(1)
    f.update(0)  # the only one that is open
    with pytest.raises(OutcomeError, match="arrived before its forecast"):
        f.update(1)
    assert f.rounds == 2
    f.predict([0.9, 0.1])
    assert f.get_state()["open"]["forecast"].tolist() == [0.9, 0.1]


@pytest.mark.parametrize("scores", ["binned", "exact"])
def test_a_batch_is_refused_while_a_round_is_open_as_the_loop_is(scores: Any) -> None:
    f, again = tc.PlattScaling(TWO, scores=scores), [[0.6, 0.4]] * 3
    f.predict(B)
    before = dumps(f)
    with pytest.raises(ForecastError) as loop:
        f.predict(again[0])
    with pytest.raises(ForecastError) as batch:
        f.update_many(again, [1, 0, 1])
    assert str(batch.value) == str(loop.value)
    assert dumps(f) == before
    f.update_many([], [])  # a loop of no rounds
    f.update_many(again, [1, 0, 1], announced=again)  # learned late: open rounds stay open
    elsewhere(lambda: f.update_many(again, [1, 0, 1]))  # a thread has its own open round
    assert f.rounds == 6
    f.update(1)
    f.update_many(again, [1, 0, 1])
    assert f.rounds == 10


@pytest.mark.parametrize(
    "whole",
    [
        lambda: tc.Gated(tc.Recalibrator(TWO)),
        lambda: tc.Chain([tc.Recalibrator(TWO)]),
        lambda: tc.Chain([tc.Multicalibrator(TWO)]),
        lambda: tc.Chain([tc.ByGroup(tc.Recalibrator(TWO))]),
    ],
)
def test_an_old_reference_to_a_part_changes_nothing(whole: Callable[[], Any]) -> None:
    def part(f: Any) -> Any:
        return f.corrector if isinstance(f, tc.Gated) else f.parts[0]

    plain, read = whole(), whole()
    for f in (plain, read):
        f.update_many([B] * 3, [1] * 3)
    old = part(read)
    for f in (plain, read):
        f.update_many([B] * 20 + [[0.9, 0.1]], [0] * 21)
    old.predict_many([B])
    assert part(read).predict_many([B]).tolist() == part(plain).predict_many([B]).tolist()


def test_what_was_announced_stays_and_resumes() -> None:
    f = tc.Recalibrator(TWO)
    f.learn(B, 0)
    x = f.predict(B)
    for _ in range(5):
        f.learn(B, 1)
    again = loads(dumps(f))
    assert f.predict(B) == again.predict(B) == x
    for each in (f, again):
        each.update(0)
    assert f.report() == again.report()
    assert dumps(f) == dumps(again)


def test_a_certificate_needs_rounds_in_order() -> None:
    f = tc.Recalibrator(TWO, make=tc.TreeCal(TWO))
    f.predict(B)
    f.learn(B, 0)
    with pytest.raises(OutcomeError, match=r"needs order(.|\n)*tc\.Late"):
        f.update(1)
    assert f.rounds == 1
    f.cancel()
    f.predict(B)
    f.update(1)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda: tc.TemperatureScaling(TWO), {"groups": [None, "a"]}),
        (lambda: tc.IsotonicCalibration(TWO), {"groups": [None, "a"]}),
        (lambda: tc.Chain([tc.PlattScaling(TWO), tc.Recalibrator(TWO)]), {"groups": [None, "a"]}),
        (lambda: tc.ByGroup(tc.PlattScaling(TWO)), {"groups": ["a", ["b"]]}),
        (lambda: tc.Multicalibrator(TWO), {"groups": ["a", ["b"]]}),
        (lambda: tc.Recalibrator(TWO, make=tc.TreeCal(TWO)), {"weights": [1, 2]}),
        (lambda: tc.PlattScaling(TWO), {"weights": 2}),
        (lambda: tc.ByGroup(tc.PlattScaling(TWO)), {"groups": "ab"}),
    ],
)
def test_all_rows_are_checked_before_the_first_is_learned(make: Callable[[], Any], options: dict[str, Any]) -> None:
    f = make()
    for learn in (f.update_many, f.fit):
        with pytest.raises(TreeCalError):
            learn([B, B], [0, 1], **options)
        assert f.rounds == 0


def test_a_refused_group_lets_no_time_pass() -> None:
    late = tc.Late(tc.ByGroup(tc.PlattScaling(TWO)))
    late.predict(B, id="old", group="a", due=5, now=0)
    with pytest.raises(TreeCalError):
        late.predict(B, id="new", group=["b"], now=100)  # type: ignore[arg-type]
    assert (late.now, late.pending, late.void) == (0, ["old"], 0)


def test_rounds_of_a_mixture_may_wait_in_a_snapshot() -> None:
    late = tc.Late(tc.Mixture(TWO, 2))
    late.predict([B, [0.6, 0.4]], id="a")
    again = loads(dumps(late))
    for each in (late, again):
        each.update("a", 1)
    assert dumps(late) == dumps(again)


def test_groups_may_have_numpys_names() -> None:
    f = tc.ByGroup(tc.PlattScaling(TWO))
    f.predict(B, group=np.int64(3))
    again = loads(dumps(f))
    again.update(1)
    assert again.groups == (3,)
