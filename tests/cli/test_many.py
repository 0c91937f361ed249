"""Rows that are taken at once give what they give one by one: what is written, learned, saved and said of them."""

from __future__ import annotations

import io
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings, strategies as st

import treecal as tc
from tests.cli.support import Done, run
from treecal.cli import _session, _terminal
from treecal.io import FORMATS, Lines, Row

RNG = np.random.default_rng(0)
TWO = ("--classes", "rain,sun")
P = RNG.dirichlet([2, 2], size=150).round(6)
Y = np.array(["rain", "sun"])[(RNG.random(150) < 0.2 + 0.5 * P[:, 1]).astype(int)]


def rows() -> list[dict[str, Any]]:
    return [
        {
            "p_rain": f"{p[0]:.6f}",
            "p_sun": f"{1 - p[0]:.6f}",
            "city": "Köln" if i % 7 == 3 else f"c{i % 3}",
            "outcome": y,
        }
        for i, (p, y) in enumerate(zip(P, Y, strict=True))
    ]


def csv(table: list[dict[str, Any]], end: str = "\n") -> bytes:
    lines = [",".join(table[0]), *(",".join(map(str, row.values())) for row in table)]
    return "".join(line + end for line in lines).encode()


def both(monkeypatch: pytest.MonkeyPatch, *arguments: object, stdin: bytes = b"") -> tuple[Done, Done]:
    """Run a command as it is, and with all rows one by one."""
    at_once = run(*arguments, stdin=stdin)
    with monkeypatch.context() as patched:
        patched.setattr(_session, "_FEW", sys.maxsize)
        return at_once, run(*arguments, stdin=stdin)


def flawed() -> list[dict[str, Any]]:
    """Rows, some of which are invalid."""
    found = rows()
    found[20] |= {"outcome": "hail"}
    found[21] |= {"p_sun": "much"}
    found[60] |= {"outcome": ""}
    found[61] |= {"p_rain": "0.9"}
    found[120] |= {"p_rain": "", "p_sun": ""}
    return found


@pytest.mark.parametrize("method", ["mean", "platt", "vector-then-mean", "gated", "beta", "shift", "isotonic"])
def test_every_method(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(csv(rows()))
    one, other = both(monkeypatch, "recalibrate", path, *TWO, "--method", method, "--json")
    assert one == other
    assert (one.code, len(one.lines)) == (0, 151)


@pytest.mark.parametrize("on_error", ["stop", "skip", "collect"])
@pytest.mark.parametrize("more", [(), ("--output", "out.csv"), ("--by", "city"), ("--snapshot", "kept", "--every", 40)])
def test_invalid_rows_are_named_alike(
    on_error: str, more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_bytes(csv(flawed()))
    found = []
    for few in (_session._FEW, sys.maxsize):
        with monkeypatch.context() as patched:
            patched.setattr(_session, "_FEW", few)
            done = run("recalibrate", "log.csv", *TWO, "--on-error", on_error, *more)
        files = [Path(name).read_bytes() for name in ("out.csv", "kept") if Path(name).exists()]
        found.append((done, files))
        for name in ("out.csv", "kept"):
            Path(name).unlink(missing_ok=True)
    assert found[0] == found[1]
    assert found[0][0].code == (2 if on_error == "stop" else 1)


@pytest.mark.parametrize("kind", ["csv", "quotes", "returns", "unfinished", "jsonl", "lists", "parquet", "numbers"])
@pytest.mark.parametrize("command", ["recalibrate", "monitor"])
def test_every_kind_of_file(command: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"log.{kind if kind in ('csv', 'jsonl', 'parquet') else 'jsonl' if kind == 'lists' else 'csv'}"
    table = rows()
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row | {"p_rain": float(row["p_rain"])}) + "\n\n" for row in table))
    elif kind == "lists":
        found = [{"forecast": [float(row["p_rain"]), float(row["p_sun"])], "outcome": row["outcome"]} for row in table]
        path.write_text("".join(json.dumps(row) + "\n" for row in found))
    elif kind == "parquet":
        numbers = [row | {"p_rain": float(row["p_rain"]), "p_sun": float(row["p_sun"])} for row in table]
        pq.write_table(pa.Table.from_pylist(numbers), path)
    elif kind == "numbers":  # a single column, of the second class, and an id
        path.write_bytes(
            csv([{"id": i, "p_sun": row["p_sun"], "outcome": row["outcome"]} for i, row in enumerate(table)])
        )
    else:
        table[30]["city"] = '"a, b"' if kind == "quotes" else "a"
        table[31]["city"] = '"two\nlines"' if kind == "quotes" else "b"
        content = csv(table, "\r\n" if kind == "returns" else "\n")
        path.write_bytes(content.rstrip(b"\n") if kind == "unfinished" else content)
    forecast = ("--forecast", "p_sun") if kind == "numbers" else ()
    arguments = (command, path, *TWO, *forecast, "--snapshot", tmp_path / "kept", "--json")
    if command == "monitor":
        arguments = (*arguments, "--fail-above", 0.9)
    one, other = run(*arguments), None
    whole = tc.load(tmp_path / "kept")
    (tmp_path / "kept").unlink()
    monkeypatch.setattr(_session, "_FEW", sys.maxsize)
    other = run(*arguments)
    assert one == other
    assert one.code == (3 if command == "monitor" else 0)
    assert whole.rounds == tc.load(tmp_path / "kept").rounds == (149 if kind == "unfinished" else 150)


