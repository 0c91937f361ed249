"""Files that are written completely or not at all, and cells that no spreadsheet will run."""

from __future__ import annotations

import contextlib
import csv
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from treecal.exceptions import FileError


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """Give a temporary path to write to, which becomes `path` when the block ends, and is removed if it fails.

    Parameters
    ----------
    path
        The file.
    force
        Replace an existing file; otherwise that is an error, raised before the block begins.

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
    target = Path(path)
    _check_target(target, force=force)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        yield temporary
        if not force:
            _check_target(target, force=False)  # it may have been created meanwhile
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _check_target(target: Path, *, force: bool) -> None:
    if target.is_dir():
        raise FileError(f"{target} is a folder, expected the name of a file to write.")
    if not target.parent.is_dir():
        raise FileError(f"{target} cannot be written: there is no folder {target.parent}.")
    if target.exists() and not force:
        raise FileError(f"{target} exists and is not overwritten.", hint="choose another name, or use --force.")


def inert(cell: Any) -> Any:
    """Return a cell of a CSV file; text that a spreadsheet would read as a formula is prefixed with an apostrophe.

    Examples
    --------
    >>> inert("=1+1"), inert("sun"), inert(-0.5)
    ("'=1+1", 'sun', -0.5)
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else cell


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write the rows of a CSV file, the header first, all cells inert."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(map(inert, row) for row in rows)
