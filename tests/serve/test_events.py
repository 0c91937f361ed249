"""Events: every page hears what was committed, and none holds up the writer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.serve.http import NEW, House, served
from treecal.serve import _events
from treecal.serve._events import Hub
from treecal.serve._refusals import Refusal

FIRST = b"retry: 2000\n: listening\n\n"


async def always() -> bool:
    return True


def everything(name: str) -> bool:
    return True


def forecast(stream: str, rounds: int) -> dict[str, Any]:
    return {"event": "forecast", "stream": stream, "rounds": rounds, "pending": 0}


def alarm(stream: str, e_value: float) -> dict[str, Any]:
    return {"event": "alarm", "stream": stream, "kind": "drift", "e_value": e_value}


def told(text: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Return the events in what was sent."""
    found = []
    for block in text.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


async def started(hub: Hub, wanted: Callable[[str], bool] = everything) -> AsyncGenerator[bytes, None]:
    heard = hub.listen(wanted, always)
    assert await anext(heard) == FIRST
    return heard


def test_counts_are_the_latest_and_alarms_are_all_told() -> None:
    async def test() -> None:
        hub = Hub(pause=0.05)
        hub.open()
        heard = await started(hub)
        for i in range(1000):
            hub.publish([forecast("a", i), forecast("b", 2 * i)])
        hub.publish([alarm("a", 20.0), alarm("a", 21.0)])
        assert told(await anext(heard)) == [
            ("alarm", {"stream": "a", "kind": "drift", "e_value": 20.0}),
            ("alarm", {"stream": "a", "kind": "drift", "e_value": 21.0}),
        ]
        assert told(await anext(heard)) == [
            ("forecast", {"stream": "a", "rounds": 999, "pending": 0}),
            ("forecast", {"stream": "b", "rounds": 1998, "pending": 0}),
        ]
        await heard.aclose()
        assert hub.clients == 0

    in_loop(test)


def test_events_come_from_another_thread() -> None:
    async def test() -> None:
        hub = Hub(pause=0.01)
        hub.open()
        heard = await started(hub)

        def publish() -> None:
            for i in range(500):
                hub.publish([forecast("a", i)])

        thread = threading.Thread(target=publish)
        thread.start()
        last = -1
        while last < 499:
            for _, data in told(await anext(heard)):
                assert data["rounds"] > last
                last = data["rounds"]
        thread.join()
        await heard.aclose()

    in_loop(test)


def test_nothing_is_kept_when_nobody_listens() -> None:
    async def test() -> None:
        hub = Hub()
        hub.open()
        hub.publish([forecast("a", 1), alarm("a", 2.0)])
        assert (hub._counts, hub._others) == ({}, [])

    in_loop(test)


def test_a_client_hears_only_what_it_wants() -> None:
    async def test() -> None:
        hub = Hub(pause=0.0)
        hub.open()
        heard = await started(hub, lambda name: name == "b")
        hub.publish([alarm("a", 1.0), alarm("b", 2.0)])
        assert [data["stream"] for _, data in told(await anext(heard))] == ["b"]
        await heard.aclose()

    in_loop(test)


def test_a_slow_client_is_dropped_and_the_others_are_not() -> None:
    async def test() -> None:
        hub = Hub()
        hub.open()
        slow, quick = await started(hub), await started(hub)
        count = 0
        for i in range(_events.ROOM + 1):
            hub.publish([alarm("a", float(i))])
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if i % 100 == 0:
                count += len(told(await anext(quick)))
        count += len(told(await anext(quick)))
        assert count == _events.ROOM + 1
        assert [text async for text in slow] == [b": dropped: events arrived faster than they were read\n\n"]
        assert hub.clients == 1
        await quick.aclose()

    in_loop(test)


def test_a_client_of_very_many_streams_is_not_slow_for_that() -> None:
    async def test() -> None:
        hub = Hub(pause=0.0)
        hub.open()
        heard = await started(hub)
        hub.publish([forecast(f"s{i}", 1) for i in range(2 * _events.ROOM)])
        assert len(told(await anext(heard))) == 2 * _events.ROOM
        await heard.aclose()

    in_loop(test)


def test_a_quiet_connection_shows_that_it_lives() -> None:
    async def test() -> None:
        hub = Hub(beat=0.01)
        hub.open()
        heard = await started(hub)
        assert await anext(heard) == b": alive\n\n"
        await heard.aclose()

    in_loop(test)


def test_whoever_lost_the_right_to_listen_is_let_go() -> None:
    async def test() -> None:
        hub, allowed = Hub(beat=0.01), True

        async def still() -> bool:
            return allowed

        hub.open()
        heard = hub.listen(everything, still)
        await anext(heard)
        allowed = False
        assert [text async for text in heard][-1] == b": the token was revoked\n\n"
        assert hub.clients == 0

    in_loop(test)


