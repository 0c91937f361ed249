"""The books: what is announced is what `tc.Late` announces; the log gives the state; nothing is lost or doubled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import treecal as tc
from tests.serve.http import served
from treecal.correctors import Corrector
from treecal.forecast import DecisionForecast
from treecal.serve import _books, _config, _reading, _validation, _wire as wire
from treecal.serve._answers import encode
from treecal.serve._books import Books
from treecal.serve._config import space_of, thing_of
from treecal.serve._doctor import check_books
from treecal.serve._player import Player
from treecal.serve._refusals import Refusal
from treecal.serve._sqlite import Sqlite
from treecal.serve._writer import Writer
from treecal.streams import next_checkpoint

CLASSES = ["a", "b", "c"]
COSTS = {"stay": [0.0, 4.0, 1.0], "go": {"a": 1.0, "b": 0.0, "c": 3.0}}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "vector": {"corrector": wire.Part("vector")},
    "mean": {"corrector": wire.Part("mean", {"prior": 2.0})},
    "gated": {"corrector": wire.Part("temperature"), "gate": True},
    "by group": {"corrector": wire.Part("vector"), "tags": ["r", "s"], "group": ["r", "s"]},
    "isotonic": {"corrector": wire.Part("isotonic")},
    "guarded corrector": {"corrector": wire.Part("vector-then-guarded"), "limit": 6},
    "guarded": {"forecaster": wire.Part("guarded"), "limit": 6},
    "treecal": {"forecaster": wire.Part("treecal", {"arity": 2}), "limit": 6},
    "advice": {"corrector": wire.Part("vector-then-guarded", {"losses": COSTS}), "limit": 6},
    "advice without a model": {
        "forecaster": wire.Part("guarded", {"losses": {"x": COSTS, "y": [[0, 1, 1], [1, 0, 0]]}})
    },
    "running mean": {"forecaster": wire.Part("running-mean")},
}


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 0.125
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "books.sqlite"


@pytest.fixture
def books(path: Path, clock: Clock) -> Iterator[Books]:
    with Sqlite(path) as store:
        yield Books(store, clock=clock)


def done(books: Books, act: Callable[[], Any]) -> Any:
    """Act within a transaction."""
    books.store.begin()
    found = act()
    books.store.commit()
    return found


def config(kind: str) -> wire.NewStream:
    return wire.NewStream(kind.replace(" ", "-"), classes=CLASSES, **KINDS[kind])


def sound(books: Books) -> None:
    found = check_books(books.store)
    assert [each.problems for each in found] == [[] for _ in found]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_announced_is_what_late_announces(kind: str, books: Books) -> None:
    new, rng = config(kind), np.random.default_rng(0)
    space = space_of(new)
    thing = thing_of(new, space)
    name, limit = new.name, KINDS[kind].get("limit")
    late = None if thing is None else tc.Late(thing, limit=limit)
    done(books, lambda: books.create(new))
    waiting: list[str] = []
    for i in range(120):
        if i == 60:
            books.forget()  # as after a restart
        p = rng.dirichlet([1, 1, 1])
        tags = {"r": "xy"[i % 2], "s": "uv"[i % 3 == 0]} if new.tags else {}
        named = f"id {i}"
        given = None if new.forecaster else p.tolist()
        (said,) = done(books, lambda: books.forecast(name, [wire.NewForecast(named, given, tags)]))  # noqa: B023
        expected = p
        if late is not None:
            group = (tags["r"], tags["s"]) if tags else None
            x = late.predict(p, id=named, group=group) if isinstance(thing, Corrector) else late.predict(id=named)
            expected = x.mean
            assert said.points is None or np.array_equal(said.points, x.points)
        assert said.forecast == expected.tolist()
        waiting = [*waiting, named][-limit:] if limit else [*waiting, named]
        if rng.random() < 0.7 and waiting:
            chosen = [waiting.pop(int(rng.integers(len(waiting)))) for _ in range(min(len(waiting), 3))]
            ys = [int(y) for y in rng.integers(3, size=len(chosen))]
            became = done(
                books,
                lambda: books.settle(
                    [wire.NewOutcome(name, each, CLASSES[y]) for each, y in zip(chosen, ys, strict=True)]  # noqa: B023
                ),
            )
            assert [each.status for each in became] == ["learned"] * len(chosen)
            if late is not None:
                late.update_many(chosen, ys)
    player = books.player(name)
    if late is not None:
        assert (player.learned, player.void, player.pending) == (late.rounds, late.void, len(late.pending))
        assert player.pool is None or late.copies == len(player.pool.copies)
    sound(books)


def names_and_rows(books: Books) -> dict[str, list[Any]]:
    tables = ("streams", "rounds", "arrivals", "pending", "alarms")
    return {name: list(books.store._connection.execute(f"SELECT * FROM {name}")) for name in tables}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(["vector", "by group", "guarded corrector", "guarded", "plain"]))
def test_any_course_of_events(data: st.DataObject, kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    clock = Clock()
    new = config(kind)
    ids = st.sampled_from([f"i{k}" for k in range(12)])
    forecast = st.tuples(st.just("forecast"), st.lists(st.tuples(ids, st.booleans()), min_size=1, max_size=4))
    outcome = st.tuples(st.just("settle"), st.lists(st.tuples(ids, st.integers(0, 2), st.booleans()), max_size=5))
    other = st.sampled_from([("reset",), ("forget",), ("save",), ("late",)])
    folder = tmp_path_factory.mktemp("books")
    with Sqlite(folder / "b.sqlite") as store:
        books = Books(store, clock=clock)
        done(books, lambda: books.create(new))
        first: dict[str, int] = {}  # the outcome that was learned
        answered: dict[tuple[str, bool], list[float]] = {}  # by what was asked: the same again has the same answer
        opened: set[str] = set()
        events: list[Any] = data.draw(st.lists(st.one_of(forecast, outcome, other), max_size=25))
        for event in events:
            before = names_and_rows(books)
            if event[0] == "forecast":
                rows = [_forecast(each, new, used=used, now=clock.now) for each, used in event[1]]
                try:
                    said = done(books, lambda: books.forecast(new.name, rows))  # noqa: B023
                except Refusal as refusal:
                    books.store.rollback()
                    refused = refusal.code, names_and_rows(books)
                    assert refused == ("conflict", before)  # one of two things that may be
                else:
                    for row, each in zip(rows, said, strict=True):
                        assert answered.setdefault((row.id, row.used), each.forecast) == each.forecast
                        opened.add(each.id)
            elif event[0] == "settle":
                body = [wire.NewOutcome(new.name, each, y, amend) for each, y, amend in event[1]]
                for given_, became in zip(body, done(books, lambda: books.settle(body)), strict=True):  # noqa: B023
                    assert (became.status == "unknown") is (given_.id not in opened)
                    if became.status == "learned":
                        assert given_.id not in first
                        first[given_.id] = int(given_.outcome)  # type: ignore[arg-type]
                    if became.status == "conflict":
                        assert first.get(given_.id) != given_.outcome
            elif event[0] == "forget":
                books.forget()
            elif event[0] == "late":
                clock.now += 50
            else:
                done(books, lambda: getattr(books, event[0])(new.name))  # noqa: B023
        player = books.player(new.name)
        assert player.learned == len(first)
        assert player.rounds == len(opened)
        sound(books)
        books.forget()
        again = books.player(new.name)
        assert again.state == player.state
        assert _same(again.get_state(), player.get_state())


def _forecast(named: str, new: wire.NewStream, *, used: bool, now: float) -> wire.NewForecast:
    k = int(named[1:])
    p = None if new.forecaster else [0.1 + 0.05 * k, 0.2, 0.7 - 0.05 * k]
    tags = {"r": "xy"[k % 2], **dict.fromkeys(new.group[1:], "z")} if new.tags else {}
    return wire.NewForecast(named, p, tags, 1030.0 + k if k % 3 == 0 else None, used and p is not None)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())
    return bool(one == other)


def filled(books: Books, *, rows: int = 300, off: float = 3.0, **more: Any) -> wire.NewStream:
    """Fill a stream with a model that is three times as sure as it should be; return its settings."""
    new, rng = wire.NewStream("s", classes=CLASSES, tags=["r"], **more), np.random.default_rng(1)
    done(books, lambda: books.create(new))
    for start in range(0, rows, 50):
        P = rng.dirichlet([1, 1, 1], 50)
        Q = P**off / (P**off).sum(axis=1, keepdims=True)
        ys = [int(rng.choice(3, p=p)) for p in P]
        ids = [str(start + i) for i in range(50)]
        news = [wire.NewForecast(ids[i], Q[i].tolist(), {"r": "xy"[i % 2]}) for i in range(50)]
        done(books, lambda: books.forecast("s", news))  # noqa: B023
        done(books, lambda: books.settle([wire.NewOutcome("s", i, y) for i, y in zip(ids, ys, strict=True)]))  # noqa: B023
    return new


def test_scores_are_those_of_an_audit_of_the_export(books: Books, tmp_path: Path) -> None:
    filled(books, corrector=wire.Part("vector"))
    kept, picture = books.kept("s"), books.picture("s")
    assert _reading.export(kept, books.store, tmp_path / "s.parquet") == 300
    shown = _reading.stream(picture, books.store, 0.0, _reading.Verdicts())
    scored = _reading.scores(kept, books.store, of=300, by="r")
    for role, forecast in (("announced", ["p_a", "p_b", "p_c"]), ("model", "model_forecast")):
        audit = tc.audit(
            tmp_path / "s.parquet", forecast=forecast, outcome="outcome", by="r", classes=CLASSES, exact=False
        )
        assert getattr(scored, role) == audit.whole.to_dict()
        assert [(each["by"], each[role]) for each in scored.groups] == [
            (key[0], part.to_dict()) for key, part in audit.groups.items()
        ]
        verdict = shown.verdict if role == "announced" else shown.model_verdict
        assert verdict is not None
        assert verdict | {"advice": ""} == audit.whole.verdict.to_dict() | {"advice": ""}
    assert "The stream" not in shown.model_verdict["advice"]  # type: ignore[index]
    assert scored.announced is not None
    assert scored.announced["brier"] < scored.model["brier"]  # type: ignore[index]
    assert scored.change is not None
    assert scored.change.value == pytest.approx(scored.announced["brier"] - scored.model["brier"])  # type: ignore[index]
    assert scored.change.low < scored.change.value < scored.change.high < 0
    ends = scored.announced["intervals"]["brier"]
    assert scored.change.high - scored.change.low < ends[1] - ends[0]  # of pairs, so narrower


def test_alarms_and_curves_are_those_of_a_monitor(books: Books) -> None:
    filled(books, monitor=wire.Watch(alpha=0.01))
    rows = list(_reading._back(books.kept("s"), books.store, -math.inf, math.inf, 10**6))[::-1]
    read = _reading._read(rows, tc.Simplex(classes=CLASSES), tagged=False)
    monitor = tc.Monitor(tc.Simplex(classes=CLASSES), alpha=0.01)
    assert read.model is not None
    monitor.update_many(read.model, read.outcomes)
    picture = books.picture("s")
    assert picture.monitors["model"].value == monitor.statistic
    assert picture.monitors["model"].alarm == monitor.alarm
    (alarm,) = _reading.alarms(books.store, "", None, 10).alarms
    assert monitor.alarm is not None
    number = monitor.alarm.round
    assert alarm.words == str(monitor.alarm).replace(f"after round {number}", f"after {number} outcomes").replace(
        "round", "outcome"
    )
    assert alarm.since == read.at[monitor.alarm.onset - 1]
    assert _reading.stream(picture, books.store, 0.0, _reading.Verdicts()).monitors["model"].alarm == alarm
    marks = _reading.curve(picture).marks
    assert [mark.rounds for mark in marks] == sorted({n for n in range(1, 301) if next_checkpoint(n - 1) == n} | {300})
    half = tc.Monitor(tc.Simplex(classes=CLASSES), alpha=0.01)
    half.update_many(read.model[: marks[-3].rounds], read.outcomes[: marks[-3].rounds])
    assert marks[-3].model_evidence == half.statistic
    done(books, lambda: books.reset("s"))
    assert books.picture("s").monitors["model"].alarm is None
    sound(books)


def test_streams_with_losses_answer_with_the_action(books: Books) -> None:
    losses = tc.Losses(tc.Simplex(classes=CLASSES), COSTS)
    part = wire.Part("guarded", {"losses": COSTS, "budget": 0})
    done(books, lambda: books.create(wire.NewStream("s", classes=CLASSES, corrector=part, limit=2)))
    seen = set()
    for t in range(30):
        new = wire.NewForecast(id=str(t), p=[0.8, 0.1, 0.1])
        (found,) = done(books, lambda: books.forecast("s", [new]))  # noqa: B023
        x = tc.Forecast([found.forecast] if found.points is None else found.points, weights=found.weights)
        advice = DecisionForecast(x, losses)
        assert found.action == advice.action
        assert found.actions == (None if found.points is None else advice.actions)
        seen.add(found.action)
        outcome = wire.NewOutcome(stream="s", id=str(t), outcome=CLASSES[t % 2])
        done(books, lambda: books.settle([outcome]))  # noqa: B023
    assert seen == {"stay", "go"}
    sound(books)


def test_a_snapshot_makes_a_restart_short_and_a_damaged_one_does_no_harm(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_books, "SNAPSHOT_EVERY", 120)
    filled(books, corrector=wire.Part("vector"))
    ((rounds, arrivals, content),) = books.store.query("snapshot", 1)
    assert (rounds, arrivals) > (100, 100)
    before = books.player("s").get_state()
    for changed in (content, content[:-1], b"", content[:40] + b"\x01" + content[41:]):
        done(books, lambda: books.store.run("keep_snapshot", [(1, rounds, arrivals, changed)]))  # noqa: B023
        books.forget()
        assert _same(books.player("s").get_state(), before)
        assert bool(check_books(books.store)[0].problems) is (changed != content)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE rounds SET announced = model WHERE round = 200",
        "UPDATE rounds SET tags = '' WHERE round = 150",
        "UPDATE arrivals SET class = 1 - class WHERE arrival = 120 AND class < 2",
        "UPDATE arrivals SET at = at + 1 WHERE arrival = 7",
        "DELETE FROM arrivals WHERE arrival = 250",
        "DELETE FROM rounds WHERE round = 299",
        "INSERT INTO pending (stream, round) VALUES (1, 12)",
        "UPDATE snapshots SET content = content || x'00'",
    ],
)
def test_doctor_finds_what_was_changed(books: Books, change: str) -> None:
    filled(books, corrector=wire.Part("vector"))
    done(books, lambda: books.save("s"))
    sound(books)
    connection = books.store._connection
    connection.execute(change)
    assert connection.changes()
    (found,) = check_books(books.store)
    assert found.problems


def test_the_same_again_is_the_same_bytes_and_another_body_a_conflict(books: Books) -> None:
    filled(books, corrector=wire.Part("vector"))
    ask = wire.NewForecast("new", [0.2, 0.3, 0.5], {"r": "x"}, 1e9)
    first = done(books, lambda: books.forecast("s", [ask]))
    done(books, lambda: books.settle([wire.NewOutcome("s", "299", "a"), wire.NewOutcome("s", "new", "b")]))
    books.forget()
    assert encode(done(books, lambda: books.forecast("s", [ask]))) == encode(first)
    for other in (
        wire.NewForecast("new", [0.2, 0.5, 0.3], {"r": "x"}, 1e9),
        wire.NewForecast("new", [0.2, 0.3, 0.5], {}, 1e9),
        wire.NewForecast("new", [0.2, 0.3, 0.5], {"r": "x"}),
    ):
        before = names_and_rows(books)
        with pytest.raises(Refusal) as refused:
            books.forecast("s", [wire.NewForecast("other", [0.2, 0.3, 0.5]), other])
        assert (refused.value.status, refused.value.at) == (409, "forecasts[1].id")
        assert names_and_rows(books) == before


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (wire.NewForecast("i"), "p"),
        (wire.NewForecast("i", [0.5, 0.5]), "p"),
        (wire.NewForecast("i", [0.5, 0.5, 0.1]), "p"),
        (wire.NewForecast("i", [math.nan, 0.5, 0.5]), "p"),
        (wire.NewForecast("i", {"a": 0.5, "b": 0.5}), "p"),
        (wire.NewForecast("i", [0.2, 0.3, 0.5], {"colour": "red"}), "tags"),
        (wire.NewForecast("i", [0.2, 0.3, 0.5], due=math.inf), "due"),
    ],
)
def test_an_invalid_forecast_changes_nothing(books: Books, body: wire.NewForecast, at: str) -> None:
    filled(books, rows=50, corrector=wire.Part("vector"))
    before, state = names_and_rows(books), books.player("s").state
    with pytest.raises(Refusal) as refused:
        books.forecast("s", [body])
    assert (refused.value.code, refused.value.at) == ("invalid", at)
    assert names_and_rows(books) == before
    assert books.player("s").state == state


@pytest.mark.parametrize("outcome", [3, -1, "d", [0.5, 0.6, 0.1], [1, 0], True])
def test_an_invalid_outcome_refuses_all_of_the_request(books: Books, outcome: Any) -> None:
    filled(books, rows=50)
    done(books, lambda: books.forecast("s", [wire.NewForecast("i", [0.2, 0.3, 0.5])]))
    before = names_and_rows(books)
    with pytest.raises(Refusal) as refused:
        books.settle([wire.NewOutcome("s", "i", "a"), wire.NewOutcome("s", "0", outcome)])
    assert refused.value.at == "outcomes[1].outcome"
    assert names_and_rows(books) == before


@pytest.mark.parametrize(
    ("given", "at"),
    [
        ({}, "classes"),
        ({"classes": CLASSES, "set": wire.Shape("Box", {"dim": 2})}, "classes"),
        ({"classes": ["a", "a"]}, "classes"),
        ({"set": wire.Shape("Sphere")}, "set.name"),
        ({"set": wire.Shape("Simplex", {"dim": 10**6})}, "set.options.dim"),
        ({"set": wire.Shape("Box", {"low": 0.0})}, "set.options"),
        ({"classes": CLASSES, "corrector": wire.Part("wizard")}, "corrector.name"),
        ({"classes": CLASSES, "corrector": wire.Part("vector", {"rate": -1.0})}, "corrector.options"),
        ({"classes": CLASSES, "corrector": wire.Part("vector", {"speed": 1.0})}, "corrector.options"),
        ({"classes": CLASSES, "corrector": wire.Part("platt")}, "corrector.options"),
        ({"classes": CLASSES, "forecaster": wire.Part("treecal", {"arity": 0})}, "forecaster.options"),
        ({"classes": CLASSES, "forecaster": wire.Part("sampled")}, "forecaster.name"),
        ({"classes": CLASSES, "forecaster": wire.Part("treecal"), "corrector": wire.Part("vector")}, "forecaster"),
        ({"classes": CLASSES, "forecaster": wire.Part("treecal", {"depth": 2})}, "forecaster.options.depth"),
        ({"classes": CLASSES, "gate": True}, "gate"),
        ({"classes": CLASSES, "group": ["r"]}, "group"),
        ({"classes": CLASSES, "tags": ["r", "r"]}, "tags"),
        ({"classes": CLASSES, "monitor": wire.Watch(alpha=2.0)}, "monitor"),
    ],
)
def test_an_invalid_stream_is_refused_and_says_where(books: Books, given: dict[str, Any], at: str) -> None:
    with pytest.raises(Refusal) as refused:
        books.create(wire.NewStream("s", **given))
    assert (refused.value.code, refused.value.at) == ("invalid", at)
    assert books.names() == []


def test_an_archived_stream_takes_outcomes_and_no_forecasts(books: Books) -> None:
    filled(books, rows=50)
    done(books, lambda: books.forecast("s", [wire.NewForecast("i", [0.2, 0.3, 0.5])]))
    done(books, lambda: books.archive("s"))
    with pytest.raises(Refusal, match="archived"):
        books.forecast("s", [wire.NewForecast("j", [0.2, 0.3, 0.5])])
    assert done(books, lambda: books.forecast("s", [wire.NewForecast("i", [0.2, 0.3, 0.5])]))[0].round == 51
    assert done(books, lambda: books.settle([wire.NewOutcome("s", "i", 2)]))[0].status == "learned"


def test_late_outcomes_and_amendments_are_kept(books: Books, clock: Clock) -> None:
    filled(books, rows=50)
    ask = [wire.NewForecast(named, [0.2, 0.3, 0.5], due=clock.now + 10) for named in "ij"]
    done(books, lambda: books.forecast("s", ask))
    clock.now += 8
    assert _reading.stream(books.picture("s"), books.store, clock.now, _reading.Verdicts()).counts.overdue == 0
    assert done(books, lambda: books.settle([wire.NewOutcome("s", "i", 2)]))[0].status == "learned"
    clock.now += 8
    waiting = _reading.pending(books.kept("s"), books.store, overdue=True, after=0, limit=5, now=clock.now)
    assert [each.id for each in waiting.pending] == ["j"]
    sent = [
        ("j", 1, False),
        ("j", 1, False),
        ("j", 0, True),
        ("i", 0, False),
        ("i", 0, True),
        ("i", 0, False),
        ("k", 0, True),
    ]
    became = done(books, lambda: books.settle([wire.NewOutcome("s", *each) for each in sent]))
    expected = ["late", "late", "amended", "conflict", "amended", "replayed", "unknown"]
    assert [each.status for each in became] == expected
    j, i = (_reading.record(books.kept("s"), books.store, named) for named in "ji")
    assert (j.status, j.outcome, [each.outcome for each in j.amendments]) == ("late", "b", ["a"])
    assert (i.status, i.outcome, [each.outcome for each in i.amendments]) == ("learned", "c", ["a"])
    assert books.player("s").learned == 51
    sound(books)


def test_other_sets(books: Books) -> None:
    new = wire.NewStream(
        "box", set=wire.Shape("Box", {"low": 0.0, "high": 1.0, "dim": 2}), forecaster=wire.Part("treecal")
    )
    done(books, lambda: books.create(new))
    for i in range(30):
        done(books, lambda: books.forecast("box", [wire.NewForecast(str(i))]))  # noqa: B023
        done(books, lambda: books.settle([wire.NewOutcome("box", str(i), [0.25, i % 2 / 2])]))  # noqa: B023
    scored = _reading.scores(books.kept("box"), books.store, of=30, by="time", window="hour")
    assert scored.model is None
    assert scored.announced is not None
    assert 0 < scored.announced["squared_error"] < 1
    assert scored.groups[0]["announced"]["rounds"] == 30
    assert _reading.stream(books.picture("box"), books.store, 0.0, _reading.Verdicts()).verdict is None
    assert _reading.curve(books.picture("box")).marks[-1].guarantee is not None
    sound(books)


def test_what_a_guard_foresees_is_said(books: Books) -> None:
    done(books, lambda: books.create(wire.NewStream("g", classes=["a", "b"], forecaster=wire.Part("guarded"))))
    for i in range(200):
        done(books, lambda: books.forecast("g", [wire.NewForecast(str(i))]))  # noqa: B023
        done(books, lambda: books.settle([wire.NewOutcome("g", str(i), "ab"[i % 3 > 0])]))  # noqa: B023
    ahead = books.picture("g").ahead
    guard = tc.Guarded(tc.Simplex(2))
    ledger = tc.Ledger(guard.space)
    for i in range(200):
        ledger.record(guard.predict(), [i % 3 == 0, i % 3 > 0])
        guard.update([i % 3 == 0, i % 3 > 0])
    alone = guard._certify_more(tc.l1, 20)  # the server keeps no exact ledger
    assert alone is not None
    assert ahead is not None
    assert ahead[0] == 20
    assert ahead[1] == pytest.approx(alone.bound)
    shown = _reading.stream(books.picture("g"), books.store, 0.0, _reading.Verdicts()).verdict
    assert shown is not None
    assert f"and after 20 more, whatever they are, at most {alone.bound:.3g}." in shown["advice"]
    sound(books)


def test_a_job_that_fails_harms_no_other(path: Path) -> None:
    events: list[Any] = []
    with Writer(Sqlite(path)) as writer:
        writer.listeners.append(events.extend)
        writer.submit(lambda books: books.create(wire.NewStream("s", classes=CLASSES))).result()

        def good(i: int) -> Any:
            return writer.submit(lambda books: books.forecast("s", [wire.NewForecast(str(i), [0.2, 0.3, 0.5])]))

        def bad(books: Books) -> None:
            books.forecast("s", [wire.NewForecast("half done", [0.2, 0.3, 0.5])])
            raise RuntimeError("a bug")

        futures = [good(0), writer.submit(bad), good(1), good(1), good(2)]
        assert [each.result()[0].round for each in futures if each is not futures[1]] == [1, 2, 2, 3]
        with pytest.raises(RuntimeError, match="a bug"):
            futures[1].result()
        assert writer.read(lambda books: books.picture("s").counts.forecasts).result() == 3
        sound_writer(writer)
    assert [each["rounds"] for each in events if each["event"] == "forecast"] == [1, 2, 3]
    with pytest.raises(Refusal, match="stopping"):
        good(3).result()


def test_short_jobs_wait_for_one_long_one_at_most(path: Path) -> None:
    order: list[str] = []
    held, begun = Event(), Event()

    def hold(books: Books) -> None:
        begun.set()
        held.wait()

    with Writer(Sqlite(path)) as writer:
        first = writer.submit(hold)
        begun.wait()
        long = [writer.submit(lambda books, k=k: order.append(f"long {k}"), long=True) for k in range(3)]  # type: ignore[misc]
        short = [writer.submit(lambda books, k=k: order.append(f"short {k}")) for k in range(3)]  # type: ignore[misc]
        held.set()
        for each in (first, *long, *short):
            each.result()
        writer.submit(lambda books: order.append("long, while it stops"), long=True)
    shorts = [f"short {k}" for k in range(3)]
    assert order == [*shorts, *(f"long {k}" for k in range(3)), "long, while it stops"]


def sound_writer(writer: Writer) -> None:
    found = writer.read(lambda books: check_books(books.store)).result()
    assert [each.problems for each in found] == [[] for _ in found]


def test_streams_that_are_not_in_memory_are_read_again(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_books, "IN_MEMORY", 3)
    for i in range(8):
        new = wire.NewStream(f"s{i}", classes=CLASSES, corrector=wire.Part("vector"))
        done(books, lambda: [books.create(new)])  # noqa: B023
        done(books, lambda: books.shed(save=True))
    for i in (0, 7, 3, 0, 5, 1, 0, 2):
        ask = wire.NewForecast(str(books.player(f"s{i}").rounds), [0.2, 0.3, 0.5])
        done(books, lambda: books.forecast(f"s{i}", [ask]))  # noqa: B023
        done(books, lambda: books.shed(save=True))
        assert len(books._players) <= 4
    assert [books.player(f"s{i}").rounds for i in range(8)] == [3, 1, 1, 1, 0, 1, 0, 1]
    sound(books)


def test_what_differs_from_round_to_round_is_no_group(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_validation, "MOST_GROUPS", 3)
    new = wire.NewStream("s", classes=CLASSES, corrector=wire.Part("vector"), tags=["r"], group=["r"])
    done(books, lambda: books.create(new))
    for i in range(3):
        done(books, lambda: books.forecast("s", [wire.NewForecast(str(i), [0.2, 0.3, 0.5], {"r": str(i)})]))  # noqa: B023
        done(books, lambda: books.settle([wire.NewOutcome("s", str(i), 1)]))  # noqa: B023
    books.forget()
    done(books, lambda: books.forecast("s", [wire.NewForecast("3", [0.2, 0.3, 0.5], {"r": "2"})]))
    with pytest.raises(Refusal, match="expected 3 at most"):
        books.forecast("s", [wire.NewForecast("4", [0.2, 0.3, 0.5], {"r": "new"})])
    sound(books)


def test_defaults_of_a_later_version_change_no_stream(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(books, corrector=wire.Part("vector"))
    before = books.player("s").get_state()
    monkeypatch.setitem(_config.CORRECTORS, "vector", partial(tc.VectorScaling, rate=0.7))
    monkeypatch.setattr(_config, "Monitor", partial(tc.Monitor, tolerance=1e-9))
    done(books, lambda: books.create(wire.NewStream("later", classes=CLASSES, corrector=wire.Part("vector"))))
    books.forget()
    assert _same(books.player("s").get_state(), before)
    assert [books.player(name).thing.arguments()["rate"] for name in ("s", "later")] == [0.1, 0.7]  # type: ignore[union-attr]
    sound(books)


def test_advice_is_in_the_words_of_the_server(books: Books) -> None:
    filled(books, rows=500)
    shown = _reading.stream(books.picture("s"), books.store, 0.0, _reading.Verdicts())
    assert shown.model_verdict is not None
    assert "tc." not in shown.model_verdict["advice"]
    assert "the corrector auto" in shown.model_verdict["advice"]


@pytest.mark.parametrize(("classes", "names"), [(["1", "2", "3"], None), (["0", "1", "2"], ["0", "1", "2"])])
def test_a_number_is_no_class_where_numbers_name_others(
    books: Books, classes: list[str], names: list[str] | None
) -> None:
    done(books, lambda: books.create(wire.NewStream("s", classes=classes)))
    done(books, lambda: books.forecast("s", [wire.NewForecast(str(k), [0.2, 0.3, 0.5]) for k in range(3)]))
    if names is None:
        with pytest.raises(Refusal, match="which is meant"):
            books.settle([wire.NewOutcome("s", "0", 1)])
    else:
        done(books, lambda: books.settle([wire.NewOutcome("s", str(k), k) for k in range(3)]))
        assert [_reading.record(books.kept("s"), books.store, str(k)).outcome for k in range(3)] == names
    assert done(books, lambda: books.settle([wire.NewOutcome("s", "2", "2")]))[0].status in ("learned", "replayed")


def test_a_player_of_the_state_of_another_goes_on_alike(books: Books) -> None:
    new = filled(books, corrector=wire.Part("vector"))
    player, twin = books.player("s"), Player(new)
    twin.set_state(player.get_state())
    assert _same(twin.get_state(), player.get_state())


def test_a_stream_that_is_grouped_needs_the_tags_of_its_groups(books: Books) -> None:
    new = wire.NewStream("s", classes=CLASSES, corrector=wire.Part("vector"), tags=["r", "q"], group=["r"])
    done(books, lambda: books.create(new))
    rows = [wire.NewForecast(str(i), [0.2, 0.3, 0.5], tags) for i, tags in enumerate([{"r": "x"}, {"q": "y"}])]
    with pytest.raises(Refusal, match="tag 'r' is missing") as caught:
        books.forecast("s", rows)
    assert (caught.value.status, caught.value.at) == (422, "forecasts[1].tags")
    assert done(books, lambda: books.forecast("s", rows[:1]))[0].round == 1
    sound(books)


def test_no_tag_has_the_name_of_the_clock(books: Books) -> None:
    with pytest.raises(Refusal, match="'time'") as caught:
        books.create(wire.NewStream("s", classes=CLASSES, tags=["city", "time"]))
    assert caught.value.at == "tags"
    assert not books.names()


@pytest.mark.parametrize("due", [1.8e12, -1.8e12, float("nan"), float("inf")])
def test_a_time_is_in_seconds(books: Books, due: float) -> None:
    done(books, lambda: books.create(wire.NewStream("s", classes=CLASSES)))
    with pytest.raises(Refusal, match="due is") as caught:
        books.forecast("s", [wire.NewForecast("a", [0.2, 0.3, 0.5], due=due)])
    assert (caught.value.at, "milliseconds" in str(caught.value.hint)) == ("due", True)


def test_scores_of_a_stream_with_losses_say_what_each_action_cost(tmp_path: Path) -> None:
    losses = {"pass": [0, 20], "ask": [1, 5], "block": [5, 0]}
    rng = np.random.default_rng(0)
    risks, shops = rng.beta(1, 4, 60), ["ab"[k % 2] for k in range(60)]
    came = (rng.random(60) < risks).astype(int)
    corrector = {"name": "guarded", "options": {"losses": losses}}
    with served(tmp_path) as house:
        new = {"name": "shop", "classes": ["fine", "fraud"], "tags": ["of"], "corrector": corrector}
        assert house.ask("POST", "/v1/streams", new).status == 201
        for k, risk in enumerate(risks.tolist()):
            body = {"id": str(k), "p": [1 - risk, risk], "tags": {"of": shops[k]}}
            answer = house.ask("POST", "/v1/streams/shop/forecasts", body).json
            assert answer["action"] in losses
            house.ask("POST", "/v1/outcomes", {"outcomes": [{"stream": "shop", "id": str(k), "outcome": int(came[k])}]})
        found = house.ask("GET", "/v1/streams/shop/scores?by=of").json
        log = {"p_fine": 1 - risks, "p_fraud": risks, "y": np.array(["fine", "fraud"])[came], "of": np.array(shops)}
    audit = tc.audit(log, forecast=["p_fine", "p_fraud"], outcome="y", by="of", loss=losses)
    assert audit.whole.payoff is not None
    assert found["model"]["payoff"]["cost"] == pytest.approx(audit.whole.payoff.cost)
    assert [each["rows"] for each in found["model"]["payoff"]["actions"]] == [
        each.rows for each in audit.whole.payoff.actions
    ]
    for group in found["groups"]:
        own = audit.groups[group["by"],].payoff
        assert own is not None
        assert group["model"]["payoff"]["cost"] == pytest.approx(own.cost)
