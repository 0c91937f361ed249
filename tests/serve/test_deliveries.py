"""Deliveries come twice, late, early, and in any order; and a million rounds wait."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.serve.faults import in_place
from treecal.serve._books import Books
from treecal.serve._doctor import check_books
from treecal.serve._refusals import Refusal
from treecal.serve._sqlite import Sqlite
from treecal.serve._wire import Announced, NewForecast, NewOutcome, NewStream, Part
from treecal.serve._writer import Writer

STREAMS = [
    NewStream("corrected", classes=["no", "yes"], corrector=Part("vector")),
    NewStream("certified", classes=["no", "yes"], forecaster=Part("guarded")),
]
Key = tuple[str, str]
"""A stream and an id."""
IDS: list[Key] = [(new.name, str(k)) for new in STREAMS for k in range(3)]


@contextmanager
def books() -> Iterator[Books]:
    """Empty books in a file that goes away."""
    folder = Path(tempfile.mkdtemp())
    try:
        with Sqlite(folder / "books") as store:
            found = Books(store)
            with transaction(found):
                for new in STREAMS:
                    found.create(new)
            yield found
            assert [each for each in check_books(store) if each.problems] == []
    finally:
        shutil.rmtree(folder)


@contextmanager
def transaction(books: Books) -> Iterator[None]:
    books.store.begin()
    try:
        yield
    finally:
        books.store.commit()  # a refused request has changed nothing, and those before it stay


def forecast(stream: str, name: str, p: float = 0.25) -> NewForecast:
    return NewForecast(name, p=[p, 1 - p] if stream == "corrected" else None)


def outcome(stream: str, name: str, wrong: bool = False) -> NewOutcome:
    return NewOutcome(stream, name, (int(name) + wrong) % 2)


class Senders:
    """Those who deliver, and what they know of each round."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.announced: dict[Key, Announced] = {}
        self.settled: dict[Key, bool] = {}

    def forecast(self, keys: list[Key]) -> None:
        """Deliver forecasts: what is announced is the same each time."""
        for stream in {stream for stream, _ in keys}:
            names = [name for each, name in keys if each == stream]
            with transaction(self.books):
                answers = self.books.forecast(stream, [forecast(stream, name) for name in names])
            for name, told in zip(names, answers, strict=True):
                assert self.announced.setdefault((stream, name), told) == told

    def forecast_otherwise(self, key: Key) -> None:
        """Deliver another forecast by the id of one that was announced: all of the request is refused."""
        stream, name = key
        if stream == "corrected" and key in self.announced:
            new = [forecast(stream, "fresh"), forecast(stream, name, p=0.5)]
            with pytest.raises(Refusal, match=r"has another forecast"), transaction(self.books):
                self.books.forecast(stream, new)

    def settle(self, came: list[tuple[Key, bool]]) -> None:
        """Deliver outcomes: the first one counts."""
        with transaction(self.books):
            answers = self.books.settle([outcome(*key, wrong) for key, wrong in came])
        for (key, wrong), told in zip(came, answers, strict=True):
            if key not in self.announced:
                assert told.status == "unknown"
            elif key not in self.settled:
                assert told.status == "learned"
                self.settled[key] = wrong
            else:
                assert told.status == ("replayed" if self.settled[key] == wrong else "conflict")

    def check(self) -> None:
        """Every round is there once, with the outcome that came first."""
        for stream, new in enumerate(STREAMS, 1):
            rounds = self.books.store.query("rounds_after", stream, 0, 1000)
            arrivals = self.books.store.query("arrivals_after", stream, 0, 1000)
            assert sorted(row[1] for row in rounds) == ["0", "1", "2"]
            assert sorted(row[6] for row in arrivals) == ["0", "1", "2"]
            assert all(row[3] == (int(row[6]) + self.settled[new.name, row[6]]) % 2 for row in arrivals)
            assert self.books.picture(new.name).counts.pending == 0


deliveries = st.tuples(
    st.sampled_from(["forecast", "outcome", "wrong outcome", "wrong forecast"]), st.sampled_from(IDS)
)


@settings(max_examples=20, deadline=None)
@given(
    requests=st.lists(st.lists(deliveries, min_size=1, max_size=4), max_size=12), restarts=st.sets(st.integers(0, 13))
)
def test_any_order_with_repetitions_gives_each_round_once(
    requests: list[list[tuple[str, Key]]], restarts: set[int]
) -> None:
    everything = [[("forecast", key) for key in IDS], [("outcome", key) for key in IDS]]
    with in_place("deliveries"), books() as found:  # nothing is synced: that is another test
        senders = Senders(found)
        for number, request in enumerate([*requests, *everything]):
            if number in restarts:
                found.forget()
            senders.forecast([key for what, key in request if what == "forecast"])
            for what, key in request:
                if what == "wrong forecast":
                    senders.forecast_otherwise(key)
            senders.settle([(key, what == "wrong outcome") for what, key in request if "outcome" in what])
        senders.check()


@pytest.mark.heavy
def test_a_million_rounds_wait(tmp_path: Path) -> None:
    """They are in the file, not in memory; and what is done to one of them takes no longer than among few."""
    rounds, at_once = 10**6, 10_000
    with Writer(Sqlite(tmp_path / "books")) as writer:
        writer.submit(
            lambda books: books.create(NewStream("a", classes=["no", "yes"], corrector=Part("vector")))
        ).result()
        at_first, at_a_third = memory(), 0
        start = time.perf_counter()
        for begin in range(0, rounds, at_once):
            new = [NewForecast(f"id{k}", p=[0.5, 0.5]) for k in range(begin, begin + at_once)]
            writer.submit(lambda books, new=new: books.forecast("a", new)).result()  # type: ignore[misc]
            if begin <= rounds // 3:  # by then the cache of SQLite is full
                at_a_third = memory()
        took = time.perf_counter() - start
        grown, since = memory() - at_first, memory() - at_a_third
        assert writer.read(lambda books: books.picture("a").counts.pending).result() == rounds
        print(
            f"{rounds:,} rounds in {took:.0f} s; memory grew by {grown / 2**20:.0f} MiB, "
            f"and by {since / 2**20:.0f} MiB in the last two thirds of them"
        )
        assert since < 32 * 2**20
        some = np.random.default_rng(0).permutation(rounds)
        start = time.perf_counter()
        for begin in range(0, 10 * at_once, at_once):
            came = [NewOutcome("a", f"id{k}", int(k) % 2) for k in some[begin : begin + at_once]]
            found = writer.submit(lambda books, came=came: books.settle(came)).result()  # type: ignore[misc]
            assert {each.status for each in found} == {"learned"}
        print(f"{10 * at_once:,} outcomes among them in {time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    with Writer(Sqlite(tmp_path / "books")) as writer:
        left = writer.read(lambda books: books.picture("a").counts.pending).result()
    assert left == rounds - 10 * at_once
    print(f"opened again in {time.perf_counter() - start:.2f} s")


def memory() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * 4096
