"""`treecal doctor`: it finds what is missing, and what is broken."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

import treecal as tc
from tests.cli.support import run
from treecal.cli import _checks as checks


def test_all_is_well() -> None:
    done = run("doctor", "--json")
    document = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert document["versions"]["treecal"] == tc.__version__
    assert {part["part"]: part["state"] for part in document["parts"]} == dict.fromkeys(checks.CHECKS, "works")


def test_what_is_missing_is_named_and_what_is_broken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unstable(space: tc.ConvexSet) -> tc.TreeCal:
        raise ZeroDivisionError("by zero")

    only = ("snapshots", "pygambit", "arena")
    monkeypatch.setattr(checks, "CHECKS", {name: checks.CHECKS[name] for name in only})
    monkeypatch.setitem(sys.modules, "pygambit", None)
    monkeypatch.setattr(tc, "AdaptiveTreeCal", unstable)
    done = run("doctor")
    assert done.code == 1
    assert "Something is broken" in done.out
    states = {part["part"]: part for part in json.loads(run("doctor", "--json").out)["parts"]}
    assert states["snapshots"]["state"] == "broken"
    assert "ZeroDivisionError: by zero" in states["snapshots"]["what"]
    assert states["pygambit"]["state"] == "missing"
    assert 'pip install "treecal[games]"' in states["pygambit"]["what"]
    assert states["arena"]["state"] == "works"


def test_a_wrong_answer_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tc, "certificate", lambda *_, **__: SimpleNamespace(bound=0.01))
    with pytest.raises(tc.TreeCalError, match=r"does not hold that an error of .* is within the certified 0.010"):
        checks.forecasters()
