"""Files that are damaged, hostile or oddly named: a refusal in one sentence, or what the file says, nothing else."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import stat
import tempfile
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import treecal as tc
from tests.attack.test_audits import expected, measured, same
from tests.some import some
from treecal.cli import main
from treecal.cli._rows import blocks
from treecal.exceptions import FileError, TreeCalError
from treecal.io import Decoder, open_source, read_outcomes
from treecal.io._text import LINE

CLASSES = ["rain", "sun"]
SPACE = tc.Simplex(classes=CLASSES)
KINDS = ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet", "checked.parquet"]


# Damage


def undamaged(kind: str, rng: random.Random) -> bytes:
    """A small file: probabilities, outcomes and a note."""
    rows = rng.choice([2, 10, 60])
    p = [rng.choice([0.25, 0.5, 1.0, rng.random()]) for _ in range(rows)]
    notes = rng.choices(["", "plain", 'a "b", c', "two\nlines", "é"], k=rows)
    table = pa.table({"a": p, "b": [1 - x for x in p], "y": rng.choices(CLASSES, k=rows), "note": notes})
    file = io.BytesIO()
    if kind.endswith("parquet"):
        pq.write_table(
            table,
            file,
            row_group_size=rng.choice([7, 100]),
            write_page_checksum=kind.startswith("checked"),
            use_dictionary=rng.random() < 0.5,
            compression=rng.choice(["none", "snappy", "zstd"]),
        )
        return file.getvalue()
    text = io.StringIO()
    if kind.startswith("csv"):
        sheet = csv.DictWriter(text, table.column_names, lineterminator=rng.choice(["\n", "\r\n"]))
        sheet.writeheader()
        sheet.writerows(table.to_pylist())
    else:
        text.writelines(json.dumps(row) + "\n" for row in table.to_pylist())
    data = text.getvalue().encode()
    return gzip.compress(data, mtime=0) if kind.endswith("gz") else data


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The same bytes with a few of them changed, cut, added, or given twice."""
    content = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(content) or 1)
        size = rng.choice([1, 1, 2, 8, 60])
        match rng.randrange(6):
            case 0:
                content[at : at + 1] = bytes([(content[at] if content else 0) ^ (1 << rng.randrange(8))])
            case 1:
                content[at : at + size] = rng.randbytes(size)
            case 2:
                del content[at : at + size]
            case 3:
                content[at:at] = rng.choice([b'"', b",", b"\n", b"\r", b"\0", b"\xff", b"{", b"]", b"\\", b"0", b"nan"])
            case 4:
                content[at:at] = content[at : at + size]
            case 5:
                del content[at:]
    return bytes(content)


# What a file says, read by other means


def number(text: Any) -> float:
    """A probability, or NaN."""
    if isinstance(text, str):
        text = text.strip(" ")
    try:
        return float("nan") if isinstance(text, bool) or "_" in str(text) or not str(text).isascii() else float(text)
    except (TypeError, ValueError):
        return float("nan")


def judged(rows: list[Any], *, forecasts: bool) -> tuple[Any, Any, int]:
    """The valid rows among these, which are None where they are malformed, and the number of the others."""
    points, outcomes = [], []
    for row in rows:
        cells = row if isinstance(row, dict) else {}
        p = [number(cells.get(name)) for name in ("a", "b")]
        fine = not forecasts or (min(p) >= 0 and abs(p[0] + p[1] - 1) <= 1e-6)
        label = cells.get("y")
        label = label.decode(errors="replace") if isinstance(label, bytes) else label  # not marked as text any more
        label = label.strip(" ") if isinstance(label, str) else label
        if fine and label in CLASSES:
            points.append(p)
            outcomes.append(CLASSES.index(label))
    return np.array(points), np.array(outcomes, int), len(rows) - len(points)


def independent(kind: str, data: bytes, used: list[str], *, whole: bool) -> list[Any]:
    """The rows of a file; it raises an error where these columns cannot be read."""
    if kind.endswith("parquet"):
        file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
        return list(file.read(used).to_pylist())
    text = gzip.decompress(data) if kind.endswith("gz") else data
    if kind.startswith("jsonl"):
        return [value_of(line, whole=whole) for line in text.split(b"\n") if line.strip()]
    lines = text.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape").split("\n")
    ends = [line + "\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    names, *records = csv.reader(ends, strict=True, skipinitialspace=True)
    names = [name.strip() for name in names]
    width = len(names)
    rows = [
        dict(zip(names, cells, strict=False)) if cells[width:] in ([], [""]) and len(cells) >= width else {}
        for cells in records  # a delimiter at the end of a line does no harm
        if cells
    ]
    return [row if is_utf8([row.get(name, "") for name in used]) else {} for row in rows]


def is_utf8(cells: list[str]) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in "".join(cells))


