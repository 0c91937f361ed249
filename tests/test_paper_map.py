"""Every name on the paper map exists, and the paper is cited by its numbers."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAP = (ROOT / "docs/explanation/paper-map.md").read_text()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(treecal\.[\w.]+)`", MAP))))
def test_code_exists(name: str) -> None:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        return
    raise AssertionError(f"no module in {name}")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", MAP))))
def test_test_exists(name: str) -> None:
    path, function = name.split("::")
    assert f"def {function}(" in (ROOT / path).read_text()


SOURCES = [p for root in ("src", "docs") for p in sorted((ROOT / root).rglob("*")) if p.suffix in (".py", ".md")]
UNNUMBERED = re.compile(r"\b(?:Theorem|Lemma|Claim|Corollary|Proposition)s?\s+(?!(?:\d+|[A-E]\.\d+)\b)")
LABELS = re.compile(
    r"\b(?:bias-variance-decomp|swap-cal|swap-calibration|olo-regularizer|rate-equivalence|TC=TS|swaplower|cal-lb|"
    r"l2cal-lb|ftl-explicit|btl-movement|olo-rate|l1ball-simplex|sample-treecal|seq-law-rate)\b|\bSPEC\b"
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_results_are_cited_by_the_papers_numbers(path: Path) -> None:
    """No label of the LaTeX source and no file that readers do not have: whoever holds the PDF must find the place."""
    text = path.read_text("utf-8")
    found = [match for pattern in (UNNUMBERED, LABELS) for match in pattern.finditer(text)]
    assert not [f"line {text.count(chr(10), 0, m.start()) + 1}: {text[m.start() : m.end() + 20]!r}" for m in found]


def test_the_map_is_read() -> None:
    assert len(re.findall(r"`tests/", MAP)) > 15
