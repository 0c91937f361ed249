"""A client that keeps its connections, and does not wait for answers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

Done = Callable[[int, bytes], None]


class Connection(asyncio.Protocol):
    """One connection that is kept; one request at a time."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.transport = pool, asyncio.Transport()
        self.buffer = bytearray()
        self.asked: tuple[bytes, Done] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.pool.lost(self)

    def send(self, request: bytes, done: Done) -> None:
        self.asked = request, done
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.buffer[:end]).lower() + b"\r\n"
        start = head.index(b"content-length:") + 15
        size = end + 4 + int(head[start : head.index(b"\r\n", start)])
        if len(self.buffer) < size:
            return
        status, body = int(head[9:12]), bytes(self.buffer[end + 4 : size])
        del self.buffer[:size]
        assert self.asked is not None
        _, done = self.asked
        self.asked = None
        self.pool.release(self)
        done(status, body)


class Pool:
    """Connections to the server, so many at most, and what waits for a free one.

    The server closes those that are idle for long. A request that was under way on one that closes is sent again: its
    id is the same, so nothing is recorded twice, and its clock runs on.
    """

    def __init__(self, port: int, most: int = 1) -> None:
        self.port, self.most, self.count, self.again = port, most, 0, 0
        self.free, self.queue = list[Connection](), deque[tuple[bytes, Done]]()
        self.tasks = set[asyncio.Task[None]]()
        self.closed = False

    def close(self) -> None:
        self.closed = True
        for each in self.free:
            each.transport.close()

    def submit(self, request: bytes, done: Done) -> None:
        if self.free:
            self.free.pop().send(request, done)
            return
        self.queue.append((request, done))
        if self.count < self.most:
            self._connect()

    def _connect(self) -> None:
        self.count += 1
        task = asyncio.ensure_future(self._connected())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _connected(self) -> None:
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(lambda: Connection(self), "127.0.0.1", self.port)
        self.release(made)

    def release(self, connection: Connection) -> None:
        if self.queue:
            connection.send(*self.queue.popleft())
        else:
            self.free.append(connection)

    def lost(self, connection: Connection) -> None:
        self.count -= 1
        if connection in self.free:
            self.free.remove(connection)
        if connection.asked is not None and not self.closed:
            self.again += 1
            self.queue.appendleft(connection.asked)
            self._connect()

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if method == "POST" else ""
        return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{kind}\r\n".encode() + body

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request, and return its answer, which must be a good one."""
        answer = asyncio.get_running_loop().create_future()
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.submit(self.request(method, path, raw), lambda status, text: answer.set_result((status, text)))
        status, text = await answer
        if not 200 <= status < 300:
            sys.exit(f"{method} {path}: {status} {text[:500]!r}")
        return json.loads(text)
