"""`treecal backup` and `treecal move`: copies of the server's books."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from treecal.cli._options import Force, Json
from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, counted, emit, printable, say


def backup(
    out: Path,
    *,
    data: Annotated[str, Parameter(help="The books: a file of SQLite.")],
    check: bool = False,
    force: Force = False,
    json: Json = False,
) -> int:
    """Copy the books of the server to a file, while it runs or while it does not.

    The copy is of one moment, complete, and checked by SQLite before it gets its name; only its owner can read it.
    To go back to it, stop the server, remove the books with their -wal and -shm, and put the copy in their place.

        treecal backup monday.sqlite --data books.sqlite
        treecal backup monday.sqlite --data books.sqlite --check

    Exit codes: 0 success, 1 the copy was written and --check found a difference, 2 invalid input.

    Parameters
    ----------
    out
        The file to write.
    check
        Play the log of the copy again, and compare it with what was announced, bit for bit.
    """
    from treecal.serve import back_up

    with progress("pages") as done:
        copied = back_up(data, out, check=check, force=force, progress=done)
    problems = [f"{each.name}: {problem}" for each in copied.checked or [] for problem in each.problems]
    if json:
        emit({"file": str(out), "bytes": copied.size, "streams": copied.streams, "problems": problems})
    else:
        words = [counted(copied.streams, "stream"), f"{copied.size / 1e6:,.1f} MB"]
        if copied.checked is not None:
            words.append(f"{counted(sum(each.rounds for each in copied.checked), 'round')} played again")
        print(f"{printable(out)}: {', '.join(words)}.")
    for problem in problems:
        say(problem)
    return Exit.FLAWED if problems else Exit.FINE


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