def value_of(line: bytes, *, whole: bool) -> Any:
    """The value of a line; a stream reads the whole of it, and refuses a key that is there twice in any column."""

    def only_once(pairs: list[tuple[str, Any]]) -> dict[str, Any] | None:
        return None if whole and len(dict(pairs)) < len(pairs) else dict(pairs)

    try:
        return json.loads(line.decode(), object_pairs_hook=only_once)
    except ValueError:
        return None


def attempt(rng: random.Random, folder: Path) -> tuple[str, str]:
    """Damage one file and read it; return how that ended, and what was wrong with it."""
    kind, how = rng.choice(KINDS), rng.choice(["audit", "audit", "replay", "forecast"])
    data = damaged(undamaged(kind, rng), rng)
    path = folder / f"log.{kind}"
    path.write_bytes(data)
    try:
        rounds, invalid, whole = read(how, path)
    except TreeCalError as error:
        short = all(len(part) < 700 and "\n\n" not in part for part in str(error).split("\n\nHint: ", 1))
        return "refused", "" if short else f"{kind}, {how}: a long message: {error!s:.900}"
    except Exception as error:  # whatever it is, it is reported
        return "failed", f"{kind}, {how}: {type(error).__name__}: {error!s:.200}"
    used = ["a", "b", "y"] if how == "audit" else ["y"]
    try:
        p, y, others = judged(independent(kind, data, used, whole=how == "forecast"), forecasts=how == "audit")
    except Exception as error:
        if kind == "csv" and isinstance(error, csv.Error | ValueError):
            return "lenient", ""  # malformed quotes, which the standard library gives up on
        return "failed", f"{kind}, {how}: read, though {type(error).__name__}: {error!s:.200}"
    if (rounds, invalid) != (len(y), others):
        return "failed", f"{kind}, {how}: {rounds} rows and {invalid} invalid ones, expected {len(y)} and {others}"
    if whole is not None and not same(measured(whole), expected(p, y, 10)):
        return "failed", f"{kind}, {how}: {measured(whole)}, expected {expected(p, y, 10)}"
    return "read", ""


def read(how: str, path: Path) -> tuple[int, int, Any]:
    """Read a file as a command does: how many rows it has, and how many invalid ones; for an audit, its numbers."""
    if how == "audit":
        found = tc.audit(path, forecast=["a", "b"], outcome="y", classes=CLASSES, on_error="skip")
        return found.whole.rounds, found.problems.count, found.whole
    if how == "replay":
        outcomes = read_outcomes(path, outcome="y", classes=CLASSES, on_error="skip")
        rounds = sum(len(chunk.rows) for chunk in outcomes)
        return rounds, outcomes.problems.count, None
    decoder, counts = Decoder(SPACE, outcome=["y"]), [0, 0]
    with blocks(str(path), decoder) as stream:
        for row in (row for block in stream for row in block.rows):
            try:
                decoder.outcome(row.read())
                counts[0] += 1
            except TreeCalError:
                counts[1] += 1
    return counts[0], counts[1], None


def run(count: int, seed: int, seconds: float = np.inf) -> Counter[str]:
    """Damage and read so many files; return how many were tried, refused and read, and what failed."""
    counts: Counter[str] = Counter(tried=0, failures=0)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            if time.monotonic() - start > seconds:
                break
            ended, wrong = attempt(random.Random(f"{seed} {number}"), Path(folder))
            counts["tried"] += 1
            counts[ended] += 1
            if wrong:
                counts["failures"] += 1
                print(f"attack {seed} {number}: {wrong}")
    return counts


def test_damaged_files_are_refused_or_read_as_they_are() -> None:
    counts = run(50, 0)
    assert (counts["tried"], counts["failures"]) == (50, 0)


