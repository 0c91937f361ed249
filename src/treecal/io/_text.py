"""Rows of text, line by line: CSV with a header, and JSON lines. Nothing is read ahead, for the sake of pipes.

Blanks around a CSV cell are not part of it, quoted or not, and an empty cell is missing.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from treecal.exceptions import FileError, TreeCalError
from treecal.io._blocks import LINE, TOO_LONG, begins_with_mark, open_lines, read_lines

Kind = Literal["csv", "jsonl", "parquet"]
"""The format of a file."""
_KINDS: dict[str, Kind] = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "csv"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
FORMATS = "CSV as .csv, .tsv or .txt, JSON lines as .jsonl, .ndjson or .json, Parquet as .parquet or .pq"
"""How the name of a file tells its format, in words."""
_DELIMITERS = (",", ";", "\t", "|")
_OPEN = 100  # lines of a row that may still be being written
_SAMPLE = 100  # lines of JSON whose keys are the columns


class Place(NamedTuple):
    """The place of a row: its 1-based number, and in a text file the line it begins on."""

    row: int
    line: int | None

    def __str__(self) -> str:
        return f"row {self.row:,}" if self.line is None else f"line {self.line:,} (row {self.row:,})"


class Row(NamedTuple):
    """A row: its place; its value, by column, or in JSON lines any value; or why it cannot be read.

    It is `whole` unless a text file ends before the end of its line: it may still be being written.
    """

    place: Place
    value: Any
    problem: str | None = None
    whole: bool = True

    def read(self) -> Any:
        """Return its value, or raise why it cannot be read."""
        if self.problem is not None:
            raise TreeCalError(self.problem)
        return self.value


class Record(NamedTuple):
    """A record of a CSV file: its number, counting header and blank lines; its place; its cells; why it is no row."""

    number: int
    place: Place
    cells: list[str]
    problem: str | None
    whole: bool
    """Whether its last line has an end, outside quotes."""


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
    try:
        names = [cell.strip() for cell in next(_reader([text], delimiter))]
    except csv.Error as error:
        raise FileError(f"{name}, line 1: it is not CSV: {error}.", hint="expected the names of the columns.") from None
    if "" in names:
        raise FileError(f"{name} has no name for column {names.index('') + 1} in its first line.")
    twice = next((column for column in names if names.count(column) > 1), None)
    if twice is not None:
        raise FileError(f"{name} has two columns named {twice!r}.", hint="rename one of them.")
    check_case(name, names)
    return Header(names, delimiter, "\r\n" if line.endswith("\r\n") else "\n")


def check_case(source: str, names: Iterable[str]) -> None:
    """Raise an error if names of columns differ only in case, which SQL does not distinguish."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise FileError(
                f"{source} has columns {other!r} and {name!r}, which differ only in case.", hint="rename one of them."
            )


def _reader(lines: Iterable[str], delimiter: str) -> Any:
    """Return a reader of CSV that takes a cell as long as a line may be."""
    # The limit is one for the whole process, so it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), LINE))
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)


def csv_header(lines: Iterator[bytes], name: str) -> Header:
    """Read the header from the first line."""
    first = next(lines, b"")
    if len(first) > LINE:
        raise FileError(f"{name}, line 1: {TOO_LONG}", hint="expected the names of the columns.")
    return read_header(first.decode(errors="surrogateescape"), name)


