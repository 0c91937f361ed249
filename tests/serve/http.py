"""The application without a network: a request is a call, whatever its path, headers and parts are."""

from __future__ import annotations

import asyncio
import io
import json as jsons
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

import msgspec

from treecal.serve import _tokens as tokens
from treecal.serve._access import Access
from treecal.serve._connections import open_store
from treecal.serve._http import application
from treecal.serve._log import Log
from treecal.serve._wire import Failure
from treecal.serve._writer import Writer


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return jsons.loads(self.body)

    def refused(self, status: int, code: str) -> Failure:
        """Assert that this is an error, in the one shape that errors have."""
        assert self.status == status, self
        assert self.headers["content-type"] == "application/json"
        found = msgspec.json.decode(self.body, type=Failure)
        assert msgspec.json.encode(found) == self.body  # and nothing besides
        assert found.error.code == code, found
        assert found.error.message
        assert "Traceback" not in found.error.message
        return found


class House:
    """A server on books of its own."""

    def __init__(self, writer: Writer, data: str, **options: Any) -> None:
        self.now = 1000.0
        self.log = io.StringIO()
        self._writing = Log(self.log)
        passed = ("most_bytes", "most_seconds", "operations", "webhooks")
        limits = {name: options.pop(name) for name in passed if name in options}
        self.access = Access(clock=lambda: self.now, **options)
        self.writer, self.data = writer, data
        self.app = application(writer, open_store(data), access=self.access, log=self._writing, **limits)
        self._runner = asyncio.Runner()
        self.token: str | None = None

    @property
    def context(self) -> Any:
        return self.app.state.context

    @property
    def lines(self) -> list[Any]:
        self._writing.flush()
        return [jsons.loads(line) for line in self.log.getvalue().splitlines()]

    def __enter__(self) -> Self:
        self._writing.__enter__()
        self._runner.__enter__()
        self._life = self._runner.run(self._started())
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._life.__aexit__(None, None, None))
        self._runner.__exit__(None, None, None)
        self._writing.__exit__(None, None, None)

    async def _started(self) -> Any:
        life = self.app.router.lifespan_context(self.app)
        await life.__aenter__()
        return life

    def run(self, work: Any) -> Any:
        """Run a coroutine in the server's loop."""
        return self._runner.run(work)

    def make_token(self, *scopes: str, prefix: str = "", days: float | None = None, made: float = 0.0) -> str:
        """Make a token, as the command does beside a running server; the server knows it a second later."""
        text, token = tokens.make_token("test", prefix=prefix, scopes=scopes, now=made, days=days)
        with open_store(self.data, beside=True) as store:
            tokens.add_token(store, token)
        self.now += 2
        return text

    def revoke(self, text: str) -> None:
        with open_store(self.data, beside=True) as store:
            tokens.revoke_token(store, str(tokens.id_of(text)), now=1.0)
        self.now += 2

    def ask(self, method: str, path: str, json: Any = None, **more: Any) -> Reply:
        return self.run(self.asked(method, path, json, **more))  # type: ignore[no-any-return]

    async def asked(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        parts: Sequence[bytes] | None = None,
        headers: dict[str, str] | Sequence[tuple[str, str]] = (),
        pause: float = 0.0,
        token: str | None = None,
        leave: bool = False,
    ) -> Reply:
        """Send a request, its body in parts, and return the answer, or as much as there is at once."""
        if json is not None:
            parts = [json if isinstance(json, bytes) else msgspec.json.encode(json)]
        given = list(headers.items()) if isinstance(headers, dict) else list(headers)
        names = {name.lower() for name, _ in given}
        if "host" not in names:
            given.append(("Host", "127.0.0.1:8000"))
        if json is not None and "content-type" not in names:
            given.append(("Content-Type", "application/json"))
        if (token or self.token) is not None:
            given.append(("Authorization", f"Bearer {token or self.token}"))
        raw, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(raw),
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given],
            "client": ("127.0.0.1", 1),
        }
        waiting, answered = list(parts or [b""]), asyncio.Event()

        async def receive() -> Any:
            if waiting:
                await asyncio.sleep(pause)
                part = waiting.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(waiting)}
            if not leave:
                await answered.wait()
            return {"type": "http.disconnect"}

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                answered.set()

        await self.app(scope, receive, send)
        start, *bodies = sent
        return Reply(
            start["status"],
            {name.decode(): value.decode() for name, value in start["headers"]},
            b"".join(each["body"] for each in bodies),
        )


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[House]:
    """Serve books in a folder."""
    data = str(folder / "books.sqlite")
    with Writer(open_store(data)) as writer, House(writer, data, **options) as house:
        yield house


NEW = {"name": "a", "classes": ["no", "yes"], "tags": ["city"]}


def fill(house: House, *, rounds: int = 3) -> None:
    """Create stream a, with rounds r0, r1, ..., of which the first but one have outcomes."""
    assert house.ask("POST", "/v1/streams", NEW).status == 201
    some = [{"id": f"r{i}", "p": [0.5, 0.5], "tags": {"city": "Oslo"}} for i in range(rounds)]
    assert house.ask("POST", "/v1/streams/a/forecasts/batch", {"forecasts": some}).status == 200
    came = [{"stream": "a", "id": f"r{i}", "outcome": "yes"} for i in range(rounds - 1)]
    assert house.ask("POST", "/v1/outcomes", {"outcomes": came}).json["counts"] == {"learned": rounds - 1}
