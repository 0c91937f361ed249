"""What a kind keeps of one stream: a name, a shape, a type and a range for each number; and the columns of many."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treecal._states import ELSEWHERE, MOST_ROUNDS, check_array, check_names
from treecal._typing import Integers, Saved
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


class Columns:
    """Arrays with a row for each stream: one for each field of a schema, contiguous, so that kernels take them.

    Fields that are listed are not kept here: see `Field`.

    Parameters
    ----------
    schema
        What is kept of each row.
    rows
        The number of rows, all new.

    Examples
    --------
    >>> from treecal.columns import ROUNDS
    >>> columns = Columns(Schema((ROUNDS, Field("sum", (2,)))), rows=1)
    >>> columns.reserve(3)
    >>> columns["sum"][1] = 0.5
    >>> columns.state(np.array([1, 2]))
    {'rounds': array([0, 0]), 'sum': array([[0.5, 0.5],
           [0. , 0. ]])}
    """

    def __init__(self, schema: Schema, rows: int = 0) -> None:
        self.schema = schema
        self._arrays: dict[str, NDArray[Any]] = {}
        for field in self._kept():
            entries = (field.first,) if field.length is not None else ()
            self._arrays[field.name] = np.empty((0, *entries, *field.shape), field.dtype)
        self.reserve(rows)

    def _kept(self) -> Iterator[Field]:
        return (field for field in self.schema.fields if field.length is None or field.layout == "padded")

    def __len__(self) -> int:
        return len(next(iter(self._arrays.values())))

    def __getitem__(self, name: str) -> Any:
        """The array of a field: `(rows, *shape)`, or `(rows, entries, *shape)`."""
        return self._arrays[name]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays.values())

    def reserve(self, rows: int) -> None:
        """Make room for this many rows, at least what there are: the others are new."""
        before = len(self)
        for name, array in self._arrays.items():
            longer = np.empty((rows, *array.shape[1:]), array.dtype)
            longer[:before] = array
            self._arrays[name] = longer
        self.clear(slice(before, rows))

    def clear(self, rows: Integers | slice) -> None:
        """Make these rows new."""
        for field in self._kept():
            array = self._arrays[field.name]
            if field.length is None:
                array[rows] = field.new
            else:
                array[rows, : field.first] = field.new
                array[rows, field.first :] = 0

    def widen(self, name: str, entries: int) -> None:
        """Make room for so many entries in each row of a field: what is there stays, and the rest is 0."""
        array = self._arrays[name]
        if (more := entries - array.shape[1]) > 0:
            self._arrays[name] = np.concatenate(
                [array, np.zeros((len(array), more, *array.shape[2:]), array.dtype)], axis=1
            )

    def take(self, rows: Integers) -> Self:
        """Return a copy of these rows, in this order."""
        taken = type(self)(self.schema)
        taken._arrays = {name: array[rows] for name, array in self._arrays.items()}
        return taken

    def put(self, rows: Integers, other: Self) -> None:
        """Replace these rows, each of them once, by those of other columns, which may have room for more entries."""
        for field in self._kept():
            array = other._arrays[field.name]
            if field.length is None:
                self._arrays[field.name][rows] = array
            else:
                self.widen(field.name, array.shape[1])
                self._arrays[field.name][rows, : array.shape[1]] = array

    def state(self, rows: Integers) -> Saved:
        """Return a copy of the columns of these rows, in this order: of entries as many as the longest of them has."""
        found = {field.name: self._arrays[field.name][rows] for field in self.schema.of(length=False)}
        for field in self.schema.of(length=True, layout="padded"):
            assert field.length is not None
            longest = int(field.length(found).max(initial=field.first))
            found[field.name] = self._arrays[field.name][rows, :longest]
        return {field.name: found[field.name] for field in self._kept()}

    @classmethod
    def read(cls, schema: Schema, state: Any, where: str = "the state") -> Self:
        """Return columns that hold a copy of a state, or raise a `SnapshotError`: see `check_state`."""
        check_state(schema, state, where)
        columns = cls(schema)
        columns._arrays = {field.name: np.array(state[field.name], order="C") for field in columns._kept()}
        return columns
