"""What systems and machines differ in: locks of files, owners and modes, folders on disk, signals, and processors.

Only this module asks which system it is. Unlike POSIX, Windows locks ranges of bytes, has neither owners nor modes,
cannot rename a file that is open, nor open a folder, and has no SIGHUP.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from errno import EACCES, EDEADLK
from itertools import pairwise
from typing import TextIO, TypeVar

WINDOWS = sys.platform == "win32"

NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
"""The flag that opens no symbolic link, where there is one."""
STOPPING: list[signal.Signals] = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""The signals that end a command or a server in order."""

_FAR = 1 << 30  # a byte that nobody writes: Windows keeps others from reading what is locked


def lock(held: int) -> bool | None:
    """Lock a file until it is closed or its process ends; False if another process has it, None if none can."""
    try:
        if WINDOWS:
            _lock_range(held)
        else:
            import fcntl

            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _lock_range(held: int) -> None:
    import msvcrt

    at = os.lseek(held, 0, os.SEEK_CUR)
    os.lseek(held, _FAR, os.SEEK_SET)
    try:
        msvcrt.locking(held, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError as error:
        if error.errno in (EACCES, EDEADLK):
            raise BlockingIOError(error.errno, error.strerror) from None
        raise
    finally:
        os.lseek(held, at, os.SEEK_SET)


def wait_to_write(stream: TextIO) -> None:
    """Wait until a pipe or a terminal takes what is written; where nothing says so, do not wait."""
    if not WINDOWS:
        with suppress(OSError, ValueError):  # it is in memory, or closed, as writing will tell
            select.select([], [stream], [])


def make_like(old: os.stat_result, held: int) -> None:
    """Give an open file the mode of another and, where that is permitted, its owner."""
    if WINDOWS:
        return
    new = os.fstat(held)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        with suppress(PermissionError):
            os.fchown(held, old.st_uid, old.st_gid)
    os.fchmod(held, stat.S_IMODE(old.st_mode))


def before_renaming(held: int) -> None:
    """Close a file where an open one cannot be renamed."""
    if WINDOWS:
        os.close(held)


def flush_folder(folder: str | os.PathLike[str]) -> None:
    """Make new names in a folder durable, where a folder can be opened."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


S = TypeVar("S")
T = TypeVar("T")

_SHARE = 2**16  # outcomes that are worth a thread


def processors() -> int:
    """Return the number of processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parts(count: int, outcomes: int, most: int | None) -> list[tuple[int, int]]:
    """Return parts of `range(count)`, one for each thread that this many outcomes are worth.

    There are at most `most` threads, by default as many as processors.
    """
    threads = max(1, min(most or processors(), outcomes // _SHARE))
    return list(pairwise(count * part // threads for part in range(threads + 1)))


def side_by_side(work: Callable[[S], T], items: list[S]) -> list[T]:
    """Return what the work gives for each item, each in its own thread, the first in the caller's."""
    if len(items) == 1:
        return [work(items[0])]
    with ThreadPoolExecutor(len(items) - 1) as pool:
        others = pool.map(work, items[1:])
        return [work(items[0]), *others]
