"""Lines of JSON on standard error: each request and its result, never its content.

A thread of its own writes them: whoever reads them may stand still, and no answer waits for it.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import time
import traceback
from contextlib import suppress
from queue import Full, Queue
from threading import Thread
from typing import Any, Literal, Self, TextIO

import msgspec

Level = Literal["info", "warning", "error"]

MOST = 10_000
"""Lines that wait to be written; what comes after them is dropped, and counted."""
_PAUSE = 0.1  # seconds between two writings: the lines of a tenth of a second are written at once
_END = 2.0  # seconds that the end of the process waits for a reader
_RANKS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_encode = msgspec.json.Encoder().encode


class Log:
    """Writes lines on a thread of its own, as a context; whoever adds one never waits.

    Parameters
    ----------
    stream
        Where to; standard error by default.
    level
        The least level of lines that are written.

    Examples
    --------
    >>> import sys
    >>> with Log(sys.stdout) as log:
    ...     log.line("started", address="http://127.0.0.1:8000")  # doctest: +ELLIPSIS
    {"at":"...Z","level":"info","event":"started","address":"http://127.0.0.1:8000"}
    """

    def __init__(self, stream: TextIO | None = None, *, level: Level = "info") -> None:
        self._stream = sys.stderr if stream is None else stream
        self._least = _RANKS[level]
        self._lines: Queue[str | None] = Queue(MOST)  # None is the end
        self._thread = Thread(target=self._run, name="treecal-log", daemon=True)
        self.dropped = 0
        """Lines that found no room, as nobody read those before them."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Write what is left, as far as somebody reads it."""
        with suppress(Full):  # nobody reads it
            self._lines.put_nowait(None)
        self._thread.join(_END)

    def request(self, method: str, route: str, status: int, seconds: float, token: str | None) -> None:
        """Write that a request was answered; the route is that of the table, without names and ids."""
        ms = round(1000 * seconds, 3)
        self._put("info", "request", {"method": method, "route": route, "status": status, "ms": ms, "token": token})

    def failure(self, error: BaseException, *, route: str) -> None:
        """Write where an error arose. Its message may quote a request, and is left out."""
        frames = [f"{each.filename}:{each.lineno} {each.name}" for each in traceback.extract_tb(error.__traceback__)]
        self._put("error", "failure", {"route": route, "error": type(error).__name__, "frames": frames})

    def line(self, event: str, *, level: str = "info", **details: Any) -> None:
        """Write something else."""
        self._put(level, event, details)

    def flush(self) -> None:
        """Wait until all lines so far are written, but not forever."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, _END)

    def _put(self, level: str, event: str, details: dict[str, Any]) -> None:
        if _RANKS.get(level, _RANKS["error"]) < self._least:
            return
        try:
            self._lines.put_nowait(_written(level, event, details))
        except Full:
            self.dropped += 1

    def _run(self) -> None:
        noted = 0  # of the lines that were dropped
        ended = False
        while not ended:
            found = [self._lines.get()]
            time.sleep(_PAUSE)
            found += [self._lines.get() for _ in range(self._lines.qsize())]
            ended = None in found
            lines = [line for line in found if line is not None]
            if (dropped := self.dropped) > noted:
                lines.append(_written("warning", "dropped", {"lines": dropped - noted}))
                noted = dropped
            if lines:
                self._write("\n".join(lines) + "\n")
            for _ in found:
                self._lines.task_done()

    def _write(self, text: str) -> None:
        rest = text.encode()
        try:
            number = self._stream.fileno()
            while rest:  # past the stream's buffer, whose lock would hold up the end of the process
                rest = rest[os.write(number, rest) :]
        except io.UnsupportedOperation:  # it is text in memory
            self._stream.write(text)
        except (OSError, ValueError):  # nobody reads it: the server goes on
            pass


def _written(level: str, event: str, details: dict[str, Any]) -> str:
    now = time.time()
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    return _encode({"at": at, "level": level, "event": event, **details}).decode()


class Handler(logging.Handler):
    """Passes what libraries log on to the log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; of an exception where it arose."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._log.failure(error, route=record.name)
        else:
            self._log.line("message", level=record.levelname.lower(), source=record.name, message=record.getMessage())
