"""Books that an older treecal made, kept beside this file: what is written now must open them, and find them sound.

    python -m tests.serve.older NAME

plays the script of `tests.serve.script` with the treecal that is installed, and writes `tests/serve/NAME.sqlite.gz`.
`before-deletion` was made by commit 1e27047, the last with version 2 of the books: nothing could be deleted, settings
could not be changed. Its stream `certified` has the forecaster `adaptive`: guards of that time are refused, since none
was published.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

from tests.serve.script import Clock, send_all, steps
from treecal.serve._backup import back_up
from treecal.serve._connections import open_store
from treecal.serve._writer import Writer

HERE = Path(__file__).parent


def books(name: str, folder: Path) -> str:
    """Unpack the books of that name in a folder; return where they are."""
    path = folder / "books.sqlite"
    path.write_bytes(gzip.decompress((HERE / f"{name}.sqlite.gz").read_bytes()))
    return str(path)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made, copy = f"{folder}/books.sqlite", Path(folder) / "copy.sqlite"
        clock = Clock()
        with Writer(open_store(made), clock=clock) as writer:
            send_all(writer, clock, steps(rounds=24), together=3, told=lambda number: None)
        back_up(made, copy)
        (HERE / f"{sys.argv[1]}.sqlite.gz").write_bytes(gzip.compress(copy.read_bytes(), mtime=0))


if __name__ == "__main__":
    main()
