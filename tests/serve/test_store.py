"""What the books need of a store, for each of them: the same queries, values, transactions and refusals."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from tests.serve.postgres import Cluster
from tests.serve.script import Clock, Log, answer, log_of, send, send_all, steps
from treecal.exceptions import FileError
from treecal.serve._connections import Store, open_store
from treecal.serve._doctor import check_books
from treecal.serve._refusals import Refusal
from treecal.serve._store import queries
from treecal.serve._wire import NewForecast, NewStream
from treecal.serve._writer import Writer

POSTGRES = pytest.mark.heavy
TEXTS = {"round_by_id": [1], "round_to_settle": [1], "alarms": [1], "next_delivery": [0, 1]}
"""Where queries take a text."""
BOTH = pytest.mark.parametrize("data", ["sqlite", pytest.param("postgres", marks=POSTGRES)], indirect=True)


@pytest.fixture
def data(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the books are to be."""
    if request.param == "sqlite":
        return str(tmp_path / "books.sqlite")
    cluster: Cluster = request.getfixturevalue("postgres")
    return cluster.database()


@pytest.fixture
def store(data: str) -> Iterator[Store]:
    with open_store(data) as store:
        yield store


def add(store: Store, *ids: str, first: int = 1, **given: Any) -> None:
    """Add rounds to stream 1."""
    rows = [_round(first + i, each, **given) for i, each in enumerate(ids)]
    store.run("add_round", rows)


def _round(number: int, id: str, *, at: float = 0.5, model: bytes | None = b"", **more: Any) -> tuple[Any, ...]:  # noqa: A002
    row = {"used": 0, "tags": "", "due": None, "state": b"\x00" * 16} | more
    return (1, number, id, at, 0, model, b"\x00\xff", None, None, None, *row.values())


def ids(reader: Any) -> list[str]:
    return [row[1] for row in reader.query("rounds_after", 1, 0, 10**6)]


@BOTH
def test_every_query_is_understood(store: Store) -> None:
    reader = store.reader()
    for name, text in queries().items():
        arguments: list[Any] = [1] * text.count("?")
        for at in TEXTS.get(name, []):
            arguments[at] = "1"
        if text.startswith("SELECT"):
            assert reader.query(name, *arguments) == store.each(name, [tuple(arguments)])
        else:
            store.run(name, [])
    reader.close()


@BOTH
def test_values_come_back_as_they_were(store: Store) -> None:
    texts = ["a", "ä 🌧 'quoted' \"\\ %s ? --", " ", "x" * 200, "\x01\x7f"]
    floats = [0.0, 5e-324, 1.7976931348623157e308, 0.1, -math.inf]
    blobs = [None, b"", bytes(range(256)), b"\x00" * 100_000, b"'"]
    store.begin()
    for i, (text, number, blob) in enumerate(zip(texts, floats, blobs, strict=True), 1):
        add(store, text, first=i, at=number, model=blob, due=number)
    store.run("add_pending", [(2**63 - 1, -(2**63), None)])
    store.commit()
    rows = store.query("rounds_after", 1, 0, 10)
    assert [(row[1], row[4]) for row in rows] == list(zip(texts, blobs, strict=True))
    assert [repr(row[2]) for row in rows] == [repr(row[11]) for row in rows] == list(map(repr, floats))
    assert {type(value) for row in rows for value in row} == {int, str, float, bytes, type(None)}
    assert store.query("count_pending", 2**63 - 1) == [(1,)]


@BOTH
def test_one_answer_for_each_of_the_arguments_in_order(store: Store) -> None:
    names = [f"id{i}" for i in range(3000)]
    store.begin()
    add(store, *names)
    asked = [*reversed(names), "no such one", names[7]]
    found = store.each("round_by_id", [(1, each) for each in asked])
    store.commit()
    assert [row[1] for row in found] == [each for each in asked if each != "no such one"]
    assert store.each("round_by_id", []) == []
    store.run("add_round", [])


@BOTH
def test_what_is_committed_is_seen_and_nothing_else(store: Store) -> None:
    reader = store.reader()
    store.begin()
    add(store, "a")
    assert (ids(store), ids(reader)) == (["a"], [])
    store.commit()
    assert ids(reader) == ["a"]
    store.begin()
    add(store, "b", first=2)
    store.rollback()
    store.rollback()
    assert ids(store) == ids(reader) == ["a"]
    reader.close()


