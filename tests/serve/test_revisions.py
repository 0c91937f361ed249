"""Forecasts that are revised: kept in the log, watched at once, scored by lead time; as by `tc.Late`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from treecal.monitor import Watched
from treecal.serve import _reading, _wire as wire
from treecal.serve._books import Books
from treecal.serve._doctor import check_books
from treecal.serve._refusals import Refusal
from treecal.serve._sqlite import Sqlite

CLASSES = ["no", "yes"]


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Sqlite]:
    with Sqlite(tmp_path / "books.sqlite") as store:
        yield store


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


def forecast(books: Books, stream: str, named: str, p: list[float], **more: Any) -> wire.Announced:
    (answer,) = done(books, lambda: books.forecast(stream, [wire.NewForecast(named, p, **more)]))
    found: wire.Announced = answer
    return found


def test_each_revision_is_watched_and_the_last_one_is_scored(store: Sqlite) -> None:
    clock = Clock()
    books = Books(store, clock=clock)
    done(books, lambda: books.create(wire.NewStream("q", classes=["no", "yes"], revises=True)))
    late = tc.Late(Watched(tc.Monitor(tc.Simplex(classes=["no", "yes"]))))
    rng = np.random.default_rng(0)
    said: dict[str, list[float]] = {}
    for step in range(200):
        clock.now = float(step)
        name = f"q{step // 20 * 2 + step % 2}"
        p = rng.dirichlet([1, 1]).tolist()
        answer = forecast(books, "q", name, p)
        assert answer.forecast == pytest.approx(p)
        assert forecast(books, "q", name, p) == answer
        if name in said:
            late.revise(name, p, now=clock.now)
        else:
            late.predict(p, id=name, now=clock.now)
        said[name] = p
        if step % 20 >= 18:
            (settled,) = done(books, partial(books.settle, [wire.NewOutcome("q", name, "yes")]))
            assert settled.status == "learned"
            late.update(name, "yes", now=clock.now)
            assert forecast(books, "q", name, p) == answer
        if step == 77:  # from the log alone, and from a snapshot
            books.forget()
        if step == 111:
            done(books, lambda: books.save("q"))
            books.forget()
    player = books.player("q")
    watched = late.thing
    assert isinstance(watched, Watched)
    assert player.monitors["model"].get_state()["alarm"] == watched.monitor.get_state()["alarm"] != {}
    assert player.monitors["model"].e_value == watched.monitor.e_value
    assert player.revisions.leads() == late.leads()
    record = _reading.record(books.kept("q"), store, "q0")
    assert record.status == "learned"
    assert record.model == pytest.approx(said["q0"])
    assert [each.problems for each in check_books(store)] == [[]]


def test_what_cannot_be_revised_is_refused(store: Sqlite) -> None:
    books = Books(store, clock=Clock())
    revised = wire.NewStream("q", classes=CLASSES, revises=True, tags=["city"])
    for new in (revised, wire.NewStream("plain", classes=CLASSES)):
        done(books, partial(books.create, new))
        forecast(books, new.name, "a", [0.5, 0.5])
    state = books.player("q").state
    with pytest.raises(Refusal, match="another forecast"):
        forecast(books, "plain", "a", [0.4, 0.6])
    with pytest.raises(Refusal, match="other tags"):
        forecast(books, "q", "a", [0.4, 0.6], tags={"city": "Oslo"})
    assert books.player("q").state == state
    done(books, partial(books.settle, [wire.NewOutcome("q", "a", "no")]))
    with pytest.raises(Refusal, match="has its outcome"):
        forecast(books, "q", "a", [0.4, 0.6])
    with pytest.raises(Refusal, match="not revised"):
        books.create(wire.NewStream("r", classes=["no", "yes"], revises=True, corrector=wire.Part("vector")))
