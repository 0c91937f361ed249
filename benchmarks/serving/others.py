"""What one stream, one client or the disk does to the forecasts of all other streams."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import numpy as np

from serving.client import Pool
from serving.figures import Line, percentiles
from serving.load import Answers, Rounds, arrivals, begun, create
from serving.server import Server, serving

RATE = 200
"""Forecasts a second of the others: far below what the server carries, so that what they wait for is the burden."""
OTHERS = 5
ROWS = 10_000
Burden = Callable[[Server, int], AbstractAsyncContextManager[None]]


def others(options: argparse.Namespace) -> Iterator[Line]:
    """Single forecasts of some streams, while another stream, a client, a reader or the disk does its worst."""
    seconds = 6 if options.quick else 20
    size = 20_000 if options.quick else 100_000
    for what, burden in BURDENS.items():
        with serving(unread=burden is _unread) as server:
            found = asyncio.run(_measured(server, burden, size, seconds))
        yield Line(what, "", percentiles(found.latency), f"{found.failed} of {len(found.latency):,} refused")
    yield from _full(seconds)


async def _measured(server: Server, burden: Burden, size: int, seconds: float) -> Answers:
    pool = Pool(server.port, 64)
    streams = await create(pool, OTHERS)
    rounds = Rounds()
    await begun(pool, rounds, streams)
    async with burden(server, size):
        found = await arrivals(pool, rounds, streams, rate=RATE, seconds=seconds, pause=0.5)
    pool.close()
    return found


def _full(seconds: float) -> Iterator[Line]:
    """A disk that fills up: forecasts are refused at once, and what is read is answered."""
    with tempfile.TemporaryDirectory(prefix="treecal-full-") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]
        if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
            yield Line("a full disk", "", "–", "a small disk cannot be mounted here: it takes root")
            return
        server = Server(Path(folder, "books.sqlite"))
        server.start()
        assert server.process is not None
        try:
            refused, read = asyncio.run(_filled(server, Path(folder, "ballast"), seconds))
        finally:
            server.process.kill()
            server.process.wait()
            subprocess.run(["umount", "--lazy", folder], check=True)
    note = f"{refused.failed} of {len(refused.latency):,} refused"
    yield Line("a full disk: forecasts that it has no room for", "", percentiles(refused.latency), note)
    yield Line("  reading a stream meanwhile", "", percentiles(read))


async def _filled(server: Server, ballast: Path, seconds: float) -> tuple[Answers, list[float]]:
    pool = Pool(server.port, 64)
    streams = await create(pool, OTHERS)
    with contextlib.suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()
    read = list[float]()

    async def look() -> None:
        reader, loop = Pool(server.port), asyncio.get_running_loop()
        while True:
            begin = loop.time()
            await reader.call("GET", f"/v1/streams/{streams[0]}")
            read.append(loop.time() - begin)
            await asyncio.sleep(0.05)

    looking = asyncio.create_task(look())
    found = await arrivals(pool, Rounds(), streams, rate=RATE, seconds=seconds, pause=0)
    looking.cancel()
    pool.close()
    return found, read


@asynccontextmanager
async def _nothing(server: Server, size: int) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def _unread(server: Server, size: int) -> AsyncIterator[None]:
    """The log is on a pipe whose reader stands still: a pipe has room for some 400 lines."""
    pool = Pool(server.port, 8)
    await asyncio.gather(*(pool.call("GET", "/healthz") for _ in range(1_000)))
    pool.close()
    yield


async def _heavy(pool: Pool, corrector: str, classes: int) -> list[str]:
    """Create a stream with a costly corrector, and return forecasts for it."""
    names = [f"c{k}" for k in range(classes)]
    body = {"name": "heavy", "classes": names, "corrector": {"name": corrector}, "tags": ["person"]}
    await pool.call("POST", "/v1/streams", body)
    p = np.random.default_rng(0).dirichlet(np.ones(classes), 500)
    return [json.dumps(row) for row in p.tolist()]


async def _sent(pool: Pool, p: list[str], span: range) -> None:
    rows = (f'{{"id":"h{i}","p":{p[i % len(p)]},"tags":{{"person":"{i % 10}"}}}}' for i in span)
    await pool.call("POST", "/v1/streams/heavy/forecasts/batch", f'{{"forecasts":[{",".join(rows)}]}}'.encode())


async def _settled(pool: Pool, span: range, classes: int) -> None:
    rows = (f'{{"stream":"heavy","id":"h{i}","outcome":{i % classes}}}' for i in span)
    await pool.call("POST", "/v1/outcomes", f'{{"outcomes":[{",".join(rows)}]}}'.encode())


def _costly(corrector: str, classes: int, rows: int) -> Burden:
    """A costly corrector is sent forecasts and outcomes without a pause, so many at a time."""

    @asynccontextmanager
    async def burden(server: Server, size: int) -> AsyncIterator[None]:
        pool = Pool(server.port)
        p = await _heavy(pool, corrector, classes)

        async def send() -> None:
            start = 0
            while True:
                await _sent(pool, p, range(start, start + rows))
                await _settled(pool, range(start, start + rows), classes)
                start += rows

        async with _beside(send):
            yield

    return burden


def _repeated(method: str, path: str, body: str = "") -> Burden:
    """A large stream is asked for something again and again; what is sent must be new each time."""

    @asynccontextmanager
    async def burden(server: Server, size: int) -> AsyncIterator[None]:
        pool = Pool(server.port)
        await _filled_stream(pool, size)

        async def ask() -> None:
            number = 0
            while True:
                await asyncio.to_thread(_whole, server.port, method, path.format(number % 10), body)
                number += 1

        async with _beside(ask):
            yield

    return burden


async def _filled_stream(pool: Pool, size: int) -> None:
    p = await _heavy(pool, "vector", 3)
    for start in range(0, size, ROWS):
        await _sent(pool, p, range(start, start + ROWS))
        await _settled(pool, range(start, start + ROWS), 3)


@asynccontextmanager
async def _slow(server: Server, size: int) -> AsyncIterator[None]:
    """Clients ask for an export or for events and read nothing, or send a byte of a request now and then."""
    await _filled_stream(Pool(server.port), size)
    lines = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(300)]
    for number, line in enumerate(lines):
        if number % 3 < 2:
            line.sendall(_request("GET", ("/v1/streams/heavy/export", "/v1/events")[number % 3]))
    end = threading.Event()

    def drip() -> None:
        while not end.wait(0.1):
            for line in lines[2::3]:
                with contextlib.suppress(OSError):
                    line.sendall(b"G")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        for line in lines:
            line.close()


@asynccontextmanager
async def _beside(act: Callable[[], Coroutine[None, None, None]]) -> AsyncIterator[None]:
    task = asyncio.create_task(act())
    try:
        yield
    finally:
        if task.done():
            task.result()  # it has failed
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _request(method: str, path: str, body: str = "") -> bytes:
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{kind}\r\n{body}".encode()


def _whole(port: int, method: str, path: str, body: str) -> None:
    """Send a request, and read the answer to its end."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as line:
        line.sendall(_request(method, path, body))
        head = line.recv(1 << 16)
        assert head.startswith(b"HTTP/1.1 200"), head[:500]
        while line.recv(1 << 20):
            pass


BURDENS: dict[str, Burden] = {
    "others: nothing beside them": _nothing,
    "a log on a pipe that nobody reads": _unread,
    "a matrix of 30 classes, 2,000 rows at a time": _costly("matrix", 30, 2_000),
    "isotonic regression of 10 classes, 2,000 rows at a time": _costly("isotonic", 10, 2_000),
    "a guarded stream, 1,000 copies, 900 rows at a time": _costly("vector-then-guarded", 10, 900),
    "auto of 10 classes, 10,000 rows at a time": _costly("auto", 10, ROWS),
    "300 clients that do not read, or hardly write": _slow,
    "exports of a large stream": _repeated("GET", "/v1/streams/heavy/export"),
    "its scores by tag": _repeated("GET", "/v1/streams/heavy/scores?by=person&last=100000"),
    "deletions of a tenth of it": _repeated("DELETE", "/v1/streams/heavy/forecasts?tag=person&value={}"),
    "another corrector for it": _repeated("PATCH", "/v1/streams/heavy", '{"corrector": {"name": "isotonic"}}'),
}
