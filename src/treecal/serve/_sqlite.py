"""The books in a file of SQLite, by APSW: write-ahead log, every commit synced."""

from __future__ import annotations

import errno
import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

from treecal._atomic import InUseError, exclusive
from treecal._optional import require
from treecal.exceptions import FileError
from treecal.serve._refusals import Refusal
from treecal.serve._store import SOME, Broken, NotNowError, Row, Unavailable, held_by_older, pending_migrations, queries

apsw = require("apsw", extra="serve", what="the server's books")
log = logging.getLogger("treecal.serve")

APPLICATION = 0x74726563  # "trec": marks the file as ours
_BUSY_MS = 5000
_LOG_BYTES = 2**26  # that the write-ahead log keeps once a long reading, such as doctor's, is over
_TOGETHER = 32  # rows of one statement: between two of them other threads may take Python's lock, and keep it a while
_VALUES = re.compile(r"(.*VALUES )(\((?:\?, )*\?\))(\)?\s*)", re.DOTALL)
_CHECKED_BYTES = 2**28  # of books that are checked whenever they are opened: two seconds, a million forecasts
_LISTED = 20  # damages
_SECURE = 4  # the first version of books in which what is deleted is overwritten
_RETRY = 1.0  # seconds after which the write-ahead log is emptied again, if somebody was reading it
_CACHE_KIB = 65536  # of pages: a round is looked up hours after it was written


