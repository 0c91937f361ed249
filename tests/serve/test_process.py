"""The server as a process, on a socket: it starts, answers, and stops in order."""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import heed_interrupts, refused, run
from treecal.serve import Settings, _run
from treecal.serve._access import Access
from treecal.serve._http import application
from treecal.serve._log import Log
from treecal.serve._sqlite import Sqlite
from treecal.serve._tokens import id_of
from treecal.serve._writer import Writer

NEW = {"name": "a", "classes": ["no", "yes"]}
JSON = {"Content-Type": "application/json"}


def ask(port: int, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = JSON | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        line.request(method, path, None if body is None else json.dumps(body), headers)
        answer = line.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        line.close()


@contextmanager
def process(*options: object, temporary: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start the server, wait until it listens, and end it if it is still there."""
    command = [sys.executable, "-m", "treecal", "serve", "--port", "0", *map(str, options)]
    env = os.environ | ({} if temporary is None else {"TMPDIR": str(temporary)})
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts, env=env)
    assert started.stderr is not None
    try:
        words = ""
        for line in started.stderr:
            words += line
            if found := re.search(r"the page is at http://127\.0\.0\.1:(\d+)/", line):
                yield started, int(found[1])
                break
        else:
            raise AssertionError(words)
    finally:
        if started.poll() is None:
            started.kill()
        started.wait()
        started.stderr.close()


def ended(started: subprocess.Popen[str]) -> list[Any]:
    """Wait until the server has ended well; return the lines of its log."""
    _, err = started.communicate(timeout=60)
    assert started.returncode == 0, err
    assert "Traceback" not in err
    return [json.loads(line) for line in err.splitlines()]


def test_a_server_runs_and_stops_in_order(tmp_path: Path) -> None:
    data, temporary = tmp_path / "books.sqlite", tmp_path / "tmp"
    temporary.mkdir()
    with process("--data", data, temporary=temporary) as (started, port):
        assert not list(temporary.iterdir())  # nothing is left when it is killed
        assert ask(port, "POST", "/v1/streams", NEW)[0] == 201
        refused(run("serve", "--data", data, "--port", 0), "in use by another treecal", code=75)
        token = run("token", "create", "all", "--data", data, *["--scope", "read", "--scope", "forecast"]).out.strip()
        deadline = time.monotonic() + 60
        while ask(port, "GET", "/v1/streams")[0] != 401:  # within a second or two
            assert time.monotonic() < deadline
            time.sleep(0.1)
        listening = socket.create_connection(("127.0.0.1", port))
        listening.sendall(
            f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        assert b": listening" in _until(listening, b": listening")
        idle = socket.create_connection(("127.0.0.1", port))

        def send(i: int) -> str | None:
            try:
                status, body = ask(port, "POST", "/v1/streams/a/forecasts", {"id": f"r{i}", "p": [0.5, 0.5]}, token)
            except OSError:  # it has stopped listening
                return None
            return str(body["id"]) if status == 200 else None

        with ThreadPoolExecutor(8) as pool:
            sent = [pool.submit(send, i) for i in range(100)]
            while not any(each.done() for each in sent):
                time.sleep(0.01)
            started.send_signal(signal.SIGTERM)
            acknowledged = {each.result() for each in sent} - {None}
        assert b": the server stops" in _until(listening, None)
        listening.close()
        idle.close()
        lines = ended(started)
    assert [line["event"] for line in lines][-2:] == ["stopping", "stopped"]
    assert {line["token"] for line in lines if line["event"] == "request" and line["status"] == 200} >= {id_of(token)}
    assert token not in json.dumps(lines)
    with Sqlite(data) as store:
        kept = {row[1] for row in store.query("rounds_after", 1, 0, 1000)}
        assert acknowledged <= kept
        ((number, *_),) = store.query("snapshot", 1)
        assert number == len(kept)


def _until(line: socket.socket, words: bytes | None) -> bytes:
    """Read until there are these words, or until the end."""
    line.settimeout(30)
    text = b""
    while words is None or words not in text:
        part = line.recv(65536)
        if not part:
            break
        text += part
    return text


def test_a_server_whose_books_fail_ends_to_be_started_again(tmp_path: Path) -> None:
    data = tmp_path / "books.sqlite"
    with process("--data", data) as (started, port):
        assert ask(port, "POST", "/v1/streams", NEW)[0] == 201
        data.unlink()
        assert ask(port, "POST", "/v1/streams", NEW | {"name": "b"})[0] == 503
        _, err = started.communicate(timeout=60)
    assert started.returncode == 75
    assert "treecal: the books failed" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.heavy
def test_other_signals_stop_it_too(tmp_path: Path, number: int) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("whoever started the tests ignores this signal, as nohup does, and so does the server")
    with process("--data", tmp_path / "books.sqlite") as (started, port):
        assert ask(port, "GET", "/readyz") == (200, {"ok": True})
        started.send_signal(number)
        assert [line["event"] for line in ended(started)][-1] == "stopped"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_others_are_not_served_without_a_token(tmp_path: Path, host: str) -> None:
    refused(run("serve", "--data", tmp_path / "books.sqlite", "--host", host), "token create", host)
    assert not list(tmp_path.iterdir())


def test_the_address_that_listens_is_said(tmp_path: Path) -> None:
    data = tmp_path / "books.sqlite"
    assert run("token", "create", "me", "--data", data).code == 0
    command = [sys.executable, "-m", "treecal", "serve", "--data", str(data), "--host", "0.0.0.0", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts) as started:
        assert started.stderr is not None
        lines = iter(started.stderr)
        said = next(line for line in lines if "listening at" in line)
        started.terminate()
        assert started.wait(60) == 0
    assert re.search(r"listening at http://0\.0\.0\.0:(\d+)/; here the page is at http://127\.0\.0\.1:\1/\n", said)


def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    refused(run("serve"), "--data", "--demo")
    refused(run("serve", "--data", tmp_path / "no" / "books.sqlite"), "folder")
    refused(run("serve", "--data", tmp_path / "b.sqlite", "--port", 70000), "--port")
    refused(run("serve", "--data", tmp_path / "b.sqlite", "--rate", 0), "--rate")
    refused(run("serve", "--data", tmp_path / "b.sqlite", "--body", 0), "--body")
    other = tmp_path / "other.txt"
    other.write_text("this is no file of SQLite, and long enough to be sure of it" * 20)
    refused(run("serve", "--data", other), "no file of SQLite")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(run("serve", "--data", tmp_path / "b.sqlite", "--port", port), "cannot listen", str(port))
    assert not (tmp_path / "b.sqlite").exists()


@pytest.fixture(params=["httptools", "h11"])
def _protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed with the server, and what uvicorn does without."""
    if request.param == "h11":
        monkeypatch.setattr(_run, "find_spec", lambda name: None)


def test_what_a_server_starts_with_is_left_out_of_full_collections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stop the writer: some 60 ms for compiled kernels alone, which nobody throws away."""
    objects = list[tuple[int, int]]()
    monkeypatch.setattr(_run.Server, "run", lambda *_: objects.append((gc.get_freeze_count(), len(gc.get_objects()))))
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    _run.serve(Settings(port=0), str(tmp_path / "books.sqlite"))
    ((frozen, watched),) = objects
    assert frozen > 100 * watched
    assert gc.get_freeze_count() == 0


@pytest.mark.heavy  # more requests than the queue has room for
def test_a_log_that_nobody_reads_holds_up_no_answer(tmp_path: Path) -> None:
    """Its reader stands still: a pipe has room for some 400 lines, and the queue for 10,000 more."""
    with process("--data", tmp_path / "books.sqlite") as (started, port):
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(12_500):
            line.request("GET", "/healthz")
            answer = line.getresponse()
            assert (answer.status, answer.read()) == (200, b'{"ok":true}')
        assert ask(port, "GET", "/readyz") == (200, {"ok": True})
        line.request("GET", "/metrics")
        (dropped,) = re.findall(r"^treecal_log_dropped_total (\d+)$", line.getresponse().read().decode(), re.MULTILINE)
        line.close()
        assert 0 < int(dropped) < 2_500
        lines = list[dict[str, Any]]()
        assert started.stderr is not None
        while not lines or lines[-1]["event"] != "dropped":  # the reader goes on
            lines.append(json.loads(started.stderr.readline()))
        assert lines[-1]["lines"] == int(dropped) + 1  # that of /metrics itself
        assert sum(line["event"] == "request" for line in lines) + lines[-1]["lines"] == 12_502
        started.terminate()
        assert [line["event"] for line in ended(started)][-1] == "stopped"


def test_a_log_that_nobody_reads_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with process("--data", tmp_path / "books.sqlite") as (started, port):
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(500):  # more lines than a pipe has room for
            line.request("GET", "/healthz")
            line.getresponse().read()
        line.close()
        started.terminate()
        assert started.wait(30) == 0


@pytest.mark.parametrize(("level", "events"), [("warning", []), ("info", ["request", "stopping", "stopped"])])
def test_the_log_has_lines_from_a_level_on(tmp_path: Path, level: str, events: list[str]) -> None:
    with process("--data", tmp_path / "books.sqlite", "--log-level", level) as (started, port):
        assert ask(port, "GET", "/healthz")[0] == 200
        started.terminate()
        lines = ended(started)
    assert [line["event"] for line in lines if line["event"] not in ("compiled", "started")] == events


@contextmanager
def thread(folder: Path, **options: Any) -> Iterator[int]:
    """Serve on a thread of this process; yield the port."""
    store = Sqlite(folder / "books.sqlite")
    with (
        Writer(store) as writer,
        socket.create_server(("127.0.0.1", 0)) as listening,
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        Log(nowhere) as log,
    ):
        server = _run.Server(application(writer, store, access=Access(), log=log, **options))
        ready = threading.Event()
        server.at_start = ready.set
        running = threading.Thread(target=server.run, args=([listening],))
        running.start()
        ready.wait(30)
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            running.join()


def spoken(port: int, text: bytes) -> bytes:
    """Send bytes, and return all that comes back."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(text)
        return _until(line, None)


@pytest.mark.parametrize(
    "text",
    [b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", b"\x16\x03\x01\x02"],
)
def test_what_is_no_request_has_an_answer_of_the_same_shape(tmp_path: Path, text: bytes) -> None:
    with thread(tmp_path) as port:
        head, _, body = spoken(port, text + b"\r\n" * 2).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert json.loads(body)["error"]["code"] == "bad_request"


@pytest.mark.usefixtures("_protocol")
def test_endless_headers_are_refused(tmp_path: Path) -> None:
    with thread(tmp_path) as port, socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        with contextlib.suppress(OSError):  # it is closed meanwhile
            for i in range(10_000):
                line.sendall(b"X-%d: %b\r\n" % (i, b"x" * 1000))
        with contextlib.suppress(ConnectionResetError):
            assert b"bad_request" in _until(line, None)
        assert i < 9_999


@pytest.mark.usefixtures("_protocol")
def test_slow_requests_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "_HEADERS", 0.2)
    with thread(tmp_path, most_seconds=0.2) as port:
        assert spoken(port, b"") == b""  # says nothing
        assert spoken(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-") == b""  # does not come to an end
        head = b"POST /v1/outcomes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for body in (b"Content-Length: 10\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"):
            assert b'"timeout"' in spoken(port, head + body)
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert _until(line, b"true}").endswith(b'{"ok":true}')
            line.sendall(b"GET /heal")
            assert _until(line, None) == b""


@pytest.mark.usefixtures("_protocol")
def test_a_body_in_chunks_is_limited(tmp_path: Path) -> None:
    head = b"POST /v1/outcomes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with thread(tmp_path, most_bytes=1000) as port, socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"190\r\n" + b" " * 400 + b"\r\n")
        assert not select.select([line], [], [], 0.1)[0]  # so far it is fine
        for _ in range(3):
            line.sendall(b"190\r\n" + b" " * 400 + b"\r\n")
        assert b'"too_large"' in _until(line, b"}}")
        line.sendall(b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")  # the connection is still good
        assert b'{"ok":true}' in _until(line, b"true}")


def test_two_lengths_are_refused(tmp_path: Path) -> None:
    head = b"POST /v1/outcomes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    both = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with thread(tmp_path) as port:
        assert b" 400 " in spoken(port, head + both)
        assert b" 400 " in spoken(port, head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}")
