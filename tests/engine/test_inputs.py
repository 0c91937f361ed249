"""The form in which outcomes come, whole or in chunks, and the number of threads make no difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import treecal as tc
from tests.engine.support import DISTANCES, Make, corners, horizon, labelled_errors, makers, replay
from tests.strategies import spaces, streams
from treecal._typing import Array
from treecal.engine import Run
from treecal.exceptions import UnsupportedError

CLASSES = np.random.default_rng(5).integers(3, size=60)
CORNERS = corners(3, CLASSES)
POINTS = np.random.default_rng(6).uniform(-1, 1, size=(60, 3)).astype(np.float32).astype(np.float64)


def three() -> tc.TreeCal:
    return tc.TreeCal(tc.Simplex(3), arity=3)


def box() -> tc.TreeCal:
    return tc.TreeCal(tc.Box(-1, 1, dim=3), arity=3)


def read_only(rows: Any) -> Any:
    rows = rows.copy()
    rows.setflags(write=False)
    return rows


def unaligned(rows: Any) -> Any:
    packed = np.zeros(len(rows), np.dtype([("byte", "i1"), ("rows", rows.dtype, rows.shape[1:])]))
    packed["rows"] = rows
    return packed["rows"]


def columns(rows: Any) -> dict[str, Any]:
    return {f"p{k}": rows[:, k] for k in range(rows.shape[1])}


def lists(rows: Any) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


Form = Callable[[Any], Any]


def as_type(kind: str) -> Form:
    return lambda rows: rows.astype(kind)


ANY: dict[str, Form] = {
    "strided": lambda rows: np.repeat(rows, 2, axis=0)[::2],
    "backwards": lambda rows: rows[::-1].copy()[::-1],
    "read-only": read_only,
    "unaligned": unaligned,
    "big-endian": lambda rows: rows.astype(rows.dtype.newbyteorder(">")),
    "list": lambda rows: rows.tolist(),
    "tuple": lambda rows: tuple(rows.tolist()),
    "masked, nothing hidden": lambda rows: np.ma.masked_array(rows),
}
ROWS: dict[str, Form] = {
    **ANY,
    "Fortran": np.asfortranarray,
    "every second column": lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
    "float32": lambda rows: rows.astype(np.float32),
    "long double": lambda rows: rows.astype(np.longdouble),
    "list of arrays": list,
    "pandas": lambda rows: pd.DataFrame(columns(rows)),
    "polars": lambda rows: pl.DataFrame(columns(rows)),
    "Arrow table": lambda rows: pa.table(columns(rows)),
    "Arrow batch": lambda rows: pa.record_batch(columns(rows)),
    "Arrow lists": lists,
    "Arrow lists, sliced": lambda rows: lists(np.concatenate([rows[:7], rows])).slice(7),
    "Arrow lists in a table": lambda rows: pa.table({"y": lists(rows)}),
}
ONE_HOT: dict[str, Form] = {
    **{f"rows of {kind}": as_type(kind) for kind in ("bool", "int8", "uint64", "float16")},
    **ROWS,
}
LABELS: dict[str, Form] = {
    **{kind: as_type(kind) for kind in ("int8", "uint8", "int32", "uint64")},
    **ANY,
    "pandas": pd.Series,
    "polars": pl.Series,
    "Arrow": pa.array,
    "Arrow chunks": lambda classes: pa.chunked_array([classes[:9], classes[9:9], classes[9:]]),
    "Arrow table": lambda classes: pa.table({"class": classes}),
}


def assert_same(run: Run, expected: Run) -> None:
    assert run.rounds == expected.rounds
    assert labelled_errors(run) == labelled_errors(expected)
    for distance in DISTANCES:
        assert run.error(distance) == expected.error(distance)
    for t in range(0, run.rounds + 1, 7):
        assert run.forecast(t) == expected.forecast(t)


@pytest.mark.parametrize("form", ROWS)
def test_rows_of_any_form(form: str) -> None:
    assert_same(replay(ROWS[form](POINTS), box), replay(POINTS, box))


@pytest.mark.parametrize("form", ONE_HOT)
def test_one_hot_rows_of_any_form(form: str) -> None:
    assert_same(replay(ONE_HOT[form](CORNERS), three), replay(CORNERS, three))


ALONE = pytest.param("int32", marks=pytest.mark.heavy)  # compiled by itself, as uint8 is


@pytest.mark.parametrize("form", [ALONE if form == "int32" else form for form in LABELS])
def test_classes_of_any_form(form: str) -> None:
    assert_same(replay(LABELS[form](CLASSES), three), replay(CLASSES, three))


@pytest.mark.parametrize("form", ["list", "float32", "Arrow batch", "Arrow lists"])
def test_one_coordinate(form: str) -> None:
    def make() -> tc.TreeCal:
        return tc.TreeCal(tc.Box(-1, 1, dim=1), arity=3)

    assert_same(replay(ROWS[form](POINTS[:, :1]), make), replay(POINTS[:, :1], make))


@pytest.mark.parametrize("make", [three, box, lambda: tc.AdaptiveTreeCal(tc.Simplex(3), arity=3)])
def test_memory_maps(make: Make, tmp_path: Path) -> None:
    simplex = isinstance(make().space, tc.Simplex)
    forms: list[Any] = [CORNERS, CLASSES, CLASSES.astype(np.uint8)] if simplex else [POINTS, POINTS.astype("f4")]
    for rows in forms:
        path = tmp_path / f"{rows.dtype}{rows.ndim}"
        rows.tofile(path)
        for mode in ("r", "r+"):
            mapped = np.memmap(path, rows.dtype, mode, shape=rows.shape)
            run = replay(mapped, make)
            assert_same(run, replay(rows, make))
            assert isinstance(run._rows, np.memmap)  # not read into memory


def cut(rows: Any, data: st.DataObject) -> list[Any]:
    """Cut anywhere, into chunks some of which are empty."""
    places = data.draw(st.lists(st.integers(0, len(rows)), max_size=12).map(sorted))
    return [rows[a:b] for a, b in zip([0, *places], [*places, len(rows)], strict=True)]


@given(st.data(), st.sampled_from([1, 12, 40]))
@settings(max_examples=20, deadline=None)
def test_chunks_and_threads_make_no_difference(data: st.DataObject, piece: int) -> None:
    space = data.draw(spaces())
    make = data.draw(makers(space))
    rounds = data.draw(st.integers(1, horizon(make(), 100)))
    outcomes: Any = streams(space, rounds, data.draw(st.integers(0, 10**6)))
    if isinstance(space, tc.Simplex) and data.draw(st.booleans()):
        outcomes = outcomes.argmax(axis=1)
    expected = labelled_errors(replay(outcomes, make, piece=piece, distances=DISTANCES, threads=1))
    assert labelled_errors(replay(outcomes, make, piece=piece, threads=1)) == pytest.approx(expected, rel=1e-12)
    for threads in (1, 2, 3):
        options: dict[str, Any] = {"piece": piece, "threads": threads, "distances": DISTANCES}
        assert labelled_errors(replay(outcomes, make, **options)) == expected
        chunks = cut(outcomes, data)
        run = replay(iter(chunks), make, **options)
        assert run.rounds == rounds
        assert labelled_errors(run) == expected


def test_chunks_of_every_form_in_one_stream() -> None:
    """Classes, rows, lists, Arrow and empty ones, in one piece: what differs is only how classes are rounded."""
    chunks = [CLASSES[:5], [], CORNERS[5:9], CORNERS[9:20].tolist(), pa.array(CLASSES[20:31]), lists(CORNERS[31:])]
    expected = replay(CORNERS, three)
    for piece in (1, 40, 2**20):
        run = replay(iter(chunks), three, piece=piece, distances=["linf"])
        assert labelled_errors(run) == pytest.approx(labelled_errors(expected), abs=1e-12)


def test_arrow_readers_are_iterators() -> None:
    table = pa.table(columns(POINTS))
    reader = table.to_reader(max_chunksize=11)
    run = replay(reader, box, distances=["linf"])
    assert labelled_errors(run) == labelled_errors(replay(POINTS, box, distances=["linf"]))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [1, 7, 30, 60])
def test_an_iterator_may_fill_one_buffer_again_and_again(threads: int, size: int) -> None:
    def chunks(rows: Any) -> Iterator[Any]:
        buffer = np.empty((size, *rows.shape[1:]), rows.dtype)
        for start in range(0, len(rows), size):
            part = buffer[: len(rows[start : start + size])]
            part[:] = rows[start : start + size]
            yield part
            buffer[:] = 0

    for rows, make in ((POINTS, box), (CLASSES, three)):
        run = replay(chunks(rows), make, threads=threads, distances=["linf"])
        assert labelled_errors(run) == labelled_errors(replay(rows, make, distances=["linf"]))


@pytest.mark.parametrize("adaptive", [False, True])
def test_an_iterator_is_read_once(adaptive: bool) -> None:
    """What it takes a second reading for is refused, with the way out."""

    def make() -> tc.TreeCal | tc.AdaptiveTreeCal:
        return tc.AdaptiveTreeCal(tc.Simplex(3)) if adaptive else three()

    run = replay(iter([CORNERS]), make, distances=[tc.l1.squared])
    whole = replay(CORNERS, make)
    for distance in (tc.l1, tc.l2, tc.l2.squared, tc.l1.squared):
        assert run.error(distance, per_node=True) == pytest.approx(whole.error(distance, per_node=True), rel=1e-12)
    whole_array = "pass all outcomes as one array."
    second: list[tuple[Callable[[], Any], str]] = [
        (lambda: run.error("linf", per_node=True), "pass replay(..., distances=[linf])."),
        (lambda: run.error("l1"), whole_array),
        (run.exact, whole_array),
        (run.table, whole_array),
        (run.ledger, whole_array),
        (lambda: run.forecast(3), whole_array),
    ]
    for ask, hint in second:
        with pytest.raises(UnsupportedError, match="from an iterator cannot be read twice") as caught:
            ask()
        assert str(caught.value).endswith(f"Hint: {hint}")


def test_the_outcomes_are_never_written_to() -> None:
    rows: Array = CORNERS.copy()
    classes = CLASSES.copy()
    for outcomes in (rows, classes):
        for make in (three, lambda: tc.AdaptiveTreeCal(tc.Simplex(3)), lambda: tc.TreeCal(tc.Simplex(3), mix=0.5)):
            run = replay(outcomes, make)
            run.exact()
            run.ledger()
            run.forecast(40)
    assert (rows == CORNERS).all()
    assert (classes == CLASSES).all()
