"""The server, as a process of its own, started as a user would."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Server:
    """The server, as a process of its own."""

    def __init__(self, data: Path, *, unread: bool = False) -> None:
        self.data = data
        self.unread = unread  # whether its log is a pipe that nobody reads
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start it, and return the seconds until it is ready."""
        command = [sys.executable, "-m", "treecal", "serve", "--data", str(self.data), "--port", str(self.port)]
        begin = time.perf_counter()
        log = self.data.with_suffix(".log").open("ab")
        with log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE if self.unread else log)
        while True:
            if self.process.poll() is not None:
                sys.exit(f"the server ended: {self.data.with_suffix('.log').read_text()[-2000:]}")
            if _ready(self.port):
                return time.perf_counter() - begin
            time.sleep(0.005)

    def stop(self, how: int = signal.SIGTERM) -> float:
        """Stop it, and return the seconds until it has ended."""
        assert self.process is not None
        begin = time.perf_counter()
        self.process.send_signal(how)
        self.process.wait(60)
        return time.perf_counter() - begin

    def memory(self) -> float:
        """Memory that the process has in use (resident), in MB."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def processor(self) -> float:
        """Seconds of processor time that it has used."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _ready(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            sock.sendall(f"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            return b" 200 " in sock.recv(4096).split(b"\r\n")[0]
    except OSError:
        return False


@contextmanager
def serving(*, unread: bool = False) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="treecal-load-") as folder:
        server = Server(Path(folder, "books.sqlite"), unread=unread)
        server.start()
        try:
            yield server
        finally:
            assert server.process is not None
            server.process.kill()
            server.process.wait()
