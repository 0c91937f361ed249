"""`treecal doctor`: it finds what is missing, and what is broken."""

from __future__ import annotations

import json
import re
import sys
import time
from functools import cache
from itertools import combinations, count
from math import comb
from types import SimpleNamespace

import pytest

import treecal as tc
from tests.cli.support import run
from tests.without import EXTRAS, modules_of, run_without
from treecal.cli import _checks as checks

PARTS = {  # by extra, the parts that need it
    "arena": {"arena"},
    "client": {"client"},
    "data": {"real streams"},
    "files": {"files"},
    "games": {"pygambit", "OpenSpiel"},
    "plots": {"report"},
    "postgres": {"PostgreSQL"},
    "river": {"river"},
    "serve": {"server"},
    "sklearn": {"scikit-learn"},
    "spark": {"Spark"},
    "theory": {"best regularizer"},
    "torch": {"torch"},
}


def test_all_is_well() -> None:
    done = run("doctor", "--json")
    document = json.loads(done.out)
    assert done.code == 0
    assert all(re.fullmatch(r"treecal: parts: \d+ of 18 after \d+ s\.", line) for line in done.err.splitlines())
    assert document["versions"]["treecal"] == tc.__version__
    states = dict.fromkeys(checks.CHECKS, "works") | dict.fromkeys(checks.LOADS, "loads")
    assert {part["part"]: part["state"] for part in document["parts"]} == states


def test_what_is_missing_is_named_and_what_is_broken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unstable(space: tc.ConvexSet) -> tc.TreeCal:
        raise ZeroDivisionError("by zero")

    only = ("snapshots", "pygambit", "arena")
    monkeypatch.setattr(checks, "CHECKS", {name: checks.CHECKS[name] for name in only})
    monkeypatch.setattr(checks, "LOADS", {})
    monkeypatch.setitem(sys.modules, "pygambit", None)
    monkeypatch.setattr(tc, "AdaptiveTreeCal", unstable)
    done = run("doctor")
    assert done.code == 1
    assert "Something is broken" in done.out
    states = {part["part"]: part for part in json.loads(run("doctor", "--json").out)["parts"]}
    assert states["snapshots"]["state"] == "broken"
    assert "ZeroDivisionError: by zero" in states["snapshots"]["result"]
    assert states["pygambit"]["state"] == "not installed"
    assert "(the extra games)" in states["pygambit"]["result"]
    assert states["arena"]["state"] == "works"


def test_it_tells_how_far_it_is_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(step=2)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(checks, "CHECKS", dict.fromkeys(map(str, range(9)), lambda: "well"))
    monkeypatch.setattr(checks, "LOADS", {})
    told = [f"treecal: parts: {done} of 9 after {2 * done} s." for done in (2, 4, 8)]
    assert run("doctor", "--json").err.splitlines() == told


def test_a_wrong_answer_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tc, "certificate", lambda *_, **__: SimpleNamespace(bound=0.01))
    with pytest.raises(tc.TreeCalError, match=r"expected that an error of .* is within the certified 0.010"):
        checks.forecasters()


@cache
def doctor_without(*extras: str) -> dict[str, dict[str, str]]:
    """Run doctor in a new process that has nothing of these extras; return what it found, part by part."""
    script = 'from treecal.cli import main\nmain(["doctor", "--json"])'
    done = run_without(modules_of(*extras), script)
    assert done.returncode == 0, done.stdout + done.stderr
    return {part["part"]: part for part in json.loads(done.stdout)["parts"]}


# A process takes seconds, so several extras are left out of one. Each is left out of two processes, and no two of the
# same two: of any two extras the first is left out somewhere where the second, which might need it, is there.
PROCESSES = next(n for n in count(2) if comb(n, 2) >= len(EXTRAS))
LEFT_OUT = dict(zip(EXTRAS, combinations(range(PROCESSES), 2), strict=False))


@pytest.mark.heavy  # the next test leaves out all of them
@pytest.mark.parametrize("extra", EXTRAS)
def test_without_an_extra_its_parts_are_not_installed_and_nothing_is_broken(extra: str) -> None:
    assert modules_of(extra)
    for process in LEFT_OUT[extra]:
        found = doctor_without(*(other for other in EXTRAS if process in LEFT_OUT[other]))
        assert {part["state"] for part in found.values()} <= {"works", "loads", "not installed"}
        for part in PARTS.get(extra, ()):
            assert found[part]["state"] == "not installed", found[part]
            assert re.search(
                rf"which is not installed. Hint: pip install .*\(the extra {extra}\)", found[part]["result"]
            )


def test_a_plain_installation_is_well() -> None:
    found = doctor_without(*EXTRAS)
    optional = set[str]().union(*PARTS.values())
    states = {part: "not installed" if part in optional else "works" for part in checks.CHECKS}
    assert {part: found[part]["state"] for part in found} == states | dict.fromkeys(checks.LOADS, "not installed")