def test_so_many_may_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(_events, "MOST", 2)
        hub = Hub()
        hub.open()
        some = [await started(hub) for _ in range(2)]
        with pytest.raises(Refusal, match="already"):
            hub.listen(everything, always)
        await some[0].aclose()
        some.append(await started(hub))
        hub.close()
        with pytest.raises(Refusal, match="stops"):
            hub.listen(everything, always)
        for heard in some[1:]:
            assert [text async for text in heard] == [b": the server stops\n\n"]

    in_loop(test)


class Listener:
    """A client of /v1/events, without a network."""

    def __init__(self, house: House, path: str, token: str | None = None) -> None:
        self._house, self._path, self._token = house, path, token
        self.text, self.status = b"", 0
        self._gone = asyncio.Event()

    async def __aenter__(self) -> Listener:
        headers = [(b"host", b"127.0.0.1")]
        if self._token is not None:
            headers.append((b"authorization", f"Bearer {self._token}".encode()))
        path, _, query = self._path.partition("?")
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "headers": headers}
        self._task = asyncio.ensure_future(
            self._house.app({**scope, "query_string": query.encode(), "client": None}, self._receive, self._send)
        )
        await self.until(lambda: FIRST in self.text)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._gone.set()
        await self._task

    async def _receive(self) -> Any:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.text += message.get("body", b"")

    async def until(self, what: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not what():
                await asyncio.sleep(0.01)

    def has(self, kind: str, stream: str) -> bool:
        return any(name == kind and data["stream"] == stream for name, data in told(self.text))

    async def ended(self) -> None:
        async with asyncio.timeout(60):
            await self._task


def test_a_page_hears_of_everything(tmp_path: Path) -> None:
    with served(tmp_path) as house:

        async def test() -> None:
            async with Listener(house, "/v1/events") as one:
                await house.asked("POST", "/v1/streams", NEW)
                async with Listener(house, "/v1/events?stream=a") as two:
                    some = [{"id": f"r{i}", "p": [0.95, 0.05]} for i in range(200)]
                    await house.asked("POST", "/v1/streams/a/forecasts/batch", {"forecasts": some})
                    came = [{"stream": "a", "id": f"r{i}", "outcome": 1} for i in range(200)]
                    await house.asked("POST", "/v1/outcomes", {"outcomes": came})
                    await two.until(lambda: two.has("outcome", "a") and two.has("alarm", "a"))
                    assert not two.has("stream", "a")  # which was before
                await one.until(lambda: one.has("outcome", "a"))
                assert {name for name, _ in told(one.text)} == {"stream", "forecast", "outcome", "alarm"}
                (raised,) = [data for name, data in told(one.text) if name == "alarm"]
                (listed,) = (await house.asked("GET", "/v1/alarms")).json["alarms"]
                assert raised == listed
                counts = [data for name, data in told(one.text) if name == "outcome"]
                assert counts[-1]["learned"] == 200
            assert house.context.hub.clients == 0

        house.run(test())


def test_a_token_hears_its_streams_until_it_is_revoked(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        token, admin = house.make_token("read", prefix="web-"), house.make_token("admin")

        async def create(name: str) -> None:
            await house.asked("POST", "/v1/streams", {**NEW, "name": name}, token=admin)

        async def test() -> None:
            async with Listener(house, "/v1/events", token) as one:
                await create("mail")
                await create("web-a")
                await one.until(lambda: one.has("stream", "web-a"))
                assert not one.has("stream", "mail")
                await asyncio.to_thread(house.revoke, token)
                await one.ended()
                assert one.text.endswith(b": the token was revoked\n\n")

        house.run(test())


def test_a_client_that_takes_nothing_is_left_behind(tmp_path: Path) -> None:
    with served(tmp_path, most_seconds=0.05) as house:

        async def test() -> list[str]:
            sent = []

            async def receive() -> Any:
                await asyncio.sleep(60)

            async def send(message: Any) -> None:
                sent.append(message["type"])
                if message.get("body"):
                    await asyncio.sleep(60)  # the buffers are full

            scope = {"type": "http", "method": "GET", "path": "/v1/events", "raw_path": b"/v1/events"}
            more = {"query_string": b"", "headers": [(b"host", b"127.0.0.1")], "client": None}
            async with asyncio.timeout(60):
                await house.app({**scope, **more}, receive, send)
            return sent

        assert house.run(test()) == ["http.response.start", "http.response.body"]  # it has no end
        assert house.context.hub.clients == 0
