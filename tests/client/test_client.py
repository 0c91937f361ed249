"""Both clients against a stand-in for the server: answers, refusals, retries, and the model's own forecast."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.world import Server
from treecal.client import AsyncClient, Client, SpoolCounts, _line as line
from treecal.client._session import Session
from treecal.client._spool import Spool
from treecal.exceptions import FileError, ForecastError, OutcomeError, ParameterError, ServerError
from treecal.serve._wire import Part

CLASSES = ["no", "yes"]
LONG = 20.0  # where an answer is expected, however busy the machine is


class Awaited:
    """An `AsyncClient` whose methods are run to their end, in a loop of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.client = AsyncClient(*args, **kwargs)
        self.loop = asyncio.new_event_loop()

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.client, name) if hasattr(self.client, name) else getattr(self.client._client, name)
        if not inspect.iscoroutinefunction(member):
            return member
        return lambda *args, **kwargs: self.loop.run_until_complete(member(*args, **kwargs))

    def __enter__(self) -> Awaited:
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.run_until_complete(self.client.close())
        self.loop.close()


Make = type[Client] | type[Awaited]


@pytest.fixture(params=[Client, Awaited])
def make(request: pytest.FixtureRequest) -> Make:
    kind: Make = request.param
    return kind


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short delays between attempts."""
    monkeypatch.setattr("treecal.client._line.FIRST", 0.01)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        found.books.streams["rain"] = {"name": "rain", "classes": CLASSES}
        yield found


def test_both_have_the_same_methods() -> None:
    def surface(kind: type) -> dict[str, Any]:
        members = {n: m for n, m in vars(kind).items() if not n.startswith("_") or n == "__init__"}
        return {n: m if isinstance(m, property) else inspect.signature(m) for n, m in members.items()}

    plain, awaited = surface(Client), surface(AsyncClient)
    assert plain.keys() == awaited.keys()
    assert {n: s for n, s in plain.items() if n != "spooled"} == {n: s for n, s in awaited.items() if n != "spooled"}


# Answers


def test_a_round(make: Make, server: Server) -> None:
    with make(server.url) as client:
        made = client.create("fog", classes=np.array([0, 1]), corrector="VectorScaling", tags=["city"])
        assert made.config.classes == ["0", "1"]
        assert made.config.corrector == Part("VectorScaling")
        answer = client.forecast("fog", np.array([0.25, 0.75], np.float32), tags={"city": "Oslo"}, due=7, timeout=LONG)
        assert (answer.forecast, answer.corrected, answer.kept, answer.why) == ([0.75, 0.25], True, True, None)
        assert client.outcome("fog", answer.id, np.int64(1)).status == "learned"
        assert client.outcome("fog", answer.id, 1).status == "replayed"
        assert client.outcome("fog", "another", 1).status == "unknown"
    body = server.books.forecasts["fog", answer.id]["body"]
    assert body == {"id": answer.id, "p": [0.25, 0.75], "tags": {"city": "Oslo"}, "due": 7, "used": False}
    assert server.books.outcomes == {("fog", answer.id): 1}


def test_one_connection_serves_all_calls(make: Make, server: Server) -> None:
    with make(server.url) as client:
        for _ in range(5):
            client.forecast("rain", [0.25, 0.75], timeout=LONG)
        client.streams()
    assert len({port for *_, port in server.seen}) == 1


def test_forecasts_by_name_are_answered_by_name(make: Make, server: Server) -> None:
    with make(server.url) as client:
        for _ in range(2):
            answer = client.forecast("rain", {"yes": 0.75, "no": 0.25}, timeout=LONG)
            assert answer.forecast == {"no": 0.75, "yes": 0.25}
        assert client.forecast_many("rain", [{"yes": 0.75, "no": 0.25}], timeout=LONG)[0].forecast == {
            "no": 0.75,
            "yes": 0.25,
        }
        assert {method for method, *_ in server.seen} == {"POST"}  # what a token for forecasts may do


def test_many(make: Make, server: Server) -> None:
    P = np.tile([0.25, 0.75], (10_001, 1))
    with make(server.url) as client:
        answers = client.forecast_many("rain", P, timeout=LONG)
        assert all(a.corrected and a.forecast == [0.75, 0.25] for a in answers)
        receipts = client.outcomes([("rain", a.id, k % 2) for k, a in enumerate(answers)])
        assert {r.status for r in receipts} == {"learned"}
        named = client.forecast_many("rain", P[:2], ids=["a", "b"], tags=[{"k": "1"}, {"k": "2"}], due=5.0)
        assert [a.id for a in named] == ["a", "b"]
        assert client.forecast_many("rain", []) == client.outcomes([]) == []
    paths = [path for _, path, _ in server.seen]
    assert paths == ["/v1/streams/rain/forecasts/batch"] * 2 + ["/v1/outcomes"] * 2 + paths[:1]
    assert [server.books.forecasts["rain", name]["body"]["tags"] for name in "ab"] == [{"k": "1"}, {"k": "2"}]


def test_names_are_quoted(make: Make, server: Server) -> None:
    with make(f"{server.url}/") as client, pytest.raises(ServerError, match="nothing at /v1/streams/a%2F%3Fb%C3%A9"):
        client.stream("a/?bé")


def test_a_token_is_sent_and_never_shown(make: Make, server: Server) -> None:
    server.token = "tcal_secret"
    with make(server.url, token="tcal_secret") as client:
        assert client.forecast("rain", [0.25, 0.75], timeout=LONG).corrected
    with make(server.url, token="tcal_wrong") as client:
        answer = client.forecast("rain", [0.25, 0.75], timeout=LONG)  # a model answers, whoever revoked its token
        (other,) = client.forecast_many("rain", [[0.25, 0.75]], timeout=LONG)
        with pytest.raises(ServerError) as caught:
            client.stream("rain")
    assert (answer.forecast, answer.corrected, answer.kept, answer.why) == ([0.25, 0.75], False, False, other.why)
    assert (caught.value.code, caught.value.status) == ("unauthorized", 401)
    assert "tcal_" not in f"{caught.value} {answer.why}"
    with pytest.raises(ParameterError, match="token is not") as refused:
        make(server.url, token="tcal_\n")
    assert "tcal_" not in str(refused.value)


# Refusals


def test_what_the_server_refuses_is_raised(make: Make, server: Server) -> None:
    with make(server.url) as client:
        client.create("fog", classes=CLASSES)
        with pytest.raises(ServerError, match="another one\n\nHint: choose") as caught:
            client.create("fog", classes=["a", "b"])
        assert (caught.value.code, caught.value.status, caught.value.hint) == ("conflict", 409, "choose another name.")
        with pytest.raises(ServerError, match="expected 2") as caught:
            client.forecast("rain", [0.2, 0.3, 0.5], timeout=LONG)
        assert (caught.value.code, caught.value.at) == ("invalid", "p")
        client.forecast("rain", [0.25, 0.75], id="a", timeout=LONG)
        with pytest.raises(ServerError, match="in use"):
            client.forecast("rain", [0.75, 0.25], id="a", timeout=LONG)
        with pytest.raises(ServerError, match="hail"):
            client.outcome("rain", "a", "hail")
        with pytest.raises(ServerError) as caught:
            client.forecast("snow", [0.5, 0.5], timeout=LONG)
        assert caught.value.code == "not_found"
    assert len(server.seen) == 7  # nothing is tried twice


INVALID: list[tuple[Any, type[Exception], str]] = [
    (lambda c: c.forecast("rain", [0.5, float("nan")]), ForecastError, "p is .*nan.*, expected finite numbers"),
    (lambda c: c.forecast("rain", np.array([[0.5, 0.5]])), ForecastError, "expected finite"),
    (lambda c: c.forecast("rain", ["0.5", "0.5"]), ForecastError, "expected finite"),
    (lambda c: c.forecast("rain", {"no": float("inf")}), ForecastError, "expected finite"),
    (lambda c: c.forecast("rain", 0.5), ForecastError, "p is 0.5"),
    (lambda c: c.forecast_many("rain", [[0.5, 0.5], [0.5, None]]), ForecastError, r"p\[1\] is"),
    (lambda c: c.forecast_many("rain", [[0.5, 0.5]], ids=["a", "b"]), ParameterError, "ids has 2 entries"),
    (lambda c: c.forecast_many("rain", [[0.5, 0.5]], tags=[]), ParameterError, "tags has 0 entries"),
    (lambda c: c.forecast("", [0.5, 0.5]), ParameterError, "stream is ''"),
    (lambda c: c.forecast("rain", [0.5, 0.5], id=""), ParameterError, "id is ''"),
    (lambda c: c.forecast("rain", [0.5, 0.5], id=7), ParameterError, "id is 7"),
    (lambda c: c.forecast("rain", [0.5, 0.5], id="a\nb"), ParameterError, "in one line"),
    (lambda c: c.forecast("rain", [0.5, 0.5], id="x" * 201), ParameterError, "id is"),
    (lambda c: c.forecast("rain", [0.5, 0.5], due=float("nan")), ParameterError, "due is nan"),
    (lambda c: c.forecast("rain", [0.5, 0.5], due="soon"), ParameterError, "due is 'soon'"),
    (lambda c: c.forecast("rain", [0.5, 0.5], tags={"a": 1}), ParameterError, "tags is"),
    (lambda c: c.forecast("rain", [0.5, 0.5], timeout=0), ParameterError, "timeout is 0"),
    (lambda c: c.outcome("rain", "a", True), OutcomeError, "outcome.* is True"),
    (lambda c: c.outcome("rain", "a", float("inf")), OutcomeError, "outcome.* is inf"),
    (lambda c: c.forecast("rain", {"members": [1.0, float("nan")]}), ForecastError, "expected finite"),
    (lambda c: c.outcome("rain", "a", None), OutcomeError, "outcome.* is None"),
    (lambda c: c.outcome("rain", "a", [0.5, float("nan")]), OutcomeError, "nan"),
    (lambda c: c.outcomes([("rain", "a")]), ParameterError, r"outcomes\[0\] is \('rain', 'a'\)"),
    (lambda c: c.outcomes([("rain", "a", 0), (None, "a", 0)]), ParameterError, r"stream\[1\] is None"),
    (lambda c: c.create("a b", classes=CLASSES), ParameterError, "not a stream"),
    (lambda c: c.create("fog", classes=["one"]), ParameterError, "not a stream"),
    (lambda c: c.create("fog", classes=CLASSES, corrector=3), ParameterError, "corrector is 3"),
    (lambda c: c.create("fog", classes=CLASSES, corrector={"nome": "x"}), ParameterError, "corrector is"),
    (lambda c: c.create("fog", classes=CLASSES, monitor={"alpha": "x"}), ParameterError, "monitor is"),
]


def test_invalid_arguments_are_neither_sent_nor_spooled(make: Make, server: Server, tmp_path: Path) -> None:
    with make(server.url, spool=tmp_path / "spool") as client:
        for act, error, complaint in INVALID:
            with pytest.raises(error, match=complaint):
                act(client)
        assert client.spooled == SpoolCounts()
    assert not server.seen


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "", None, "http://host/?a=1"])
def test_addresses_that_are_none(url: Any, make: Make) -> None:
    with pytest.raises(ParameterError, match="url is"):
        make(url)


# Retries


@pytest.mark.parametrize("fault", ["drop", "deaf", "half", "unavailable", "limited", "internal", "proxy"])
def test_calls_are_tried_again_under_the_same_ids(fault: str, make: Make, server: Server) -> None:
    with make(server.url) as client:
        server.faults = [fault, fault]
        assert client.stream("rain").name == "rain"
        client.forecast("rain", [0.25, 0.75], id="a", timeout=LONG)
        server.faults = [fault, fault]
        (receipt,) = client.outcomes([("rain", "a", 1)])
        assert receipt.status in ("learned", "replayed")
        server.faults = [fault]
        client.create("fog", classes=CLASSES)
        client.create("fog", classes=CLASSES)
    assert server.books.log == [("forecast", "rain", "a"), ("outcome", "rain", "a")]


def test_a_deadline_ends_retries(make: Make, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only pauses move: however long connections are refused, the attempts are these."""
    now, waited = 0.0, list[float]()

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds
        waited.append(round(seconds, 9))

    for module in ("_line", "_session"):
        monkeypatch.setattr(f"treecal.client.{module}._now", lambda: now)
    monkeypatch.setattr("treecal.client._line.random.uniform", lambda low, high: high)
    monkeypatch.setattr(Session, "rest", lambda session, seconds: pause(seconds))
    server.stop()
    with make(server.url, timeout=100.0) as client:
        for act in (lambda: client.streams(), lambda: client.outcome("rain", "a", 1)):
            waited.clear()
            with pytest.raises(ServerError, match="gave no answer: no connection") as caught:
                act()
            assert (caught.value.code, caught.value.status) == ("away", 0)
            assert waited == [*(0.01 * 2**k for k in range(9)), *18 * [5.0]]