class _Texts:
    """Lines as text, those of the current record kept; a record that is too long is an error, but not the end."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self.of_record: list[str] = []
        self.size = 0
        self.ended = False

    def begin(self) -> None:
        """Forget the record before."""
        self.of_record.clear()
        self.size = 0

    def __iter__(self) -> _Texts:
        return self

    def __next__(self) -> str:
        try:
            line = next(self._lines)
        except StopIteration:
            self.ended = True  # within quotes, unless no line of a record was read
            raise
        self.size += len(line)
        self.of_record.append(line.decode(errors="surrogateescape"))  # an error only where it is used
        if self.size > LINE:
            raise csv.Error
        return self.of_record[-1]


def csv_records(lines: Iterator[bytes], header: Header, name: str) -> Iterator[Record]:
    """Yield the records after the header."""
    texts = _Texts(lines)
    taken, reader = texts.of_record, _reader(texts, header.delimiter)
    width, number, row, line = len(header.names), 1, 0, 2
    while True:
        texts.begin()
        problem = None
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            cells = [] if texts.size > LINE else _without_blanks(taken, header.delimiter)
            problem = TOO_LONG if texts.size > LINE else None if cells else f"it is not CSV: {error}."
        if taken[-1].endswith("\n") and taken[-1].endswith("\r\n") != (header.end == "\r\n"):
            raise not_csv(name)
        begins, line, number = line, line + len(taken), number + 1
        if not cells and problem is None:
            if width > 1:
                continue
            cells = [""]  # a cell of the only column may be blank
        row += 1
        if len(cells) == width + 1 and not cells[-1]:
            cells.pop()  # a delimiter at the end of the line, which DuckDB accepts as well
        if len(cells) != width and problem is None:
            problem = f"it has {len(cells)} cells, expected {width}."
        finished = taken[-1].endswith("\n") and not texts.ended
        # Of a line that is too long the end is not read; and quotes that are never closed are a mistake.
        whole = finished or texts.size > LINE or len(taken) > _OPEN
        yield Record(number, Place(row, begins), cells, problem, whole)


def _without_blanks(lines: list[str], delimiter: str) -> list[str]:
    """Return the cells of a record where blanks follow a closing quote; none if that is not the problem."""
    text = re.sub(rf'" +(?=[{re.escape(delimiter)}\r\n]|$)', '"', "".join(lines))
    try:
        cells: list[str] = next(_reader(text.splitlines(keepends=True), delimiter))
        return cells
    except csv.Error:
        return []


def not_csv(name: str) -> FileError:
    """Return the error for a file that changes its format on the way."""
    return FileError(
        f"{name} cannot be read: not all of it is valid CSV.",
        hint="it may mix line endings, CR LF and LF: tr -d '\\r' makes them uniform.",
    )


def is_utf8(text: str) -> bool:
    """Return whether a text was read from UTF-8: bytes that are not stand in it as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    for _, place, cells, problem, whole in csv_records(lines, header, name):
        yield Row(place, by_column(header.names, cells), problem, whole)


def json_rows(lines: Iterator[bytes], *, words: bool = False) -> Iterator[Row]:
    """Yield the values of JSON lines."""
    row = 0
    for number, line in enumerate(lines, start=1):
        if line.strip():
            row += 1
            whole = line.endswith(b"\n") or len(line) > LINE  # of which the end is not read
            yield Row(Place(row, number), *_json_value(line, words=words), whole)


def _json_value(line: bytes, *, words: bool) -> tuple[Any, str | None]:
    """Return the value, or None and why it cannot be read."""
    if len(line) > LINE:
        return None, TOO_LONG
    try:
        text = line.decode().strip()
        return json.loads(text, object_pairs_hook=_object), None
    except UnicodeDecodeError:
        looks = {b"PAR1": "Parquet: --kind parquet", b"\x1f\x8b": "gzip: zcat first"}
        hint = next((f"\n\nHint: it looks like {like}." for start, like in looks.items() if line.startswith(start)), "")
        return None, f"it is not text in UTF-8.{hint}"
    except RecursionError:
        return None, "it is nested too deeply."
    except TreeCalError as error:
        return None, str(error)
    except ValueError:
        return (text, None) if words and text[0] not in '{["' else (None, "it is not JSON.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; of two values for one key none is the right one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise FileError(f"it has the key {next(key for key in keys if keys.count(key) > 1)!r} twice.")
    return found


def json_columns(path: Path) -> list[str] | None:
    """Return the keys of the first hundred objects, in order of appearance; None where lines are bare values."""
    if begins_with_mark(path):
        raise FileError(
            f"{path.name} begins with a byte order mark, expected JSON lines in plain UTF-8.",
            hint="leave out the first three bytes: tail -c +4.",
        )
    with open_lines(path) as lines:
        sample = list(islice(json_rows(lines), _SAMPLE))
    if not sample:
        raise FileError(f"{path.name} is empty, expected JSON lines: one object per line.")
    names = dict.fromkeys(name for row in sample if isinstance(row.value, dict) for name in row.value)
    if names:
        check_case(path.name, names)
        return list(names)
    first = sample[0]
    entries = first.value if isinstance(first.value, list) else []
    if first.problem is not None or any(isinstance(entry, list | dict) for entry in entries):
        problem = first.problem or "it is not a JSON object."
        raise FileError.at(path.name, *first.place, problem, hint="expected JSON lines: one object per line.")
    return None
