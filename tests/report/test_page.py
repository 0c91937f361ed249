"""The page: whole, inert, self-contained, the same every time."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.strategies import one_hot
from treecal import report
from treecal.exceptions import OutcomeError, ParameterError
from treecal.plots import colour
from treecal.streams import drift
from treecal.testing import sample_outcomes

EVIL = "</title><script>alert(1)</script> \"'& $x_\x00 " + "雨" * 40
VOID = {"img", "meta", "link", "br"}


class Page(HTMLParser):
    """Keeps tags, text and attributes, and minds that tags close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def sections(names: tuple[str, str] = ("TreeCal", "BinaryGrid")) -> list[report.Section]:
    rng, three, two = np.random.default_rng(0), tc.Simplex(3), tc.Simplex(2)
    drifting, coins = drift(three, 200, rng), one_hot(2, 200, rng)
    makers: list[Any] = [tc.TreeCal, tc.BinaryGrid]
    entries = [report.play(make(two), coins, name=name) for make, name in zip(makers, names, strict=True)]
    return [
        report.Section("Drift", [report.play(tc.TreeCal(three), drifting, name=names[0])], ("lose", "draw", "win")),
        report.Section("Coins", entries, ("tails", "heads")),
    ]


def audit() -> list[report.Section]:
    """Return the smallest report there is."""
    ledger = tc.Ledger(tc.Ball(2))
    ledger.record([0, 0], [0, 1])
    return [report.Section("A log", [report.Entry("model", ledger)])]


@pytest.fixture(scope="module")
def html() -> str:
    return report.render(sections(), title="Two streams", details={"seed": 0}, command="make demo")


def pictures(page: Page) -> list[str]:
    head = "data:image/svg+xml;base64,"
    sources = [str(image["src"]) for image in page.all("img")]
    assert all(source.startswith(head) for source in sources)
    return [base64.b64decode(source.removeprefix(head)).decode() for source in sources]


def test_it_parses_and_tells_all(html: str) -> None:
    page = Page(html)
    for words in ("Two streams", "seed", "make demo", "Verdict", "TreeCal(Simplex(3))", f"treecal {tc.__version__}"):
        assert words in page.text
    # two curves; reliability and tree for both TreeCals, the triangle for one; reliability for the grid
    assert len(page.all("img")) == 2 + 3 + 3
    assert all(len(str(image["alt"])) > 20 for image in page.all("img"))
    for part in sections():
        for verdict in part.verdicts:
            assert f"{verdict.error:.3f}" in page.text
            assert f"{verdict.exact_error:.3f}" in page.text
            assert verdict.level in page.text
            assert str(verdict.advice) in page.text
            if verdict.bound is not None:
                assert f"{verdict.bound:.3f}" in page.text


def test_a_correction_is_shown_first_and_notes_once() -> None:
    rng, space = np.random.default_rng(0), tc.Simplex(2)
    given = np.column_stack([np.linspace(0, 1, 200), np.linspace(1, 0, 200)])
    entries = [
        report.play(tc.Recalibrator(space), one_hot(2, 200, rng), forecasts=given, name="better", note="<why>"),
        report.play(tc.TreeCal(space), one_hot(2, 200, rng), note="<why>"),
    ]
    html = report.render([report.Section("Coins", entries, summary="It helps.")], title="One")
    assert html.index("Before and after the correction.") < html.index("<h2>Verdict")
    page = Page(html)
    assert "Coins: It helps." in page.text
    assert page.text.count("better, TreeCal: <why>") == 1
    before = entries[0].before
    assert before is not None
    assert before.curve is not None
    (curve,) = [str(image["alt"]) for image in page.all("img") if "against rounds" in str(image["alt"])]
    assert f"better, before {before.curve.errors[-1]:.3f}" in curve  # the model itself, in the same measure
    model = replace(before, name="the model")
    text = Page(report.render([report.Section("Coins", [model, entries[0]])], title="Two"))
    (curve,) = [str(image["alt"]) for image in text.all("img") if "against rounds" in str(image["alt"])]
    assert "before" not in curve  # it is there already


