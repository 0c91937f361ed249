"""`treecal token`, `backup` and `move`: who may do what with which streams of a server, and copies of its books."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from treecal.cli._options import Force, Json
from treecal.cli._progress import progress
from treecal.cli._terminal import Exit, counted, emit, page, printable, say, table

if TYPE_CHECKING:
    from treecal.serve import Token

Data = Annotated[str, Parameter(help="Where the books are: a file of SQLite, or the address of a PostgreSQL database.")]
_COLUMNS = ("id", "name", "prefix", "scopes", "created", "expires", "used", "revoked")
token = App(
    name="token",
    help="""Make, list and revoke the tokens of a server; it may be running, and follows within a second or two.

Once a token was made, every request needs one, also if all are revoked.""",
)


@token.command
def create(
    name: str,
    /,
    *,
    data: Data,
    prefix: Annotated[str, Parameter(show_default=False)] = "",
    scope: Annotated[
        tuple[Literal["forecast", "outcome", "read", "admin", "delete"], ...], Parameter(show_default=False)
    ] = (
        "forecast",
        "outcome",
    ),
    days: float | None = None,
    json: Json = False,
) -> None:
    """Make a token, and print it.

    It is shown this once; the books have its hash.

        treecal token create shop --data books.sqlite --prefix shop- --scope forecast --scope outcome
        treecal token create grafana --data books.sqlite --scope read --days 365

    Parameters
    ----------
    name
        What it is for.
    prefix
        It is for streams whose names start with this; by default for all.
    scope
        What it allows: forecast, outcome, read (also the page), admin (create, change, archive and reset streams),
        delete (streams and forecasts); by default forecast and outcome. May be given more than once.
    days
        After so many days it expires; by default never.
    """
    from treecal.serve import add_token, make_token, open_store

    text, made = make_token(name, prefix=prefix, scopes=scope, now=time.time(), days=days)
    with open_store(data, beside=True) as store:
        add_token(store, made)
    if json:
        emit({"token": text, **_shown(made)})
    else:
        print(text, flush=True)
        say(f"keep it: it is not shown again. Its id is {made.id}.")


@token.command(name="list")
def list_(*, data: Data, json: Json = False) -> None:
    """List tokens, without their texts. The last use is written once a minute."""
    from treecal.serve import open_reader, tokens_of

    with closing(open_reader(data)) as reader:
        found = sorted(tokens_of(reader), key=lambda each: each.created)
    if json:
        emit([_shown(each) for each in found])
        return
    listed = table("Tokens", *_COLUMNS)
    for each in found:
        listed.add_row(*(str(value or "") for value in _shown(each).values()))
    page().print(listed)


@token.command
def revoke(which: str, /, *, data: Data) -> None:
    """Revoke a token, by its id or its name.

    It stays in the list.

        treecal token revoke shop --data books.sqlite

    Parameters
    ----------
    which
        The id or the name.
    """
    from treecal.serve import open_reader, open_store, revoke_token, tokens_of

    with closing(open_reader(data)) as reader:  # what is not there is not made
        tokens_of(reader)
    with open_store(data, beside=True) as store:
        gone = revoke_token(store, which, now=time.time())
    say(f"{gone.id} ({gone.name}) is revoked.")


def _shown(each: Token) -> dict[str, object]:
    from treecal.serve import utc

    values = {key: getattr(each, key) for key in _COLUMNS}
    return {key: utc(value) if isinstance(value, float) else value for key, value in values.items()}


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
