"""Groups of rows with equal values in some columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Integers
from treecal.exceptions import FileError

Key = tuple[Any, ...]
T = TypeVar("T")


class ByKey(dict[Key, T]):
    """Groups by the values that make them; of those by one column also by the value itself.

    Examples
    --------
    >>> ByKey({("JFK",): 1})["JFK"]
    1
    """

    def __missing__(self, name: Any) -> T:
        if isinstance(name, tuple):
            raise KeyError(name)
        return self[name,]


def printable(name: object) -> str:
    """Return a name from the log, with nothing that a terminal would interpret."""
    words = "(missing)" if name is None else str(name)
    return words if words.isprintable() else repr(words)[1:-1]


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Return keys in order: values of a type together, missing ones last."""
    return sorted(keys, key=lambda key: [(v is None, type(v).__name__, 0 if v is None else v) for v in key])


class Groups:
    """Numbers the groups of rows with equal values in the columns `by`, in the order of first appearance."""

    def __init__(self, by: Sequence[str]) -> None:
        self.by = tuple(by)
        self.index: dict[Key, int] = {} if self.by else {(): 0}
        """The number of each group, by its values in these columns."""

    def of(self, columns: Sequence[Any], rows: int) -> Integers:
        """Return the number of each row's group, given the columns as Arrow or NumPy arrays."""
        if not self.by:
            return np.zeros(rows, np.int64)
        code = np.zeros(rows, np.int64)
        parts = [
            _coded_array(column) if isinstance(column, np.ndarray) else _coded(name, column)
            for name, column in zip(self.by, columns, strict=True)
        ]
        for place, _ in parts:  # numbered again after each column, so that codes stay below the number of rows
            _, first, code = np.unique(code * (rows + 1) + place, return_index=True, return_inverse=True)
        keys = zip(*([values[k] for k in place[first]] for place, values in parts), strict=True)
        numbers = np.array([self.index.setdefault(key, len(self.index)) for key in keys], np.int64)
        return numbers[code]


def _coded(name: str, column: Any) -> tuple[Integers, list[Any]]:
    """Return the place of each cell among the distinct values, and these, where the first one is for missing cells."""
    try:
        coded = column.dictionary_encode()
        values = [None, *map(_value, coded.dictionary.to_pylist())]
        if len({*values, None}) < len(values) - values[1:].count(None) and not _floats(column.type):
            raise ValueError("some that differ are the same in Python")  # times of a day in nanoseconds
        return coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1, values
    except (ValueError, OverflowError, NotImplementedError) as error:  # a date after the year 9999, for example
        raise FileError(
            f"rows cannot be grouped by {name!r}, which holds {column.type} values: {str(error).splitlines()[0]}.",
            hint="convert the column to text.",
        ) from None


def _coded_array(column: NDArray[Any]) -> tuple[Integers, list[Any]]:
    """Return the same of a NumPy array."""
    if column.dtype.kind in "OU":
        index: dict[Any, int] = {None: 0}
        places = np.fromiter((index.setdefault(cell, len(index)) for cell in column.tolist()), np.int64, len(column))
        return places, list(index)
    if column.dtype.kind == "M" and column.dtype != "M8[D]":
        column = column.astype("M8[us]")  # which Python's own has
    there = column == column  # neither NaN nor NaT
    places = np.zeros(len(column), np.int64)
    values, code = np.unique(column[there], return_inverse=True)
    places[there] = code + 1
    return places, [None, *map(_value, values.tolist())]


def _floats(kind: Any) -> bool:
    """Return whether values may be alike, as NaN and missing ones are, or 0.0 and -0.0."""
    return str(kind) in ("halffloat", "float", "double")


def _value(value: Any) -> Any:
    if value != value:
        return None  # NaN is missing
    return 0.0 if isinstance(value, float) and value == 0 else value  # not -0.0
