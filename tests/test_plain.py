"""Without any extra: all that works on arrays is there; the rest says which packages it needs."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from tests.without import EXTRAS, modules_of, run_without

ROOT = Path(__file__).parents[1]
PLAIN = """
import json, os, pathlib, tempfile
import numpy as np
import treecal as tc
from treecal.correctors import all_correctors
from treecal.forecasters import REGISTRY

os.chdir(tempfile.mkdtemp())
rng, space = np.random.default_rng(0), tc.Simplex(3)
P, y, found = rng.dirichlet(np.ones(3), 60), rng.integers(3, size=60), {}


def attempt(name, act):
    try:
        found[name] = str(act())
    except tc.TreeCalError as error:
        found[name] = f"refused: {error}"


def resumes(thing):
    tc.save(thing, "kept")
    return type(tc.load("kept")).__name__


def forecast(make):
    f = make()
    for k in y[:8]:
        f.predict()
        f.update(np.eye(3)[k])
    return resumes(f)


def correct(make):
    c = make()
    for p, k in zip(P[:8], y[:8]):
        c.predict(p)
        c.update(np.eye(3)[k])
    return resumes(c)


def late():
    book = tc.Late(tc.Recalibrator(space))
    book.predict(P[0], id="monday")
    book.update("monday", 1)
    return resumes(book)


def watch():
    monitor = tc.Monitor(space)
    monitor.update_many(P, y)
    return resumes(monitor)


def bank():
    many = tc.Bank(tc.AdaptiveTreeCal(space), streams=2)
    many.update([0, 1], np.eye(3)[y[:2]])
    return len(many.predict())


log = {"p": P, "y": np.array(["a", "b", "c"])[y], "site": y % 2, "day": np.datetime64("2026-01-01") + np.arange(60)}
log |= {"w": rng.random(60), "text": log["day"].astype(str)}
options = {"forecast": "p", "outcome": "y", "by": "site", "weight": "w"}
attempt("audit", lambda: tc.audit(P, y))
attempt("audit of lists", lambda: tc.audit(P.tolist(), y.tolist(), weight=[1] * 60))
attempt("audit by group, over time", lambda: tc.audit(log, time="day", loss=1 - np.eye(3), **options))
attempt("audit over time as text", lambda: tc.audit(log, time="text", **options))
attempt("audit as HTML", lambda: tc.audit(P, y)._repr_html_())
attempt("replay", lambda: tc.replay(y, space).rounds)
attempt("monitor", watch)
attempt("bank", bank)
attempt("late", late)
for kind in REGISTRY.values():
    for number, example in enumerate(kind.examples(space)):
        attempt(f"{kind.__name__} {number}", lambda: forecast(lambda: example))
for kind in all_correctors():
    for number, example in enumerate(kind.examples(space)):
        attempt(f"{kind.__name__} {number}", lambda: correct(lambda: example))
attempt("needs plots", lambda: tc.audit(P, y).plot())
attempt("needs files", lambda: tc.audit("log.csv", forecast="p", outcome="y"))
print(json.dumps(found))
"""

COMMANDS: dict[str, str | None] = {  # what each needs, if anything
    "forecast days.csv --classes rain,sun": None,
    "recalibrate log.csv --classes rain,sun": None,
    "game chicken --rounds 20": None,
    "plan --dim 3 --rounds 100": None,
    "recommend --dim 3 --rounds 100 --norm l1": None,
    "sample-size --help": None,
    "audit log.csv": "files",
    "decide log.csv --loss 0,4;1,1": "files",
    "judge log.csv --confidence p_rain --correct outcome": "files",
    "audit log.csv --report log.html": "files",
    "monitor log.csv": "files",
    "replay days.csv --outcome outcome": "files",
    "forecast days.csv --classes rain,sun --output days.parquet": "files",
    "arena": "arena",
    "demo": "data",
    "serve --demo": "serve",
    "token list --data books.sqlite": "serve",
    "token create shop --data books.sqlite": "serve",
    "token revoke shop --data books.sqlite": "serve",
    "mcp": "client",
    "backup copy.sqlite --data books.sqlite": "serve",
    "move --data books.sqlite --to other.sqlite": "serve",
    "doctor --data books.sqlite": "serve",
}

SHELL = """
import contextlib, io, json, os, pathlib, tempfile
from treecal.cli._app import run

os.chdir(tempfile.mkdtemp())
pathlib.Path("log.csv").write_text("p_rain,p_sun,outcome\\n0.25,0.75,sun\\n0.5,0.5,rain\\n", encoding="utf-8")
pathlib.Path("days.csv").write_text("outcome\\nsun\\nrain\\n", encoding="utf-8")
found = {}
for command in {commands!r}:
    said, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        found[command] = run(command.split()), errors.getvalue()
print(json.dumps(found))
"""


@cache
def plain() -> dict[str, Any]:
    done = run_without(modules_of(*EXTRAS), PLAIN)
    assert not done.returncode, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_arrays_need_no_other_package() -> None:
    refused = {name: said for name, said in plain().items() if said.startswith("refused")}
    assert set(refused) == {"needs plots", "needs files"}
    assert len(plain()) > 40  # the registries are not empty


def test_what_needs_packages_names_them() -> None:
    for extra, package in (("plots", "matplotlib"), ("files", "duckdb")):
        hint = rf"needs {package}, .*\n\nHint: pip install .*{package}.* \(the extra {extra}\)"
        assert re.search(hint, plain()[f"needs {extra}"])


def test_every_command_works_or_names_its_extra() -> None:
    done = run_without(modules_of(*EXTRAS), SHELL.replace("{commands!r}", repr(list(COMMANDS))))
    assert not done.returncode, done.stderr
    for command, (code, errors) in json.loads(done.stdout).items():
        extra = COMMANDS[command]
        assert code == (2 if extra else 0), (command, errors)
        assert "bug" not in errors, command
        assert extra is None or f"(the extra {extra})." in errors, (command, errors)


def test_what_the_workflow_runs_on_each_system_needs_no_other_package() -> None:
    workflow = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    (paths,) = re.findall(r"python -m pytest (tests/.*)", workflow)
    files = [each for path in paths.split() for each in ([ROOT / path], sorted((ROOT / path).glob("test_*.py")))]
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for each in files for file in each]
    others = (modules_of(*EXTRAS) | {"polars", "properscoring", "scoringrules"}) - {"tests"}  # somebody installs theirs
    done = run_without(others, f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {', '.join(names)}")
    assert not done.returncode, done.stderr


def test_every_command_is_listed() -> None:
    from treecal.cli._app import app

    named = {command.split()[0] for command in COMMANDS}
    assert {name for name in app if not name.startswith("-")} == named
