"""All commands under one name, and what happens to their errors."""

from __future__ import annotations

import io
import os
import sys
import traceback
from contextlib import suppress

from cyclopts import App, CycloptsError, Parameter

from treecal import __version__
from treecal.cli._arena import arena
from treecal.cli._audit import STDIN, audit
from treecal.cli._books import backup, move, token
from treecal.cli._decide import decide
from treecal.cli._demo import demo
from treecal.cli._doctor import doctor
from treecal.cli._forecast import forecast
from treecal.cli._game import game
from treecal.cli._judge import judge
from treecal.cli._monitor import monitor
from treecal.cli._plan import plan, recommend, sample_size
from treecal.cli._recalibrate import recalibrate
from treecal.cli._replay import replay
from treecal.cli._serve import mcp, serve
from treecal.cli._signals import interrupts
from treecal.cli._terminal import Exit, say
from treecal.exceptions import TreeCalError

app = App(
    name="treecal",
    help="""Calibrated forecasts of vector outcomes, for every sequence of outcomes.

Results go to standard output, messages and progress bars to standard error; `--json` makes the result one JSON
document. A file is never overwritten without `--force`.

Exit codes: 0 success; 1 finished, but invalid rows were left out or a check failed; 2 invalid input or options, or any
other error; 3 an alarm; 75 a server cannot start now; 130 interrupted; 141 the reader of standard output has gone. An
error is one message; with `--debug` anywhere, its traceback comes first.""",
    version=__version__,
    default_parameter=Parameter(
        negative=(), show_default=lambda value: None if value is None or value is False else str(value)
    ),
    suppress_keyboard_interrupt=False,
)
for command in (
    forecast,
    replay,
    audit,
    judge,
    monitor,
    recalibrate,
    decide,
    plan,
    recommend,
    sample_size,
    arena,
    game,
    serve,
    mcp,
    token,
    backup,
    move,
    demo,
    doctor,
):
    app.command(command)
app.register_install_completion_command(help="Set up completion in your shell.")


def run(arguments: list[str]) -> int:
    """Run a command, and return its exit code; an error is one message on standard error, without a traceback."""
    debug = "--debug" in arguments
    piped = "-" in arguments
    read = [STDIN] if arguments[:1] == ["audit"] else []  # what the others read anyway
    arguments = [each for word in arguments if word != "--debug" for each in (read if word == "-" else [word])]
    code: object = Exit.REFUSED
    try:
        if piped and arguments[:1] == ["replay"]:
            raise TreeCalError(
                "replay reads a file, some of it twice, and so not standard input.",
                hint="write it to a file first; audit, forecast and recalibrate read pipes.",
            )
        _prepare_streams()
        interrupts.check()
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except SystemExit:
        raise
    except BaseException as error:
        if debug:
            traceback.print_exception(error)
        code = _end(error)
    return code if isinstance(code, int) else Exit.FINE


def _prepare_streams() -> None:
    """Make do with streams that are closed, or that lack letters."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 # as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        raise TreeCalError("standard output is closed, so there is nowhere to write results.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _end(error: BaseException) -> Exit:
    """Say in one message what went wrong, and return the exit code."""
    if isinstance(error, KeyboardInterrupt) or interrupts.arrived:  # whatever became of it in a library
        say("interrupted.")
        return Exit.INTERRUPTED
    if isinstance(error, BrokenPipeError):  # the reader of the pipe has closed it
        _discard_output()
        return Exit.UNREAD
    if isinstance(error, TreeCalError | CycloptsError):
        say(str(error))
    elif isinstance(error, OSError) and error.strerror:
        if error.filename is None:
            _discard_output()
        file = error.filename
        named = "standard output" if file is None else os.fsdecode(file) if isinstance(file, str | bytes) else file
        say(f"{named}: {error.strerror}.")
    elif isinstance(error, MemoryError):
        say("out of memory.")
    else:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        say(f"an unexpected error, {type(error).__name__}: {first}\nHint: this is a bug; --debug shows where.")
    return Exit.REFUSED


def _discard_output() -> None:
    """Let what is still to be written go nowhere: it cannot be, and the end of the process would try again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
