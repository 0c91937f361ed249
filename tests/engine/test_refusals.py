"""Bad outcomes anywhere in a stream are refused, with the round in which they came."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.engine.support import Make, corners, replay
from tests.some import some
from tests.strategies import spaces, streams
from treecal.exceptions import HorizonError, OutcomeError
from treecal.testing import bad_outcomes

ROUNDS = 100
CLASSES = np.random.default_rng(1).integers(3, size=ROUNDS)
CORNERS = corners(3, CLASSES)
NUMBERS = ("NaN", "infinite", "minus infinite", "far outside", "as large as can be")


def three() -> tc.TreeCal:
    return tc.TreeCal(tc.Simplex(3), arity=3)


def mixed() -> tc.TreeCal:
    return tc.TreeCal(tc.Simplex(3), arity=3, mix=0.1)


def adaptive() -> tc.AdaptiveTreeCal:
    return tc.AdaptiveTreeCal(tc.Simplex(3), arity=3)


def chunked(rows: Any) -> Iterator[Any]:
    return (rows[i : i + 7] for i in range(0, len(rows), 7))


def ways(rows: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Whole and in chunks, by one thread and by three."""
    return [(form, {"threads": threads}) for threads in (1, 3) for form in (rows, chunked(rows))]


def assert_refused(rows: Any, make: Make, round_: int) -> str:
    """Refuse these outcomes however they come, for the sake of this round; return what was said."""
    for outcomes, options in ways(rows):
        with pytest.raises(OutcomeError, match=rf"\bround {round_}\b") as caught:
            replay(outcomes, make, **options)
    return str(caught.value)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_numbers_that_are_no_outcomes(data: st.DataObject) -> None:
    space = data.draw(spaces())
    make: Make = lambda: tc.TreeCal(space, arity=3)  # noqa: E731
    outcomes = streams(space, ROUNDS, 0)
    at = data.draw(st.integers(0, ROUNDS - 1))
    outcomes[at] = bad_outcomes(space)[data.draw(st.sampled_from(NUMBERS))]
    assert_refused(outcomes, make, at + 1)


@pytest.mark.parametrize("make", [three, mixed, adaptive])
@pytest.mark.parametrize("at", [0, 8, 9, 50, 99])
def test_rows_off_the_simplex(make: Make, at: int) -> None:
    for bad in ([0.5, 0.5, 1e-8], [0.5, 0.5, -1e-8], [1.1, -0.1, 0], [0, 0, 0], [np.nan, 1, 0], [np.inf, 0, 0]):
        rows = CORNERS.copy()
        rows[at] = bad
        message = assert_refused(rows, make, at + 1)
        with pytest.raises(OutcomeError) as caught:  # the forecaster itself says the same
            make().update(rows[at])
        assert message == str(caught.value).replace("round 1 ", f"round {at + 1} ")


KINDS = [np.int64, np.int8, np.uint8, np.uint64]


@pytest.mark.parametrize(
    ("make", "kind", "at"), some(product([three, mixed, adaptive], KINDS, [0, 9, 50, 99]), every=3)
)
def test_classes_that_do_not_exist(make: Make, kind: Any, at: int) -> None:
    for bad in (3, np.iinfo(kind).max, *([-1, np.iinfo(kind).min] if np.iinfo(kind).min else [])):
        classes = CLASSES.astype(kind)
        classes[at] = bad
        message = assert_refused(classes, make, at + 1)
        assert f"is the class {bad}, expected 0 to 2" in message


def test_the_first_of_many_is_named() -> None:
    rows, classes = CORNERS.copy(), CLASSES.copy()
    rows[[60, 41, 99]], classes[[60, 41, 99]] = np.nan, -1
    assert_refused(rows, three, 42)
    assert_refused(classes, three, 42)
    rows[30] = 1.5, -0.5, 0.0  # of which the sum is right
    assert_refused(rows, three, 31)


def test_what_rounding_leaves_below_zero_is_taken() -> None:
    rows = np.where(CORNERS == 0, -1e-12, CORNERS)
    f = three()
    for y in rows:
        f.update(y)
    assert tc.replay(rows, three()).forecast(len(rows)) == f.predict()


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "rain",
        [None] * 3,
        ["a", "b", "c"],
        [0.0, 1.0],
        [1, 0, 0, 0],
        0.5,
        [1 + 1j, 0, 0],
        [10**400, 0, 0],
        {"p": 1},
        np.ma.masked_array([1.0, 0.0, 0.0], [True, False, False]),
    ],
    ids=str,
)
def test_lists_with_something_else_in_them(bad: Any) -> None:
    rows: list[Any] = CORNERS.tolist()
    rows[23] = bad
    assert_refused(rows, three, 24)


