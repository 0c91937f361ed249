"""`treecal move`: the books of a server, from SQLite to PostgreSQL or back."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from treecal.cli._options import Json
from treecal.cli._progress import progress
from treecal.cli._terminal import counted, emit


def move(
    *,
    data: Annotated[str, Parameter(help="The books: a file of SQLite, or the address of a PostgreSQL database.")],
    to: Annotated[str, Parameter(help="Where they are to be: the same, and empty.")],
    json: Json = False,
) -> None:
    """Copy the books of the server to another place, from SQLite to PostgreSQL or back, and compare the two.

    The log is played again in both places, and must give the same hashes. The server must not run meanwhile. The first
    books stay as they are: start the server with the new ones, and remove the first when you no longer need them.

        treecal move --data books.sqlite --to postgresql:///books

    Exit codes: 0 success, 2 invalid input, or there are books already where these are to be.
    """
    from treecal.serve import move_books

    with progress("rows") as done:
        moved = move_books(data, to, progress=done)
    if json:
        emit({"rows": moved.rows, "streams": [each._asdict() for each in moved.streams]})
        return
    rounds = counted(sum(each.rounds - each.deleted for each in moved.streams), "forecast")
    print(f"{counted(len(moved.streams), 'stream')}, {rounds}: the same in both places, hash by hash.")
