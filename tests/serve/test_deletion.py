"""What is deleted is gone, from tables and files, and the books are sound; what is changed is in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.cli.support import run
from tests.serve.http import House, fill, served
from tests.serve.older import books as older_books
from treecal.serve import _books as books_module, _wire as wire
from treecal.serve._backup import back_up
from treecal.serve._books import DAY, Books
from treecal.serve._connections import open_store
from treecal.serve._doctor import check_books
from treecal.serve._refusals import Refusal
from treecal.serve._replay import loaded
from treecal.serve._sqlite import Sqlite, SqliteReader

CLASSES = ["a", "b", "c"]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "vector": {"corrector": wire.Part("vector")},
    "gated": {"corrector": wire.Part("temperature"), "gate": True},
    "by group": {"corrector": wire.Part("vector"), "group": ["r"]},
    "guarded corrector": {"corrector": wire.Part("vector-then-guarded"), "limit": 6},
    "guarded": {"forecaster": wire.Part("guarded"), "limit": 6},
}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        self.now += 0.125
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def books(tmp_path: Path, clock: Clock) -> Iterator[Books]:
    with Sqlite(tmp_path / "books.sqlite") as store:
        yield Books(store, clock=clock)


def done(books: Books, act: Callable[[], Any]) -> Any:
    """Act within a transaction."""
    books.store.begin()
    try:
        found = act()
    except Refusal:
        books.store.rollback()
        raise
    books.store.commit()
    return found


def sound(books: Books) -> None:
    """Assert that the log gives the state, and that a restart goes on from the same."""
    assert [each.problems for each in check_books(books.store)] == [[] for _ in books.names()]
    for name in books.names():
        player = books.player(name)
        again, _ = loaded(books.store, books.kept(name))
        assert (again.state, again.config) == (player.state, player.config)
        assert same(again.get_state(), player.get_state())


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())
    return bool(one == other)


def filled(books: Books, kind: str = "vector", rows: int = 40, **more: Any) -> str:
    """Fill a stream with rounds i0, i1, ..., of which each third waits; person i % 5 is a tag. Return its name."""
    new = wire.NewStream("s", classes=CLASSES, tags=["r", "person"], **(KINDS[kind] | more))
    done(books, lambda: books.create(new))
    send(books, range(rows))
    return new.name


def send(books: Books, numbers: range) -> None:
    own = books.kept("s").config.forecaster is not None
    rng = np.random.default_rng(numbers.start)
    for i in numbers:
        p = None if own else rng.dirichlet([1, 1, 1]).tolist()
        new = wire.NewForecast(f"i{i}", p, {"r": "xy"[i % 2], "person": f"person-{i % 5}"})
        done(books, lambda: books.forecast("s", [new]))  # noqa: B023
        if i % 3:
            done(books, lambda: books.settle([wire.NewOutcome("s", f"i{i}", int(rng.integers(3)))]))  # noqa: B023


def numbers_of(books: Books, *ids: str) -> list[int]:
    return [row[0] for row in books.store.each("round_by_id", [(1, each) for each in ids])]


@pytest.mark.parametrize("kind", ["plain", "vector", "guarded corrector", "guarded"])
def test_rows_are_gone_and_the_stream_goes_on_as_if_they_were_not(kind: str, books: Books, tmp_path: Path) -> None:
    """A twin from which nothing is deleted announces the same to the bit: what was learned is as it was."""
    name = filled(books, kind)
    with Sqlite(tmp_path / "twin.sqlite") as store:
        twin = Books(store, clock=Clock())
        filled(twin, kind)
        gone = ["i1", "i7", "i12", "i38"]
        waited = sum(store.query("round_to_settle", 1, each)[0][-1] is not None for each in gone)
        assert done(books, lambda: books.erase(name, numbers_of(books, *gone))) == 4
        sound(books)
        for each in gone:
            assert books.store.query("round_by_id", 1, each) == []
            (settled,) = done(books, lambda: books.settle([wire.NewOutcome(name, each, 1)]))  # noqa: B023
            assert settled.status == "unknown"
        counts = books.picture(name).counts
        assert (counts.deleted, counts.void - twin.picture(name).counts.void) == (4, waited)
        if "limit" not in KINDS[kind]:  # with a limit, a pending round that is gone makes room for another
            for one in (books, twin):
                send(one, range(40, 60))
            rows = [each.store.query("rounds_after", 1, 40, 100) for each in (books, twin)]
            assert [row[5] for row in rows[0]] == [row[5] for row in rows[1]]
        sound(books)


def test_a_deletion_is_an_event_and_what_is_changed_afterwards_is_found(books: Books, tmp_path: Path) -> None:
    name = filled(books)
    done(books, lambda: books.erase(name, numbers_of(books, "i20")))
    send(books, range(40, 50))
    sound(books)
    for number, change in enumerate(
        (
            "UPDATE bases SET content = content || x'00'",
            "UPDATE bases SET content = zeroblob(length(content))",
            "DELETE FROM bases",
            "UPDATE arrivals SET at = at + 1 WHERE kind = 'deleted'",
            "UPDATE arrivals SET class = 1 - class WHERE arrival = 3 AND class < 2",  # before it
            "UPDATE rounds SET tags = '' WHERE round = 10",
            "DELETE FROM arrivals WHERE kind = 'deleted'",
            "UPDATE rounds SET announced = model WHERE round = 45",  # after it
        )
    ):
        copy = tmp_path / f"copy-{number}.sqlite"
        back_up(str(tmp_path / "books.sqlite"), copy)
        connection = apsw.Connection(str(copy))
        connection.execute(change)
        assert connection.changes(), change
        connection.close()
        (found,) = check_books(SqliteReader(copy))
        assert found.problems, change


def bytes_of(path: Path) -> bytes:
    """All that is in the file of the books and those beside it."""
    return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


@pytest.mark.parametrize("what", ["person", "id", "stream", "days"])
def test_no_byte_of_it_is_left_while_the_server_runs(what: str, tmp_path: Path) -> None:
    path = tmp_path / "books.sqlite"
    with served(tmp_path) as house:
        new = {"name": "a", "classes": ["no", "yes"], "tags": ["person"], "corrector": {"name": "vector"}}
        assert house.ask("POST", "/v1/streams", new).status == 201
        for start in range(0, 600, 50):
            rows = [
                {"id": f"id-{i:04d}-x", "p": [0.25, 0.75], "tags": {"person": f"Maria-{i % 40:02d}-y"}}
                for i in range(start, start + 50)
            ]
            assert house.ask("POST", "/v1/streams/a/forecasts/batch", {"forecasts": rows}).status == 200
            came = [{"stream": "a", "id": row["id"], "outcome": "yes"} for row in rows[:40]]
            assert house.ask("POST", "/v1/outcomes", {"outcomes": came}).status == 200
        house.writer.submit(lambda books: books.save("a")).result()
        assert b"Maria-07-y" in bytes_of(path)
        if what == "person":
            gone = [b"Maria-07-y", *(b"id-%04d-x" % i for i in range(7, 600, 40))]
            reply = house.ask("DELETE", "/v1/streams/a/forecasts?tag=person&value=Maria-07-y")
            assert (reply.status, reply.json) == (200, {"forecasts": 15})
        elif what == "id":
            gone = [b"id-0123-x"]
            assert house.ask("DELETE", "/v1/streams/a/forecasts/id-0123-x").json == {"forecasts": 1}
            house.ask("DELETE", "/v1/streams/a/forecasts/id-0123-x").refused(404, "not_found")
        elif what == "days":
            gone = [b"Maria-", b"id-0"]
            assert house.ask("PATCH", "/v1/streams/a", {"keep": 1}).status == 200
            clock = house.writer._clock
            tidied(house, clock() + 3 * DAY)
        else:
            gone = [b"Maria-", b"id-0"]
            assert house.ask("DELETE", "/v1/streams/a").json == {"forecasts": 600}
            house.ask("GET", "/v1/streams/a").refused(404, "not_found")
            tidied(house, 0.0)
        house.writer.submit(lambda books: books.beat()).result()
        left = bytes_of(path)
        assert [each for each in gone if each in left] == []
        with open_store(str(path), beside=True) as store:
            assert [each.problems for each in check_books(store)] == ([] if what == "stream" else [[]])


def tidied(house: House, now: float) -> None:
    """Delete what is to be deleted at a time, step by step."""

    def step(books: Books) -> bool:
        books._clock = lambda: now
        return books.tidy(None)

    while house.writer.submit(step, long=True).result():
        pass


def test_books_of_before_lose_the_traces_that_they_have(tmp_path: Path) -> None:
    """SQLite did not overwrite what was deleted, and pages kept copies of rows that had moved."""
    data = older_books("before-deletion", tmp_path)
    connection = apsw.Connection(data)
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute(
        "CREATE TABLE other (text TEXT); INSERT INTO other VALUES ('a trace of Maria'); DROP TABLE other"
    )
    connection.close()
    path = tmp_path / "books.sqlite"
    assert b"a trace of Maria" in bytes_of(path)
    with open_store(data):
        pass
    assert b"a trace of Maria" not in bytes_of(path)


@pytest.mark.heavy
def test_the_same_in_postgresql(request: pytest.FixtureRequest) -> None:
    data = request.getfixturevalue("postgres").database()
    with open_store(data) as store:
        clock = Clock()
        books = Books(store, clock=clock)
        name = filled(books, keep=2)
        assert done(books, lambda: books.erase(name, numbers_of(books, "i1", "i12", "i5"))) == 3
        sound(books)
        done(books, lambda: books.change(name, CHANGES["guard"]))
        send(books, range(40, 60))
        sound(books)
        clock.now = 2.5 * DAY
        send(books, range(60, 70))
        clock.now = 4.5 * DAY
        while done(books, lambda: books.tidy(None)):
            pass
        assert len(store.query("rounds_after", 1, 0, 1000)) == 10
        sound(books)
        done(books, lambda: books.delete(name))
        while done(books, lambda: books.tidy(None)):
            pass
        assert store.query("rounds_after", 1, 0, 1000) == store.query("arrivals_after", 1, 0, 1000) == []


def test_books_of_before_open_and_are_sound(tmp_path: Path) -> None:
    data = older_books("before-deletion", tmp_path)
    with open_store(data) as store:
        books = Books(store, clock=Clock())
        assert books.names() == ["certified", "corrected", "watched"]
        sound(books)
        for name in books.names():
            rows = store.query("rounds_after", books.kept(name).stream, 0, 3)
            assert done(books, lambda: books.erase(name, [row[0] for row in rows])) == 3  # noqa: B023
            sound(books)


def test_backups_from_before_and_after_can_be_restored(books: Books, tmp_path: Path) -> None:
    name = filled(books)
    path = tmp_path / "books.sqlite"
    copies = [tmp_path / f"copy-{k}.sqlite" for k in range(3)]
    back_up(str(path), copies[0])
    done(books, lambda: books.erase(name, numbers_of(books, "i3", "i4")))
    back_up(str(path), copies[1])
    done(books, lambda: books.change(name, wire.StreamChange(corrector=wire.Part("isotonic"))))
    done(books, lambda: books.delete(name))
    while done(books, lambda: books.tidy(None)):
        pass
    back_up(str(path), copies[2])
    for copy, there, streams in zip(copies, (True, False, False), (1, 1, 0), strict=True):
        assert (b"i4" in copy.read_bytes()) is there or there
        with open_store(str(copy)) as store:
            restored = Books(store, clock=Clock())
            assert len(restored.names()) == streams
            sound(restored)
            if streams:
                assert bool(numbers_of(restored, "i4")) is there
                send(restored, range(40, 45))
                sound(restored)
    done_ = run("doctor", "--data", copies[1])
    assert done_.code == 0
    assert "deleted" in done_.out


def test_a_stream_of_that_name_is_a_new_one(books: Books) -> None:
    filled(books)
    done(books, lambda: books.delete("s"))
    assert books.names() == []
    filled(books, "guarded", rows=5)
    assert books.kept("s").stream == 2
    while done(books, lambda: books.tidy(None)):
        pass
    assert len(books.store.query("rounds_after", 2, 0, 100)) == 5
    assert books.store.query("rounds_after", 1, 0, 100) == []
    sound(books)
    books.forget()
    filled_again = done(books, lambda: books.forecast("s", [wire.NewForecast("new", None, {"r": "x"})]))
    assert filled_again[0].round == 6


def test_days_are_kept_and_deleted_in_steps(books: Books, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books_module, "STEP", 10)
    name = filled(books, keep=2)
    clock.now = 1.5 * DAY
    send(books, range(40, 50))
    steps = [0]
    for now, left in ((2.9 * DAY, 50), (3.1 * DAY, 10), (3.9 * DAY, 10), (4.1 * DAY, 0)):
        clock.now = now
        while done(books, lambda: books.tidy(None)):
            steps[0] += 1
        assert len(books.store.query("rounds_after", 1, 0, 100)) == left, now
        sound(books)
    assert steps == [5]
    assert books.picture(name).counts.deleted == 50
    assert books.picture(name).counts.pending == 0


def test_the_servers_days_are_for_streams_without_their_own(books: Books, clock: Clock) -> None:
    filled(books)
    clock.now = 10 * DAY
    assert not done(books, lambda: books.tidy(None))
    assert not done(books, lambda: books.tidy(20))
    done(books, lambda: books.change("s", wire.StreamChange(keep=15)))
    assert not done(books, lambda: books.tidy(5))
    done(books, lambda: books.change("s", wire.StreamChange(keep=None)))
    assert done(books, lambda: books.tidy(5))


def test_who_may_delete(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        fill(house)
        admin, eraser = house.make_token("admin", "read"), house.make_token("delete", prefix="a")
        for path in ("/v1/streams/a", "/v1/streams/a/forecasts/r1", "/v1/streams/a/forecasts?tag=city&value=Oslo"):
            house.ask("DELETE", path, token=admin).refused(403, "forbidden")
        house.ask("PATCH", "/v1/streams/a", {"keep": 5}, token=eraser).refused(403, "forbidden")
        house.ask("DELETE", "/v1/streams/a/forecasts?tag=city", token=eraser).refused(422, "invalid")
        house.ask("DELETE", "/v1/streams/a/forecasts", token=eraser).refused(422, "invalid")
        assert house.ask("DELETE", "/v1/streams/a/forecasts?tag=city&value=Bergen", token=eraser).json["forecasts"] == 0
        assert house.ask("DELETE", "/v1/streams/a/forecasts/r1", token=eraser).json == {"forecasts": 1}
        assert house.ask("GET", "/v1/streams/a", token=admin).json["counts"]["deleted"] == 1
        assert house.ask("DELETE", "/v1/streams/a/forecasts?tag=city&value=Oslo", token=eraser).json["forecasts"] == 2
        assert 'treecal_deleted{stream="a"} 3' in house.ask("GET", "/metrics", token=admin).body.decode()
        assert house.ask("DELETE", "/v1/streams/a", token=eraser).json == {"forecasts": 3}
        house.ask("DELETE", "/v1/streams/a", token=eraser).refused(404, "not_found")


def test_a_group_is_not_deleted_by_its_name(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        new = {"name": "g", "classes": ["no", "yes"], "tags": ["city"], "group": ["city"]}
        assert house.ask("POST", "/v1/streams", new).status == 201
        reply = house.ask("DELETE", "/v1/streams/g/forecasts?tag=city&value=Oslo")
        assert "learns by the tag" in reply.refused(422, "invalid").error.message


# Settings

CHANGES: dict[str, wire.StreamChange] = {
    "corrector": wire.StreamChange(corrector=wire.Part("isotonic")),
    "the same again": wire.StreamChange(corrector=wire.Part("vector")),
    "guard": wire.StreamChange(corrector=wire.Part("vector-then-guarded"), limit=50),
    "none": wire.StreamChange(corrector=None, gate=False),
    "gate": wire.StreamChange(gate=True),
    "monitor": wire.StreamChange(monitor=wire.Watch(alpha=0.2)),
    "no monitor": wire.StreamChange(monitor=None),
    "limit": wire.StreamChange(limit=3),
    "tags": wire.StreamChange(tags=["r", "person", "more"]),
    "keep": wire.StreamChange(keep=30),
}


ALL = pytest.mark.heavy
FEW = {("corrector", "by group"), ("guard", "vector"), ("none", "guarded corrector"), ("monitor", "vector")}


@pytest.mark.parametrize(
    ("what", "first"),
    [
        pytest.param(what, first, marks=() if (what, first) in FEW else ALL)
        for first in ("vector", "guarded corrector", "by group")
        for what in CHANGES
    ],
)
def test_a_change_is_in_the_log_and_replayed(what: str, first: str, books: Books) -> None:
    """Rounds that wait when the settings change are learned afterwards, by what is there then."""
    name = filled(books, first)
    waiting = [row[1] for row in books.store.query("oldest_pending", 1, 100)]
    before = books.kept(name).config
    done(books, lambda: books.change(name, CHANGES[what]))
    sound(books)
    assert books.kept(name).config == CHANGES[what].of(before)
    done(books, lambda: books.settle([wire.NewOutcome(name, each, 2) for each in waiting[::2]]))
    send(books, range(40, 60))
    sound(books)
    books.forget()
    sound(books)
    done(books, lambda: books.store.run("drop_snapshot", [(1,)]))  # all of the log, with its change
    sound(books)
    done(books, lambda: books.change(name, wire.StreamChange(corrector=before.corrector)))
    send(books, range(60, 66))
    done(books, lambda: books.erase(name, range(1, 5)))
    send(books, range(66, 70))
    done(books, lambda: books.change(name, wire.StreamChange(limit=40, keep=9)))
    send(books, range(70, 74))
    sound(books)


def test_another_corrector_is_as_if_it_had_been_there_from_the_start(books: Books, tmp_path: Path) -> None:
    name = filled(books, "plain", rows=60)
    done(books, lambda: books.change(name, wire.StreamChange(corrector=wire.Part("vector"))))
    with Sqlite(tmp_path / "twin.sqlite") as store:
        twin = Books(store, clock=Clock())
        filled(twin, "vector", rows=60)
        for each in (books, twin):
            send(each, range(60, 70))
        ours, theirs = (each.store.query("rounds_after", 1, 60, 100) for each in (books, twin))
        assert [row[5] for row in ours] == [row[5] for row in theirs]


def test_a_change_through_the_server_learns_beside_the_writer(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        fill(house, rounds=20)
        shown = house.ask("PATCH", "/v1/streams/a", {"corrector": {"name": "vector"}, "tags": ["city", "b"]}).json
        assert shown["config"]["corrector"]["name"] == "vector"
        assert shown["config"]["tags"] == ["city", "b"]
        assert set(shown["monitors"]) == {"model", "announced"}
        same_again = {**shown["config"], "name": "a"}
        assert house.ask("POST", "/v1/streams", same_again).status == 200
        house.ask("POST", "/v1/streams", {"name": "a", "classes": ["no", "yes"]}).refused(409, "conflict")
        for body, at in (
            ({"corrector": {"name": "none such"}}, "corrector.name"),
            ({"forecaster": {"name": "treecal"}}, None),
            ({"keep": 0}, "keep"),
            ({"tags": ["b", "b"]}, "tags"),
        ):
            assert house.ask("PATCH", "/v1/streams/a", body).refused(422, "invalid").error.at == at
        before = house.ask("GET", "/v1/streams/a").json["state"]
        assert house.ask("PATCH", "/v1/streams/a", {"gate": False, "keep": None}).json["state"] != before
        before = house.ask("GET", "/v1/streams/a").json["state"]
        assert house.ask("PATCH", "/v1/streams/a", {"keep": None, "limit": None}).json["state"] == before
        house.ask("PATCH", "/v1/streams/a", {}).refused(422, "invalid")
        house.ask("PATCH", "/v1/streams/none", {"keep": 5}).refused(404, "not_found")


def test_rows_deleted_while_a_corrector_learns_are_not_learned(books: Books) -> None:
    """What learned beside the writer is thrown away if rows were deleted meanwhile: the log could not say it again."""
    from treecal.serve._player import Player
    from treecal.serve._replay import Taught, teach

    name = filled(books)
    changes = wire.StreamChange(corrector=wire.Part("isotonic"))
    player = books.player(name)
    fresh = Taught(Player(changes.of(books.kept(name).config)), (1, player.deleted))
    taught = teach(books.store, 1, fresh, player.arrivals)
    done(books, lambda: books.erase(name, numbers_of(books, "i1")))
    done(books, lambda: books.change(name, changes, taught))
    assert books.player(name).front is not taught.player.front
    sound(books)
    done(books, lambda: books.change(name, CHANGES["the same again"]))
    sound(books)


COURSES = {
    "kind": st.sampled_from(list(KINDS)),
    "events": st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 6)),
            st.tuples(st.just("erase"), st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True)),
            st.tuples(st.just("change"), st.sampled_from(list(CHANGES))),
            st.tuples(st.sampled_from(["forget", "save", "reset", "tidy", "late"]), st.none()),
        ),
        max_size=14,
    ),
}


def test_a_lower_limit_makes_some_void_with_each_forecast(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books_module, "STEP", 3)
    name = filled(books, "plain")
    assert books.picture(name).counts.pending == 14
    done(books, lambda: books.change(name, CHANGES["limit"]))
    pending = []
    for k in range(6):
        done(books, lambda: books.forecast(name, [wire.NewForecast(f"n{k}", [0.2, 0.3, 0.5])]))  # noqa: B023
        pending.append(books.picture(name).counts.pending)
    assert pending == [11, 8, 5, 3, 3, 3]
    sound(books)


def test_a_stream_of_the_same_name_is_not_meant(books: Books) -> None:
    name = filled(books)
    done(books, lambda: books.delete(name))
    filled(books)
    assert done(books, lambda: books.erase(name, [1, 2], stream=1)) == 0
    assert done(books, lambda: books.erase(name, [1, 2], stream=2)) == 2


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(**COURSES)
def test_some_courses_of_deletions_and_changes(
    kind: str, events: list[tuple[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    play(kind, events, tmp_path_factory.mktemp("books"))


@pytest.mark.heavy
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(**COURSES)
def test_many_courses_of_deletions_and_changes(
    kind: str, events: list[tuple[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    play(kind, events, tmp_path_factory.mktemp("books"))


def play(kind: str, events: list[tuple[str, Any]], folder: Path) -> None:
    """Play a course of events, and see that the books are sound after it."""
    clock = Clock()
    with Sqlite(folder / "b.sqlite") as store:
        books = Books(store, clock=clock)
        filled(books, kind, rows=8)
        sent = 8
        for what, more in events:
            if what == "send":
                send(books, range(sent, sent + more))
                sent += more
            elif what == "erase":
                done(books, lambda: books.erase("s", more))  # noqa: B023
            elif what == "change":
                with suppress(Refusal):  # a gate without a corrector, a corrector of a forecaster
                    done(books, lambda: books.change("s", CHANGES[more]))  # noqa: B023
            elif what == "forget":
                books.forget()
            elif what == "late":
                clock.now += DAY
            elif what == "tidy":
                done(books, lambda: books.tidy(1))
            else:
                done(books, lambda: getattr(books, what)("s"))  # noqa: B023
        sound(books)
        books.forget()
        sound(books)
