"""Tables out: CSV files, whose cells no spreadsheet will run, Parquet and JSON lines."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from treecal._atomic import new_file
from treecal.exceptions import ParameterError
from treecal.io._duckdb import library
from treecal.io._text import FORMATS, kind_of

_BATCH = 1 << 14
_LARGEST = 1 << 63  # beyond the integers of 64 bits
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)


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


def plain(value: Any) -> Any:
    """Return a value as JSON has it: what is not a number, text, list or object as text, NaN and infinity as null.

    Examples
    --------
    >>> import datetime
    >>> plain({"day": datetime.date(2026, 1, 31), "p": [0.5, float("nan")]})
    {'day': '2026-01-31', 'p': [0.5, None]}
    """
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="replace").decode()  # bytes that were not UTF-8
    return value if value is None or isinstance(value, bool | int) else str(value)


class Table:
    """Rows for a file of one of the three kinds, whose columns may appear at any time, and whose number is unlimited.

    Parameters
    ----------
    spool
        A file to keep the rows in until the end, as JSON lines.
    columns
        Columns of numbers that there are in any case.
    """

    def __init__(self, spool: TextIO, columns: Sequence[str]) -> None:
        self._spool = spool
        self._kinds: dict[str, set[str]] = {name: {"float"} for name in columns}
        self._last = list(columns)

    def add(self, row: dict[str, Any]) -> None:
        """Add a row, of JSON values."""
        self._spool.write(json.dumps(row, ensure_ascii=False) + "\n")
        for name, value in row.items():
            if value is not None:
                self._kinds.setdefault(name, set()).add(_kind(value))
            elif name not in self._kinds:
                self._kinds[name] = set()

    @property
    def _columns(self) -> list[str]:
        """All columns: those of the rows as they came, then those that were known before."""
        return [*(name for name in self._kinds if name not in self._last), *self._last]

    def _rows(self) -> Iterator[dict[str, Any]]:
        self._spool.seek(0)
        for line in self._spool:
            found = json.loads(line)
            yield {name: found.get(name) for name in self._columns}

    def write(self, path: Path, kind: str, *, delimiter: str = ",") -> None:
        """Write all of them to a file."""
        if kind == "parquet":
            self._write_parquet(path)
            return
        with path.open("w", encoding="utf-8", newline="") as file:
            if kind == "jsonl":
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in self._rows())
                return
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(map(inert, self._columns))
            writer.writerows(map(_cell, row.values()) for row in self._rows())

    def _write_parquet(self, path: Path) -> None:
        arrow = library("pyarrow")
        types = {name: _arrow_type(arrow, self._kinds[name]) for name in self._columns}
        schema, texts = arrow.schema(types.items()), [name for name, kind in types.items() if kind == arrow.string()]
        with library("pyarrow.parquet").ParquetWriter(path, schema) as file:
            found = self._rows()
            while rows := list(islice(found, _BATCH)):
                for row in rows:
                    row.update({name: _text(row[name]) for name in texts})
                file.write_table(arrow.Table.from_pylist(rows, schema))


def _kind(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return "int" if -_LARGEST <= value < _LARGEST else "other"
    if isinstance(value, list):
        return "list" if all(type(each) in (int, float) for each in value) else "other"
    return type(value).__name__


def _arrow_type(arrow: Any, kinds: set[str]) -> Any:
    """Return the type of a column that holds values of these kinds; one of mixed kinds is text."""
    if kinds and kinds <= {"int", "float"}:
        return arrow.int64() if kinds == {"int"} else arrow.float64()
    return {"bool": arrow.bool_(), "list": arrow.list_(arrow.float64())}.get("".join(kinds), arrow.string())


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cell(value: Any) -> Any:
    """Return a value as a cell of CSV; a negative number is no formula, even as text."""
    if isinstance(value, str):
        return value if _NUMBER.fullmatch(value) else inert(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict | bool) else value


@contextmanager
def new_table(path: Path, *, columns: Sequence[str], force: bool = False) -> Iterator[Table]:
    """Give a table that becomes a CSV, Parquet or JSON lines file, by its name, when the block ends without an error.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with new_table(Path(folder, "days.csv"), columns=["p"]) as days:
    ...         days.add({"day": 1, "p": 0.5})
    ...         days.add({"day": 2, "p": 0.25, "sky": "sun"})
    ...     print(Path(folder, "days.csv").read_text())
    day,sky,p
    1,,0.5
    2,sun,0.25
    <BLANKLINE>
    """
    kind = None if path.name.lower().endswith(".gz") else kind_of(path)
    if kind is None:
        raise ParameterError(f"the name of {path} does not tell its format.", hint=f"{FORMATS}.")
    if kind == "parquet":
        library("pyarrow")  # one that is missing is an error now, not after an hour
    with new_file(path, force=force) as temporary, tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        table = Table(spool, columns)
        yield table
        table.write(temporary, kind, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
