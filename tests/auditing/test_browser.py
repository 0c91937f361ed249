"""The page that audits in the browser: its digits and its words are those of `tc.audit`; it sends nothing anywhere."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.some import some
from treecal._typing import Array, Integers

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("browser", ROOT / "clients/browser/build.py")
assert SPEC
assert SPEC.loader
browser = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(browser)

NODE = shutil.which("node")
NAMES = ["Föhn", "rain", "snow, wet", "sun", *(f"kind {k}" for k in range(10, 30))]
DRIVER = """
const logs = JSON.parse(require("fs").readFileSync(0, "utf8"));
const answers = logs.map(({ text, by }) => {
  const bytes = new TextEncoder().encode(text).buffer;
  try {
    const { choice, names, rows } = answer({ bytes });
    return { choice, names, rows, ...answer({ choice: { ...choice, by: by === null ? null : names.indexOf(by) } }) };
  } catch (problem) {
    if (!(problem instanceof Complaint)) throw problem;
    return { problem: problem.message };
  }
});
console.log(JSON.stringify(answers));
"""


def answers(logs: Sequence[tuple[str, str | None]]) -> list[Any]:
    """Return what the page makes of some logs, each with the column that it is grouped by."""
    if NODE is None:
        pytest.skip("node is not installed")
    script = f"globalThis.self = globalThis;\n{browser.rule()}\n{DRIVER}"
    given = json.dumps([{"text": text, "by": by} for text, by in logs])
    done = subprocess.run([NODE, "-e", script], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def draw(seed: int, rows: int, classes: int, sharp: float = 1.0, shift: float = 0.0) -> tuple[Array, Integers]:
    """Return forecasts whose logits are too large by a factor, and off by a shift for the first class."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 1.5
    truth = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = (rng.random((rows, 1)) > truth.cumsum(axis=1)).sum(axis=1)
    P = np.exp(sharp * logits + shift * (np.arange(classes) == 0))
    return P / P.sum(axis=1, keepdims=True), y


def written(P: Array, y: Integers, *, decimals: int | None = None) -> str:
    """Return a log as CSV, with a column of groups."""
    names = NAMES[: P.shape[1]]
    lines = io.StringIO()
    writer = csv.writer(lines)
    writer.writerow(["station", *(f"p_{name}" for name in names), "weather"])
    for k, (p, label) in enumerate(zip(P, y, strict=True)):
        cells = map(repr, p.tolist()) if decimals is None else (f"{value:.{decimals}f}" for value in p)
        writer.writerow(["ABC"[k % 3], *cells, names[label]])
    return lines.getvalue()


CASES = {
    "too sure, three classes": (draw(0, 3000, 3, sharp=1.6), None),
    "two classes": (draw(1, 2000, 2, sharp=1.8), None),
    "calibrated": (draw(2, 4000, 4), None),
    "few rows": (draw(3, 60, 3, sharp=1.3), None),
    "a shift": (draw(4, 3000, 3, shift=0.7), None),
    "both": (draw(5, 5000, 4, sharp=0.6, shift=1.0), None),
    "against the outcomes": (draw(6, 800, 2, sharp=-1.0), None),
    "many classes, thin bins": (draw(7, 900, 24, sharp=1.4), None),
    "per cents": (draw(8, 2000, 2, sharp=1.5), 2),
    "tenths, on edges of bins": (draw(9, 2000, 2, sharp=1.5), 1),
    "slightly off": (draw(10, 20000, 2, sharp=1.07), 6),
}


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    texts = [(written(*log, decimals=decimals), "station") for log, decimals in CASES.values()]
    return dict(zip(CASES, answers(texts), strict=True))


def same(found: float | None, expected: float) -> bool:
    """JSON has no NaN, and no infinity."""
    return not math.isfinite(expected) if found is None else found == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("case", some(CASES, every=2))
