"""Ways to run the command: in this process, in another one, and in a pipe that stays open."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from treecal.cli import main

TREECAL = str(Path(sys.executable).with_name("treecal"))


_PROGRESS = re.compile(r"treecal: (compiling .*|.+: [\d,]+( of [\d,]+)? after \d+ s\.)\n?")


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class _Standard(io.TextIOWrapper):
    """A standard stream in memory."""

    def __init__(self, content: bytes = b"") -> None:
        super().__init__(io.BytesIO(content), "utf-8", write_through=True)

    @property
    def content(self) -> str:
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode()


def run(*arguments: object, stdin: str | bytes = "") -> Done:
    """Run the command in this process."""
    content = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = _Standard(), _Standard()
    with ExitStack() as stack:
        for name, stream in (("stdin", _Standard(content)), ("stdout", out), ("stderr", err)):
            stack.enter_context(patch.object(sys, name, stream))
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            return Done(int(end.code or 0), out.content, err.content)
    return Done(0, out.content, err.content)


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start the command in a process of its own, with pipes on all sides."""
    command = [TREECAL, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1)


def unhurried(err: str) -> str:
    """What a process said, but for what a slow machine or one without compiled code says of its progress."""
    return "".join(line for line in err.splitlines(keepends=True) if not _PROGRESS.match(line))


def heed_interrupts() -> None:
    """Let a new process be interrupted. Tests that run in the background ignore SIGINT, which a process inherits."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def refused(done: Done, *words: str, code: int = 2) -> None:
    """Assert that it ended with code 2, or another, and one paragraph that says all this, and no traceback."""
    assert done.code == code, done
    assert done.err.startswith("treecal: ")
    assert "\n\n" not in done.err.strip()
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err, (word, done.err)
