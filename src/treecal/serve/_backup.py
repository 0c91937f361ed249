"""Copies of the books: those of one moment while the server writes; and all of them, the same, in another place."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from treecal._atomic import new_file
from treecal._optional import require
from treecal.exceptions import FileError, UnsupportedError
from treecal.serve._connections import Reader, Store, is_database, may_exist, open_store
from treecal.serve._doctor import Checked, check_books
from treecal.serve._sqlite import APPLICATION, SqliteReader
from treecal.serve._store import tables

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
        Called with how many pages are copied, and of how many.

    Examples
    --------
    >>> import tempfile
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


class Moved(NamedTuple):
    """What was moved: the streams, as the replay of their logs finds them in both places, and rows by their tables."""

    streams: list[Checked]
    rows: dict[str, int]


def move_books(data: str, to: str, *, progress: Callable[[float, float], None] = lambda done, total: None) -> Moved:
    """Copy all books to another, empty place, and play their log again there; the first ones stay as they are.

    No server may hold either of them meanwhile.

    Parameters
    ----------
    data
        The books: a file of SQLite, or the address of a PostgreSQL database.
    to
        Where they are to be, the same.
    progress
        Called with how many rows are copied, and of how many.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_store(f"{folder}/books.sqlite"):
    ...         pass
    ...     move_books(f"{folder}/books.sqlite", f"{folder}/other.sqlite").streams
    []
    """
    if not may_exist(data):
        raise FileError(f"there is no file {data}.", hint="--data is the file that treecal serve was given.")
    with open_store(data) as source, open_store(to) as target:
        if any(rows_of(target).values()):
            raise FileError("there are books already where these are to be.", hint="choose a place without any.")
        before = check_books(source)
        if problems := [f"{each.name}: {each.problems[0]}" for each in before if each.problems]:
            raise FileError(f"the books are not sound: {problems[0]}", hint="treecal doctor --data shows all of it.")
        counts = rows_of(source)
        _fill(source, target, sum(counts.values()), progress)
        if rows_of(target) != counts or check_books(target) != before:
            raise FileError("what was copied is not the same.", hint="keep the first books; this is a bug.")
        return Moved(before, counts)


def rows_of(reader: Reader) -> dict[str, int]:
    """Return how many rows tables have, but for that of heartbeats."""
    counts: Counter[str] = Counter()
    for table in _moved():
        counts[table] += sum(map(len, reader.rows(table)))
    return dict(counts)


def _moved() -> list[str]:
    return [table for table in tables() if table != "beats"]


def _fill(source: Store, target: Store, total: int, progress: Callable[[float, float], None]) -> None:
    done = 0
    target.begin()
    try:
        for table in _moved():
            for rows in source.rows(table):
                target.fill(table, rows)
                done += len(rows)
                progress(done, total)
        target.commit()
    except BaseException:
        target.rollback()
        raise
