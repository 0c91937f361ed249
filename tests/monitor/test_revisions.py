"""A monitor of revised forecasts: rarely wrong, and soon right, before any outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.cli.support import refused, run
from tests.monitor.revisions import movements
from treecal import state
from treecal.monitor import Watched

SPACE = tc.Simplex(2)
ALPHA = 0.05


def test_a_revision_is_an_outcome() -> None:
    by_name, by_hand = tc.Monitor(SPACE), tc.Monitor(SPACE)
    for before, after in (([0.5, 0.5], [0.25, 0.75]), ([0.25, 0.75], [1.0, 0.0])):
        by_name.revise(before, after)
        by_hand.update(before, np.array(after))
    assert state.dumps(by_name) == state.dumps(by_hand)
    with pytest.raises(tc.TreeCalError):
        by_name.revise([0.5, 0.5], [0.5, 0.6])
    assert by_name.rounds == 2
    by_name.revise([1.0, 0.0], [0.9, 0.1])
    assert by_name.alarm is not None  # what had the probability 0 cannot become likelier


def watched(
    factor: float, rng: np.random.Generator, questions: int, *, steps: tuple[int, int], open_at_once: int
) -> tuple[int | None, str | None]:
    """Return after how many questions there was an alarm, and what revisions do."""
    m = tc.Monitor(SPACE, alpha=ALPHA)
    rows, number = [], []
    for question, before, after in movements(factor, rng, steps=steps, open_at_once=open_at_once):
        if question >= questions:
            break
        rows.append((before, after))
        number.append(question)
    P, Y = (np.column_stack([1 - p, p]) for p in np.array(rows).T)
    m.update_many(P, Y)
    return (None, None) if m.alarm is None else (number[m.alarm.round - 1] + 1, m.alarm.movement)


@pytest.mark.parametrize(("factor", "movement", "most"), [(3.0, "reverts", 57), (0.4, "runs on", 400)])
def test_movements_convict_before_any_outcome(factor: float, movement: str, most: int) -> None:
    found = [watched(factor, np.random.default_rng(seed), 400, steps=(8, 8), open_at_once=1) for seed in range(9)]
    at = [400 if when is None else when for when, _ in found]
    assert np.median(at) <= most
    assert {what for when, what in found if when is not None} == {movement}


def test_right_forecasts_are_not_convicted() -> None:
    found = [watched(1.0, np.random.default_rng(seed), 100, steps=(2, 30), open_at_once=5)[0] for seed in range(30)]
    assert sum(when is not None for when in found) <= 5


@pytest.mark.heavy
@pytest.mark.parametrize("open_at_once", [1, 20])
def test_false_alarms_of_right_forecasts(open_at_once: int) -> None:
    rngs = (np.random.default_rng([open_at_once, seed]) for seed in range(2000))
    alarms = [watched(1.0, rng, 150, steps=(2, 30), open_at_once=open_at_once)[0] is not None for rng in rngs]
    print(f"{open_at_once} open at once: {np.mean(alarms):.4f} of 2,000 streams alarm")
    assert np.mean(alarms) <= ALPHA


@pytest.mark.heavy
def test_false_alarms_at_the_boundary() -> None:
    """Forecasts that jump to 0 and 1, as rarely as they should, from close by."""
    alarms = []
    for seed in range(2000):
        rng = np.random.default_rng([7, seed])
        m = tc.Monitor(SPACE, alpha=ALPHA)
        p = rng.choice([0.001, 0.01, 0.5, 0.99, 0.999], 1000)
        P, Y = np.column_stack([1 - p, p]), np.eye(2)[(rng.random(1000) < p).astype(int)]
        resolved = rng.random(1000) < 0.5  # else the forecast stays
        m.update_many(P, np.where(resolved[:, None], Y, P))
        m.update_many(Y, Y)  # and what is certain is not revised
        alarms.append(m.alarm is not None)
    print(f"at the boundary: {np.mean(alarms):.4f} of 2,000 streams alarm")
    assert np.mean(alarms) <= ALPHA


@pytest.mark.heavy
@pytest.mark.parametrize(("factor", "most"), [(2.0, 135), (3.0, 57)])
def test_as_soon_as_simulated(factor: float, most: int) -> None:
    rngs = (np.random.default_rng([3, seed]) for seed in range(100))
    found = [watched(factor, rng, 400, steps=(8, 8), open_at_once=1)[0] or 400 for rng in rngs]
    print(f"logits times {factor:g}: a median of {np.median(found):g} questions")
    assert np.median(found) <= most


@pytest.mark.heavy
@pytest.mark.parametrize("least", [0.02, 0.1])
def test_false_alarms_with_few_labels(least: float) -> None:
    """A judge's doubts decide which rows are labelled."""
    alarms = []
    for seed in range(2000):
        rng = np.random.default_rng([11, int(1000 * least), seed])
        n = 5000
        hidden = rng.random(n)
        p = rng.beta(2, 2, n)
        y = (hidden < p).astype(int)
        doubt = np.abs(hidden + 0.3 * rng.normal(size=n) - p)  # it knows more than the forecast
        pi = np.clip(1 / (1 + 20 * doubt), least, 1)
        drawn = rng.random(n) < pi
        m = tc.Monitor(SPACE, alpha=ALPHA, least_probability=least)
        m.update_many(np.column_stack([1 - p, p])[drawn], y[drawn], probabilities=pi[drawn])
        alarms.append(m.alarm is not None)
    print(f"few labels, at least {least}: {np.mean(alarms):.4f} of 2,000 streams alarm")
    assert np.mean(alarms) <= ALPHA


def test_on_the_command_line(tmp_path: Path) -> None:
    """A log of questions, in the order of time, in two runs: what Python says, and an alarm before any outcome."""
    late = tc.Late(Watched(tc.Monitor(SPACE)))
    rows, day = list[dict[str, Any]](), 0
    known: set[int] = set()
    for question, before, after in movements(3.0, np.random.default_rng(0)):
        if question >= 20:
            break
        for p in (after,) if question in known else (before, after):
            day += 1
            rows.append({"question": str(question), "day": day, "p": p})
            if question in known:
                late.revise(str(question), [1 - p, p], now=day)
            else:
                late.predict([1 - p, p], id=str(question), now=day)
            known.add(question)
    for question in range(20):
        day += 1
        rows.append({"day": day, "outcome_for": str(question), "outcome": "yes"})
        late.update(str(question), 1, now=day)
    log, half = tmp_path / "log.jsonl", tmp_path / "watch.treecal"
    options = ("--classes", "no,yes", "--forecast", "p", "--id", "question", "--time", "day", "--json")
    for end in (60, len(rows)):
        log.write_text("".join(json.dumps(row) + "\n" for row in rows[:end]), encoding="utf-8")
        done = run("monitor", log, *options, "--snapshot", half)
        assert done.code in (0, 3), done.err
    document = json.loads(done.out)
    watched: Any = late.thing
    monitor = watched.monitor
    assert document["rounds"] == monitor.rounds == len(rows) - 20
    assert document["statistic"] == monitor.e_value
    assert document["leads"] == [lead._asdict() for lead in late.leads()]
    assert document["alarm"]["direction"] == "too sure"
    refused(run("monitor", log, "--classes", "no,yes", "--time", "day"), "--time is for forecasts with ids")
