"""The command `treecal`."""

from __future__ import annotations

import os
import signal
import sys

from cyclopts import App, CycloptsError, Parameter

from treecal import __version__
from treecal.cli._arena import arena
from treecal.cli._audit import audit
from treecal.cli._demo import demo
from treecal.cli._doctor import doctor
from treecal.cli._forecast import forecast
from treecal.cli._game import game
from treecal.cli._plan import plan
from treecal.cli._recalibrate import recalibrate
from treecal.cli._recommend import recommend
from treecal.cli._replay import replay
from treecal.cli._terminal import Exit, say
from treecal.exceptions import TreeCalError

app = App(
    name="treecal",
    help="""Calibrated forecasts of vector outcomes, for every sequence of outcomes.

Results go to standard output, messages and progress bars to standard error; `--json` makes the result one JSON
document. A file is never overwritten without `--force`.

Exit codes: 0 success; 1 finished, but invalid rows were left out or a check failed; 2 invalid input or options;
130 interrupted.""",
    version=__version__,
    default_parameter=Parameter(
        negative=(), show_default=lambda value: None if value is None or value is False else str(value)
    ),
    suppress_keyboard_interrupt=False,
)
for command in (forecast, replay, audit, recalibrate, plan, recommend, arena, game, demo, doctor):
    app.command(command)
app.register_install_completion_command(help="Set up completion in your shell.")


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its code; an error of the user's is one message on standard error."""
    if arguments is None:
        arguments = sys.argv[1:]
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that temporary files are removed
    code: object = Exit.REFUSED
    try:
        arguments = [word for word in arguments if word != "-"]  # standard input is the default
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the pipe has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = Exit.FINE
    except KeyboardInterrupt:
        say("interrupted.")
        code = Exit.INTERRUPTED
    except (TreeCalError, CycloptsError) as error:
        say(str(error))
    except OSError as error:
        say(f"{error.filename or 'standard output'}: {error.strerror or error}.")
    except MemoryError as error:
        say(f"out of memory: {error}.")
    sys.exit(code if isinstance(code, int) else Exit.FINE)
