"""What the process holds while many streams are played."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator

from serving.client import Pool
from serving.figures import Line
from serving.load import ROWS, Rounds, create, fill
from serving.server import serving


def memory(options: argparse.Namespace) -> Iterator[Line]:
    """Memory while a thousand streams are played, a thousand rounds each."""
    streams, each, rounds = (100 if options.quick else 1_000), 1_000, Rounds()
    with serving() as server:

        async def load() -> list[tuple[int, float]]:
            pool = Pool(server.port)
            names = await create(pool, streams)
            seen, step = [(0, server.memory())], 100
            for low in range(0, each, step):
                span = range(low, low + step)
                await fill(pool, rounds, names, dict.fromkeys(names, span))
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
