"""The tutorials as notebooks: they are those of the pages, run, and print what they say they print."""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.test_docs import FENCE, FLAGS, TUTORIALS

DOCS = Path(__file__).parents[1] / "docs"
SPEC = importlib.util.spec_from_file_location("notebooks", DOCS / "notebooks.py")
assert SPEC
assert SPEC.loader
notebooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(notebooks)


def test_every_tutorial_has_one_and_nothing_else_has() -> None:
    assert sorted(TUTORIALS) == notebooks.PAGES
    assert {path.stem for path in (DOCS / "notebooks").iterdir()} == {page.stem for page in TUTORIALS}


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_notebook_is_that_of_its_page_and_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = notebooks.path_of(page).read_text("utf-8")
    assert text == notebooks.text_of(page), "python docs/notebooks.py"
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == len(FENCE.findall(page.read_text("utf-8")))
    namespace = dict[str, Any](__name__="__main__")
    for cell in cells:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), cell["id"], "exec"), namespace)
        for output in cell["outputs"]:
            expected, got = "".join(output["text"]), printed.getvalue()
            assert doctest.OutputChecker().check_output(expected, got, FLAGS), f"{cell['id']} prints\n{got}"
