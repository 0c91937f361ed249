"""Webhooks: every alarm reaches its receivers, signed, in order, whatever the receiver or the process does."""

from __future__ import annotations

import asyncio
import base64
import random
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.serve.forks import forks
from tests.serve.http import House
from tests.serve.receiver import SECRET, Receiver, receiving, until
from treecal.exceptions import ParameterError
from treecal.serve import _webhooks
from treecal.serve._connections import open_store
from treecal.serve._store import Unavailable
from treecal.serve._webhooks import Receiver as Configured, Webhooks
from treecal.serve._writer import Writer

NUMBERS = count()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@contextmanager
def house(folder: Path, *receivers: Configured) -> Iterator[House]:
    """Serve books whose alarms are sent, with hardly a pause between attempts."""
    data = str(folder / "books.sqlite")

    def names(stream: str) -> list[str]:
        return [each.name for each in receivers if each.wants(stream)]

    with (
        Writer(open_store(data), receivers=names) as writer,
        Webhooks(writer, receivers, first=0.001, longest=0.002) as webhooks,
        House(writer, data, webhooks=webhooks) as found,
    ):
        yield found


def alarm(house: House, stream: str = "a") -> None:
    """Raise an alarm: what a forecast excludes happens; then reset the monitors, for the next one."""
    new = {"name": stream, "classes": ["no", "yes"]}
    assert house.ask("POST", "/v1/streams", new).status in (200, 201)
    name = f"r{next(NUMBERS)}"
    assert house.ask("POST", f"/v1/streams/{stream}/forecasts", {"id": name, "p": [1.0, 0.0]}).status == 200
    came = {"outcomes": [{"stream": stream, "id": name, "outcome": "yes"}]}
    assert house.ask("POST", "/v1/outcomes", came).json["counts"] == {"learned": 1}
    assert house.ask("POST", f"/v1/streams/{stream}/reset").status == 200


def pending(house: House) -> list[int]:
    return [each["pending"] for each in house.ask("GET", "/v1/webhooks").json["webhooks"]]


def test_an_alarm_is_sent_as_the_api_shows_it(tmp_path: Path, receiver: Receiver) -> None:
    with house(tmp_path, Configured("oncall", receiver.url, (SECRET,))) as server:
        alarm(server)
        until(lambda: pending(server) == [0])
        (shown,) = server.ask("GET", "/v1/alarms").json["alarms"]
        ((name, body),) = receiver.taken
        assert (body["type"], body["data"]) == ("alarm.raised", shown)
        assert body["timestamp"].endswith("Z")
        ((path, seen, at),) = receiver.seen
        assert (path, seen) == ("/alarms?team=1", name)
        assert abs(time.time() - at) < 3600
        (standing,) = server.ask("GET", "/v1/webhooks").json["webhooks"]
        assert standing | {"last": 0} == {
            "name": "oncall", "url": receiver.url.partition("/alarms")[0], "streams": ["*"],
            "pending": 0, "delivered": 1, "failed": 0, "last": 0, "problem": None,
        }  # fmt: skip
        counts = server.ask("GET", "/metrics").body.decode()
        assert 'treecal_webhook_delivered{webhook="oncall"} 1\n' in counts
        assert 'treecal_webhook_pending{webhook="oncall"} 0\n' in counts
    assert not receiver.wrong


def test_each_receiver_gets_the_streams_that_it_was_configured_for(tmp_path: Path) -> None:
    with receiving() as one, receiving() as other:
        configured = (
            Configured("one", one.url, (SECRET,), ("shop-*",)),
            Configured("other", other.url, (SECRET,), ("rain", "shop-2")),
        )
        with house(tmp_path, *configured) as server:
            for stream in ("shop-1", "shop-2", "rain", "shop", "rain-2"):
                alarm(server, stream)
            until(lambda: pending(server) == [0, 0])
        assert {body["data"]["stream"] for _, body in one.taken} == {"shop-1", "shop-2"}
        assert {body["data"]["stream"] for _, body in other.taken} == {"shop-2", "rain"}


FAULTS = ["hang", "drop", "drip", "flood", "garbage", 500, 404, 302, 307, 101]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_not_taken_is_sent_again(
    tmp_path: Path, receiver: Receiver, fault: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_webhooks, "SECONDS", 0.3)
    receiver.faults = [fault, fault]
    with house(tmp_path, Configured("oncall", receiver.url, (SECRET,))) as server:
        for _ in range(3):
            alarm(server)
        until(lambda: pending(server) == [0])
        shown = [each["at"] for each in server.ask("GET", "/v1/alarms").json["alarms"]]
        (standing,) = server.ask("GET", "/v1/webhooks").json["webhooks"]
        assert (standing["delivered"], standing["failed"], standing["problem"]) == (3, 2, None)
    assert [body["data"]["at"] for _, body in receiver.taken] == shown[::-1]  # in order
    assert [name for _, name, _ in receiver.seen[:3]] == [receiver.taken[0][0]] * 3  # the same message under its name
    assert {path for path, _, _ in receiver.seen} == {"/alarms?team=1"}  # and no redirect was followed
    assert not receiver.wrong


