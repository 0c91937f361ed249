"""Audits by windows of time, the alarm beside them, and what acting on the forecasts cost."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.cli.support import refused, run
from treecal._typing import Array
from treecal.auditing._windows import _Watched
from treecal.exceptions import FileError, LossError, ParameterError
from treecal.measures import chance, interval, payoff_loss
from treecal.measures._payoff import best_actions
from treecal.report import audited, render

LOSS = [[0, 4], [1, 1]]


def drifting(rows: int = 3000, change: int = 1500, every: str = "30min") -> dict[str, Any]:
    rng = np.random.default_rng(0)
    p = rng.random(rows)
    true = np.where(np.arange(rows) < change, p, p**2)
    when = pd.date_range("2026-01-01", periods=rows, freq=every)
    return {"p": p, "y": (rng.random(rows) < true).astype(int), "when": when.to_numpy()}


def over_time(log: dict[str, Any], **options: Any) -> tc.auditing.Audit:
    found = tc.audit(log, forecast="p", outcome="y", time="when", exact=False, **options).windows
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("every", "names"),
    [
        ("1s", ("2026-01-01 00:00", "2026-01-01 00:01")),
        ("30s", ("2026-01-01 00", "2026-01-01 01")),
        ("10min", ("2026-01-01", "2026-01-02")),
        ("60min", ("2025-12-29", "2026-01-05")),  # weeks begin on Mondays
        ("12h", ("2026-01", "2026-02")),
        ("3D", ("2026-01", "2026-02")),
        ("9D", ("2026", "2027")),
    ],
)
def test_windows_are_calendar_units(every: str, names: tuple[str, str]) -> None:
    log = drifting(400 if every.endswith("D") else 2000, every=every)
    found = over_time(log)
    keys = [key for (key,) in found.groups]
    assert tuple(keys[:2]) == names
    assert keys == sorted(keys)
    stamps = pd.Series(log["when"])
    expected = {"2026": stamps.dt.year, "2026-01": stamps.dt.strftime("%Y-%m")}.get(names[0])
    if expected is not None:
        assert [part.rounds for part in found.groups.values()] == expected.value_counts(sort=False).tolist()
    assert sum(part.rounds for part in found.groups.values()) == len(stamps)


def test_windows_are_those_of_a_column_made_by_hand() -> None:
    log = drifting()
    by_hand = log | {"week": np.array(pd.Series(log["when"]).dt.to_period("W").dt.start_time.dt.strftime("%Y-%m-%d"))}
    expected = tc.audit(by_hand, forecast="p", outcome="y", by="week", exact=False)
    found = over_time(log)
    assert {key: part.to_dict() for key, part in found.groups.items()} == {
        key: part.to_dict() for key, part in expected.groups.items()
    }


def test_the_alarm_is_a_monitors() -> None:
    log = drifting()
    monitor = tc.Monitor(tc.Simplex(classes=["0", "1"]))
    monitor.update_many(np.column_stack([1 - log["p"], log["p"]]), log["y"])
    found = over_time(log)
    assert found.alarm == monitor.alarm
    assert found.alarm is not None
    assert found.alarm.round > 1500
    assert over_time(drifting(change=3000)).alarm is None


def test_out_of_order_there_is_no_alarm_and_the_same_windows() -> None:
    log = drifting()
    order = np.random.default_rng(1).permutation(3000)
    mixed = over_time({name: column[order] for name, column in log.items()})
    assert (mixed.in_order, mixed.alarm) == (False, None)
    assert [part.to_dict() for part in mixed.groups.values()] == [
        part.to_dict() for part in over_time(log).groups.values()
    ]
    whole = tc.audit({name: column[order] for name, column in log.items()}, forecast="p", outcome="y", time="when")
    assert "not in the order of when" in str(whole)


def test_text_dates_numbers_and_missing_times() -> None:
    log = drifting(600)
    expected = [part.to_dict() for part in over_time(log).groups.values()]
    text = over_time(log | {"when": np.array([str(t)[:19].replace("T", " ") for t in log["when"]])})
    assert [part.to_dict() for part in text.groups.values()] == expected
    assert [*over_time(log | {"when": np.arange(600) // 100}).groups] == [(k,) for k in range(6)]
    assert len(over_time(log | {"when": np.linspace(0, 1, 600)}).groups) == 20
    late = pd.DataFrame(log)
    late.loc[5, "when"] = pd.NaT
    found = tc.audit(late, forecast="p", outcome="y", time="when", exact=False).windows
    assert found is not None
    assert found.groups[None,].rounds == 1
    assert not found.in_order
    shown = str(tc.audit(late, forecast="p", outcome="y", time="when", exact=False))
    assert "1 row has no when, so no monitor watched the log." in shown
    with pytest.raises(FileError, match="no column of times"):
        over_time(log | {"when": np.array(["soon"] * 600)})
    with pytest.raises(FileError, match="no column of times: it holds '31/01/2026'"):
        over_time(log | {"when": np.array(["31/01/2026"] * 600)})
    with pytest.raises(FileError, match="no column 'then'"):
        tc.audit(log, forecast="p", outcome="y", time="then")
    with pytest.raises(ParameterError, match="by or time"):
        tc.audit(log["p"], log["y"], time="when")
    with pytest.raises(ParameterError, match="by or time"):
        tc.audit(log["p"], log["y"], time=log["when"])
    with pytest.raises(ParameterError, match="time has values, expected names of columns"):
        tc.audit(log, forecast="p", outcome="y", time=log["when"])
    with pytest.raises(ParameterError, match="by has values, expected names of columns"):
        tc.audit(log, forecast="p", outcome="y", by=log["y"])


@given(seed=st.integers(0, 2**32), weighted=st.booleans())
@settings(deadline=None, max_examples=10)
def test_pay_off_is_the_measures(seed: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    P, y = rng.dirichlet(np.ones(3), size=200), rng.integers(3, size=200)
    w = rng.integers(1, 4, size=200).astype(float) if weighted else None
    loss = rng.random((4, 3))
    found = tc.audit(P, y, loss=loss, weight=w, exact=False).whole.payoff
    assert found is not None
    assert found.value == pytest.approx(payoff_loss(P, y, loss, weights=w), abs=1e-12)
    taken = (P @ loss.T).argmin(axis=1)
    assert found.cost == pytest.approx(np.average(loss[taken, y], weights=w))
    for k, better in enumerate(found.better):
        if (taken == k).any():
            rows = taken == k
            costs = [np.average(loss[a, y[rows]], weights=None if w is None else w[rows]) for a in range(4)]
            assert costs[better] == pytest.approx(min(costs))


@given(seed=st.integers(0, 2**32), actions=st.integers(2, 6), d=st.integers(2, 12))
@settings(deadline=None, max_examples=20)
def test_actions_do_not_depend_on_the_rows_around(seed: int, actions: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    loss = rng.integers(0, 5, size=(actions, d)) / 10  # many ties
    counts = rng.integers(1, 6, size=(d, 2000)).astype(np.float64)
    forecasts: Array = counts / counts.sum(axis=0)
    taken = best_actions(forecasts, loss)
    for size in (1, 3, 501):
        parts = [np.ascontiguousarray(forecasts[:, i : i + size]) for i in range(0, 2000, size)]
        assert np.array_equal(np.concatenate([best_actions(part, loss) for part in parts]), taken)


def test_pay_off_by_group_its_interval_and_chance() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(4000)
    said = p**0.4  # rain is forecast too often
    y = (rng.random(4000) < p).astype(int)
    log = {"p": said, "y": y, "g": np.arange(4000) % 2}
    found = tc.audit(log, forecast="p", outcome="y", by="g", loss=LOSS, exact=False)
    whole = found.whole.payoff
    assert whole is not None
    P = np.column_stack([1 - said, said])
    literal = interval(partial(payoff_loss, loss=LOSS), P, y, rng=np.random.default_rng(1))
    ours = whole.interval()
    assert (ours.low, ours.high) == pytest.approx((literal.low, literal.high), abs=0.01)
    luck = chance(partial(payoff_loss, loss=LOSS), P, rng=np.random.default_rng(1))
    assert whole.chance.mean == pytest.approx(luck.mean, abs=0.01)
    parts = [part.payoff for part in found.groups.values()]
    assert sum(part.counts.sum() for part in parts if part is not None) == 4000
    assert "a row" in str(found)
    assert f"costs {whole.cost:.4g} a row" in render([audited(found)], title="Costs")
    with pytest.raises(LossError, match="expected"):
        tc.audit(log, forecast="p", outcome="y", loss=[[0, 1, 2], [1, 0, 2]])


def test_command_line(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    pd.DataFrame(drifting()).to_csv(log, index=False)
    columns = ("--forecast", "p", "--outcome", "y", "--no-exact")
    done = run("audit", log, *columns, "--time", "when", "--loss", "0,4; 1,1")
    assert done.code == 0
    for words in ("Windows of time, by when", "2026-01-05", "Alarm after round", "Acting on these"):
        assert words in done.out
    refused(run("audit", log, *columns, "--loss", "0,4; 1"), "--loss")
    refused(run("audit", log, *columns, "--time", "day"), "no column 'day'")


@pytest.mark.parametrize(
    "form", ["{}", "{}Z", "{}+00:00", "{}.000000", "{}.123456789Z", "{}.5Z"], ids=lambda form: form.format("t")
)
def test_text_of_times_with_and_without_zones(form: str, tmp_path: Path) -> None:
    hours = np.datetime64("2026-03-29T00:00:00") + np.arange(72).astype("timedelta64[h]")  # clocks change in Europe
    path = tmp_path / "log.csv"
    path.write_text("p,y,t\n" + "".join(f"0.5,{k % 2},{form.format(hour)}\n" for k, hour in enumerate(hours)))
    windows = tc.audit(path, forecast="p", outcome="y", time="t").windows
    assert windows is not None
    assert windows.in_order
    assert {key: part.rounds for key, part in windows.groups.items()} == {
        (day,): 24 for day in ("2026-03-29", "2026-03-30", "2026-03-31")
    }


@pytest.mark.parametrize(
    ("times", "groups"),
    [
        (np.full(40, 0.5), [(0.5,)]),
        (np.arange(40) * 1e306, 20),
        (np.where(np.arange(40) % 4, np.arange(40) % 5, np.inf), [(0,), (1,), (2,), (3,), (4,), (None,)]),
        (np.where(np.arange(40) % 4, np.arange(40) % 5, np.nan), [(0,), (1,), (2,), (3,), (4,), (None,)]),
        (np.datetime64("2026-01-01T00:00:00.000000001") + np.arange(40), [("2026-01-01 00:00",)]),
    ],
    ids=["one", "large", "infinite", "missing", "nanoseconds"],
)
def test_times_of_all_kinds(times: Any, groups: Any) -> None:
    log = {"p": np.full(40, 0.5), "y": np.arange(40) % 2, "t": times}
    windows = tc.audit(log, forecast="p", outcome="y", time="t").windows
    assert windows is not None
    assert list(windows.groups) == groups or len(windows.groups) == groups


def test_what_is_no_time_says_why() -> None:
    log = {"p": np.full(2, 0.5), "y": np.arange(2), "t": np.array(["2026-01-31", "2026-13-31"])}
    with pytest.raises(tc.TreeCalError, match="it holds '2026-13-31'"):
        tc.audit(log, forecast="p", outcome="y", time="t")


def test_the_order_of_rows_of_one_time_is_no_evidence() -> None:
    alarms = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        p = rng.random(600) if seed % 2 else rng.choice([0.2, 0.5, 0.8], 600)
        y = (rng.random(600) < p).astype(int)
        day = np.sort(rng.integers(6, size=600))
        order = np.lexsort((y, day))
        table = {"p": p[order], "y": y[order], "day": day[order]}
        found = tc.audit(table, forecast="p", outcome="y", time="day", exact=False)
        assert found.windows is not None
        assert found.windows.in_order
        alarms.append(found.windows.alarm is not None)
        if seed < 2:
            frame = tc.audit(pd.DataFrame(table), forecast="p", outcome="y", time="day", exact=False)
            assert frame.windows is not None
            assert frame.windows.alarm == found.windows.alarm
    assert sum(alarms) <= 2


def test_rows_of_one_time_are_watched_alike_in_chunks_of_any_size() -> None:
    rng = np.random.default_rng(3)
    p = rng.random(500)
    y = (rng.random(500) < p**3).astype(int)
    times, P = np.repeat(np.arange(5), 100), np.column_stack([1 - p, p])
    alarms = []
    for size in (1, 7, 100, 130, 500):
        watched = _Watched(["0", "1"])
        for begin in range(0, 500, size):
            part = slice(begin, begin + size)
            watched.add(times[part], P[part], y[part])
        alarms.append(watched.alarm())
    assert alarms[0] is not None
    assert alarms == alarms[:1] * 5
