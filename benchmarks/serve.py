"""What load the server carries on this machine, with its client beside it; and beside Optuna's storage on SQLite.

    python benchmarks/serve.py                       # all, half an hour or more on two cores; on an idle machine
    python benchmarks/serve.py --quick               # shorter and smaller, for a look: a minute or two
    python benchmarks/serve.py --only single --seconds 600
    python benchmarks/serve.py --markdown            # the tables of docs/reference/benchmarks.md

The server is a process of its own, started as a user would (`treecal serve --data books.sqlite`), and this process is
its client. Single forecasts arrive at random moments (a Poisson process) that do not wait for answers, and latency is
counted from the moment at which a request was due: one that queues behind a slow one is slow too. Every answer comes
after its transaction is synced to disk; at the end the server is killed, and what it acknowledged must be there.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Iterator

from serving.batches import batches
from serving.correction import correction
from serving.figures import Line, show
from serving.memory import memory
from serving.others import others
from serving.peer import optuna
from serving.restart import restart
from serving.single import single

PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Line]]] = {
    "single": single,
    "batches": batches,
    "others": others,
    "memory": memory,
    "optuna": optuna,
    "correction": correction,
    "restart": restart,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="shorter and smaller")
    parser.add_argument("--rate", type=int, default=1_000, help="single forecasts a second")
    parser.add_argument(
        "--settle", type=float, default=0.5, help="seconds between batches of outcomes beside them; 0 for none"
    )
    parser.add_argument("--seconds", type=int, help="of single forecasts; 600, or 20 with --quick")
    parser.add_argument("--markdown", action="store_true", help="the table as in the docs")
    options = parser.parse_args()
    if (load := os.getloadavg()[0]) > 0.5:
        print(f"other programs run (load {load:.1f}): the figures will not be the server's own", file=sys.stderr)
    lines = list[Line]()
    for part in options.only:
        print(f"{part} …", file=sys.stderr, flush=True)
        lines += PARTS[part](options)
    show(lines, markdown=options.markdown)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("apsw", "uvicorn", "uvloop"))
    where = f"{os.cpu_count()} cores, {platform.machine()}, load before {load:.1f}"
    print(f"\n{where}; Python {platform.python_version()}, {versions}")


if __name__ == "__main__":
    main()
