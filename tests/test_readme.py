"""The commands of the README do what it says, on a log such as it describes."""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.support import run
from tests.serve.test_process import process
from treecal.cli._app import app

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
ON_A_LOG = re.compile(r"^treecal \w+ log\.csv\b[^#\n]*", re.M)
OFF = 3  # the exit code of an alarm


def log(path: Path) -> None:
    """Write the log of a model that is too sure: its logits are twice what they should be."""
    draw = random.Random(0)
    lines = ["p_rain,p_sun,weather"]
    for _ in range(1000):
        truth = draw.random()
        p = truth**2 / (truth**2 + (1 - truth) ** 2)
        lines.append(f"{p:.4f},{1 - p:.4f},{'rain' if draw.random() < truth else 'sun'}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_commands_on_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "log.csv")
    commands = ON_A_LOG.findall(README.read_text("utf-8"))
    codes = {}
    for command in commands:
        _, name, *rest = shlex.split(command)
        codes[name] = run(name, *rest).code
    assert codes == {"audit": 0, "recalibrate": 0, "monitor": OFF, "replay": 0}
    corrected = (tmp_path / "corrected.csv").read_text("utf-8").splitlines()
    assert corrected[0] == "p_rain,p_sun,weather,corrected_rain,corrected_sun"
    assert len(corrected) == 1001


def test_it_is_read_in_five_minutes() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 120


def commands() -> list[str]:
    """Every command of the README that is not on a log: in blocks for a shell, in text and in the table."""
    text = README.read_text("utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    lines = [
        part.partition("#")[0].strip() for block in blocks for line in block.splitlines() for part in line.split("&&")
    ]
    quoted = re.findall(r"`((?:treecal|make|pip|python) [^`]*)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
    return [line for line in dict.fromkeys([*lines, *quoted]) if not ON_A_LOG.match(line)]


def test_every_other_command_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    seen = set()
    for command in commands():
        program, name, *rest = shlex.split(command)
        seen.add(f"{program} {name}")
        if program == "pip":
            (what,) = rest
            extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", what)
            assert extras, command
            assert {*filter(None, (extras[1] or "").split(","))} <= set(project["optional-dependencies"]), command
        elif program == "python":
            subprocess.run([sys.executable, ROOT / name, *rest], check=True)
            assert Path(*rest).read_text("utf-8").startswith("<!doctype html>")
        elif program == "make":
            assert re.search(rf"^{name}:", makefile, re.M), command
        elif rest == ["--demo"]:
            continue  # it takes longer: see below
        elif name == "serve" and rest:
            with process(*rest) as (started, _):
                started.send_signal(signal.SIGINT)
                assert started.wait(60) == 0, command
        elif name == "doctor" and rest:
            done = subprocess.run([sys.executable, "-m", "treecal", name, *rest], capture_output=True, check=False)
            assert done.returncode == 0, done.stdout
        else:
            assert program == "treecal"
            assert name in app, command
            assert all(option in run(name, "--help").out for option in rest), command
    assert {"pip install", "make demo", "make test", "treecal serve", "treecal doctor", "treecal mcp"} <= seen


@pytest.mark.heavy
def test_the_server_with_something_to_see() -> None:
    assert "treecal serve --demo" in commands()
    with process("--demo") as (started, _):
        started.send_signal(signal.SIGINT)
        assert started.wait(60) == 0


@pytest.mark.heavy
def test_a_new_user(tmp_path: Path) -> None:
    """The wheel in an empty environment: the commands on a log of one's own, and the code of the page."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = next(path for path in (tmp_path / "venv").glob("*/python*") if path.stem == "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[files,plots]"], check=True)
    log(tmp_path / "log.csv")
    text = README.read_text("utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S))
    lines = [["-c", code], *(["-m", *shlex.split(command)] for command in ON_A_LOG.findall(text))]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for line in lines:
        done = subprocess.run([python, *line], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
        assert done.returncode == (OFF if "monitor" in line else 0), done.stderr
