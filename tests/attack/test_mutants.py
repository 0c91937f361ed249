"""Damaged Parquet files are read as Arrow reads them, or refused; none ends the process."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import treecal as tc
from tests.attack.mutants import attempt, by_arrow
from treecal._platform import processors
from treecal.exceptions import TreeCalError

ROOT = Path(__file__).parents[2]
_BATCH = 500


def read_apart(seed: int, first: int, count: int, folder: Path) -> Counter[str]:
    """Read so many damaged files in a process of its own; one that a signal ends is resumed after the file that did."""
    counts: Counter[str] = Counter(read=0, refused=0, wrong=0, signals=0)
    command = [sys.executable, "-m", "tests.attack.mutants", str(seed)]
    end = first + count
    while first < end:
        ended = subprocess.run(
            [*command, str(first), str(end - first), str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        print(ended.stderr, end="")
        if ended.returncode == 0:
            counts.update(json.loads(ended.stdout))
            return counts
        at = int((folder / "number").read_text())
        print(f"attack {seed} {at}: the process ended with {ended.returncode}")
        counts["signals"] += 1
        first = at + 1
    return counts


def test_damaged_parquet_is_read_as_arrow_reads_it_or_refused(tmp_path: Path) -> None:
    counts = read_apart(0, 0, 35, tmp_path)
    assert counts["wrong"] == counts["signals"] == 0
    assert counts["read"] > 10
    assert counts["refused"] > 10


@pytest.mark.parametrize(("number", "ended"), [(4745, "refused"), (15842, "read")])
def test_what_duckdb_made_up(number: int, ended: str, tmp_path: Path) -> None:
    """Of a page without a row it made a class, of one with another length numbers of memory that nobody has written."""
    assert attempt(random.Random(f"0 {number}"), tmp_path / "log.parquet") == (ended, "")


def test_labels_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    assert attempt(random.Random("0 15013"), tmp_path / "log.parquet") == ("refused", "")


@pytest.mark.attack
def test_twenty_thousand_damaged_parquet_files(attack_seed: int, attack_seconds: float, tmp_path: Path) -> None:
    start = time.monotonic()

    def read(first: int) -> Counter[str]:
        if time.monotonic() - start > attack_seconds:
            return Counter()
        (folder := tmp_path / str(first)).mkdir()
        return read_apart(attack_seed, first, _BATCH, folder)

    with ThreadPoolExecutor(processors()) as pool:  # each waits for a process
        counts: Counter[str] = Counter()
        for found in pool.map(read, range(0, 20_000, _BATCH)):
            counts.update(found)  # with what there is none of
    print(f"Parquet files, seed {attack_seed}: {dict(counts)}")
    assert counts["read"]
    assert counts["wrong"] == counts["signals"] == 0


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.attack)])
def test_every_bit_of_a_schema_that_is_flipped(step: int, tmp_path: Path) -> None:
    """One of them made a column of labels a required one, whose statistics Arrow then ended the process for."""
    table = pa.table({"p": [0.5] * 4, "y": [0, 1] * 2})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=2)
    content = file.getvalue()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path = tmp_path / "log.parquet"
    read = 0
    for bit in range(8 * footer, 8 * (footer + 60), step):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found = tc.audit(path, forecast="p", outcome="y", exact=False)
        except TreeCalError:
            continue
        rows = by_arrow(path, ["p", "y"])  # a type may be another one, by which the pages can be read, too
        assert found.whole.rounds == 4
        assert found.whole.brier == sum(2 * (row["p"] - row["y"]) ** 2 for row in rows) / 4
        read += 1
    assert read > 0
