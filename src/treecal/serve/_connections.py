"""Connections to the books: the store that `--data` names, and threads that read it while the writer writes."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from treecal.exceptions import ParameterError
from treecal.serve._refusals import Refusal

if TYPE_CHECKING:
    from treecal.serve._postgres import Postgres, PostgresReader
    from treecal.serve._sqlite import Sqlite, SqliteReader

T = TypeVar("T")
Reader: TypeAlias = "SqliteReader | PostgresReader"
"""A connection that reads: it sees what is committed. For one thread at a time."""
Store: TypeAlias = "Sqlite | Postgres"
"""A connection that writes, for one thread; nobody else writes the log meanwhile."""
_SCHEME = re.compile(r"(\w[\w+.-]*)://")


def is_database(data: str) -> bool:
    """Return whether `--data` is the address of a PostgreSQL database; raise if it is that of something else.

    Examples
    --------
    >>> is_database("books.sqlite"), is_database("postgresql://db.example.org/books")
    (False, True)
    >>> is_database("mysql://db.example.org/books")
    Traceback (most recent call last):
    treecal.exceptions.ParameterError: books are in a file of SQLite or in PostgreSQL, not at mysql://.
    <BLANKLINE>
    Hint: --data books.sqlite, or --data postgresql://user@host/database.
    """
    if (found := _SCHEME.match(data)) is None:
        return False
    if found[1] not in ("postgresql", "postgres"):
        problem = f"books are in a file of SQLite or in PostgreSQL, not at {found[0]}."
        raise ParameterError(problem, hint="--data books.sqlite, or --data postgresql://user@host/database.")
    return True


def may_exist(data: str) -> bool:
    """Return whether there may be books at `--data`: of a database that is not known before it is asked."""
    return is_database(data) or os.path.exists(data)


def open_reader(data: str) -> Reader:
    """Return a connection that reads the books of `--data`, whether a server runs or not."""
    if is_database(data):
        from treecal.serve._postgres import PostgresReader

        return PostgresReader(data)
    from treecal.serve._sqlite import SqliteReader

    return SqliteReader(data)


def open_store(data: str, *, beside: bool = False) -> Store:
    """Return the store of `--data`: a file of SQLite, or a PostgreSQL address.

    One that is opened `beside` a server that holds it may write what is not of the log, such as tokens.
    """
    if is_database(data):
        from treecal.serve._postgres import Postgres

        return Postgres(data, beside=beside)
    from treecal.serve._sqlite import Sqlite

    return Sqlite(data, beside=beside)


class Readers:
    """Lets functions read the store on other threads: more than two would only wait for each other, and the writer."""

    def __init__(self, store: Store, *, threads: int = 2) -> None:
        self._store = store
        self._own = threading.local()
        self._opened: list[Reader] = []
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="treecal-reader")

    async def __call__(self, act: Callable[[Reader], T]) -> T:
        """Return what a function finds in the store."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._act, act)

    def _act(self, act: Callable[[Reader], T]) -> T:
        reader = getattr(self._own, "reader", None)
        if reader is None:
            reader = self._own.reader = self._store.reader()
            self._opened.append(reader)
        try:
            return act(reader)
        except Refusal:
            raise
        except BaseException:  # a connection that was lost, perhaps: the next one who reads has a new one
            del self._own.reader
            self._opened.remove(reader)
            reader.close()
            raise

    def close(self) -> None:
        """Wait for what is being read, and close the connections."""
        self._threads.shutdown()
        for reader in self._opened:
            reader.close()