def test_digits_and_words_are_those_of_the_audit(case: str, told: dict[str, Any], tmp_path: Path) -> None:
    (P, y), decimals = CASES[case]
    path = tmp_path / "log.csv"
    path.write_text(written(P, y, decimals=decimals), encoding="utf-8")
    audit = tc.audit(path, outcome="weather", by="station", exact=False)
    got = told[case]["result"]
    assert told[case]["rows"] == len(y)
    assert got["invalid"]["count"] == audit.problems.count == 0
    words = str(audit).split("\nCalibration errors")[0].split()
    assert " ".join([*got["sentences"], "What to do:", got["todo"]]).split() == words
    parts = [(got["whole"], audit.whole), *zip(got["groups"], audit.groups.values(), strict=True)]
    for page, ours in parts:
        # What is counted has the same digits.
        assert (page["rounds"], page["accuracy"]) == (ours.rounds, ours.accuracy)
        assert (page["brier"]["value"], page["log"]["value"] or math.inf) == (ours.brier, ours.log_score)
        assert page["classes"] == list(ours.classes)
        for cells, bins in zip([page["top"], *page["each"]], [ours.top_label, *ours.classes.values()], strict=True):
            full = np.flatnonzero(bins.weight)
            assert cells["weight"] == bins.weight.tolist()
            for name in ("forecast", "outcome"):
                assert [cells[name][b] for b in full] == getattr(bins, name)[full].tolist()
        assert [row["ece"] for row in page["table"]] == [bins.ece for bins in ours.classes.values()]
        # What follows by special functions agrees to eight.
        verdict = ours.verdict
        assert (page["level"], page["off"]) == (verdict.level, verdict.off)
        for view, own in zip(page["views"], verdict.views, strict=True):
            assert view["luck"]["value"] == own.luck.value
            pairs = [(view["luck"][name], getattr(own.luck, name)) for name in ("mean", "high")]
            pairs += [(view["luck"]["p"], own.luck.p_value), (view["base"], own.base)]
            pairs += [(view["error"][name], getattr(own.error, name)) for name in ("value", "low", "high")]
            assert [pair for pair in pairs if not same(*pair)] == []
        numbers = [page[name] for name in ("skill", "resolution", "maximum", "uncertainty")]
        expected = [ours.skill, ours.resolution, ours.top_label.mce, ours.uncertainty]
        assert all(map(same, numbers, expected))
        for interval, score in ((page["brier"], ours.brier_interval), (page["log"], ours.log_interval)):
            assert same(interval["low"], score.low)
            assert same(interval["high"], score.high)


def test_where_outcomes_are_rare_the_interval_is_drawn_and_agrees_to_a_digit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    p = rng.choice([0.001, 0.002], size=2000)
    log = tmp_path / "log.csv"
    lines = [f"{value},{int(rng.random() < value)}" for value in p]
    log.write_text("\n".join(["p,y", *lines]), encoding="utf-8")
    (got,) = answers([(log.read_text("utf-8"), None)])
    views = tc.audit(log, forecast="p", outcome="y").whole.verdict.views
    for view, own in zip(got["result"]["whole"]["views"], views, strict=True):
        assert view["error"]["high"] == pytest.approx(own.error.high, rel=0.05)
        assert view["error"]["value"] == pytest.approx(own.error.value, rel=1e-8)


def test_a_single_column_is_of_the_second_class_or_of_the_one_that_it_is_named_after() -> None:
    rows = "0.25,stay\n0.75,go\n0.5,go\n1e-3,stay\n"
    second, named = answers([(f"score,label\n{rows}", None), (f"p_go,label\n{rows}", None)])
    assert second["choice"]["columns"] == [None, 0]
    assert named["choice"]["columns"] == [0, None]
    assert named["result"]["columns"] == ["p_go", "1 - p_go"]
    assert [row["forecast"] for row in named["result"]["whole"]["table"]] == [0.37525, 0.62475]


SPELLED = [  # classes, and their columns in another order
    ("1,0", "p1,p0"), ("1,0", "class1,class0"), ("10,2,1", "p10,p2,p1"), ("AB,B,A", "pAB,pB,pA"),
    ("H,D,A", "probH,probD,probA"), ("1,-1", "p_1,p_-1"), ("q,p", "p_q,p_p"), ("x>1,x<=1", "P(x>1),P(x<=1)"),
    ("2.0,1.0", "p_2,p_1"), ("Iris-virginica,Iris-setosa", "virginica,setosa"), ("spam,ham,other", "SPAM,Ham,oTher"),
    ("pos,neg", "pos,neg"),
    ("Very Good,Good,Fair", "pVeryGood,pGood,pFair"), ("C++,C", "p_C++,p_C"), ("yes,no", "score.yes,score.no"),
]  # fmt: skip


