"""The command `treecal`."""

from __future__ import annotations

import sys

from treecal import _compile
from treecal.cli._signals import handle, interrupts, print_no_interrupts


def _say_compiling() -> None:
    print("treecal: compiling (first use after installation); this takes a few seconds.", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its code; an error is one message on standard error."""
    if arguments is None:
        arguments = sys.argv[1:]
        handle(interrupts.receive)
        print_no_interrupts()
        _compile.tell = None if arguments[:1] == ["serve"] else _say_compiling  # it says so itself
    try:
        from treecal.cli._app import run  # takes a while, in which Ctrl-C should work

        code = run(arguments)
    except BaseException:
        if not interrupts.arrived:
            raise
        print("treecal: interrupted.", file=sys.stderr)
        code = 130
    interrupts.ending = True
    sys.exit(code)
