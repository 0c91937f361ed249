"""What the server does: the table of its operations, from which its routes and its OpenAPI document are made."""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

from msgspec import Meta, Struct

from treecal.serve import _reading as reading, _wire as wire
from treecal.serve._answers import Does, Operation, Request, Response, encode
from treecal.serve._connections import Readers
from treecal.serve._events import Hub
from treecal.serve._metrics import MOST_STREAMS, Metrics
from treecal.serve._openapi import document
from treecal.serve._page import Page
from treecal.serve._player import Player, rehearse
from treecal.serve._refusals import Refusal
from treecal.serve._replay import Taught, teach
from treecal.serve._tokens import tokens_of
from treecal.serve._warm import set_aside, warm_up

if TYPE_CHECKING:
    from treecal.serve._access import Access
    from treecal.serve._books import Books
    from treecal.serve._connections import Reader, Store
    from treecal.serve._log import Log
    from treecal.serve._metrics import Series
    from treecal.serve._replay import StreamRow
    from treecal.serve._webhooks import Webhooks
    from treecal.serve._writer import Writer

T = TypeVar("T")
_PART = 2**16  # bytes of an export that are read at once
_ALARMS = 1000
_MINUTE = 60.0  # seconds between looks for rows that are to be deleted
_BREATH = 0.01  # seconds between two steps
MANY = 100
"""Rows of a request that takes long: others go before it."""
PART = 0.03
"""Seconds that a part of many outcomes should take: others come in between, however long a corrector takes."""


class Context:
    """All that operations need: what acts on the books, and where they are; who is let in; the log.

    And what sends alarms, if there are receivers; and the days for which rounds are kept, of streams that do not say so
    themselves, for ever by default.
    """

    def __init__(
        self,
        writer: Writer,
        store: Store,
        access: Access,
        log: Log,
        webhooks: Webhooks | None = None,
        keep: int | None = None,
    ) -> None:
        self.writer = writer
        self.access = access
        self.log = log
        self.webhooks = webhooks
        self.keep = keep
        self.hub = Hub()
        self.metrics = Metrics()
        self.page = Page()
        self._store = store
        self._verdicts = reading.Verdicts()
        self._beating = asyncio.Lock()
        self._next_beat = 0.0
        self._problem: Refusal | None = None

    def open(self) -> None:
        """Begin, in the loop that is running."""
        self.read = Readers(self._store)
        self.study = Readers(self._store)  # what takes long: others do not wait for it
        self._tokens = Readers(self._store, threads=1)  # nobody waits at the door for somebody else's scores
        self.access.read_by(
            lambda: self._tokens(tokens_of),
            lambda rows: self.writer.submit(lambda books: books.store.run("use_token", rows)),
        )
        self.hub.open()
        self.writer.listeners.append(self.hub.publish)
        self.untidy = asyncio.Event()
        self._tidying = asyncio.get_running_loop().create_task(self._tidy())

    def close(self) -> None:
        """End."""
        self._tidying.cancel()
        self.access.write_use()
        self.hub.close()
        self.read.close()
        self.study.close()
        self._tokens.close()

    async def write(self, act: Callable[[Books], T], *, rows: int = 1) -> T:
        """Let a function act on so many rows of the books; return its result once that is durable."""
        return await asyncio.wrap_future(self.writer.submit(act, long=rows >= MANY))

    async def _tidy(self) -> None:
        """Delete what is to be deleted, a step at a time, so that others are answered in between."""
        pause = _MINUTE
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.untidy.wait()
            self.untidy.clear()
            pause = _MINUTE
            try:
                if await self.write(lambda books: books.tidy(self.keep), rows=MANY):
                    pause = _BREATH
            except Refusal:  # whoever runs the server has heard of it
                pass
            except Exception as error:
                self.log.failure(error, route="tidy")

    async def beat(self) -> None:
        """Refuse if the books cannot be written, or could not a moment ago."""
        async with self._beating:
            if time.monotonic() >= self._next_beat:
                self._next_beat = time.monotonic() + 1.0
                try:
                    await self.write(lambda books: books.beat())
                    self._problem = None
                except Refusal as refusal:
                    self._problem = refusal
        if self._problem is not None or self.writer.failure is not None:
            hint = "start the server again; its log says why."
            raise self._problem or Refusal("unavailable", "the books failed.", hint=hint)

    async def look(self, act: Callable[[Books], T]) -> T:
        """Return what a function sees in the books."""
        return await asyncio.wrap_future(self.writer.read(act))

    async def kept(self, call: Request) -> StreamRow:
        """Return the stream in the path, as its row says."""
        return await self.look(lambda books: books.kept(call.stream))

    async def shown(self, name: str) -> wire.Stream:
        """Return how a stream stands."""
        picture = await self.look(lambda books: books.picture(name))
        return await self.read(lambda reader: reading.stream(picture, reader, time.time(), self._verdicts))

    @cached_property
    def openapi(self) -> bytes:
        """The OpenAPI document."""
        return encode(document(OPERATIONS))


