"""An audit in a notebook."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

import treecal as tc
from treecal.auditing import Audit

EVIL = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a & b", "<b>bold</b>" * 20, "$x^$"]


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: set[str] = set()
        self.cells: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.words += data
        if self.cells:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def audit() -> Audit:
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(np.ones(5), size=600)
    y = (truth.cumsum(axis=1) > rng.random((600, 1))).argmax(axis=1)
    P = truth**2 / (truth**2).sum(axis=1)[:, None]
    columns = {f"p{k}": P[:, k] for k in range(5)}
    log = {**columns, "y": np.array(EVIL)[y], "<u>g</u>": np.array(["<i>one</i>", "two"])[np.arange(600) % 2]}
    return tc.audit(log, forecast=[*columns], outcome="y", classes=EVIL, by="<u>g</u>", exact=False)


def test_it_holds_the_verdict_the_errors_and_a_picture(audit: Audit) -> None:
    text = audit._repr_html_()
    page, whole = Page(text), audit.whole
    for sentence in (*whole.verdict.sentences, whole.verdict.advice):
        assert sentence in page.words
    shown = [cell.strip() for cell in page.cells]
    for bins in (whole.top_label, *whole.classes.values()):
        interval = bins.interval()
        for figure in (f"{bins.ece:.4f}", f"{bins.chance.mean:.4f}", f"{interval.low:.4f} – {interval.high:.4f}"):
            assert figure in shown
    for part in audit.groups.values():
        assert f"{part.brier:.4f}" in shown
    picture = ET.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    assert "most likely class, 600 rows" in "".join(picture.itertext())


def test_names_are_inert(audit: Audit) -> None:
    page = Page(audit._repr_html_())
    assert not {"script", "img", "b", "i", "u", "style"} & set(page.tags)
    assert not {name for name in page.names if name.startswith("on")}
    assert page.words.count("<script>alert(1)</script>") >= 1
    assert "<u>g</u>" in page.words
    assert "<i>one</i>" in page.words


def test_of_many_groups_and_classes_the_first_are_shown() -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(30), size=400)
    columns = {f"p{k}": P[:, k] for k in range(30)}
    log = {**columns, "y": rng.integers(30, size=400), "group": np.arange(400) // 8}
    page = Page(
        tc.audit(log, forecast=[*columns], outcome="y", classes=range(30), by="group", exact=False)._repr_html_()
    )
    assert page.tags.count("table") == 4
    assert page.tags.count("tr") == 4 + 3 + 5 + 10 + 10  # heads; errors, scores, classes, groups
    assert "40 more rows" in page.words
    assert "20 more rows" in page.words
