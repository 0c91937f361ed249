"""Delivery of what is in the spool: in order, in batches, without what the server refuses for good."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import TypeVar
from urllib.parse import quote

import msgspec

from treecal.client._line import LONGEST, AwayError, Line, Pause, backoff
from treecal.client._replies import Answers, Receipts, read
from treecal.client._spool import Item, QueuedRow, Spool, SpooledForecast, SpooledOutcome
from treecal.exceptions import ServerError
from treecal.serve import NewForecasts, NewOutcomes, Problem, Stream

MOST = 1000
# Refusals for good; all others are not about the rows, and are waited out.
_ROWS = {"archived", "bad_json", "conflict", "invalid", "too_large"}
_NO_STREAM = "not_found"  # wrong with all rows of the stream
_SYNC = 1.0  # seconds between syncs of the spool while the server is away
_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("treecal.client")
_now = time.monotonic

T = TypeVar("T")
Rows = TypeVar("Rows", bound=Item)


class Courier:
    """Delivers what is in a spool, on a thread that begins when there is something.

    It takes batches; smaller ones after one that took too long. Forecasts and outcomes go in order, and no outcome
    before its forecast. Forecasts may go before earlier outcomes, so that a batch is large where they alternate; not in
    a stream that lets only so many rounds wait, in which that could push out the oldest. What was delivered just before
    a failure is delivered again, which ids make harmless.
    """

    def __init__(self, spool: Spool, line: Line, pause: Pause, timeout: float) -> None:
        self.spool = spool
        self._line = line
        self._pause = pause
        self._timeout = timeout
        self._most = MOST
        self._limited: dict[str, bool] = {}
        self._lock = threading.Lock()
        self._more = threading.Event()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def wake(self) -> None:
        """Begin, if there is something to deliver."""
        if not len(self.spool):
            return
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._work, name="treecal-spool", daemon=True)
                self._thread.start()
        self._more.set()

    def hurry(self) -> None:
        """Try now, however long the server has been away."""
        self._hurry.set()

    def close(self) -> None:
        """End; the connections must be closed already, so that nothing takes long."""
        with self._lock:
            self._closed = True
        self._more.set()
        self._hurry.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while not self._closed:
            self._more.wait()
            self._more.clear()
            try:
                self.deliver()
            except Exception:  # whatever it is, what waits is tried again
                _log.exception("delivery from the spool failed")
                self._rest(LONGEST)
                self._more.set()

    def deliver(self) -> None:
        """Deliver all that is in the spool, however long it takes."""
        failures = 0
        denials = 0
        self._rest(self._pause.left())
        while len(self.spool) and not self._closed:
            try:
                self._batch()
            except AwayError as away:
                failures += 1
                if not away.denied:
                    self._pause.fail(away)
                    self._rest(self._pause.left())
                    continue
                denials += 1
                if denials == 1:
                    _log.warning("%s takes nothing from %s: %s", self._line.url, self.spool.path, away)
                self._rest(backoff(failures, away))
            else:
                failures = 0
                denials = 0

    def _rest(self, seconds: float) -> None:
        """Wait, unless there is a hurry; the spool is safe meanwhile."""
        again = _now() + seconds
        while not self._closed and (left := again - _now()) > 0:
            self.spool.sync()
            if self._hurry.wait(min(left, _SYNC)):
                self._hurry.clear()
                return

    def _batch(self) -> None:
        waiting = self.spool.head(self._most)
        try:
            for stream in {row.item.stream for row in waiting if isinstance(row.item, SpooledForecast)}:
                if stream not in self._limited:
                    self._limited[stream] = self._is_limited(stream)
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
                    self._forecasts(rows, refused)
                if outcomes:
                    self._outcomes(outcomes, refused)
                self._pause.end()  # before anybody sees that the spool is empty
                self.spool.advance(part, refused=refused)
        except AwayError as away:
            self._most = max(self._most // 2, 1) if away.slow else self._most
            raise
        self._most = min(self._most * 2, MOST)

    def _is_limited(self, stream: str) -> bool:
        reply = self._line.send("GET", f"/v1/streams/{quote(stream, safe='')}", _now() + self._timeout)
        try:
            return read(reply, Stream).config.limit is not None
        except ServerError:  # its forecasts will be refused, or may be read by others only
            return True

    def _post(self, target: str, body: object, kind: type[T]) -> T:
        return read(self._line.send("POST", target, _now() + self._timeout, _encode(body)), kind)

    def _forecasts(self, rows: list[SpooledForecast], refused: list[tuple[Item, Problem]]) -> None:
        target = f"/v1/streams/{quote(rows[0].stream, safe='')}/forecasts/batch"
        try:
            self._post(target, NewForecasts([row.forecast for row in rows]), Answers)
        except ServerError as error:
            for part in _without(rows, error, refused, _ROWS | {_NO_STREAM}):
                self._forecasts(part, refused)

    def _outcomes(self, rows: list[SpooledOutcome], refused: list[tuple[Item, Problem]]) -> None:
        try:
            receipts = self._post("/v1/outcomes", NewOutcomes([row.outcome for row in rows]), Receipts).outcomes
        except ServerError as error:
            for part in _without(rows, error, refused, _ROWS):
                self._outcomes(part, refused)
            return
        for row, each in zip(rows, receipts, strict=True):
            if each.status == "unknown":
                refused.append((row, Problem("unknown", "there is no forecast with this id")))
            elif each.status == "conflict":
                refused.append((row, Problem("conflict", "the round has another outcome")))


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
