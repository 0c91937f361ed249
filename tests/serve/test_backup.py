"""A backup is the books of one moment, complete and sound, whatever the server does meanwhile; a move, all of them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.cli.support import refused, run
from tests.serve.script import Clock, log_of, send_all, steps
from treecal.serve._backup import back_up, rows_of
from treecal.serve._connections import open_store
from treecal.serve._demo import Demo, made_up
from treecal.serve._doctor import check_books
from treecal.serve._tokens import add_token, make_token, tokens_of
from treecal.serve._wire import NewForecast, NewOutcome, NewStream, Part, StreamChange
from treecal.serve._writer import Writer


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """Books with one stream of forty rounds, half of them settled."""
    path = tmp_path / "books.sqlite"
    with Writer(open_store(str(path))) as writer:
        new = NewStream("rain", classes=["no", "yes"], corrector=Part("vector"))
        forecasts = [NewForecast(f"r{i}", p=[0.25, 0.75]) for i in range(40)]
        outcomes = [NewOutcome("rain", f"r{i}", i % 2) for i in range(20)]
        writer.submit(lambda books: books.create(new)).result()
        writer.submit(lambda books: books.forecast("rain", forecasts)).result()
        writer.submit(lambda books: books.settle(outcomes)).result()
    return path


def test_a_copy_is_the_same_books(books: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    done = run("backup", copy, "--data", books, "--check")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{copy}: 1 stream, ")
    assert done.out.endswith("40 rounds played again.\n")
    with open_store(str(books)) as one, open_store(str(copy)) as other:
        assert check_books(one) == check_books(other)
    assert copy.stat().st_mode & 0o777 == 0o600


def test_a_copy_is_one_file_and_the_books_stay_as_they_are(books: Path, tmp_path: Path) -> None:
    before = books.read_bytes()
    assert run("backup", tmp_path / "copy.sqlite", "--data", books).code == 0
    assert books.read_bytes() == before
    assert not [name for name in os.listdir(tmp_path) if name.startswith((".treecal", "copy.sqlite-"))]
    connection = sqlite3.connect(tmp_path / "copy.sqlite")
    try:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    finally:
        connection.close()


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Path]:
    """Books that are written all the time."""
    path = tmp_path / "busy.sqlite"
    with Writer(open_store(str(path))) as writer, Demo(writer, flows=made_up, tick=0.0) as demo:
        demo.wait(ticks=14)
        yield path


def test_the_server_writes_meanwhile(busy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treecal.serve._backup._PAGES", 1)  # as many chances for a commit as there are pages
    for k in range(3):
        copied = back_up(str(busy), tmp_path / f"copy-{k}.sqlite", check=True)
        assert copied.checked
        assert not [each for each in copied.checked if each.problems]


def test_commits_go_through_while_a_copy_is_made(books: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is held up after its first page until the server has committed more."""
    monkeypatch.setattr("treecal.serve._backup._PAGES", 1)
    held, committed = Event(), Event()

    def hold(done: float, total: float) -> None:
        held.set()
        assert committed.wait(30)

    with Writer(open_store(str(books))) as writer:
        copying = Thread(target=back_up, args=(str(books), tmp_path / "copy.sqlite"), kwargs={"progress": hold})
        copying.start()
        assert held.wait(30)
        writer.submit(lambda each: each.forecast("rain", [NewForecast("late", p=[0.5, 0.5])])).result(30)
        committed.set()
        copying.join()
    with open_store(str(tmp_path / "copy.sqlite")) as copy:
        (checked,) = check_books(copy)
    assert (checked.rounds, checked.problems) == (40, [])


