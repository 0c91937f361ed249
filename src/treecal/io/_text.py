"""Rows of text, line by line: CSV with a header, and JSON lines. Nothing is read ahead, for the sake of pipes.

Blanks around a CSV cell are not part of it, quoted or not, and an empty cell is missing.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

from treecal.exceptions import FileError, TreeCalError

Kind = Literal["csv", "jsonl", "parquet"]
"""The format of a file."""
_KINDS: dict[str, Kind] = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "csv"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
_DELIMITERS = (",", ";", "\t", "|")
_BOM = b"\xef\xbb\xbf"
_LONGEST = 1 << 20  # first line of a CSV file
_SAMPLE = 100  # lines of JSON whose keys are the columns


class Place(NamedTuple):
    """The place of a row: its 1-based number, and in a text file the line it begins on."""

    row: int
    line: int | None

    def __str__(self) -> str:
        return f"row {self.row:,}" if self.line is None else f"line {self.line:,} (row {self.row:,})"


class Row(NamedTuple):
    """A row: its place; its value, by column, or in JSON lines any value; or why it cannot be read."""

    place: Place
    value: Any
    problem: str | None = None

    def read(self) -> Any:
        """Return its value, or raise why it cannot be read."""
        if self.problem is not None:
            raise TreeCalError(self.problem)
        return self.value


Record = tuple[int, Place, list[str], str | None]
"""A record of a CSV file: its number, counting header and blank lines; its place; its cells; why it is not a row."""


class Header(NamedTuple):
    """The names of a CSV file's columns, the delimiter between them, and how its lines end."""

    names: list[str]
    delimiter: str
    end: str = "\n"


def kind_of(path: str | os.PathLike[str]) -> Kind | None:
    """Return the format of a file from its name, without ".gz": "days.CSV.gz" is CSV."""
    name = str(path).lower()
    kind = _KINDS.get(Path(name.removesuffix(".gz")).suffix)
    return None if kind == "parquet" and name.endswith(".gz") else kind


def read_header(line: str, name: str) -> Header:
    """Return the header in the first line of a CSV file; the delimiter is the most frequent one in it."""
    text = line.rstrip("\r\n")
    if not text.strip():
        raise FileError(f"{name} is empty or has an empty first line, expected the names of the columns.")
    if not text.replace("\t", "").isprintable():
        raise FileError(
            f"{name} is not text in UTF-8: its first line holds {text[:20]!a}.",
            hint="is it CSV at all? If it is in another encoding, convert it: iconv -t utf-8.",
        )
    delimiter = max(_DELIMITERS, key=text.count)
    names = [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter, skipinitialspace=True))]
    if "" in names:
        raise FileError(f"{name} has no name for column {names.index('') + 1} in its first line.")
    twice = next((column for column in names if names.count(column) > 1), None)
    if twice is not None:
        raise FileError(f"{name} has two columns named {twice!r}.", hint="rename one of them.")
    return Header(names, delimiter, "\r\n" if line.endswith("\r\n") else "\n")


@contextmanager
def open_lines(path: str | os.PathLike[str]) -> Iterator[Iterator[bytes]]:
    """Open a text file, gzipped or not, and give its lines."""
    with open(path, "rb") as file:
        yield read_lines(file, Path(path).name)


