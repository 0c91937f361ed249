"""A process that has imported and warmed up the server, and forks one whenever it is asked: a start takes no time.

`python -m tests.serve.forks LOG` reads commands from its input, a line each, and answers on its output.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Forks:
    """Starts servers, one at a time, and kills them."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.forks", str(log)],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "default"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._server: int | None = None

    def start(self, data: str, **more: object) -> tuple[str, int]:
        """Start a server with more settings; return where it listens."""
        self._server = int(self._ask({"data": data, "more": more}))
        found = self._answer()
        if not found.startswith("http://"):
            raise AssertionError(f"the server did not start: {found}; {self.log.read_text()[-3000:]}")
        host, _, port = found.removeprefix("http://").rstrip("/").rpartition(":")
        return host, int(port)

    def kill(self) -> None:
        """Kill -9 the server, and wait until it is gone."""
        assert self._server is not None
        os.kill(self._server, signal.SIGKILL)
        ended = self._ask({"wait": self._server})
        self._server = None
        assert ended == str(-signal.SIGKILL), f"the server had ended by itself: {ended}; {self.log.read_text()[-3000:]}"

    def end(self) -> None:
        """Kill the server if one runs."""
        if self._server is not None:
            self.kill()

    def close(self) -> None:
        """Kill what runs, and end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.end()
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, command: dict[str, object]) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def forks(log: Path) -> Iterator[Forks]:
    """Servers to be had while the block lasts."""
    found = Forks(log)
    try:
        yield found
    finally:
        found.close()


def main(log: str) -> None:
    """Fork servers as told, until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    _warm_up()
    for line in sys.stdin:
        command = json.loads(line)
        if "wait" in command:
            _, status = os.waitpid(command["wait"], 0)
            print(os.waitstatus_to_exitcode(status), file=answers)
        elif child := os.fork():
            print(child, file=answers)
        else:
            _serve(command["data"], command["more"], answers.fileno())


def _serve(data: str, more: dict[str, object], answers: int) -> None:
    from treecal.serve import read_settings
    from treecal.serve._run import serve

    told = False

    def say(text: str) -> None:
        nonlocal told
        for address in re.findall(r"http://\S+", text)[: not told]:
            os.write(answers, f"{address}\n".encode())
            told = True

    try:
        serve(read_settings({"port": 0, "rate": 1e9, **more}, {}), data, say=say)
    except BaseException as error:
        if not told:
            os.write(answers, f"{type(error).__name__} {str(error).splitlines()[0]}\n".encode())
        raise
    finally:
        os._exit(1)


def _warm_up() -> None:
    """Import and compile whatever a server needs; and let snapshots and checkpoints come often."""
    import tempfile

    import apsw

    from tests.serve.script import Clock, send_all, steps
    from treecal.serve import _books, _postgres, _run  # noqa: F401
    from treecal.serve._sqlite import Sqlite
    from treecal.serve._writer import Writer

    _books.SNAPSHOT_EVERY = 100
    apsw.connection_hooks.append(lambda connection: connection.wal_autocheckpoint(100))
    with (
        tempfile.TemporaryDirectory() as folder,
        Writer(Sqlite(Path(folder) / "books"), clock=(clock := Clock())) as writer,
    ):
        send_all(writer, clock, steps(rounds=40), together=4, told=lambda number: None)


if __name__ == "__main__":
    main(sys.argv[1])