@pytest.mark.parametrize("bad", [None, "rain", 0.5, np.nan])
def test_lists_of_classes_with_something_else_in_them(bad: Any) -> None:
    classes: list[Any] = CLASSES.tolist()
    classes[23] = bad
    assert_refused(classes, three, 24)


def masked(rows: Any) -> Any:
    return np.ma.masked_array(rows, mask=np.arange(ROUNDS) == 23 if rows.ndim == 1 else np.arange(ROUNDS * 3) == 70)


def nulls(rows: Any) -> Any:
    values = rows.tolist()
    values[23] = None
    return pa.array(values, type=pa.list_(pa.float64(), 3) if rows.ndim == 2 else None)


def inner_null(rows: Any) -> Any:
    values = rows.tolist()
    values[23][1] = None
    return pa.array(values, type=pa.list_(pa.float64(), 3))


def null_column(rows: Any) -> Any:
    return pa.record_batch([inner_null(rows).flatten()[k::3] for k in range(3)], names=list("abc"))


@pytest.mark.parametrize("missing", [masked, nulls])
@pytest.mark.parametrize("rows", [CORNERS, CLASSES], ids=["rows", "classes"])
def test_missing_outcomes(missing: Callable[[Any], Any], rows: Any) -> None:
    assert_refused(missing(rows), three, 24)


@pytest.mark.parametrize("missing", [inner_null, null_column])
def test_missing_coordinates(missing: Callable[[Any], Any]) -> None:
    assert_refused(missing(CORNERS), three, 24)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "rain",
        3,
        np.float64(0.5),
        CORNERS[:, :2],
        CORNERS[None],
        CORNERS.astype(complex),
        CORNERS.astype(str),
        CORNERS.astype(object),
        CLASSES.astype(float),
        CLASSES.astype(bool),
        CLASSES.astype(str),
        CLASSES.astype("datetime64[s]"),
        [[1, 0, 0], [1, 0]],
        [CLASSES[:5], CLASSES[5:]],
        {"a": [1, 2]},
        pd.DataFrame({"a": ["rain"], "b": ["sun"], "c": ["fog"]}),
        pd.DataFrame({"a": [1.0], "b": [0.0]}),
        pa.array(["rain", "sun"]),
        pa.array([[1.0, 0.0], [1.0]]),
        pa.array([[1.0, 0.0]], pa.list_(pa.float64(), 2)),
    ],
    ids=lambda bad: type(bad).__name__,
)
def test_things_that_are_no_outcomes_at_all(bad: Any) -> None:
    """Whole, or as a chunk that comes after good ones: the round is that of the first bad outcome in it."""
    with pytest.raises(OutcomeError, match=r"\bround [12]\b"):
        replay(bad, three)
    for threads in (1, 3):
        with pytest.raises(OutcomeError, match=r"\bround (101|102)\b"):
            replay(iter([CORNERS, bad, CORNERS]), three, threads=threads)


def test_classes_are_for_the_simplex() -> None:
    for space in (tc.Box(0, 1, dim=2), tc.Ball(3), tc.Product(tc.Simplex(2), tc.Simplex(2))):
        with pytest.raises(OutcomeError, match=rf"expected numbers of shape \(n, {space.dim}\)\.$"):
            tc.replay(np.zeros(4, int), space)


def test_a_bad_class_in_a_chunk_that_is_joined_with_rows() -> None:
    classes = CLASSES.copy()
    classes[30] = 7
    for threads in (1, 3):
        with pytest.raises(OutcomeError, match="round 31 is the class 7"):
            replay(iter([CORNERS[:28], classes[28:32], CORNERS[32:]]), three, threads=threads)


@pytest.mark.parametrize("make", [tc.TreeCal, tc.AdaptiveTreeCal])
@pytest.mark.parametrize("piece", [1, 30, 2**20])
def test_the_horizon(make: Any, piece: int) -> None:
    def fixed() -> Any:
        return make(tc.Simplex(3), arity=3, depth=4)

    for rows in (CORNERS, CLASSES):
        assert replay(rows[:81], fixed, piece=piece).rounds == 81
        for outcomes, options in ways(rows[:82]):
            with pytest.raises(HorizonError, match="round 82 is beyond the horizon: arity 3 and depth 4 make 81"):
                replay(outcomes, fixed, piece=piece, **options)


def test_errors_of_the_iterator_itself_come_through() -> None:
    def broken() -> Iterator[Any]:
        yield CORNERS
        raise OSError("the disk is gone")

    for threads in (1, 3):
        before = threading.active_count()
        with pytest.raises(OSError, match="the disk is gone"):
            replay(broken(), three, threads=threads)
        assert threading.active_count() == before  # no thread is left behind
