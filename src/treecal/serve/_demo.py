"""`treecal serve --demo`: departures from New York are forecast, and their outcomes come, while one watches.

Three airports have a model each, and one model gets worse along the way, so that an alarm is raised within half a
minute. A gate lets correctors act once there is evidence that they help: soon after the alarm for this one, and not for
the others, which are good. A fourth stream has no model: it forecasts Seattle's weather by itself, and two years of it
are played at once. What happens follows from the number of ticks alone: the story is the same every time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from operator import methodcaller
from threading import Event, Thread
from typing import Self

import numpy as np

from treecal._typing import Array
from treecal.correctors import VectorScaling
from treecal.exceptions import UnsupportedError
from treecal.geometry import Simplex
from treecal.serve._books import Books
from treecal.serve._refusals import Refusal
from treecal.serve._wire import NewForecast, NewOutcome, NewStream, Part
from treecal.serve._writer import Writer
from treecal.streams import new_york_flights_model, seattle_weather

WORSE_AFTER = 300
"""Rounds until models have a second version, one of them a worse one: a quarter of a minute. Alarms count outcomes in
the order in which they come, which is nearly the same: a few never do."""
_TICK = 0.25  # seconds; as often the page is sent the state of a stream
_PACE = 5  # forecasts of a stream in each
_DELAY = 2.0  # seconds until an outcome comes, on average
_DUE = 20.0  # and until it should have
_LOST = 0.005  # share of the outcomes that never come
_SHARPER = 1.6  # what the logits of the worse model are multiplied by
_OVER = 0.55  # of the year when the replay begins: the model has learned from it
_PAST = 730  # days of weather
_WARM = 5_000  # departures before that, by which the model is calibrated
log = logging.getLogger("treecal.serve")


@dataclass(frozen=True)
class Flow:
    """A stream to create, and its rounds without an end: the model's forecast, tags and the outcome."""

    new: NewStream
    rounds: Iterator[tuple[list[float] | None, dict[str, str], str]]
    pace: int = _PACE
    past: int = 0
    """Rounds that are played at once when the demo begins, each with its outcome before the next."""


def flights(say: Callable[[str], None]) -> list[Flow]:
    """Return the streams of the demo, or made-up ones if the data are not installed."""
    say("the demo trains its models, which takes some seconds.")
    try:
        return [*_airports(), _weather()]
    except UnsupportedError as error:
        say(f"the demo plays made-up models: {error}")
        return made_up()


def _airports() -> Iterator[Flow]:
    stream = new_york_flights_model()
    airports = np.array([groups[0] for groups in stream.groups])
    forecasts = stream.forecasts / stream.forecasts.sum(axis=1, keepdims=True)
    labels = stream.outcomes.argmax(axis=1)
    for airport in ("EWR", "JFK", "LGA"):
        rows = np.flatnonzero(airports == airport)
        rows = rows[int(_OVER * len(rows)) - _WARM :]
        tags = [dict(zip(("carrier", "hours"), stream.groups[row][1:], strict=True)) for row in rows.tolist()]
        worse = airport == "EWR"
        new = NewStream(
            f"flights-{airport}",
            classes=list(stream.classes),
            corrector=Part("temperature"),
            gate=True,  # no harm is done to the good ones
            tags=["carrier", "hours", "model"],
        )
        yield Flow(new, _model(stream.space, forecasts[rows], labels[rows], tags, _SHARPER if worse else 1.0))


def _model(
    space: Simplex, forecasts: Array, labels: Array, tags: list[dict[str, str]], sharper: float
) -> Iterator[tuple[list[float], dict[str, str], str]]:
    """Yield a model's rounds, calibrated by what it has seen; its second version is too sure of itself, or is not."""
    calibrated, classes, played = VectorScaling(space, scores=None), space.classes, count()
    assert classes is not None
    while True:
        for row, (p, label) in enumerate(zip(forecasts, labels.tolist(), strict=True)):
            own = calibrated.predict(p).mean
            calibrated.update(label)
            if row < _WARM:
                continue
            later = next(played) >= WORSE_AFTER
            if later and sharper != 1:
                own = own**sharper / np.sum(own**sharper)
            yield own.tolist(), tags[row] | {"model": "v2" if later else "v1"}, classes[label]


def _weather() -> Flow:
    stream = seattle_weather()
    days = [stream.classes[k] for k in stream.outcomes.argmax(axis=1)]

    def rounds() -> Iterator[tuple[None, dict[str, str], str]]:
        while True:
            for day in days:
                yield None, {}, day

    new = NewStream("weather-Seattle", classes=list(stream.classes), forecaster=Part("tracker"))
    return Flow(new, rounds(), pace=1, past=_PAST)


