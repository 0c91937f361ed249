"""What is sent: streams, forecasts in batches or at random moments, and their outcomes."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from typing import Any, NamedTuple

import numpy as np

from serving.client import Pool

CLASSES = ["early", "on time", "late"]
CORRECTOR = {"name": "vector"}
ROWS = 10_000
"""Forecasts or outcomes in one request, the most that the server takes."""
BEFORE = 20
"""Rounds of each stream before the clock runs."""


async def create(pool: Pool, streams: int) -> list[str]:
    """Create streams of a model with three classes, corrected and watched; return their names."""
    names = [f"model-{i:04}" for i in range(streams)]
    for name in names:
        await pool.call("POST", "/v1/streams", {"name": name, "classes": CLASSES, "corrector": CORRECTOR})
    return names


class Answers(NamedTuple):
    """What became of forecasts: when each was due, its latency, how many were acknowledged a stream, and refused."""

    due: Any
    latency: Any
    acknowledged: list[int]
    failed: int


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


async def begun(pool: Pool, rounds: Rounds, streams: list[str]) -> float:
    """Play the first rounds of each stream, and return the seconds that their outcomes took."""
    count = BEFORE * len(streams)
    for i in range(count):
        body = f'{{"id":"w{i}","p":{rounds.p[i]}}}'.encode()
        await pool.call("POST", f"/v1/streams/{streams[i % len(streams)]}/forecasts", body)
    told = [f'{{"stream":"{streams[i % len(streams)]}","id":"w{i}","outcome":{i % 3}}}' for i in range(count)]
    begin = time.perf_counter()
    await pool.call("POST", "/v1/outcomes", f'{{"outcomes":[{",".join(told)}]}}'.encode())
    return time.perf_counter() - begin


async def fill(pool: Pool, rounds: Rounds, streams: list[str], spans: dict[str, range]) -> float:
    """Announce forecasts in batches, and return the seconds that it took."""
    bodies = [(f"/v1/streams/{s}/forecasts/batch", rounds.forecasts(spans[s])) for s in streams]
    begin = time.perf_counter()
    for path, body in bodies:
        await pool.call("POST", path, body)
    return time.perf_counter() - begin


async def arrivals(
    pool: Pool, rounds: Rounds, streams: list[str], *, rate: float, seconds: float, pause: float
) -> Answers:
    """Send forecasts at random moments, and outcomes of what was answered beside them, every so many seconds."""
    rng = np.random.default_rng(1)
    count = int(rate * seconds)
    due = np.cumsum(rng.exponential(1 / rate, count))
    latency, of = np.full(count, np.nan), rng.integers(len(streams), size=count).tolist()
    answered, acknowledged, failed = list[tuple[str, int]](), [0] * len(streams), 0
    batches = Pool(pool.port)
    moments = due.tolist()
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
                await batches.call("POST", "/v1/outcomes", rounds.settled(batch))

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
    return Answers(due, latency, acknowledged, failed)
