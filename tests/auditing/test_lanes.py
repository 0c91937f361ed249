"""Parquet is counted by several threads: to the digit what its rows give."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.some import some
from treecal.auditing import _log, audit
from treecal.exceptions import FileError
from treecal.io import _outcomes

Answer = dict[str, Any]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three threads count files of a few rows, some rows at a time."""
    monkeypatch.setattr(_log, "processors", lambda: 3)
    monkeypatch.setattr(_outcomes, "_LEAST", 1)
    monkeypatch.setattr(_outcomes, "_ROWS", 70)


def grid(rows: int, classes: int, steps: int | None, seed: int) -> pa.Table:
    """Probabilities that are multiples of `1 / steps`, or any, and labels."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), size=rows)
    if steps is not None:
        p = rng.multinomial(steps, p) / steps
    labels = rng.integers(classes, size=rows)
    return pa.table({f"p{k}": p[:, k] for k in range(classes)} | {"y": labels, "g": labels % 2})


def answer(source: Any, classes: int, **options: Any) -> Answer:
    names = [f"p{k}" for k in range(classes)]
    found = audit(source, forecast=names, outcome="y", classes=range(classes), exact=False, **options)
    return found.to_dict() | {"source": None, "invalid_rows": [tuple(problem) for problem in found.problems]}


@given(
    rows=st.integers(2, 3000),
    classes=st.integers(2, 7),
    steps=st.sampled_from([1, 10, 100, None]),
    seed=st.integers(0, 2**32),
    bins=st.sampled_from([1, 7, 10, 100]),
    group=st.sampled_from([1, 100, 700, 10**6]),
    compression=st.sampled_from(["snappy", "none", "zstd", "gzip", "brotli"]),
    version=st.sampled_from(["1.0", "2.0"]),
    page=st.sampled_from([64, 2000, 2**20]),
    dictionary=st.booleans(),
    single=st.booleans(),
    required=st.booleans(),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equal_the_rows(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    classes: int,
    steps: int | None,
    seed: int,
    bins: int,
    group: int,
    compression: Any,
    version: Any,
    page: int,
    dictionary: bool,
    single: bool,
    required: bool,
) -> None:
    table, path = grid(rows, classes, steps, seed), tmp_path_factory.mktemp("log") / "log.parquet"
    kinds = [*[pa.float32() if single else pa.float64()] * classes, pa.int64(), pa.int64()]
    fields = [pa.field(name, kind, nullable=not required) for name, kind in zip(table.column_names, kinds, strict=True)]
    table = table.cast(pa.schema(fields))
    size = max(min(group, -(-rows // 2)), rows // 20)
    options: Any = {"compression": compression, "data_page_version": version, "data_page_size": page}
    pq.write_table(table, path, row_group_size=size, use_dictionary=dictionary, **options)
    assert answer(path, classes, bins=bins) == answer(table, classes, bins=bins)


@pytest.mark.parametrize("label", ["int8", "int32", "uint32", "string"])
@pytest.mark.parametrize("number", ["double", "float"])
def test_every_type(tmp_path: Path, label: str, number: str) -> None:
    table = grid(500, 3, 8, 0)
    schema = pa.schema([*((f"p{k}", number) for k in range(3)), ("y", label), ("g", "int64")])
    table = table.cast(schema)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=200)
    assert answer(tmp_path / "log.parquet", 3) == answer(table, 3)


def test_other_writers(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    table, path = grid(5000, 4, 20, 0), tmp_path / "log.parquet"
    expected = answer(table, 4)
    polars.from_arrow(table).write_parquet(path, row_group_size=2000)
    assert answer(path, 4) == expected
    duckdb.from_arrow(table).write_parquet(str(path), row_group_size=2048)
    assert answer(path, 4) == expected


def test_one_column_of_two_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    p = rng.integers(101, size=5000) / 100
    table = pa.table({"p": p, "y": (rng.random(5000) < p).astype(int)})
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=1500)
    options: dict[str, Any] = {"forecast": "p", "outcome": "y"}
    found, expected = audit(tmp_path / "log.parquet", **options), audit(table, **options)
    assert found.whole.to_dict() == expected.whole.to_dict()


INVALID: list[tuple[list[float | None], int | None]] = [
    ([0.5, 0.5, 0.5], 0),
    ([-0.5, 1.0, 0.5], 1),
    ([None, 0.5, 0.5], 1),
    ([float("nan"), 0.5, 0.5], 1),
    ([float("inf"), 0.5, 0.5], 1),
    ([0.5, 0.5, 2e-6], 2),
    ([0.5, 0.5, 0.0], 3),
    ([0.5, 0.5, 0.0], None),
]


@pytest.mark.parametrize(("row", "on_error"), some(product(range(len(INVALID)), ["stop", "skip", "collect"]), every=2))
def test_an_invalid_row_is_named(tmp_path: Path, row: int, on_error: Any) -> None:
    table = grid(1000, 3, 10, 0)
    numbers, label = INVALID[row]
    columns = [table[name].to_pylist() for name in table.column_names]
    for at in (620, 950):
        for column, value in zip(columns, [*numbers, label, 0], strict=True):
            column[at] = value
    table = pa.table(dict(zip(table.column_names, columns, strict=True)))
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=100)
    if on_error == "stop":
        messages = []
        for source in (tmp_path / "log.parquet", table):
            with pytest.raises(FileError, match="row 621: ") as error:
                answer(source, 3)
            messages.append(str(error.value).partition(",")[2])
        assert messages[0] == messages[1]
    else:
        assert answer(tmp_path / "log.parquet", 3, on_error=on_error) == answer(table, 3, on_error=on_error)


def test_rows_at_the_edge_of_the_tolerance(tmp_path: Path) -> None:
    rows = [(0.5, 0.5 + 1e-6 * (1 + k * 1e-10)) for k in range(-5, 5)]
    table = pa.table({"p0": [a for a, _ in rows], "p1": [b for _, b in rows], "y": [0, 1] * 5})
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=3)
    assert answer(tmp_path / "log.parquet", 2, on_error="skip") == answer(table, 2, on_error="skip")


def test_groups_and_weights_are_counted_in_threads_as_well(tmp_path: Path) -> None:
    table = grid(4000, 3, 10, 0)
    table = table.append_column("w", pa.array(np.random.default_rng(0).integers(3, size=4000)))
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=300)
    for options in ({"by": "g"}, {"weight": "w"}, {"by": ("g", "y"), "weight": "w"}):
        assert answer(tmp_path / "log.parquet", 3, **options) == answer(table, 3, **options)


def test_only_the_first_of_many_invalid_rows_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = grid(3000, 3, 10, 0)
    labels = np.where(np.arange(3000) % 3 == 0, 9, np.arange(3000) % 3)
    table = table.set_column(3, "y", pa.array(labels))
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=100)
    monkeypatch.setattr("treecal.io._problems._MOST", 40)
    for on_error, kept in (("skip", 5), ("collect", 40)):
        found = answer(tmp_path / "log.parquet", 3, on_error=on_error)
        assert found["invalid"] == 1000
        assert [row for row, *_ in found["invalid_rows"]] == [1 + 3 * k for k in range(kept)]
        assert found == answer(table, 3, on_error=on_error)


def test_a_damaged_page_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(grid(2000, 3, 10, 0), path, row_group_size=500, write_page_checksum=True, compression="none")
    group = pq.ParquetFile(path).metadata.row_group(2).column(1)
    content = bytearray(path.read_bytes())
    content[group.data_page_offset + group.total_compressed_size // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"log\.parquet cannot be read: .*checksum"):
        answer(path, 3)
