"""A copy of the books, made while the server writes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from treecal._atomic import new_file
from treecal._optional import require
from treecal.exceptions import FileError, UnsupportedError
from treecal.serve._connections import is_database
from treecal.serve._doctor import Checked, check_books
from treecal.serve._sqlite import APPLICATION, SqliteReader

apsw = require("apsw", extra="serve", what="a backup")

_PAGES = 1000  # copied at a time: a few milliseconds


class Copied(NamedTuple):
    """What was copied: bytes, streams, and what the replay of the copy found, if it was asked for."""

    size: int
    streams: int
    checked: list[Checked] | None


def back_up(
    data: str,
    out: str | os.PathLike[str],
    *,
    check: bool = False,
    force: bool = False,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> Copied:
    """Copy the books of one moment to a file; the server may go on writing meanwhile, and need not run.

    The copy appears under its name once it is complete, sound by SQLite's own check, and on disk. It is one file, and
    only its owner can read it.

    Parameters
    ----------
    data
        The books, a file of SQLite.
    out
        The file to write.
    check
        Also play the log of the copy again, and compare it with what was announced, bit for bit.
    force
        Overwrite an existing file.
    progress
        Told how many pages are copied, and of how many.

    Examples
    --------
    >>> import tempfile
    >>> from treecal.serve._connections import open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_store(f"{folder}/books.sqlite"):
    ...         back_up(f"{folder}/books.sqlite", f"{folder}/copy.sqlite", check=True).checked
    []
    """
    if is_database(data):
        raise UnsupportedError(
            "treecal backs up files of SQLite, and these books are in PostgreSQL.",
            hint="pg_dump --format=custom --file=books.dump, with the same address; pg_restore reads it.",
        )
    if not os.path.isfile(data):
        raise FileError(f"there is no file {data}.", hint="--data is the file that treecal serve was given.")
    if os.path.exists(out) and os.path.samefile(data, out):
        raise FileError(f"{os.fspath(out)} is the file of the books itself.", hint="choose another name.")
    if os.path.exists(f"{os.fspath(out)}-wal"):
        hint = "choose another name; or, if nothing uses it, remove it with its -wal and -shm."
        raise FileError(f"{os.fspath(out)} is in use by SQLite: it has a write-ahead log beside it.", hint=hint)
    with new_file(out, force=force) as temporary:
        os.chmod(temporary, 0o600)
        try:
            _copy(data, temporary, progress)
        except (apsw.NotADBError, apsw.CorruptError, apsw.IOError) as error:
            raise FileError(f"{data} cannot be copied: {error}.", hint="is it a file of treecal serve?") from None
        except apsw.FullError:
            raise FileError(f"there is no room for {os.fspath(out)}: the disk is full.") from None
        reader = SqliteReader(temporary)
        try:
            streams = len(reader.query("streams"))
            checked = check_books(reader) if check else None
        finally:
            reader.close()
        return Copied(temporary.stat().st_size, streams, checked)


def _copy(data: str, temporary: Path, progress: Callable[[float, float], None]) -> None:
    source = apsw.Connection(data, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        source.set_busy_timeout(5000)
        copy = apsw.Connection(os.fspath(temporary))
        try:
            copy.execute("PRAGMA synchronous = OFF")  # it is synced once, at the end
            with source:  # one moment: otherwise every commit of the server would restart the copy
                if source.execute("PRAGMA application_id").fetchone() != (APPLICATION,):
                    raise FileError(f"{data} is a file of SQLite, and not one of treecal.")
                with copy.backup("main", source, "main") as steps:
                    while not steps.done:
                        steps.step(_PAGES)
                        progress(steps.page_count - steps.remaining, steps.page_count)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a write-ahead log
            if (found := copy.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
                hint = "the books are damaged: treecal doctor --data tells how far they can be read."
                raise FileError(f"the copy of {data} is not sound: {found[0][0]}.", hint=hint)
        finally:
            copy.close()
    finally:
        source.close()
