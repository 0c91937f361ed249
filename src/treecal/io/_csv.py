"""CSV with a header: row by row as it comes, by DuckDB, and written so that no spreadsheet runs a cell.

Blanks around a cell are not part of it, quoted or not, and an empty cell is missing.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from treecal.exceptions import FileError, Reason
from treecal.io._decoder import Decoder
from treecal.io._duckdb import columns_of_type, identifier, library, quoted
from treecal.io._formats import Check, Format
from treecal.io._scan import File, FileSource
from treecal.io._text import (
    LINE,
    TOO_LONG,
    Block,
    Lines,
    Place,
    Row,
    check_case,
    in_blocks,
    is_gzip,
    is_utf8,
    not_csv,
    open_lines,
    read_blocks,
)

_DELIMITERS = (",", ";", "\t", "|")
_OPEN = 100  # lines of a row that may still be being written
_QUOTE, _LF, _CR, _BLANK = b'"\n\r '
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
_FORMULA = frozenset("=+-@\t\r\n")  # what a spreadsheet begins a formula with


class CsvRecord(NamedTuple):
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


class CsvRecords(Iterator[CsvRecord]):
    """The records after the header."""

    def __init__(self, lines: Iterator[bytes], header: Header, name: str) -> None:
        self._header = header
        self._name = name
        self._texts = _Texts(lines)
        self._reader = _reader(self._texts, header.delimiter)
        self._number = 1
        self._row = 0
        self._line = 2

    def passed(self, rows: int) -> Place:
        """Take note of rows of one line each that were read otherwise; return the place of the first."""
        first = Place(self._row + 1, self._line)
        self._number += rows
        self._row += rows
        self._line += rows
        return first

    def __next__(self) -> CsvRecord:
        width = len(self._header.names)
        texts = self._texts
        taken = texts.of_record
        while True:
            texts.begin()
            problem = None
            try:
                cells = next(self._reader)
            except csv.Error as error:
                cells = [] if texts.size > LINE else _without_blanks(taken, self._header.delimiter)
                problem = TOO_LONG if texts.size > LINE else None if cells else f"it is not CSV: {error}."
            if taken[-1].endswith("\n") and taken[-1].endswith("\r\n") != (self._header.end == "\r\n"):
                raise not_csv(self._name)
            begins = self._line
            self._line += len(taken)
            self._number += 1
            if cells or problem is not None or width == 1:
                break
        if not cells and problem is None:
            cells = [""]  # a cell of the only column may be blank
        self._row += 1
        if len(cells) == width + 1 and not cells[-1]:
            cells.pop()  # a delimiter at the end of the line, which DuckDB accepts as well
        if len(cells) != width and problem is None:
            problem = f"it has {len(cells)} cells, expected {width}."
        finished = taken[-1].endswith("\n") and not texts.ended
        # Of a line that is too long the end is not read; and quotes that are never closed are a mistake.
        whole = finished or texts.size > LINE or len(taken) > _OPEN
        return CsvRecord(self._number, Place(self._row, begins), cells, problem, whole)


def _without_blanks(lines: list[str], delimiter: str) -> list[str]:
    """Return the cells of a record where blanks follow a closing quote; none if that is not the problem."""
    text = re.sub(rf'" +(?=[{re.escape(delimiter)}\r\n]|$)', '"', "".join(lines))
    try:
        cells: list[str] = next(_reader(text.splitlines(keepends=True), delimiter))
        return cells
    except csv.Error:
        return []


def by_column(names: Sequence[str], cells: Sequence[str]) -> dict[str, str | None]:
    """Return the cells by column, without the blanks around them; an empty one is None."""
    return {name: cell.strip(" ") or None for name, cell in zip(names, cells, strict=False)}


def csv_rows(lines: Iterator[bytes], name: str, check: Check) -> Iterator[Row]:
    r"""Yield the rows of a CSV file or a pipe, each as soon as its line has been read, once its columns are checked.

    Examples
    --------
    >>> lines = iter([b"day,weather\n", b"1, rain\n", b"2\n"])
    >>> for row in csv_rows(lines, "days.csv", lambda name, columns: None):
    ...     print(row.place, row.value, row.problem)
    line 2 (row 1) {'day': '1', 'weather': 'rain'} None
    line 3 (row 2) {'day': '2'} it has 1 cells, expected 2.
    """
    header = csv_header(lines, name)
    check(name, header.names)
    yield from _as_rows(CsvRecords(lines, header, name), header)


def _as_rows(records: Iterator[CsvRecord], header: Header) -> Iterator[Row]:
    for record in records:
        yield Row(record.place, by_column(header.names, record.cells), record.problem, record.whole)


def csv_blocks(lines: Lines, name: str, check: Check) -> Iterator[Block]:
    """Yield the same rows in blocks, by column wherever each line is a row of the table."""
    header = csv_header(lines, name)
    check(name, header.names)
    records = CsvRecords(lines, header, name)
    one_by_one = in_blocks(lines, _as_rows(records, header))
    while taken := lines.take():
        if len(taken) > 1 and not taken[-1].endswith(b"\n"):
            lines.give_back(1)
            taken.pop()
        if (table := _table(taken, header)) is not None:
            yield Block.of_columns(table, records.passed(len(taken)))
            continue
        lines.give_back(len(taken))
        if (block := next(one_by_one, None)) is not None:
            yield block


def _table(lines: list[bytes], header: Header) -> dict[str, list[str | None]] | None:
    """Return the cells of lines by column, as `CsvRecords` would; None where a line is not a row of the table."""
    data = b"".join(lines)
    returns = len(lines) if header.end == "\r\n" else 0
    if len(data) > LINE or not data.endswith(header.end.encode()) or data.count(b"\r") != returns:
        return None
    if returns and data.count(b"\r\n") != returns:
        return None
    names = header.names
    text = data.decode(errors="surrogateescape")
    if b'"' not in data and (columns := _plain_table(data, text, header)) is not None:
        return dict(zip(names, columns, strict=True))
    texts = text.split("\n")
    texts.pop()
    try:
        records = list(_reader(texts, header.delimiter))
    except csv.Error:
        return None
    if len(records) != len(texts) or set(map(len, records)) != {len(names)}:
        return None
    columns = [[cell.strip(" ") or None for cell in cells] for cells in zip(*records, strict=True)]
    return dict(zip(names, columns, strict=True))


def _plain_table(data: bytes, text: str, header: Header) -> list[list[str | None]] | None:
    """Return the columns of lines without quotes; None where a cell is empty, or begins or ends with a blank."""
    width = len(header.names)
    letters = np.frombuffer(data.replace(b"\r\n", b"\n"), np.uint8)
    marks = np.flatnonzero((letters == ord(header.delimiter)) | (letters == _LF))
    starts = np.append(0, marks[:-1] + 1)
    if len(marks) % width or (letters[marks[width - 1 :: width]] != _LF).any():
        return None
    if np.count_nonzero(letters[marks] == _LF) * width != len(marks) or (starts == marks).any():
        return None
    if (letters[starts] == _BLANK).any() or (letters[marks - 1] == _BLANK).any():
        return None
    cells = text.replace(header.end, header.delimiter).split(header.delimiter)
    return [cells[k:-1:width] for k in range(width)]  # type: ignore[misc] # none of them is None


def csv_count(blocks: Iterable[bytes], delimiter: str, *, blank_lines: bool) -> int | None:
    r"""Return the number of records in a CSV file, with its header, or None where quotes are not placed as they should.

    A record ends at a line break that is not between quotes. Blank lines are no records, unless `blank_lines` says so.

    Examples
    --------
    >>> csv_count([b'day,note\n\n1,"two\nlines"\n2,"a ""b"", c"'], ",", blank_lines=False)
    3
    >>> csv_count([b'day,note\n1,5" wide\n'], ",", blank_lines=False) is None
    True
    """
    records = 0
    inside = False
    before = b"\n\n"
    placed = True
    starts = [*delimiter.encode(), _LF, _BLANK, _QUOTE]
    for block in blocks:
        text = before[-2:] + block
        before = text
        if not placed:
            continue  # the rest is read nevertheless: whoever reads blocks checks them
        if not inside and b'"' not in block and (blank_lines or (b"\n\n" not in text and b"\n\r\n" not in text)):
            records += block.count(b"\n")
            continue
        letters = np.frombuffer(text, np.uint8)
        quotes = letters == _QUOTE
        quotes[:2] = False
        odd = (np.cumsum(quotes) + inside) % 2 == 1
        opening = np.flatnonzero(quotes & odd)
        last = letters[opening - 1]
        one_before = letters[opening - 2]
        placed = bool((np.isin(last, starts) & ((last != _BLANK) | np.isin(one_before, starts))).all())
        ends = (letters == _LF) & ~odd
        new = ends[2:]
        if not blank_lines:
            new = new & ~(ends[1:-1] | ((letters[1:-1] == _CR) & ends[:-2]))
        records += int(np.count_nonzero(new))
        inside = bool(odd[-1])
    if inside or not placed:
        return None
    return records + (not before.endswith(b"\n"))


class Csv(FileSource):
    """A CSV file. DuckDB leaves malformed rows out of the answer and lists them in a table."""

    _rejected: set[int] | None = None

    def __init__(self, file: File, connection: Any) -> None:
        with open_lines(file.path) as lines:
            self._header = header = csv_header(lines, file.name)
        gzipped = is_gzip(file.path.name)
        self._count = self._counted(file.path) if gzipped else 0  # it is checked before DuckDB believes it
        options = {"auto_detect": "false", "header": "true", "store_rejects": "true", "quote": "'\"'", "escape": "'\"'"}
        options |= {"max_line_size": f"{LINE + 2}", "buffer_size": f"{2 * LINE + 4}"}
        options |= {"delim": quoted(header.delimiter), "columns": columns_of_type(header.names, "VARCHAR")}
        super().__init__(file, connection, "read_csv", options)

    def cell(self, name: str) -> str:
        return f"NULLIF(TRIM({identifier(name)}), '')"

    def invalid(self, records: Sequence[int], decoder: Decoder | None = None) -> Iterator[tuple[Place, Reason]]:
        wanted = set(records)
        whole = 0
        rejected = self._rejected
        left = set(rejected or ())
        if not wanted and not left:
            return
        for number, place, cells, problem, _ in self._records():
            lost = problem is not None if rejected is None else number in rejected
            whole = whole + (not lost)
            text = "".join(cells)
            left.discard(number)
            # Before the end it is unknown which rows were lost because they are not in UTF-8.
            if lost or whole in wanted or (rejected is None and not text.isascii()):
                row = Row(place, by_column(self._header.names, cells) | self.partition, problem)
                why = row.problem or (decoder and decoder.complaint(row.value))
                if why or (lost and rejected is not None):
                    yield place, why or ("it is not valid CSV." if is_utf8(text) else "it is not text in UTF-8.")
            if (not wanted or whole >= records[-1]) and (rejected is None or not left):
                return
        for number in sorted(left):  # where DuckDB counts other records than we do
            yield Place(number - 1, None), "it is not valid CSV."

    def batches(self, sql: str, *, rows: int, columns: Mapping[str, str] | None = None) -> Generator[Any]:
        self._rejected = None
        with suppress(library("duckdb").CatalogException):  # there is no such table before the first query
            self._connection.execute("DELETE FROM reject_errors")
        yield from super().batches(sql, rows=rows)
        self._rejected = {line for (line,) in self._connection.execute("SELECT line FROM reject_errors").fetchall()}

    def check_complete(self, rows: int, *, columns: Sequence[str], valid: int) -> None:
        read = rows + len(self._rejected or ())
        if read != (self._count or self._counted(self.path)):
            held = sum(1 for _ in self._records())  # slower, and exact wherever quotes are
            if read != held:
                raise FileError(
                    f"{self.name} cannot be read: it has {held:,} records, of which {read:,} were found.",
                    hint="not all of it is valid CSV; a quote may be missing.",
                )

    def _records(self) -> Iterator[CsvRecord]:
        with open_lines(self.path) as lines:
            csv_header(lines, self.name)
            yield from CsvRecords(lines, self._header, self.name)

    def _counted(self, path: Path) -> int:
        names, delimiter, _ = self._header
        return (csv_count(read_blocks(path), delimiter, blank_lines=len(names) == 1) or 0) - 1


def inert(cell: Any) -> Any:
    """Return a cell of a CSV file; text that a spreadsheet would read as a formula is prefixed with an apostrophe.

    Examples
    --------
    >>> inert("=1+1"), inert("sun"), inert(-0.5)
    ("'=1+1", 'sun', -0.5)
    """
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in _FORMULA else cell


def _cell(value: Any) -> Any:
    """Return a value as a cell of CSV; a negative number is no formula, even as text."""
    if type(value) is float:
        return value
    if isinstance(value, str):
        return value if value[:1] not in _FORMULA or _NUMBER.fullmatch(value) else inert(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict | bool) else value


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write the rows of a CSV file, the header first, all cells inert."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(map(inert, row) for row in rows)


def _write(path: Path, name: str, columns: Mapping[str, set[str]], rows: Iterable[dict[str, Any]]) -> None:
    delimiter = "\t" if name.lower().endswith(".tsv") else ","
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(map(inert, columns))
        writer.writerows(map(_cell, row.values()) for row in rows)


CSV = Format(
    "csv",
    "CSV",
    (".csv", ".tsv", ".txt"),
    lambda files, connection: [Csv(file, connection) for file in files],
    _write,
    csv_rows,
    blocks=csv_blocks,
)
