"""The same books by a peer: Optuna's storage in SQLite."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from serving.client import Pool
from serving.figures import Line
from serving.load import Rounds, create
from serving.server import serving


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
            streams = await create(pool, 33)
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