OPERATIONS: list[Operation] = []
"""In the order in which they are looked for: `/forecasts/batch` comes before the ids."""
_S = "/v1/streams/{s}"
_HTML = "text/html; charset=utf-8"


def operation(method: str, path: str, *, gives: Any = None, **more: Any) -> Callable[[Does], Does]:
    """Add what a function does to the table: a line of its docstring describes it, and its type what it gives."""

    def add(does: Does) -> Does:
        kind = get_type_hints(does)["return"] if gives is None else gives
        OPERATIONS.append(Operation(method=method, path=path, does=does, gives=kind, **more))
        return does

    return add


# Streams

Limit = Annotated[int, Meta(ge=1, le=1000)]
Time = Annotated[float, Meta(ge=-wire.FAR, le=wire.FAR)]


class ListQuery(wire.Strict, frozen=True):
    """Which streams.

    after: Those whose names come after this one.
    limit: How many at most.
    archived: Whether to list archived ones too.
    prefix: Those whose names start with this.
    """

    after: Annotated[str, Meta(max_length=128)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    archived: bool = False
    prefix: Annotated[str, Meta(max_length=128)] = ""


@operation("GET", "/v1/streams", scope="read", query=ListQuery)
async def list_streams(context: Context, call: Request) -> wire.Streams:
    """List streams, by name."""
    query: ListQuery = call.query

    def find(books: Books) -> list[str]:
        found = (
            name
            for name in books.names(after=query.after, prefix=max(query.prefix, call.grant.prefix, key=len))
            if name.startswith(query.prefix)
            and call.grant.allows("read", name)
            and (query.archived or books.kept(name).archived is None)
        )
        return list(islice(found, query.limit + 1))

    names = await context.look(find)
    some = names[: query.limit]
    streams = [await context.shown(name) for name in some]  # one by one: writers come in between
    return wire.Streams(streams, some[-1] if len(names) > len(some) else None)


@operation(
    "POST",
    "/v1/streams",
    scope="admin",
    body=wire.NewStream,
    gives=wire.Stream,
    statuses=(200, 201),
    codes=("conflict",),
)
async def create_stream(context: Context, call: Request) -> Response:
    """Create a stream."""
    new: wire.NewStream = call.body
    call.need("admin", new.name, at="name")
    if await asyncio.to_thread(warm_up, [new]):  # beside the writer, which has others to serve
        await asyncio.to_thread(set_aside)
    name, is_new = await context.write(lambda books: books.create(new))
    return Response(encode(await context.shown(name)), 201 if is_new else 200)


@operation("GET", _S, scope="read")
async def show_stream(context: Context, call: Request) -> wire.Stream:
    """Show a stream."""
    return await context.shown(call.stream)


@operation("PATCH", _S, scope="admin", body=wire.StreamChange)
async def change_stream(context: Context, call: Request) -> wire.Stream:
    """Change settings; a new corrector learns from the log before it announces."""
    changes: wire.StreamChange = call.body
    if changes == wire.StreamChange():
        hint = f"there are {', '.join(changes.__struct_fields__)}."
        raise Refusal("invalid", "no setting is given.", hint=hint)
    kept = await context.kept(call)
    taught = None
    if changes.relearn:
        config = changes.of(kept.config)
        if await asyncio.to_thread(warm_up, [config]):
            await asyncio.to_thread(set_aside)
        await asyncio.to_thread(rehearse, config)
        picture = await context.look(lambda books: books.picture(kept.name))
        fresh = Taught(Player(config), (picture.kept.stream, picture.counts.deleted))
        taught = await context.study(lambda reader: teach(reader, picture.kept.stream, fresh, picture.arrivals))
    await context.write(lambda books: books.change(kept.name, changes, taught))
    return await context.shown(kept.name)


@operation("DELETE", _S, scope="delete")
async def delete_stream(context: Context, call: Request) -> wire.Deleted:
    """Delete the stream with all that is kept of it."""
    counts = (await context.look(lambda books: books.picture(call.stream))).counts
    await context.write(lambda books: books.delete(call.stream))
    context.untidy.set()
    return wire.Deleted(counts.forecasts)


@operation("POST", f"{_S}/archive", scope="admin")
async def archive_stream(context: Context, call: Request) -> wire.Stream:
    """Archive the stream: it rejects new forecasts and still accepts outcomes of pending ones."""
    await context.write(lambda books: books.archive(call.stream))
    return await context.shown(call.stream)


@operation("POST", f"{_S}/reset", scope="admin")
async def reset_stream(context: Context, call: Request) -> wire.Stream:
    """Reset the monitors after an alarm has been handled."""
    await context.write(lambda books: books.reset(call.stream))
    return await context.shown(call.stream)


# Forecasts and outcomes


@operation(
    "POST",
    f"{_S}/forecasts",
    scope="forecast",
    body=wire.NewForecast,
    codes=("conflict", "archived"),
)
async def announce(context: Context, call: Request) -> wire.Announced:
    """Announce a forecast; the same body again has the same answer."""
    name = call.path["s"]
    new = call.body
    (announced,) = await context.write(lambda books: books.forecast(name, [new]))
    return announced


@operation(
    "POST",
    f"{_S}/forecasts/batch",
    scope="forecast",
    body=wire.NewForecasts,
    codes=("conflict", "archived"),
)
async def announce_batch(context: Context, call: Request) -> wire.Announcements:
    """Announce many forecasts: all of them or none."""
    name = call.path["s"]
    new = call.body.forecasts
    return wire.Announcements(await context.write(lambda books: books.forecast(name, new), rows=len(new)))


class TagQuery(wire.Strict, frozen=True):
    """Which forecasts.

    tag: The name of a tag.
    value: Those with this value of it.
    """

    tag: Annotated[str, Meta(max_length=128)]
    value: Annotated[str, Meta(max_length=200)]


@operation("DELETE", f"{_S}/forecasts", scope="delete", query=TagQuery)
async def delete_forecasts(context: Context, call: Request) -> wire.Deleted:
    """Delete the forecasts that have a tag with a value, with all that is known of them."""
    query: TagQuery = call.query
    kept = await context.kept(call)
    if query.tag in kept.config.group:
        problem = f"the stream learns by the tag {query.tag!r}, and what it has learned has its values as names."
        hint = "delete the stream; a tag that names a person is no group."
        raise Refusal("invalid", problem, hint=hint, at="tag")
    count = 0
    after: int | None = 0
    while after is not None:
        begin = after
        found, after = await context.study(lambda reader: reading.tagged(kept, reader, query.tag, query.value, begin))  # noqa: B023
        erased = await context.write(lambda books: books.erase(kept.name, found, stream=kept.stream), rows=MANY)  # noqa: B023
        count += erased
    return wire.Deleted(count)


@operation("DELETE", f"{_S}/forecasts/{{id:path}}", scope="delete")
async def delete_forecast(context: Context, call: Request) -> wire.Deleted:
    """Delete a forecast, with all that is known of it."""
    name = call.stream
    named = call.path["id"]
    return wire.Deleted(await context.write(lambda books: books.erase_named(name, named)))


@operation("GET", f"{_S}/forecasts/{{id:path}}", scope="read")
async def show_record(context: Context, call: Request) -> wire.Record:
    """Show all that is known of a round."""
    named = call.path["id"]
    kept = await context.kept(call)
    return await context.read(lambda reader: reading.record(kept, reader, named))


@operation("POST", "/v1/outcomes", scope="outcome", body=wire.NewOutcomes)
async def settle(context: Context, call: Request) -> wire.Settlements:
    """Take outcomes, and say what became of each."""
    new: list[wire.NewOutcome] = call.body.outcomes
    for i, each in enumerate(new):
        call.need("outcome", each.stream, at=f"outcomes[{i}].stream")
    if len(new) <= MANY:
        settled = await context.write(lambda books: books.settle(new), rows=len(new))
    else:
        settled = await _settle_in_parts(context, new)
    return wire.Settlements(settled, dict(Counter(each.status for each in settled)))


async def _settle_in_parts(context: Context, new: list[wire.NewOutcome]) -> list[wire.Settled]:
    """Take many outcomes, all of which are valid before the first is learned."""

    def settle(books: Books, part: list[wire.NewOutcome]) -> tuple[list[wire.Settled], float]:
        begin = time.perf_counter()
        return books.settle(part), time.perf_counter() - begin

    await context.look(lambda books: books.check(new))
    settled: list[wire.Settled] = []
    rows = MANY
    while len(settled) < len(new):
        part = new[len(settled) : len(settled) + rows]
        found, seconds = await context.write(lambda books: settle(books, part), rows=MANY)  # noqa: B023
        settled += found
        rows = max(1, int(rows * min(4.0, PART / max(seconds, 1e-9))))
    return settled


class PendingQuery(wire.Strict, frozen=True):
    """Which rounds.

    overdue: Only those whose outcomes are overdue.
    after: Those after this round.
    limit: How many at most.
    """

    overdue: bool = False
    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Limit = 100


@operation("GET", f"{_S}/pending", scope="read", query=PendingQuery)
async def list_pending(context: Context, call: Request) -> wire.Pending:
    """List rounds that await their outcomes, the oldest first."""
    query: PendingQuery = call.query
    kept = await context.kept(call)

    def find(reader: Reader) -> wire.Pending:
        return reading.pending(
            kept, reader, overdue=query.overdue, after=query.after, limit=query.limit, now=time.time()
        )

    return await context.read(find)


# What is read


class ScoresQuery(wire.Strict, frozen=True):
    """Which rounds, and how they are grouped.

    by: A tag, or `time`; without it there are no groups.
    window: The length of windows of time.
    since: Outcomes that arrived at this time or later.
    until: Outcomes that arrived before this time.
    last: So many of the latest outcomes at most.
    """

    by: Annotated[str, Meta(max_length=128)] | None = None
    window: Literal["minute", "hour", "day", "week", "month"] = "day"
    since: Time | None = None
    until: Time | None = None
    last: Annotated[int, Meta(ge=1, le=reading.MOST_LAST)] = reading.LAST


@operation("GET", f"{_S}/scores", scope="read", query=ScoresQuery)
async def show_scores(context: Context, call: Request) -> wire.Scores:
    """Show errors, reliability and scores, by a tag or by time."""
    query: ScoresQuery = call.query
    kept, of = await context.look(lambda books: (books.kept(call.stream), books.player(call.stream).learned))

    def find(reader: Reader) -> wire.Scores:
        since, until = _between(query.since, query.until)
        return reading.scores(
            kept, reader, of=of, by=query.by, window=query.window, since=since, until=until, last=query.last
        )

    return await context.study(find)


@operation("GET", f"{_S}/curve", scope="read")
async def show_curve(context: Context, call: Request) -> wire.Curve:
    """Show the error over time with its guarantee, and the evidence."""
    return reading.curve(await context.look(lambda books: books.picture(call.stream)))


class ExportQuery(wire.Strict, frozen=True):
    """Which rounds.

    since: Outcomes that arrived at this time or later.
    until: Outcomes that arrived before this time.
    """

    since: Time | None = None
    until: Time | None = None


@operation("GET", f"{_S}/export", scope="read", query=ExportQuery, gives="application/vnd.apache.parquet")
async def export(context: Context, call: Request) -> Response:
    """Export rounds with their outcomes, for `treecal audit`."""
    query: ExportQuery = call.query
    kept = await context.kept(call)
    content = tempfile.TemporaryFile()  # noqa: SIM115 # closed when it is sent

    def write(reader: Reader) -> int:
        since, until = _between(query.since, query.until)
        return reading.export(kept, reader, content, since=since, until=until)

    try:
        await context.study(write)
        content.seek(0)
    except BaseException as error:
        content.close()
        if isinstance(error, OSError):
            raise Refusal("unavailable", "there is no room to write the file.", hint="try again later.") from None
        raise

    async def parts() -> AsyncGenerator[bytes, None]:
        with content:
            while part := await asyncio.to_thread(content.read, _PART):
                yield part

    name = b'attachment; filename="%b.parquet"' % kept.name.encode()
    return Response(parts(), kind=b"application/vnd.apache.parquet", headers=((b"content-disposition", name),))


def _between(since: float | None, until: float | None) -> tuple[float, float]:
    return -math.inf if since is None else since, math.inf if until is None else until


class StreamQuery(wire.Strict, frozen=True):
    """Which streams.

    stream: Only this one; without it, all that the token may read.
    """

    stream: Annotated[str, Meta(max_length=128)] | None = None


@operation("GET", "/v1/alarms", scope="read", query=StreamQuery, codes=("not_found",))
async def list_alarms(context: Context, call: Request) -> wire.Alarms:
    """List alarms, the latest first."""
    only = _only(call)
    prefix = call.grant.prefix
    kept = None if only is None else await context.look(lambda books: books.kept(only))
    return await context.read(lambda reader: reading.alarms(reader, prefix, kept, _ALARMS))


@operation("GET", "/v1/webhooks", scope="admin")
async def list_webhooks(context: Context, call: Request) -> wire.Webhooks:
    """List webhooks, and how sending alarms goes."""
    if call.grant.prefix:
        raise Refusal("forbidden", "webhooks are of all streams, and the token is for some.", at="authorization")
    return wire.Webhooks(await _webhooks(context))


async def _webhooks(context: Context) -> list[wire.Webhook]:
    pending: dict[str, int] = dict(await context.read(lambda reader: reader.query("count_deliveries")))
    found = []
    if context.webhooks is not None:
        for name, receiver in context.webhooks.receivers.items():
            course = context.webhooks.courses[name]
            count = pending.pop(name, 0)
            found.append(wire.Webhook(name, receiver.origin, list(receiver.streams), count, **asdict(course)))
    return found + [wire.Webhook(name, None, [], count) for name, count in pending.items()]


@operation("GET", "/v1/events", scope="read", query=StreamQuery, gives="text/event-stream", codes=("not_found",))
async def listen(context: Context, call: Request) -> Response:
    """Listen to events: forecast, outcome, alarm, stream."""
    only = _only(call)
    grant = call.grant
    if only is not None:
        await context.look(lambda books: books.kept(only))
    heard = context.hub.listen(
        lambda name: grant.allows("read", name) and only in (None, name), lambda: context.access.holds(grant)
    )
    return Response(heard, kind=b"text/event-stream", headers=((b"x-accel-buffering", b"no"),))


def _only(call: Request) -> str | None:
    name: str | None = call.query.stream
    if name is not None:
        call.need("read", name, at="stream")
    return name


# The server itself


@operation("GET", "/v1/openapi.json", gives="application/json")
async def openapi(context: Context, call: Request) -> Response:
    """Return this document."""
    return Response(context.openapi)


_OF_STREAMS = {
    "forecasts": "Forecasts announced.",
    "learned": "Outcomes learned.",
    "deleted": "Forecasts deleted, which the other counts have, too.",
    "late": "Outcomes that arrived too late.",
    "void": "Rounds given up.",
    "pending": "Rounds that await their outcomes.",
}
_OF_WEBHOOKS = {
    "pending": "Alarms that a receiver has not taken yet.",
    "delivered": "Alarms that a receiver took since the start.",
    "failed": "Attempts since the start that a receiver did not take.",
}


@operation("GET", "/metrics", scope="read", gives="text/plain; version=0.0.4; charset=utf-8")
async def metrics(context: Context, call: Request) -> Response:
    """Counts, for Prometheus."""
    if call.grant.prefix:
        raise Refusal("forbidden", "the counts are of all streams, and the token is for some.", at="authorization")
    names = await context.look(lambda books: books.names())
    shown = [await context.look(lambda books, name=name: books.picture(name)) for name in names[:MOST_STREAMS]]  # type: ignore[misc]
    webhooks = await _webhooks(context)
    broken = context.writer.failure is not None or context.writer.trouble

    gauges: dict[str, tuple[str, Series]] = {
        "treecal_streams": ("Streams.", [((), len(names))]),
        "treecal_streams_left_out": ("Streams without series of their own.", [((), len(names) - len(shown))]),
        "treecal_queue": ("Requests that wait for the writer.", [((), context.writer.waiting)]),
        "treecal_listeners": ("Clients that listen to events.", [((), context.hub.clients)]),
        "treecal_broken": ("1 if the books cannot be written.", [((), float(broken))]),
    }
    for field, about in _OF_STREAMS.items():
        gauges[f"treecal_{field}"] = (
            about,
            [((("stream", each.kept.name),), getattr(each.counts, field)) for each in shown],
        )
    for field, about in _OF_WEBHOOKS.items():
        gauges[f"treecal_webhook_{field}"] = (
            about,
            [((("webhook", each.name),), getattr(each, field)) for each in webhooks],
        )
    standings = [
        ((("stream", each.kept.name), ("of", of)), standing) for each in shown for of, standing in each.monitors.items()
    ]
    gauges["treecal_evidence"] = (
        "Where a monitor stands, as a share of its threshold: an alarm is raised at 1.",
        [(labels, standing.value / standing.threshold) for labels, standing in standings],
    )
    gauges["treecal_alarmed"] = (
        "1 if a monitor has raised an alarm.",
        [(labels, float(standing.alarm is not None)) for labels, standing in standings],
    )
    return Response(
        context.metrics.text(gauges, dropped=context.log.dropped).encode(),
        kind=b"text/plain; version=0.0.4; charset=utf-8",
    )


class Health(Struct, frozen=True):
    """The server runs."""

    ok: bool = True


@operation("GET", "/healthz")
async def healthz(context: Context, call: Request) -> Health:
    """Whether the server runs."""
    return Health()


@operation("GET", "/readyz")
async def readyz(context: Context, call: Request) -> Health:
    """Whether the books can be written."""
    await context.beat()
    return Health()


@operation("GET", "/", gives=_HTML, codes=("not_found",))
async def index(context: Context, call: Request) -> Response:
    """The page."""
    return context.page.file("index.html", call.headers)


@operation("GET", "/streams/{s}", gives=_HTML)
async def page_of_stream(context: Context, call: Request) -> Response:
    """The page of a stream."""
    return context.page.file("index.html", call.headers)


@operation("GET", "/page/{file:path}", gives="*/*")
async def page_file(context: Context, call: Request) -> Response:
    """A file of the page."""
    return context.page.file(call.path["file"], call.headers)
