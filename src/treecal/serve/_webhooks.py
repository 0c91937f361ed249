"""Webhooks: alarms are posted to receivers that the operator configured, each until its receiver has taken it.

What is owed to receivers is in the books, written in the transaction of the alarm: it survives what outcomes survive. A
thread with an event loop of its own sends it, so that no answer of the server waits for a receiver. Messages are signed
and named as in https://www.standardwebhooks.com; they arrive at least once, and those of one stream in order.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import random
import re
import ssl
import time
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import blake2b
from threading import Event as Gate, Thread
from typing import NamedTuple, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from treecal.exceptions import ParameterError
from treecal.serve._books import Books, Event, wire_alarm
from treecal.serve._refusals import Refusal
from treecal.serve._settings import Hook
from treecal.serve._store import Row
from treecal.serve._writer import Writer

T = TypeVar("T")
SECONDS = 10.0
"""Seconds in which a receiver must have answered."""
_HEAD = 2**14  # bytes of the head of an answer; its body is not read
_AT_ONCE = 4  # messages under way to one receiver, each of another stream
_FIRST, _LONGEST = 1.0, 300.0  # seconds between attempts
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_ADDRESS = re.compile(r"https?://[!-~]+\Z")
_KEY = (24, 64)  # bytes of a secret, at least and at most
log = logging.getLogger("treecal.serve")


@dataclass(frozen=True)
class Receiver:
    """Where alarms are sent, of which streams, and with which keys they are signed.

    Parameters
    ----------
    name
        By which logs, metrics and the books call it.
    url
        Where to post to. Nothing else is ever asked: redirects are not followed.
    secrets
        Texts that begin with `whsec_`, as many as there are: messages are signed with each, so that a new one can take
        the place of an old one.
    streams
        Names of streams; `*` stands for any letters.

    Examples
    --------
    >>> receiver = Receiver("oncall", "https://example.org/alarms?team=1", ("whsec_" + 32 * "A",), ("shop-*", "rain"))
    >>> receiver.wants("shop-1"), receiver.wants("rain"), receiver.wants("rain-2")
    (True, True, False)
    >>> receiver.origin
    'https://example.org'
    """

    name: str
    url: str
    secrets: tuple[str, ...]
    streams: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        if not _ADDRESS.match(self.url) or not _is_address(self._parts):
            raise ParameterError(  # without the address: it may have a secret
                f"the url of webhook {self.name} is not an address to post to.",
                hint="such as https://example.org/alarms, without a user name.",
            )
        if not self.secrets or not all(_is_secret(each) for each in self.secrets):
            raise ParameterError(
                f"the secret of webhook {self.name} is not whsec_ and {_KEY[0]} to {_KEY[1]} bytes in base64.",
                hint='`echo "whsec_$(openssl rand -base64 32)"` makes one.',
            )

    def wants(self, stream: str) -> bool:
        """Return whether it is sent the alarms of a stream."""
        return any(fnmatchcase(stream, pattern) for pattern in self.streams)

    @cached_property
    def _parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def origin(self) -> str:
        """The address without its path, which may have a secret."""
        return f"{self._parts.scheme}://{self._parts.netloc}"

    def headers(self, message: str, at: int, body: bytes) -> list[tuple[str, str]]:
        """Return what identifies and signs a message."""
        signed = f"{message}.{at}.".encode() + body
        keys = [b64decode(each.removeprefix("whsec_")) for each in self.secrets]
        signatures = [f"v1,{b64encode(hmac.digest(key, signed, 'sha256')).decode()}" for key in keys]
        return [
            ("webhook-id", message),
            ("webhook-timestamp", str(at)),
            ("webhook-signature", " ".join(signatures)),
        ]

    async def post(self, message: str, at: int, body: bytes) -> str | None:
        """Send a message once; return what went wrong, or None if the receiver took it."""
        parts = self._parts
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [
            f"POST {target} HTTP/1.1",
            f"host: {parts.netloc}",
            "user-agent: treecal",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
            *(f"{name}: {value}" for name, value in self.headers(message, at, body)),
        ]
        secure = ssl.create_default_context() if parts.scheme == "https" else None
        try:
            async with asyncio.timeout(SECONDS):
                status = await _asked(parts.hostname, parts.port, secure, "\r\n".join([*lines, "", ""]).encode() + body)
        except TimeoutError:
            return f"no answer within {SECONDS:g} seconds"
        except EOFError:
            return "no answer: the connection was closed"
        except OSError as error:
            return f"no answer: {error}"
        except (asyncio.LimitOverrunError, ValueError):
            return "an answer that is not HTTP"
        if 200 <= status < 300:
            return None
        return f"status {status}" + ", and redirects are not followed" * (300 <= status < 400)


async def _asked(host: str | None, port: int | None, secure: ssl.SSLContext | None, request: bytes) -> int:
    """Send a request, and return the status of its answer."""
    default = 80 if secure is None else 443
    reader, writer = await asyncio.open_connection(host, port or default, ssl=secure, limit=_HEAD)
    try:
        writer.write(request)
        status = 100
        while status < 200:  # there may be provisional answers before the final one
            found = _STATUS.match(await reader.readuntil(b"\r\n\r\n"))
            if found is None:
                raise ValueError
            status = int(found[1])
        return status
    finally:
        writer.transport.abort()


def _is_address(parts: SplitResult) -> bool:
    try:
        return bool(parts.hostname) and parts.port != 0 and parts.username is None and not parts.fragment
    except ValueError:  # of the port
        return False


def _is_secret(text: str) -> bool:
    try:
        key = b64decode(text.removeprefix("whsec_"), validate=True)
    except ValueError:
        return False
    return text.startswith("whsec_") and _KEY[0] <= len(key) <= _KEY[1]


def receivers_of(hooks: Mapping[str, Hook]) -> list[Receiver]:
    """Return the receivers that are configured, or raise for one that cannot be."""
    found = []
    for name, each in hooks.items():
        secrets = (each.secret,) if isinstance(each.secret, str) else each.secret
        found.append(Receiver(name, each.url, secrets, each.streams))
    return found


class AlarmDelivery(NamedTuple):
    """An alarm that is owed to a receiver."""

    stream: int
    arrival: int
    watched: str
    name: str
    created: float
    at: float
    body: str

    @property
    def message(self) -> str:
        """The name of the message: the same whenever it is sent."""
        parts = f"{self.created!r} {self.name} {self.arrival} {self.watched}"
        return f"alarm_{blake2b(parts.encode(), digest_size=16).hexdigest()}"

    def encoded(self) -> bytes:
        """Return the body of the message."""
        alarm = wire_alarm(self.name, self.watched, self.at, msgspec.json.decode(self.body))
        at = datetime.fromtimestamp(self.at, UTC).isoformat().replace("+00:00", "Z")
        return msgspec.json.encode({"type": "alarm.raised", "timestamp": at, "data": alarm})


@dataclass
class Course:
    """How sending to a receiver has gone since the server started."""

    delivered: int = 0
    failed: int = 0
    last: float | None = None
    """When a message was taken last."""
    problem: str | None = None
    """What went wrong since then."""


class Webhooks:
    """Sends alarms on a thread of its own, until the block ends: again after `first` seconds, and `longest` at most."""

    def __init__(
        self,
        writer: Writer,
        receivers: Sequence[Receiver],
        *,
        first: float = _FIRST,
        longest: float = _LONGEST,
    ) -> None:
        self._writer = writer
        self.receivers = {each.name: each for each in receivers}
        self.courses = {each.name: Course() for each in receivers}
        self._first = first
        self._longest = longest
        self._ready = Gate()
        self._thread = Thread(target=lambda: asyncio.run(self._work()), name="treecal-webhooks", daemon=True)
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._more: set[tuple[str, str]] = set()  # of which there was an alarm since their tasks last looked

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        self._writer.listeners.append(self._hear)
        return self

    def __exit__(self, *error: object) -> None:
        """Stop at once: what is owed is in the books."""
        self._writer.listeners.remove(self._hear)
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _hear(self, events: Iterable[Event]) -> None:
        for stream in {event["stream"] for event in events if event["event"] == "alarm"}:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._begin, stream)

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._turns = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(_AT_ONCE))
        self._ready.set()
        resuming = asyncio.ensure_future(self._resume())
        await self._end.wait()
        for task in (resuming, *self._tasks.values()):
            task.cancel()
        await asyncio.gather(resuming, *self._tasks.values(), return_exceptions=True)

    async def _resume(self) -> None:
        """Begin with what an earlier process left."""
        for stream in {row[1] for row in await self._ask(lambda books: books.store.query("due_deliveries"))}:
            self._begin(stream)

    def _begin(self, stream: str) -> None:
        for name, receiver in self.receivers.items():
            if (name, stream) in self._tasks:
                self._more.add((name, stream))
            else:
                self._tasks[name, stream] = asyncio.ensure_future(self._deliver(receiver, stream))

    async def _deliver(self, receiver: Receiver, stream: str) -> None:
        """Send all that is owed to a receiver of one stream, in order."""
        key, failures = (receiver.name, stream), 0
        try:
            while True:
                rows = await self._ask(lambda books: books.store.query("next_delivery", *key))
                if rows:
                    failures = await self._attempt(receiver, AlarmDelivery(*rows[0]), failures)
                elif key in self._more:
                    self._more.remove(key)
                else:
                    break
        except Exception:
            log.exception("webhook %s: the alarms of a stream are not sent until the next one", receiver.name)
        del self._tasks[key]

    async def _attempt(self, receiver: Receiver, delivery: AlarmDelivery, failures: int) -> int:
        """Send a message; return how often it failed in a row, after a pause if it did."""
        course = self.courses[receiver.name]
        async with self._turns[receiver.name]:
            problem = await receiver.post(delivery.message, int(time.time()), delivery.encoded())
        if problem is None:
            if course.problem is not None:
                log.warning("webhook %s takes alarms again", receiver.name)
            course.delivered += 1
            course.last = time.time()
            course.problem = None
            await self._ask(lambda books: books.store.run("close_delivery", [_key(delivery, receiver)]), write=True)
            return 0
        if course.problem is None:
            log.warning("webhook %s does not take alarms, which are sent again: %s", receiver.name, problem)
        course.failed += 1
        course.problem = problem
        await asyncio.sleep(min(self._longest, self._first * 2.0 ** min(failures, 20)) * random.uniform(0.5, 1.0))
        return failures + 1

    async def _ask(self, act: Callable[[Books], T], *, write: bool = False) -> T:
        """Return what a function finds in the books, or does to them, as soon as they can be read or written."""
        while True:
            try:
                return await asyncio.wrap_future(self._writer.submit(act) if write else self._writer.read(act))
            except Refusal:
                await asyncio.sleep(self._first)


def _key(delivery: AlarmDelivery, receiver: Receiver) -> Row:
    return (*delivery[:3], receiver.name)
