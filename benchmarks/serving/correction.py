"""What a correction adds to a model's answer."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator

from serving.client import Pool
from serving.figures import Line, percentiles
from serving.load import Rounds, create
from serving.server import serving
from treecal.client import Client


def correction(options: argparse.Namespace) -> Iterator[Line]:
    """What a correction adds to a model's answer, from call to return of `treecal.client`."""
    count, rounds = (500 if options.quick else 5_000), Rounds()
    points = [json.loads(text) for text in rounds.p]
    with serving() as server, Client(f"http://127.0.0.1:{server.port}") as client:

        async def created() -> str:
            pool = Pool(server.port)
            (name,) = await create(pool, 1)
            pool.close()
            return name

        stream = asyncio.run(created())
        spent, late = [], 0
        for i in range(count + 50):
            begin = time.perf_counter()
            answer = client.forecast(stream, points[i % len(points)], id=f"r{i}")
            if i >= 50:
                spent.append(time.perf_counter() - begin)
                late += not answer.corrected
    note = f"{count:,} calls in turn; {late} came too late, and the model's own were used"
    yield Line("a correction by treecal.client, call to return", "stated", percentiles(spent), note)
