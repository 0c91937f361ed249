"""The real server, as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path


class Process:
    """`treecal serve` on a free port, and on the same one when it is started again."""

    def __init__(self, data: Path) -> None:
        self.data, self.port = data, 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "treecal", "serve", "--data", str(self.data), "--port", str(self.port)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if '"event":"started"' in line:
                self.url = json.loads(line[line.index("{") :])["address"]
                self.port = int(self.url.rstrip("/").rpartition(":")[2])
                break
        # It logs a line for each request, and would wait if nobody read them.
        self._reader = threading.Thread(target=self._process.stderr.read, daemon=True)
        self._reader.start()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def stop(self) -> None:
        self.signal(signal.SIGCONT)
        self._process.terminate()
        self.wait()

    def wait(self) -> None:
        self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()
