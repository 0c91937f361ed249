"""DuckDB on its own: a connection that reads one file, installs nothing and spills where nobody else can look."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from treecal._optional import require
from treecal.exceptions import FileError, ParameterError


def library(name: str) -> Any:
    """Import a library for files and tables."""
    try:
        return import_module(name)  # batch by batch: mostly it is there
    except ModuleNotFoundError:
        return require(name, extra="files", what="reading files and tables")


def quoted(text: object) -> str:
    """Return text as a literal of SQL."""
    return "'" + str(text).replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return the name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def columns_of_type(names: Sequence[str], kind: str) -> str:
    """Return columns of one type as DuckDB's readers take them."""
    return f"{{{', '.join(f'{quoted(name)}: {quoted(kind)}' for name in names)}}}"


def literal_path(path: Path) -> str:
    """Return an absolute path as DuckDB's scans take it: as one file of that name, not as a pattern of names.

    Examples
    --------
    >>> literal_path(Path("/logs/day[1].csv"))
    '/logs/day[[]1].csv'
    """
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in os.path.abspath(path))


def spill_folder(given: str | os.PathLike[str] | None) -> Path:
    """Make a folder that only this user can read: the one given, or if that exists a new one inside."""
    try:
        if given is None or os.path.exists(given):
            return Path(tempfile.mkdtemp(prefix="treecal-", dir=given))
        os.makedirs(given, mode=0o700)
        return Path(given)
    except OSError as error:
        raise FileError(f"{given or tempfile.gettempdir()} cannot hold temporary files: {error.strerror}.") from None


def connect(memory_limit: str, folder: Path, files: Sequence[Path]) -> Any:
    """Open a connection that can read these files, if any, and no other."""
    duckdb = library("duckdb")
    settings = {"temp_directory": str(folder)} | dict.fromkeys(
        ("autoinstall_known_extensions", "autoload_known_extensions", "allow_community_extensions"), "false"
    )
    try:
        connection = duckdb.connect(config={"memory_limit": memory_limit, **settings})
    except duckdb.Error:
        raise ParameterError.expected("the limit", memory_limit, "an amount of memory such as '1GB'") from None
    # Before a pattern is matched it must be allowed, and so must the file it matches.
    allowed = [name for file in files for name in (os.path.abspath(file), literal_path(file))]
    connection.execute(f"SET allowed_paths = [{', '.join(map(quoted, allowed))}]")
    connection.execute("SET enable_external_access = false")
    with suppress(duckdb.Error):  # in a notebook without ipywidgets DuckDB measures no progress
        connection.execute("SET enable_progress_bar = true")
        connection.execute("SET enable_progress_bar_print = false")
    connection.execute("SET streaming_buffer_size = '64MB'")  # so that reading continues while a batch is processed
    # What a file says of its columns, such as the least of their values, may be damaged: no answer follows from it.
    connection.execute("SET disabled_optimizers = 'statistics_propagation,filter_pushdown'")
    connection.execute("SET lock_configuration = true")
    return connection


def close(connection: Any, folder: Path) -> None:
    """Close a connection, if there is one, and remove what it has spilled."""
    if connection is not None:
        connection.close()
    shutil.rmtree(folder, ignore_errors=True)