def made_up() -> list[Flow]:
    """Return three models that are right, the first of them until it is not."""
    classes, found = ["no", "perhaps", "yes"], []
    for seed, name in enumerate(("model-A", "model-B", "model-C")):
        rng = np.random.default_rng(seed)
        p = rng.dirichlet([4, 3, 2], 10_000 + _WARM)
        labels = (rng.random(len(p))[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 2)
        new = NewStream(name, classes=classes, corrector=Part("temperature"), gate=True, tags=["model"])
        sharper = 1.0 if seed else _SHARPER
        found.append(Flow(new, _model(Simplex(classes=classes), p, labels, [{}] * len(p), sharper)))
    return found


class Demo:
    """Plays streams into the books, on a thread of its own, until the block ends.

    Parameters
    ----------
    writer
        The writer of the books.
    say
        Tells the person who watches what is going on.
    flows
        Returns what to play; by default departures, models of them, and the weather.
    tick
        Seconds between two rounds of requests.

    Examples
    --------
    >>> import tempfile
    >>> from treecal.serve._connections import open_store
    >>> with tempfile.TemporaryDirectory() as folder, Writer(open_store(f"{folder}/books.sqlite")) as writer:
    ...     with Demo(writer, flows=made_up, tick=0.0) as demo:
    ...         demo.wait(ticks=2)
    ...     writer.read(lambda books: books.names()).result()
    ['model-A', 'model-B', 'model-C']
    """

    def __init__(
        self,
        writer: Writer,
        *,
        say: Callable[[str], None] = lambda text: None,
        flows: Callable[[], list[Flow]] | None = None,
        tick: float = _TICK,
    ) -> None:
        self._writer = writer
        self._say = say
        self._make = flows or partial(flights, say)
        self._flows: list[Flow] = []
        self._tick = tick
        self._stop = Event()
        self._thread = Thread(target=self._run, name="treecal-demo", daemon=True)
        self._rng = np.random.default_rng(0)  # the story is always the same
        self._run_id = f"{time.time_ns():x}"
        self._owed: list[tuple[float, int, NewOutcome]] = []  # the tick in which it comes, a number, the outcome
        self._moved = Event()
        self.ticks = 0
        self.rounds = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait(self, *, ticks: int) -> None:
        """Wait until so many rounds of requests are over, or the demo has ended."""
        while self.ticks < ticks and self._thread.is_alive():
            self._moved.wait(0.1)
            self._moved.clear()

    def _run(self) -> None:
        try:
            self.begin()
            due = time.monotonic()
            while not self._stop.wait(max(due - time.monotonic(), 0.0)):
                due = max(due + self._tick, time.monotonic())  # after a pause it does not catch up
                self.step()
                self._moved.set()
        except Refusal as refusal:
            if not (self._stop.is_set() or refusal.code == "unavailable"):
                log.error("the demo has ended: %s", refusal)
        except Exception:
            log.exception("the demo has ended")
        finally:
            self._moved.set()

    def begin(self) -> None:
        """Create the streams, say what will happen, and play what is past."""
        self._flows = self._make()
        for flow in self._flows:
            self._writer.submit(methodcaller("create", flow.new)).result()
        names = ", ".join(flow.new.name for flow in self._flows)
        worse = f"from about outcome {WORSE_AFTER} on, the model of {self._flows[0].new.name} is too sure of itself"
        self._say(f"the demo plays {names}; {worse}.")
        for flow in self._flows:
            self._recall(flow)

    def step(self) -> None:
        """Play a tick: announce forecasts of each stream, and settle what has come."""
        for flow in self._flows:
            self._announce(flow)
        self._settle()
        self.ticks += 1

    def _next(self, flow: Flow, due: float | None = None) -> tuple[NewForecast, NewOutcome]:
        p, tags, outcome = next(flow.rounds)
        self.rounds += 1
        new = NewForecast(f"{self._run_id}-{self.rounds}", p=p, tags=tags, due=due)
        return new, NewOutcome(flow.new.name, new.id, outcome)

    def _recall(self, flow: Flow) -> None:
        """Play the past, some rounds at a time: others use the books as well."""
        for start in range(0, flow.past, _PACE):
            rounds = [self._next(flow) for _ in range(min(_PACE, flow.past - start))]

            def play(books: Books, rounds: list[tuple[NewForecast, NewOutcome]] = rounds) -> None:
                for forecast, outcome in rounds:
                    books.forecast(flow.new.name, [forecast])
                    books.settle([outcome])

            if not self._stop.is_set():
                self._writer.submit(play).result()

    def _announce(self, flow: Flow) -> None:
        name = flow.new.name
        due = time.time() + _DUE
        batch = []
        for _ in range(flow.pace):
            new, outcome = self._next(flow, due)
            batch.append(new)
            if self._rng.random() >= _LOST:
                moment = self.ticks + self._rng.exponential(_DELAY / _TICK)
                heappush(self._owed, (moment, self.rounds, outcome))
        self._writer.submit(lambda books: books.forecast(name, batch)).result()

    def _settle(self) -> None:
        due = []
        while self._owed and self._owed[0][0] <= self.ticks:
            due.append(heappop(self._owed)[2])
        if due:
            self._writer.submit(lambda books: books.settle(due)).result()
