"""The client for event loops."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar

from treecal._atomic import new_file
from treecal.client._answers import Answer, Receipt
from treecal.client._client import ALL, BATCH, FORECAST, POLL
from treecal.client._desk import Act, Desk, encode, quoted, route, with_query
from treecal.client._line import AsyncLine, AwayError, Call, Reply
from treecal.client._pause import LONGEST
from treecal.client._replies import read
from treecal.client._rows import Due, Label, Vector
from treecal.client._spool import LIMIT, SpoolCounts
from treecal.client._streams import Given, new_stream
from treecal.serve import Alarm, Alarms, Curve, Pending, Record, Scores, Stream

T = TypeVar("T")
_log = logging.getLogger("treecal.client")


class AsyncClient:
    """`Client` for an event loop: the same methods, to be awaited, and the same guarantees.

    What is in the spool is delivered by a task of the loop in which the client is used.

    Parameters
    ----------
    url, token, timeout, spool, spool_limit
        As for `Client`.

    Examples
    --------
    >>> import asyncio
    >>> async def main():
    ...     async with AsyncClient("http://127.0.0.1:9") as client:  # nobody listens there
    ...         answer = await client.forecast("rain", [0.3, 0.7], id="monday")
    ...         return answer.forecast, answer.corrected
    >>> asyncio.run(main())
    ([0.3, 0.7], False)
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = ALL,
        spool: str | os.PathLike[str] | None = None,
        spool_limit: int = LIMIT,
    ) -> None:
        self._desk = Desk(url, token=token, timeout=timeout, spool=spool, limit=spool_limit)
        self._line = AsyncLine(self._desk.address)
        self._more, self._hurry = asyncio.Event(), asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    # Forecasts and outcomes

    async def forecast(
        self,
        stream: str,
        p: Vector | None = None,
        *,
        id: str | None = None,  # noqa: A002
        tags: Mapping[str, str] | None = None,
        due: Due | None = None,
        timeout: float = FORECAST,
    ) -> Answer:
        """Return the forecast to use: see `Client.forecast`."""
        return await self._run(self._desk.forecast(stream, p, id, tags, due, timeout))

    async def forecast_many(
        self,
        stream: str,
        P: Iterable[Vector],
        *,
        ids: Iterable[str] | None = None,
        tags: Iterable[Mapping[str, str]] | None = None,
        due: Due | None = None,
        timeout: float = BATCH,
    ) -> list[Answer]:
        """Return the forecasts to use, in order: see `Client.forecast_many`."""
        return await self._run(self._desk.forecast_many(stream, P, ids, tags, due, timeout))

    async def outcome(
        self,
        stream: str,
        id: str,  # noqa: A002
        y: Label,
        *,
        amend: bool = False,
        timeout: float | None = None,
    ) -> Receipt:
        """Settle a round: see `Client.outcome`."""
        return (await self.outcomes([(stream, id, y)], amend=amend, timeout=timeout))[0]

    async def outcomes(
        self, rows: Iterable[tuple[str, str, Label]], *, amend: bool = False, timeout: float | None = None
    ) -> list[Receipt]:
        """Settle many rounds, of any streams, in order: see `Client.outcomes`."""
        return await self._run(self._desk.outcomes(rows, amend, timeout))

    # Streams

    async def create(
        self,
        name: str,
        *,
        classes: Iterable[object] | None = None,
        set: Mapping[str, Any] | None = None,  # noqa: A002
        corrector: Given | None = None,
        gate: bool = False,
        forecaster: Given | None = None,
        monitor: bool | Mapping[str, Any] = True,
        tags: Iterable[str] = (),
        group: Iterable[str] = (),
        limit: int | None = None,
    ) -> Stream:
        """Create a stream, or return it if there is the same already: see `Client.create`."""
        new = new_stream(name, classes, set, corrector, gate, forecaster, monitor, tags, group, limit)
        return await self._run(self._desk.ask("POST", "/v1/streams", Stream, encode(new)))

    async def stream(self, name: str) -> Stream:
        """Return how a stream was made, and how it stands."""
        return await self._run(self._desk.ask("GET", route(name), Stream))

    async def streams(self, *, prefix: str | None = None, archived: bool = False) -> list[Stream]:
        """Return all streams in the order of their names; those of a prefix, or archived ones too."""
        return await self._run(self._desk.ask_streams(prefix, archived))

    async def archive(self, name: str) -> Stream:
        """Take no new forecasts; outcomes of those that wait are still taken."""
        return await self._run(self._desk.ask("POST", f"{route(name)}/archive", Stream))

    async def reset(self, name: str) -> Stream:
        """Let the monitors begin anew, after an alarm was seen to."""
        return await self._run(self._desk.ask("POST", f"{route(name)}/reset", Stream))

    # What the books say

    async def record(self, stream: str, id: str) -> Record:  # noqa: A002
        """Return all that is known of a round."""
        return await self._run(self._desk.ask("GET", f"{route(stream)}/forecasts/{quoted(id)}", Record))

    async def pending(self, stream: str, *, overdue: bool = False, after: int = 0, limit: int = 100) -> Pending:
        """Return a page of rounds that await their outcomes, the oldest first; its `next` is the next `after`."""
        target = with_query(f"{route(stream)}/pending", overdue=overdue, after=after, limit=limit)
        return await self._run(self._desk.ask("GET", target, Pending))

    async def scores(
        self,
        stream: str,
        *,
        by: str | None = None,
        window: str | None = None,
        since: float | None = None,
        until: float | None = None,
        last: int | None = None,
    ) -> Scores:
        """Return errors, reliability and scores, before and after: see `Client.scores`."""
        target = with_query(f"{route(stream)}/scores", by=by, window=window, since=since, until=until, last=last)
        return await self._run(self._desk.ask("GET", target, Scores))

    async def curve(self, stream: str) -> Curve:
        """Return error over time with its guarantee, and evidence."""
        return await self._run(self._desk.ask("GET", f"{route(stream)}/curve", Curve))

    async def alarms(self, stream: str | None = None) -> list[Alarm]:
        """Return the alarms of a stream, or of all, the latest first."""
        return (await self._run(self._desk.ask("GET", with_query("/v1/alarms", stream=stream), Alarms))).alarms

    async def export(
        self,
        stream: str,
        path: str | os.PathLike[str],
        *,
        since: float | None = None,
        until: float | None = None,
        force: bool = False,
    ) -> None:
        """Write the rounds of a stream to a Parquet file: see `Client.export`."""
        self._desk.check()
        target = with_query(f"{route(stream)}/export", since=since, until=until)
        with new_file(path, force=force) as temporary, open(temporary, "wb") as file:
            try:
                async with self._line.download(target, self._desk.timeout) as (status, parts):
                    if status != 200:
                        read(Reply(status, [], b"".join([part async for part in parts])), Stream)
                    async for part in parts:
                        file.write(part)
            except AwayError as away:
                raise self._desk.away(away) from None

    # The spool

    @property
    def spooled(self) -> SpoolCounts:
        """What waits in the spool, and what became of the rest."""
        return self._desk.counts

    async def flush(self, timeout: float | None = None) -> int:
        """Deliver now what is in the spool; return how many still wait: see `Client.flush`."""
        self._desk.check()
        deadline = time.monotonic() + self._desk.limit(timeout)
        self._wake()
        while left := self._desk.counts.waiting:
            if time.monotonic() >= deadline:
                return left
            self._hurry.set()
            await asyncio.sleep(POLL)
        return 0

    async def close(self) -> None:
        """Close the connections and the spool; what waits in it is delivered by the next client that has it."""
        if self._desk.closed:
            return
        self._desk.closed = True
        if self._sender is not None:
            self._sender.cancel()
            with suppress(asyncio.CancelledError):
                await self._sender
        await self._line.close()
        self._desk.close()

    async def __aenter__(self) -> Self:
        self._wake()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: copies of a model share its client."""
        return self

    # Running acts

    async def _run(self, act: Act[T]) -> T:
        self._desk.check()
        try:
            return await run(act, self._line.send, asyncio.sleep)
        finally:
            self._wake()

    def _wake(self) -> None:
        """Let the sender begin, if there is something to deliver."""
        if self._desk.spool is not None and len(self._desk.spool) and not self._desk.closed:
            if self._sender is None:
                self._sender = asyncio.create_task(self._work(), name="treecal-spool")
            self._more.set()

    async def _work(self) -> None:
        """Deliver what is in the spool, whenever there is something."""
        while True:
            await self._more.wait()
            self._more.clear()
            try:
                await run(self._desk.deliver(), self._line.send, self._doze)
            except Exception:  # whatever it is, what waits is tried again
                _log.exception("delivery from the spool failed")
                await self._doze(LONGEST)
                self._more.set()

    async def _doze(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), seconds)
        hurry = self._hurry.is_set()
        self._hurry.clear()
        return hurry


async def run(
    act: Act[T], send: Callable[[Call], Awaitable[Reply]], sleep: Callable[[float], Awaitable[bool | None]]
) -> T:
    """Run an act: do what it yields, send it what comes of that, and return its answer."""
    try:
        step = next(act)
        while True:
            if isinstance(step, Call):
                try:
                    reply = await send(step)
                except AwayError as away:
                    step = act.throw(away)
                else:
                    step = act.send(reply)
            elif callable(step):
                step = act.send(await asyncio.to_thread(step))
            else:
                step = act.send(await sleep(step))
    except StopIteration as end:
        answer: T = end.value
        return answer
