"""A scripted run of the books: every kind of request, in an order and at times that are always the same.

Each request sees the clock at its own number. So books to which all requests were sent, however often and with whatever
crashes between, have the same log as books to which nothing happened, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from treecal.serve._books import Books
from treecal.serve._connections import Reader
from treecal.serve._refusals import Refusal
from treecal.serve._wire import NewForecast, NewOutcome, NewStream, Part, Watch
from treecal.serve._writer import Writer


class Step(NamedTuple):
    """A request, and whether sending it again changes nothing."""

    what: str
    act: Callable[[Books], Any]
    repeatable: bool = True


class Log(NamedTuple):
    """What must never change once it is acknowledged: the tables of the log, row by row, and the alarms."""

    streams: list[tuple[Any, ...]]
    rounds: list[tuple[Any, ...]]
    arrivals: list[tuple[Any, ...]]
    alarms: list[tuple[Any, ...]]


class Clock:
    """The number of the request that is being done."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def at(self, number: int, act: Callable[[Books], Any]) -> Callable[[Books], Any]:
        def acting(books: Books) -> Any:
            self.now = float(number)
            return act(books)

        return acting


STREAMS = [
    NewStream("corrected", classes=["no", "yes"], corrector=Part("vector"), tags=["site"], monitor=Watch(alpha=0.5)),
    NewStream("certified", classes=["a", "b", "c"], forecaster=Part("guarded"), limit=6),
    NewStream("watched", classes=["no", "yes"], limit=9),
]


def steps(seed: int = 0, rounds: int = 60) -> list[Step]:
    """The requests, in order."""
    rng = np.random.default_rng(seed)
    found = [_creating(new) for new in STREAMS]
    sent: list[tuple[str, str]] = []
    for k in range(rounds):
        new = STREAMS[int(rng.integers(3))]
        size = 1 if k % 3 else int(rng.integers(2, 6))
        forecasts = [_forecast(new, f"{k}.{i}", k, rng) for i in range(size)]
        sent += [(new.name, each.id) for each in forecasts]
        found.append(_forecasting(new.name, forecasts))
        if k % 2:
            some = rng.choice(len(sent), size=min(len(sent), int(rng.integers(1, 7))), replace=False)
            found.append(_settling([_outcome(sent[i], rng) for i in some]))
        if k % 4 == 2 and new.forecaster is None:  # whoever asked did not wait for the answer
            found.append(_forecasting(new.name, [structs.replace(forecasts[0], used=True)]))
        if k % 7 == 3:
            found.append(found[int(rng.integers(3, len(found)))])  # a delivery comes twice
    found.insert(len(found) // 2, Step("reset", lambda books: books.reset("corrected"), repeatable=False))
    found.insert(-10, Step("archive", lambda books: books.archive("watched")))
    return found


def _forecast(new: NewStream, id: str, k: int, rng: np.random.Generator) -> NewForecast:  # noqa: A002
    p = None if new.forecaster is not None else [0.75, 0.25]
    tags = {"site": f"s{k % 3}"} if new.tags else {}
    due = float(k + 50) if rng.random() < 0.3 else None
    return NewForecast(id, p=p, tags=tags, due=due, used=p is not None and k % 11 == 5)


def _outcome(of: tuple[str, str], rng: np.random.Generator) -> NewOutcome:
    return NewOutcome(*of, int(rng.random() < 0.9), amend=bool(rng.random() < 0.2))


def _creating(new: NewStream) -> Step:
    return Step(f"create {new.name}", lambda books: books.create(new))


def _forecasting(name: str, forecasts: list[NewForecast]) -> Step:
    return Step(f"{len(forecasts)} forecasts", lambda books: books.forecast(name, forecasts))


def _settling(outcomes: list[NewOutcome]) -> Step:
    return Step(f"{len(outcomes)} outcomes", lambda books: books.settle(outcomes))


def send(writer: Writer, clock: Clock, number: int, step: Step) -> Future[Any]:
    """Send a request."""
    return writer.submit(clock.at(number, step.act))


def answer(future: Future[Any]) -> Any:
    """The answer, or the code of the refusal where it is one that is deserved: archived streams take no forecasts."""
    error = future.exception()
    if isinstance(error, Refusal) and error.code in ("archived", "conflict"):
        return error.code
    return future.result()


def send_all(
    writer: Writer, clock: Clock, script: Sequence[Step], *, together: int, told: Callable[[int], None]
) -> list[Any]:
    """Send the requests, some at a time; `told` hears of each when it is answered. Return the answers."""
    answers: list[Any] = []
    for start in range(0, len(script), together):
        futures = []
        for number in range(start, min(start + together, len(script))):
            future = send(writer, clock, number, script[number])
            future.add_done_callback(partial(_tell, told, number))
            futures.append(future)
        answers += map(answer, futures)
    return answers


def _tell(told: Callable[[int], None], number: int, future: Future[Any]) -> None:
    if future.exception() is None or answer(future) in ("archived", "conflict"):
        told(number)


def log_of(reader: Reader) -> Log:
    """The log, by the queries of the books."""
    streams = reader.query("streams")
    rounds, arrivals, alarms = [], [], []
    for stream, *_ in streams:
        rounds += [(stream, *row) for row in reader.query("rounds_after", stream, 0, 10**9)]
        arrivals += [(stream, *row[:6]) for row in reader.query("arrivals_after", stream, 0, 10**9)]
        alarms += reader.query("alarms_of", stream, 10**9)
    return Log(streams, rounds, arrivals, alarms)


def sizes(log: Log) -> tuple[Any, ...]:
    """How far a log has come: what a request adds to, told apart by stream."""

    def by_stream(rows: Sequence[tuple[Any, ...]]) -> tuple[int, ...]:
        return tuple(sum(row[0] == stream for row in rows) for stream in range(1, len(STREAMS) + 1))

    archived = sum(row[4] is not None for row in log.streams)
    return len(log.streams), archived, by_stream(log.rounds), by_stream(log.arrivals), by_stream(log.alarms)
