"""Delivery of what is in the spool: in order, in batches, without what the server refuses for good."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from treecal.client._line import AwayError, Call, Reply
from treecal.client._replies import read
from treecal.client._spool import Item, QueuedRow, Spool, SpooledForecast, SpooledOutcome
from treecal.exceptions import ServerError
from treecal.serve import Announcements, NewForecasts, NewOutcomes, Problem, Settlements, Stream

MOST = 1000
# Refusals for good; all others are not about the rows, and are waited out.
_ROWS = {"archived", "bad_json", "conflict", "invalid", "too_large"}
_NO_STREAM = "not_found"  # wrong with all rows of the stream
_encode = msgspec.json.Encoder().encode

Calls = Generator[Call | Callable[[], Any], Any, None]
"""Yields calls, and what takes a while on the disk, and is sent what comes of them."""
Rows = TypeVar("Rows", bound=Item)


class Courier:
    """Takes batches from a spool; smaller ones after one that took too long.

    Forecasts and outcomes go in order, and no outcome before its forecast. Forecasts may go before earlier outcomes, so
    that a batch is large where they alternate; not in a stream that lets only so many rounds wait, in which that could
    push out the oldest. What was delivered just before a failure is delivered again, which ids make harmless.
    """

    def __init__(self, spool: Spool, timeout: float) -> None:
        self.spool = spool
        self._timeout = timeout
        self._most = MOST
        self._limited: dict[str, bool] = {}

    def batch(self) -> Calls:
        """Deliver a batch; raises if the server is away."""
        waiting: list[QueuedRow] = yield partial(self.spool.head, self._most)
        try:
            for stream in {row.item.stream for row in waiting if isinstance(row.item, SpooledForecast)}:
                if stream not in self._limited:
                    self._limited[stream] = yield from self._is_limited(stream)
            for part in _parts(waiting, {stream for stream, limited in self._limited.items() if limited}):
                refused: list[tuple[Item, Problem]] = []
                forecasts: dict[str, list[SpooledForecast]] = {}
                outcomes: list[SpooledOutcome] = []
                for row in part:
                    if isinstance(row.item, SpooledForecast):
                        forecasts.setdefault(row.item.stream, []).append(row.item)
                    else:
                        outcomes.append(row.item)
                for rows in forecasts.values():
                    yield from self._forecasts(rows, refused)
                if outcomes:
                    yield from self._outcomes(outcomes, refused)
                yield partial(self.spool.advance, part, refused=refused)
        except AwayError as away:
            self._most = max(self._most // 2, 1) if away.slow else self._most
            raise
        self._most = min(self._most * 2, MOST)

    def _is_limited(self, stream: str) -> Generator[Call, Reply, bool]:
        reply = yield Call("GET", f"/v1/streams/{quote(stream, safe='')}", time.monotonic() + self._timeout)
        try:
            return read(reply, Stream).config.limit is not None
        except ServerError:  # its forecasts will be refused, or may be read by others only
            return True

    def _forecasts(self, rows: list[SpooledForecast], refused: list[tuple[Item, Problem]]) -> Calls:
        body = _encode(NewForecasts([row.forecast for row in rows]))
        reply = yield self._call(f"/v1/streams/{quote(rows[0].stream, safe='')}/forecasts/batch", body)
        try:
            read(reply, Announcements)
        except ServerError as error:
            for part in _without(rows, error, refused, _ROWS | {_NO_STREAM}):
                yield from self._forecasts(part, refused)

    def _outcomes(self, rows: list[SpooledOutcome], refused: list[tuple[Item, Problem]]) -> Calls:
        reply = yield self._call("/v1/outcomes", _encode(NewOutcomes([row.outcome for row in rows])))
        try:
            settled = read(reply, Settlements).outcomes
        except ServerError as error:
            for part in _without(rows, error, refused, _ROWS):
                yield from self._outcomes(part, refused)
            return
        for row, each in zip(rows, settled, strict=True):
            if each.status == "unknown":
                refused.append((row, Problem("unknown", "there is no forecast with this id")))
            elif each.status == "conflict":
                refused.append((row, Problem("conflict", "the round has another outcome")))

    def _call(self, target: str, body: bytes) -> Call:
        return Call("POST", target, time.monotonic() + self._timeout, body)


def _parts(rows: list[QueuedRow], limited: set[str]) -> Iterator[list[QueuedRow]]:
    """Yield stretches in which all forecasts may go before all outcomes."""
    part: list[QueuedRow] = []
    settled: set[str] = set()
    for row in rows:
        if isinstance(row.item, SpooledOutcome):
            settled.add(row.item.outcome.stream)
        elif row.item.stream in limited & settled:
            yield part
            part = []
            settled = set()
        part.append(row)
    if part:
        yield part


def _without(
    rows: list[Rows], error: ServerError, refused: list[tuple[Item, Problem]], final: set[str]
) -> list[list[Rows]]:
    """Return the parts to try, since all of a batch or none is taken; a part that is refused for good is kept apart."""
    if error.code not in final:
        raise AwayError(f"{error.code}: {error}", denied=True)
    if len(rows) > 1 and error.code != _NO_STREAM:
        return [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    refused += [(row, Problem(error.code, error.message, error.hint, error.at)) for row in rows]
    return []