@pytest.mark.attack
def test_ten_thousand_damaged_files(attack_seed: int, attack_seconds: float) -> None:
    counts = run(10_000, attack_seed, attack_seconds)
    print(f"damaged files, seed {attack_seed}: {dict(counts)}")
    assert counts["tried"]
    assert not counts["failures"]


# Records that were lost, and files taken for others


def audited(path: Path, **options: Any) -> Any:
    return tc.audit(path, **{"forecast": "p", "outcome": "y", "classes": ["0", "1"], **options})


@pytest.mark.parametrize("size", [100_000, 140_000, 3_000_000])
def test_rows_after_a_long_cell_are_not_lost(tmp_path: Path, size: int) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"p,y,note\n0.2,0,a\n0.8,1,{'x' * size}\n0.3,0\n0.9,0,7,8,9\n0.8,1,c\n0.2,0,\xff\n", "latin-1")
    with pytest.raises(FileError, match=r"line 4 \(row 3\): it has 2 cells, expected 3"):
        audited(path)
    found = audited(path, on_error="collect", by="note")
    assert [problem.line for problem in found.problems] == [4, 5, 7]
    assert found.whole.rounds == 3


@pytest.mark.heavy
def test_a_row_of_a_very_long_cell_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("p,y\n0.2,0\n0.8,1\n0.3," + "0" * 3_000_000 + "\n0.8,1\n")
    with pytest.raises(FileError, match=r"line 4 \(row 3\): y is '000"):
        audited(path)
    for name, line in (("log.csv", "0.3," + "0" * LINE), ("log.jsonl", '{"p": 0.3, "y": "' + "0" * LINE + '"}')):
        first = "p,y\n0.2,0\n" if name == "log.csv" else '{"p": 0.2, "y": 0}\n'
        (tmp_path / name).write_text(f"{first}{line}\n")
        with pytest.raises(FileError, match=r"line \d.*: it is longer than 16 MiB"):
            audited(tmp_path / name, on_error="skip")


def test_a_reader_that_loses_a_row_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.csv").write_text('p,y,note\n0.2,0,"a\nb"\n\n0.8,1,c\n')
    (tmp_path / "log.jsonl").write_text('{"p": 0.2, "y": 0}\n\n{"p": 0.8, "y": 1}\n')
    pq.write_table(pa.table({"p": [0.2, 0.8], "y": [0, 1]}), tmp_path / "log.parquet")
    plain = read_outcomes.__globals__["Source"].batches
    for name in ("log.csv", "log.jsonl", "log.parquet"):
        assert audited(tmp_path / name).whole.rounds == 2

    def lossy(self: Any, sql: str, **options: Any) -> Any:
        for batch in plain(self, sql, **options):
            yield batch.slice(1) if "label" in batch.schema.names else batch

    monkeypatch.setattr("treecal.io._source.Source.batches", lossy)
    for name in ("log.csv", "log.jsonl", "log.parquet"):
        with pytest.raises(FileError, match=r"it has 2 (records|rows), of which 1 were found"):
            audited(tmp_path / name)


NAMES = ["log[1]", "a*b", "q?", "[!a]", "**", "~", "file:x", "it's {x,y}", "p=0.9", "back\\slash"]
KINDS = ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet"]


