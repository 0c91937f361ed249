"""Where the books are: SQL by name, transactions, and numbered migrations, the same for SQLite and PostgreSQL."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any

from treecal.exceptions import FileError
from treecal.serve._refusals import Refusal

Row = tuple[Any, ...]
SOME = 4096
"""Rows of a table that are read at a time."""


class Broken(Exception):  # noqa: N818 # it is a state of the store, not a mistake
    """The store failed in a way after which nothing it says can be relied on: the process must be started again."""


class NotNowError(FileError):
    """The books cannot be opened now, and may be later, as when a database has not started yet."""


class Unavailable(Refusal):
    """What cannot be recorded now; it may be sent again. The remedy is for whoever runs the server."""

    def __init__(self, problem: str, remedy: str = "see to it, and start again.") -> None:
        text = f"the books cannot be written: {problem}."
        super().__init__("unavailable", text, hint="send it again later: ids are kept.")
        self.problem = problem
        self.remedy = remedy


@cache
def queries() -> dict[str, str]:
    """Return every query by its name.

    Examples
    --------
    >>> queries()["archive_stream"]
    'UPDATE streams SET archived = ? WHERE stream = ?'
    """
    text = (resources.files(__package__) / "sql" / "queries.sql").read_text("utf-8")
    parts = re.split(r"^-- name: (\w+)$", text, flags=re.M)
    return {
        name: " ".join(re.sub(r"--.*", "", body).split()) for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


@cache
def migrations() -> list[str]:
    """Return the numbered SQL scripts, in order: script `n` brings books of version `n` to version `n + 1`."""
    folder = resources.files(__package__) / "sql"
    names = sorted(each.name for each in folder.iterdir() if re.match(r"\d{4}_\w+\.sql$", each.name))
    if [int(name[:4]) for name in names] != list(range(1, len(names) + 1)):
        raise AssertionError(f"migrations are not numbered from 1: {names}")
    return [(folder / name).read_text("utf-8") for name in names]


def tables() -> list[str]:
    """Return the names of the tables, in the order in which they were thought of.

    Examples
    --------
    >>> tables()[:3]
    ['streams', 'rounds', 'arrivals']
    """
    return re.findall(r"^CREATE TABLE (\w+)", "\n".join(migrations()), re.M)


def pending_migrations(version: int, where: str) -> list[str]:
    """Return the scripts that books of this version still need, or raise if they are newer than this treecal."""
    scripts = migrations()
    if version > len(scripts):
        raise FileError(
            f"{where} was written by a newer treecal: it has version {version}, and this one knows {len(scripts)}.",
            hint="upgrade treecal.",
        )
    return scripts[version:]


def held_by_older(where: str) -> FileError:
    """Return the error of books that cannot be brought up to date, since the server that holds them is an older one."""
    return FileError(f"{where} has an older format, and a server of that time holds it.", hint="restart it first.")