def test_an_audit_has_its_groups_and_no_guarantee() -> None:
    rng = np.random.default_rng(0)
    p, site = rng.random(4000), rng.integers(4, size=4000)
    log = {"p": p, "y": rng.random(4000) < np.where(site == 2, p**3, p), "site": np.array([*"abcd"])[site]}
    found = tc.audit(log | {"day": np.arange(4000) // 200}, forecast="p", outcome="y", by="site", time="day")
    html = report.render([report.audited(found, title="Clicks")], title="Audit")
    page = Page(html)
    assert "Of 4 groups by site, 1 is off: c." in page.text
    assert "All 4 groups by site" in page.text
    assert "guaranteed" not in page.text.split("How to read this")[0]
    assert page.text.count(found.whole.verdict.sentences[0]) == 1  # said once
    for part in found.groups.values():
        assert f"{part.classwise_ece:.3f}" in page.text
    assert sum("window" in str(image["alt"]) for image in page.all("img")) == 1
    assert found.windows is not None
    assert found.windows.alarm is not None
    assert str(found.windows.alarm)[1:] in page.text
    plain = Page(report.render([report.audited(replace(found, groups={}, by=(), windows=None))], title="Audit"))
    assert "groups" not in plain.text.split("How to read this")[0]
    assert len(plain.all("img")) == 1


@pytest.mark.heavy
def test_thousands_of_groups_make_a_small_page() -> None:
    """Their rows are plain; pictures are of the worst only."""
    rng = np.random.default_rng(0)
    p, site = rng.random(90_000), rng.integers(3000, size=90_000)
    log = {"p": p, "y": rng.random(90_000) < np.where(site < 100, 0, p), "site": site}
    found = tc.audit(log, forecast="p", outcome="y", by="site", exact=False)
    html = report.render([report.audited(found, title="Clicks")], title="Audit")
    assert len(html) < 3e6
    page = Page(html)
    assert len(page.all("img")) == 1 + 12
    assert len(page.all("tr")) == 2 + 1 + 1 + 12 + 2000
    assert "the 2,000 largest" in page.text
    assert "Of 3,000 groups by site" in page.text


def test_names_that_begin_alike_are_drawn_apart() -> None:
    """A picture shortens names, and loses no class by it."""
    rng = np.random.default_rng(0)
    names = [f"{'a long beginning of a name':<40}{k}" for k in range(3)]
    ledger = tc.Ledger(tc.Simplex(3))
    ledger.record_many(rng.dirichlet(np.ones(3), size=300), rng.integers(3, size=300))
    page = Page(report.render([report.Section("x", [report.Entry("x", ledger)], names)], title="x"))
    drawn = pictures(page)[0]
    assert drawn.count("a long beginning of a n") == 3


def test_gaps_are_the_readings_largest(html: str) -> None:
    (verdict,) = sections()[0].verdicts
    table = verdict.reading.table("l1")
    share = table.weight[0] * table.gap[0] / (table.weight @ table.gap)
    rows = html[html.index("<tbody>", html.index("The largest gaps")) :]
    first = Page(rows[: rows.index("</tr>")] + "</tr></tbody>").text
    assert f"{100 * share:.2g} %" in first
    assert f"{table.gap[0]:.3f}" in first
    assert f"{table.forecast[0, 2]:.2f} → {table.outcome[0, 2]:.2f}" in first


def test_nothing_comes_from_elsewhere(html: str) -> None:
    page = Page(html)
    references = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]
    assert references
    assert all(str(value).startswith("data:") for value in references)
    assert not page.all("script")
    assert not re.search(r"url\(|@import|https?:", html)
    for svg in pictures(page):
        for element in ET.fromstring(svg).iter():
            for name, value in element.attrib.items():
                if name.endswith("href"):
                    assert value.startswith(("#", "data:image/png;base64,"))
        assert not re.search(r"url\((?!#)|@import|<script", svg)


def test_names_are_inert() -> None:
    parts = sections(names=(EVIL, "_b"))
    parts = [
        report.Section(EVIL, part.entries, [f"{EVIL}{k}" for k in range(4)][: 3 - i]) for i, part in enumerate(parts)
    ]
    page = Page(report.render(parts, title=EVIL, details={EVIL: EVIL}, command=EVIL))
    assert not page.all("script")
    assert page.text.count("<script>alert(1)</script>") > 10
    for svg in pictures(page):  # they are well-formed, whatever the names are
        tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(svg).iter()}
        assert "script" not in tags


def test_pictures_follow_the_colours_of_the_page(html: str) -> None:
    for svg in pictures(Page(html)):
        assert "currentColor" in svg
        assert "prefers-color-scheme" in svg


def test_same_input_same_bytes(html: str) -> None:
    script = (
        "import matplotlib; matplotlib.rcParams.update({'font.size': 30, 'axes.facecolor': 'red'})\n"
        "import sys, treecal.report as report; from tests.report.test_page import sections\n"
        "page = report.render(sections(), title='Two streams', details={'seed': 0}, command='make demo')\n"
        "sys.stdout.buffer.write(page.encode()); assert 'matplotlib.pyplot' not in sys.modules"
    )
    root = Path(__file__).parents[2]
    again = subprocess.check_output(
        [sys.executable, "-c", script], cwd=root, env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    )
    assert again == html.encode()


def test_an_audit_has_neither_curve_nor_tree() -> None:
    rng, ledger = np.random.default_rng(0), tc.Ledger(tc.Simplex(12))
    for p in rng.dirichlet(np.ones(12), size=200):
        ledger.record(p, np.eye(12)[rng.choice(12, p=p)])
    for given in (ledger, ledger.exact(), ledger.binned(resolution=0.5)):
        page = Page(report.render([report.Section("A log", [report.Entry("model", given)])], title="Audit"))
        assert len(page.all("img")) == 1
        assert "6 more classes with smaller errors are not shown" in pictures(page)[0]
        assert "forecasts as given" in page.text


