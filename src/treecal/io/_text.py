"""CSV and JSON lines: what their columns are called, and on which line a row stands.

DuckDB reads the rows. What is here is read besides: the header before, and the lines of bad rows after.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from treecal.exceptions import FileError

_DELIMITERS = (",", ";", "\t", "|")
_SAMPLE = 100


class Place(NamedTuple):
    """Where a row stands: its 1-based number among the rows, and in a text file its line."""

    row: int
    line: int | None


class Header(NamedTuple):
    """The names of a CSV file's columns, and what stands between them."""

    names: list[str]
    delimiter: str


def _opened(path: Path) -> IO[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    # A byte order mark does not count; bytes that are not UTF-8 stay visible as lone surrogates.
    return opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")


def csv_header(path: Path) -> Header:
    """Return the names in the first line, and the delimiter that is most frequent in it."""
    try:
        with _opened(path) as file:
            line = file.readline(1 << 20).rstrip("\r\n")
    except (OSError, EOFError) as error:
        raise FileError(f"{path} cannot be read: {error}.") from None
    if not line:
        raise FileError(f"{path} is empty, or its first line is, expected the names of the columns.")
    if not line.isprintable() and not line.replace("\t", "").isprintable():
        raise FileError(
            f"{path} is not text in UTF-8: its first line holds {line[:20]!a}.",
            hint="is it CSV at all? If it is in another encoding, convert it: iconv -t utf-8.",
        )
    delimiter = max(_DELIMITERS, key=line.count)
    names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]
    if "" in names:
        raise FileError(f"{path} has no name for column {names.index('') + 1} in its first line.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FileError(f"{path} has two columns called {twice!r}.", hint="rename one of them.")
    return Header(names, delimiter)


def csv_places(
    path: Path, header: Header, records: Sequence[int], torn: Mapping[int, str] | None
) -> tuple[list[Place], list[tuple[Place, str]]]:
    """Return where these records stand (1-based, in order, torn ones not counted), and the torn ones up to the last.

    Parameters
    ----------
    path, header
        The file.
    records
        Numbers of records that could be read as rows.
    torn
        Records that could not, by their number with the header and blank lines counted, and why: as DuckDB found after
        reading the whole file, which is then followed to its end. Without it, rows with too few or too many cells.
    """
    wanted, found, broken = list(records), list[Place](), list[tuple[Place, str]]()
    width, row, whole, line = len(header.names), 0, 0, 1
    with _opened(path) as file, suppress(csv.Error):  # a cell too large for Python: the rest stays without lines
        reader = csv.reader(file, delimiter=header.delimiter)
        for number, cells in enumerate(reader, start=1):
            place, line = Place(row + 1, line), reader.line_num + 1
            if number == 1 or (not cells and width > 1):
                continue
            row += 1
            if torn is None:
                why = None if len(cells) == width or width == 1 else f"it has {len(cells)} cells, expected {width}."
            else:
                why = torn.get(number)
            if why is not None:
                broken.append((place, why))
                continue
            whole += 1
            if len(found) < len(wanted) and whole == wanted[len(found)]:
                found.append(place)
            if len(found) == len(wanted) and (torn is None or len(broken) == len(torn)):
                break
    return found + [Place(record, None) for record in wanted[len(found) :]], broken


def json_names(path: Path) -> list[str]:
    """Return the names in the first hundred objects, in order of appearance."""
    names: dict[str, None] = {}
    try:
        with _opened(path) as file:
            seen = 0
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                seen += 1
                try:
                    record = json.loads(line)
                except ValueError as error:
                    record = error
                if isinstance(record, dict):
                    names.update(dict.fromkeys(record))
                elif seen == 1:
                    raise FileError.at(
                        str(path), 1, number, "it is not a JSON object.", hint="expected JSON lines: one object a line."
                    )
                if seen == _SAMPLE:
                    break
    except (OSError, EOFError) as error:
        raise FileError(f"{path} cannot be read: {error}.") from None
    if not seen:
        raise FileError(f"{path} is empty, expected JSON lines: one object a line.")
    return list(names)


def json_places(path: Path, records: Sequence[int]) -> list[Place]:
    """Return on which lines these records (1-based, in order) stand; blank lines are none."""
    wanted, found, row = list(records), list[Place](), 0
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            row += 1
            if row == wanted[len(found)]:
                found.append(Place(row, number))
                if len(found) == len(wanted):
                    break
    return found
