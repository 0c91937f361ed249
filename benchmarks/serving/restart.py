"""How long the server takes to be ready."""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from collections.abc import Iterator

from serving.client import Pool
from serving.figures import Line
from serving.load import ROWS, Rounds, create, fill
from serving.server import serving


def restart(options: argparse.Namespace) -> Iterator[Line]:
    """How long the server takes to be ready, on empty books and on full ones, after a stop and after a kill."""
    total, streams, rounds = (10**6 if options.quick else 10**7), 100, Rounds()
    with serving() as server:
        server.stop()
        empty = server.start()

        async def load() -> float:
            pool = Pool(server.port)
            names = await create(pool, streams)
            begin = time.perf_counter()
            for low in range(0, total // streams, ROWS):
                span = range(low, low + ROWS)
                for name in names:
                    await fill(pool, rounds, [name], {name: span})
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
