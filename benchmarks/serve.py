"""What load the server carries on this machine, with its client beside it; and beside Optuna's storage on SQLite.

    python benchmarks/serve.py                       # all, half an hour or more on two cores; on an idle machine
    python benchmarks/serve.py --quick               # shorter and smaller, for a look: a minute or two
    python benchmarks/serve.py --only single --seconds 600
    python benchmarks/serve.py --markdown            # the tables of docs/reference/benchmarks.md

The server is a process of its own, started as a user would (`treecal serve --data books.sqlite`), and this process is
its client. Single forecasts arrive at random moments (a Poisson process) that do not wait for answers, and latency is
counted from the moment at which a request was due: one that queues behind a slow one is slow too. Every answer comes
after its transaction is synced to disk; at the end the server is killed, and what it acknowledged must be there.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.metadata
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

CLASSES = ["early", "on time", "late"]
CORRECTOR = {"name": "vector"}
ROWS = 10_000
"""Forecasts or outcomes in one request, the most that the server takes."""


class Line(NamedTuple):
    """One figure, and its target."""

    what: str
    target: str
    value: str
    note: str = ""


class Server:
    """The server, as a process of its own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start it, and return the seconds until it is ready."""
        command = [sys.executable, "-m", "treecal", "serve", "--data", str(self.data), "--port", str(self.port)]
        begin = time.perf_counter()
        log = self.data.with_suffix(".log").open("ab")
        with log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        while True:
            if self.process.poll() is not None:
                sys.exit(f"the server ended: {self.data.with_suffix('.log').read_text()[-2000:]}")
            if _ready(self.port):
                return time.perf_counter() - begin
            time.sleep(0.005)

    def stop(self, how: int = signal.SIGTERM) -> float:
        """Stop it, and return the seconds until it has ended."""
        assert self.process is not None
        begin = time.perf_counter()
        self.process.send_signal(how)
        self.process.wait(60)
        return time.perf_counter() - begin

    def memory(self) -> float:
        """Memory that the process has in use (resident), in MB."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def processor(self) -> float:
        """Seconds of processor time that it has used."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _ready(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            sock.sendall(f"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            return b" 200 " in sock.recv(4096).split(b"\r\n")[0]
    except OSError:
        return False


@contextmanager
def serving() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="treecal-load-") as folder:
        server = Server(Path(folder, "books.sqlite"))
        server.start()
        try:
            yield server
        finally:
            assert server.process is not None
            server.process.kill()
            server.process.wait()


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

    async def create(self, streams: int) -> list[str]:
        """Create streams of a model with three classes, corrected and watched."""
        names = [f"model-{i:04}" for i in range(streams)]
        for name in names:
            await self.call("POST", "/v1/streams", {"name": name, "classes": CLASSES, "corrector": CORRECTOR})
        return names


class Rounds:
    """Forecasts of a model that is right, and outcomes drawn from them; bodies are made before the clock runs."""

    def __init__(self, seed: int = 0, distinct: int = 5_000) -> None:
        rng = np.random.default_rng(seed)
        p = rng.dirichlet([4, 3, 2], distinct)
        self.p = [json.dumps(row) for row in p.tolist()]
        self.outcomes = [int(k) for k in (rng.random(distinct)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(0, 2)]

    def forecast(self, i: int) -> str:
        return f'{{"id":"r{i}","p":{self.p[i % len(self.p)]}}}'

    def outcome(self, stream: str, i: int) -> str:
        return f'{{"stream":"{stream}","id":"r{i}","outcome":{self.outcomes[i % len(self.p)]}}}'

    def forecasts(self, span: range) -> bytes:
        return f'{{"forecasts":[{",".join(map(self.forecast, span))}]}}'.encode()

    def settled(self, of: list[tuple[str, int]]) -> bytes:
        return f'{{"outcomes":[{",".join(self.outcome(*each) for each in of)}]}}'.encode()


def percentiles(seconds: Any) -> str:
    low, high = np.percentile(seconds, [50, 99]) * 1e3
    return f"p50 {low:.1f}, p99 {high:.1f}, max {np.max(seconds) * 1e3:.0f} ms"


async def _arrivals(
    pool: Pool, rounds: Rounds, streams: list[str], *, rate: float, seconds: float, pause: float
) -> tuple[Any, Any, list[int], int]:
    """Forecasts at random moments, and outcomes of what was answered beside them, every so many seconds.

    Returns when each forecast was due, its latency, how many were acknowledged for each stream, and how many failed.
    """
    rng = np.random.default_rng(1)
    count = int(rate * seconds)
    due = np.cumsum(rng.exponential(1 / rate, count))
    latency, of = np.full(count, np.nan), rng.integers(len(streams), size=count).tolist()
    answered, acknowledged, failed = list[tuple[str, int]](), [0] * len(streams), 0
    batches = Pool(pool.port)
    slowest, moments = list[float](), due.tolist()
    gc.disable()  # the client's pauses are not the server's
    begin = time.perf_counter()

    def send(i: int) -> None:
        stream = of[i]

        def done(status: int, _: bytes) -> None:
            nonlocal failed
            latency[i] = time.perf_counter() - begin - moments[i]
            if status == 200:
                acknowledged[stream] += 1
                answered.append((streams[stream], i))
            else:
                failed += 1

        path = f"/v1/streams/{streams[stream]}/forecasts"
        pool.submit(pool.request("POST", path, rounds.forecast(i).encode()), done)

    async def settle() -> None:
        while True:
            await asyncio.sleep(pause or seconds)
            batch = answered[:ROWS] if pause else []
            del answered[:ROWS]
            if batch:
                start = time.perf_counter()
                await batches.call("POST", "/v1/outcomes", rounds.settled(batch))
                slowest.append(time.perf_counter() - start)

    settling = asyncio.create_task(settle())
    sent = 0
    while sent < count:
        now = time.perf_counter() - begin
        while sent < count and moments[sent] <= now:
            send(sent)
            sent += 1
        await asyncio.sleep(0.0005)
    while np.isnan(latency).any():
        await asyncio.sleep(0.05)
    settling.cancel()
    gc.enable()
    batches.close()
    return due, latency, acknowledged, failed


def single(options: argparse.Namespace) -> Iterator[Line]:
    """Single forecasts, each durable, at a rate that does not wait; and all of them there after a kill."""
    rate, seconds = options.rate, options.seconds or (20 if options.quick else 600)
    yield Line("one write of 4 KiB synced to this disk", "", percentiles(_syncs()))
    with serving() as server:

        async def load() -> tuple[Any, ...]:
            pool = Pool(server.port, 64)
            streams = await pool.create(10)
            rounds = Rounds()
            for i in range(200):
                body = f'{{"id":"w{i}","p":{rounds.p[i]}}}'.encode()
                await pool.call("POST", f"/v1/streams/{streams[i % 10]}/forecasts", body)
            begin = time.perf_counter()
            body = ",".join(f'{{"stream":"{streams[i % 10]}","id":"w{i}","outcome":{i % 3}}}' for i in range(200))
            await pool.call("POST", "/v1/outcomes", f'{{"outcomes":[{body}]}}'.encode())
            first = time.perf_counter() - begin
            used, own, start = server.processor(), time.process_time(), time.perf_counter()
            found = await _arrivals(pool, rounds, streams, rate=rate, seconds=seconds, pause=options.settle)
            wall = time.perf_counter() - start
            pool.close()
            return (*found, (server.processor() - used) / wall, (time.process_time() - own) / wall, first)

        due, latency, acknowledged, failed, used, own, first = asyncio.run(load())
        yield Line("the first 200 outcomes after a start, once", "", f"{first * 1e3:.0f} ms")
        beside = f"outcomes every {options.settle:g} s" if options.settle else "no outcomes"
        what = f"single forecasts, {rate:,}/s for {seconds:,} s, {beside} beside them"
        yield Line(what, "p99 ≤ 50 ms", percentiles(latency), f"{failed} of {len(latency):,} refused")
        minutes = [latency[(due >= low) & (due < low + 60)] for low in range(0, int(due[-1]) + 1, 60)]
        worst = max(np.percentile(each, 99) for each in minutes if len(each) > 1000)
        note = f"the server used {used:.2f} of a core, the client {own:.2f}"
        yield Line("  p99 of the worst minute", "≤ 50 ms", f"{worst * 1e3:.1f} ms", note)
        server.stop(signal.SIGKILL)
        again = server.start()

        async def count() -> list[int]:
            pool = Pool(server.port)
            shown = await pool.call("GET", "/v1/streams")
            pool.close()
            return [each["counts"]["forecasts"] - 20 for each in shown["streams"]]

        kept = asyncio.run(count())
        lost = sum(max(a - b, 0) for a, b in zip(acknowledged, kept, strict=True))
        what = "  acknowledged forecasts that are lost after kill −9"
        yield Line(what, "0", f"{lost} of {sum(acknowledged):,}", f"up again after {again:.2f} s")


def _syncs(count: int = 200) -> list[float]:
    spent = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(count):
            begin = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            spent.append(time.perf_counter() - begin)
    return spent


async def _fill(pool: Pool, rounds: Rounds, streams: list[str], spans: dict[str, range]) -> float:
    """Announce forecasts in batches, and return the seconds that it took."""
    bodies = [(f"/v1/streams/{s}/forecasts/batch", rounds.forecasts(spans[s])) for s in streams]
    begin = time.perf_counter()
    for path, body in bodies:
        await pool.call("POST", path, body)
    return time.perf_counter() - begin


def batches(options: argparse.Namespace) -> Iterator[Line]:
    """Forecasts and outcomes in batches of ten thousand, one request at a time."""
    repeats, rounds = 5 if options.quick else 30, Rounds()
    with serving() as server:

        async def load() -> tuple[list[float], list[float], list[float]]:
            pool = Pool(server.port)
            forecasts, outcomes, mixed = list[float](), list[float](), list[float]()
            streams = await pool.create(100)
            for k in range(repeats):
                span, one = range(k * ROWS, (k + 1) * ROWS), streams[0]
                forecasts.append(ROWS / await _fill(pool, rounds, [one], {one: span}))
                body = rounds.settled([(one, i) for i in span])
                begin = time.perf_counter()
                counts = (await pool.call("POST", "/v1/outcomes", body))["counts"]
                outcomes.append(ROWS / (time.perf_counter() - begin))
                assert counts == {"ok": ROWS} or counts["ok"] == ROWS, counts
                spans = {s: range(k * 100, (k + 1) * 100) for s in streams[1:]}
                await _fill(pool, rounds, streams[1:], spans)
                body = rounds.settled([(s, i) for i in range(k * 100, (k + 1) * 100) for s in streams[1:]])
                begin = time.perf_counter()
                await pool.call("POST", "/v1/outcomes", body)
                mixed.append(len(streams[1:]) * 100 / (time.perf_counter() - begin))
            pool.close()
            return forecasts, outcomes, mixed

        forecasts, outcomes, mixed = asyncio.run(load())
    yield Line(f"forecasts in batches of {ROWS:,}", "", _rate(forecasts))
    yield Line(f"outcomes in batches of {ROWS:,}, of one stream", "≥ 20,000/s", _rate(outcomes))
    yield Line("  of 99 streams in turn", "≥ 20,000/s", _rate(mixed))


def _rate(rates: list[float]) -> str:
    low, middle, high = np.percentile(rates, [25, 50, 75])
    return f"{middle:,.0f}/s ({low:,.0f} … {high:,.0f})"


def memory(options: argparse.Namespace) -> Iterator[Line]:
    """Memory while a thousand streams are played, a thousand rounds each."""
    streams, each, rounds = (100 if options.quick else 1_000), 1_000, Rounds()
    with serving() as server:

        async def load() -> list[tuple[int, float]]:
            pool = Pool(server.port)
            names = await pool.create(streams)
            seen, step = [(0, server.memory())], 100
            for low in range(0, each, step):
                span = range(low, low + step)
                await _fill(pool, rounds, names, dict.fromkeys(names, span))
                owed = [(name, i) for name in names for i in span]
                for k in range(0, len(owed), ROWS):
                    await pool.call("POST", "/v1/outcomes", rounds.settled(owed[k : k + ROWS]))
                seen.append(((low + step) * streams, server.memory()))
            pool.close()
            return seen

        seen = asyncio.run(load())
    first = dict(seen)[each * streams // 10]
    for played, used in seen:
        note = f"{used / first:.2f}× that at {each * streams // 10:,}" if played else f"{streams:,} streams created"
        yield Line(f"memory after {played:,} rounds on {streams:,} streams", "flat", f"{used:.0f} MB", note)


def optuna(options: argparse.Namespace) -> Iterator[Line]:
    """A round, opened and settled and durable, against Optuna's ask and tell; both with SQLite, one at a time."""
    import optuna as peer

    peer.logging.set_verbosity(peer.logging.ERROR)
    pairs, rounds = (100 if options.quick else 300), Rounds()
    with serving() as server, tempfile.TemporaryDirectory() as folder:
        study = peer.create_study(
            storage=f"sqlite:///{folder}/study.sqlite", sampler=peer.samplers.RandomSampler(seed=0)
        )

        async def ours(pool: Pool, stream: str, span: range) -> float:
            begin = time.perf_counter()
            for i in span:
                await pool.call("POST", f"/v1/streams/{stream}/forecasts", rounds.forecast(i).encode())
                await pool.call("POST", "/v1/outcomes", rounds.settled([(stream, i)]))
            return (time.perf_counter() - begin) / len(span)

        def theirs(count: int) -> float:
            begin = time.perf_counter()
            for i in range(count):
                trial = study.ask()
                study.tell(trial, float(i))
            return (time.perf_counter() - begin) / count

        async def turns() -> tuple[Any, Any, float]:
            pool = Pool(server.port, 32)
            streams = await pool.create(33)
            await ours(pool, streams[0], range(20))
            theirs(5)
            own, other = [], []
            for k in range(6):
                own.append(await ours(pool, streams[0], range(20 + k * pairs // 6, 20 + (k + 1) * pairs // 6)))
                other.append(theirs(pairs // 6))
            begin = time.perf_counter()
            await asyncio.gather(*(ours(pool, s, range(pairs // 3)) for s in streams[1:]))
            together = (time.perf_counter() - begin) / (32 * (pairs // 3))
            pool.close()
            return np.array(own), np.array(other), together

        own, other, together = asyncio.run(turns())
    note = f"{np.median(own) * 1e3:.2f} against {np.median(other) * 1e3:.1f} ms; theirs in process, ours over HTTP"
    ratio = np.median(other / own)
    yield Line("Optuna's ask and tell / a forecast and its outcome", "≥ 1×", f"{ratio:.1f}×", note)
    note = f"{together * 1e3:.2f} ms a round"
    yield Line("  the same, 32 of ours at a time", "", f"{np.median(other) / together:.1f}×", note)


def correction(options: argparse.Namespace) -> Iterator[Line]:
    """What a correction adds to a model's answer, from call to return of `treecal.client`."""
    try:
        from treecal.client import Client
    except ImportError:
        yield Line("a correction, client to client", "", "–", "there is no treecal.client yet")
        return
    count, rounds = (500 if options.quick else 5_000), Rounds()
    points = [json.loads(text) for text in rounds.p]
    with serving() as server, Client(f"http://127.0.0.1:{server.port}") as client:

        async def create() -> list[str]:
            pool = Pool(server.port)
            names = await pool.create(1)
            pool.close()
            return names

        (stream,) = asyncio.run(create())
        spent, late = [], 0
        for i in range(count + 50):
            begin = time.perf_counter()
            answer = client.forecast(stream, points[i % len(points)], id=f"r{i}")
            if i >= 50:
                spent.append(time.perf_counter() - begin)
                late += not answer.corrected
    note = f"{count:,} calls in turn; {late} came too late, and the model's own were used"
    yield Line("a correction by treecal.client, call to return", "stated", percentiles(spent), note)


def restart(options: argparse.Namespace) -> Iterator[Line]:
    """How long the server takes to be ready, on empty books and on full ones, after a stop and after a kill."""
    total, streams, rounds = (10**6 if options.quick else 10**7), 100, Rounds()
    with serving() as server:
        server.stop()
        empty = server.start()

        async def load() -> float:
            pool = Pool(server.port)
            names = await pool.create(streams)
            begin = time.perf_counter()
            for low in range(0, total // streams, ROWS):
                span = range(low, low + ROWS)
                for name in names:
                    await _fill(pool, rounds, [name], {name: span})
                    await pool.call("POST", "/v1/outcomes", rounds.settled([(name, i) for i in span]))
            pool.close()
            return time.perf_counter() - begin

        filled = asyncio.run(load())
        size = server.data.stat().st_size / 1e9
        stopped = server.stop()
        after_stop = server.start()
        server.stop(signal.SIGKILL)
        after_kill = server.start()
    note = f"{size:.2f} GB; filled in {filled:.0f} s"
    yield Line("ready on empty books", "", f"{empty:.2f} s")
    yield Line(f"ready on {total:,} rounds of {streams} streams, after a stop", "seconds", f"{after_stop:.2f} s", note)
    yield Line("  after kill −9", "seconds", f"{after_kill:.2f} s", f"a stop takes {stopped:.2f} s")


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Line]]] = {
    "single": single,
    "batches": batches,
    "memory": memory,
    "optuna": optuna,
    "correction": correction,
    "restart": restart,
}


def show(lines: list[Line], *, markdown: bool) -> None:
    names = ("what", "target", "measured", "")
    if markdown:
        print("| " + " | ".join(names) + " |\n|" + " --- |" * len(names))
        for each in lines:
            print("| " + " | ".join(each) + " |")
        return
    table = Table(*names)
    for each in lines:
        table.add_row(*each)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="shorter and smaller")
    parser.add_argument("--rate", type=int, default=1_000, help="single forecasts a second")
    parser.add_argument(
        "--settle", type=float, default=0.5, help="seconds between batches of outcomes beside them; 0 for none"
    )
    parser.add_argument("--seconds", type=int, help="of single forecasts; 600, or 20 with --quick")
    parser.add_argument("--markdown", action="store_true", help="the table as in the docs")
    options = parser.parse_args()
    if (load := os.getloadavg()[0]) > 0.5:
        print(f"other programs run (load {load:.1f}): the figures will not be the server's own", file=sys.stderr)
    lines = list[Line]()
    for part in options.only:
        print(f"{part} …", file=sys.stderr, flush=True)
        lines += PARTS[part](options)
    show(lines, markdown=options.markdown)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("apsw", "uvicorn", "uvloop"))
    where = f"{os.cpu_count()} cores, {platform.machine()}, load before {load:.1f}"
    print(f"\n{where}; Python {platform.python_version()}, {versions}")


if __name__ == "__main__":
    main()
