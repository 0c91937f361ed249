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
from threading import Condition, Thread
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
        self._lines: list[str] = []
        self._change = Condition()
        self._writing = self._closing = self._at_once = False
        self._untold = 0  # lines dropped since the last line that says so
        self._thread = Thread(target=self._run, name="treecal-log", daemon=True)
        self.dropped = 0
        """Lines that found no room, as nobody read those before them."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Write what is left, as far as somebody reads it."""
        self.flush()
        with self._change:
            self._closing = True
            self._change.notify_all()

    def request(self, method: str, route: str, status: int, seconds: float, token: str | None) -> None:
        """Write that a request was answered; the route is that of the table, without names and ids."""
        ms = round(1000 * seconds, 3)
        self._put("info", "request", {"method": method, "route": route, "status": status, "ms": ms, "token": token})

    def failure(self, error: BaseException, *, route: str) -> None:
        """Write where an error arose. Its message may quote a request, and is left out."""
        frames = [f"{each.filename}:{each.lineno} {each.name}" for each in traceback.extract_tb(error.__traceback__)]
        self._put("error", "failure", {"route": route, "error": type(error).__name__, "frames": frames}, at_once=True)

    def line(self, event: str, *, level: str = "info", **details: Any) -> None:
        """Write something else, at once."""
        self._put(level, event, details, at_once=True)

    def flush(self) -> None:
        """Wait until all lines so far are written, but not forever."""
        with self._change:
            self._at_once = bool(self._lines)
            self._change.notify_all()
            self._change.wait_for(lambda: not (self._lines or self._writing), _END)

    def _put(self, level: str, event: str, details: dict[str, Any], *, at_once: bool = False) -> None:
        if _RANKS.get(level, _RANKS["error"]) < self._least:
            return
        line = _written(level, event, details)
        with self._change:
            if len(self._lines) >= MOST:
                self.dropped += 1
                self._untold += 1
                return
            self._lines.append(line)
            if at_once or len(self._lines) == 1:
                self._at_once |= at_once
                self._change.notify_all()

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._lines or self._closing)
                self._change.wait_for(lambda: self._at_once or self._closing, _PAUSE)
                lines = self._lines
                self._lines = []
                self._at_once = False
                if not lines:
                    return
                if self._untold:
                    lines.append(_written("warning", "dropped", {"lines": self._untold}))
                    self._untold = 0
                self._writing = True
            self._write("\n".join(lines) + "\n")
            with self._change:
                self._writing = False
                self._change.notify_all()

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