def test_a_receiver_that_hangs_holds_up_no_answer_and_no_other_receiver(tmp_path: Path) -> None:
    with receiving() as deaf, receiving() as fine:
        deaf.faults = ["hang" for _ in range(100)]
        configured = (Configured("deaf", deaf.url, (SECRET,)), Configured("fine", fine.url, (SECRET,)))
        with house(tmp_path, *configured) as server:  # and its end waits for nobody
            for number in range(10):
                alarm(server, f"s{number}")
            until(lambda: pending(server) == [10, 0])
            assert server.ask("GET", "/readyz").status == 200
        assert len(fine.taken) == 10
        assert not deaf.taken


def test_what_went_wrong_is_said_once_and_shown(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.faults = [*[500] * 5, 302]
    with house(tmp_path, Configured("oncall", receiver.url, (SECRET,))) as server:
        alarm(server)
        until(lambda: pending(server) == [0])
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "webhook oncall does not take alarms, which are sent again: status 500",
        "webhook oncall takes alarms again",
    ]
    assert "team=1" not in caplog.text


def test_what_is_owed_survives_a_restart_and_a_change_of_receivers(tmp_path: Path, receiver: Receiver) -> None:
    receiver.faults = [500 for _ in range(100_000)]
    known = Configured("oncall", receiver.url, (SECRET,))
    with house(tmp_path, known) as server:
        alarm(server)
        alarm(server)
    with house(tmp_path) as server:
        assert server.ask("GET", "/v1/webhooks").json["webhooks"] == [
            {"name": "oncall", "url": None, "streams": [], "pending": 2, "delivered": 0, "failed": 0,
             "last": None, "problem": None}
        ]  # fmt: skip
    receiver.faults = []
    with house(tmp_path, known) as server:
        until(lambda: pending(server) == [0])
    assert len({name for name, _ in receiver.taken}) == 2  # each at least once


def test_books_that_cannot_be_written_delay_it(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was taken and cannot be crossed off is not sent again by this process."""
    with house(tmp_path, Configured("oncall", receiver.url, (SECRET,))) as server:
        store = server.writer._store
        run, full = store.run, [3]

        def failing(name: str, rows: Any) -> None:
            if name == "close_delivery" and full[0]:
                full[0] -= 1
                raise Unavailable("the disk is full")
            run(name, rows)

        monkeypatch.setattr(store, "run", failing)
        alarm(server)
        until(lambda: pending(server) == [0])
    assert not full[0]
    assert len(receiver.seen) == 1


def test_two_secrets_sign_while_one_takes_the_place_of_the_other(tmp_path: Path, receiver: Receiver) -> None:
    other = SECRET[:-4] + "AAA="
    receiver.secrets = [SECRET, other]
    with house(tmp_path, Configured("oncall", receiver.url, (SECRET, other))) as server:
        alarm(server)
        until(lambda: pending(server) == [0])
    assert not receiver.wrong


def test_a_token_for_some_streams_sees_no_webhooks(tmp_path: Path, receiver: Receiver) -> None:
    with house(tmp_path, Configured("oncall", receiver.url, (SECRET,))) as server:
        some = server.make_token("admin", prefix="a")
        reads = server.make_token("read")
        every = server.make_token("admin")
        server.ask("GET", "/v1/webhooks", token=some).refused(403, "forbidden")
        server.ask("GET", "/v1/webhooks", token=reads).refused(403, "forbidden")
        assert server.ask("GET", "/v1/webhooks", token=every).status == 200


def test_the_receiver_in_the_docs_takes_what_is_signed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "serve.md").read_text("utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    scope: dict[str, Any] = {}
    exec(block, scope)
    scope["Receiver"].log_message = lambda *_: None
    http = scope["HTTPServer"](("127.0.0.1", 0), scope["Receiver"])
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    url, secret = f"http://127.0.0.1:{http.server_address[1]}/", "whsec_" + base64.b64encode(scope["KEY"]).decode()
    post, now = Configured("oncall", url, (SECRET, secret)).post, int(time.time())
    wrong = Configured("oncall", url, (SECRET,)).post
    body = b'{"data": {"words": "alarm after 7 outcomes"}}'
    assert asyncio.run(post("alarm_1", now, body)) is None
    assert asyncio.run(wrong("alarm_2", now, body)) == "status 401"
    assert asyncio.run(post("alarm_3", now - 600, body)) == "status 401"
    http.shutdown()
    http.server_close()
    assert capsys.readouterr().out == "alarm_1 alarm after 7 outcomes\n"


def test_headers_are_those_of_the_convention() -> None:
    """The example of https://www.standardwebhooks.com, as its libraries test it."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    found = dict(Configured("x", "https://a.org", (secret,)).headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body))
    assert found["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "url",
    [
        "", "example.net", "ftp://example.org", "file:///etc/passwd", "http://", "https://user:pw@example.org/",
        "https://example.org/#x", "https://example.org:99999/", "https://example.org:0/",
        "https://example.org/a b", "https://example.org/\r\nX-More: 1", "https://exämple.org/",
    ],
)  # fmt: skip
def test_other_addresses_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ParameterError, match="webhook oncall") as caught:
        Configured("oncall", url, (SECRET,))
    assert not url or url not in str(caught.value)


