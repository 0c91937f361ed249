"""The books in another place: from a file of SQLite to PostgreSQL, or back; all of them, and found to be the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from treecal.exceptions import FileError
from treecal.serve._connections import open_store
from treecal.serve._doctor import Checked, check_books
from treecal.serve._store import Reader, Store, tables


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
        Told how many rows are copied, and of how many.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_store(f"{folder}/books.sqlite"):
    ...         pass
    ...     move_books(f"{folder}/books.sqlite", f"{folder}/other.sqlite").streams
    []
    """
    with open_store(data) as source, open_store(to) as target:
        if any(rows_of(target).values()):
            raise FileError("there are books already where these are to be.", hint="choose a place without any.")
        before = check_books(source)
        if problems := [f"{each.name}: {each.problems[0]}" for each in before if each.problems]:
            raise FileError(f"the books are not sound: {problems[0]}", hint="treecal doctor --data shows all of it.")
        counts = rows_of(source)
        _copy(source, target, sum(counts.values()), progress)
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


def _copy(source: Store, target: Store, total: int, progress: Callable[[float, float], None]) -> None:
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
