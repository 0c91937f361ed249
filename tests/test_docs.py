"""The code in the documentation runs, and prints what the documentation says it prints."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import textwrap
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from treecal import correctors, forecasters

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^(?P<indent>[ \t]*)```python\b[^\n]*\n(?P<code>.*?)^(?P=indent)```[ \t]*\n", re.M | re.S)
# A text block straight after the code is what the code prints.
OUTPUT = re.compile(r"\s*^(?P<indent>[ \t]*)```text[ \t]*\n(?P<text>.*?)^(?P=indent)```[ \t]*$", re.M | re.S)
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))  # they run as notebooks, in test_notebooks.py
FILES = [ROOT / "README.md", *sorted({*(ROOT / "docs").rglob("*.md")} - {*TUTORIALS})]
PAGES = [page for page in FILES if FENCE.search(page.read_text("utf-8"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run(page: Path) -> None:
    """Run the page's python blocks in order in one namespace, as if a reader typed them in."""
    # What a page adds is gone after it.
    with patch.dict(forecasters.REGISTRY), patch.dict(correctors.REGISTRY):
        _run(page)


def _run(page: Path) -> None:
    source, namespace = page.read_text("utf-8"), dict[str, Any](__name__="__main__")
    for block in FENCE.finditer(source):
        code = textwrap.dedent(block["code"])
        line = source.count("\n", 0, block.start("code"))
        if code.lstrip().startswith(">>>"):
            example = doctest.DocTestParser().get_doctest(code, namespace, page.name, str(page), line)
            doctest.DebugRunner(optionflags=FLAGS).run(example, clear_globs=False)
            namespace.update(example.globs)
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # Blank lines in front make a traceback point into the page.
            exec(compile("\n" * line + code, str(page), "exec"), namespace)
        if output := OUTPUT.match(source, block.end()):
            expected, got = textwrap.dedent(output["text"]), printed.getvalue()
            if not doctest.OutputChecker().check_output(expected, got, FLAGS):
                raise AssertionError(f"{page}:{line}: the code prints\n{got}\nbut the page says\n{expected}")


LONG = {ROOT / "docs/howto/river.md", ROOT / "docs/gallery.md"}  # thousands of rounds in River's loop; seven pictures


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.heavy] if page in LONG else [])
        for page in PAGES
    ],
)
def test_code_in_the_docs_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page)


@pytest.mark.parametrize(
    ("code", "output", "error"),
    [
        ("1 / 0", None, ZeroDivisionError),
        ("print(1.5)", "2.5", AssertionError),
        (">>> 1 + 1\n3", None, doctest.DocTestFailure),
    ],
)
def test_wrong_pages_are_found_out(code: str, output: str | None, error: type[Exception], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"A page.\n\n```python\nx = 1\n```\n\n```python\n{code}\n```\n")
    if output is not None:
        page.write_text(page.read_text() + f"\n```text\n{output}\n```\n")
    with pytest.raises(error):
        run(page)


def test_right_pages_pass(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("- item\n\n  ```python\n  x = 1.25\n  ```\n\n```python\nprint(x)\n```\n\n```text\n1.2...\n```\n")
    run(page)


def test_pictures_of_the_gallery_are_those_that_its_code_saves() -> None:
    page = (ROOT / "docs/gallery.md").read_text("utf-8")
    saved = re.findall(r'^    save\(figure, "([\w-]+)"\)$', page, re.M)
    assert len(saved) > 5
    assert re.findall(r"^!\[.*\]\(gallery/([\w-]+)\.svg\)$", page, re.M) == saved
    assert sorted(path.stem for path in (ROOT / "docs/gallery").iterdir()) == sorted(saved)


def test_the_best_in_each_column_is_bold() -> None:
    page = (ROOT / "docs/which-forecaster.md").read_text("utf-8")
    section = page.partition("## Real streams\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[2:-1] for line in section.splitlines() if line.startswith("| `")]
    assert "| `Tracker` |" in section
    for column in zip(*rows, strict=True):
        for part in zip(*(cell.split("/") for cell in column if cell.strip()), strict=True):
            found = [(float(number.strip(" *")), "**" in number) for number in part]
            best = min(number for number, _ in found)
            assert all(bold == (number == best) for number, bold in found)