@pytest.mark.parametrize(
    "secret", ["", "secret", "whsec_", "whsec_QUJD", "whsec_" + 200 * "A", SECRET[6:], f"{SECRET}!"]
)
def test_other_secrets_are_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(ParameterError, match="secret of webhook oncall") as caught:
        Configured("oncall", "https://example.org", (SECRET, secret))
    assert len(secret) < 9 or secret not in str(caught.value)


STREAMS = ("a", "b", "c")


def raise_alarms(address: tuple[str, int], stop: threading.Event, acknowledged: list[tuple[str, str]]) -> None:
    """Raise alarms of a stream, one after the other, until told to stop or the server is gone."""
    stream = threading.current_thread().name
    line = HTTPConnection(*address, timeout=30)

    def posted(path: str, body: Any = None) -> None:
        line.request("POST", path, msgspec.json.encode(body), {"Content-Type": "application/json"})
        answer = line.getresponse()
        assert answer.status in (200, 201), answer.read()
        answer.read()

    try:
        posted("/v1/streams", {"name": stream, "classes": ["no", "yes"]})
        while not stop.is_set():
            posted(f"/v1/streams/{stream}/reset")
            name = f"r{next(NUMBERS)}"
            posted(f"/v1/streams/{stream}/forecasts", {"id": name, "p": [1.0, 0.0]})
            posted("/v1/outcomes", {"outcomes": [{"stream": stream, "id": name, "outcome": 1}]})
            acknowledged.append((stream, name))
    except (OSError, HTTPException):
        pass  # it was killed
    finally:
        line.close()


def killed(folder: Path, kills: int) -> None:
    """Kill -9 at random moments, under load, while the receiver fails in every way: no alarm is lost."""
    rng, acknowledged = random.Random(kills), list[tuple[str, str]]()
    data = str(folder / "books.sqlite")
    with receiving() as receiver, forks(folder / "log") as servers:
        hooks = {"oncall": {"url": receiver.url, "secret": SECRET}}
        for number in range(kills + 1):
            receiver.faults = [rng.choice([None, None, 500, 302, "drop", "garbage"]) for _ in range(100)]
            stop, address = threading.Event(), servers.start(data, webhooks=hooks)
            threads = [
                threading.Thread(target=raise_alarms, args=(address, stop, acknowledged), name=name) for name in STREAMS
            ]
            for each in threads:
                each.start()
            enough = len(acknowledged) + rng.randrange(20)
            until(lambda: len(acknowledged) >= enough)  # noqa: B023
            time.sleep(rng.uniform(0.0, 0.02))
            if number < kills:
                servers.kill()
            stop.set()
            for each in threads:
                each.join()
        receiver.faults = []
        with open_store(data, beside=True) as store:
            rows = {row[0]: row[1] for row in store.query("streams")}
            raised = {name: store.query("alarms_of", stream, 10**6)[::-1] for stream, name in rows.items()}
            until(lambda: not store.query("count_deliveries"))
    assert not receiver.wrong
    assert sum(map(len, raised.values())) >= len(acknowledged) > 2 * kills
    taken = defaultdict[str, dict[str, float]](dict)
    for name, body in receiver.taken:
        first = taken[body["data"]["stream"]].setdefault(name, body["data"]["at"])  # in the order of the first time
        assert first == body["data"]["at"]  # again is the same
    for name, rows_of in raised.items():
        assert list(taken[name].values()) == [at for _, _, at, _ in rows_of]


def test_no_alarm_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    killed(tmp_path, 2)


@pytest.mark.heavy
def test_no_alarm_is_lost_when_the_server_is_killed_often(tmp_path: Path) -> None:
    killed(tmp_path, 60)
