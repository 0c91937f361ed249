"""The application: from a request to the operation it asks for, and from a refusal to one shape of error."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from treecal.serve._access import Access, Headers, Limited, headers_of
from treecal.serve._answers import JSON, Operation, Request, Response, encode, forbidden
from treecal.serve._operations import OPERATIONS, Context
from treecal.serve._refusals import Refusal, bad_json, invalid
from treecal.serve._tokens import Grant
from treecal.serve._wire import Failure, Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from treecal.serve._connections import Store
    from treecal.serve._log import Log
    from treecal.serve._metrics import Metrics
    from treecal.serve._webhooks import Webhooks
    from treecal.serve._writer import Writer

MOST_BYTES = 8 * 2**20
"""Bytes of a body."""
MOST_SECONDS = 30.0
"""Seconds in which a body must have come, and in which a client must take a part of an answer."""
MOST_AT_ONCE = 2000
"""Requests that may be answered at once."""

_SAFETY = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NOBODY = Grant(None, "", frozenset())
_MEANT = (
    (re.compile(r"/\Z"), "leave out the slash at its end."),
    (
        re.compile(r"^/v1/streams/[^/]+/outcomes?\Z"),
        "POST /v1/outcomes takes those of all streams, each with its name.",
    ),
    (re.compile(r"^/v1/forecasts?\Z"), "POST /v1/streams/{s}/forecasts takes those of stream s."),
)
"""Paths that are not, and what is meant by them."""
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def application(
    writer: Writer,
    store: Store,
    *,
    access: Access,
    log: Log,
    most_bytes: int = MOST_BYTES,
    most_seconds: float = MOST_SECONDS,
    keep: int | None = None,
    operations: Sequence[Operation] = OPERATIONS,
    webhooks: Webhooks | None = None,
) -> Starlette:
    """Return the server's application: of operations on a `Context`, whose bodies may be so long and take so long."""
    context = Context(writer, store, access, log, webhooks, keep)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        context.open()
        yield
        context.close()

    paths: dict[str, list[Operation]] = {}
    for each in operations:
        paths.setdefault(each.path, []).append(each)
    app = Starlette(
        routes=[
            _Path(path, _Endpoint(each, context, access, most_bytes, most_seconds)) for path, each in paths.items()
        ],
        middleware=[Middleware(_Front, access=access, log=log, metrics=context.metrics)],
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.router.default = _nowhere
    app.state.context = context
    return app


class _Path(Route):
    """A path; one that lacks the method leaves a request to those after it, and refuses it if there are none."""

    def __init__(self, path: str, endpoint: _Endpoint) -> None:
        super().__init__(path, endpoint, methods=endpoint.methods)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


class _Endpoint:
    """All operations of a path."""

    def __init__(
        self, operations: Iterable[Operation], context: Context, access: Access, most_bytes: int, most_seconds: float
    ) -> None:
        self._context = context
        self._access = access
        self._most_bytes = most_bytes
        self._most_seconds = most_seconds
        self._operations: dict[str, tuple[Operation, msgspec.json.Decoder[Any] | None]] = {}
        for each in operations:
            decoder = None if each.body is None else msgspec.json.Decoder(each.body)
            self._operations[each.method] = (each, decoder)
            if each.method == "GET":
                self._operations["HEAD"] = (each, decoder)
        self.methods = sorted(self._operations)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in self._operations:
            raise _NoMethod(self.methods)
        operation, decoder = self._operations[scope["method"]]
        headers = scope["treecal.headers"]
        path = scope["path_params"]
        grant = _NOBODY
        if operation.scope is not None:
            peer = scope["client"]
            grant = await self._access.grant(headers, "" if peer is None else peer[0])
            scope["treecal.token"] = grant.id
            stream = path.get("s", grant.prefix)
            if not grant.allows(operation.scope, stream):
                raise forbidden(grant, operation.scope, stream, at="path")
        query = _query(scope["query_string"], operation.query)
        body = None
        if decoder is not None:
            check_type(headers)
            body = _decoded(await _received(receive, headers, self._most_bytes, self._most_seconds), decoder)
        found = await operation.does(self._context, Request(grant, path, query, body, headers))
        answer = found if isinstance(found, Response) else Response(encode(found))
        if isinstance(answer.body, bytes):
            await _send(send, answer, scope["method"])
        else:
            await _stream(receive, send, answer, answer.body, scope["method"], self._most_seconds)


class _NoMethod(Refusal):
    def __init__(self, methods: list[str]) -> None:
        super().__init__("method", "the path has no such method.", hint=f"use {' or '.join(methods)}.")
        self.methods = methods


def check_type(headers: Headers) -> None:
    """Refuse a body that is not declared to be JSON, as what a form sends is not.

    Examples
    --------
    >>> check_type({b"content-type": b"application/json; charset=utf-8"})
    """
    kind, _, detail = headers.get(b"content-type", b"").lower().partition(b";")
    charset = detail.strip().removeprefix(b"charset=").strip(b'"')
    if kind.strip() != JSON or charset not in (b"", b"utf-8"):
        raise Refusal("media_type", "expected JSON.", hint="send Content-Type: application/json.", at="content-type")
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise Refusal("media_type", "expected a body without an encoding.", at="content-encoding")


async def _received(receive: Receive, headers: Headers, most: int, seconds: float) -> bytes:
    """Return the body, or refuse one that is too long, whether it says so or not, or too slow."""
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 18 or int(length) > most:
        raise _too_large(most)
    parts = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                part = message.get("body", b"")
                size += len(part)
                if size > most:
                    raise _too_large(most)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Refusal("timeout", f"the body did not come within {seconds:g} seconds.") from None


def _too_large(most: int) -> Refusal:
    return Refusal("too_large", f"the body has more than {most:,} bytes.", hint="send it in parts.")


class Gone(Exception):  # noqa: N818 # nobody is left to answer
    """The client has gone."""


def _decoded(raw: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    if b"\\u0000" in raw and _NUL.search(raw):  # PostgreSQL has no text with it
        raise Refusal("invalid", "a text has a NUL character.", hint="leave out \\u0000.")
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise invalid(error, decoder.type) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_json(error, raw) from None


def _query(text: bytes, kind: type[Struct]) -> Any:
    """Return the query of a path, or refuse one with a name that is not known, or is there twice."""
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError:
        hint = "write it as name=value&name=value, in UTF-8."
        raise Refusal("invalid", "the query cannot be read.", hint=hint, at="query") from None
    given = dict(pairs)
    if len(given) < len(pairs) or any("\0" in value for value in given.values()):
        raise Refusal("invalid", "the query has a name twice, or a NUL character.", at="query")
    try:
        found = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error, kind) from None
    for name in found.__struct_fields__:
        value = getattr(found, name)
        if isinstance(value, float) and not math.isfinite(value):
            raise Refusal("invalid", f"{name} is {value}, expected a number.", at=name)
    return found


async def _send(send: Send, answer: Response, method: str) -> None:
    body = answer.body
    assert isinstance(body, bytes)
    headers = [(b"content-type", answer.kind), (b"content-length", b"%d" % len(body)), *answer.headers]
    if answer.status == 304:
        del headers[1]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


async def _stream(
    receive: Receive, send: Send, answer: Response, parts: AsyncGenerator[bytes, None], method: str, seconds: float
) -> None:
    """Send an answer in parts, until it ends or the client goes."""

    async def tell() -> None:
        async with aclosing(parts):
            if method == "HEAD":
                await anext(parts, None)  # what was not begun is not closed
            else:
                async for part in parts:
                    try:
                        async with asyncio.timeout(seconds):
                            await send({"type": "http.response.body", "body": part, "more_body": True})
                    except TimeoutError:
                        raise Gone from None  # one that reads nothing is left behind
        await send({"type": "http.response.body", "body": b""})

    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    headers = [(b"content-type", answer.kind), *answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    tasks = [asyncio.ensure_future(tell()), asyncio.ensure_future(leave())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping = tasks[0].done()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if stopping:
        tasks[0].result()


def failure(refusal: Refusal) -> Response:
    """Return a refusal as it is sent.

    Examples
    --------
    >>> failure(Refusal("not_found", "there is no such stream.", at="path")).body
    b'{"error":{"code":"not_found","message":"there is no such stream.","at":"path"}}'
    """
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if isinstance(refusal, _NoMethod):
        headers = ((b"allow", ", ".join(refusal.methods).encode()),)
    elif refusal.code == "unauthorized":
        headers = ((b"www-authenticate", b'Bearer realm="treecal"'),)
    elif refusal.code in ("limited", "unavailable"):
        wait = refusal.wait if isinstance(refusal, Limited) else 1.0
        headers = ((b"retry-after", b"%d" % math.ceil(wait)),)
    elif refusal.code == "timeout":
        headers = ((b"connection", b"close"),)
    problem = Problem(refusal.code, refusal.message, refusal.hint, refusal.at)
    return Response(encode(Failure(problem)), refusal.status, headers=headers)


class _Front:
    """What every request passes first: where it comes from, what became of it, and headers for browsers."""

    def __init__(self, app: ASGIApp, *, access: Access, log: Log, metrics: Metrics) -> None:
        self._app = app
        self._access = access
        self._log = log
        self._metrics = metrics
        self._at_once = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def forward(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name for name, _ in message["headers"]}
                message["headers"] += [pair for pair in _SAFETY if pair[0] not in own]
            await send(message)

        method = scope["method"]
        self._at_once += 1
        try:
            try:
                await self._enter(scope, receive, forward)
            except Refusal as refusal:
                if status:
                    raise
                await _send(forward, failure(refusal), method)
        except Gone:
            status = status or 499  # as others write it in their logs: nobody waits for an answer
        except Exception as error:
            self._log.failure(error, route=_route(scope))
            if status:
                raise  # the answer has begun: all that is left is to end the connection
            await _send(forward, failure(Refusal("internal", "the server failed.", hint="its log says where.")), method)
        finally:
            self._at_once -= 1
            seconds = time.perf_counter() - started
            route = _route(scope)
            method = method if method in _METHODS else "other"
            self._metrics.count(route, method, status, seconds)
            self._log.request(method, route, status, seconds, scope.get("treecal.token"))

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["treecal.headers"] = headers_of(scope["headers"])
        self._access.check_source(scope["method"], headers)
        if self._at_once > MOST_AT_ONCE:
            raise Refusal("unavailable", "too many requests at once.", hint="try again soon.")
        if b"%" in scope["raw_path"] and _is_odd(scope["raw_path"], scope["path"]):
            raise Refusal("not_found", "there is nothing at this path.", at="path")
        await self._app(scope, receive, send)


def _route(scope: Scope) -> str:
    route = scope.get("route")
    return route.path_format if isinstance(route, Route) else "none"


def _is_odd(raw: bytes, path: str) -> bool:
    """Return whether a path has an escaped slash, but for the id of a forecast, which may be any text; or a NUL.

    Examples
    --------
    >>> _is_odd(b"/v1/streams/a%2Fpending", "/v1/streams/a/pending")
    True
    >>> _is_odd(b"/v1/streams/a/forecasts/2026%2F01", "/v1/streams/a/forecasts/2026/01")
    False
    """
    return b"%2f" in raw.partition(b"/forecasts/")[0].lower() or "\0" in path or "\ufffd" in path


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    hint = next((hint for path, hint in _MEANT if path.search(scope["path"])), "GET /v1/openapi.json lists the paths.")
    raise Refusal("not_found", "there is nothing at this path.", hint=hint, at="path")
