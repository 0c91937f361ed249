"""CSV files, whose cells no spreadsheet will run."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any


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
