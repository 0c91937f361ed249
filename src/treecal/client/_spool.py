"""The spool: a file of what could not be delivered yet.

A line is a record, `LENGTH CHECKSUM JSON`, or a mark, `=OFFSET CHECKSUM`: what stands before the offset was delivered.
Lines are only appended, so that a process that is killed leaves whole lines and perhaps a torn one at the end, which is
left out. A damaged line is left out too, and does not hide those after it.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from io import BufferedWriter
from typing import NamedTuple
from zlib import crc32

import msgspec
from msgspec import Struct

from treecal._atomic import exclusive, new_file
from treecal._validate import whole_number
from treecal.exceptions import FileError
from treecal.serve import NewForecast, NewOutcome, Problem

LIMIT = 64 * 2**20
_HEADER = b"treecal spool 1\n"
_START = len(_HEADER)
_LITTLE = 2**20  # bytes that were delivered are left where they are, up to this
_log = logging.getLogger("treecal.client")


class SpooledForecast(Struct, frozen=True, tag="forecast", tag_field="what"):
    """A forecast that was used as it is, and its stream."""

    stream: str
    forecast: NewForecast


class SpooledOutcome(Struct, frozen=True, tag="outcome", tag_field="what"):
    """An outcome."""

    outcome: NewOutcome


Item = SpooledForecast | SpooledOutcome


class Record(NamedTuple):
    """An item, and where in the file the next one begins."""

    item: Item
    end: int


class Refused(Struct, frozen=True, omit_defaults=True):
    """A line of the file of what was refused: when, why, and the item; or a line that could not be read."""

    at: float
    why: Problem
    item: Item | None = None
    line: str | None = None


class SpoolCounts(Struct, frozen=True):
    """What became of that which could not be delivered at once.

    waiting: in the file, to be delivered. delivered: taken by the server since the client was made. refused: by the
    server, for good; they are in the file whose name ends in `.refused`. dropped: not kept, because the spool was full
    or could not be written. damaged: lines of the file that could not be read.
    """

    waiting: int = 0
    delivered: int = 0
    refused: int = 0
    dropped: int = 0
    damaged: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Item).decode


class Spool:
    """A file of forecasts and outcomes in order, from which the oldest are taken once they are delivered.

    What was appended is with the system: it survives the end of the process, also by kill -9. `sync` makes it survive a
    power cut, too.

    Parameters
    ----------
    path
        The file. It is locked: one process at a time.
    limit
        The most bytes that may wait. A spool that is full keeps what it has and takes nothing more; its last quarter is
        for outcomes. The file is at most about twice as large.
    """

    def __init__(self, path: str | os.PathLike[str], *, limit: int = LIMIT) -> None:
        self.path, self.limit = os.path.realpath(path), whole_number("limit", limit, least=1)
        self.refused_path = f"{self.path}.refused"
        self._lock = threading.Lock()
        self._first = self._end = _START  # between them is what waits
        self._dirty = False
        self._waiting = self._delivered = self._refused = self._dropped = self._damaged = 0
        with ExitStack() as stack:
            stack.enter_context(exclusive(path))
            self._file = self._opened()
            stack.callback(lambda: os.close(self._file))
            self._recover()
            self._held = stack.pop_all()

    def _opened(self) -> int:
        return _private(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def _recover(self) -> None:
        """Find what waits, and leave out a torn end."""
        with open(self.path, "rb") as file:
            start = file.read(_START)
        if start != _HEADER:
            if not _HEADER.startswith(start):
                raise FileError(f"{self.path} is not a spool of treecal.", hint="choose another name.")
            os.ftruncate(self._file, 0)
            os.write(self._file, _HEADER)
        for line, end in self._lines(_START, os.fstat(self._file).st_size):
            if not line.endswith(b"\n"):
                os.ftruncate(self._file, self._end)
                break
            self._end = end
            if (mark := _marked(line)) is not None and _START <= mark < end:
                self._first = mark
        damaged = []
        for line, _ in self._lines(self._first, self._end):
            if _item(line) is not None:
                self._waiting += 1
            elif _marked(line) is None:
                damaged.append(line.decode(errors="replace"))
        if damaged:
            why = Problem("damaged", "the line is not as it was written")
            self._note([Refused(time.time(), why, line=line) for line in damaged])
            self._damaged = len(damaged)
        if not self._waiting:
            self._empty()

    def _lines(self, start: int, stop: int) -> Iterator[tuple[bytes, int]]:
        """Yield the lines between two places, and the place where each ends."""
        with open(self.path, "rb") as file:
            file.seek(start)
            while start < stop:
                line = file.readline()
                start += len(line)
                yield line, start

    def __len__(self) -> int:
        return self._waiting

    @property
    def counts(self) -> SpoolCounts:
        """What became of everything so far."""
        with self._lock:
            return SpoolCounts(self._waiting, self._delivered, self._refused, self._dropped, self._damaged)

    def append(self, items: Sequence[Item]) -> bool:
        """Keep items of one kind, all or none; return whether they are kept."""
        lines = b"".join(_framed(_encode(item)) for item in items)
        with self._lock:
            room = self.limit if isinstance(items[0], SpooledOutcome) else self.limit * 3 // 4
            kept = self._end - self._first + len(lines) <= room and self._write(lines)
            if kept:
                self._waiting += len(items)
            else:
                self._dropped += len(items)
        return kept

    def _write(self, lines: bytes) -> bool:
        try:
            if os.write(self._file, lines) == len(lines):
                self._end += len(lines)
                self._dirty = True
                return True
        except OSError as error:
            _log.warning("the spool %s cannot be written: %s", self.path, error)
        with suppress(OSError):  # what was written in part must not stand before the next line
            os.ftruncate(self._file, self._end)
        return False

    def head(self, most: int) -> list[Record]:
        """Return the oldest items, so many at most."""
        with self._lock:
            start, stop = self._first, self._end
        found: list[Record] = []
        for line, end in self._lines(start, stop):
            if (item := _item(line)) is not None:
                found.append(Record(item, end))
                if len(found) == most:
                    break
        return found

    def advance(self, records: Sequence[Record], *, refused: Sequence[tuple[Item, Problem]] = ()) -> None:
        """Take out the oldest items, which were delivered or refused."""
        if refused:
            self._note([Refused(time.time(), why, item) for item, why in refused])
        with self._lock:
            if self._file < 0:  # closed: the next one that opens it delivers them again
                return
            self._first = records[-1].end
            self._waiting -= len(records)
            self._refused += len(refused)
            self._delivered += len(records) - len(refused)
            done = self._first - _START
            if not self._waiting:
                self._empty()
                return
            self._write(_mark(self._first))
        if done > max(_LITTLE, self._end - self._first):
            with suppress(OSError):  # no room for a second file: the first stays as it is
                self._rewrite()

    def _empty(self) -> None:
        os.ftruncate(self._file, _START)
        self._first = self._end = _START

    def _rewrite(self) -> None:
        """Leave out what was delivered, so that the file stays small though it never becomes empty."""
        with ExitStack() as stack:
            with new_file(self.path, force=True) as temporary, open(temporary, "wb") as file:
                file.write(_HEADER)
                stop = self._end
                self._copy(self._first, stop, file)
                os.fsync(file.fileno())  # while others may still append
                stack.enter_context(self._lock)
                if self._file < 0:  # closed, and perhaps another one's by now
                    raise OSError(errno.EBADF, "the spool is closed", self.path)
                self._copy(stop, self._end, file)
                size = file.tell()
            old, self._file = self._file, self._opened()
            self._first, self._end = _START, size
            os.close(old)

    def _copy(self, start: int, stop: int, file: BufferedWriter) -> None:
        for line, _ in self._lines(start, stop):
            if not line.startswith(b"="):  # marks are about the old file
                file.write(line)
        file.flush()

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
        if self._dirty:
            self._dirty = False
            with suppress(OSError):  # a disk that fails, or a spool that is closed
                os.fsync(self._file)

    def close(self) -> None:
        """Close the file, and let others have it."""
        self.sync()
        with self._lock:
            self._held.close()
            self._file = -1  # nobody writes to whatever gets its number next


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _framed(item: bytes) -> bytes:
    return b"%08x %08x %b\n" % (len(item), crc32(item), item)


def _item(line: bytes) -> Item | None:
    item = line[18:-1]
    if line[:18] != b"%08x %08x " % (len(item), crc32(item)):
        return None
    try:
        found: Item = _decode(item)
    except msgspec.DecodeError:  # of another version
        return None
    return found


def _mark(end: int) -> bytes:
    place = b"=%016x" % end
    return b"%b %08x\n" % (place, crc32(place))


def _marked(line: bytes) -> int | None:
    if not line.startswith(b"="):
        return None
    with suppress(ValueError):
        place = int(line[1:17], 16)
        return place if line == _mark(place) else None
    return None
