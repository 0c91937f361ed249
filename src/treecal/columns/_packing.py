"""The rows of a state as records: each has its own numbers, whichever other rows it was kept with.

A record has first the fields that are as long for every row, but `rounds`, and then the others, each with as many
entries as the row has: in the order of the schema.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treecal._typing import Array, Integers, Saved
from treecal.columns._columns import ROUNDS, Field, Schema
from treecal.exceptions import SnapshotError

_MOST = 2.0**53  # whole numbers that float64 holds


def pack(schema: Schema, state: Saved) -> tuple[Array, Integers]:
    """Return the records of a state's rows, one after another, and where each of them ends, 0 first.

    Examples
    --------
    >>> schema = Schema((ROUNDS, Field("sum", (2,))))
    >>> numbers, ends = pack(schema, {"rounds": np.array([1, 2]), "sum": np.array([[0.5, 0.5], [2, 0]])})
    >>> numbers.tolist(), ends.tolist()
    ([0.5, 0.5, 2.0, 0.0], [0, 2, 4])
    """
    rows = len(state["rounds"])
    pieces = []
    for field in _in_order(schema):
        array = state[field.name]
        counts = _entries(field, state, rows)
        if field.length is not None and field.layout == "padded":
            array = array[np.arange(array.shape[1]) < counts[:, None]]
        pieces.append((array.reshape(len(array), field.size), counts))
    sizes = sum((counts * values.shape[1] for values, counts in pieces), np.zeros(rows, np.int64))
    ends = np.append(0, np.cumsum(sizes))
    numbers = np.empty(ends[-1])
    starts = ends[:-1].copy()
    for values, counts in pieces:
        numbers[_places(starts, counts * values.shape[1])] = values.ravel()
    return numbers, ends


def check_records(schema: Schema, rounds: Integers, numbers: Array, ends: Integers) -> Saved:
    """Return the fields of records that are as long for every row; raise a `SnapshotError` unless sizes fit to them."""
    rows = len(rounds)
    starts = ends[:-1].copy()
    state: Saved = {"rounds": rounds}
    fixed = [field for field in _in_order(schema) if field.length is None]
    if (np.diff(ends) < sum(field.size for field in fixed)).any():
        raise _other_size()
    for field in fixed:
        values = numbers[_places(starts, np.full(rows, field.size))]
        state[field.name] = _typed(field, values.reshape(rows, *field.shape))
        field.check(state[field.name], (rows, *field.shape))  # lengths are computed of these
    rest = (field.size * _entries(field, state, rows) for field in schema.of(length=True))
    if (starts + sum(rest, np.zeros(rows, np.int64)) != ends[1:]).any():
        raise _other_size()
    return state


def unpack(schema: Schema, rounds: Integers, numbers: Array, ends: Integers) -> Saved:
    """Return the state of such records, or raise a `SnapshotError`: `rounds` are those of each.

    Examples
    --------
    >>> schema = Schema((ROUNDS, Field("sum", (2,))))
    >>> unpack(schema, np.array([1]), np.array([0.5, 0.5]), np.array([0, 2]))["sum"].tolist()
    [[0.5, 0.5]]
    """
    rows = len(rounds)
    state = check_records(schema, rounds, numbers, ends)
    starts = ends[:-1] + sum(field.size for field in _in_order(schema) if field.length is None)
    for field in schema.of(length=True):
        counts = _entries(field, state, rows)
        values = _typed(field, numbers[_places(starts, field.size * counts)].reshape(-1, *field.shape))
        if field.layout == "padded":
            longest = int(counts.max(initial=field.first))
            padded = np.zeros((rows, longest, *field.shape), field.dtype)
            padded[np.arange(longest) < counts[:, None]] = values
            values = padded
        state[field.name] = values
    return state


def _in_order(schema: Schema) -> tuple[Field, ...]:
    return (*(field for field in schema.of(length=False) if field.name != ROUNDS.name), *schema.of(length=True))


def _entries(field: Field, state: Saved, rows: int) -> Integers:
    """Return how many entries each row has of a field."""
    return np.ones(rows, np.int64) if field.length is None else field.length(state)


def _places(starts: Integers, sizes: Integers) -> Integers:
    """Return the places of so many numbers from each start on, and move the starts behind them."""
    before = np.cumsum(sizes) - sizes
    places = np.arange(int(sizes.sum())) + np.repeat(starts - before, sizes)
    starts += sizes
    return np.asarray(places)


def _typed(field: Field, values: Array) -> Any:
    """Return numbers as the type of a field; what is not whole is no integer."""
    dtype = np.dtype(field.dtype)
    if dtype.kind == "f":
        return values.astype(dtype, copy=False)
    # NaN fails the first comparison.
    if not (np.abs(values) <= min(_MOST, np.iinfo(dtype).max)).all() or (values != np.rint(values)).any():
        raise SnapshotError(f"a record's {field.name} are not whole numbers.")
    return values.astype(dtype)


def _other_size() -> SnapshotError:
    return SnapshotError(
        "the state has a record of another kind or size, or a damaged one.",
        hint="resume with the forecaster that made the state, or from an earlier epoch.",
    )