def test_rows_are_not_taken_one_by_one(tmp_path: Path) -> None:
    """It took hundreds of calls a row."""
    path = tmp_path / "log.csv"
    table = rows() * 20
    path.write_bytes(csv(table))
    run("recalibrate", path, *TWO)  # imports
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    for more in ((), ("--output", tmp_path / "out.csv", "--force"), ("--snapshot", tmp_path / "kept")):
        calls = 0
        sys.setprofile(count)
        try:
            done = run("recalibrate", path, *TWO, *more)
        finally:
            sys.setprofile(None)
        assert done.code == 0
        assert calls < 100 * len(table), more


@pytest.mark.parametrize("stop", [0, 1, 2])
def test_what_could_not_be_written_is_not_learned(stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, kept = tmp_path / "log.csv", tmp_path / "kept"
    path.write_bytes(csv(rows()))
    whole = run("recalibrate", path, *TWO).out
    parts = 0

    def wait(stream: object) -> None:
        nonlocal parts
        parts += 1
        if parts > stop:
            raise KeyboardInterrupt

    monkeypatch.setattr(_terminal, "wait_to_write", wait)
    done = run("recalibrate", path, *TWO, "--snapshot", kept)
    monkeypatch.undo()
    assert done.code == 130
    assert f"interrupted after {len(done.lines)} rounds" in done.err
    assert kept.exists() == (stop > 0)
    assert done.out + run("recalibrate", path, *TWO, "--snapshot", kept).out == whole


class Drops(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def __init__(self, content: bytes, chance: random.Random) -> None:
        super().__init__(content)
        self._chance = chance

    def read1(self, size: int | None = -1) -> bytes:
        return self.read(self._chance.randrange(1, 40))


CELLS = st.sampled_from(["a", " b ", "", '"q"', '"x,y"', '"two\nlines"', 'c"d', "é", "\x00", '"', "1"])


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.lists(CELLS, min_size=1, max_size=3).map(",".join), max_size=8),
    ends=st.sampled_from(["\n", "\r\n"]),
    header=st.sampled_from(["a,b", "a", "a,b,c"]),
    seed=st.integers(0, 99),
    last=st.booleans(),
)
@example(lines=["a,b", "", "1,1"], ends="\n", header="a,b", seed=1, last=False)
@example(lines=["a,1,1", "1"], ends="\n", header="a,b", seed=6, last=True)
def test_blocks_of_csv_are_its_rows(lines: list[str], ends: str, header: str, seed: int, last: bool) -> None:
    content = "\ufeff".encode() + "".join(line + ends for line in [header, *lines]).encode()
    if not last:
        content = content.removesuffix(ends.encode())

    def outcome(read: Any) -> Any:
        try:
            return list(read())
        except tc.TreeCalError as error:
            return str(error)

    def by_row() -> Any:
        assert CSV_LINES is not None
        return CSV_LINES(iter(io.BytesIO(content.removeprefix("\ufeff".encode())).readlines()), "log.csv", nothing)

    def by_block() -> list[Row]:
        assert CSV_BLOCKS is not None
        found = CSV_BLOCKS(Lines(Drops(content, random.Random(seed)), "log.csv"), "log.csv", nothing)
        return [row for block in found for row in block.rows]

    assert outcome(by_block) == outcome(by_row)


def nothing(name: str, columns: object) -> None:
    """Check no columns."""


CSV_LINES = FORMATS["csv"].lines
CSV_BLOCKS = FORMATS["csv"].blocks