def test_a_file_is_not_overwritten_unless_told_to(books: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    copy.write_text("precious")
    refused(run("backup", copy, "--data", books), "exists and is not overwritten", "--force")
    assert copy.read_text() == "precious"
    assert run("backup", copy, "--data", books, "--force").code == 0
    assert copy.read_bytes().startswith(b"SQLite format 3")


def test_the_books_themselves_are_no_place_for_their_backup(books: Path, tmp_path: Path) -> None:
    before = books.read_bytes()
    (tmp_path / "link").symlink_to(books)
    for out in (books, tmp_path / "link"):
        refused(run("backup", out, "--data", books, "--force"), "is the file of the books itself")
    assert books.read_bytes() == before


def test_books_that_are_open_are_no_place_for_a_backup(books: Path, busy: Path) -> None:
    refused(run("backup", busy, "--data", books, "--force"), "is in use by SQLite")


def test_what_is_no_books_is_refused(tmp_path: Path) -> None:
    text, other, out = tmp_path / "text", tmp_path / "other.sqlite", tmp_path / "copy.sqlite"
    text.write_text("nothing of the kind " * 100)
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    refused(run("backup", out, "--data", tmp_path / "none"), "there is no file")
    refused(run("backup", out, "--data", text), "cannot be copied")
    refused(run("backup", out, "--data", other), "not one of treecal")
    refused(run("backup", tmp_path / "no" / "copy", "--data", other), "there is no folder")
    assert not out.exists()


def test_postgresql_has_its_own(tmp_path: Path) -> None:
    done = run("backup", tmp_path / "copy", "--data", "postgresql://user:secret@host/books")
    refused(done, "pg_dump")
    assert "secret" not in done.err


def test_damage_is_found(books: Path, tmp_path: Path) -> None:
    """A page of a table that SQLite finds wrong leaves no copy; a row that is another one is found by the replay."""
    connection = sqlite3.connect(books)
    connection.execute("UPDATE rounds SET announced = model WHERE round = 30")
    connection.execute("UPDATE rounds SET state = zeroblob(length(state)) WHERE round = 30")
    connection.commit()
    connection.close()
    done = run("backup", tmp_path / "copy.sqlite", "--data", books, "--check", "--json")
    assert done.code == 1
    assert done.lines[0]["problems"]
    assert (tmp_path / "copy.sqlite").exists()
    content = bytearray(books.read_bytes())
    content[4096 * 3 : 4096 * 3 + 100] = bytes(100)
    books.write_bytes(content)
    refused(run("backup", tmp_path / "other.sqlite", "--data", books), str(books))
    assert not (tmp_path / "other.sqlite").exists()


PLACES = [
    ("sqlite", "sqlite"),
    pytest.param("sqlite", "postgres", marks=pytest.mark.heavy),
    pytest.param("postgres", "sqlite", marks=pytest.mark.heavy),
]


@pytest.mark.parametrize(("first", "second"), PLACES)
def test_books_move_and_are_the_same(first: str, second: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """All of it: streams that were changed, archived and deleted, rows that were deleted, alarms, tokens."""

    def place(kind: str, name: str) -> str:
        return str(tmp_path / name) if kind == "sqlite" else request.getfixturevalue("postgres").database()

    data, to = place(first, "first.sqlite"), place(second, "second.sqlite")
    clock = Clock()
    with Writer(open_store(data), clock=clock) as writer:
        send_all(writer, clock, steps(rounds=24), together=3, told=lambda number: None)
        for act in (
            lambda books: books.erase("corrected", [2, 3]),
            lambda books: books.change("watched", StreamChange(corrector=Part("vector"), keep=9)),
            lambda books: books.delete("certified"),
        ):
            writer.submit(act).result()
    with open_store(data, beside=True) as store:
        add_token(store, make_token("shop", scopes=["delete"], now=1.0)[1])
    done = run("move", "--data", data, "--to", to)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("2 streams, ")
    with open_store(data) as one, open_store(to) as other:
        assert log_of(one) == log_of(other)
        assert rows_of(one) == rows_of(other)
        assert tokens_of(one) == tokens_of(other)
        assert check_books(one) == check_books(other)
        assert {each.name for each in check_books(other)} == {"corrected", "watched"}
    with Writer(open_store(to)) as writer:  # and it goes on there
        writer.submit(lambda books: books.forecast("corrected", [NewForecast("new", p=[0.5, 0.5])])).result()
        while writer.submit(lambda books: books.tidy(None)).result():
            pass
    with open_store(to) as other:
        assert [each.problems for each in check_books(other)] == [[], []]
    refused(run("move", "--data", data, "--to", to), "there are books already")


def test_books_that_are_served_or_not_sound_do_not_move(books: Path, tmp_path: Path) -> None:
    with open_store(str(books)):
        assert run("move", "--data", books, "--to", tmp_path / "other.sqlite").code == 2
    refused(run("move", "--data", books, "--to", books), "")
    refused(run("move", "--data", tmp_path / "none", "--to", tmp_path / "other.sqlite"), "there is no file")
    assert not (tmp_path / "none").exists()
    connection = sqlite3.connect(books)
    connection.execute("UPDATE rounds SET announced = model, state = zeroblob(16) WHERE round = 30")
    connection.commit()
    connection.close()
    refused(run("move", "--data", books, "--to", tmp_path / "other.sqlite"), "the books are not sound")
    with open_store(str(tmp_path / "other.sqlite")) as store:
        assert not any(rows_of(store).values())
