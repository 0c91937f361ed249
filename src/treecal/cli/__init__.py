"""The command `treecal`."""

from __future__ import annotations

import sys

from cyclopts import App
from rich.console import Console

from treecal import __version__
from treecal.cli.demo import demo
from treecal.exceptions import TreeCalError

app = App(name="treecal", help="Calibrated forecasts of vector outcomes.", version=__version__)
app.command(demo)


def main() -> None:
    """Run the command; an error of ours is one paragraph on standard error and exit code 2."""
    try:
        app()
    except TreeCalError as error:
        Console(stderr=True).print(f"[bold red]treecal:[/] {error}", highlight=False)
        sys.exit(2)
