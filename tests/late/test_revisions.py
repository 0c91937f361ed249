"""Forecasts that are revised while they await their outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treecal as tc
from treecal import state
from treecal.exceptions import ForecastError, IdError, UnsupportedError
from treecal.monitor import Watched

SPACE = tc.Simplex(2)


def test_the_last_forecast_is_learned_and_scored() -> None:
    revised, plain = tc.Late(tc.PlattScaling(SPACE)), tc.Late(tc.PlattScaling(SPACE))
    rng = np.random.default_rng(0)
    for k in range(100):
        first, last = rng.dirichlet([1, 1], 2)
        revised.predict(first, id=k)
        x = revised.revise(k, last)
        assert x == plain.predict(last, id=k)
        assert revised.predict(last, id=k) == x
        y = int(rng.random() < last[1])
        revised.update(k, y)
        plain.update(k, y)
    assert state.dumps(revised.thing) == state.dumps(plain.thing)
    assert revised.report().after.brier == plain.report().after.brier


def test_a_monitor_watches_each_movement_at_once_in_the_order_of_arrival() -> None:
    late, by_hand = tc.Late(Watched(tc.Monitor(SPACE))), tc.Monitor(SPACE)
    a, b, c = ([0.5, 0.5], [0.4, 0.6], [0.9, 0.1])
    late.predict(a, id="x")
    late.predict(c, id="y")
    late.revise("x", b)
    late.revise("y", a)
    late.revise("x", c)
    late.update("y", 1)
    late.update("x", 0)
    for before, after in ((a, b), (c, a), (b, c)):
        by_hand.revise(before, after)
    by_hand.update(a, 1)
    by_hand.update(c, 0)
    watched: Any = late.thing
    assert state.dumps(watched.monitor) == state.dumps(by_hand)


def test_scores_by_lead_time() -> None:
    late = tc.Late(Watched(tc.Monitor(SPACE)))
    late.predict([0.5, 0.5], id="q", now=0)
    late.revise("q", [0.2, 0.8], now=90)
    late.revise("q", [0.1, 0.9], now=99.5)
    late.update("q", 1, now=100)
    short, middle, long = late.leads()
    assert (short.least, short.below, short.forecasts) == (0, 1, 1)
    assert short.brier == pytest.approx(0.02)
    assert short.too_sure == pytest.approx(-0.1)
    assert (middle.least, long.least) == (8, 64)
    assert long.brier == pytest.approx(0.5)
    steps = tc.Late(Watched(tc.Monitor(SPACE)))
    steps.predict([0.5, 0.5], id="q")
    steps.revise("q", [0.2, 0.8])
    steps.update("q", 1)
    assert [lead.least for lead in steps.leads()] == [0, 1]


def test_snapshots_keep_what_was_announced_and_are_as_before_where_nothing_was_revised() -> None:
    plain = tc.Late(tc.PlattScaling(SPACE))
    plain.predict([0.5, 0.5], id="q", now=0)
    assert "revisions" not in plain.get_state()
    late = tc.Late(Watched(tc.Monitor(SPACE)))
    late.predict([0.5, 0.5], id=("q", 1), now=0)
    for p, day in (([0.2, 0.8], 9), ([0.3, 0.7], 20)):  # also between the first forecast and the second
        twin = state.loads(state.dumps(late))
        for each in (late, twin):
            each.revise(("q", 1), p, now=day)
        assert state.dumps(twin) == state.dumps(late)
    for each in (late, twin):
        each.update(("q", 1), 1, now=30)
    assert [(lead.least, lead.forecasts) for lead in late.leads()] == [(8, 1), (16, 2)]
    assert twin.leads() == late.leads()
    assert state.dumps(twin) == state.dumps(late)


def test_a_forecast_of_an_unknown_time_is_left_out_where_others_have_times() -> None:
    late = tc.Late(tc.PlattScaling(SPACE))
    late.predict([0.5, 0.5], id="q", now=0)
    twin = state.loads(state.dumps(late))  # that a corrector's forecasts will be revised is not known yet
    twin.revise("q", [0.2, 0.8], now=9)
    twin.update("q", 1, now=10)
    assert [(lead.least, lead.forecasts) for lead in twin.leads()] == [(1, 1)]


SPOILT = (
    {"ids": ["gone"]},
    {"times": ["late"]},
    {"places": [-1], "sums": [[1, 1, 1]]},
    {"means": [[2, 3]]},
    {"opened": ["gone"], "opened_at": [0.0]},
    {"opened": ["q"], "opened_at": [np.nan]},
    {"opened": ["q"]},
)


@pytest.mark.parametrize("spoil", SPOILT)
def test_states_that_cannot_be_are_refused(spoil: dict[str, Any]) -> None:
    late = tc.Late(Watched(tc.Monitor(SPACE)))
    late.predict([0.5, 0.5], id="q")
    late.revise("q", [0.2, 0.8])
    given = late.get_state()
    before = state.dumps(late)
    given["revisions"] = given["revisions"] | spoil
    with pytest.raises(tc.TreeCalError):
        late.set_state(given)
    assert state.dumps(late) == before


def test_what_cannot_be_revised_changes_nothing() -> None:
    late = tc.Late(Watched(tc.Monitor(SPACE)))
    late.predict([0.5, 0.5], id="q")
    before = state.dumps(late)
    with pytest.raises(IdError, match="not known"):
        late.revise("r", [0.5, 0.5])
    with pytest.raises(ForecastError, match="'q'"):
        late.revise("q", [0.5, 0.6])
    assert state.dumps(late) == before
    late.update("q", 1)
    with pytest.raises(IdError, match=r"its round is closed[^$]*not revised"):
        late.revise("q", [0.5, 0.5])
    due = tc.Late(Watched(tc.Monitor(SPACE)))
    due.predict([0.5, 0.5], id="q", now=0, due=5)
    with pytest.raises(IdError):
        due.revise("q", [0.4, 0.6], now=6)
    guarded = tc.Late(tc.Guarded(SPACE))
    guarded.predict(id="q")
    with pytest.raises((UnsupportedError, ForecastError)):
        guarded.revise("q", None)  # type: ignore[arg-type]