def read_lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the lines of a file, without its byte order mark."""
    text = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if name.lower().endswith(".gz") else file
    try:
        first = text.readline()
        if first:
            yield first.removeprefix(_BOM)
        yield from text
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise not_gzip(name) from None


def csv_header(lines: Iterator[bytes], name: str) -> Header:
    """Read the header from the first line."""
    return read_header(next(lines, b"")[:_LONGEST].decode(errors="surrogateescape"), name)


def csv_records(lines: Iterator[bytes], header: Header, name: str) -> Iterator[Record]:
    """Yield the records after the header."""
    taken: list[str] = []

    def texts() -> Iterator[str]:
        for line in lines:
            taken.append(line.decode(errors="surrogateescape"))  # an error only where it is used
            yield taken[-1]

    reader = csv.reader(texts(), delimiter=header.delimiter, skipinitialspace=True, strict=True)
    width, number, row, line = len(header.names), 1, 0, 2
    while True:
        taken.clear()
        problem = None
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            cells = _without_blanks(taken, header.delimiter)
            problem = None if cells else f"it is not CSV: {error}."
        if taken[-1].endswith("\n") and taken[-1].endswith("\r\n") != (header.end == "\r\n"):
            raise not_csv(name)
        begins, line, number = line, line + len(taken), number + 1
        if not cells and problem is None:
            if width > 1:
                continue
            cells = [""]  # a cell of the only column may be blank
        row += 1
        if len(cells) != width and problem is None:
            problem = f"it has {len(cells)} cells, expected {width}."
        yield number, Place(row, begins), cells, problem


def _without_blanks(lines: list[str], delimiter: str) -> list[str]:
    """Return the cells of a record where blanks follow a closing quote; none if that is not the problem."""
    text = re.sub(rf'" +(?=[{re.escape(delimiter)}\r\n]|$)', '"', "".join(lines))
    try:
        return next(csv.reader(text.splitlines(keepends=True), delimiter=delimiter, skipinitialspace=True, strict=True))
    except csv.Error:
        return []


def not_csv(name: str) -> FileError:
    """Return the error for a file that changes its format on the way."""
    return FileError(
        f"{name} cannot be read: not all of it is valid CSV.",
        hint="it may mix line endings, CR LF and LF: tr -d '\\r' makes them uniform.",
    )


def not_gzip(name: str) -> FileError:
    """Return the error for a truncated or damaged gzip file."""
    return FileError(f"{name} cannot be read: it is not a complete gzip file.", hint="it may be truncated.")


def by_column(names: Sequence[str], cells: Sequence[str]) -> dict[str, str | None]:
    """Return the cells by column, without the blanks around them; an empty one is None."""
    return {name: cell.strip(" ") or None for name, cell in zip(names, cells, strict=False)}


def text_rows(
    file: BinaryIO, kind: Kind, name: str, *, check: Callable[[str, Sequence[str]], object], words: bool = False
) -> Iterator[Row]:
    r"""Yield the rows of a text file or a pipe, each as soon as its line has been read.

    The columns of a CSV file are checked before its first row. With `words`, a line that is not JSON is a string.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO(b"day,weather\n1, rain\n2\n")
    >>> for row in text_rows(file, "csv", "days.csv", check=lambda name, columns: None):
    ...     print(row.place, row.value, row.problem)
    line 2 (row 1) {'day': '1', 'weather': 'rain'} None
    line 3 (row 2) {'day': '2'} it has 1 cells, expected 2.
    """
    lines = read_lines(file, name)
    if kind == "jsonl":
        yield from json_rows(lines, words=words)
        return
    header = csv_header(lines, name)
    check(name, header.names)
    for _, place, cells, problem in csv_records(lines, header, name):
        yield Row(place, by_column(header.names, cells), problem)


def json_rows(lines: Iterator[bytes], *, words: bool = False) -> Iterator[Row]:
    """Yield the values of JSON lines."""
    row = 0
    for number, line in enumerate(lines, start=1):
        if line.strip():
            row += 1
            yield Row(Place(row, number), *_json_value(line, words=words))


def _json_value(line: bytes, *, words: bool) -> tuple[Any, str | None]:
    """Return the value, or None and why it cannot be read."""
    try:
        text = line.decode().strip()
        return json.loads(text), None
    except UnicodeDecodeError:
        looks = {b"PAR1": "Parquet: --kind parquet", b"\x1f\x8b": "gzip: zcat first"}
        hint = next((f"\n\nHint: it looks like {like}." for start, like in looks.items() if line.startswith(start)), "")
        return None, f"it is not text in UTF-8.{hint}"
    except RecursionError:
        return None, "it is nested too deeply."
    except ValueError:
        return (text, None) if words and text[0] not in '{["' else (None, "it is not JSON.")


def json_columns(path: Path) -> list[str] | None:
    """Return the keys of the first hundred objects, in order of appearance; None where lines are bare values."""
    with open_lines(path) as lines:
        sample = list(islice(json_rows(lines), _SAMPLE))
    if not sample:
        raise FileError(f"{path.name} is empty, expected JSON lines: one object per line.")
    names = [name for row in sample if isinstance(row.value, dict) for name in row.value]
    if names:
        return list(dict.fromkeys(names))
    first = sample[0]
    entries = first.value if isinstance(first.value, list) else []
    if first.problem is not None or any(isinstance(entry, list | dict) for entry in entries):
        problem = first.problem or "it is not a JSON object."
        raise FileError.at(path.name, *first.place, problem, hint="expected JSON lines: one object per line.")
    return None
