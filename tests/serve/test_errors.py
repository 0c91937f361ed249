"""Every error of every route has one shape, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.serve.http import House, fill, served
from treecal.serve._answers import Operation, Request, Response
from treecal.serve._operations import OPERATIONS
from treecal.serve._tokens import SCOPES

SAFETY = ("content-security-policy", "x-content-type-options", "x-frame-options", "referrer-policy", "cache-control")


def path_of(each: Operation) -> str:
    return each.path.replace("{s}", "a").replace("{id:path}", "r0").replace("{file:path}", "none.js")


def body_of(each: Operation) -> dict[str, Any] | None:
    """Return a body that is taken."""
    bodies: dict[str, dict[str, Any]] = {
        "create_stream": {"name": "a", "classes": ["no", "yes"], "tags": ["city"]},
        "change_stream": {"tags": ["city", "n", "no"]},
        "announce": {"id": "n", "p": [0.5, 0.5]},
        "announce_batch": {"forecasts": [{"id": "n", "p": [0.5, 0.5]}]},
        "settle": {"outcomes": [{"stream": "a", "id": "r2", "outcome": "no"}]},
    }
    return bodies.get(each.does.__name__)


def query_of(each: Operation) -> str:
    """Return what a query must have."""
    return "?tag=city&value=none" if each.does.__name__ == "delete_forecasts" else ""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with served(tmp_path_factory.mktemp("books"), most_bytes=500, most_seconds=0.05) as made:
        fill(made)
        yield made


@pytest.fixture
def same(house: House) -> Iterator[House]:
    """The house, which must not be changed."""
    before = house.ask("GET", "/v1/streams?archived=true").body
    yield house
    assert house.ask("GET", "/v1/streams?archived=true").body == before


def check(house: House, each: Operation, status: int, code: str, **more: Any) -> None:
    method = more.pop("method", each.method)
    path, json = more.pop("path", path_of(each)), more.pop("json", body_of(each))
    if "parts" in more:
        json = None
    reply = house.ask(method, path, json, **more)
    assert reply.status == status, (each.method, path, reply)
    reply.refused(status, code)
    for name in SAFETY:
        assert name in reply.headers


def test_another_method(same: House) -> None:
    for each in OPERATIONS:
        reply = same.ask("PUT", path_of(each))
        reply.refused(405, "method")
        assert each.method in reply.headers["allow"].split(", ")
        check(same, each, 405, "method", method="BREW", json=None)


def test_a_path_below_or_a_slash_after(same: House) -> None:
    for each in OPERATIONS:
        if "forecasts" not in each.path and not each.path.endswith(":path}"):
            check(same, each, 404, "not_found", path=path_of(each) + "/x/y")
            check(same, each, 404, "not_found", path=path_of(each) + "/")


def test_another_host(same: House) -> None:
    for each in OPERATIONS:
        check(same, each, 403, "forbidden", headers={"Host": "evil.example"})


def test_a_query_that_is_not_known_or_no_text(same: House) -> None:
    for each in OPERATIONS:
        check(same, each, 422, "invalid", path=path_of(each) + "?none=1")
        check(same, each, 422, "invalid", path=path_of(each) + "?limit=%ff")
        check(same, each, 422, "invalid", path=path_of(each) + "?after=1&after=2")


@pytest.mark.parametrize(
    "query",
    [
        "/v1/streams?limit=0",
        "/v1/streams?limit=1.5",
        "/v1/streams?archived=perhaps",
        "/v1/streams?after=%00",
        "/v1/streams/a/pending?after=-1",
        "/v1/streams/a/pending?after=" + "9" * 40,
        "/v1/streams/a/scores?since=nan",
        "/v1/streams/a/scores?until=inf",
        "/v1/streams/a/scores?window=year",
        "/v1/streams/a/scores?last=0",
        "/v1/streams/a/export?since=1e999",
        "/v1/alarms?" + "&".join(f"a{i}=1" for i in range(99)),
    ],
)
def test_a_query_with_a_wrong_value(same: House, query: str) -> None:
    same.ask("GET", query).refused(422, "invalid")


def test_a_stream_that_there_is_not(same: House) -> None:
    for each in OPERATIONS:
        if "{s}" in each.path and each.scope is not None:
            for name in ("nowhere", "%20"):
                path = path_of(each).replace("/a", f"/{name}", 1) + query_of(each)
                check(same, each, 404, "not_found", path=path)


TAKES = [each for each in OPERATIONS if each.body is not None]
KIND = {"Content-Type": "application/json"}


def test_a_body_that_is_not_declared(same: House) -> None:
    for each in TAKES:
        check(same, each, 415, "media_type", headers={"Content-Type": "text/plain"})
        check(same, each, 415, "media_type", headers={"Content-Type": "application/json; charset=utf-16"})
        check(same, each, 415, "media_type", parts=[b"{}"])
        check(same, each, 415, "media_type", parts=[b"{}"], headers={**KIND, "Content-Encoding": "gzip"})


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b'{"\\ud800": 1}', b"\xef\xbb\xbf{}"])
def test_a_body_that_is_not_json(same: House, body: bytes) -> None:
    for each in TAKES:
        check(same, each, 400, "bad_json", json=body)
        valid = msgspec.json.encode(body_of(each))
        check(same, each, 400, "bad_json", json=valid + b"{}")
        check(same, each, 400, "bad_json", json=valid.replace(b'"n', b'"\xff'))


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b"1", b'{"none": 1}', b"[" * 400])
def test_a_body_of_another_shape(same: House, body: bytes) -> None:
    for each in TAKES:
        check(same, each, 422, "invalid", json=body)


def test_a_body_with_a_field_that_is_not_known_or_a_nul(same: House) -> None:
    for each in TAKES:
        body = body_of(each)
        assert body is not None
        check(same, each, 422, "invalid", json={**body, "none": 1})
        text = msgspec.json.encode(body).replace(b'"n"', b'"n\\u0000"').replace(b'"no"', b'"no\\u0000"')
        check(same, each, 422, "invalid", json=text)


def test_a_body_that_is_too_large(same: House) -> None:
    for each in TAKES:
        check(same, each, 413, "too_large", parts=[b" " * 300] * 2, headers=KIND)
        check(same, each, 413, "too_large", parts=[b"{}"], headers={**KIND, "Content-Length": "501"})
        check(same, each, 413, "too_large", parts=[b"{}"], headers={**KIND, "Content-Length": "9" * 30})


def test_a_body_that_is_too_slow(same: House) -> None:
    for each in TAKES:
        check(same, each, 408, "timeout", parts=[b"{}"], headers=KIND, pause=5.0)
        check(same, each, 408, "timeout", parts=[b" "] * 100, headers=KIND, pause=0.01)


GUARDED = [each for each in OPERATIONS if each.scope is not None]
LISTS = ("list_streams", "list_alarms", "listen")


def test_only_pages_and_health_are_open_to_all(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        house.make_token("read")
        for each in OPERATIONS:
            house.now += 1  # there are only so many guesses a second
            if each.scope is None:
                assert house.ask(each.method, path_of(each)).status in (200, 404)
            else:
                check(house, each, 401, "unauthorized")
        assert {each.path for each in OPERATIONS if each.scope is None} == {
            *("/", "/streams/{s}", "/page/{file:path}", "/healthz", "/readyz", "/v1/openapi.json")
        }


def test_a_token_for_something_else(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        for scope in SCOPES:
            token = house.make_token(*(each for each in SCOPES if each != scope))
            for each in GUARDED:
                if each.scope == scope:
                    check(house, each, 403, "forbidden", token=token)


def test_a_token_for_other_streams(tmp_path: Path) -> None:
    with served(tmp_path) as house:
        token = house.make_token(*SCOPES, prefix="b")
        for each in GUARDED:
            if each.does.__name__ not in LISTS:
                check(house, each, 403, "forbidden", token=token)


def test_too_many_requests(tmp_path: Path) -> None:
    with served(tmp_path, rate=0.5) as house:
        house.ask("GET", "/v1/alarms")
        for each in GUARDED:
            reply = house.ask(each.method, path_of(each), body_of(each))
            reply.refused(429, "limited")
            assert reply.headers["retry-after"] == "2"


def test_a_mistake_of_ours(tmp_path: Path) -> None:
    async def fail(desk: Any, call: Request) -> Response:
        raise ZeroDivisionError("the secret of a request")

    with served(tmp_path, operations=[msgspec.structs.replace(each, does=fail) for each in OPERATIONS]) as house:
        for each in OPERATIONS:
            check(house, each, 500, "internal", path=path_of(each) + query_of(each))
        failures = [line for line in house.lines if line["event"] == "failure"]
        assert {line["error"] for line in failures} == {"ZeroDivisionError"}
        assert [line["route"] for line in failures] == [_plain(each.path) for each in OPERATIONS]
        assert "secret" not in house.log.getvalue()


def _plain(path: str) -> str:
    return path.replace(":path}", "}")


WRITES = [each for each in OPERATIONS if each.method == "POST"]


@pytest.mark.parametrize("each", WRITES, ids=lambda each: each.path)
def test_nothing_is_written_while_the_server_stops(tmp_path: Path, each: Operation) -> None:
    with served(tmp_path) as house:
        house.writer._stopping = True
        reply = house.ask(each.method, path_of(each), body_of(each))
        reply.refused(503, "unavailable")
        assert reply.headers["retry-after"] == "1"


def test_too_many_at_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treecal.serve._http.MOST_AT_ONCE", 2)

    async def ask_all() -> list[int]:
        return [each.status for each in await asyncio.gather(*(house.asked("GET", "/v1/alarms") for _ in range(5)))]

    assert sorted(house.run(ask_all())) == [200, 200, 503, 503, 503]


def test_an_error_after_the_answer_began_ends_the_connection(tmp_path: Path) -> None:
    async def parts() -> Any:
        yield b"some"
        raise ZeroDivisionError

    async def begin(desk: Any, call: Request) -> Response:
        return Response(parts())

    with served(tmp_path, operations=[Operation(method="GET", path="/", does=begin)]) as house:
        with pytest.raises(ZeroDivisionError):  # which the server takes to close the connection
            house.ask("GET", "/")
        assert [line["event"] for line in house.lines] == ["failure", "request"]


def test_a_client_that_goes_while_it_sends_is_not_an_error(house: House) -> None:
    async def leave() -> list[Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/outcomes", "raw_path": b"/v1/outcomes"}
        more = {"query_string": b"", "headers": headers, "client": None}
        await house.app({**scope, **more}, receive, send)
        return sent

    assert house.run(leave()) == []


def test_a_websocket_is_closed(house: House) -> None:
    async def open_one() -> list[Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await house.app({"type": "websocket", "path": "/v1/events", "headers": []}, receive, send)
        return sent

    assert [each["type"] for each in house.run(open_one())] == ["websocket.close"]


def hostile() -> Iterator[Callable[[House], Any]]:
    """Requests with hostile values in bodies that have the right shape."""
    ids = ["", "x" * 201, "\n", "\x7f"]
    for name in ids:
        yield lambda house, name=name: house.ask("POST", "/v1/streams/a/forecasts", {"id": name, "p": [0.5, 0.5]})  # type: ignore[misc]
    for p in ([], [1], [1.5, -0.5], [0.5, 0.6], {"no": 1}, {"no": 0.5, "yes": 0.5, "x": 0}, [1e308, 1e308], None):
        yield lambda house, p=p: house.ask("POST", "/v1/streams/a/forecasts", {"id": "h", "p": p})  # type: ignore[misc]
    for outcome in (2, -1, "maybe", [2.0, -1.0], [], [1e308, 1e308], 2**70):
        body = {"outcomes": [{"stream": "a", "id": "r2", "outcome": outcome}]}
        yield lambda house, body=body: house.ask("POST", "/v1/outcomes", body)  # type: ignore[misc]
    for new in (
        {"name": "../x", "classes": ["a", "b"]},
        {"name": "x", "classes": ["a", "a"]},
        {"name": "x", "classes": ["a"]},
        {"name": "x"},
        {"name": "x", "set": {"name": "os.system"}},
        {"name": "x", "set": {"name": "Box", "options": {"low": 0, "high": 1, "dim": 10**9}}},
        {"name": "x", "classes": ["a", "b"], "corrector": {"name": "__class__"}},
        {"name": "x", "classes": ["a", "b"], "monitor": {"alpha": 2}},
    ):
        yield lambda house, new=new: house.ask("POST", "/v1/streams", new)  # type: ignore[misc]


@pytest.mark.parametrize("act", list(hostile()))
def test_hostile_values_are_refused(same: House, act: Callable[[House], Any]) -> None:
    act(same).refused(422, "invalid")


def test_a_number_that_json_has_not_never_gets_in(same: House) -> None:
    for number in (b"NaN", b"Infinity", b"-Infinity"):
        body = b'{"id": "h", "p": [%b, 1]}' % number
        same.ask("POST", "/v1/streams/a/forecasts", body).refused(400, "bad_json")
    same.ask("POST", "/v1/streams/a/forecasts", b'{"id": "h", "p": [1e999, 1]}').refused(422, "invalid")


def test_an_export_without_room_is_not_a_mistake_of_ours(same: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("treecal.serve._operations.reading.export", full)
    same.ask("GET", "/v1/streams/a/export").refused(503, "unavailable")
