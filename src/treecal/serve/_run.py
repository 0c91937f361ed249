"""The process of the server: it listens, logs, and stops in order."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from treecal._platform import STOPPING
from treecal.exceptions import ParameterError, TreeCalError
from treecal.serve._access import Access
from treecal.serve._connections import may_exist, open_store
from treecal.serve._http import application, failure
from treecal.serve._log import Handler, Log
from treecal.serve._refusals import Refusal
from treecal.serve._settings import Settings
from treecal.serve._store import NotNowError
from treecal.serve._tokens import tokens_of
from treecal.serve._warm import set_aside, warm_up
from treecal.serve._webhooks import Webhooks, receivers_of
from treecal.serve._writer import Writer

if TYPE_CHECKING:
    from starlette.applications import Starlette

_HEADERS = 15.0  # seconds in which the headers of a request must have come
_LONGEST = 2**16  # bytes of headers
_IDLE = 75  # seconds for which a connection is kept for the next request
_UNREAD = 60  # seconds after which a client that takes nothing of an answer is cut off
_PATIENCE = 5.0  # seconds of compiling after which a message says what takes so long
_HERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where this machine finds a server that listens on all addresses
_SWITCH = 5e-5  # seconds that the loop and the writer wait for each other at most, of Python's usual 5 ms
_DRAIN = 20  # seconds for requests that are being answered when the server is to stop


def serve(settings: Settings, data: str, *, say: Callable[[str], None] = lambda text: None) -> None:
    """Serve the books until SIGTERM or Ctrl-C; then answer what was asked, keep snapshots and return.

    Parameters
    ----------
    settings
        How to serve.
    data
        The books: a file of SQLite, or the address of a PostgreSQL database.
    say
        Tells the person who watches where the page is, and what the demo does.
    """
    sys.setswitchinterval(_SWITCH)
    receivers = receivers_of(settings.webhooks)

    def names(stream: str) -> list[str]:
        return [each.name for each in receivers if each.wants(stream)]

    host = settings.host
    with Log(level=settings.log_level) as log:
        with ExitStack() as stack:
            stack.enter_context(_logging(log))
            signals = stack.enter_context(_Signals())
            loopback = _is_loopback(host)
            if not loopback and not may_exist(data):
                raise _no_token(host)
            store = open_store(data)
            # First: what is refused leaves no books behind.
            listening = stack.enter_context(_listening(host, settings.port))
            writer = stack.enter_context(Writer(store, receivers=names))
            reader = store.reader()
            try:
                some = bool(tokens_of(reader))
            finally:
                reader.close()
            if not loopback and not some:
                raise _no_token(host)
            _compile(writer, log, say)
            if settings.demo:
                from treecal.serve._demo import Demo

                stack.enter_context(Demo(writer, say=say))
            hosts = [*settings.allow_host, *([] if loopback else [host])]
            access = Access(loopback=loopback, hosts=hosts, rate=settings.rate)
            webhooks = stack.enter_context(Webhooks(writer, receivers)) if receivers else None
            most = settings.body * 2**20
            app = application(
                writer, store, access=access, log=log, webhooks=webhooks, most_bytes=most, keep=settings.keep
            )
            server = signals.server = Server(app)
            bound = listening.getsockname()[1]
            address = _address(host, bound)
            here = _address(_HERE.get(host, host), bound)

            def at_start() -> None:
                log.line("started", address=address)
                log.flush()  # both go to standard error, and neither may begin within the other's line
                say(
                    f"the page is at {here}"
                    if here == address
                    else f"listening at {address}; here the page is at {here}"
                )

            def stop() -> None:
                server.should_exit = True  # whoever started the process starts it again

            server.at_start = at_start
            writer.on_failure = stop
            stack.callback(gc.unfreeze)
            set_aside()
            server.run([listening])
            log.line("stopping")
        log.line("stopped")
    if writer.failure is not None:
        hint = "start the server again; what was acknowledged is kept."
        raise NotNowError(f"the books failed: {writer.failure}.", hint=hint)


def _compile(writer: Writer, log: Log, say: Callable[[str], None]) -> None:
    """Compile what the streams need, before the first requests; say so if it takes a while."""
    begin = time.monotonic()
    words = "Compiling (first start after installation); this takes a few seconds."
    patience = threading.Timer(_PATIENCE, say, [words])
    patience.start()
    try:
        kinds = warm_up(writer.read(lambda books: [books.kept(name).config for name in books.names()]).result())
    finally:
        patience.cancel()
        patience.join()
    log.line("compiled", kinds=kinds, seconds=round(time.monotonic() - begin, 3))


class Server(uvicorn.Server):
    """Ends connections that would last, such as those of pages that listen, when it stops."""

    def __init__(self, app: Starlette) -> None:
        config = uvicorn.Config(
            app,
            http=_patient(),
            loop="uvloop" if find_spec("uvloop") else "asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_IDLE,
            timeout_graceful_shutdown=_DRAIN,
        )
        super().__init__(config)
        self._hang_up: Callable[[], None] = app.state.context.hub.close
        self.at_start: Callable[[], object] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self.at_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and answer what was asked."""
        self._hang_up()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to those who called: they are in force until the books are closed."""
        yield


class _Signals:
    """Lets a signal stop the server, and a second one hurry it."""

    server: Server | None = None

    def __enter__(self) -> _Signals:
        self._before: dict[int, Any] = {}
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.server is None:  # nothing was begun
            raise KeyboardInterrupt
        self.server.force_exit = self.server.should_exit
        self.server.should_exit = True


def _patient() -> Any:
    """Return the protocol of HTTP that is installed, with a limit on how long headers may take, and our errors."""
    if find_spec("httptools"):
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol
    else:
        from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol  # type: ignore[assignment]

    class Patient(Protocol):
        """Waits for headers, but not forever."""

        _timer: asyncio.TimerHandle | None = None
        _seen = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._seen += len(data)
            self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._timer is not None:
                self._timer.cancel()

        def _wait(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete:  # a request is being answered
                self._seen = 0
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
            elif self._seen > _LONGEST:
                self.send_400_response("")
            elif self._timer is None:
                self._timer = self.loop.call_later(_HEADERS, self.transport.close)

        def send_400_response(self, msg: str) -> None:
            body = failure(Refusal("bad_request", "this is no request of HTTP.")).body
            assert isinstance(body, bytes)
            head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(body)
            self.transport.write(head + b"connection: close\r\n\r\n" + body)
            self.transport.close()

    return Patient


@contextmanager
def _logging(log: Log) -> Iterator[None]:
    """Write what uvicorn and the writer log as lines of the log, but for what it says about itself."""
    handler = Handler(log)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "treecal.serve", "asyncio")]
    before = [(each.level, each.propagate) for each in loggers]
    for each in loggers:
        each.addHandler(handler)
        each.setLevel(logging.INFO if each.name == "treecal.serve" else logging.WARNING)
        each.propagate = False
    try:
        yield
    finally:
        for each, (level, propagate) in zip(loggers, before, strict=True):
            each.removeHandler(handler)
            each.setLevel(level)
            each.propagate = propagate


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Hold a socket that listens."""
    try:
        family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.create_server(where[:2], family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise TreeCalError(f"cannot listen on {host}, port {port}: {why}.", hint="choose another --port.") from None
    with listening:
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections have it from here: one that takes nothing is cut
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _UNREAD)
        yield listening


def _is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host.

    Examples
    --------
    >>> _is_loopback("127.0.0.1"), _is_loopback("::1"), _is_loopback("localhost"), _is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _address(host: str, port: int) -> str:
    """Return an address as browsers take it.

    Examples
    --------
    >>> _address("::1", 8000), _address("0.0.0.0", 80)
    ('http://[::1]:8000/', 'http://0.0.0.0:80/')
    """
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _no_token(host: str) -> ParameterError:
    return ParameterError(
        f"others can reach {host}, and no token was made yet.",
        hint="treecal token create NAME --data ... makes one; or listen on 127.0.0.1.",
    )
