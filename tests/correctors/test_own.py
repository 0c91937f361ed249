"""A corrector of one's own: that of the docs page "Add a corrector" is saved, and chosen by name wherever ours are."""

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
from tests.conformance.test_forecasters import SPACES
from treecal.correctors import REGISTRY
from treecal.exceptions import SnapshotError
from treecal.state import dumps, loads

PAGE = test_docs.ROOT / "docs/howto/own-corrector.md"
SCRIPT = """
import json
import shrink
import treecal as tc
from tests.cli.support import run
from tests.conformance.test_correctors import CASES
from treecal.serve._config import read_parts, thing_of, written_parts
from treecal.serve._wire import NewStream, Part
from treecal.state import dumps, loads

rows = "p_rain,p_sun,outcome\\n" + "0.9,0.1,rain\\n0.9,0.1,sun\\n" * 2
done = run("recalibrate", "--classes", "rain,sun", "--method", "shrink", "--kind", "csv", stdin=rows)
new = NewStream(name="sky", classes=["no", "yes"], corrector=Part(name="shrink", options={"share": 0.5}))
made = thing_of(new, tc.Simplex(classes=["no", "yes"]))
again, _ = read_parts(written_parts(made, {}))
gated = tc.Gated(shrink.Shrink(tc.Simplex(2), share=0.5))
gated.update_many([[0.9, 0.1]] * 9, [1, 0, 0] * 3)
print(json.dumps({
    "means": [line["mean"] for line in done.lines],
    "served": repr(made) == repr(again) and made.share,
    "resumed": loads(dumps(gated)).corrector._state.outcomes.tolist(),
    "conformance": sorted({space for kind, space, _ in CASES if kind is shrink.Shrink}),
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a process sees that has imported the page's class, in a file of its own, before the command line."""
    folder = tmp_path_factory.mktemp("mine")
    block = test_docs.FENCE.search(PAGE.read_text("utf-8"))
    assert block is not None
    (folder / "shrink.py").write_text(block["code"])
    path = os.pathsep.join([str(folder), str(test_docs.ROOT), *sys.path])
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_line_offers_it(seen: Any) -> None:
    assert [each["rain"] for each in seen["means"]] == pytest.approx([0.9, 0.93, 0.78, 0.83])


def test_the_server_makes_streams_with_it(seen: Any) -> None:
    assert seen["served"] == 0.5


def test_snapshots_hold_it_as_a_part(seen: Any) -> None:
    assert seen["resumed"] == [6.0, 3.0]


def test_the_conformance_tests_run_its_examples(seen: Any) -> None:
    assert seen["conformance"] == sorted(SPACES)


def test_a_page_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(REGISTRY)
    test_docs.run(PAGE)
    assert before == REGISTRY


def test_a_name_is_needed_and_may_be_that_of_a_forecaster() -> None:
    nameless = type("Nameless", (tc.PlattScaling,), {})(tc.Simplex(2))
    with pytest.raises(SnapshotError, match="nor a class with a name") as refused:
        dumps(nameless)
    assert 'name = "nameless"' in str(refused.value)
    with patch.dict(REGISTRY), patch.dict(tc.forecasters.REGISTRY):
        forecaster = type("Mine", (tc.RunningMean,), {"name": "mine"})(tc.Simplex(2))
        corrector = type("Own", (tc.PlattScaling,), {"name": "mine"})(tc.Simplex(2))
        assert type(loads(dumps(forecaster))) is type(forecaster)
        assert type(loads(dumps(corrector))) is type(corrector)
        with pytest.raises(tc.TreeCalError, match="the name 'mine' of Other is taken by Own"):
            type("Other", (tc.PlattScaling,), {"name": "mine"})
