"""Columns of a file or table as arrays in memory, for what looks at all rows at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treecal.exceptions import FileError
from treecal.io._decoder import check_columns
from treecal.io._open import arrays_of, open_source

_WORDS = {"true": True, "false": False}


def read_arrays(source: Any, names: Sequence[str], *, plain: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Return columns of a file, a table or a mapping, as arrays: numbers with NaN, or objects with None, where missing.

    Text that is numbers, or true and false, is read as such, but in `plain` columns; lists become rows of numbers.
    """
    if (found := arrays_of(source)) is not None:
        name, arrays = found
        check_columns(name, list(arrays), names)
        mixed = [name for name in names if arrays[name].dtype == object]
        return {name: arrays[name] for name in names} | {name: as_array(name, arrays[name].tolist()) for name in mixed}
    opened = open_source(source)
    opened.check(names)
    cells: dict[str, list[Any]] = {name: [] for name in names}
    for row in opened.objects(tuple(dict.fromkeys(names))):
        for name, column in cells.items():
            column.append(row.get(name))
    if not cells[names[0]]:
        raise FileError(f"there are no rows in {opened.name}.")
    return {name: as_array(name, column, plain=name in plain) for name, column in cells.items()}


def as_array(name: str, cells: Sequence[Any], *, plain: bool = False) -> NDArray[Any]:
    """Return cells of any kind as an array.

    Examples
    --------
    >>> as_array("p", ["0.5", None, "1"]), as_array("ok", [True, None]), as_array("day", ["mon", ""])
    (array([0.5, nan, 1. ]), array([ 1., nan]), array(['mon', None], dtype=object))
    """
    values = [None if _missing(cell) else cell for cell in cells]
    there = [value for value in values if value is not None]
    if any(isinstance(value, list | tuple | np.ndarray) for value in there):
        return _rows(name, values)
    if all(isinstance(value, str) for value in there):
        if plain or not there:
            return np.array(values, object)
        lowered = {value.strip().lower() for value in there}
        if lowered <= {*_WORDS}:
            values = [None if value is None else _WORDS[value.strip().lower()] for value in values]
        elif next(iter(there)).lstrip().startswith("["):
            return _rows(name, [None if value is None else value.strip(" []").split(",") for value in values])
        elif not all(map(_is_number, lowered)):
            return np.array(values, object)
    elif not all(isinstance(value, bool | int | float | np.number | np.bool_) for value in there):
        return np.array([None if value is None else str(value) for value in values], object)
    if len(there) == len(values) and all(isinstance(value, int) for value in values):
        return np.array([int(value) for value in values if value is not None], np.int64)
    return np.array([math.nan if value is None else float(value) for value in values])


def _missing(cell: Any) -> bool:
    return cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _rows(name: str, values: list[Any]) -> NDArray[Any]:
    try:
        return np.array([[float(cell) for cell in value] for value in values])
    except (TypeError, ValueError):
        raise FileError(f"column {name!r} is no column of lists of numbers of one length.") from None