def test_columns_are_of_the_classes_that_they_are_named_after() -> None:
    rng = np.random.default_rng(0)
    logs = []
    for classes, columns in SPELLED:
        names = classes.split(",")
        P = rng.dirichlet(np.ones(len(names)), 50)
        rows = [",".join([*map(repr, p), names[k % len(names)]]) for k, p in enumerate(P.tolist())]
        logs.append(("\n".join([f"{columns},outcome", *rows]), None))
    for (classes, columns), found in zip(SPELLED, answers(logs), strict=True):
        chosen = found["choice"]
        paired = {name: found["names"][at] for name, at in zip(chosen["classes"], chosen["columns"], strict=True)}
        assert paired == dict(zip(classes.split(","), columns.split(","), strict=True))


def test_rows_that_cannot_be_counted_are_named_and_the_others_are_the_audit_s(tmp_path: Path) -> None:
    text = (
        "p_a;p_b;y\r\n0.2;0.8;b\r\n0.3;0.8;b\r\n;0.5;a\r\n0.5;0.5;\r\n\r\n-1e-9;1.000000001;b\r\nx;1;a\r\n0.9;0.1;a\r\n"
    )
    (got,) = answers([(text, None)])
    log = tmp_path / "log.csv"
    log.write_text(text, encoding="utf-8")
    audit = tc.audit(log, outcome="y", on_error="skip")
    assert [row["row"] for row in got["result"]["invalid"]["first"]] == [2, 3, 4, 6]
    assert got["result"]["invalid"]["count"] == audit.problems.count
    assert got["result"]["whole"]["rounds"] == audit.whole.rounds
    assert got["result"]["whole"]["brier"]["value"] == audit.whole.brier


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n", "no rows below"),
        ("p,p,y\n1,0,a\n", "the same name"),
        ("p,q\n0.5,0.25\n0.75,0.5\n", "No column looks like an outcome"),
        ("p_a,p_b,y\n0.5,0.9,a\n0.2,0.7,b\n", "No row can be counted. Row 1: the probabilities sum to 1.4."),
        ("p\0,y\n0.5,a\n", "no text in UTF-8"),
    ],
)
def test_what_cannot_be_audited_is_said(text: str, words: str) -> None:
    (got,) = answers([(text, None)])
    assert words in got["problem"]


def test_the_page_is_one_file_that_asks_for_nothing() -> None:
    page = browser.page()
    assert "default-src 'none'" in page
    assert "/* worker */" not in page
    script = page[page.index("<script") :]
    asking = ("fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon", "import(", "innerHTML")
    assert not [word for word in asking if word in script]
    assert not [word for word in ("src=", "@import", "url(") if word in page]


# In Chromium


@contextmanager
def opened(tmp_path: Path, **options: Any) -> Iterator[Any]:
    """Open the page from its file in a browser; it may neither complain nor ask for anything."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="install the dependency group `browser`")
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("install Chromium, as Debian's package chromium")
    path = tmp_path / "audit.html"
    path.write_text(browser.page(), encoding="utf-8")
    complaints: list[str] = []
    with sync_api.sync_playwright() as playwright:
        window = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = window.new_context(**options).new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda asked: None if asked.url.startswith(("file:", "blob:")) else complaints.append(asked.url)
        )
        page.goto(path.as_uri())
        yield page
        window.close()
    assert complaints == []


@pytest.mark.heavy
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_it_is_used_by_everybody(scheme: str, width: int, tmp_path: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with opened(tmp_path, viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        for act in (
            lambda: None,
            lambda: page.get_by_role("button", name="Try an example").press("Enter"),
            lambda: page.get_by_label("Groups").select_option("station"),
            lambda: page.get_by_label("Probability of sun").select_option("p_rain"),
        ):
            act()
            page.locator("#status:not(:has-text('…'))").wait_for(state="attached")
            found = axe.run(page).response["violations"]
            assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found] == []
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.get_by_role("alert").inner_text() == "A column is chosen for two classes."
        page.get_by_label("Probability of rain").select_option("what is left to 1")
        page.get_by_text("The columns seem to be of the other class each").wait_for()


@pytest.mark.heavy
def test_a_million_rows_take_two_seconds(tmp_path: Path) -> None:
    P, y = draw(0, 1_000_000, 2, sharp=1.5)
    log = tmp_path / "log.csv"
    log.write_text(written(P, y, decimals=6), encoding="utf-8")
    spent = []
    with opened(tmp_path) as page:
        for _ in range(3):
            begun = time.monotonic()
            page.set_input_files("#file", log)
            page.wait_for_selector(".verdict")
            spent.append(time.monotonic() - begun)
            assert "1,000,000 rows counted" in page.inner_text("#status")
            page.evaluate("document.getElementById('result').replaceChildren()")
            page.set_input_files("#file", [])
    assert min(spent) <= 2
