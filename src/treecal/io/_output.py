"""Tables out: rows, whose columns may appear at any time, become a file of any format."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from treecal._atomic import new_file
from treecal.exceptions import ParameterError
from treecal.io._duckdb import library
from treecal.io._formats import format_of, known_formats

_LARGEST = 1 << 63  # beyond the integers of 64 bits


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


class NewTable:
    """Rows for a file, whose columns may appear at any time, and whose number is unlimited.

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
            self._note(name, [value])

    def add_columns(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add many rows, by column."""
        self._spool.write(json.dumps([list(columns), *columns.values()], ensure_ascii=False) + "\n")
        for name, values in columns.items():
            self._note(name, values)

    def _note(self, name: str, values: Sequence[Any]) -> None:
        """Take note of the kinds of values in a column."""
        kinds = self._kinds.setdefault(name, set())
        types = {*map(type, values)} - {type(None)}
        kinds |= (
            {each.__name__ for each in types}
            if types <= {str, float, bool}
            else {_kind(v) for v in values if v is not None}
        )

    @property
    def columns(self) -> dict[str, set[str]]:
        """The kinds of values in each column: those of the rows, in order, then those that were known before."""
        names = [*(name for name in self._kinds if name not in self._last), *self._last]
        return {name: self._kinds[name] for name in names}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows, each with all columns."""
        names = list(self.columns)
        self._spool.seek(0)
        for line in self._spool:
            found = json.loads(line)
            if isinstance(found, dict):
                yield {name: found.get(name) for name in names}
                continue
            there, *columns = found
            cells = dict(zip(there, columns, strict=True))
            missing = [None] * len(columns[0])
            for row in zip(*(cells.get(name, missing) for name in names), strict=True):
                yield dict(zip(names, row, strict=True))


def _kind(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return "int" if -_LARGEST <= value < _LARGEST else "other"
    if isinstance(value, list):
        return "list" if all(type(each) in (int, float) for each in value) else "other"
    return type(value).__name__


@contextmanager
def new_table(path: Path, *, columns: Sequence[str], force: bool = False) -> Iterator[NewTable]:
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
    found = None if path.name.lower().endswith(".gz") else format_of(path)
    if found is None:
        raise ParameterError(f"the name of {path} does not tell its format.", hint=f"{known_formats()}.")
    if found.kind == "parquet":
        library("pyarrow")  # one that is missing is an error now, not after an hour
    with new_file(path, force=force) as temporary, tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        table = NewTable(spool, columns)
        yield table
        found.write(temporary, path.name, table.columns, table.rows())
