"""Parquet files whose columns are read as they stand, by Arrow: every answer is the one that SQL gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from treecal.auditing import audit
from treecal.exceptions import FileError
from treecal.io._parquet import Parquet

NAMES = ["p0", "p1", "p2"]
BAD: dict[str, dict[str, Any]] = {
    "missing": {"p1": None},
    "NaN": {"p0": float("nan")},
    "infinite": {"p2": float("inf")},
    "negative": {"p0": -0.25, "p1": 0.5, "p2": 0.75},
    "too much": {"p0": 0.5, "p1": 0.5, "p2": 0.5},
    "no label": {"y": None},
    "another label": {"y": 7},
}


def log(rows: int, seed: int, bad: dict[int, str], *, label: str = "int64", number: str = "double") -> pa.Table:
    """Rows of three probabilities, a label and a group, some of them bad."""
    rng = np.random.default_rng(seed)
    p, y = rng.dirichlet(np.ones(3), size=rows), rng.integers(3, size=rows)
    records = [
        dict(zip(NAMES, row, strict=True)) | {"y": k, "g": "ab"[k % 2]} for row, k in zip(p, y.tolist(), strict=True)
    ]
    for at, kind in bad.items():
        if at < rows:
            records[at] |= BAD[kind] | {"g": kind}
    columns = {name: pa.array([record[name] for record in records], number) for name in NAMES}
    labels = pa.array([record["y"] for record in records], "int64").cast(label)
    return pa.table(
        columns
        | {"y": labels, "g": pa.array([None if i % 11 == 0 else r["g"] for i, r in enumerate(records)], "string")}
    )


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What Arrow was asked for."""
    asked: list[dict[str, str]] = []
    plain = Parquet.read_columns

    def noted(self: Parquet, file: Any, rows: int, columns: dict[str, str]) -> Any:
        asked.append(columns)
        return plain(self, file, rows, columns)

    monkeypatch.setattr(Parquet, "read_columns", noted)
    return asked


@given(
    rows=st.integers(1, 3000),
    seed=st.integers(0, 2**32),
    bad=st.dictionaries(
        st.one_of(st.integers(0, 2999), st.sampled_from([0, 1023, 1024, 2047])), st.sampled_from([*BAD]), max_size=4
    ),
    label=st.sampled_from(["int64", "int8", "uint32", "string"]),
    number=st.sampled_from(["double", "float"]),
    group=st.sampled_from([1, 700, 10**6]),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equals_the_table_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    direct: list[dict[str, str]],
    rows: int,
    seed: int,
    bad: dict[int, str],
    label: str,
    number: str,
    group: int,
) -> None:
    table, path = log(rows, seed, bad, label=label, number=number), tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(table, path, row_group_size=max(group, rows // 20))
    direct.clear()
    answers: list[Any] = []
    for source in (path, table):
        try:
            found = audit(
                source, forecast=NAMES, outcome="y", by="g", classes=range(3), on_error="collect", exact=False
            )
            answers.append((found.to_dict() | {"source": None}, [tuple(problem) for problem in found.problems]))
        except FileError as error:
            answers.append(str(error).replace("log.parquet", "the table"))
    assert answers[0] == answers[1]
    assert len(direct) == 1


def test_a_group_of_bad_rows_only_is_no_group(tmp_path: Path) -> None:
    pq.write_table(log(100, 0, {50: "NaN"}), tmp_path / "log.parquet")
    found = audit(tmp_path / "log.parquet", forecast=NAMES, outcome="y", by="g", on_error="skip")
    assert list(found.groups) == [("a",), ("b",), (None,)]
    assert sum(part.rounds for part in found.groups.values()) == found.whole.rounds == 99


def test_what_arrow_and_sql_see_differently_is_left_to_sql(tmp_path: Path, direct: list[dict[str, str]]) -> None:
    table = log(50, 0, {})
    expected = audit(table, forecast=NAMES, outcome="y").whole.to_dict()
    path = tmp_path / "log.parquet"
    for names in (["p.0", "p.1", "p.2"], ["p", "P", "p2"]):
        pq.write_table(table.rename_columns([*names, "y", "g"]), path)
        there = ["p", "P_1", "p2"] if names[0] == "p" else names
        assert audit(path, forecast=there, outcome="y").whole.to_dict() == expected
    pq.write_table(table.set_column(3, "y", table["y"].cast("double")), path)
    assert audit(path, forecast=NAMES, outcome="y").whole.to_dict() == expected
    assert not direct
    pq.write_table(table, path)
    assert audit(path, forecast=NAMES, outcome="y").whole.to_dict() == expected
    assert direct == [{"p0": "p0", "p1": "p1", "p2": "p2", "label": "y"}]


def test_text_that_is_none(tmp_path: Path) -> None:
    text = pa.array([b"ab", b"\xff\xfe", b"c"]).view("string")
    table = log(3, 0, {}).set_column(4, "g", text)
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(FileError, match=r"log\.parquet cannot be read: .*UTF8"):
        audit(tmp_path / "log.parquet", forecast=NAMES, outcome="y", by="g", classes=range(3))


def test_pages_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(log(20_000, 0, {}), path, row_group_size=2000)
    content = bytearray(path.read_bytes())
    content[200_000:240_000] = bytes(40_000)  # headers of pages among them
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"log\.parquet cannot be read"):
        audit(path, forecast=NAMES, outcome="y", classes=range(3), exact=False)


def test_how_far_it_is(tmp_path: Path) -> None:
    shares: list[float | None] = []
    pq.write_table(log(300_000, 0, {}), tmp_path / "log.parquet")
    audit(
        tmp_path / "log.parquet",
        forecast=NAMES,
        outcome="y",
        exact=False,
        progress=lambda stage, rows, share: shares.append(share) if stage == "rows" else None,
    )
    assert shares[-1] == 1.0
    assert sorted(share or 0.0 for share in shares) == [share or 0.0 for share in shares]


def test_one_thread_of_arrow_is_enough(tmp_path: Path) -> None:
    """As where there is one processor: whoever has the only thread must not wait for another."""
    p = np.random.default_rng(0).random(200_000)
    pq.write_table(pa.table({"p": p, "q": 1 - p, "y": (p > 0.5).astype(int)}), tmp_path / "log.parquet")
    script = (
        "import sys, pyarrow as pa, treecal as tc; pa.set_cpu_count(1)\n"
        "print(tc.audit(sys.argv[1], forecast=['q', 'p'], outcome='y').whole.rounds)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "log.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "200000\n"
