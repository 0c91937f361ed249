"""What the pages about the server say is so: commands run, and tables are complete."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest
import yaml  # type: ignore[import-untyped]

from tests.serve.test_process import process
from treecal.cli._app import app
from treecal.late import Arrival
from treecal.serve._operations import OPERATIONS
from treecal.serve._refusals import STATUS

ROOT = Path(__file__).parents[2]
HOWTO, REFERENCE = (ROOT / "docs" / folder / "serve.md" for folder in ("howto", "reference"))
ADDRESS = "http://127.0.0.1:8000"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", HOWTO.read_text("utf-8"), re.M | re.S)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl, which is not installed")
def test_requests_are_answered_as_the_page_says(tmp_path: Path) -> None:
    same, wrong = doctest.OutputChecker().check_output, []
    with process("--data", tmp_path / "books.sqlite") as (_, port):
        for block in blocks("console"):
            for example in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, _, expected = example.partition("\n")
                command = command.replace(ADDRESS, f"http://127.0.0.1:{port}")
                done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=True)
                if not same(expected.strip(), done.stdout.strip(), doctest.ELLIPSIS):
                    wrong.append(f"$ {command}\n{done.stdout}")
    assert not wrong
    assert (tmp_path / "rain.parquet").read_bytes()[:4] == b"PAR1"


def test_commands_are_those_of_the_command_line() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("treecal ")]
    assert len(commands) >= 8
    for words in commands:
        app.parse_args(words, exit_on_error=False, print_error=False)


def test_the_configuration_of_litestream_is_the_file() -> None:
    (block,) = blocks("yaml")
    assert yaml.safe_load(block) == yaml.safe_load((ROOT / "deploy" / "litestream.yml").read_text("utf-8"))


def rows(of: Path, columns: int) -> set[tuple[str, ...]]:
    found = re.findall(r"^\| (.+) \|$", of.read_text("utf-8"), re.M)
    cells = [tuple(cell.strip().replace("`", "") for cell in row.split(" | ")) for row in found]
    return {row[:columns] for row in cells}


def test_every_route_is_in_the_reference() -> None:
    expected = {
        (f"{each.method} {re.sub(r':path(?=})', '', each.path)}", each.about.replace("`", ""), each.scope or "")
        for each in OPERATIONS
    }
    assert expected <= {(row[0], row[1], "".join(row[2:])) for row in rows(REFERENCE, 3) if len(row) > 1}


def test_every_code_and_query_is_in_the_reference() -> None:
    assert {(code, str(status)) for code, status in STATUS.items()} <= rows(REFERENCE, 2)
    named = set(re.findall(r"`(\w+)`", "".join(row[0] for row in re.findall(r"^\| (`.+?)( \|)", _queries(), re.M))))
    assert named == {name for each in OPERATIONS if each.query for name in each.query.__struct_fields__}


def _queries() -> str:
    return REFERENCE.read_text("utf-8").partition("| query | of | |")[2].partition("\n## ")[0]


def test_every_status_of_an_outcome_is_explained() -> None:
    assert set(get_args(Arrival)) <= {row[0] for row in rows(HOWTO, 1)}


def test_files_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"deploy/[\w.]+", HOWTO.read_text("utf-8")))
    assert named == {f"deploy/{name}" for name in os.listdir(ROOT / "deploy")}
