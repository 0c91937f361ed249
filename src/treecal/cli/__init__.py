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
    help="""Calibrated forecasts of vector outcomes, whatever the sequence.

Words for people and progress go to standard error, results to standard output; `--json` makes the result one JSON
document. A file is never overwritten without `--force`.

Exit codes: 0 fine; 1 finished, but rows were bad and left out or a check failed; 2 bad input or options; 130
interrupted.""",
    version=__version__,
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,
)
for command in (forecast, replay, audit, recalibrate, plan, recommend, arena, game, demo, doctor):
    app.command(command)
app.register_install_completion_command(help="Set up completion in your shell.")


def main(arguments: list[str] | None = None) -> None:
    """Run the command and leave with its exit code; what people did wrong is one paragraph on standard error."""
    if arguments is None:
        arguments = sys.argv[1:]
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was begun is cleared away
    code: object = Exit.REFUSED
    try:
        # "-" is standard input, which is where outcomes come from unless a file is named.
        words = [word for word in arguments if word != "-"]
        code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has enough
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
        say(f"there is not enough memory: {error}.")
    sys.exit(code if isinstance(code, int) else Exit.FINE)
