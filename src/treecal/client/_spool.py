"""The spool: a table of SQLite with what could not be delivered yet.

An append is a commit to SQLite's write-ahead log: it is with the system, and survives the end of the process, also by
kill -9. Nothing is synced to the disk while a model waits for its answer: `sync` does that, by a connection of its own.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

import msgspec
from msgspec import Struct

from treecal._atomic import exclusive
from treecal._validate import whole_number
from treecal.exceptions import FileError
from treecal.serve import NewForecast, NewOutcome, Problem

LIMIT = 64 * 2**20
_SQLITE = b"SQLite format 3\0"
_APPLICATION = 0x7463616C  # "tcal"
_FILES = ("", "-wal", "-shm")
_CREATE = f"""
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN;
PRAGMA application_id = {_APPLICATION};
CREATE TABLE items (number INTEGER PRIMARY KEY, item BLOB NOT NULL);
COMMIT;
"""
_log = logging.getLogger("treecal.client")


class SpooledForecast(Struct, frozen=True, tag="forecast", tag_field="what"):
    """A forecast that was used as it is, and its stream."""

    stream: str
    forecast: NewForecast


class SpooledOutcome(Struct, frozen=True, tag="outcome", tag_field="what"):
    """An outcome."""

    outcome: NewOutcome


Item = SpooledForecast | SpooledOutcome


class QueuedRow(NamedTuple):
    """An item, its number in the table, and its bytes."""

    item: Item
    number: int
    size: int


class Refused(Struct, frozen=True, omit_defaults=True):
    """A line of the file of what was refused: when, why, and the item; or a row of the spool that could not be read."""

    at: float
    why: Problem
    item: Item | None = None
    row: str | None = None


class SpoolCounts(Struct, frozen=True):
    """What became of that which could not be delivered at once.

    waiting: in the spool, to be delivered. delivered: taken by the server since the client was made. refused: by the
    server, for good; they are in the file whose name ends in `.refused`. dropped: not kept, because the spool was full
    or could not be written. damaged: rows of the spool that could not be read, or 1 for a spool that could not be read
    at all, which is then in the file whose name ends in `.damaged`.
    """

    waiting: int = 0
    delivered: int = 0
    refused: int = 0
    dropped: int = 0
    damaged: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Item).decode


class Spool:
    """Forecasts and outcomes in order, of which the oldest are taken out once they are delivered.

    Parameters
    ----------
    path
        The file. It is locked: one process at a time.
    limit
        The most bytes that may wait. A spool that is full keeps what it has and takes nothing more; its last quarter is
        for outcomes. The file, with the log of SQLite beside it, is at most some times as large.
    """

    def __init__(self, path: str | os.PathLike[str], *, limit: int = LIMIT) -> None:
        self.path = os.path.realpath(path)
        self.limit = whole_number("limit", limit, least=1)
        self.refused_path = f"{self.path}.refused"
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()  # a connection must not be closed while it is used
        self._bytes = 0
        self._done = 0  # the number of the last row that was taken out
        self._dirty = False
        self._closed = False
        self._waiting = self._delivered = self._refused = self._dropped = self._damaged = 0
        with ExitStack() as stack:
            stack.enter_context(exclusive(path))
            self._table = self._opened()
            stack.callback(self._table.close)
            self._syncing = _connect(self.path)
            stack.callback(self._syncing.close)
            self._held = stack.pop_all()

    def _opened(self) -> sqlite3.Connection:
        """Open the table, and read what waits; a damaged one is set aside."""
        _check(self.path)
        os.close(_private(self.path, os.O_WRONLY | os.O_CREAT))
        try:
            return self._recovered()
        except sqlite3.OperationalError as error:
            raise FileError(f"the spool {self.path} cannot be opened: {error}.") from None
        except sqlite3.DatabaseError as error:
            aside = f"{self.path}.damaged"
            for ending in _FILES:
                with suppress(FileNotFoundError):
                    os.replace(self.path + ending, aside + ending)
            _log.warning("the spool %s cannot be read, and is set aside as %s: %s", self.path, aside, error)
            self._damaged = 1
            os.close(_private(self.path, os.O_WRONLY | os.O_CREAT))
            return self._recovered()

    def _recovered(self) -> sqlite3.Connection:
        with ExitStack() as stack:
            table = _connect(self.path)
            stack.callback(table.close)
            if not table.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]:
                table.executescript(_CREATE)
            if table.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
                raise _foreign(self.path)
            damaged: list[tuple[int, bytes]] = []
            waiting = size = 0
            for number, item in table.execute("SELECT number, item FROM items"):
                try:
                    _decode(item)
                except msgspec.DecodeError:  # or of another version
                    damaged.append((number, item))
                else:
                    waiting += 1
                    size += len(item)
            if damaged:
                why = Problem("damaged", "the row is not as it was written")
                self._note([Refused(time.time(), why, row=item.decode(errors="replace")) for _, item in damaged])
                with table:
                    table.executemany("DELETE FROM items WHERE number = ?", [(number,) for number, _ in damaged])
            self._waiting = waiting
            self._bytes = size
            self._damaged += len(damaged)
            stack.pop_all()
        return table

    def __len__(self) -> int:
        return self._waiting

    @property
    def counts(self) -> SpoolCounts:
        """What became of everything so far."""
        with self._lock:
            return SpoolCounts(self._waiting, self._delivered, self._refused, self._dropped, self._damaged)

    def append(self, items: Sequence[Item]) -> bool:
        """Keep items of one kind, all or none; return whether they are kept."""
        rows = [(_encode(item),) for item in items]
        size = sum(len(item) for (item,) in rows)
        with self._lock:
            room = self.limit if isinstance(items[0], SpooledOutcome) else self.limit * 3 // 4
            kept = self._bytes + size <= room and self._write("INSERT INTO items (item) VALUES (?)", rows)
            if kept:
                self._waiting += len(items)
                self._bytes += size
            else:
                self._dropped += len(items)
        return kept

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> bool:
        """Do this for all rows, or for none; return whether it is done."""
        try:
            with self._table:
                self._table.executemany(statement, rows)
        except sqlite3.Error as error:  # the disk is full or fails, or the spool is closed
            _log.warning("the spool %s cannot be written: %s", self.path, error)
            return False
        self._dirty = True
        return True

    def head(self, most: int) -> list[QueuedRow]:
        """Return the oldest items, so many at most."""
        query = "SELECT item, number FROM items WHERE number > ? ORDER BY number LIMIT ?"
        with self._lock:
            found = [] if self._closed else self._table.execute(query, (self._done, most)).fetchall()
        return [QueuedRow(_decode(item), number, len(item)) for item, number in found]

    def advance(self, rows: Sequence[QueuedRow], *, refused: Sequence[tuple[Item, Problem]] = ()) -> None:
        """Take out the oldest items, which were delivered or refused."""
        if refused:
            self._note([Refused(time.time(), why, item) for item, why in refused])
        with self._lock:
            if self._closed:  # the next one that opens it delivers them again
                return
            self._done = rows[-1].number  # so that they are not delivered again at once if they cannot be deleted
            self._waiting -= len(rows)
            self._bytes -= sum(row.size for row in rows)
            self._refused += len(refused)
            self._delivered += len(rows) - len(refused)
            deleted = self._write("DELETE FROM items WHERE number <= ?", [(self._done,)])
            if deleted and not self._waiting:
                self._done = 0  # numbers begin again
                with suppress(sqlite3.Error):
                    self._table.executescript("PRAGMA incremental_vacuum")
        self.sync()

    def _note(self, refused: Sequence[Refused]) -> None:
        """Append to the file of what was refused, which does not grow beyond the limit either."""
        lines = b"".join(_encode(each) + b"\n" for each in refused)
        first = refused[0].why
        _log.warning("%d not taken, see %s: %s: %s", len(refused), self.refused_path, first.code, first.message)
        with suppress(OSError), open(self.refused_path, "ab", opener=_private) as file:
            if file.tell() + len(lines) <= self.limit:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())

    def sync(self) -> None:
        """Make what was appended survive a power cut."""
        with self._sync_lock:
            if self._dirty and not self._closed:
                self._dirty = False
                with suppress(sqlite3.Error):  # a disk that fails
                    self._syncing.execute("PRAGMA wal_checkpoint")

    def close(self) -> None:
        """Close the file, and let others have it."""
        self.sync()
        with self._sync_lock, self._lock:
            self._closed = True
            self._held.close()


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    # What is committed is in the log; `sync` syncs that, and copies it to the file.
    for setting in ("synchronous = NORMAL", "wal_autocheckpoint = 0", "journal_size_limit = 0"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _check(path: str) -> None:
    """Raise unless this is a file of SQLite, or none yet."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        start = file.read(len(_SQLITE))
        if start.startswith(b"treecal spool 1"):
            hint = "deliver it with the treecal that wrote it, or choose another name."
            raise FileError(f"{path} is a spool of an earlier format, which this treecal does not read.", hint=hint)
        if start and start != _SQLITE:
            raise _foreign(path)


def _foreign(path: str) -> FileError:
    return FileError(f"{path} is not a spool of treecal.", hint="choose another name.")