class SqliteReader:
    """A connection that reads a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._queries = queries()
        if not os.path.exists(path):
            raise FileError(f"there is no file {os.fspath(path)}.")
        try:
            self._connection = apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READONLY)
            self._connection.set_busy_timeout(_BUSY_MS)
            ((ours,), (version,)) = self._connection.execute("PRAGMA application_id; PRAGMA user_version").fetchall()
        except (apsw.NotADBError, apsw.CorruptError):
            raise FileError(f"{os.fspath(path)} is no file of SQLite, or it is damaged.") from None
        except apsw.CantOpenError:
            raise FileError(f"{os.fspath(path)} cannot be read.", hint="check its owner and mode.") from None
        if ours != APPLICATION or pending_migrations(version, os.fspath(path)):
            self._connection.close()
            problem = "has an older format" if ours == APPLICATION else "is a file of SQLite, and not one of treecal"
            hint = "treecal serve brings it up to date." if ours == APPLICATION else "choose another file."
            raise FileError(f"{os.fspath(path)} {problem}.", hint=hint)

    def query(self, name: str, *arguments: Any) -> list[Row]:
        """Return the rows of a query."""
        with _failures():
            return list(self._connection.execute(self._queries[name], arguments))

    def each(self, name: str, rows: Sequence[Row]) -> list[Row]:
        """Return the rows of a query asked for each of the arguments."""
        with _failures():
            return list(self._connection.executemany(self._queries[name], rows))

    def rows(self, table: str) -> Iterator[list[Row]]:
        """Yield all rows of a table, some at a time."""
        with _failures():
            found = self._connection.execute(f"SELECT * FROM {table}")
            while some := list(islice(found, SOME)):
                yield some

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Let all queries in a block see the same."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def damage(self) -> list[str]:
        """Return what SQLite finds wrong in the file: its pages, and whether indexes have what their tables have."""
        return _damage(self._connection)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _damage(connection: Any) -> list[str]:
    try:  # `quick_check` leaves out what tells a lost row of an index: a forecast that is sent again would be a new one
        found = [str(text) for (text,) in connection.execute(f"PRAGMA integrity_check({_LISTED})")]
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return [str(error)]
    return [] if found == ["ok"] else found


class Sqlite(SqliteReader):
    """The books in a file, held by this process: another one that wants to write it is refused.

    The file is made if it does not exist, readable by its owner only. One that is opened `beside` a process that may
    hold it leaves the log alone.
    """

    def __init__(self, path: str | os.PathLike[str], *, beside: bool = False) -> None:
        self.path = Path(path)
        self._beside = beside
        self._queries = queries()
        self._open = ExitStack()
        self._files: list[os.stat_result] = []
        self._traces = False
        self._next_try = 0.0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if not self.path.parent.is_dir():
                raise FileError(f"there is no folder {self.path.parent}.", hint="create it first.")
            try:
                self._hold(stack)
                if not self.path.exists():
                    os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
                self._connection = apsw.Connection(os.fspath(self.path))
                stack.callback(self._connection.close)
                self._prepare()
            except (apsw.NotADBError, apsw.CorruptError):
                hint = "restore a backup; treecal doctor --data tells what is wrong."
                raise FileError(f"{self.path} is no file of SQLite, or it is damaged.", hint=hint) from None
            except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError):
                raise FileError(f"{self.path} cannot be written.", hint="check its owner and mode.") from None
            except apsw.FullError:
                raise self._no_room() from None
            except (apsw.Error, OSError) as error:
                if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
                    raise self._no_room() from None
                raise FileError(f"{self.path} cannot be opened: {error}.") from None
            self._open = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def _no_room(self) -> NotNowError:
        return NotNowError(f"there is no room for {self.path}: the disk is full.", hint="make room.")

    def _hold(self, stack: ExitStack) -> None:
        try:
            stack.enter_context(exclusive(self.path))
            self._held = True
        except InUseError as error:
            if not self._beside:
                raise NotNowError(error.message, hint=error.hint) from None
            self._held = False

    def _prepare(self) -> None:
        connection = self._connection
        connection.set_busy_timeout(_BUSY_MS)
        ((ours,), (version,)) = connection.execute("PRAGMA application_id; PRAGMA user_version").fetchall()
        tables = connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]
        if tables and ours != APPLICATION:
            raise FileError(f"{self.path} is a file of SQLite, and not one of treecal.", hint="choose another file.")
        if connection.readonly("main"):  # which SQLite takes for granted until something is written
            raise FileError(f"{self.path} cannot be written.", hint="check its owner and mode.")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise FileError(f"{self.path} is on a file system where SQLite has no write-ahead log.")
        connection.execute(f"PRAGMA synchronous = FULL; PRAGMA secure_delete = ON; PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        scripts = pending_migrations(version, str(self.path))
        if scripts and not self._held:
            raise held_by_older(str(self.path))
        for number, script in enumerate(scripts, version + 1):
            connection.execute("BEGIN IMMEDIATE")
            try:  # all of it or none
                connection.execute(script.replace("-- sqlite: ", ""))
                connection.execute(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {number}")
                connection.execute("COMMIT")
            except BaseException:
                self.rollback()  # unless SQLite did it already, as where the disk is full
                raise
        if not self._beside:
            self._check()
            if tables and version < _SECURE:
                self._rewrite()
        connection.execute("SELECT COUNT(*) FROM streams").fetchone()  # from here on there is a write-ahead log
        self._files = self._named()

    def _check(self) -> None:
        if self.path.stat().st_size > _CHECKED_BYTES:
            log.info("%s is too large to be checked at every start; treecal doctor --data checks it", self.path)
        elif found := self.damage():
            hint = (
                "restore a backup. Without one, `sqlite3 FILE REINDEX` makes new indexes of what the tables have, and "
                "treecal doctor --data tells whether that is sound; keep a copy of the file."
            )
            raise FileError(f"{self.path} is damaged: {found[0]}.", hint=hint)

    def _rewrite(self) -> None:
        """Leave nothing in the file but what is in its tables: before, pages kept copies of rows that had moved."""
        try:
            self._connection.execute("VACUUM")
        except apsw.Error as error:
            log.warning("%s may keep traces of rows that are deleted: VACUUM failed (%s)", self.path, error)

    def _named(self) -> list[os.stat_result]:
        return [os.stat(name) for name in (self._connection.filename, self._connection.filename_wal)]

    def begin(self) -> None:
        """Begin a transaction."""
        with _failures():
            self._connection.execute("BEGIN IMMEDIATE")

    def run(self, name: str, rows: Sequence[Row]) -> None:
        """Run a statement for each of the arguments."""
        query = self._queries[name]
        together = 0
        with _failures():
            if len(rows) >= _TOGETHER and (found := _VALUES.fullmatch(query)):
                head, values, tail = found.groups()
                many = f"{head}{', '.join([values] * _TOGETHER)}{tail}"
                together = len(rows) // _TOGETHER * _TOGETHER
                for at in range(0, together, _TOGETHER):
                    self._connection.execute(many, list(chain.from_iterable(rows[at : at + _TOGETHER])))
            self._connection.executemany(query, rows[together:])

    def fill(self, table: str, rows: Sequence[Row]) -> None:
        """Add whole rows to a table."""
        with _failures():
            self._connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def commit(self) -> None:
        """End the transaction, synced, in files that are still there under their names."""
        with _failures():
            self._connection.execute("COMMIT")
        try:
            same = all(map(os.path.samestat, self._files, self._named()))
        except OSError:
            same = False
        if not same:  # what is written now would be gone with the process
            raise Broken(f"{self.path} or its write-ahead log was deleted or replaced")
        if self._traces and time.monotonic() >= self._next_try:
            self._empty()

    def purge(self) -> None:
        """Leave no trace of what the transaction deletes, once it is committed."""
        self._traces = True
        self._next_try = 0.0

    def _empty(self) -> None:
        """Empty the write-ahead log, which has pages as they were; if somebody reads it, after a later commit."""
        self._connection.set_busy_timeout(0)
        try:
            with _failures():
                ((busy, *_),) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._traces = bool(busy)
        except Refusal:  # what was committed is safe in the log
            pass
        finally:
            self._connection.set_busy_timeout(_BUSY_MS)
            self._next_try = time.monotonic() + _RETRY

    def rollback(self) -> None:
        """Undo the transaction."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def reader(self) -> SqliteReader:
        """Return a connection to read by."""
        return SqliteReader(self.path)


@contextmanager
def _failures() -> Iterator[None]:
    """Turn what a disk may do into what the server does about it."""
    try:
        yield
    except apsw.FullError:
        raise Unavailable("the disk is full") from None
    except apsw.ReadOnlyError:
        raise Unavailable("the file is read-only") from None
    except apsw.BusyError:
        raise Unavailable("another program holds the file") from None
    except (apsw.IOError, apsw.CorruptError, apsw.NotADBError) as error:
        # After a failed sync nobody knows what is on the disk, and asking again may say that all is well.
        raise Broken(f"the file of the books failed: {error}") from error
