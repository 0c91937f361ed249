"""Columns: made, grown, taken, put, packed and checked by their schema alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from treecal._typing import Array, Integers
from treecal.columns import ROUNDS, Columns, Field, Schema, check_records, pack, unpack
from treecal.exceptions import SnapshotError


def heights(columns: Any) -> Integers:
    return np.asarray(1 + columns["rounds"] // 4)


def points(columns: Any) -> Integers:
    return np.asarray(columns["count"])


SCHEMA = Schema(
    (
        ROUNDS,
        Field("count", dtype=np.int64, least=0, most=9),
        Field("mean", (2,), new=[0.5, 0.25]),
        Field("sums", (2,), new=[[1.0, 2.0]], length=heights),
        Field("points", (3,), length=points, layout="listed"),
    )
)
"""A field of each sort: numbers, rows, entries padded to the longest row, and entries one row after the other."""


def some(rng: np.random.Generator, rows: int = 6) -> dict[str, Any]:
    """Return a state, in which entries that a row does not have are 0."""
    rounds, count = rng.integers(12, size=rows), rng.integers(4, size=rows)
    lengths = heights({"rounds": rounds})
    sums = rng.normal(size=(rows, int(lengths.max()), 2))
    sums[np.arange(sums.shape[1]) >= lengths[:, None]] = 0.0
    listed = rng.normal(size=(int(count.sum()), 3))
    return {"rounds": rounds, "count": count, "mean": rng.normal(size=(rows, 2)), "sums": sums, "points": listed}


def kept(state: dict[str, Any]) -> dict[str, Any]:
    return {name: array for name, array in state.items() if name != "points"}


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype
        assert_array_equal(array, other[name], err_msg=name)


def test_new_rows_are_as_the_schema_says() -> None:
    columns = Columns(SCHEMA, 1)
    columns.widen("sums", 3)
    columns.reserve(4)
    assert columns["mean"].tolist() == [[0.5, 0.25]] * 4
    assert columns["sums"].tolist() == [[[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]] * 4
    for name in ("rounds", "count", "mean", "sums"):
        columns[name][:3] = 7
    columns.clear(np.array([2, 0]))
    assert columns["rounds"].tolist() == [0, 7, 0, 0]
    assert columns["sums"][[0, 2]].tolist() == [[[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]] * 2
    assert (columns["sums"][1] == 7).all()


def test_a_state_has_the_entries_of_its_longest_row() -> None:
    state = some(np.random.default_rng(0))
    state["rounds"][:2] = 0, 11
    columns = Columns.read(SCHEMA, state | {"sums": np.zeros((6, 3, 2))})
    columns.widen("sums", 8)
    assert columns.state(np.array([1, 0]))["sums"].shape == (2, 3, 2)
    assert columns.state(np.array([0]))["sums"].shape == (1, 1, 2)
    assert columns.state(np.empty(0, np.int64))["sums"].shape == (0, 1, 2)


def test_rows_are_taken_as_copies_and_put_back() -> None:
    rng = np.random.default_rng(1)
    columns = Columns.read(SCHEMA, some(rng))
    before = columns.state(np.arange(6))
    rows = np.array([4, 1])
    taken = columns.take(rows)
    taken["mean"][:] = -1.0
    taken.widen("sums", 5)
    taken["sums"][:, 4] = 3.0
    same(columns.state(np.arange(6)), before)
    columns.put(rows, taken)
    assert_array_equal(columns["mean"][rows], taken["mean"])
    assert_array_equal(columns["sums"][rows], taken["sums"])
    rest = np.array([0, 2, 3, 5])
    assert_array_equal(columns["mean"][rest], before["mean"][rest])
    columns.put(rows, columns.take(rows))
    assert columns["sums"].shape == (6, 5, 2)


@pytest.mark.parametrize("rows", [0, 1, 6])
def test_records_are_packed_and_unpacked(rows: int) -> None:
    state = some(np.random.default_rng(2), rows) if rows else {**Columns(SCHEMA).state(np.empty(0, np.int64))}
    state.setdefault("points", np.empty((0, 3)))
    numbers, ends = pack(SCHEMA, state)
    same(unpack(SCHEMA, state["rounds"], numbers, ends), state)


def test_a_record_is_that_of_its_row_alone() -> None:
    state = some(np.random.default_rng(3))
    numbers, ends = pack(SCHEMA, state)
    starts = np.append(0, np.cumsum(state["count"]))
    for row in range(6):
        alone = {name: array[row : row + 1] for name, array in kept(state).items()}
        alone["sums"] = alone["sums"][:, : heights(alone)[0]]
        alone["points"] = state["points"][starts[row] : starts[row + 1]]
        assert_array_equal(pack(SCHEMA, alone)[0], numbers[ends[row] : ends[row + 1]])


BAD: dict[str, Any] = {
    "a name is missing": lambda state: kept(state),
    "there is one more": lambda state: state | {"more": state["mean"]},
    "another shape": lambda state: state | {"mean": state["mean"].T},
    "another type": lambda state: state | {"mean": state["mean"].astype(np.float32)},
    "no array": lambda state: state | {"mean": state["mean"].tolist()},
    "no rounds": lambda state: state | {"rounds": 3},
    "not finite": lambda state: state | {"sums": state["sums"] * np.nan},
    "below its range": lambda state: state | {"count": state["count"] - 10},
    "above its range": lambda state: state | {"count": state["count"] + 10},
    "too few entries": lambda state: state | {"sums": state["sums"][:, :-1]},
    "too many entries": lambda state: state | {"sums": np.repeat(state["sums"], 2, axis=1)},
    "too few listed": lambda state: state | {"points": state["points"][1:]},
    "rounds that no stream has": lambda state: state | {"rounds": state["rounds"] - 12},
}


@pytest.mark.parametrize("what", BAD)
def test_a_state_of_another_schema_is_refused(what: str) -> None:
    good = some(np.random.default_rng(4))
    Columns.read(SCHEMA, good)
    with pytest.raises(SnapshotError):
        Columns.read(SCHEMA, BAD[what](good))


def changed(numbers: Array, at: int, value: float) -> Array:
    numbers = numbers.copy()
    numbers[at] = value
    return numbers


def test_records_of_other_sizes_are_refused() -> None:
    state = some(np.random.default_rng(5))
    rounds, (numbers, ends) = state["rounds"], pack(SCHEMA, state)
    check_records(SCHEMA, rounds, numbers, ends)
    for bad in (0.5, np.nan, 1e300, -1.0, 10.0, float(state["count"][0] + 1)):  # a count
        with pytest.raises(SnapshotError):
            unpack(SCHEMA, rounds, changed(numbers, 0, bad), ends)
    for other in (ends - (ends == ends[-1]), ends + (ends == ends[1]), np.minimum(ends, 2)):
        with pytest.raises(SnapshotError):
            check_records(SCHEMA, rounds, numbers, other)
