"""The command as a person runs it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import treecal as tc
from treecal.cli import app
from treecal.cli.demo import run, table, verdict
from treecal.streams import ClassStream, seattle_weather

TREECAL = str(Path(sys.executable).with_name("treecal"))


def test_demo_in_a_pipe_is_quiet_on_stderr() -> None:
    done = subprocess.run([TREECAL, "demo"], capture_output=True, text=True, check=True)
    assert "1,461 rounds" in done.stdout
    assert "running mean" in done.stdout
    assert done.stderr == ""


def test_demo_in_a_terminal_shows_progress() -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen([TREECAL, "demo"], stdout=subprocess.PIPE, stderr=child, stdin=child)
    os.close(child)
    seen = b""
    while True:
        try:
            chunk = os.read(parent, 4096)
        except OSError:  # the other end is closed
            break
        seen += chunk
    output, _ = process.communicate()
    assert process.returncode == 0
    assert b"/1461" in seen
    assert b"/1461" not in output


def test_figures_are_those_of_the_ledgers() -> None:
    whole = seattle_weather()
    stream = ClassStream("a year", whole.classes, whole.outcomes[:365])
    ledgers = run(stream, {"running mean": tc.RunningMean(stream.space), "TreeCal": tc.TreeCal(stream.space)})
    assert all(ledger.rounds == 365 for ledger in ledgers.values())
    cells = list(table(ledgers).columns[2].cells)
    assert cells == [f"{ledgers[n].error('l1', labelled=k):.3f}" for n in ledgers for k in (False, True)]
    assert f"was {ledgers['TreeCal'].error('l1'):.2f} away" in verdict(ledgers)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    app(["--help"], result_action="return_value")
    assert "Forecast four years" in capsys.readouterr().out
    app(["--version"], result_action="return_value")
    assert tc.__version__ in capsys.readouterr().out


def test_missing_data_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vega_datasets", None)
    with pytest.raises(tc.TreeCalError, match=r'pip install "treecal\[data\]"'):
        seattle_weather()


def test_a_mistake_of_ours_is_a_paragraph_and_not_a_traceback() -> None:
    script = (
        "import sys; sys.modules['vega_datasets'] = None; sys.argv[1:] = ['demo']; import treecal.cli as c; c.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("treecal: this stream needs the package vega_datasets")
    assert "Traceback" not in done.stderr
