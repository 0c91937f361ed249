"""Forecasts and outcomes in batches."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator

from serving.client import Pool
from serving.figures import Line, rate
from serving.load import ROWS, Rounds, create, fill
from serving.server import serving


def batches(options: argparse.Namespace) -> Iterator[Line]:
    """Forecasts and outcomes in batches of ten thousand, one request at a time."""
    repeats, rounds = 5 if options.quick else 30, Rounds()
    with serving() as server:

        async def load() -> tuple[list[float], list[float], list[float]]:
            pool = Pool(server.port)
            forecasts, outcomes, mixed = list[float](), list[float](), list[float]()
            streams = await create(pool, 100)
            for k in range(repeats):
                span, one = range(k * ROWS, (k + 1) * ROWS), streams[0]
                forecasts.append(ROWS / await fill(pool, rounds, [one], {one: span}))
                body = rounds.settled([(one, i) for i in span])
                begin = time.perf_counter()
                counts = (await pool.call("POST", "/v1/outcomes", body))["counts"]
                outcomes.append(ROWS / (time.perf_counter() - begin))
                assert counts == {"learned": ROWS} or counts["learned"] == ROWS, counts
                spans = {s: range(k * 100, (k + 1) * 100) for s in streams[1:]}
                await fill(pool, rounds, streams[1:], spans)
                body = rounds.settled([(s, i) for i in range(k * 100, (k + 1) * 100) for s in streams[1:]])
                begin = time.perf_counter()
                await pool.call("POST", "/v1/outcomes", body)
                mixed.append(len(streams[1:]) * 100 / (time.perf_counter() - begin))
            pool.close()
            return forecasts, outcomes, mixed

        forecasts, outcomes, mixed = asyncio.run(load())
    yield Line(f"forecasts in batches of {ROWS:,}", "", rate(forecasts))
    yield Line(f"outcomes in batches of {ROWS:,}, of one stream", "≥ 20,000/s", rate(outcomes))
    yield Line("  of 99 streams in turn", "≥ 20,000/s", rate(mixed))
