"""What the clients do, apart from how calls are made: each act yields calls and delays, and returns the answer.

So there is one meaning, run by a thread in `Client` and by an event loop in `AsyncClient`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from treecal._atomic import new_file
from treecal._validate import positive_number
from treecal.client._delivery import Courier
from treecal.client._line import Address, AwayError, Call, Download, Pause, backoff
from treecal.client._replies import Answer, Receipt, read
from treecal.client._requests import Due, Label, Vector, new_forecast, new_outcome
from treecal.client._spool import Spool, SpoolCounts, SpooledForecast, SpooledOutcome
from treecal.exceptions import FileError, ParameterError, ServerError
from treecal.serve import (
    MOST_ROWS,
    Alarm,
    Alarms,
    Announced,
    Announcements,
    Deleted,
    NewForecast,
    NewForecasts,
    NewOutcome,
    NewOutcomes,
    Settled,
    Settlements,
    Stream,
    Streams,
)

T = TypeVar("T")
Act = Generator[Call | Download | float | Callable[[], Any], Any, T]
"""Yields calls, delays in seconds, and what takes a while on the disk; is sent replies, whether there is a hurry, and
what the disk gave."""

_MOST_NUMBERS = 200_000  # in a request: some 4 MB
_POLL = 0.005  # seconds between looks at the spool while it is flushed
_SYNC = 1.0  # seconds between syncs of the spool while the server is away
encode = msgspec.json.Encoder().encode
_log = logging.getLogger("treecal.client")
_now = time.monotonic


class Session:
    """The state of a client: where the server is, whether it answers, and what waits for it."""

    def __init__(
        self, url: str, *, token: str | None, timeout: float, spool: str | os.PathLike[str] | None, limit: int
    ) -> None:
        self.address = Address(url, token)
        self.timeout = positive_number("timeout", timeout)
        self.pause = Pause(self.address.url)
        self.spool = None if spool is None else Spool(spool, limit=limit)
        self.delivery = None if self.spool is None else Courier(self.spool, self.timeout)
        self._process = os.getpid()
        self.closed = False

    @property
    def counts(self) -> SpoolCounts:
        """What is in the spool, and what became of the rest."""
        return SpoolCounts() if self.spool is None else self.spool.counts

    def check(self) -> None:
        """Raise if it is closed, or in a process that was forked: connections and spools cannot be shared."""
        if self.closed:
            raise ParameterError("this client is closed.")
        if os.getpid() != self._process:
            raise ParameterError(
                "this client was made before the process was forked.", hint="make one in each process, after the fork."
            )

    def limit(self, timeout: float | None) -> float:
        """Return the seconds that a call may take."""
        return self.timeout if timeout is None else positive_number("timeout", timeout)

    def away(self, why: AwayError | str, *, hint: str | None = None) -> ServerError:
        """Return the error of a call without an answer."""
        return ServerError.of("away", 0, f"{self.address.url} gave no answer: {why}.", hint=hint)

    def close(self) -> None:
        """Let others have the spool."""
        if self.spool is not None:
            self.spool.close()

    # Forecasts: the model's own, where no answer comes in time

    def forecast(
        self,
        stream: str,
        p: Vector | None,
        id: str | None,  # noqa: A002
        tags: Mapping[str, str] | None,
        due: Due | None,
        timeout: float,
    ) -> Act[Answer]:
        """Announce one."""
        deadline = _now() + positive_number("timeout", timeout)
        new = new_forecast(p, id, tags, due)
        found = yield from self._in_time(f"{route(stream)}/forecasts", Announced, encode(new), deadline, timeout)
        return self._raw(stream, [new], found)[0] if isinstance(found, str) else _announced(found)

    def forecast_many(
        self,
        stream: str,
        P: Iterable[Vector],
        ids: Iterable[str] | None,
        tags: Iterable[Mapping[str, str]] | None,
        due: Due | None,
        timeout: float,
    ) -> Act[list[Answer]]:
        """Announce many; all of a request or none."""
        deadline = _now() + positive_number("timeout", timeout)
        points = list(P)
        names_of = _column("ids", ids, len(points))
        tags_of = _column("tags", tags, len(points))
        given = zip(points, names_of, tags_of, strict=True)
        new = [new_forecast(p, name, words, due, at) for at, (p, name, words) in enumerate(given)]
        answers: list[Answer] = []
        for rows in _requests(new):
            target = f"{route(stream)}/forecasts/batch"
            found = yield from self._in_time(target, Announcements, encode(NewForecasts(rows)), deadline, timeout)
            if isinstance(found, str):
                answers += self._raw(stream, rows, found)
            else:
                answers += [_announced(each) for each in found.forecasts]
        return answers

    def _in_time(self, target: str, kind: type[T], body: bytes, deadline: float, timeout: float) -> Act[T | str]:
        """Return an answer; or why there is none, in words."""
        if (why := self.pause.why(timeout)) is not None:
            return why
        try:
            reply = yield Call("POST", target, deadline, body)
            answer = read(reply, kind)
        except AwayError as away:
            self.pause.fail(away)
            return f"no answer within {timeout:g} s" if away.slow else str(away)
        except ServerError as error:
            return _shut_out(error)
        self.pause.end()
        return answer

    def _raw(self, stream: str, new: list[NewForecast], why: str) -> list[Answer]:
        """Return the model's own forecasts, which the server is to record as what was announced."""
        if any(row.p is None for row in new):
            raise self.away(why, hint="a stream's own forecast is known to the server only; try again.")
        used = [SpooledForecast(stream, NewForecast(row.id, row.p, row.tags, row.due, used=True)) for row in new]
        kept = self.spool is not None and self.spool.append(used)
        return [Answer(row.id, row.p, corrected=False, kept=kept, why=why) for row in new if row.p is not None]

    # Outcomes: spooled, where no answer comes; behind what is in the spool already, as their forecasts may be

    def outcomes(
        self, rows: Iterable[tuple[str, str, Label]], amend: bool, timeout: float | None
    ) -> Act[list[Receipt]]:
        """Settle rounds."""
        given = [new_outcome(*_triple(row, at), amend, at) for at, row in enumerate(rows)]
        receipts: list[Receipt] = []
        for start in range(0, len(given), MOST_ROWS):
            receipts += yield from self._outcomes(given[start : start + MOST_ROWS], timeout)
        return receipts

    def outcome(self, stream: str, id: str, y: Label, amend: bool, timeout: float | None) -> Act[Receipt]:  # noqa: A002
        """Settle a round."""
        (receipt,) = yield from self.outcomes([(stream, id, y)], amend, timeout)
        return receipt

    def _outcomes(self, rows: list[NewOutcome], timeout: float | None) -> Act[list[Receipt]]:
        body = encode(NewOutcomes(rows))
        if self.spool is None:
            settled = (yield from self.ask("POST", "/v1/outcomes", Settlements, body, timeout)).outcomes
            return _receipts(settled)
        limit = self.limit(timeout)
        if not len(self.spool) and self.pause.why(limit) is None:
            try:
                reply = yield Call("POST", "/v1/outcomes", _now() + limit, body)
                settled = read(reply, Settlements).outcomes
            except AwayError as away:
                self.pause.fail(away)
            else:
                self.pause.end()
                return _receipts(settled)
        if not self.spool.append([SpooledOutcome(row) for row in rows]):
            raise FileError(
                f"the server is away, and {self.spool.path} takes no more: {len(rows)} outcomes are not kept.",
                hint="send them again later; the same outcome twice is harmless.",
            )
        return [Receipt(row.stream, row.id, "spooled") for row in rows]

    # Everything else: tried again until the deadline

    def ask(
        self, method: str, target: str, kind: type[T], body: bytes | None = None, timeout: float | None = None
    ) -> Act[T]:
        """Return an answer, or raise when there is none by the deadline."""
        deadline = _now() + self.limit(timeout)
        failures = 0
        while True:
            try:
                reply = yield Call(method, target, deadline, body)
                answer = read(reply, kind)
            except AwayError as away:
                failures += 1
                delay = backoff(failures, away)
                if _now() + delay >= deadline:
                    raise self.away(away) from None
                yield delay
            else:
                return answer

    def ask_streams(self, prefix: str | None, archived: bool) -> Act[list[Stream]]:
        """Return all streams, page by page."""
        found: list[Stream] = []
        after: str | None = None
        while True:
            target = with_query("/v1/streams", after=after, prefix=prefix, archived=archived)
            page = yield from self.ask("GET", target, Streams)
            found += page.streams
            after = page.next
            if after is None:
                return found

    def delete(self, target: str) -> Act[int]:
        """Delete what is at an address; return how many forecasts that were."""
        return (yield from self.ask("DELETE", target, Deleted)).forecasts

    def alarms(self, stream: str | None) -> Act[list[Alarm]]:
        """Return alarms."""
        found = yield from self.ask("GET", with_query("/v1/alarms", stream=stream), Alarms)
        return found.alarms

    def export(
        self, stream: str, path: str | os.PathLike[str], since: float | None, until: float | None, force: bool
    ) -> Act[None]:
        """Write the rounds of a stream to a file."""
        target = with_query(f"{route(stream)}/export", since=since, until=until)
        with new_file(path, force=force) as temporary, open(temporary, "wb") as file:
            try:
                reply = yield Download(target, self.timeout, file)
                if reply.status != 200:
                    read(reply, Stream)
            except AwayError as away:
                raise self.away(away) from None

    # The spool

    def flush(self, timeout: float | None, hurry: Callable[[], object]) -> Act[int]:
        """Wait until the spool is empty, or the time is over; return how many items are left."""
        deadline = _now() + self.limit(timeout)
        while (left := self.counts.waiting) and _now() < deadline:
            hurry()
            yield _POLL
        return left

    def deliver(self) -> Act[None]:
        """Deliver all that is in the spool, however long it takes."""
        failures = 0
        while self.spool is not None and self.delivery is not None and len(self.spool):
            yield from self._rest(self.spool, self.pause.left())
            try:
                yield from self.delivery.batch()
            except AwayError as away:
                failures += 1
                if not away.denied:
                    self.pause.fail(away)
                    continue
                if failures == 1:
                    _log.warning("%s takes nothing from %s: %s", self.address.url, self.spool.path, away)
                yield from self._rest(self.spool, backoff(failures, away))
            else:
                failures = 0
                self.pause.end()

    def _rest(self, spool: Spool, seconds: float) -> Act[None]:
        """Wait, unless there is a hurry; the spool is safe meanwhile."""
        again = _now() + seconds
        while (left := again - _now()) > 0:
            yield spool.sync
            if (yield min(left, _SYNC)):
                return


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


