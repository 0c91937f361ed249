"""Which files a path stands for: itself, those in a folder, or those that match a pattern."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from treecal.exceptions import FileError
from treecal.io._formats import Format, format_named, format_of, known_formats
from treecal.io._scan import File

_MISSING = "__HIVE_DEFAULT_PARTITION__"


def is_paths(source: Any) -> bool:
    """Return whether this is a list of paths."""
    return (
        isinstance(source, list | tuple)
        and bool(source)
        and all(isinstance(each, str | os.PathLike) for each in source)
    )


def find_files(source: Any) -> list[File]:
    """Return the files that a path, or each of several, stands for, without those that it stands for twice.

    A name that exists is that file or folder, whatever letters it has. In folders, and where a pattern matches, names
    that begin with a dot or an underscore are left out, as `_SUCCESS`.
    """
    found: dict[str, tuple[Path, dict[str, str | None]]] = {}
    for each in source if is_paths(source) else [source]:
        path = Path(each)
        for file, root in _expanded(path):
            found.setdefault(os.path.realpath(file), (file, _partition(file, root)))
    paths = [os.path.abspath(path) for path, _ in found.values()]
    above = os.path.commonpath([os.path.dirname(path) for path in paths])
    names = [os.path.relpath(path, above) for path in paths]
    return [File(path, name, values) for (path, values), name in zip(found.values(), names, strict=True)]


def several_name(source: Any, files: Sequence[File]) -> str:
    """Return a name for several files: the folder or the pattern, or the first of a list."""
    if not is_paths(source):
        return str(source)
    more = len(files) - 1
    return f"{files[0].name} and {more:,} other file{'s' * (more != 1)}"


def _expanded(path: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yield the files of a path in order, each with the folder below which folders are columns, if any."""
    if _there(path):
        if not path.is_dir():
            yield path, None
            return
        files = sorted(_in_folder(path), key=lambda file: file.parts)
        if not files:
            raise FileError(f"there is no file in the folder {path}.", hint=f"{known_formats()}; text also with .gz.")
        yield from ((file, path) for file in files)
        return
    pattern = str(path)
    if not _is_pattern(pattern):
        raise FileError(f"there is no file {path}.")
    matches = [Path(match) for match in glob.glob(pattern, recursive=True)]
    root = Path(*takewhile(lambda part: not _is_pattern(part), path.parts))
    shown = [match for match in matches if not _is_hidden(match.relative_to(root).parts)]
    files = sorted(
        {file for match in shown for file in (_in_folder(match) if match.is_dir() else [match])},
        key=lambda file: file.parts,
    )
    if not files:
        raise FileError(f"there is no file {path}, and none that matches it as a pattern.")
    yield from ((file, root) for file in files)


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a name that is too long, for example
        raise FileError(f"{path} cannot be read: {error.strerror}.") from None


def _is_pattern(text: str) -> bool:
    return any(letter in text for letter in "*?[")


def _is_hidden(names: Iterable[str]) -> bool:
    return any(name.startswith((".", "_")) for name in names)


def _in_folder(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and those below it; one of an unknown format is an error, as it may be a log."""
    for where, folders, names in os.walk(folder, followlinks=False):
        folders[:] = [name for name in folders if not _is_hidden([name])]
        for name in names:
            if _is_hidden([name]):
                continue
            if format_of(name) is None:
                raise FileError(
                    f"the format of {Path(where, name)} is unknown: its name does not tell.",
                    hint=f"leave it out by a pattern, such as {str(folder / '*.csv')!r}; "
                    f"or rename it: {known_formats()}.",
                )
            yield Path(where, name)


def _partition(file: Path, root: Path | None) -> dict[str, str | None]:
    """Return the columns that the folders between the root and the file are named after."""
    if root is None:
        return {}
    pairs = (part.split("=", 1) for part in file.relative_to(root).parts[:-1] if part.find("=") > 0)
    return {unquote(name): None if value == _MISSING else unquote(value) for name, value in pairs}


def check_file(path: Path) -> None:
    """Raise an error unless the path is a file."""
    if not _there(path):
        raise FileError(f"there is no file {path}.")
    if path.is_dir():
        raise FileError(f"{path} is a folder, expected a file.")


def common_format(files: Sequence[File], kind: str | None) -> Format:
    """Return the format of files, which must be there and not empty; by default their names tell it."""
    first = files[0]
    found = _format(first, kind)
    for file in files:
        own = _format(file, kind)
        if own != found:
            raise FileError(
                f"{first.name} is {found.name} and {file.name} is {own.name}, expected files of one format.",
                hint="read them one by one, or convert some of them.",
            )
        _check(file)
    return found


def _format(file: File, kind: str | None) -> Format:
    if kind is not None:
        return format_named(kind)
    check_file(file.path)
    found = format_of(file.path)
    if found is None:
        raise FileError(
            f"the format of {file.path} is unknown: its name does not tell.",
            hint=f"{known_formats()}; text also with .gz.",
        )
    return found


def _check(file: File) -> None:
    """Raise an error unless the file is there, not empty, and has a name that DuckDB can be told."""
    check_file(file.path)
    if file.path.stat().st_size == 0:
        raise FileError(f"{file.name} is empty.")
    try:
        os.path.abspath(file.path).encode()
    except UnicodeEncodeError:
        raise FileError(f"the name of {file.path} is not in UTF-8.", hint="rename the file.") from None
