"""A new forecaster is one class: the one of the docs page "Add a forecaster" appears wherever ours do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import treecal as tc
from tests import test_docs
from treecal.forecasters import REGISTRY

PAGE = test_docs.ROOT / "docs/howto/own-forecaster.md"
SCRIPT = """
import json, sys, tempfile
import persistence
import treecal as tc
from treecal import arena
from treecal.forecasters import REGISTRY
from tests.cli.support import run
from tests.conformance.test_forecasters import cases

space = tc.Simplex(3)
race = arena.race({"persistence": REGISTRY["persistence"]}, arena.STREAMS, [space], rounds=5, workers=1).to_pylist()
f = persistence.Persistence(space, trust=0.5)
f.update([0, 1, 0])
with tempfile.TemporaryDirectory() as folder:
    tc.save(f, f"{folder}/f")
    again = tc.load(f"{folder}/f")
options = ["--dim", 3, "--forecaster", "persistence"]
print(json.dumps({
    "arena": sorted({row["stream"] for row in race if row["error"] is not None}),
    "recommend": [choice.__dict__ for choice in tc.recommend(space, "l1", rounds=50).table],
    "help": run("forecast", "--help").out,
    "forecast": run("forecast", *options, "--trust", 0.5, "--announce", "mean", stdin="1").lines,
    "refused": run("forecast", *options, "--bins", 3).err,
    "conformance": [f"{space}" for kind, space, _ in cases() if kind is persistence.Persistence],
    "resumed": [again.trust, again.rounds, again.predict() == f.predict()],
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a process sees that has imported the page's class, in a file of its own, before the command line."""
    folder = tmp_path_factory.mktemp("mine")
    block = test_docs.FENCE.search(PAGE.read_text("utf-8"))
    assert block is not None
    (folder / "persistence.py").write_text(block["code"])
    path = os.pathsep.join([str(folder), str(test_docs.ROOT), *sys.path])
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_arena_races_it(seen: Any) -> None:
    from treecal import arena

    assert seen["arena"] == sorted(arena.STREAMS)


def test_recommend_asks_it(seen: Any) -> None:
    (row,) = [row for row in seen["recommend"] if row["forecaster"].startswith("Persistence")]
    assert row == {
        "forecaster": "Persistence(space)",
        "bound": pytest.approx(1.25 * 4 / 3),
        "why": "triangle inequality",
    }


def test_the_command_line_offers_it_with_its_options(seen: Any) -> None:
    assert "persistence" in seen["help"]
    assert "Share of yesterday's outcome in the forecast. (persistence)" in seen["help"]
    assert seen["forecast"][1]["mean"] == pytest.approx([1 / 6, 4 / 6, 1 / 6])
    assert "the forecaster persistence does not take --bins" in seen["refused"]
    assert "it takes --trust" in seen["refused"]


def test_the_conformance_tests_run_it_on_every_set(seen: Any) -> None:
    from tests.conformance.test_forecasters import SPACES

    assert seen["conformance"] == list(SPACES)


def test_snapshots_find_it(seen: Any) -> None:
    assert seen["resumed"] == [0.5, 1, True]


def test_a_page_leaves_nothing_behind(tmp_path: Path) -> None:
    before = dict(REGISTRY)
    test_docs.run(PAGE)
    assert before == REGISTRY
    assert "persistence" not in str(tc.recommend(tc.Simplex(3), "l1", rounds=10)).lower()


def test_who_has_no_name_is_not_registered() -> None:
    with patch.dict(REGISTRY):
        before = dict(REGISTRY)
        type("Mine", (tc.TreeCal,), {})
        assert before == REGISTRY
        mine = type("Mine", (tc.TreeCal,), {"name": "mine"})
        assert {"mine": mine, **before} == REGISTRY
    assert "mine" not in REGISTRY


def test_the_drop_ins_of_the_readme_need_no_more_than_the_set() -> None:
    for name, kind in REGISTRY.items():
        f = kind(tc.Simplex(2))
        f.update([1, 0])
        assert f.predict().space == tc.Simplex(2)
        assert kind.name == name


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(tc.TreeCalError, match="the name 'treecal' of Mine is taken by TreeCal"):
        type("Mine", (tc.Forecaster,), {"name": "treecal"})
    assert REGISTRY["treecal"] is tc.TreeCal
