"""A disk that loses power, or fails, at any operation: a VFS for SQLite that records what was written and synced.

One run is recorded; then `Disk.moments` goes through it operation by operation, and each `Moment` gives the files that
power loss may leave behind there. What was not synced is lost, kept, kept in part, or torn. The `-shm` file is not
recorded: SQLite makes it anew when nobody has the books open.

The model is that of SQLite's documents: a write may be torn anywhere, and changes no byte outside it. Names follow a
journal, as in file systems today: of the creations and deletions since the folder was last synced, some first ones
have happened. SQLite syncs the folder when it first syncs a journal or WAL that it created, and where `xDelete` says
so.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import apsw
import numpy as np

SECTOR = 512
IN_THE_FOLDER = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL

Writes = Literal["lost", "kept", "reordered", "sectors", "bytes"]
"""What is left of writes that were not synced: none, all, a random part of them, or of their sectors, or a torn one."""
Names = Literal["lost", "kept", "some"]
"""What becomes of creations and deletions that were not synced: none of them, all, or some first ones."""
WAYS: list[tuple[Writes, Names]] = [
    ("lost", "lost"),
    ("lost", "kept"),
    ("kept", "lost"),
    ("kept", "kept"),
    ("reordered", "some"),
    ("sectors", "some"),
    ("bytes", "some"),
]


@dataclass(frozen=True)
class Write:
    node: int
    offset: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    node: int
    size: int


@dataclass(frozen=True)
class Sync:
    node: int
    folder: bool


@dataclass(frozen=True)
class Create:
    name: str
    node: int
    content: bytes | None = None
    """Of a file that was there before: it is durable already."""


@dataclass(frozen=True)
class Delete:
    name: str
    folder: bool


@dataclass(frozen=True)
class Note:
    """Something that a test noted between two operations, such as that a request was answered."""

    what: Any


Operation = Write | Truncate | Sync | Create | Delete


@dataclass
class _Content:
    durable: bytearray
    since: list[Write | Truncate] = field(default_factory=list)


def _apply(content: bytearray, change: Write | Truncate) -> None:
    size = change.size if isinstance(change, Truncate) else change.offset
    if len(content) < size:
        content.extend(bytes(size - len(content)))
    if isinstance(change, Truncate):
        del content[change.size :]
    else:
        content[change.offset : change.offset + len(change.data)] = change.data


class Moment:
    """Where a recorded run stands after some operations."""

    def __init__(self) -> None:
        self.operations = 0
        self.last: Operation | None = None
        self.notes: list[Any] = []
        self._contents: dict[int, _Content] = {}
        self._names: dict[str, int] = {}
        self._names_since: list[Create | Delete] = []

    def step(self, operation: Operation) -> None:
        self.operations += 1
        self.last = operation
        match operation:
            case Write() | Truncate():
                self._contents[operation.node].since.append(operation)
            case Sync(node, folder):
                content = self._contents[node]
                for change in content.since:
                    _apply(content.durable, change)
                content.since.clear()
                if folder:
                    self._sync_names()
            case Create(name, node, there):
                self._contents[node] = _Content(bytearray(there or b""))
                if there is None:
                    self._names_since.append(operation)
                else:
                    self._names[name] = node
            case Delete(_, folder):
                self._names_since.append(operation)
                if folder:
                    self._sync_names()

    def _sync_names(self) -> None:
        self._names = _named(self._names, self._names_since)
        self._names_since.clear()

    def survivors(self, writes: Writes, names: Names, rng: np.random.Generator) -> dict[str, bytes]:
        """The files, by name, that power loss at this moment leaves behind."""
        some = {"lost": 0, "kept": len(self._names_since)}.get(names)
        if some is None:
            some = int(rng.integers(len(self._names_since) + 1))
        files = {}
        for name, node in _named(self._names, self._names_since[:some]).items():
            content = self._contents[node]
            left = bytearray(content.durable)
            for change in _surviving(content.since, writes, rng):
                _apply(left, change)
            files[name] = bytes(left)
        return files


def _named(names: dict[str, int], changes: list[Create | Delete]) -> dict[str, int]:
    names = dict(names)
    for change in changes:
        if isinstance(change, Create):
            names[change.name] = change.node
        else:
            names.pop(change.name, None)
    return names


def _surviving(since: list[Write | Truncate], writes: Writes, rng: np.random.Generator) -> Iterator[Write | Truncate]:
    if writes == "bytes":  # all up to some write, and of that one some first bytes
        cut = int(rng.integers(len(since) + 1))
        yield from since[:cut]
        if cut < len(since) and isinstance(last := since[cut], Write):
            yield Write(last.node, last.offset, last.data[: int(rng.integers(len(last.data) + 1))])
        return
    keep = rng.random()  # also nearly all and nearly none of them
    for change in since:
        if writes == "kept" or (writes == "reordered" and rng.random() < keep):
            yield change
        elif writes == "sectors" and isinstance(change, Truncate):
            if rng.random() < keep:
                yield change
        elif writes == "sectors" and isinstance(change, Write):
            yield from (part for part in _sectors(change) if rng.random() < keep)


def _sectors(write: Write) -> Iterator[Write]:
    start, end = write.offset, write.offset + len(write.data)
    edges = [start, *range(start - start % SECTOR + SECTOR, end, SECTOR), end]
    for low, high in pairwise(edges):
        yield Write(write.node, low, write.data[low - start : high - start])


class Disk(apsw.VFS):
    """The default VFS of this process while it is in place, which records all files of SQLite; see `in_place`.

    `fail` makes operations raise: what a full or broken disk does, while the process lives on.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.recorded: list[Operation | Note] = []
        self._fails: Callable[[int], Exception | None] = lambda _: None
        self._done = 0
        self._names: dict[str, int] = {}
        self._deleted = 0
        self._lock = threading.Lock()
        self.base = apsw.vfs_names()[0]  # the default one so far
        super().__init__(name, base=self.base, makedefault=True)

    def fail(self, fails: Callable[[int], Exception | None]) -> None:
        """Ask `fails` from now on, with the number of each operation from 0, whether it raises."""
        self._fails, self._done = fails, 0

    def note(self, what: Any) -> None:
        with self._lock:
            self.recorded.append(Note(what))

    def moments(self) -> Iterator[Moment]:
        """The same object again and again: before the first operation, and after each, with what was noted by then."""
        moment = Moment()
        yield moment
        for index, record in enumerate(self.recorded):
            if isinstance(record, Note):
                moment.notes.append(record.what)
            else:
                moment.step(record)
            following = self.recorded[index + 1] if index + 1 < len(self.recorded) else None
            if moment.operations and not isinstance(following, Note):
                yield moment

    @property
    def operations(self) -> int:
        return sum(not isinstance(record, Note) for record in self.recorded)

    def meet(self) -> None:
        """Raise if this operation is one that fails."""
        with self._lock:
            error = self._fails(self._done)
            self._done += 1
        if error is not None:
            raise error

    def record(self, operation: Operation) -> None:
        with self._lock:
            self.recorded.append(operation)

    def node(self, name: str) -> tuple[int, bool]:
        """The file of this name, which is there now, and whether it is a new one."""
        with self._lock:
            if name in self._names:
                return self._names[name], False
            node = self._names[name] = len(self._names) + self._deleted
            content = Path(name).read_bytes() or None
            self.recorded.append(Create(Path(name).name, node, content))
            return node, content is None

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None or not flags[0] & IN_THE_FOLDER:
            return super().xOpen(name, flags)
        if flags[0] & apsw.SQLITE_OPEN_CREATE and not os.path.exists(path):
            self.meet()
        return _File(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        if os.path.exists(filename):
            self.meet()
        super().xDelete(filename, syncdir)
        with self._lock:
            if self._names.pop(filename, None) is not None:
                self._deleted += 1
            self.recorded.append(Delete(Path(filename).name, syncdir))


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, path: str, name: Any, flags: list[int]) -> None:
        super().__init__(disk.base, name, flags)
        self._disk = disk
        self._node, created = disk.node(path)
        self._syncs_folder = created and not flags[0] & apsw.SQLITE_OPEN_MAIN_DB

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        data = bytes(data)
        try:
            self._disk.meet()
        except apsw.Error:
            part = data[: len(data) // 2]  # a full disk takes what still fits
            super().xWrite(part, offset)
            self._disk.record(Write(self._node, offset, part))
            raise
        super().xWrite(data, offset)
        self._disk.record(Write(self._node, offset, data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.meet()
        super().xTruncate(newsize)
        self._disk.record(Truncate(self._node, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.meet()
        self._disk.record(Sync(self._node, self._syncs_folder))  # nothing is synced really: power loss is simulated
        self._syncs_folder = False


@contextmanager
def in_place(name: str) -> Iterator[Disk]:
    """A disk for all that SQLite opens inside, in this process, without naming a VFS."""
    disk = Disk(name)
    try:
        yield disk
    finally:
        disk.unregister()
