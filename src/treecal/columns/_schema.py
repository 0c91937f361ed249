"""What a kind keeps of one stream: a name, a shape, a type and a range for each of its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecal._states import ELSEWHERE, MOST_ROUNDS, check_array, check_names
from treecal._typing import Integers
from treecal.exceptions import SnapshotError

Arrays = Mapping[str, NDArray[Any]]
Length = Callable[[Arrays], Integers]
"""Given the fields that are as long for every row, returns how many entries each row has of one that is not."""


@dataclass(frozen=True)
class Field:
    """A column: what is kept of each row under one name.

    Attributes
    ----------
    name
        As in snapshots.
    shape
        Of one row; of one entry, if rows have different numbers of them.
    dtype
        Of the numbers.
    new
        What a new row has; of a field with a length, its first entries, and 0 in all later ones.
    length
        The entries of each row, if rows have different numbers of them, such as the heights of a tree.
    layout
        How entries of different numbers lie side by side: "padded" to the longest row, with an axis of their own after
        that of the rows; or "listed", those of one row after those of the row before.
    least, most
        The range: what protects code that uses the numbers as places, or counts with them.
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: Any = np.float64
    new: ArrayLike = 0
    length: Length | None = None
    layout: Literal["padded", "listed"] = "padded"
    least: float = -math.inf
    most: float = math.inf

    @property
    def size(self) -> int:
        """The numbers of one row, or of one entry."""
        return math.prod(self.shape)

    @property
    def first(self) -> int:
        """How many entries a new row has."""
        return len(np.asarray(self.new)) if self.length is not None and self.layout == "padded" else 0

    def check(self, array: Any, shape: tuple[int, ...]) -> None:
        """Raise a `SnapshotError` unless this is a column of this shape, with finite numbers within the range."""
        check_array(self.name, array, shape, self.dtype)
        if array.size and not (array.min() >= self.least and array.max() <= self.most):
            raise SnapshotError(
                f"{self.name} are {array.min()} to {array.max()}, expected {self.least} to {self.most}.", hint=ELSEWHERE
            )


ROUNDS = Field("rounds", dtype=np.int64, least=0, most=MOST_ROUNDS)
"""Outcomes that each row has learned."""


@dataclass(frozen=True)
class Schema:
    """The fields of a kind; the first has no length. What is played round by round begins with `ROUNDS`.

    Examples
    --------
    >>> schema = Schema((ROUNDS, Field("sum", (2,))))
    >>> [field.name for field in schema.fields]
    ['rounds', 'sum']
    """

    fields: tuple[Field, ...]

    def of(self, *, length: bool, layout: str | None = None) -> tuple[Field, ...]:
        """Return the fields that have a length, or have none."""
        return tuple(
            field
            for field in self.fields
            if (field.length is not None) == length and (layout is None or field.layout == layout)
        )


def check_state(schema: Schema, state: Any, where: str = "the state") -> int:
    """Raise a `SnapshotError` unless a state holds the columns of a schema; return the number of rows.

    It holds an array for each name, of the type, the shape and the range that the schema says, without NaN and
    infinities: what compiled code needs in order to stay within its arrays, and no more.

    Examples
    --------
    >>> schema = Schema((ROUNDS, Field("sum", (2,))))
    >>> check_state(schema, {"rounds": np.array([1, 0]), "sum": np.zeros((2, 2))})
    2
    """
    check_names(where, state, [field.name for field in schema.fields])
    first = state[schema.fields[0].name]
    rows = len(first) if isinstance(first, np.ndarray) and first.ndim else 0
    for field in schema.of(length=False):
        field.check(state[field.name], (rows, *field.shape))
    for field in schema.of(length=True):
        assert field.length is not None
        lengths = field.length(state)
        if field.layout == "listed":
            field.check(state[field.name], (int(lengths.sum()), *field.shape))
        else:
            field.check(state[field.name], (rows, int(lengths.max(initial=field.first)), *field.shape))
    return rows
