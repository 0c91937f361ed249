"""Columns by their names: of which class they are the probability (`p_rain` of `rain`), and which hold keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from treecal.exceptions import FileError, ParameterError
from treecal.io._duckdb import library

_NOT = re.compile(r"(^|[\W_])(no|not|non)[\W_]$", re.I)
NUMBER = r"^\s*-?\d{1,18}\s*$"
"""The texts that are sequence numbers."""
_TYPES = ("varchar", "string", "json", "tinyint", "smallint", "int", "integer", "bigint")


def class_named(column: str, classes: Sequence[str]) -> str | None:
    """Return the class that a single column is named after, perhaps with a prefix: `p_rain`, `prain`, `P(y=rain`.

    A prefix is `p`, or ends with what is neither letter nor digit: `prob` is not named after `b`, nor `model10` after
    0. What is called `p_not_rain` names no class.

    Examples
    --------
    >>> [class_named(name, ["churn", "stay"]) for name in ("churn", "p_churn", "pstay", "score", "p_not_churn")]
    ['churn', 'churn', 'stay', None, None]
    """
    for name in sorted(classes, key=len, reverse=True):
        prefix = column.removesuffix(name)
        if column.endswith(name) and (prefix.lower() in ("", "p") or not prefix[-1].isalnum()):
            return None if _NOT.search(prefix) else name
    return None


@lru_cache(1000)  # it is asked for every row
def second_class(column: str, classes: tuple[str, ...]) -> None:
    """Raise an error if a column that is to hold the probability of the second of two classes is named after the first.

    Examples
    --------
    >>> second_class("p_stay", ("churn", "stay"))
    >>> second_class("p_churn", ("churn", "stay"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    treecal.exceptions.ParameterError: p_churn is named after churn, the first of the classes churn, stay, ...
    <BLANKLINE>
    Hint: name the classes in the order stay, churn; or rename the column.
    """
    first, second = classes
    if class_named(column, classes) == first:
        raise ParameterError(
            f"{column} is named after {first}, the first of the classes {first}, {second}, but a single column is the "
            "probability of the second.",
            hint=f"name the classes in the order {second}, {first}; or rename the column.",
        )


def columns_of(classes: Sequence[str], there: Collection[str]) -> list[tuple[str, ...]]:
    """Return the columns named like the classes; if there are none, all sets of columns that are with a common prefix.

    A prefix does not end with a digit where a class begins with one: `x10` and `x11` are not for the classes 0 and 1.

    Examples
    --------
    >>> columns_of(["rain", "sun"], ["p_sun", "day", "p_rain"])
    [('p_rain', 'p_sun')]
    >>> columns_of(["rain", "sun"], ["p_sun", "rain", "sun"]), columns_of(["0", "1"], ["x10", "x11", "p0"])
    ([('rain', 'sun')], [])
    """
    if not classes or all(name in there for name in classes):
        return [tuple(classes)] if classes else []
    prefixes = [column.removesuffix(classes[0]) for column in there if column.endswith(classes[0])]
    clear = [
        prefix for prefix in prefixes if not (prefix[-1:].isdigit() and any(name[:1].isdigit() for name in classes))
    ]
    found = (tuple(prefix + name for name in classes) for prefix in clear)
    return [columns for columns in found if all(name in there for name in columns)]


class Keys(NamedTuple):
    """The column of keys, any text, and that of sequence numbers, whole ones, which order the rows of a key."""

    key: str
    seq: str

    def check(self, source: str, types: dict[str, str]) -> None:
        """Raise unless the cells of both columns have one text each, in which DuckDB and Spark agree."""
        if self.key == self.seq:
            raise FileError(f"{self.key!r} is the column of keys and of their numbers, expected two columns.")
        for name in self:
            if types[name].lower() not in _TYPES:
                raise FileError(
                    f"column {name!r} of {source} holds {types[name]} values, expected text or whole numbers."
                )

    def read(self, cells: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return keys as text and numbers as integers, and which rows have both."""
        arrow = library("pyarrow")
        compute = library("pyarrow.compute")
        key, text = (cells[name].cast("string") for name in self)
        good = compute.match_substring_regex(text, NUMBER)
        seq = compute.if_else(good, compute.utf8_trim_whitespace(text), arrow.scalar(None, "string")).cast("int64")
        valid = compute.and_(key.is_valid(), seq.is_valid())
        return {self.key: key, self.seq: seq}, np.asarray(valid.to_numpy(zero_copy_only=False))

    def complaint(self, row: dict[str, Any]) -> str | None:
        """Return what is wrong with the key or the number of a row, if anything."""
        key, seq = (row.get(name) for name in self)
        if key in (None, ""):
            return f"{self.key} is missing, expected the key of a stream."
        if seq in (None, "") or not re.match(NUMBER, str(seq)):
            found = "missing" if seq in (None, "") else repr(seq)
            return f"{self.seq} is {found}, expected a whole number, which orders the rows of {self.key} {key!r}."
        return None
