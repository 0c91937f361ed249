"""The formats of files: one row each. A format is a module such as `_json.py`; `__init__` registers its row."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from treecal.exceptions import ParameterError
from treecal.io._scan import File, FileSource
from treecal.io._text import Block, Lines, Row

Check = Callable[[str, Sequence[str]], object]
"""Called with the name of a source and its columns; raises unless they are those that are needed."""


class Format(NamedTuple):
    """A format of files.

    Attributes
    ----------
    kind, name
        What it is called where it is chosen, and in messages.
    endings
        How names of its files end, in lower case.
    sources
        Opens files of it, given DuckDB's connection: the rows of each as a source, which SQL can query.
    write
        Writes a file, given its path, the name that it will have, its columns, each with the kinds of values in it
        ("float", "int", "str", "bool", "list", "other"), and its rows, which are JSON values by column.
    lines
        Reads rows one by one, from the lines of a file or a pipe, given its name in messages and a check of its
        columns, which is called before the first row where they are known; None if it is not text.
    headed
        Whether the columns of a text are known before its first row.
    blocks
        Reads the same rows in blocks, which may be faster.
    begins
        Returns whether a file begins with these bytes, unpacked; None if that cannot be told.

    Examples
    --------
    >>> from treecal.io import FORMATS
    >>> sorted(FORMATS), FORMATS["csv"].name
    (['csv', 'jsonl', 'parquet'], 'CSV')
    """

    kind: str
    name: str
    endings: tuple[str, ...]
    sources: Callable[[Sequence[File], Any], Sequence[FileSource]]
    write: Callable[[Path, str, Mapping[str, set[str]], Iterable[dict[str, Any]]], None]
    lines: Callable[[Iterator[bytes], str, Check], Iterator[Row]] | None = None
    headed: bool = True
    blocks: Callable[[Lines, str, Check], Iterator[Block]] | None = None
    begins: Callable[[bytes], bool] | None = None


FORMATS: dict[str, Format] = {}
"""All formats that are registered, by their kinds."""


def register(added: Format) -> None:
    """Add a format: files of it are read and written from now on.

    Examples
    --------
    >>> from treecal.io import FORMATS
    >>> register(FORMATS["csv"]._replace(kind="dat", endings=(".dat",)))  # its separator is found as that of CSV is
    >>> format_of("days.dat").kind
    'dat'
    >>> del FORMATS["dat"]
    """
    FORMATS[added.kind] = added


def format_of(path: str | os.PathLike[str]) -> Format | None:
    """Return the format of a file from its name; a text may also end in ".gz": "days.CSV.gz" is CSV."""
    name = str(path).lower()
    plain = name.removesuffix(".gz")
    for each in FORMATS.values():
        if Path(plain).suffix in each.endings and (plain == name or each.lines is not None):
            return each
    return None


def format_named(kind: str) -> Format:
    """Return the format of a kind."""
    if kind not in FORMATS:
        *most, last = FORMATS
        raise ParameterError.expected("kind", kind, f"{', '.join(most)} or {last}")
    return FORMATS[kind]


def known_formats() -> str:
    """Return how the name of a file tells its format, in words."""
    return ", ".join(f"{each.name} as {_alternatives(each.endings)}" for each in FORMATS.values())


def _alternatives(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