@BOTH
def test_a_block_sees_one_moment(store: Store) -> None:
    store.begin()
    add(store, "a", "b")
    store.commit()
    reader = store.reader()
    with reader.moment():
        assert ids(reader) == ["a", "b"]
        store.begin()
        add(store, "later", first=3)
        store.commit()
        assert ids(reader) == ["a", "b"]
    assert ids(reader) == ["a", "b", "later"]
    reader.close()


@BOTH
def test_a_statement_that_fails_is_undone_with_its_transaction(store: Store) -> None:
    store.begin()
    add(store, "a")
    with pytest.raises((apsw.ConstraintError, psycopg.errors.UniqueViolation)):
        add(store, "b", "a", first=2)
    store.rollback()
    assert ids(store) == []
    store.begin()
    add(store, "c")
    store.commit()
    assert ids(store) == ["c"]


@BOTH
def test_the_second_server_is_refused_and_the_first_goes_on(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if data.startswith("postgresql"):
        from treecal.serve import _postgres

        monkeypatch.setattr(_postgres, "_PATIENCE", "50ms")
    with open_store(data) as first:
        with pytest.raises(FileError, match=r"in use by another treecal|another treecal serve holds"), open_store(data):
            pass
        first.begin()
        add(first, "a")
        first.commit()
        assert ids(first) == ["a"]
    with open_store(data) as second:
        assert ids(second) == ["a"]


@BOTH
def test_a_token_is_made_beside_a_server(data: str) -> None:
    with open_store(data) as server, open_store(data, beside=True) as beside:
        beside.begin()
        beside.run("add_token", [("id", "name", "hash", "", "read", 1.0, None)])
        beside.commit()
        assert [row[:2] for row in server.query("tokens")] == [("id", "name")]


@BOTH
def test_books_of_a_newer_treecal_are_refused(data: str) -> None:
    with open_store(data):
        pass
    _run(data, "PRAGMA user_version = 999", "UPDATE books SET version = 999")
    with pytest.raises(FileError, match=r"written by a newer treecal: it has version 999"), open_store(data):
        pass


@BOTH
def test_the_database_of_another_program_is_left_alone(data: str) -> None:
    _run(data, *["CREATE TABLE rounds (n integer)"] * 2)
    with pytest.raises(FileError, match=r"not one of treecal|tables of another program"), open_store(data):
        pass
    _run(data, *["DROP TABLE rounds"] * 2)
    if not data.startswith("postgresql"):
        connection = apsw.Connection(data)
        assert connection.pragma("journal_mode") == "delete"  # nothing was written to it
        connection.close()
    with open_store(data) as store:
        assert ids(store) == []


def _run(data: str, sqlite: str, postgres: str) -> None:
    if data.startswith("postgresql"):
        with psycopg.connect(data) as connection:
            connection.execute(postgres)
        connection.close()
    else:
        file = apsw.Connection(data)
        file.execute(sqlite)
        file.close()


@BOTH
def test_the_same_requests_give_the_same_log(data: str, reference: Log) -> None:
    clock = Clock()
    with Writer(open_store(data), clock=clock) as writer:
        send_all(writer, clock, steps(), together=5, told=lambda number: None)
    with open_store(data) as store:
        assert log_of(store) == reference
        assert [each for each in check_books(store) if each.problems] == []


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """The log of the scripted run, one request at a time, in SQLite."""
    data, clock = str(tmp_path_factory.mktemp("reference") / "books"), Clock()
    with Writer(open_store(data), clock=clock) as writer:
        for number, step in enumerate(steps()):
            answer(send(writer, clock, number, step))
    with open_store(data) as store:
        return log_of(store)


@pytest.mark.parametrize("address", ["postgresql://user:hunter2@[bad/x", "postgresql://user:hunter2@127.0.0.1:1/x"])
def test_a_password_is_never_told(address: str) -> None:
    with pytest.raises((FileError, Refusal)) as caught, open_store(address):
        pass
    assert "hunter2" not in str(caught.value)


class TestLost:
    """PostgreSQL goes away, and comes back."""

    pytestmark = POSTGRES

    NEW = NewStream("a", classes=["no", "yes"], monitor=None)

    def forecast(self, writer: Writer, name: str) -> Any:
        return writer.submit(lambda books: books.forecast("a", [NewForecast(name, p=[0.5, 0.5])])).result()

    def test_requests_are_refused_until_it_is_back(self, postgres: Cluster) -> None:
        url = postgres.database()
        with Writer(open_store(url)) as writer:
            writer.submit(lambda books: books.create(self.NEW)).result()
            first = self.forecast(writer, "x")
            postgres.kill()
            for _ in range(2):
                with pytest.raises(Refusal, match=r"does not answer") as caught:
                    self.forecast(writer, "y")
                assert caught.value.code == "unavailable"
                with pytest.raises(Refusal, match=r"does not answer"):
                    writer.read(lambda books: books.picture("a")).result()
            postgres.start()
            assert writer.read(lambda books: books.picture("a").counts.forecasts).result() == 1
            assert self.forecast(writer, "x") == first
            assert self.forecast(writer, "y")[0].round == 2

    def test_it_goes_away_as_soon_as_it_was_reached(self, postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        from treecal.serve import _postgres

        url, reach = postgres.database(), _postgres._connected

        def reached(given: dict[str, Any]) -> Any:
            connection = reach(given)
            connection.close()
            return connection

        with open_store(url) as store:
            reader = store.reader()
            store._connection.close()
            monkeypatch.setattr(_postgres, "_connected", reached)
            for each in (reader, store):
                with pytest.raises(Refusal, match=r"does not answer"):
                    each.query("streams")
            monkeypatch.undo()
            assert reader.query("streams") == store.query("streams") == []
            reader.close()

    def test_a_commit_whose_answer_was_lost_is_done_once(
        self, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store: Any = open_store(postgres.database())
        with Writer(store) as writer:
            writer.submit(lambda books: books.create(self.NEW)).result()
            commit = store.commit

            def lost() -> None:
                commit()
                store._connection.close()
                monkeypatch.undo()
                store.query("streams")  # reconnects and is fine: the loss must not pass unnoticed
                raise psycopg.OperationalError("the connection was lost")

            monkeypatch.setattr(store, "commit", lost)
            with pytest.raises(psycopg.OperationalError):
                self.forecast(writer, "x")
            assert self.forecast(writer, "x")[0].round == 1
            assert self.forecast(writer, "y")[0].round == 2

    def test_another_server_took_over_meanwhile(self, postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        from treecal.serve import _postgres

        monkeypatch.setattr(_postgres, "_PATIENCE", "50ms")
        url = postgres.database()
        with Writer(open_store(url)) as writer:
            writer.submit(lambda books: books.create(self.NEW)).result()
            self.forecast(writer, "x")
            with psycopg.connect(postgres.url("postgres")) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'treecal'"
                )
            with Writer(open_store(url)) as other:
                self.forecast(other, "y")
                for _ in range(2):
                    with pytest.raises(Refusal) as caught:
                        self.forecast(writer, "z")
                    assert caught.value.code == "unavailable"
                assert "another treecal serve holds" in str(caught.value)
            assert self.forecast(writer, "z")[0].round == 3

    def test_a_disk_that_is_full_refuses_and_recovers(self, postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        store: Any = open_store(postgres.database())
        with Writer(store) as writer:
            writer.submit(lambda books: books.create(self.NEW)).result()
            with psycopg.connect(store._address, autocommit=True) as admin:
                admin.execute(
                    "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
                    "$$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = 'disk_full'; END $$"
                )
                admin.execute("CREATE TRIGGER t BEFORE INSERT ON rounds EXECUTE FUNCTION full_disk()")
                with pytest.raises(Refusal, match=r"disk of PostgreSQL is full"):
                    self.forecast(writer, "x")
                admin.execute("DROP TRIGGER t ON rounds")
            assert self.forecast(writer, "x")[0].round == 1


@BOTH
def test_a_negative_zero_is_a_zero(data: str) -> None:
    with Writer(open_store(data)) as writer:
        writer.submit(lambda books: books.create(TestLost.NEW)).result()
        new = [NewForecast(name, p=[1.0, -0.0], due=-0.0) for name in ("x", "y")]
        writer.submit(lambda books: books.forecast("a", new)).result()
    with open_store(data) as store:
        assert [each.problems for each in check_books(store)] == [[]]


def test_it_is_the_store_that_says_what_integers_fit(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "books")) as store:
        store.begin()
        with pytest.raises(OverflowError):
            store.run("add_pending", [(1, sys.maxsize + 1, None)])
        store.rollback()
