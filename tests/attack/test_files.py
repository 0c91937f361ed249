"""Files that are damaged, hostile or oddly named: a refusal in one sentence, or what the file says, and nothing else."""

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
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import treecal as tc
from tests.attack.test_audits import expected, measured, same
from treecal.cli import main
from treecal.cli._rows import rows as stream
from treecal.exceptions import FileError, TreeCalError
from treecal.io import Decoder, open_source, read_outcomes
from treecal.io._blocks import LINE

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
            table, file, row_group_size=rng.choice([7, 100]), write_page_checksum=kind.startswith("checked"),
            use_dictionary=rng.random() < 0.5, compression=rng.choice(["none", "snappy", "zstd"]),
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
        label = label.strip(" ") if isinstance(label, str) else label
        if fine and label in CLASSES:
            points.append(p)
            outcomes.append(CLASSES.index(label))
    return np.array(points), np.array(outcomes, int), len(rows) - len(points)


def independent(kind: str, data: bytes, used: list[str]) -> list[Any]:
    """The rows of a file; it raises an error where these columns cannot be read."""
    if kind.endswith("parquet"):
        file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
        return list(file.read(used).to_pylist())
    text = gzip.decompress(data) if kind.endswith("gz") else data
    if kind.startswith("jsonl"):
        return [value_of(line) for line in text.split(b"\n") if line.strip()]
    lines = text.removeprefix(b"\xef\xbb\xbf").decode(errors="surrogateescape").split("\n")
    ends = [line + "\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    names, *records = csv.reader(ends, strict=True, skipinitialspace=True)
    names = [name.strip() for name in names]
    rows = [dict(zip(names, cells, strict=True)) if len(cells) == len(names) else {} for cells in records if cells]
    return [row if is_utf8([row.get(name, "") for name in used]) else {} for row in rows]


def is_utf8(cells: list[str]) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in "".join(cells))


def value_of(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
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
        p, y, others = judged(independent(kind, data, used), forecasts=how == "audit")
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
    with stream(str(path), decoder) as lines:
        for row in lines:
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
    counts = run(150, 0)
    assert (counts["tried"], counts["failures"]) == (150, 0)


@pytest.mark.attack
def test_ten_thousand_damaged_files(attack_seed: int, attack_seconds: float) -> None:
    counts = run(10_000, attack_seed, attack_seconds)
    print(f"damaged files, seed {attack_seed}: {dict(counts)}")
    assert counts["tried"]
    assert not counts["failures"]
