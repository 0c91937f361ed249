"""Columns of the keys of rows, and of their numbers."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from treecal.exceptions import FileError
from treecal.io._duckdb import library

NUMBER = r"^\s*-?\d{1,18}\s*$"
"""The texts that are sequence numbers."""
_TYPES = ("varchar", "string", "json", "tinyint", "smallint", "int", "integer", "bigint")


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
