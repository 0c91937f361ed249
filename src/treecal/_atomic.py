"""Files that are written completely or not at all: a crash leaves the old one or the new one."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from treecal._platform import NO_FOLLOW, before_renaming, flush_folder, lock, make_like
from treecal.exceptions import FileError

# of unfinished files, short enough beside names of any length
_PREFIX = ".treecal-"
_SUFFIX = ".part"
_LOCK = ".lock"
_SWEEP_AGAIN = 60.0  # seconds until a folder is searched again for what killed writers left
_swept: dict[Path, float] = {}
_KINDS = {
    stat.S_ISDIR: "a folder",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}


@contextmanager
def new_file(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """Give a temporary path to write to, which becomes `path` when the block ends, and is removed if it fails.

    A symbolic link is followed. What is replaced keeps its mode and, where that is permitted, its owner; a new file
    gets the mode that the umask gives. What a writer left that was killed is removed by the next one in that folder.

    Parameters
    ----------
    path
        The file.
    force
        Replace an existing file; otherwise that is an error, raised before the block begins. What is not a regular
        file, such as a device or a pipe, is never replaced.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for content in ("first", "second"):
    ...         with new_file(Path(folder, "note.txt"), force=content == "second") as temporary:
    ...             _ = temporary.write_text(content)
    ...     os.listdir(folder), Path(folder, "note.txt").read_text()
    (['note.txt'], 'second')
    """
    old = _checked(path, force=force)
    target = Path(os.path.realpath(path))
    _sweep(target.parent)
    try:
        temporary, held = _create(target.parent, private=old is not None)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None  # the name that the caller knows
    try:
        yield temporary
        if old is not None:
            make_like(old, held)
        os.fsync(held)
        _checked(path, force=force)  # it may have been created in the meantime
        before_renaming(held)
        _publish(temporary, target, force=force)
    finally:
        with suppress(OSError):
            temporary.unlink()
        with suppress(OSError):
            os.close(held)
    flush_folder(target.parent)


class InUseError(FileError):
    """Another process holds a file."""


@contextmanager
def exclusive(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a file for this process: until the block ends, any other process is refused at once.

    The lock is a file beside it, which names the process and is removed at the end. One that a killed process
    left locks nothing. Where the system has no locks, nobody is refused.

    Parameters
    ----------
    path
        The file to hold, which need not exist.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, exclusive(f"{folder}/s.treecal"):
    ...     try:
    ...         with exclusive(f"{folder}/s.treecal"):
    ...             pass
    ...     except FileError as error:
    ...         print(str(error).replace(folder, "folder").replace(str(os.getpid()), "1234"))
    folder/s.treecal is in use by another treecal, process 1234.
    <BLANKLINE>
    Hint: let it end first; two at once would overwrite each other's work.
    """
    if check_regular(path) is None:
        check_folder(path)
    beside = Path(os.path.realpath(path))
    mark = beside.with_name(f"{beside.name}{_LOCK}")
    while True:
        descriptor = os.open(mark, os.O_CREAT | os.O_RDWR, 0o666)
        if lock(descriptor) is False:
            named = os.read(descriptor, 20).decode(errors="replace").strip()
            os.close(descriptor)
            raise InUseError(
                f"{os.fspath(path)} is in use by another treecal{f', process {named}' if named.isdecimal() else ''}.",
                hint="let it end first; two at once would overwrite each other's work.",
            )
        with suppress(OSError):
            if os.path.samestat(os.stat(mark), os.fstat(descriptor)):
                break
        os.close(descriptor)  # it was removed by its last owner between the two calls
    owner = os.getpid()
    try:
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{owner}\n".encode())
        yield
    finally:
        if os.getpid() == owner:  # a process that was forked from it holds nothing
            with suppress(OSError):
                mark.unlink()  # before it is released, so that nobody else's is removed
        os.close(descriptor)


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raise unless there is a folder to write this file to."""
    if not Path(os.path.realpath(path)).parent.is_dir():
        raise FileError(f"{os.fspath(path)} cannot be written: there is no folder {Path(path).parent}.")


def check_regular(path: str | os.PathLike[str]) -> os.stat_result | None:
    """Return what is known of a file, or None if there is none; raise if it is not a regular file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(found.st_mode):
        return found
    kind = next((name for is_one, name in _KINDS.items() if is_one(found.st_mode)), "something else")
    raise FileError(f"{os.fspath(path)} is {kind}, expected a file.")


def _checked(path: str | os.PathLike[str], *, force: bool) -> os.stat_result | None:
    found = check_regular(path)
    if found is not None and not force:
        raise _exists(path)
    if found is None:
        check_folder(path)
    return found


def _exists(path: str | os.PathLike[str]) -> FileError:
    return FileError(f"{os.fspath(path)} exists and is not overwritten.", hint="choose another name, or use --force.")


def _create(folder: Path, *, private: bool) -> tuple[Path, int]:
    """Return a new file and an open descriptor of it, which holds its lock: nobody takes it for an orphan."""
    while True:
        temporary = folder / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
        held = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600 if private else 0o666)
        locked = lock(held)
        if locked is not False and temporary.exists():  # otherwise it is being swept, or was before it was locked
            return temporary, held
        os.close(held)


def _publish(temporary: Path, target: Path, *, force: bool) -> None:
    if force:
        os.replace(temporary, target)
        return
    try:
        os.link(temporary, target)  # fails if there is one by now, where renaming would replace it
    except FileExistsError:
        raise _exists(target) from None
    except OSError:  # no links in this file system
        os.replace(temporary, target)


def _sweep(folder: Path) -> None:
    """Remove the unfinished files of writers that were killed: those that nobody has locked."""
    now = time.monotonic()
    if now - _swept.get(folder, -_SWEEP_AGAIN) < _SWEEP_AGAIN:
        return
    _swept[folder] = now
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    _remove_orphan(entry.path)


def _remove_orphan(path: str) -> None:
    held = os.open(path, os.O_RDONLY | NO_FOLLOW)
    try:
        if lock(held):
            os.unlink(path)
    finally:
        os.close(held)
