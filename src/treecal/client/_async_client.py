"""The client for event loops: the methods of `Client`, to be awaited."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from treecal.client._client import ALL, Client
from treecal.client._line import LONGEST, AsyncLine, AwayError, Call, Download, Reply
from treecal.client._session import Act, Session
from treecal.client._spool import LIMIT, SpoolCounts

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger("treecal.client")


def _awaited(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Return a method of `Client` for `AsyncClient`: it runs an act by `_run`, which is to be awaited here."""
    act = cast("Callable[Concatenate[AsyncClient, P], Awaitable[T]]", method)

    @wraps(method)
    async def awaited(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await act(self, *args, **kwargs)

    return awaited


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
        self._session = Session(url, token=token, timeout=timeout, spool=spool, limit=spool_limit)
        self._line = AsyncLine(self._session.address)
        self._more = asyncio.Event()
        self._hurry = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    forecast = _awaited(Client.forecast)
    forecast_many = _awaited(Client.forecast_many)
    outcome = _awaited(Client.outcome)
    outcomes = _awaited(Client.outcomes)
    create = _awaited(Client.create)
    change = _awaited(Client.change)
    delete = _awaited(Client.delete)
    delete_forecast = _awaited(Client.delete_forecast)
    delete_forecasts = _awaited(Client.delete_forecasts)
    stream = _awaited(Client.stream)
    streams = _awaited(Client.streams)
    archive = _awaited(Client.archive)
    reset = _awaited(Client.reset)
    record = _awaited(Client.record)
    pending = _awaited(Client.pending)
    scores = _awaited(Client.scores)
    curve = _awaited(Client.curve)
    alarms = _awaited(Client.alarms)
    export = _awaited(Client.export)
    flush = _awaited(Client.flush)

    @property
    def spooled(self) -> SpoolCounts:
        """What waits in the spool, and what became of the rest."""
        return self._session.counts

    async def close(self) -> None:
        """Close the connections and the spool; what waits in it is delivered by the next client that has it."""
        if self._session.closed:
            return
        self._session.closed = True
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])
        await self._line.close()
        self._session.close()

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
        self._session.check()
        try:
            return await run(act, self._line.send, asyncio.sleep)
        finally:
            self._wake()

    def _wake(self) -> None:
        """Let the sender begin, if there is something to deliver."""
        if self._session.spool is not None and len(self._session.spool) and not self._session.closed:
            if self._sender is None:
                self._sender = asyncio.create_task(self._work(), name="treecal-spool")
            self._more.set()

    async def _work(self) -> None:
        """Deliver what is in the spool, whenever there is something."""
        while True:
            await self._more.wait()
            self._more.clear()
            try:
                await run(self._session.deliver(), self._line.send, self._doze)
            except Exception:  # whatever it is, what waits is tried again
                _log.exception("delivery from the spool failed")
                await self._doze(LONGEST)
                self._more.set()

    async def _doze(self, seconds: float) -> bool:
        with suppress(TimeoutError):  # Python 3.11's wait_for loses a cancellation that comes with what it waits for
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        hurry = self._hurry.is_set()
        self._hurry.clear()
        return hurry


async def run(
    act: Act[T],
    send: Callable[[Call | Download], Awaitable[Reply]],
    sleep: Callable[[float], Awaitable[bool | None]],
) -> T:
    """Run an act: do what it yields, send it the results, and return its answer."""
    try:
        step = next(act)
        while True:
            if isinstance(step, Call | Download):
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
    finally:
        act.close()
