"""Server-sent events: what was committed, sent to every page that listens.

The counts of a stream change with every request, and a page need not hear of each: they are sent at most four times a
second a stream, the latest ones. Alarms, and streams that are created, archived or reset, are sent each.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from treecal.serve._refusals import Refusal

PAUSE = 0.25
"""Seconds between the counts of a stream."""
BEAT = 15.0
"""Seconds without an event after which a comment shows that the connection lives."""
CHECK = 1.0
"""Seconds after which a listener must still be allowed to listen."""
ROOM = 512
"""Messages, each of one or more events, that may wait for a client to read them, besides what the sockets hold."""
MOST = 200
"""Clients that may listen at once."""

Event = dict[str, Any]
_COUNTS = frozenset({"forecast", "outcome"})


def message(event: Event) -> bytes:
    r"""Return an event as it is sent.

    Examples
    --------
    >>> message({"event": "outcome", "stream": "a", "learned": 3})
    b'event: outcome\ndata: {"stream":"a","learned":3}\n\n'
    """
    data = {name: value for name, value in event.items() if name != "event"}
    return b"event: %b\ndata: %b\n\n" % (event["event"].encode(), msgspec.json.encode(data))


class Listener:
    """One that listens: what it has yet to read."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self.wanted = wanted
        self.waiting: deque[bytes] = deque()
        self.bell = asyncio.Event()
        self.ended = False

    def put(self, text: bytes) -> None:
        """Add what to send, or drop the client if it reads too slowly."""
        if self.ended:
            return
        if len(self.waiting) >= ROOM:
            self.waiting.clear()
            self.end(b": dropped: events arrived faster than they were read\n\n")
            return
        self.waiting.append(text)
        self.bell.set()

    def end(self, words: bytes) -> None:
        """Send a last comment."""
        self.waiting.append(words)
        self.ended = True
        self.bell.set()


class Hub:
    """Passes events from the writer's thread to the clients that listen."""

    def __init__(self, *, pause: float = PAUSE, beat: float = BEAT) -> None:
        self._pause = pause
        self._beat = beat
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clients: set[Listener] = set()
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], Event] = {}
        self._others: list[Event] = []
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def clients(self) -> int:
        """How many listen."""
        return len(self._clients)

    def open(self) -> None:
        """Send from the running loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def close(self) -> None:
        """End all connections: the server stops."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for client in self._clients:
            client.end(b": the server stops\n\n")

    def publish(self, events: Iterable[Event]) -> None:
        """Take what was committed; from any thread."""
        if not self._clients or self._loop is None or self._closed:
            return
        with self._lock:
            for event in events:
                if event["event"] in _COUNTS:
                    self._counts[event["event"], event["stream"]] = event
                else:
                    self._others.append(event)
            if self._asked or not (self._counts or self._others):
                return
            self._asked = True
        with suppress(RuntimeError):  # the loop has ended meanwhile: nobody listens any more
            self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        """Send alarms and changes of streams, and counts when their time has come."""
        with self._lock:
            self._asked = False
            others = self._others
            self._others = []
        self._send(others)
        if self._timer is None and self._counts and not self._closed:
            assert self._loop is not None
            self._timer = self._loop.call_later(self._pause, self._tick)

    def _tick(self) -> None:
        self._timer = None
        with self._lock:
            counts = self._counts
            self._counts = {}
        self._send(counts.values())

    def _send(self, events: Iterable[Event]) -> None:
        messages = [(event["stream"], message(event)) for event in events]
        for client in self._clients:
            if text := b"".join(text for stream, text in messages if client.wanted(stream)):
                client.put(text)  # at once: of how many streams it hears does not make it slow

    def listen(
        self, wanted: Callable[[str], bool], still: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of wanted streams as they are to be sent, until the server stops or `still` is false.

        Raises
        ------
        Refusal
            If too many listen already, or the server stops.
        """
        if self._closed or len(self._clients) >= MOST:
            why = "the server stops." if self._closed else f"{MOST} clients listen already."
            raise Refusal("unavailable", why, hint="try again later, or poll.")
        return self._heard(Listener(wanted), still)

    async def _heard(self, client: Listener, still: Callable[[], Awaitable[bool]]) -> AsyncGenerator[bytes, None]:
        quiet = 0.0
        self._clients.add(client)
        try:
            yield b"retry: 2000\n: listening\n\n"
            while True:
                if client.waiting:
                    text = b"".join(client.waiting)
                    client.waiting.clear()
                    quiet = 0.0
                    yield text
                elif client.ended:
                    return
                elif not await still():
                    client.end(b": the token was revoked\n\n")
                else:
                    client.bell.clear()
                    pause = min(CHECK, self._beat)
                    try:
                        async with asyncio.timeout(pause):
                            await client.bell.wait()
                    except TimeoutError:
                        quiet += pause
                        if quiet >= self._beat:
                            quiet = 0.0
                            yield b": alive\n\n"
        finally:
            self._clients.discard(client)
