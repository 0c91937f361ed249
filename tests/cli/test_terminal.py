"""What a person sees: help, progress bars in a terminal, Ctrl-C, completion."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pexpect
import pytest

import treecal as tc
from tests.cli.support import TREECAL, heed_interrupts, refused, run
from treecal.cli._signals import Shield
from treecal.cli._terminal import Exit, emit, printable
from treecal.forecasters import REGISTRY

COMMANDS = (
    "arena",
    "audit",
    "demo",
    "doctor",
    "forecast",
    "game",
    "plan",
    "recalibrate",
    "recommend",
    "replay",
    "sample-size",
)


def terminal(script: str) -> pexpect.spawn[str]:
    """Run a line of shell in a terminal of its own; `treecal` is the command."""
    script = script.replace("treecal ", f"'{TREECAL}' ", 1)
    env = os.environ | {"NO_COLOR": "1", "TERM": "xterm"}
    return pexpect.spawn(
        "bash", ["-c", script], encoding="utf-8", timeout=30, dimensions=(24, 100), env=env, preexec_fn=heed_interrupts
    )


def test_help_lists_every_command_and_the_exit_codes() -> None:
    done = run("--help")
    assert done.code == 0
    for name in COMMANDS:
        assert f"│ {name} " in done.out
    assert "130" in done.out
    assert run().out == done.out
    assert run("--version").out.strip() == tc.__version__


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_and_exit_codes(name: str) -> None:
    done = run(name, "--help")
    assert done.code == 0
    if name != "demo":
        assert f"treecal {name}" in done.out.replace(f"Usage: treecal {name}", "")
        assert "Exit codes: 0" in done.out


def test_unknown_commands_are_refused() -> None:
    refused(run("forcast"), "forecast")


def test_help_loads_nothing_heavy() -> None:
    script = "import sys, treecal.cli; sys.argv[1:] = ['--help']\ntry: treecal.cli.main()\nfinally: print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"scipy", "pandas", "pyarrow", "duckdb", "matplotlib", "numba", "sklearn", "jinja2", "narwhals"}
    assert not heavy & set(loaded)


def test_a_bar_with_rate_and_remaining_time_in_a_terminal_and_ctrl_c(tmp_path: Path) -> None:
    many, out, snapshot = tmp_path / "many.jsonl", tmp_path / "out.jsonl", tmp_path / "s.treecal"
    many.write_text("1\n" * 300_000)
    shell = terminal(f"treecal forecast '{many}' --dim 2 --snapshot '{snapshot}' > '{out}'; echo code $?")
    shell.expect(r"bytes .* (\d+)/600000 [\d,]+/s \d:\d\d:\d\d")
    shell.sendintr()
    shell.expect(r"treecal: interrupted after ([\d,]+) rounds, saved in [^\n]*s\.treecal\.\r\n")
    rounds = int(shell.match.group(1).replace(",", ""))
    shell.expect("code 130")
    shell.expect(pexpect.EOF)
    assert tc.load(snapshot).rounds == rounds > 0
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["many.jsonl", "out.jsonl", "s.treecal"]
    lines = out.read_text().splitlines()
    assert rounds <= len(lines) <= rounds + 1
    assert json.loads(lines[-1])["round"] == len(lines)


@pytest.mark.heavy
def test_a_bar_where_rows_go_to_a_table(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("p_no,p_yes,outcome\n" + "0.4,0.6,yes\n" * 100_000)
    log, table = tmp_path / "log.csv", tmp_path / "corrected.csv"
    shell = terminal(f"treecal recalibrate '{log}' --classes no,yes --output '{table}'; echo code $?")
    shell.expect(r"bytes .* \d+/1200019 [\d,]+/s")
    shell.expect("code 0")
    shell.expect(pexpect.EOF)


def test_a_person_can_type_outcomes() -> None:
    shell = terminal("treecal forecast --classes heads,tails --announce mean; echo code $?")
    shell.expect("Ctrl-D ends it")
    shell.expect('"round": 1')
    shell.sendline("tails")
    shell.expect(r'"round": 2, "mean": .*, "part": "(eager|safe)"')
    shell.sendeof()
    shell.expect(r"The guard: eager forecast \d rounds .*, safe \d rounds")
    shell.expect("code 0")
    shell.expect(pexpect.EOF)


def test_other_commands_are_interrupted_in_one_line() -> None:
    shell = terminal("treecal game shapley --rounds 10000000; echo code $?")
    shell.expect(r"\d+/10000000 [\d,]+/s")
    shell.sendintr()
    shell.expect("treecal: interrupted.\r\n")
    shell.expect("code 130")
    shell.expect(pexpect.EOF)


def test_what_is_done_on_the_way_out_is_not_interrupted_again() -> None:
    done: list[int] = []

    def work() -> None:
        with Shield() as shield:
            try:
                for number in shield.waiting([1, 2, 3]):
                    done.append(number)
                    signal.raise_signal(signal.SIGTERM)
                    done.append(-number)
            finally:
                signal.raise_signal(signal.SIGINT)
                done.append(0)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [1, -1, 0]


def test_the_arena_s_bar_goes_to_standard_error() -> None:
    shell = terminal("treecal arena --dim 2 --rounds 200 --workers 1 --streams drift --json | wc -l")
    shell.expect(rf"runs .* \d+/{len(REGISTRY)}")
    shell.expect("1\r\n")
    shell.expect(pexpect.EOF)


def test_completion(tmp_path: Path) -> None:
    path = tmp_path / "treecal.bash"
    done = run("--install-completion", "--shell", "bash", "--output", path)
    assert done.code == 0, done.err
    script = f"source {path}; COMP_WORDS=(treecal fo); COMP_CWORD=1; COMP_LINE='treecal fo'; COMP_POINT=10\n"
    script += "$(complete -p treecal | sed 's/.*-F \\([^ ]*\\) .*/\\1/'); echo ${COMPREPLY[@]}"
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert "forecast" in found.stdout


def test_names_cannot_drive_a_terminal() -> None:
    assert printable("\x1b[2Jrain") == "\\x1b[2Jrain"
    done = run("forecast", "--classes", "rain,sun", stdin='{"\\u001b[2J": 1, "b": 2}\n')
    refused(done, "\\x1b[2J")
    assert "\x1b" not in done.err


def test_json_is_json_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"x": [math.inf, -math.inf, None], "y": np.array([[0.5, math.inf]]), 3: np.int64(2), "e": Exit.FLAWED})
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found == {"x": ["inf", "-inf", None], "y": [[0.5, "inf"]], "3": 2, "e": 1}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_readable(name: str) -> None:
    """Examples stand apart from the prose, and no option refers to another docstring or to its being off."""
    shown = run(name, "--help").out
    assert "\n treecal " in shown or "\n printf " in shown
    for noise in ("default: False", "default: None", "As for"):
        assert noise not in shown
