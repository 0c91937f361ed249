"""A format is added by the steps of CONTRIBUTING.md, and every command reads and writes it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import treecal as tc
from treecal.cli import main
from treecal.exceptions import FileError, ParameterError
from treecal.io import FORMATS, File, FileSource, Format, Place, Row, _source, library, register

# The new format: text, cells with bars between them, the names of the columns above.


def cells(line: bytes) -> list[str]:
    return [cell.strip() for cell in line.decode().split("|")]


def sources(files: Sequence[File], connection: Any) -> list[FileSource]:
    found = []
    for file in files:
        with file.path.open("rb") as lines:
            names = cells(lines.readline())
        columns = ", ".join(f"'{name}': 'VARCHAR'" for name in names)
        options = {"delim": "'|'", "header": "true", "columns": f"{{{columns}}}", "auto_detect": "false"}
        found.append(FileSource(file, connection, "read_csv", options))
    return found


def write(path: Path, name: str, columns: Mapping[str, set[str]], rows: Iterable[dict[str, Any]]) -> None:
    texts = [list(columns), *([str(value) for value in row.values()] for row in rows)]
    path.write_text("".join(f"{'|'.join(text)}\n" for text in texts), encoding="utf-8")


def read(lines: Iterator[bytes], name: str, check: Callable[[str, Sequence[str]], object]) -> Iterator[Row]:
    names = cells(next(lines))
    check(name, names)
    for number, line in enumerate(lines, start=1):
        yield Row(Place(number, number + 1), dict(zip(names, cells(line), strict=True)))


BARS = Format("bars", "a table of bars", (".bars",), sources, write, read, begins=lambda head: b"|" in head)


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> Format:
    """The format, for one test."""
    for kind, own in FORMATS.items():
        monkeypatch.setitem(FORMATS, kind, own)
    monkeypatch.setitem(FORMATS, "bars", BARS)
    register(BARS)
    return BARS


@pytest.fixture
def log(tmp_path: Path, bars: Format) -> Path:
    rng = np.random.default_rng(0)
    p = rng.integers(1, 10, size=200) / 10
    y = np.where(rng.random(200) < p, "sun", "rain")
    rows = [{"p_rain": round(1 - q, 1), "p_sun": float(q), "outcome": str(sky)} for q, sky in zip(p, y, strict=True)]
    bars.write(tmp_path / "log.bars", "log.bars", {"p_rain": {"float"}, "p_sun": {"float"}, "outcome": {"str"}}, rows)
    return tmp_path / "log.bars"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    """What a command writes, as JSON lines."""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    said = capsys.readouterr()
    assert ended.value.code in (0, 3), said.err
    return [json.loads(line) for line in said.out.splitlines()]


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


def test_every_command_reads_and_writes_it(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (audited,) = run(capsys, "audit", log, "--json")
    assert audited["whole"]["rounds"] == 200
    pipe(monkeypatch, log.read_bytes())
    (piped,) = run(capsys, "audit", "-", "--json")
    assert piped["whole"] == audited["whole"]

    out = tmp_path / "corrected.bars"
    corrected = run(capsys, "recalibrate", log, "--classes", "rain,sun", "--output", out)
    assert len(out.read_text().splitlines()) == 201
    assert (
        run(capsys, "audit", out, "--forecast", "corrected_rain,corrected_sun", "--json")[0]["whole"]["rounds"] == 200
    )
    pipe(monkeypatch, log.read_bytes())
    assert run(
        capsys, "recalibrate", "-", "--kind", "bars", "--classes", "rain,sun", "--output", tmp_path / "b.csv"
    ) == (corrected)
    forecasts = run(capsys, "forecast", log, "--classes", "rain,sun", "--announce", "mean")
    assert len(forecasts) == 201
    assert run(capsys, "monitor", log, "--json")[0]["rounds"] == 200
    replayed = run(capsys, "replay", log, "--outcome", "outcome", "--classes", "rain,sun", "--json")
    assert replayed[0]["rounds"] == 200
    assert tc.audit(log, forecast=["p_rain", "p_sun"], outcome="outcome").whole.rounds == 200


def test_a_kind_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.bars").write_text("|p|\n")
    with pytest.raises(ParameterError, match="'bars', expected csv, jsonl or parquet"):
        tc.io.open_source(tmp_path / "log.bars", kind="bars")
    with pytest.raises(FileError, match=r"Parquet as \.parquet or \.pq"):
        tc.io.open_source(tmp_path / "log.bars")
    with pytest.raises(SystemExit) as ended:
        main(["forecast", str(tmp_path / "log.bars"), "--kind", "bars", "--classes", "rain,sun"])
    assert ended.value.code == 2
    assert "expected csv, jsonl or parquet" in " ".join(capsys.readouterr().err.split())


def test_parquet_is_read_from_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    p = rng.random(50)
    table = pa.table({"p_rain": 1 - p, "p_sun": p, "outcome": np.where(rng.random(50) < p, "sun", "rain")})
    path = tmp_path / "log.parquet"
    pq.write_table(table, path)
    for command in (["forecast", "--announce", "mean"], ["recalibrate"], ["monitor", "--json"]):
        name, *options = [*command, "--classes", "rain,sun"]
        expected = run(capsys, name, path, *options)
        pipe(monkeypatch, path.read_bytes())
        assert run(capsys, name, "-", "--kind", "parquet", *options) == expected
    pipe(monkeypatch, b"outcome\nrain\n")
    with pytest.raises(SystemExit) as ended:
        main(["forecast", "-", "--kind", "parquet", "--classes", "rain,sun"])
    assert ended.value.code == 2
    assert "standard input is CSV, expected Parquet" in " ".join(capsys.readouterr().err.split())


def test_columns_are_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether libraries are there is not asked at every step."""
    pq.write_table(pa.table({"p": [0.5] * 9, "y": [0, 1, 1] * 3}), tmp_path / "log.parquet")
    tc.audit(tmp_path / "log.parquet", forecast="p", outcome="y")
    asked: list[str] = []

    def noted(name: str) -> Any:
        asked.append(name)
        return library(name)

    monkeypatch.setattr(_source, "library", noted)
    tc.audit(tmp_path / "log.parquet", forecast="p", outcome="y")
    assert not asked
