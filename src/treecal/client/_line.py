"""The line to the server: one call, one reply, by a deadline that holds for all of it; and pauses when there is none.

A timeout of each read would let a server that answers byte by byte, or a resolver that does not answer, hold a model up
for much longer. So reads and writes take what is left until the deadline, and names are resolved by another thread.
"""

from __future__ import annotations

import ipaddress
import logging
import random
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import httpcore

from treecal.exceptions import ParameterError

CONNECTIONS = 64
_DROPPED = (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError)  # perhaps while it was idle
_FAILED = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, OSError)
FIRST, LONGEST = 0.1, 5.0  # seconds to leave a server alone that did not answer
_ASKED = 300.0  # the longest that a server may ask for
_log = logging.getLogger("treecal.client")
_now = time.monotonic


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request; without a body, if that is in a file."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class AwayError(Exception):
    """No reply, or none that is final: the same call may be answered later.

    Attributes
    ----------
    after
        Seconds that the server asks to wait, if it does.
    slow
        Whether the deadline passed.
    denied
        Whether the server is there, and lets this client do something else only.
    """

    def __init__(self, why: str, *, after: float | None = None, slow: bool = False, denied: bool = False) -> None:
        super().__init__(why)
        self.after = after
        self.slow = slow
        self.denied = denied


