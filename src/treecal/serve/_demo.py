"""`treecal serve --demo`: departures from New York are forecast, and their outcomes come, while one watches.

Three airports have a model each, and one model gets worse along the way, so that an alarm is raised within the first
minute. A gate lets correctors act once there is evidence that they help: soon after the alarm for this one, and not for
the others, which are good. A fourth stream has no model: it forecasts Seattle's weather by itself.
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
from treecal.serve._refusals import Refusal
from treecal.serve._wire import NewForecast, NewOutcome, NewStream, Part
from treecal.serve._writer import Writer
from treecal.streams import new_york_flights_model, seattle_weather

WORSE_AFTER = 300
"""Rounds until models have a second version, one of them a worse one: a quarter of a minute. Alarms count outcomes, of
which a few never come."""
_TICK = 0.25  # seconds; as often the page is sent the state of a stream
_PACE = 5  # forecasts of a stream in each
_DELAY = 2.0  # seconds until an outcome comes, on average
_DUE = 20.0  # and until it should have
_LOST = 0.005  # share of the outcomes that never come
_SHARPER = 1.3  # what the logits of the worse model of flights are multiplied by
_MADE_UP_SHARPER = 1.6
_SUMMER = 0.6  # of the year is over when the replay begins: the model has learned from it
_WARM = 5_000  # departures before that, by which the model is calibrated
log = logging.getLogger("treecal.serve")


@dataclass(frozen=True)
class Flow:
    """A stream to create, and its rounds without an end: the model's forecast, tags and the outcome."""

    new: NewStream
    rounds: Iterator[tuple[list[float] | None, dict[str, str], str]]
    pace: int = _PACE


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
        rows = rows[int(_SUMMER * len(rows)) - _WARM :]
        tags = [dict(zip(("carrier", "hours"), stream.groups[row][1:], strict=True)) for row in rows.tolist()]
        sharper = _SHARPER if airport == "EWR" else 1.0
        new = NewStream(
            f"flights-{airport}",
            classes=list(stream.classes),
            corrector=Part("vector"),
            gate=True,  # no harm is done to the good ones
            tags=["carrier", "hours", "model"],
        )
        yield Flow(new, _model(stream.space, forecasts[rows], labels[rows], tags, sharper))


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

    new = NewStream("weather-Seattle", classes=list(stream.classes), forecaster=Part("guarded"))
    return Flow(new, rounds(), pace=1)


def made_up() -> list[Flow]:
    """Return three models that are right, the first of them until it is not."""
    classes, found = ["no", "perhaps", "yes"], []
    for seed, name in enumerate(("model-A", "model-B", "model-C")):
        rng = np.random.default_rng(seed)
        p = rng.dirichlet([4, 3, 2], 10_000 + _WARM)
        labels = (rng.random(len(p))[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 2)
        new = NewStream(name, classes=classes, corrector=Part("vector"), gate=True, tags=["model"])
        sharper = 1.0 if seed else _MADE_UP_SHARPER
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
    ...         demo.wait(rounds=10)
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
        self._writer, self._say, self._flows, self._tick = writer, say, flows or partial(flights, say), tick
        self._stop, self._thread = Event(), Thread(target=self._run, name="treecal-demo", daemon=True)
        self._rng, self._run_id = np.random.default_rng(), f"{time.time_ns():x}"
        self._owed: list[tuple[float, int, NewOutcome]] = []
        self._moved, self.rounds = Event(), 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait(self, *, rounds: int) -> None:
        """Wait until so many forecasts were announced, or the demo has ended."""
        while self.rounds < rounds and self._thread.is_alive():
            self._moved.wait(0.1)
            self._moved.clear()

    def _run(self) -> None:
        try:
            flows = self._flows()
            for flow in flows:
                self._writer.submit(methodcaller("create", flow.new)).result()
            names = ", ".join(flow.new.name for flow in flows)
            worse = f"from about the {WORSE_AFTER}th outcome on the model of {flows[0].new.name} is too sure of itself"
            self._say(f"the demo plays {names}; {worse}.")
            due = time.monotonic()
            while not self._stop.wait(max(due - time.monotonic(), 0.0)):
                due = max(due + self._tick, time.monotonic())  # after a pause it does not catch up
                for flow in flows:
                    self._announce(flow)
                self._settle()
                self._moved.set()
        except Refusal as refusal:
            if not (self._stop.is_set() or refusal.code == "unavailable"):
                log.error("the demo has ended: %s", refusal)
        except Exception:
            log.exception("the demo has ended")
        finally:
            self._moved.set()

    def _announce(self, flow: Flow) -> None:
        name, now = flow.new.name, time.time()
        batch = []
        for _ in range(flow.pace):
            p, tags, outcome = next(flow.rounds)
            self.rounds += 1
            new = NewForecast(f"{self._run_id}-{self.rounds}", p=p, tags=tags, due=now + _DUE)
            batch.append(new)
            if self._rng.random() >= _LOST:
                moment = time.monotonic() + self._rng.exponential(_DELAY)
                heappush(self._owed, (moment, self.rounds, NewOutcome(name, new.id, outcome)))
        self._writer.submit(lambda books: books.forecast(name, batch)).result()

    def _settle(self) -> None:
        due, now = [], time.monotonic()
        while self._owed and self._owed[0][0] <= now:
            due.append(heappop(self._owed)[2])
        if due:
            self._writer.submit(lambda books: books.settle(due)).result()
