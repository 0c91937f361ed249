"""Every row of the paper map names code and tests that exist, and the paper is cited by its numbers."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAP = (ROOT / "docs/explanation/paper-map.md").read_text("utf-8")
ROWS = [row for row in re.findall(r"^\| (.*) \|$", MAP, re.M) if "---" not in row and "In the code" not in row]


def exists(name: str) -> bool:
    """Return whether a dotted name of the package is a module, or something that one of its modules has."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute, None)
        return found is not None
    return False


def test_every_row_names_code_and_tests_that_exist() -> None:
    assert len(ROWS) > 40
    for row in ROWS:
        what, code, checked = row.split(" | ")
        names = re.findall(r"`(treecal[\w.]+)`", code)
        tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", checked)
        assert names, f"{what}: no code"
        assert tests, f"{what}: no test"
        for name in names:
            assert exists(name), f"{what}: there is no {name}"
        for path, function in tests:
            head = f"def {function}(" if function else "def test_"
            assert head in (ROOT / path).read_text("utf-8"), f"{what}: {path} has no {function}"


def test_what_does_not_exist_is_found_out() -> None:
    assert exists("treecal.geometry.Norm.dual")
    assert not exists("treecal.geometry.Norm.triple")
    assert not exists("treecal.geometri")


SOURCES = [p for root in ("src", "docs") for p in sorted((ROOT / root).rglob("*")) if p.suffix in (".py", ".md")]
UNNUMBERED = re.compile(r"\b(?:Theorem|Lemma|Claim|Corollary|Proposition)s?\s+(?!(?:\d+|[A-E]\.\d+)\b)")
LABELS = re.compile(
    r"\b(?:bias-variance-decomp|swap-cal|swap-calibration|olo-regularizer|rate-equivalence|TC=TS|swaplower|cal-lb|"
    r"l2cal-lb|ftl-explicit|btl-movement|olo-rate|l1ball-simplex|sample-treecal|seq-law-rate)\b|\bSPEC\b(?! 0)"
)


def badly_cited(text: str) -> list[str]:
    """Return the places that cite a label of the LaTeX source, or a file that readers do not have."""
    found = [match for pattern in (UNNUMBERED, LABELS) for match in pattern.finditer(text)]
    return [f"line {text.count(chr(10), 0, m.start()) + 1}: {text[m.start() : m.end() + 20]!r}" for m in found]


def test_results_are_cited_by_the_papers_numbers() -> None:
    """Whoever holds the PDF must find the place."""
    found = {str(path.relative_to(ROOT)): badly_cited(path.read_text("utf-8")) for path in SOURCES}
    assert len(found) > 100
    assert not {path: places for path, places in found.items() if places}


@pytest.mark.parametrize("text", ["as Lemma says", "by Theorem swap-cal", "see SPEC", "Claim 3 and Lemma F.2"])
def test_a_bad_citation_is_found_out(text: str) -> None:
    assert badly_cited(text)