class Address:
    """Where the server is, and the headers that every call has."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ParameterError.expected("url", url, "an address such as http://127.0.0.1:8000")
        if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable() and token):
            raise ParameterError("token is not what `treecal token create` printed.")  # and is not shown
        self.url = url.rstrip("/")
        self._origin = parts.scheme.encode(), parts.hostname.encode("idna"), parts.port
        self._prefix = parts.path.rstrip("/")
        self.headers = [(b"accept", b"*/*"), (b"content-type", b"application/json")]
        if token is not None:
            self.headers.append((b"authorization", b"Bearer " + token.encode()))

    def of(self, target: str) -> httpcore.URL:
        """Return the address of a route."""
        scheme, host, port = self._origin
        return httpcore.URL(scheme=scheme, host=host, port=port, target=(self._prefix + target).encode())


class Line:
    """Calls from any thread, on connections that are kept alive."""

    def __init__(self, address: Address) -> None:
        self.url = address.url
        self._address = address
        self._backend = _Backend()
        self._pool = httpcore.ConnectionPool(
            max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, network_backend=self._backend
        )

    def send(self, method: str, target: str, deadline: float, body: bytes | None = None) -> Reply:
        """Return the reply, or raise `AwayError`; a connection that was dropped is replaced once.

        The deadline is in seconds of the monotonic clock.
        """
        with _errors(), _until(deadline):
            try:
                return self._send(method, target, deadline, body)
            except _DROPPED:
                return self._send(method, target, deadline, body)

    def _send(self, method: str, target: str, deadline: float, body: bytes | None) -> Reply:
        extensions = {"timeout": {"pool": max(deadline - _now(), 0.0)}}
        url = self._address.of(target)
        got = self._pool.request(method, url, headers=self._address.headers, content=body, extensions=extensions)
        return Reply(got.status, got.headers, got.content)

    def download(self, target: str, timeout: float, file: BinaryIO) -> Reply:
        """Write a body of any size to a file, of which each part may take the timeout; return the reply without it."""
        url = self._address.of(target)
        extensions = {"timeout": dict.fromkeys(("pool", "connect", "read", "write"), timeout)}
        with _errors(), self._pool.stream("GET", url, headers=self._address.headers, extensions=extensions) as got:
            if got.status != 200:
                return Reply(got.status, got.headers, got.read())
            for part in got.iter_stream():
                file.write(part)
            return Reply(got.status, got.headers, b"")

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()
        self._backend.close()  # one that was being opened is no longer the pool's


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (httpcore.TimeoutException, TimeoutError):
        raise AwayError("no answer in time", slow=True) from None
    except _FAILED as error:
        raise AwayError(f"no connection: {str(error) or type(error).__name__}") from None


# A connection serves one call at a time, from the thread that sends it: so the thread knows the deadline.
_thread = threading.local()


@contextmanager
def _until(deadline: float) -> Iterator[None]:
    _thread.deadline = deadline
    try:
        yield
    finally:
        _thread.deadline = None


def _left(timeout: float | None, late: type[httpcore.TimeoutException]) -> float | None:
    deadline = getattr(_thread, "deadline", None)
    if deadline is None:
        return timeout
    left = float(deadline - _now())
    if left <= 0:
        raise late("the deadline passed")
    return left


class _Stream(httpcore.NetworkStream):
    """A stream whose reads and writes take no longer than what is left."""

    def __init__(self, stream: httpcore.NetworkStream, opened: set[httpcore.NetworkStream]) -> None:
        self._stream, self._opened = stream, opened
        opened.add(self)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._opened.discard(self)
        self._stream.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        secured = _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._opened)
        self._opened.discard(self)
        return secured

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    """Connects by the deadline, the resolution of the name included, which the system gives no timeout to."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: set[httpcore.NetworkStream] = set()
        self._closed = False

    def close(self) -> None:
        """Close all that is open, and from now on whatever a call that still runs opens."""
        self._closed = True
        while self._opened:
            with suppress(KeyError):  # closed by another thread at this moment
                self._opened.pop().close()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        connect, options = super().connect_tcp, None if socket_options is None else list(socket_options)
        if _is_address(host):
            return self._kept(connect(host, port, left, local_address, options))
        future: Future[httpcore.NetworkStream] = Future()

        def work() -> None:
            stream, problem = None, None
            try:
                stream = connect(host, port, left, local_address, options)
            except Exception as error:
                problem = error
            if future.set_running_or_notify_cancel():
                future.set_exception(problem) if stream is None else future.set_result(stream)
            elif stream is not None:  # nobody waits for it any more
                stream.close()

        threading.Thread(target=work, name="treecal-connect", daemon=True).start()
        try:
            return self._kept(future.result(left))
        except TimeoutError:
            if not future.cancel():  # it connected this very moment
                with suppress(Exception):
                    future.result().close()
            raise httpcore.ConnectTimeout("the deadline passed") from None

    def _kept(self, stream: httpcore.NetworkStream) -> _Stream:
        kept = _Stream(stream, self._opened)
        if self._closed:  # it was connected while the client was closed, which did not see it
            kept.close()
            raise httpcore.ConnectError("the client is closed")
        return kept


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def backoff(failures: int, away: AwayError) -> float:
    """Return the seconds to wait after so many failures in a row: those that the server asks for, or a random delay."""
    if away.after is not None:
        return min(away.after, _ASKED)
    return min(LONGEST, FIRST * 2.0 ** min(failures - 1, 10)) * random.uniform(0.5, 1.0)


class Pause:
    """After a failure nobody calls for a while, and then one at a time, until a call succeeds.

    So a server that is away costs a few answers their timeout, and not all.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._why = ""

    def why(self, probe: float) -> str | None:
        """Return why not to call now; None if one may. If that is to try again, others wait as long as the probe."""
        if not self._failures:
            return None
        with self._lock:
            left = self._until - _now()
            if not self._failures:
                return None
            if left > 0:
                return f"{self._why}; the next try is in {left:.1f} s"
            self._until = _now() + probe
            return None

    def left(self) -> float:
        """Return the seconds until the next try."""
        return max(self._until - _now(), 0.0) if self._failures else 0.0

    def fail(self, away: AwayError) -> None:
        """Note that there was no answer."""
        with self._lock:
            self._failures += 1
            if self._failures == 1:
                _log.warning("%s is away: %s", self._url, away)
            self._until = _now() + backoff(self._failures, away)
            self._why = str(away)

    def end(self) -> None:
        """Note that there was an answer."""
        if self._failures:
            with self._lock:
                self._failures = 0
            _log.warning("%s is back", self._url)