def test_a_connection_that_was_closed_while_idle_costs_nothing(make: Make, server: Server) -> None:
    with make(server.url) as client:
        assert client.forecast("rain", [0.25, 0.75], timeout=LONG).corrected
        server.faults = ["drop"]  # as if it were closed just when the request was sent
        assert client.forecast("rain", [0.25, 0.75], timeout=LONG).corrected
        server.stop()
        server.start()
        assert client.forecast("rain", [0.25, 0.75], timeout=LONG).corrected


def test_a_retry_after_is_heeded(make: Make, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(Session, "rest", lambda session, seconds: waited.append(seconds))
    server.faults = ["limited", "limited", "unavailable"]
    with make(server.url) as client:
        client.stream("rain")
    assert waited[:2] == [0.02, 0.02]
    assert 0 < waited[2] <= 0.04


def test_it_closes_while_the_sender_waits(
    make: Make, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treecal.client._line.FIRST", 1000.0)
    monkeypatch.setattr("treecal.client._line.LONGEST", 1000.0)
    server.stop()
    with make(server.url, spool=tmp_path / "spool", timeout=LONG) as client:
        client.outcome("rain", "a", 1)
        while not client._session.pause.left():  # until it has tried
            time.sleep(0.001)
        closing = threading.Thread(target=client.close)
        closing.start()
        closing.join(LONG)
        assert not closing.is_alive()


def test_a_forecast_waits_for_no_other_call(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many calls of an `AsyncClient` are tried again, a forecast has a thread."""

    async def main() -> None:
        server.faults = ["unavailable"] * 100
        async with AsyncClient(server.url, timeout=1000.0) as client:
            others = [asyncio.ensure_future(client.stream("rain")) for _ in range(100)]
            await asyncio.sleep(0.05)
            assert not (await asyncio.wait_for(client.forecast("rain", [0.25, 0.75]), LONG)).corrected
            for each in others:
                each.cancel()

    monkeypatch.setattr("treecal.client._line.FIRST", 1000.0)
    monkeypatch.setattr("treecal.client._line.LONGEST", 1000.0)
    asyncio.run(main())


# The model's own forecast


@pytest.mark.parametrize("fault", ["unavailable", "limited", "internal", "proxy", "hang", "drip"])
def test_without_an_answer_in_time_it_is_the_models_own(fault: str, make: Make, server: Server) -> None:
    server.faults = [
        fault
    ]  # a server that answers byte by byte would be done in some seconds, and one that hangs never
    with make(server.url) as client:
        answer = client.forecast("rain", [0.25, 0.75], id="a")
        assert (answer.forecast, answer.corrected, answer.kept, answer.round) == ([0.25, 0.75], False, False, None)
        assert answer.why
        time.sleep(0.02)
        assert client.forecast("rain", [0.25, 0.75], timeout=LONG).corrected
    server.stop()


def test_nobody_is_asked_again_at_once(make: Make, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treecal.client._line.FIRST", 1000.0)
    monkeypatch.setattr("treecal.client._line.LONGEST", 1000.0)
    server.faults = ["unavailable"]
    with make(server.url) as client:
        for _ in range(5):
            assert not client.forecast("rain", [0.25, 0.75], timeout=LONG).corrected
    assert len(server.seen) == 1


def test_a_server_that_accepts_and_says_nothing(make: Make) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        make(f"http://127.0.0.1:{silent.getsockname()[1]}") as client,
    ):
        answer = client.forecast("rain", [0.25, 0.75], timeout=0.05)
        assert answer.why == "no answer within 0.05 s"
        assert client.forecast_many("rain", [[0.25, 0.75]])[0].forecast == [0.25, 0.75]


def test_a_name_that_takes_long_to_resolve(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def slow(*_: Any, **__: Any) -> Any:
        done.wait()
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with make("http://books.example:8000") as client:
        answer = client.forecast("rain", [0.25, 0.75], timeout=0.05)
        assert not answer.corrected
        assert answer.why == "no answer within 0.05 s"
        done.set()


def test_a_connection_that_comes_too_late_is_closed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    real, late = socket.getaddrinfo, threading.Event()

    def slow(*args: Any, **kwargs: Any) -> Any:
        late.wait()
        return real("127.0.0.1", *args[1:], **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with Client(server.url.replace("127.0.0.1", "books.example")) as client:
        assert not client.forecast("rain", [0.25, 0.75], timeout=0.05).corrected
        late.set()
        for thread in threading.enumerate():
            if thread.name == "treecal-connect":
                thread.join()
        time.sleep(0.02)
        assert client.forecast("rain", [0.25, 0.75], timeout=LONG).corrected  # by name


def test_a_connection_that_is_made_while_the_client_closes_is_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.create_connection
    asked = threading.Event()
    closed = threading.Event()
    made: list[socket.socket] = []

    def slow(address: Any, *args: Any, **kwargs: Any) -> socket.socket:
        if not server.url.endswith(f":{address[1]}"):  # a client of another test
            return real(address, *args, **kwargs)
        asked.set()
        closed.wait()
        made.append(real(address, *args, **kwargs))
        return made[-1]

    monkeypatch.setattr(socket, "create_connection", slow)
    client = Client(server.url)
    call = threading.Thread(target=client.forecast, args=("rain", [0.25, 0.75]), kwargs={"timeout": LONG})
    call.start()
    asked.wait()
    client.close()
    closed.set()
    call.join()
    assert [each.fileno() for each in made] == [-1]


def test_a_stream_that_forecasts_by_itself_has_no_other_answer(make: Make, server: Server) -> None:
    with make(server.url) as client:
        assert client.forecast("rain", timeout=LONG).forecast == [0.5, 0.5]
        server.stop()
        with pytest.raises(ServerError, match="known to the server only"):
            client.forecast("rain")


def test_threads_share_a_client(server: Server) -> None:
    with Client(server.url) as client:
        answers: list[Any] = []

        def work(k: int) -> None:
            answers.extend(client.forecast("rain", [0.25, 0.75], id=f"{k} {i}", timeout=LONG) for i in range(20))

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(answer.corrected for answer in answers)
    assert {answer.id for answer in answers} == {name for _, name in server.books.forecasts}


def test_tasks_share_a_client(server: Server) -> None:
    async def main() -> list[Any]:
        async with AsyncClient(server.url) as client:
            calls = [client.forecast("rain", [0.25, 0.75], id=str(k), timeout=LONG) for k in range(50)]
            return list(await asyncio.gather(*calls))

    answers = asyncio.run(main())
    assert [answer.id for answer in answers] == [str(k) for k in range(50)]
    assert all(answer.corrected for answer in answers)


# The spool


def test_what_was_spooled_is_delivered_as_it_was_used(make: Make, server: Server, tmp_path: Path) -> None:
    with make(server.url, spool=tmp_path / "spool") as client:
        server.stop()
        answer = client.forecast("rain", [0.25, 0.75], id="a")
        assert (answer.corrected, answer.kept) == (False, True)
        many = client.forecast_many("rain", [[0.5, 0.5]] * 2, ids=["b", "c"])
        assert [(a.forecast, a.kept) for a in many] == [([0.5, 0.5], True)] * 2
        assert client.outcome("rain", "a", 1).status == "spooled"
        assert client.spooled.waiting == 4
        server.start()
        assert client.flush() == 0
        assert client.spooled == SpoolCounts(delivered=4)
        assert client.outcome("rain", "b", 0).status == "learned"
    assert server.books.log == [
        ("forecast", "rain", "a"), ("forecast", "rain", "b"), ("forecast", "rain", "c"),
        ("outcome", "rain", "a"), ("outcome", "rain", "b"),
    ]  # fmt: skip
    assert all(known["used"] for known in server.books.forecasts.values())


def test_what_was_recorded_and_not_answered_in_time_is_recorded_as_used(
    make: Make, server: Server, tmp_path: Path
) -> None:
    with make(server.url, spool=tmp_path / "spool") as client:
        server.faults = ["hang"]
        assert not client.forecast("rain", [0.25, 0.75], id="a", timeout=0.1).corrected
        assert client.flush() == 0
    assert server.books.log == [("forecast", "rain", "a")]
    assert server.books.forecasts["rain", "a"]["used"]


def test_an_outcome_does_not_overtake_its_forecast(make: Make, server: Server, tmp_path: Path) -> None:
    with make(server.url, spool=tmp_path / "spool") as client:
        session: Any = client._session
        deliver, held = session.courier.deliver, threading.Event()

        def later() -> None:
            held.wait()
            deliver()

        session.courier.deliver = later
        server.faults = ["unavailable"]
        client.forecast("rain", [0.25, 0.75], id="a", timeout=LONG)
        session.pause.end()  # the server is back, and the forecast is still in the spool
        assert client.forecast("rain", [0.25, 0.75], id="b", timeout=LONG).corrected
        assert client.outcome("rain", "a", 1).status == "spooled"
        held.set()
        assert client.flush() == 0
        assert client.outcome("rain", "b", 1).status == "learned"
    assert [(what, name) for what, _, name in server.books.log] == [
        ("forecast", "b"), ("forecast", "a"), ("outcome", "a"), ("outcome", "b"),
    ]  # fmt: skip


@pytest.mark.parametrize(("limit", "readable"), [(None, True), (1, True), (1, False)])
def test_forecasts_go_ahead_only_where_they_push_out_none(
    limit: int | None, readable: bool, make: Make, server: Server, tmp_path: Path
) -> None:
    server.books.streams["rain"]["limit"], server.readable = limit, readable
    server.stop()
    with make(server.url, spool=tmp_path / "spool") as client:
        for name in "abc":
            client.forecast("rain", [0.25, 0.75], id=name)
            client.outcome("rain", name, 1)
        server.start()
        assert client.flush() == 0
    came = [(what, name) for what, _, name in server.books.log]
    alternating = [(what, name) for name in "abc" for what in ("forecast", "outcome")]
    assert came == (alternating if limit else sorted(alternating))
    assert sum(method == "POST" for method, *_ in server.seen) == (6 if limit else 2)


def test_the_next_client_delivers_what_one_left(make: Make, server: Server, tmp_path: Path) -> None:
    server.stop()
    with make(server.url, spool=tmp_path / "spool") as client:
        client.forecast("rain", [0.25, 0.75], id="a")
    server.start()
    with make(server.url, spool=tmp_path / "spool") as client:
        assert client.flush() == 0
    assert server.books.log == [("forecast", "rain", "a")]


def test_a_thread_delivers_without_being_asked(server: Server, tmp_path: Path) -> None:
    server.stop()
    with Client(server.url, spool=tmp_path / "spool") as client:
        client.forecast("rain", [0.25, 0.75], id="a")
        server.start()
        deadline = time.monotonic() + 60
        while client.spooled.waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        assert client.spooled.delivered == 1


def test_a_task_delivers_without_being_asked(server: Server, tmp_path: Path) -> None:
    async def main() -> int:
        async with AsyncClient(server.url, spool=tmp_path / "spool") as client:
            await client.forecast("rain", [0.25, 0.75], id="a")
            server.start()
            deadline = time.monotonic() + 60
            while client.spooled.waiting and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            return client.spooled.delivered

    server.stop()
    assert asyncio.run(main()) == 1


def test_what_is_refused_for_good_does_not_hold_up_the_rest(make: Make, server: Server, tmp_path: Path) -> None:
    server.stop()
    with make(server.url, spool=tmp_path / "spool") as client:
        for k in range(20):
            client.forecast("rain", [0.2, 0.3, 0.5] if k in (3, 4, 17) else [0.25, 0.75], id=str(k))
        client.forecast("snow", [0.25, 0.75], id="no such stream")
        client.forecast("rain", [0.75, 0.25], id="0")  # another forecast under the same id
        client.outcomes([("rain", str(k), "hail" if k == 5 else 1) for k in range(20)])
        client.outcome("rain", "0", 0)
        server.start()
        assert client.flush() == 0
        assert client.spooled == SpoolCounts(delivered=17 + 16, refused=3 + 2 + 4 + 1)
    good = [str(k) for k in range(20) if k not in (3, 4, 17)]
    assert server.books.log == [("forecast", "rain", k) for k in good] + [
        ("outcome", "rain", k) for k in good if k != "5"
    ]
    codes = [
        line.split('"code":"')[1].split('"')[0]
        for line in Path(tmp_path, "spool.refused").read_text(encoding="utf-8").splitlines()
    ]
    assert codes == ["invalid"] * 3 + ["conflict", "not_found"] + ["unknown"] * 2 + ["invalid", "unknown", "conflict"]


def test_a_wrong_token_loses_nothing_and_is_logged(
    make: Make, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.stop()
    with make(server.url, token="tcal_old", spool=tmp_path / "spool", timeout=0.5) as client:
        client.forecast("rain", [0.25, 0.75], id="a")
        server.token = "tcal_new"
        server.start()
        with caplog.at_level(logging.WARNING, "treecal.client"):
            assert client.flush() == 1
    assert "unauthorized" in caplog.text
    assert "tcal_" not in caplog.text
    with make(server.url, token="tcal_new", spool=tmp_path / "spool") as client:
        assert client.flush() == 0
    assert server.books.log == [("forecast", "rain", "a")]


def test_a_full_spool(make: Make, server: Server, tmp_path: Path) -> None:
    server.stop()
    with make(server.url, spool=tmp_path / "spool", spool_limit=2000) as client:
        kept = [client.forecast("rain", [0.25, 0.75]).kept for _ in range(30)]
        assert kept == sorted(kept, reverse=True)
        assert set(kept) == {True, False}
        assert client.spooled.dropped == kept.count(False)
        with pytest.raises(FileError, match="takes no more: 100 outcomes are not kept"):
            client.outcomes([("rain", str(k), 1) for k in range(100)])


def test_a_batch_that_takes_too_long_is_made_smaller(make: Make, server: Server, tmp_path: Path) -> None:
    server.stop()
    with make(server.url, spool=tmp_path / "spool", timeout=0.2) as client:
        for k in range(10):
            client.forecast("rain", [0.25, 0.75], id=str(k))
        server.start()
        server.faults = ["hang", "hang"]
        assert client.flush(20) == 0
    assert [name for *_, name in server.books.log] == [str(k) for k in range(10)]


def test_delivery_survives_what_nobody_thought_of(
    make: Make, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("treecal.client._delivery.LONGEST", 0.01)
    real, failed = Spool.head, list[int]()

    def broken(self: Spool, most: int) -> Any:
        if not failed:
            failed.append(most)
            raise OSError("the disk was away for a moment")
        return real(self, most)

    monkeypatch.setattr(Spool, "head", broken)
    with make(server.url, spool=tmp_path / "spool") as client:
        server.faults = ["unavailable"]
        client.forecast("rain", [0.25, 0.75], id="a", timeout=LONG)
        assert client.flush() == 0
    assert failed
    assert "the disk was away" in caplog.text


def test_a_client_does_not_survive_a_fork(make: Make, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(server.url) as client:
        real = os.getpid()
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: real + 1)
            with pytest.raises(ParameterError, match="before the process was forked"):
                client.forecast("rain", [0.25, 0.75])


def test_a_closed_client_says_so(make: Make, server: Server) -> None:
    with make(server.url) as client:
        client.close()
        for act in (lambda: client.forecast("rain", [0.25, 0.75]), client.flush, client.streams):
            with pytest.raises(ParameterError, match="is closed"):
                act()


def test_the_pause_grows_and_ends(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    from treecal.client._line import LONGEST, Pause

    pause, away = Pause("http://x"), line.AwayError("no connection")
    lengths = []
    for _ in range(12):
        pause.fail(away)
        lengths.append(pause.left())
    assert 0 < lengths[0] <= 0.01
    assert LONGEST / 2 - 0.1 < lengths[-1] <= LONGEST
    assert str(pause.why(1.0)).startswith("no connection; the next try is in")
    pause.fail(line.AwayError("limited", after=0.0))
    assert pause.why(1.0) is None  # one tries
    assert pause.why(1.0)  # the others wait for it
    pause.end()
    assert pause.why(1.0) is None
    assert [record.message for record in caplog.records] == ["http://x is away: no connection", "http://x is back"]


def test_outcomes_that_nobody_waits_for_are_logged(
    make: Make, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for spool in (None, tmp_path / "spool"):
        caplog.clear()
        with make(server.url, spool=spool, timeout=LONG) as client:
            client.forecast("rain", [0.3, 0.7], id="a", timeout=LONG)
            rows = [("rain", "a", 1), ("rain", "b", 1), ("rian", "a", 1)]
            assert [each.status for each in client.outcomes(rows)][1:] == ["unknown", "unknown"]
        (found,) = [each for each in caplog.records if each.name == "treecal.client"]
        assert found.levelno == logging.WARNING
        assert "2 of 3 outcomes" in found.getMessage()
        assert "id 'b' of stream 'rain'" in found.getMessage()


def test_due_is_a_moment(make: Make, server: Server) -> None:
    moment = datetime(2030, 1, 2, 3, tzinfo=timezone(timedelta(hours=1)))
    with make(server.url) as client:
        client.forecast("rain", [0.3, 0.7], id="a", due=moment, timeout=LONG)
        client.forecast("rain", [0.3, 0.7], id="b", due=moment.timestamp(), timeout=LONG)
        for wrong in (moment.replace(tzinfo=None), 1000 * moment.timestamp(), float("nan"), "2030-01-02"):
            with pytest.raises(ParameterError, match="due"):
                client.forecast("rain", [0.3, 0.7], id="c", due=wrong, timeout=LONG)  # type: ignore[arg-type]
    dues = {named: each["body"]["due"] for (_, named), each in server.books.forecasts.items()}
    assert dues == {"a": 1893549600.0, "b": 1893549600.0}
