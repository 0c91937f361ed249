"""Lines of JSON on standard error: each request and its result, never its content."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from typing import Any, TextIO

import msgspec

_encode = msgspec.json.Encoder().encode
_PAUSE = 0.1


class Log:
    """Writes lines, those of a tenth of a second at once.

    Parameters
    ----------
    stream
        Where to; standard error by default.

    Examples
    --------
    >>> import sys
    >>> log = Log(sys.stdout)
    >>> log.line("started", address="http://127.0.0.1:8000")  # doctest: +ELLIPSIS
    {"at":"...Z","level":"info","event":"started","address":"http://127.0.0.1:8000"}
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None

    def request(self, method: str, route: str, status: int, seconds: float, token: str | None) -> None:
        """Write that a request was answered; the route is that of the table, without names and ids."""
        ms = round(1000 * seconds, 3)
        self._put("info", "request", {"method": method, "route": route, "status": status, "ms": ms, "token": token})

    def failure(self, error: BaseException, *, route: str) -> None:
        """Write where an error arose. Its message may quote a request, and is left out."""
        frames = [f"{each.filename}:{each.lineno} {each.name}" for each in traceback.extract_tb(error.__traceback__)]
        self._put("error", "failure", {"route": route, "error": type(error).__name__, "frames": frames})
        self.flush()

    def line(self, event: str, *, level: str = "info", **details: Any) -> None:
        """Write something else, at once."""
        self._put(level, event, details)
        self.flush()

    def _put(self, level: str, event: str, details: dict[str, Any]) -> None:
        now = time.time()
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        line = _encode({"at": at, "level": level, "event": event, **details}).decode()
        with self._lock:
            self._lines.append(line)
        if self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self.flush()
            else:
                self._timer = loop.call_later(_PAUSE, self.flush)

    def flush(self) -> None:
        """Write what is left."""
        self._timer = None  # one that is under way finds nothing: it may be of another thread's loop
        with self._lock:
            lines, self._lines = self._lines, []
        if lines:
            try:
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # nobody reads it: the server goes on
                pass


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
