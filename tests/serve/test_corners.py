"""The books where things meet: marks and void rounds, many groups at once, long logs, answers that would be large."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from tests.serve.http import served
from tests.serve.postgres import Cluster
from treecal.exceptions import FileError
from treecal.serve import _books, _operations, _reading, _validation, _wire as wire
from treecal.serve._books import Books
from treecal.serve._config import packed
from treecal.serve._connections import open_reader, open_store
from treecal.serve._doctor import check_books
from treecal.serve._refusals import Refusal
from treecal.serve._replay import Picture
from treecal.serve._sqlite import Sqlite
from treecal.serve._store import queries
from treecal.serve._writer import Writer

CLASSES = ["a", "b", "c"]
P = [0.2, 0.3, 0.5]


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    with Sqlite(tmp_path / "books.sqlite") as store:
        yield Books(store)


def done(books: Books, act: Callable[[], Any]) -> Any:
    """Act within a transaction."""
    books.store.begin()
    found = act()
    books.store.commit()
    return found


def forecast(books: Books, *new: wire.NewForecast) -> list[wire.Announced]:
    found: list[wire.Announced] = done(books, lambda: books.forecast("s", list(new)))
    return found


def settle(books: Books, *ids: str) -> list[str]:
    return [each.status for each in done(books, lambda: books.settle([wire.NewOutcome("s", i, 1) for i in ids]))]


def test_a_round_that_is_told_to_be_used_and_pushed_out_by_the_same_request(books: Books) -> None:
    new = wire.NewStream("s", classes=CLASSES, corrector=wire.Part("vector-then-guarded"), limit=2)
    done(books, lambda: books.create(new))
    forecast(books, wire.NewForecast("a", P), wire.NewForecast("b", P))
    forecast(books, wire.NewForecast("a", P, used=True), wire.NewForecast("c", P))
    forecast(books, wire.NewForecast("d", P))
    held = books.player("s").pool
    assert held is not None
    assert sorted(held.holders.values()) == [3, 4]  # each round that waits has a copy to itself
    assert settle(books, *"abcd") == ["late", "late", "learned", "learned"]
    assert [each.problems for each in check_books(books.store)] == [[]]


def test_a_body_has_the_same_answer_after_the_models_forecast_was_used(books: Books) -> None:
    done(books, lambda: books.create(wire.NewStream("s", classes=CLASSES, corrector=wire.Part("vector"))))
    forecast(books, *(wire.NewForecast(str(i), P) for i in range(50)))
    settle(books, *map(str, range(50)))
    ask, used = wire.NewForecast("new", P), wire.NewForecast("new", P, used=True)
    first = forecast(books, ask)
    told = forecast(books, used)
    assert first[0].forecast != told[0].forecast == P
    books.forget()
    assert (forecast(books, ask), forecast(books, used)) == (first, told)


def test_groups_are_counted_before_their_outcomes_come(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_validation, "MOST_GROUPS", 3)
    new = wire.NewStream("s", classes=CLASSES, corrector=wire.Part("vector"), tags=["r"], group=["r"])
    done(books, lambda: books.create(new))
    some = [wire.NewForecast(str(i), P, {"r": str(i)}) for i in range(4)]
    with pytest.raises(Refusal) as refused:
        books.forecast("s", some)
    assert refused.value.at == "forecasts[3].tags"
    forecast(books, *some[:2])
    books.forget()
    with pytest.raises(Refusal, match="2 groups by r"):
        books.forecast("s", some)
    forecast(books, *some[:3])
    assert [each.problems for each in check_books(books.store)] == [[]]


def test_no_query_reads_a_stream_to_find_a_round(books: Books) -> None:
    assert isinstance(books.store, Sqlite)
    whole = {
        "amendments",
        "outcome_before_last",
        "last_arrival",
        "count_pending",
        "count_open",
        "oldest_pending",
        "snapshot",
        "base",
        "first_rounds",
        "alarms_of",
    }  # by their nature
    for name, text in queries().items():
        if text.startswith("SELECT") and "stream = ?" in text and name not in whole:
            plan = books.store._connection.execute(f"EXPLAIN QUERY PLAN {text}", [1] * text.count("?"))
            assert not [row[3] for row in plan if row[3].endswith("(stream=?)")], name


def test_scores_say_of_how_many_and_are_of_fewer_where_points_are_long(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(books, lambda: books.create(wire.NewStream("s", classes=CLASSES, tags=["r"])))
    forecast(books, *(wire.NewForecast(str(i), P, {"r": str(i % 4)}) for i in range(20)))
    settle(books, *map(str, range(20)))
    done(books, lambda: books.reset("s"))
    scores = _reading.scores(books.kept("s"), books.store, of=books.player("s").learned)
    assert (scores.rounds, scores.of) == (20, 20)
    monkeypatch.setattr(_reading, "_MOST_NUMBERS", 30)
    monkeypatch.setattr(_reading, "_MOST_CURVES", 9)
    assert _reading.scores(books.kept("s"), books.store, of=20).rounds == 10
    with pytest.raises(Refusal, match="more than 3 groups"):
        _reading.scores(books.kept("s"), books.store, of=20, by="r")


@pytest.mark.parametrize(
    ("given", "at"),
    [
        ({"corrector": wire.Part("gated"), "tags": ["r"], "group": ["r"]}, "corrector"),
        ({"corrector": wire.Part("vector-then-mean"), "tags": ["r"], "group": ["r"]}, "corrector"),
        ({"corrector": wire.Part("mean", {"groups": "x"})}, "corrector.options"),
        ({"classes": None, "set": wire.Shape("ConvexSet")}, "set.name"),
        ({"classes": None, "set": wire.Shape("Polytope", {"halfspaces": []})}, "set.options"),
    ],
)
def test_what_could_not_play_a_round_is_refused_at_once(books: Books, given: dict[str, Any], at: str) -> None:
    with pytest.raises(Refusal) as refused:
        books.create(wire.NewStream("s", **{"classes": CLASSES, **given}))
    assert (refused.value.code, refused.value.at) == ("invalid", at)
    assert books.names() == []


def test_a_log_grows_no_longer_than_it_may_before_a_snapshot_though_the_server_is_killed_often(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_books, "SNAPSHOT_EVERY", 50)
    done(books, lambda: books.create(wire.NewStream("s", classes=CLASSES)))
    for i in range(5):
        forecast(books, *(wire.NewForecast(f"{i}.{j}", P) for j in range(20)))
        books.forget()  # as whoever starts again knows nothing
    ((rounds, _, _),) = books.store.query("snapshot", 1)
    assert rounds > 50
    assert [each.problems for each in check_books(books.store)] == [[]]


def test_streams_are_listed_in_order_from_anywhere(books: Books) -> None:
    names = ["b", "a-2", "a-1", "a", "A", "a.1", "ab", "0", "a_1"]
    for name in names:
        done(books, lambda: books.create(wire.NewStream(name, classes=CLASSES)))  # noqa: B023
    for _ in range(2):
        assert books.names() == sorted(names)
        assert books.names(prefix="a") == sorted(name for name in names if name.startswith("a"))
        assert books.names(after="a-1", prefix="a-") == ["a-2"]
        assert books.names(after="a-1") == sorted(name for name in names if name > "a-1")
        assert books.names(after="z") == books.names(prefix="z") == books.names(after="b", prefix="a") == []
        books.forget()


def test_alarms_of_other_streams_hide_none(books: Books) -> None:
    for name in ("a-1", "b-1", "b-2"):
        done(books, lambda: books.create(wire.NewStream(name, classes=CLASSES)))  # noqa: B023
        new = [wire.NewForecast(str(i), [0.01, 0.01, 0.98]) for i in range(30)]
        done(books, lambda: books.forecast(name, new))  # noqa: B023
        done(books, lambda: books.settle([wire.NewOutcome(name, each.id, 0) for each in new]))  # noqa: B023
    assert [each.stream for each in _reading.alarms(books.store, "", None, 10).alarms] == ["b-2", "b-1", "a-1"]
    assert [each.stream for each in _reading.alarms(books.store, "a-", None, 1).alarms] == ["a-1"]
    assert [each.stream for each in _reading.alarms(books.store, "", books.kept("b-1"), 10).alarms] == ["b-1"]


def test_books_are_not_brought_up_to_date_beneath_the_server_that_holds_them(books: Books) -> None:
    assert isinstance(books.store, Sqlite)
    path, connection = books.store.path, books.store._connection
    with Sqlite(path, beside=True):  # of the same version
        pass
    connection.execute("DROP TABLE tokens; PRAGMA user_version = 1")
    with pytest.raises(FileError, match="older format"), Sqlite(path, beside=True):
        pass
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_the_outcome_of_a_void_round_is_kept_and_not_learned(books: Books) -> None:
    done(books, lambda: books.create(wire.NewStream("s", classes=CLASSES, limit=1)))
    forecast(books, wire.NewForecast("a", P))
    forecast(books, wire.NewForecast("b", P))
    assert settle(books, "a", "a") == ["late", "late"]
    assert [each.status for each in done(books, lambda: books.settle([wire.NewOutcome("s", "a", 2)]))] == ["conflict"]
    record = _reading.record(books.kept("s"), books.store, "a")
    assert (record.status, record.outcome, [each.outcome for each in record.amendments]) == ("void", None, ["b"])
    player = books.player("s")
    assert (player.learned, player.void, player.amended, player.pending) == (0, 1, 1, 1)
    assert [each.problems for each in check_books(books.store)] == [[]]


def test_reading_of_many_streams_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_books, "IN_MEMORY", 3)
    names = [f"s{i}" for i in range(8)]
    with Writer(Sqlite(tmp_path / "books.sqlite")) as writer:
        for name in names:
            new = wire.NewStream(name, classes=CLASSES)
            writer.submit(lambda books: books.create(new)).result()  # noqa: B023
            writer.submit(lambda books: books.forecast(name, [wire.NewForecast("a", P)])).result()  # noqa: B023
        for name in names:
            assert writer.read(lambda books: books.picture(name)).result().counts.forecasts == 1  # noqa: B023
            assert writer.read(lambda books: len(books._players)).result() <= 3


def test_the_answer_is_by_name_where_the_models_forecast_was(books: Books) -> None:
    done(books, lambda: books.create(wire.NewStream("s", classes=CLASSES)))
    named: dict[str, Any] = {"c": 0.5, "a": 0.2, "b": 0.3}
    asks = [wire.NewForecast("i", P), wire.NewForecast("i", named)]  # the same, said in two ways
    for _ in range(2):
        assert [forecast(books, ask)[0].forecast for ask in asks] == [P, dict(zip(CLASSES, P, strict=True))]


def test_a_snapshot_of_another_version_is_no_flaw_of_the_books(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    done(books, lambda: books.create(wire.NewStream("s", classes=CLASSES)))
    forecast(books, wire.NewForecast("a", P))
    with monkeypatch.context() as patch:
        patch.setattr("treecal.serve._config.VERSION", 10**6)
        done(books, lambda: books.save("s"))
    books.forget()
    assert books.player("s").rounds == 1
    assert [each.problems for each in check_books(books.store)] == [[]]


def test_copies_for_rounds_that_wait_have_room(books: Books) -> None:
    new = wire.NewStream("s", classes=CLASSES, forecaster=wire.Part("guarded"), limit=10_000_000)
    with pytest.raises(Refusal, match="each needs a copy") as refused:
        books.create(new)
    assert refused.value.at == "limit"
    done(books, lambda: books.create(wire.NewStream("t", classes=CLASSES, limit=10_000_000)))  # it needs no copies


def test_a_verdict_is_computed_once_for_what_was_learned(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    real = _reading._verdict

    def counted(picture: Picture, role: str) -> Any:
        computed.append(picture.kept.name)
        return real(picture, role)

    monkeypatch.setattr(_reading, "_verdict", counted)
    verdicts = _reading.Verdicts(most=1)
    done(books, lambda: books.create(wire.NewStream("s", classes=CLASSES)))
    done(books, lambda: books.create(wire.NewStream("t", classes=CLASSES)))

    def shown(name: str) -> wire.Stream:
        return _reading.stream(books.picture(name), books.store, 0.0, verdicts)

    forecast(books, wire.NewForecast("a", P), wire.NewForecast("b", P))
    settle(books, "a")
    assert shown("s").verdict == shown("s").verdict
    assert len(computed) == 2  # of the model and of what was announced
    settle(books, "b")
    shown("s")
    shown("t")
    shown("s")
    assert computed == ["s", "s", "s", "s", "t", "t", "s", "s"]


def test_every_column_of_an_export_has_its_own_name(books: Books, tmp_path: Path) -> None:
    done(books, lambda: books.create(wire.NewStream("s", classes=["a", "b"], tags=["id", "tag_id", "p_a", "x"])))
    forecast(books, wire.NewForecast("i", [0.2, 0.8], {"id": "1", "tag_id": "2", "p_a": "3"}))
    settle(books, "i")
    _reading.export(books.kept("s"), books.store, tmp_path / "s.parquet")
    table = pq.read_table(tmp_path / "s.parquet").to_pylist()[0]
    assert [table[name] for name in ("id", "p_a", "tag_id", "tag_tag_id", "tag_p_a", "x")] == [
        "i",
        0.2,
        "1",
        "2",
        "3",
        None,
    ]


@pytest.mark.heavy
def test_a_database_that_cannot_be_read_or_written_says_why(postgres: Cluster) -> None:
    empty = postgres.database()
    with pytest.raises(FileError, match="no books"), closing(open_reader(empty)) as reader:
        check_books(reader)
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    with pytest.raises(FileError, match="LATIN1, expected UTF8"), open_store(postgres.url("latin")):
        pass
    with open_store(empty) as store, psycopg.connect(empty, autocommit=True) as connection:
        with open_store(empty, beside=True):
            pass
        connection.execute("DROP TABLE tokens; UPDATE books SET version = 1")
        with pytest.raises(FileError, match="older format"), open_store(empty, beside=True):
            pass
        assert store.query("streams") == []


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_many_outcomes_are_learned_in_parts(seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand of a costly corrector held up all other streams for ten seconds; others now come in between."""
    parts = list[int]()
    settle = Books.settle

    def counted(books: Books, new: Any) -> Any:
        parts.append(len(new))
        return settle(books, new)

    monkeypatch.setattr(_operations, "PART", seconds)
    monkeypatch.setattr(Books, "settle", counted)
    with served(tmp_path) as house:
        came = []
        for name in ("apart", "whole"):
            new = {"name": name, "classes": CLASSES, "corrector": {"name": "vector"}}
            assert house.ask("POST", "/v1/streams", new).status == 201
            rows = [{"id": f"r{i}", "p": P} for i in range(130)]
            assert house.ask("POST", f"/v1/streams/{name}/forecasts/batch", {"forecasts": rows}).status == 200
            came.append([{"stream": name, "id": f"r{i}", "outcome": i % 3} for i in range(130)])
        parts.clear()
        flawed = [*came[0], {"stream": "apart", "id": "r1", "outcome": 7}]
        house.ask("POST", "/v1/outcomes", {"outcomes": flawed}).refused(422, "invalid")
        assert not parts  # before anything is learned
        assert house.ask("POST", "/v1/outcomes", {"outcomes": came[0]}).json["counts"] == {"learned": 130}
        assert parts == ([100, *[1] * 30] if not seconds else [100, 30])
        assert house.ask("POST", "/v1/outcomes", {"outcomes": came[0]}).json["counts"] == {"replayed": 130}
        for some in (came[1][:65], came[1][65:]):
            assert house.ask("POST", "/v1/outcomes", {"outcomes": some}).json["counts"] == {"learned": 65}
        fronts = [house.writer.read(lambda books, n=n: books.player(n).front).result() for n in ("apart", "whole")]  # type: ignore[misc]
        assert packed(fronts[0].get_state()) == packed(fronts[1].get_state())
