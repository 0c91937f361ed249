"""Columns that Parquet keeps as plain numbers are read from its pages: to the digit what Arrow reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.auditing.test_codes import answer
from treecal.auditing import _pass, audit
from treecal.exceptions import FileError
from treecal.io import _parquet, _plain


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat files of a few rows as large ones."""
    monkeypatch.setattr(_pass, "_FEW", 0)
    monkeypatch.setattr(_parquet, "_PIECE", 1)
    monkeypatch.setattr(_plain, "_STRIP", 600)
    monkeypatch.setattr(_plain, "_LEAST", 100)


@pytest.fixture
def by_arrow(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each batch that was left to Arrow."""
    rows: list[int] = []
    batches = _parquet.Piece.batches

    def noted(*arguments: Any, **options: Any) -> Any:
        for batch in batches(*arguments, **options):
            rows.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(_parquet.Piece, "batches", noted)
    return rows


def log(rows: int, classes: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), rows)
    return pa.table({f"p{k}": p[:, k] for k in range(classes)} | {"y": rng.integers(classes, size=rows)})


def write(table: pa.Table, path: Path, **options: Any) -> None:
    pq.write_table(table, path, use_dictionary=["y"], **options)


@given(
    rows=st.integers(2, 2000),
    classes=st.integers(2, 7),
    seed=st.integers(0, 2**32),
    group=st.sampled_from([100, 700, 10**6]),
    compression=st.sampled_from(["snappy", "none", "zstd", "gzip", "brotli"]),
    version=st.sampled_from(["1.0", "2.0"]),
    page=st.sampled_from([64, 2000, 2**20]),
    single=st.booleans(),
    required=st.booleans(),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equal_the_rows(
    tmp_path_factory: pytest.TempPathFactory,
    by_arrow: list[int],
    rows: int,
    classes: int,
    seed: int,
    group: int,
    compression: Any,
    version: Any,
    page: int,
    single: bool,
    required: bool,
) -> None:
    table, path = log(rows, classes, seed), tmp_path_factory.mktemp("log") / "log.parquet"
    kinds = [*[pa.float32() if single else pa.float64()] * classes, pa.int64()]
    fields = [pa.field(name, kind, nullable=not required) for name, kind in zip(table.column_names, kinds, strict=True)]
    table = table.cast(pa.schema(fields))
    options = {"compression": compression, "data_page_version": version, "data_page_size": page}
    write(table, path, row_group_size=min(group, -(-rows // 2)), **options)  # a single one is read by one thread
    by_arrow.clear()
    assert answer(path, classes) == answer(table, classes)
    assert sum(by_arrow) == rows * (compression == "brotli")


def test_one_column_of_two_classes(tmp_path: Path, by_arrow: list[int]) -> None:
    table = log(1000, 2, 0).select(["p1", "y"])
    write(table, tmp_path / "log.parquet", row_group_size=300)
    options: dict[str, Any] = {"forecast": "p1", "outcome": "y"}
    found, expected = audit(tmp_path / "log.parquet", **options), audit(table, **options)
    assert found.whole.to_dict() == expected.whole.to_dict()
    assert not by_arrow


def test_duckdb_writes_what_is_read(tmp_path: Path, by_arrow: list[int]) -> None:
    table, path = log(5000, 4, 0), tmp_path / "log.parquet"
    duckdb.from_arrow(table).write_parquet(str(path), row_group_size=2048)
    assert answer(path, 4) == answer(table, 4)
    assert not by_arrow


def test_arrow_resumes_where_a_page_is_otherwise(tmp_path: Path, by_arrow: list[int]) -> None:
    table, path = log(4000, 3, 0), tmp_path / "log.parquet"
    p = table["p1"].to_pylist()
    p[3500] = None  # pages before it hold all their values
    table = table.set_column(1, "p1", pa.array(p))
    write(table, path, row_group_size=3900, data_page_size=4000, compression="none", write_batch_size=100)
    assert answer(path, 3, on_error="collect") == answer(table, 3, on_error="collect")
    assert 0 < sum(by_arrow) < 1500


@pytest.mark.parametrize("numbers", [(0.5, 0.5, 0.5), (-0.5, 1.0, 0.5), (np.nan, 0.5, 0.5), (0.5, 0.5, 2e-6)])
@pytest.mark.parametrize("on_error", ["stop", "skip", "collect"])
def test_an_invalid_row_is_named(
    tmp_path: Path, by_arrow: list[int], numbers: tuple[float, ...], on_error: Any
) -> None:
    table, path = log(1000, 3, 0), tmp_path / "log.parquet"
    columns = [table[name].to_numpy().copy() for name in table.column_names]
    for at in (620, 950):
        for column, value in zip(columns, numbers, strict=False):
            column[at] = value
    table = pa.table(dict(zip(table.column_names, columns, strict=True)))
    write(table, path, row_group_size=700)
    if on_error == "stop":
        with pytest.raises(FileError, match="row 621: "):
            answer(path, 3)
    else:
        assert answer(path, 3, on_error=on_error) == answer(table, 3, on_error=on_error)
    assert not by_arrow


@given(seed=st.integers(0, 2**32), at=st.integers(0, 2**32), value=st.integers(0, 255), checked=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_is_never_worse_than_for_arrow(
    tmp_path_factory: pytest.TempPathFactory, seed: int, at: int, value: int, checked: bool
) -> None:
    """Whatever a byte is changed to: the numbers are those that Arrow reads, or was to read; or there are none."""
    table, path = log(500, 2, seed), tmp_path_factory.mktemp("log") / "log.parquet"
    write(table, path, compression="none", data_page_size=400, write_page_checksum=checked)
    metadata = pq.ParquetFile(path).metadata
    content = bytearray(path.read_bytes())
    headers = [k for k in range(len(content)) if content[k : k + 2] == b"\x15\x00"]  # how a page of values begins
    places = [headers[at % len(headers)] + at % 40, 4 + at % (len(content) // 2)]
    content[places[seed % 2]] = value
    path.write_bytes(content)
    done, kinds = 0, {"p0": pa.float64(), "p1": pa.float64(), "y": pa.int64()}
    for numbers, codes, labels in _plain.read_strips(path, metadata, 0, kinds):
        try:
            read = pq.ParquetFile(path, metadata=metadata, page_checksum_verification=True).read(list(kinds))
        except (OSError, pa.ArrowException):  # a field of a header that nobody needs
            read = table
        *expected, y = (column.to_numpy()[done : done + len(codes)] for column in read.columns)
        assert np.array_equal(numbers, expected, equal_nan=True)
        assert np.array_equal(labels.to_numpy()[codes], y)
        done += len(codes)
