"""The examples in the reference run, and print what it says they print."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.support import TREECAL, run, unhurried
from treecal.cli._app import app

DOCS = Path(__file__).parents[2] / "docs"
PAGE, NIGHTLY = DOCS / "reference" / "cli.md", DOCS / "howto" / "cron.md"
BLOCK = re.compile(r"^```(console|sh)\n(.*?)^```$", re.M | re.S)
DOCTOR = "treecal doctor"
SCRIPT = re.compile(r"^```py\n(.*?)^```\n\n```text\n(.*?)^```$", re.M | re.S)


def commands(page: str) -> list[tuple[str, str]]:
    """Return each command of a page with what is printed below it; a script prints nothing."""
    found = list[tuple[str, str]]()
    for kind, block in BLOCK.findall(page):
        if kind == "sh":
            found.append((block, ""))
            continue
        for example in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, printed = example.partition("\n")
            found.append((command, printed))
    return found


def examples() -> list[tuple[str, str]]:
    """Return each command and each script of the reference with what is printed below it."""
    page = PAGE.read_text("utf-8")
    return commands(page) + [(f"python - <<'END'\n{code}END\n", printed) for code, printed in SCRIPT.findall(page)]


def shown(command: str) -> str:
    """Run a line of shell, and return what a person would see: output, words, and a code other than 0."""
    if command.startswith("treecal ") and not set("|>") & set(command):  # no shell is needed, nor another process
        done = run(*shlex.split(command)[1:])
        seen, code = done.out + done.err, done.code
    else:
        env = os.environ | {"PATH": f"{Path(TREECAL).parent}{os.pathsep}{os.environ['PATH']}"}
        pipe = subprocess.PIPE
        shell = subprocess.run(
            ["bash", "-c", command], env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True, check=False
        )
        seen, code = shell.stdout, shell.returncode
    lines = [line.rstrip() + "\n" for line in unhurried(seen).splitlines()]
    return "".join(lines) + f"[{code}]\n" * bool(code)


def wrong(examples: list[tuple[str, str]]) -> str:
    same = doctest.OutputChecker().check_output
    return "\n".join(
        f"$ {command}\n{got}"
        for command, printed in examples
        if not same(printed, got := shown(command), doctest.ELLIPSIS)
    )


def test_every_example_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not wrong([each for each in examples() if each[0] != DOCTOR])


@pytest.mark.heavy  # it tries everything, as `test_doctor.py` does
def test_the_example_of_the_doctor_prints_what_the_page_says() -> None:
    ((command, printed),) = [each for each in examples() if each[0] == DOCTOR]
    assert not wrong([(command, printed)])


@pytest.mark.heavy  # each command is a process; the next test runs the job itself
def test_the_nightly_job_does_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not wrong(commands(NIGHTLY.read_text("utf-8")))


def test_cron_finds_the_job_and_the_job_treecal(tmp_path: Path) -> None:
    """Cron gives a job a bare environment, and takes a backslash from in front of a percent sign."""
    page = NIGHTLY.read_text("utf-8")
    crontab = re.search(r"^```text\nPATH=(.*)\n15 2 \* \* \*  (.*)\n```$", page, re.M)
    assert crontab is not None
    for block in re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S)[:2]:
        subprocess.run(["sh", "-c", block], cwd=tmp_path, check=True)
    path, command = (text.replace("/srv/weather/venv/bin", str(Path(TREECAL).parent)) for text in crontab.groups())
    env = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ} | {"PATH": path}
    line = command.replace("/srv/weather", str(tmp_path)).replace("\\%", "%")
    done = subprocess.run(["/bin/sh", "-c", line], env=env, cwd="/", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.startswith("370 rounds")
    assert [path.suffix for path in sorted(tmp_path.glob("c*-*T*"))] == [".jsonl", ".jsonl"]


@pytest.mark.parametrize(
    "name",
    [
        "forecast",
        "replay",
        "audit",
        "judge",
        "monitor",
        "recalibrate",
        "plan",
        "recommend",
        "sample-size",
        "arena",
        "game",
        "doctor",
    ],
)
def test_every_command_has_an_example(name: str) -> None:
    assert any(re.search(rf"\btreecal {name}\b", command) for command, _ in examples())


def test_help_names_options_that_there_are() -> None:
    """That of `monitor` spoke of an `--output` that it does not have."""
    for name in (each for each in app if not each.startswith("-") and app[each].default_command is not None):
        words = re.sub(rf"treecal (?!{name} )[^│]*?\n\n", "", run(name, "--help").out)
        there = {each for argument in app[name].assemble_argument_collection() for each in argument.names}
        named = set(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", words))
        assert named <= there | {"--help", "--version"}, name


def test_the_table_of_json_keys_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("rain,sun,outcome\n" + "0.5,0.5,sun\n0.5,0.5,rain\n" * 4)
    two = ("--classes", "rain,sun")
    commands: list[tuple[object, ...]] = [
        ("forecast", path, *two, "--outcome", "outcome"),
        ("forecast", path, *two, "--outcome", "outcome", "--announce", "draw"),
        ("recalibrate", path, *two, "--json"),
        ("monitor", path, *two, "--json", "--fail-above", 0.9),
        ("replay", path, *two, "--json"),
        ("audit", path, "--forecast", "rain,sun", "--outcome", "outcome", "--json"),
        ("plan", "--dim", 2, "--error", 0.5, "--json"),
        ("recommend", "--dim", 2, "--rounds", 20, "--json"),
        ("sample-size", "--base", "0.7,0.3", "--temperature", 2, "--json"),
        ("sample-size", "--base", "0.7,0.3", "--outcomes", 99, "--json"),
        ("sample-size", "--base", "0.7,0.3", "--outcomes", 99, "--of", 0, "--json"),
        ("arena", "--dim", 2, "--rounds", 10, "--workers", 1, "--streams", "drift", "--json"),
        ("game", "chicken", "--rounds", 10, "--json"),
    ]
    documented = set(re.findall(r"`(\w+)`", PAGE.read_text("utf-8").split("## JSON")[1].split("\n## ")[0]))
    documented |= {"arity", "depth", "sentence"}  # of plan
    for command in commands:
        for document in run(*command).lines:
            rows = [document, *document.get("gaps", []), *document.get("runs", []), document.get("whole", {})]
            keys = set[str]().union(*rows) - {"dim", "note"}  # of the arena's table
            assert keys <= documented, (command, keys - documented)
