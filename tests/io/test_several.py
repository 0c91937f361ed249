"""Several files as one log: folders, patterns and lists of paths."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.some import some

import treecal as tc
from treecal.auditing import Audit
from treecal.exceptions import FileError
from treecal.io import open_source

DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]
KINDS = ["parquet", "csv", "csv.gz", "jsonl", "jsonl.gz"]


def table(rows: int = 600) -> pa.Table:
    rng = np.random.default_rng(0)
    p = rng.integers(21, size=rows) / 20
    days = np.repeat(DAYS, rows // 3)
    return pa.table({"p": p, "y": (rng.random(rows) < p).astype(int), "day": days})


def write(path: Path, rows: pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(rows, path)
        return path
    records = rows.to_pylist()
    text = "".join(json.dumps(record) + "\n" for record in records)
    if ".csv" in path.name:
        lines = [rows.column_names, *([record[name] for name in rows.column_names] for record in records)]
        text = "".join(",".join(map(str, line)) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def split(folder: Path, kind: str, *, hive: bool = True) -> list[Path]:
    """Write two files for each day, and others that are not meant."""
    rows, paths = table(), list[Path]()
    for number, day in enumerate(DAYS):
        own = rows.filter(pa.array([value == day for value in rows["day"].to_pylist()]))
        own = own.drop_columns("day") if hive else own
        for half in range(2):
            where = folder / f"day={day}" if hive else folder
            paths.append(write(where / f"part-{number}{half}.{kind}", own.slice(100 * half, 100)))
        (paths[-1].parent / "_SUCCESS").touch()
        (paths[-1].parent / f".part-{number}.{kind}.crc").write_text("?")
    write(folder / "_delta_log" / "0.csv", pa.table({"other": [1]}))
    return paths


def audited(source: Any, **options: Any) -> Audit:
    found: Audit = tc.audit(source, **{"forecast": "p", "outcome": "y", "classes": [0, 1], **options})
    return found


def digits(found: Audit) -> Any:
    return found.to_dict() | {"source": None}


@pytest.mark.parametrize("kind", some(KINDS, every=3))
def test_a_folder_is_the_table_that_it_was_split_from(tmp_path: Path, kind: str) -> None:
    paths = split(tmp_path / "log", kind)
    options: dict[str, Any] = {"by": "day", "time": "day", "norms": ["l1"]}
    expected = digits(audited(table(), **options))
    folder = tmp_path / "log"
    for source in (folder, str(folder), f"{folder}/day=*", f"{folder}/**/*.{kind}", [f"{folder}/day=*-0[12]", folder]):
        assert digits(audited(source, **options)) == expected, source
    assert audited(folder).source == str(folder)
    assert audited(f"{folder}/day=*").source == f"{folder}/day=*"
    listed = audited(paths)
    assert listed.source == f"day=2026-01-01/part-00.{kind} and 5 other files"
    assert listed.whole.to_dict() == audited(table()).whole.to_dict()
    with pytest.raises(FileError, match="has no column 'day'"):  # these are files, not what a folder holds
        audited(paths, by="day")


@pytest.mark.parametrize("kind", KINDS)
def test_an_invalid_row_is_named_with_its_file(tmp_path: Path, kind: str) -> None:
    paths = split(tmp_path / "log", kind)
    bad = pa.table({"p": [0.5, 1.5, 0.5], "y": [0, 1, 7]})
    write(paths[3], bad)
    place = r"row 2" if kind == "parquet" else r"line [23] \(row 2\)"
    with pytest.raises(FileError, match=rf"^day=2026-01-02/part-11\.{kind}, {place}: p is 1.5, expected a prob"):
        audited(tmp_path / "log")
    found = audited(tmp_path / "log", on_error="collect")
    assert [(problem.file, problem.row) for problem in found.problems] == [
        (f"day=2026-01-02/part-11.{kind}", 2 + k) for k in (0, 1)
    ]
    assert found.whole.rounds == 501
    assert found.to_dict()["invalid_rows"][0]["file"] == f"day=2026-01-02/part-11.{kind}"
    assert str(found.problems).count(f"part-11.{kind}, ") == 2
    write(paths[0], bad)
    both = audited(tmp_path / "log", on_error="skip").problems
    assert [problem.file[-len(kind) - 3 :][:2] for problem in both if problem.file] == ["00", "00", "11", "11"]


def test_files_are_read_in_order(tmp_path: Path) -> None:
    """So that rows are in the order of time, and a monitor can watch them, whatever delimiters the files have."""
    paths = split(tmp_path, "csv", hive=False)
    paths[2].write_text(paths[2].read_text().replace(",", ";"))
    found = audited(tmp_path, time="day")
    assert found.windows is not None
    assert found.windows.in_order
    assert digits(found) == digits(audited(table(), time="day"))
    turned = audited(paths[::-1], time="day")
    assert turned.windows is not None
    assert not turned.windows.in_order
    assert turned.whole.to_dict() == found.whole.to_dict()


def test_columns_may_be_in_any_order_and_more_in_some(tmp_path: Path) -> None:
    rows = table()
    for kind in ("parquet", "csv", "jsonl"):
        folder = tmp_path / kind
        write(folder / f"a.{kind}", rows.slice(0, 200))
        write(folder / f"b.{kind}", rows.slice(200, 200).select(["day", "y", "p"]))
        write(folder / f"c.{kind}", rows.slice(400).append_column("more", pa.array(["x"] * 200)))
        assert digits(audited(folder, by="day")) == digits(audited(rows, by="day"))
        if kind != "jsonl":  # where a key may be missing
            with pytest.raises(
                FileError, match=rf"^a\.{kind} has no column 'more', as c\.{kind} has\.\n\nHint: all files"
            ):
                audited(folder, by="more")
        with pytest.raises(FileError, match="has no column 'dya'"):
            audited(folder, by="dya")
    whole = rows.set_column(1, "y", rows["y"].cast("string"))
    write(tmp_path / "parquet" / "d.parquet", whole)
    message = r"^column 'y' holds BIGINT values in a\.parquet, but VARCHAR values in d\.parquet\."
    with pytest.raises(FileError, match=message):
        audited(tmp_path / "parquet")


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "_SUCCESS").touch()
    write(tmp_path / "both" / "a.csv", table())
    write(tmp_path / "both" / "b.parquet", table())
    write(tmp_path / "odd" / "a.csv", table())
    (tmp_path / "odd" / "a.csv.zst").write_bytes(b"?")
    write(tmp_path / "twice" / "day=1" / "a.csv", table())
    write(tmp_path / "blank" / "a.csv", table())
    (tmp_path / "blank" / "b.csv").touch()
    for source, message in {
        tmp_path / "none": r"there is no file in the folder .*none\.\n\nHint: CSV as \.csv",
        tmp_path / "none" / "*.csv": r"there is no file .*\*\.csv, and none that matches it as a pattern\.",
        tmp_path / "nowhere": r"there is no file .*nowhere\.$",
        tmp_path / "both": r"a\.csv is CSV and b\.parquet is Parquet, expected files of one format",
        tmp_path / "odd": r"(?s)the format of .*odd.a\.csv\.zst is unknown.*leave it out by a pattern",
        tmp_path / "twice": r"a\.csv has a column 'day', and so has its folder",
        tmp_path / "blank": r"b\.csv is empty",
    }.items():
        with pytest.raises(FileError, match=message):
            audited(source)
    assert audited(tmp_path / "odd" / "*.csv").whole.rounds == 600


def test_values_of_folders_are_text_and_may_be_missing(tmp_path: Path) -> None:
    rows = table().drop_columns("day")
    for name in ("a%20b=1%2F2", "a%20b=__HIVE_DEFAULT_PARTITION__"):
        write(tmp_path / name / "x=07" / "log.parquet", rows)
    found = audited(tmp_path, by=["a b", "x"])
    assert list(found.groups) == [("1/2", "07"), (None, "07")]
    assert audited(tmp_path, by="x").groups["07",].rounds == 1200


def test_a_name_that_exists_is_no_pattern(tmp_path: Path) -> None:
    write(tmp_path / "a*.csv", table().slice(0, 10))
    write(tmp_path / "ab.csv", table())
    assert audited(tmp_path / "a*.csv").whole.rounds == 10
    assert audited(tmp_path / "a?.csv").whole.rounds == 610


def test_files_are_large_together(tmp_path: Path) -> None:
    """The progress is that of all files, also of those without rows."""
    rows = table()
    for k in range(6):
        pq.write_table(rows.slice(100 * k, 100), tmp_path / f"{k}.parquet", row_group_size=30)
    pq.write_table(rows.slice(0, 0), tmp_path / "7.parquet")
    assert digits(audited(tmp_path, by="day")) == digits(audited(rows, by="day"))
    shares: list[Any] = []
    audited(
        tmp_path, exact=False, progress=lambda stage, rows, share: shares.append(share) if stage == "rows" else None
    )
    assert shares == sorted(shares)
    assert shares[-1] > 0.9


def test_rows_come_file_by_file(tmp_path: Path) -> None:
    paths = split(tmp_path, "csv")
    source = open_source(tmp_path)
    assert [row.value["p"] for row in source.rows()] == [str(p) for p in table()["p"].to_pylist()]
    assert [part.name for part in source.parts()] == [str(path.relative_to(tmp_path)) for path in paths]
