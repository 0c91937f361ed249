"""A receiver of webhooks that may go wrong in any way, and checks every signature as receivers should."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "whsec_" + base64.b64encode(b"a secret of 32 bytes, for tests.").decode()


class Receiver:
    """What arrived, in order; `faults` are taken by messages in turn, and None is none."""

    def __init__(self) -> None:
        self.faults: list[str | int | None] = []
        self.seen: list[tuple[str, str, int]] = []  # of every attempt: the path, the id, the time of the signature
        self.taken: list[tuple[str, Any]] = []  # the id and the body of what was taken
        self.wrong: list[str] = []
        self.secrets = [SECRET]
        self.release = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

            def do_GET(self) -> None:
                outer.wrong.append(f"GET {self.path}")

            def do_POST(self) -> None:
                with suppress(OSError):
                    outer.receive(self)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/alarms?team=1"

    def receive(self, call: BaseHTTPRequestHandler) -> None:
        body = call.rfile.read(int(call.headers["content-length"]))
        name, at = call.headers["webhook-id"], call.headers["webhook-timestamp"]
        self.seen.append((call.path, name, int(at)))
        given = call.headers["webhook-signature"].split()
        for secret in self.secrets:
            key = base64.b64decode(secret.removeprefix("whsec_"))
            digest = hmac.new(key, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
            if "v1," + base64.b64encode(digest).decode() not in given:
                self.wrong.append(f"{name} is not signed with {secret}")
        fault = self.faults.pop(0) if self.faults else None
        if fault == "hang":
            self.release.wait()
        elif fault == "drop":
            call.close_connection = True
        elif fault == "drip":
            while not self.release.is_set():
                call.wfile.write(b"H")
                time.sleep(0.01)
        elif fault == "flood":
            call.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"X-More: more\r\n" * 10_000)
        elif fault == "garbage":
            call.wfile.write(b"hello\r\n\r\n")
        else:
            status = fault if isinstance(fault, int) else 204
            if 200 <= status < 300:
                self.taken.append((name, json.loads(body)))
            call.send_response(status)
            call.send_header("Content-Length", "0")
            if 300 <= status < 400:
                call.send_header("Location", f"http://127.0.0.1:{self._http.server_address[1]}/elsewhere")
            call.end_headers()

    def close(self) -> None:
        self.release.set()
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    try:
        yield receiver
    finally:
        receiver.close()


def until(holds: Any, seconds: float = 60.0) -> None:
    """Wait until something holds: however long it takes, but for a failure."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)
