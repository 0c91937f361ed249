"""Single forecasts, each durable, at a rate that does not wait."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from serving.client import Pool
from serving.figures import Line, percentiles
from serving.load import BEFORE, Answers, Rounds, arrivals, begun, create
from serving.server import Server, serving

STREAMS = 10


def single(options: argparse.Namespace) -> Iterator[Line]:
    """Single forecasts, each durable, at a rate that does not wait; and all of them there after a kill."""
    rate, seconds = options.rate, options.seconds or (20 if options.quick else 600)
    yield Line("one write of 4 KiB synced to this disk", "", percentiles(_syncs()))
    with serving() as server:

        async def load() -> tuple[Answers, list[float], float, float]:
            pool, rounds, cores = Pool(server.port, 64), Rounds(), list[float]()
            streams = await create(pool, STREAMS)
            first = await begun(pool, rounds, streams)
            own, start = time.process_time(), time.perf_counter()
            watching = asyncio.create_task(_watch(server, min(60.0, seconds / 2), cores))
            found = await arrivals(pool, rounds, streams, rate=rate, seconds=seconds, pause=options.settle)
            own = (time.process_time() - own) / (time.perf_counter() - start)
            watching.cancel()
            pool.close()
            return found, cores, own, first

        found, cores, own, first = asyncio.run(load())
        yield Line(f"the first {BEFORE * STREAMS} outcomes after a start, once", "", f"{first * 1e3:.0f} ms")
        beside = f"outcomes every {options.settle:g} s" if options.settle else "no outcomes"
        what = f"single forecasts, {rate:,}/s for {seconds:,} s, {beside} beside them"
        note = f"{found.failed} of {len(found.latency):,} refused"
        yield Line(what, "p99 ≤ 50 ms", percentiles(found.latency), note)
        minutes = [(found.due >= low) & (found.due < low + 60) for low in range(0, int(found.due[-1]) + 1, 60)]
        tails = [np.percentile(found.latency[each], 99) * 1e3 for each in minutes if each.sum() > 1000]
        note = f"by minute {', '.join(f'{each:.0f}' for each in tails)}"
        yield Line("  p99 of the worst minute", "≤ 50 ms", f"{max(tails):.1f} ms", note)
        note = f"on average {np.mean(cores):.2f}; the client {own:.2f}"
        yield Line(
            "  cores that the server used at first, and at last", "equal", f"{cores[0]:.2f}, {cores[-1]:.2f}", note
        )
        server.stop(signal.SIGKILL)
        again = server.start()

        async def count() -> list[int]:
            pool = Pool(server.port)
            shown = await pool.call("GET", "/v1/streams")
            pool.close()
            return [each["counts"]["forecasts"] - BEFORE for each in shown["streams"]]

        kept = asyncio.run(count())
        lost = sum(max(a - b, 0) for a, b in zip(found.acknowledged, kept, strict=True))
        what = "  acknowledged forecasts that are lost after kill −9"
        yield Line(what, "0", f"{lost} of {sum(found.acknowledged):,}", f"up again after {again:.2f} s")


async def _watch(server: Server, pause: float, cores: list[float]) -> None:
    """Note how much of a core the server uses, again and again."""
    while True:
        used, start = server.processor(), time.perf_counter()
        await asyncio.sleep(pause)
        cores.append((server.processor() - used) / (time.perf_counter() - start))


def _syncs(count: int = 200) -> list[float]:
    """Return the seconds that writes of a page take, each synced."""
    spent = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(count):
            begin = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            spent.append(time.perf_counter() - begin)
    return spent