@pytest.mark.parametrize(
    "space", [tc.Ball(3), tc.Box(0, 1, dim=2), tc.Simplex(1), tc.Product(tc.Simplex(2), tc.Ball(1))]
)
def test_every_set_has_its_report(space: tc.ConvexSet) -> None:
    outcomes = sample_outcomes(space, 30, np.random.default_rng(0))
    page = Page(report.render([report.Section("x", [report.play(tc.TreeCal(space), outcomes)])], title="x"))
    assert "Verdict" in page.text


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    target, parts = tmp_path / "report.html", audit()
    assert report.write(target, parts, title="first") == target
    first = target.read_text("utf-8")
    with pytest.raises(tc.TreeCalError, match="exists and is not overwritten"):
        report.write(target, parts, title="second")
    assert target.read_text("utf-8") == first == report.render(parts, title="first")
    report.write(target, parts, title="second", force=True)
    assert "second" in target.read_text("utf-8")
    with pytest.raises(tc.TreeCalError, match="no folder"):
        report.write(tmp_path / "nowhere" / "report.html", parts, title="x")
    with pytest.raises(tc.TreeCalError, match="is a folder"):
        report.write(tmp_path, parts, title="x", force=True)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, parts = tmp_path / "report.html", audit()
    target.write_text("old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        report.write(target, parts, title="new", force=True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("report.html", "old")]


def test_nothing_to_report() -> None:
    with pytest.raises(tc.TreeCalError, match="nothing to report"):
        report.render([], title="x")


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_missing_parts_say_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = sections()[1:]
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(tc.TreeCalError, match=r"the extra plots"):
        report.render(parts, title="x")


def test_importing_the_report_is_light() -> None:
    script = "import treecal.report, treecal.plots, sys; print(*sorted(sys.modules))"
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert "treecal.report._page" in loaded
    assert not {"matplotlib", "jinja2", "scipy", "duckdb", "pyarrow", "pandas"} & set(loaded)


def test_the_page_allows_no_scripts_and_nothing_from_elsewhere() -> None:
    ledger = tc.Ledger(tc.Simplex(2))
    ledger.record([0.5, 0.5], [1, 0])
    page = report.render([report.Section("One", [report.Entry("<script>", ledger)])], title="One")
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in page
    assert "<script" not in page


def test_more_classes_than_a_report_has_room_for_are_refused_before_any_work() -> None:
    ledger = tc.Ledger(tc.Simplex(1001))
    ledger.record(np.full(1001, 1 / 1001), np.eye(1001)[0])
    with pytest.raises(ParameterError, match="1,001 coordinates, and a report has room for 1,000"):
        report.Section("Many", [report.Entry("many", ledger)])


def test_class_indices_make_the_same_entry_as_vectors() -> None:
    classes = np.random.default_rng(0).integers(3, size=2000)
    for forecaster in (tc.TreeCal, tc.RunningMean):
        pages = []
        for outcomes in (np.eye(3)[classes], classes):
            section = report.Section("A", [report.play(forecaster(tc.Simplex(3)), outcomes)])
            pages.append(report.render([section], title="A"))
        assert pages[0] == pages[1]
        with pytest.raises(OutcomeError, match=r"at round 2 is (the )?class 3, expected 0 to 2"):
            report.play(forecaster(tc.Simplex(3)), [0, 3])


def test_a_line_keeps_its_colour_in_every_picture() -> None:
    space, rng = tc.Simplex(2), np.random.default_rng(0)
    P = rng.dirichlet([1, 1], size=300)
    better = report.play(tc.GuardedCorrector(space), rng.integers(2, size=300), forecasts=P, name="better")
    grid = report.play(tc.BinaryGrid(), rng.integers(2, size=300))
    page = Page(report.render([report.Section("x", [better, grid])], title="x"))
    (curve,) = [
        svg for svg, image in zip(pictures(page), page.all("img"), strict=True) if "against rounds" in str(image["alt"])
    ]
    drawn = [hue.lower() for hue in re.findall(r"stroke: (#[0-9a-fA-F]{6})", curve)]
    lines = {hue for hue in drawn if drawn.count(hue) > 1} - {"#b0b0b0"}  # all but the grid
    assert {hue.lower() for hue in ("#0072B2", "#D55E00", str(colour("BinaryGrid")))} == lines


def test_windows_show_the_class_that_is_off() -> None:
    """Of two classes the second: the most likely one may be right as often as it says while both are off."""
    rng = np.random.default_rng(0)
    p, day = rng.random(3000), np.arange(3000) // 300
    y = np.where(rng.random(3000) < np.where(day < 5, p, p**2), "leave", "stay")
    found = tc.audit({"p_leave": p, "y": y, "day": day}, forecast="p_leave", outcome="y", time="day", exact=False)
    page = Page(report.render([report.audited(found)], title="Days"))
    (drawn,) = (svg for svg in pictures(page) if "alarm" in svg)
    assert ">leave<" in drawn
    assert "most likely" not in drawn
