"""The columns of many rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from treecal._typing import Integers
from treecal.columns._schema import Field, Schema, check_state


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

    def state(self, rows: Integers) -> dict[str, Any]:
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
