"""A stand-in for the server: books by id as the real one keeps them, behind a socket on which everything can go wrong.

`tests/client/test_server.py` runs the same client against the real one.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

FAULTS = ("refuse", "drop", "deaf", "half", "unavailable", "limited", "internal", "proxy", "hang")
"""What can happen to a request. `drop` and `unavailable` before it is recorded; `deaf`, `half` and `hang` after."""


class Books:
    """Streams, their forecasts and outcomes, in the order in which they were recorded."""

    def __init__(self) -> None:
        self.streams: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[str, str, str]] = []  # what, stream, id: once for each
        self.forecasts: dict[tuple[str, str], dict[str, Any]] = {}
        self.outcomes: dict[tuple[str, str], Any] = {}
        self.lock = threading.Lock()

    def handle(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        with self.lock:
            match [method, *(unquote(part) for part in path.strip("/").split("/")[1:])]:
                case ["POST", "streams"]:
                    return self.create(body)
                case ["GET", "streams"]:
                    return 200, {"streams": [self.show(name) for name in sorted(self.streams)], "next": None}
                case ["GET", "streams", name] if name in self.streams:
                    return 200, self.show(name)
                case ["POST", "streams", name, "forecasts"] if name in self.streams:
                    return self.announce(name, [body], single=True)
                case ["POST", "streams", name, "forecasts", "batch"] if name in self.streams:
                    return self.announce(name, body["forecasts"], single=False)
                case ["POST", "outcomes"]:
                    return self.settle(body["outcomes"])
        return problem(404, "not_found", f"there is nothing at {path}")

    def create(self, body: Any) -> tuple[int, Any]:
        name = body["name"]
        if self.streams.setdefault(name, body) != body:
            return problem(409, "conflict", f"stream {name!r} is another one", hint="choose another name.")
        return 201, self.show(name)

    def show(self, name: str) -> Any:
        return {
            "name": name, "config": self.streams[name], "created": 0.0, "archived": None, "counts": {}, "state": "",
            "played": "", "verdict": None, "model_verdict": None, "monitors": {}, "last": None,
        }  # fmt: skip

    def announce(self, stream: str, rows: list[Any], *, single: bool) -> tuple[int, Any]:
        for row in rows:
            known = self.forecasts.get((stream, row["id"]))
            if known and any(known["body"].get(k) != row.get(k) for k in ("p", "tags", "due")):
                return problem(409, "conflict", f"id {row['id']!r} is in use for another forecast", at="id")
            if row["p"] is not None and len(row["p"]) != 2:
                return problem(422, "invalid", f"{row['p']} has {len(row['p'])} entries, expected 2", at="p")
        answers = []
        for row in rows:
            key = stream, row["id"]
            if key not in self.forecasts:
                self.log.append(("forecast", *key))
                self.forecasts[key] = {"body": row, "round": len(self.forecasts) + 1, "used": False}
            known = self.forecasts[key]
            known["used"] |= row.get("used", False)
            names, p = self.streams[stream]["classes"], row["p"] or [0.5, 0.5]
            if isinstance(p, dict):
                p = [p[name] for name in names]
            forecast: Any = p if known["used"] else [p[1], p[0]]  # the correction swaps them
            if isinstance(row["p"], dict):
                forecast = dict(zip(names, forecast, strict=True))
            answers.append({"id": row["id"], "round": known["round"], "forecast": forecast, "state": "s"})
        return 200, answers[0] if single else {"forecasts": answers}

    def settle(self, rows: list[Any]) -> tuple[int, Any]:
        for place, row in enumerate(rows):
            if row["outcome"] == "hail":
                return problem(422, "invalid", "'hail' is not a class", at=f"outcomes[{place}].outcome")
        settled = []
        for row in rows:
            key = row["stream"], row["id"]
            if key not in self.forecasts:
                status = "unknown"
            elif key not in self.outcomes:
                self.outcomes[key] = row["outcome"]
                self.log.append(("outcome", *key))
                status = "learned"
            else:
                status = "replayed" if self.outcomes[key] == row["outcome"] else "conflict"
            settled.append({"stream": row["stream"], "id": row["id"], "status": status})
        return 200, {"outcomes": settled, "counts": {}}


def problem(status: int, code: str, message: str, **more: str) -> tuple[int, Any]:
    return status, {"error": {"code": code, "message": message, **more}}


class Server:
    """The books behind a socket; `faults` are taken by requests in turn, and `None` is none."""

    def __init__(self, books: Books | None = None, port: int = 0) -> None:
        self.books = books or Books()
        self.faults: list[str | None] = []
        self.token: str | None = None
        self.readable = True
        self.seen: list[tuple[str, str, int]] = []  # method, path, number of the connection
        self.stopping = threading.Event()
        self._port = port
        self.start()

    def start(self) -> None:
        self.stopping.clear()
        outer = self

        class Handler(_Handler):
            server_ = outer

        class Quiet(ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._sockets: set[socket.socket] = set()
        self._http = Quiet(("127.0.0.1", self._port), Handler)
        self._port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def stop(self) -> None:
        """Be away: connections are reset, new ones refused."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        for connection in list(self._sockets):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Handler(BaseHTTPRequestHandler):
    server_: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server_._sockets.add(self.connection)

    def finish(self) -> None:
        self.server_._sockets.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def answer(self) -> None:
        server = self.server_
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = urlsplit(self.path).path
        server.seen.append((self.command, path, self.client_address[1]))
        fault = server.faults.pop(0) if server.faults else None
        if server.stopping.is_set() or fault in ("drop", "refuse"):
            return self.cut()
        if server.token is not None and self.headers.get("authorization") != f"Bearer {server.token}":
            return self.write(*problem(401, "unauthorized", "a token is needed"))
        if self.command == "GET" and not server.readable:
            return self.write(*problem(403, "forbidden", "the token is for forecasts and outcomes"))
        match fault:
            case "unavailable":
                return self.write(*problem(503, "unavailable", "the disk is full"))
            case "limited":
                return self.write(*problem(429, "limited", "too many"), headers={"Retry-After": "0.02"})
            case "internal":
                return self.write(*problem(500, "internal", "a bug"))
            case "proxy":
                return self.write(404, "<html>", raw=True)
        answer = server.books.handle(self.command, path, json.loads(content) if content else None)
        match fault:
            case "deaf":
                self.cut()
            case "half":
                self.write(*answer, part=0.5)
                self.cut()
            case "hang":
                server.stopping.wait()
                self.cut()
            case "drip":
                self.write(*answer, drip=0.05)
            case _:
                self.write(*answer)
        return None

    def cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def write(
        self,
        status: int,
        body: Any,
        *,
        headers: dict[str, str] | None = None,
        raw: bool = False,
        part: float = 1.0,
        drip: float | None = None,
    ) -> None:
        content = body.encode() if raw else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} -", f"Content-Length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        whole = "\r\n".join([*lines, "", ""]).encode() + content
        whole = whole[: int(len(whole) * part)]
        with suppress(OSError):
            if drip is None:
                self.wfile.write(whole)
                return
            for byte in whole:
                if self.server_.stopping.is_set():
                    return
                self.wfile.write(bytes([byte]))
                time.sleep(drip)


@contextmanager
def eventually(seconds: float = 60.0) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """Give a function that waits until something holds."""

    def wait(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    yield wait
