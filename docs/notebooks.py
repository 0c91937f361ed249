"""Write the tutorials as notebooks, `docs/notebooks/*.ipynb`, from their pages: text, code, and what the code prints.

`python docs/notebooks.py`; a test runs them, and holds them equal to the pages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGES = sorted((DOCS / "tutorials").glob("*.md"))
SITE = "https://treecal.github.io/treecal"
CODE = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<text>.*?)^```\n)?", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+?)(?:\.md)?(#[^)]*)?\)")


def notebook(page: Path) -> dict[str, Any]:
    """Return the notebook of a page."""
    cells, start = list[dict[str, Any]](), 0
    source = page.read_text("utf-8").replace(f"[This page as a notebook](../notebooks/{page.stem}.ipynb).\n\n", "")
    for block in CODE.finditer(source):
        _add_text(cells, source[start : block.start()], page)
        printed = (
            []
            if block["text"] is None
            else [{"name": "stdout", "output_type": "stream", "text": _lines(block["text"])}]
        )
        cells.append({"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": printed})
        cells[-1]["source"] = _lines(block["code"].strip("\n"))
        start = block.end()
    _add_text(cells, source[start:], page)
    for at, cell in enumerate(cells):
        cell["id"] = f"{page.stem}-{at}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def text_of(page: Path) -> str:
    """Return the file of a page's notebook."""
    return json.dumps(notebook(page), indent=1, ensure_ascii=False) + "\n"


def path_of(page: Path) -> Path:
    """Return where a page's notebook is."""
    return DOCS / "notebooks" / f"{page.stem}.ipynb"


def _add_text(cells: list[dict[str, Any]], text: str, page: Path) -> None:
    if not (text := text.strip("\n")):
        return
    folder = page.parent.relative_to(DOCS)
    text = LINK.sub(lambda link: f"]({SITE}/{_target(folder, link[1], link[0])}{link[2] or ''})", text)
    cells.append({"cell_type": "markdown", "metadata": {}, "source": _lines(text)})


def _target(folder: Path, link: str, whole: str) -> str:
    parts = list[str]()
    for part in (folder / link).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts) + ".html" * (".md" in whole)


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    for each in PAGES:
        path_of(each).write_text(text_of(each), "utf-8")
