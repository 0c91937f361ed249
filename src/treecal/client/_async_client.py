"""The client for event loops: the methods of `Client`, to be awaited."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from treecal.client._client import ALL, Client
from treecal.client._line import CONNECTIONS
from treecal.client._spool import LIMIT, SpoolCounts

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Client, P], T], *, prompt: bool = False
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Return a method of `Client` for `AsyncClient`; one that must be prompt waits for no thread of the others."""

    @wraps(method)
    async def awaited(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._client._session.check()
        threads = self._prompt if prompt else self._threads
        act = partial(method, self._client, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(threads, act)

    return awaited


class AsyncClient:
    """`Client` for an event loop: the same methods, to be awaited, and the same guarantees.

    Calls are made by threads, and so is the delivery of what is in the spool: the loop never waits. A call that
    is cancelled goes on in its thread until its timeout.

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
        self._client = Client(url, token=token, timeout=timeout, spool=spool, spool_limit=spool_limit)
        self._prompt = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="treecal-forecast")
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="treecal-client")

    forecast = _awaited(Client.forecast, prompt=True)
    forecast_many = _awaited(Client.forecast_many, prompt=True)
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
        return self._client.spooled

    async def close(self) -> None:
        """Close the connections and the spool; what waits in it is delivered by the next client that has it."""
        await asyncio.to_thread(self._client.close)
        self._prompt.shutdown(wait=False)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: copies of a model share its client."""
        return self
