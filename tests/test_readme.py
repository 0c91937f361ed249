"""The commands of the README do what it says, on a log such as it describes."""

from __future__ import annotations

import random
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.support import run

README = Path(__file__).parents[1] / "README.md"
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
