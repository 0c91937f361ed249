"""What a client asks of a server: in time, or again until a deadline; and what it does when there is no answer."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from treecal._validate import positive_number
from treecal.client._delivery import Courier
from treecal.client._line import Address, AwayError, Line, Pause, backoff
from treecal.client._replies import Answer, Receipt, Receipts, read
from treecal.client._spool import Item, Spool, SpoolCounts, SpooledForecast, SpooledOutcome
from treecal.exceptions import FileError, ParameterError, ServerError
from treecal.serve import NewForecast, NewOutcome, NewOutcomes

T = TypeVar("T")
_POLL = 0.005  # seconds between looks at the spool while it is flushed
encode = msgspec.json.Encoder().encode
_log = logging.getLogger("treecal.client")
_now = time.monotonic


class Session:
    """The state of a client: where the server is, whether it answers, and what waits for it."""

    def __init__(
        self, url: str, *, token: str | None, timeout: float, spool: str | os.PathLike[str] | None, limit: int
    ) -> None:
        self.line = Line(Address(url, token))
        self.timeout = positive_number("timeout", timeout)
        self.pause = Pause(self.line.url)
        self.spool = None if spool is None else Spool(spool, limit=limit)
        self.courier = None if self.spool is None else Courier(self.spool, self.line, self.pause, self.timeout)
        self._process = os.getpid()
        self._closed = threading.Event()
        self._wake()

    def _wake(self) -> None:
        if self.courier is not None:
            self.courier.wake()

    @property
    def counts(self) -> SpoolCounts:
        """What is in the spool, and what became of the rest."""
        return SpoolCounts() if self.spool is None else self.spool.counts

    def check(self) -> None:
        """Raise if it is closed, or in a process that was forked: connections and spools cannot be shared."""
        if self._closed.is_set():
            raise ParameterError("this client is closed.")
        if os.getpid() != self._process:
            raise ParameterError(
                "this client was made before the process was forked.", hint="make one in each process, after the fork."
            )

    def close(self) -> None:
        """Close the connections, and let others have the spool."""
        if self._closed.is_set():
            return
        self._closed.set()
        self.line.close()
        if self.courier is not None and self.spool is not None:
            self.courier.close()
            self.spool.close()

    def limit(self, timeout: float | None) -> float:
        """Return the seconds that a call may take."""
        return self.timeout if timeout is None else positive_number("timeout", timeout)

    def away(self, why: AwayError | str, *, hint: str | None = None) -> ServerError:
        """Return the error of a call without an answer."""
        return ServerError.of("away", 0, f"{self.line.url} gave no answer: {why}.", hint=hint)

    def rest(self, seconds: float) -> bool:
        """Wait; return whether it was closed meanwhile."""
        return self._closed.wait(seconds)

    def _keep(self, items: Sequence[Item]) -> bool:
        """Return whether items are kept, to be delivered later."""
        kept = self.spool is not None and self.spool.append(items)
        self._wake()
        return kept

    # Forecasts: the model's own, where no answer comes in time

    def in_time(self, target: str, kind: type[T], body: object, deadline: float, timeout: float) -> T | str:
        """Return an answer; or why there is none, in words."""
        self.check()
        if (why := self.pause.why(timeout)) is not None:
            return why
        try:
            answer = read(self.line.send("POST", target, deadline, encode(body)), kind)
        except AwayError as away:
            self.pause.fail(away)
            return f"no answer within {timeout:g} s" if away.slow else str(away)
        except ServerError as error:
            return _shut_out(error)
        self.pause.end()
        return answer

    def raw(self, stream: str, new: list[NewForecast], why: str) -> list[Answer]:
        """Return the model's own forecasts, which the server is to record as what was announced."""
        if any(row.p is None for row in new):
            raise self.away(why, hint="a stream's own forecast is known to the server only; try again.")
        kept = self._keep(
            [SpooledForecast(stream, NewForecast(row.id, row.p, row.tags, row.due, used=True)) for row in new]
        )
        return [Answer(row.id, row.p, corrected=False, kept=kept, why=why) for row in new if row.p is not None]

    # Outcomes: spooled, where no answer comes; behind what is in the spool already, as their forecasts may be

    def settle(self, rows: list[NewOutcome], timeout: float | None) -> list[Receipt]:
        """Settle rounds, as many as a request may have."""
        self.check()
        body = NewOutcomes(rows)
        if self.spool is None:
            return _noted(self.ask("POST", "/v1/outcomes", Receipts, body, timeout).outcomes)
        limit = self.limit(timeout)
        if not len(self.spool) and self.pause.why(limit) is None:
            try:
                receipts = read(self.line.send("POST", "/v1/outcomes", _now() + limit, encode(body)), Receipts).outcomes
            except AwayError as away:
                self.pause.fail(away)
            else:
                self.pause.end()
                return _noted(receipts)
        if not self._keep([SpooledOutcome(row) for row in rows]):
            raise FileError(
                f"the server is away, and {self.spool.path} takes no more: {len(rows)} outcomes are not kept.",
                hint="send them again later; the same outcome twice is harmless.",
            )
        return [Receipt(row.stream, row.id, "spooled") for row in rows]

    # Everything else: tried again until the deadline

    def ask(self, method: str, target: str, kind: type[T], body: object = None, timeout: float | None = None) -> T:
        """Return an answer, or raise when there is none by the deadline."""
        self.check()
        deadline = _now() + self.limit(timeout)
        content = None if body is None else encode(body)
        failures = 0
        while True:
            try:
                return read(self.line.send(method, target, deadline, content), kind)
            except AwayError as away:
                failures += 1
                delay = backoff(failures, away)
                if _now() + delay >= deadline or self.rest(delay):
                    raise self.away(away) from None

    def flush(self, timeout: float | None) -> int:
        """Wait until the spool is empty, or the time is over; return how many items are left."""
        self.check()
        self._wake()
        deadline = _now() + self.limit(timeout)
        while (left := self.counts.waiting) and self.courier is not None and _now() < deadline:
            self.courier.hurry()
            self.rest(_POLL)
        return left


def route(stream: str) -> str:
    """Return the address of a stream."""
    if not isinstance(stream, str) or not stream:
        raise ParameterError.expected("stream", stream, "the name of a stream")
    return f"/v1/streams/{quoted(stream)}"


def quoted(name: str) -> str:
    """Return a name as a part of an address."""
    return quote(name, safe="")


def with_query(target: str, **given: object) -> str:
    """Return an address with what is given of a query."""
    query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
    query = {name: value for name, value in query.items() if value is not None}
    return f"{target}?{urlencode(query)}" if query else target


def _shut_out(error: ServerError) -> str:
    """Return why the model's own forecast must do, where the client's rights were taken away; otherwise raise.

    A token that was revoked, or a stream that was archived, is no reason for a model not to answer.
    """
    if error.code not in ("unauthorized", "forbidden", "archived"):
        raise error
    why = error.message.rstrip(".")
    _log.warning("forecasts are not corrected: %s", why)
    return why


def _noted(receipts: list[Receipt]) -> list[Receipt]:
    if unknown := [each for each in receipts if each.status == "unknown"]:
        first = unknown[0]
        words = "the server has no forecast for %d of %d outcomes, which are not kept: the first is id %r of stream %r"
        _log.warning(words, len(unknown), len(receipts), first.id, first.stream)
    return receipts