@pytest.mark.parametrize(("name", "kind"), some(product(NAMES, KINDS), every=4))
def test_a_name_is_a_name(tmp_path: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "y=1" / "p=0.9" / name
    folder.mkdir(parents=True)
    decoys = ["log1", "axb", "qq", "b", "x"]
    for each in (name, *decoys):
        rows = [{"p": 0.25, "y": 0}] if each == name else [{"p": 0.75, "y": 1}] * 2
        data = "p,y\n" + "".join(f"{row['p']},{row['y']}\n" for row in rows)
        if kind.startswith("jsonl"):
            data = "".join(json.dumps(row) + "\n" for row in rows)
        path = folder / f"{each}.{kind}"
        path.write_bytes(gzip.compress(data.encode()) if kind.endswith("gz") else data.encode())
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
    monkeypatch.chdir(folder)
    for path in (folder / f"{name}.{kind}", Path(f"{name}.{kind}")):
        found = audited(path).whole
        assert (found.rounds, found.classes["1"].mean_forecast, found.classes["1"].mean_outcome) == (1, 0.25, 0)


def test_nobody_else_can_look_into_the_spill(tmp_path: Path) -> None:
    for given in (None, tmp_path, tmp_path / "new"):
        source = open_source({"x": np.arange(10)}, temp_directory=given)
        (where,) = source.one("SELECT current_setting('temp_directory')") or ()
        assert stat.S_IMODE(os.stat(where).st_mode) == 0o700
        for refused in ("SELECT * FROM read_csv('/etc/passwd')", "INSTALL httpfs", "SET enable_external_access = true"):
            with pytest.raises(FileError):
                source.one(refused)
        del source
        assert not os.path.exists(where)
    assert list(tmp_path.iterdir()) == []


def test_checksums_are_checked(tmp_path: Path) -> None:
    text = ("p,y\n" + "0.25,0\n0.75,1\n" * 1000).encode()
    for name, data in (("log.csv.gz", text), ("log.jsonl.gz", b'{"p": 0.25, "y": 0}\n' * 1000)):
        packed = bytearray(gzip.compress(data, mtime=0))
        for at in (-6, -2):  # the checksum, and the length
            wrong = packed.copy()
            wrong[at] ^= 1
            (tmp_path / name).write_bytes(wrong)
            for how in ("audit", "replay", "forecast"):
                with pytest.raises(FileError, match=r"it is not a complete gzip file"):
                    _read_with(how, tmp_path / name)
    path = tmp_path / "log.parquet"
    rng = np.random.default_rng(0)
    columns = {"p": rng.random(2000), "y": rng.integers(2, size=2000), "v": [[0.5, 0.5]] * 2000}
    pq.write_table(pa.table(columns), path, write_page_checksum=True, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[5000] ^= 1  # in a probability
    path.write_bytes(content)
    with pytest.raises(FileError, match="checksum"):
        audited(path, forecast="p")
    content[5000] ^= 1
    at = content.index(np.array([0.5, 0.5]).tobytes())
    content[at] ^= 1  # in a list, which DuckDB reads
    path.write_bytes(content)
    with pytest.raises(FileError, match="checksum"):
        audited(path, forecast="v")
    assert audited(path, forecast="p").whole.rounds == 2000


def _read_with(how: str, path: Path) -> None:
    if how == "audit":
        audited(path)
    elif how == "replay":
        list(read_outcomes(path, outcome="y", classes=["0", "1"]))
    else:
        with blocks(str(path), Decoder(tc.Simplex(2), outcome=["y"])) as found:
            assert all(block.rows for block in found)


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treecal.io._text._LARGE", 1 << 18)
    for name, start in (
        ("log.jsonl.gz", b'{"p":"x'),
        ("log.csv.gz", b"p,y\n0.5,1\n"),
        ("log.csv.gz", b'p,y\n0.5"x,1\n'),
    ):
        (tmp_path / name).write_bytes(gzip.compress(start + start[-1:] * (1 << 20), 9))
        for how in ("audit", "forecast"):
            with pytest.raises(FileError, match=r"unpacks to more than .*\n\nHint: .*gunzip"):
                _read_with(how, tmp_path / name)


# Content that used to end in a traceback, or in another answer than CSV gives


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.csv", '"' + "x" * 200_000 + ",p,y\n1,0.5,1\n", "line 1: it is not CSV"),
        ("log.jsonl", '{"p":' + "[" * 100_000 + "]" * 100_000 + ',"y":1}\n', "it is nested too deeply"),
        ("log.jsonl", '{"p":' + "1" * 5000 + ',"y":1}\n', r"line 1 \(row 1\)"),
        (
            "log.jsonl",
            '{"p": 0.5, "p": 0.7, "y": 1}\n{"p": 0.5, "y": 0}\n',
            r"line 1 \(row 1\): it has the key 'p' twice",
        ),
        ("log.jsonl", '{"p": 0.5, "y": 0}\n{"p": 0.5, "\\u0070": 0.7, "y": 1}\n', r"line 2 .*the key 'p' twice"),
        ("log.jsonl", '\ufeff{"p": 0.5, "y": 1}\n', "begins with a byte order mark"),
        ("log.jsonl", '{"p": 0.5, "P": 1, "y": 1}\n', "columns 'p' and 'P', which differ only in case"),
        ("log.csv", "p,P,y\n0.5,0.5,1\n", "columns 'p' and 'P', which differ only in case"),
        ("log.csv", "p,y\n1_0e-1,1\n", r"line 2 \(row 1\): p is '1_0e-1', expected a number"),
        ("log.jsonl", '{"p": "1_0e-1", "y": 1}\n', "p is '1_0e-1', expected a number"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(FileError, match=message):
        audited(tmp_path / name)


def test_what_is_read_as_in_csv(tmp_path: Path) -> None:
    rows = [{"p": 0.5, "y": "[spam]", "g": 'a "b"'}, {"p": 0.25, "y": "ham", "g": 7}, {"p": 0.25, "y": "ham", "g": ""}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (tmp_path / "log.csv").open("w", newline="") as file:
        sheet = csv.DictWriter(file, list(rows[0]))
        sheet.writeheader()
        sheet.writerows(rows)
    one, other = (audited(tmp_path / name, by="g", classes=None) for name in ("log.jsonl", "log.csv"))
    assert list(one.groups) == [("7",), ('a "b"',), (None,)]
    assert one.to_dict() | {"source": None} == other.to_dict() | {"source": None}
    assert one.classes == ("[spam]", "ham")


def test_columns_of_types_that_nobody_groups_by() -> None:
    nan = float("nan")
    log = {"p": [0.5] * 4, "y": [0, 1, 0, 1]}
    cases: list[tuple[Any, str]] = [
        (pa.array([{"a": 1}] * 4), "STRUCT"),
        (pa.array([[1]] * 4), r"BIGINT\[\]"),
        (pa.array([[(1, 2)]] * 4, pa.map_(pa.int64(), pa.int64())), "MAP"),
        (pa.array([2**62, None, 1, 2], pa.timestamp("us")), "timestamp.*out of range"),
        (pa.array([1, 2, 3, 4], pa.time64("ns")), "time64.*same in Python"),
        (pa.array([1, 2, 3, 4]).cast(pa.decimal256(50, 2)), "decimal256"),
    ]
    for column, message in cases:
        with pytest.raises(FileError, match=message):
            tc.audit(pa.table({**log, "g": column}), forecast="p", outcome="y", by="g")
    for values, groups in (([nan, None, nan, None], {(None,): 4}), ([0.0, -0.0, nan, None], {(0.0,): 2, (None,): 2})):
        for kind in (pa.float64(), pa.float32()):
            table = pa.table({**log, "g": pa.array(values, kind)})
            found = tc.audit(table, forecast="p", outcome="y", by="g")
            assert {key: part.rounds for key, part in found.groups.items()} == groups
            assert {part.exact.forecasts for part in found.groups.values() if part.exact} == {1}
    half = {"p": np.array([0.5, 0.25], np.float16), "v": np.full((2, 2), 0.5, np.float16), "y": np.array([0, 1])}
    assert tc.audit(half, forecast="p", outcome="y").whole.rounds == 2
    assert tc.audit(half, forecast="v", outcome="y").whole.rounds == 2
    with pytest.raises(FileError, match="holds complex128 values"):
        tc.audit({"p": np.array([0.5j]), "y": np.array([1])}, forecast="p", outcome="y")


def test_one_row_of_many_classes_is_judged_alike_everywhere() -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        p = rng.dirichlet(np.ones(12))
        table = {f"p{k}": p[k : k + 1] for k in range(12)} | {"y": np.array([3])}
        try:
            found = tc.audit(table, forecast=list(table)[:-1], outcome="y", classes=range(12), tolerance=1e-16)
        except FileError as error:
            assert "the probabilities sum to" in str(error)  # noqa: PT017 # either is right, and which one is by chance
        else:
            assert found.whole.exact is not None
            assert found.whole.exact.forecasts == 1


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_name_that_is_not_utf8_is_one_sentence(tmp_path: Path, kind: str) -> None:
    path = os.fsencode(tmp_path) + b"/\xff." + kind.encode()
    try:
        Path(os.fsdecode(path)).write_text("p,y\n0.5,1\n", encoding="utf-8")
    except OSError:
        pytest.skip("this file system has no such names")
    said = io.StringIO()
    with redirect_stderr(said), redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as ended:
        main(["audit", os.fsdecode(path), "--forecast", "p", "--outcome", "y"])
    assert ended.value.code == 2
    assert "is not in UTF-8" in said.getvalue()