def _announced(found: Announced) -> Answer:
    given = found.round, found.state, found.points, found.weights, found.quantiles, found.action, found.actions
    return Answer(found.id, found.forecast, True, True, None, *given)


def _receipts(settled: list[Settled]) -> list[Receipt]:
    if unknown := [each for each in settled if each.status == "unknown"]:
        first = unknown[0]
        words = "the server has no forecast for %d of %d outcomes, which are not kept: the first is id %r of stream %r"
        _log.warning(words, len(unknown), len(settled), first.id, first.stream)
    return [Receipt(each.stream, each.id, each.status) for each in settled]


def _requests(new: list[NewForecast]) -> Iterator[list[NewForecast]]:
    """Yield as many rows as a request may have; fewer, if they are long."""
    longest = max((len(row.p) for row in new if row.p is not None), default=1)
    most = max(min(MOST_ROWS, _MOST_NUMBERS // max(longest, 1)), 1)
    for start in range(0, len(new), most):
        yield new[start : start + most]


def _column(name: str, column: Iterable[T] | None, count: int) -> list[T] | list[None]:
    if column is None:
        return [None] * count
    found = list(column)
    if len(found) != count:
        raise ParameterError(f"{name} has {len(found)} entries, expected one for each of the {count} forecasts.")
    return found


def _triple(row: tuple[str, str, Label], at: int) -> tuple[str, str, Label]:
    if not isinstance(row, Sequence) or isinstance(row, str) or len(row) != 3:
        raise ParameterError.expected(f"outcomes[{at}]", row, "a stream, an id and an outcome")
    return row
