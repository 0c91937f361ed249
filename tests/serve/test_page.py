"""The page in a real browser, with a real server: live, quiet, by keyboard, and readable for everybody."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.heavy
CHROMIUM = shutil.which("chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("install Chromium, as Debian's package chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="install the dependency group `browser`")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@contextmanager
def serving(data: Path, port: int = 0) -> Iterator[str]:
    """Run a server of these books, and yield its address."""
    command = [sys.executable, "-m", "treecal", "serve", "--data", str(data), "--port", str(port)]
    log = data.with_suffix(".log")
    with log.open("w") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            while not (found := re.search(r"the page is at (http\S+)/\n", log.read_text("utf-8"))):
                assert process.poll() is None, log.read_text("utf-8")
                time.sleep(0.05)
            yield found[1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


@contextmanager
def looking(browser: Any, base: str, **options: Any) -> Iterator[Any]:
    """Open a page that may neither complain nor ask anybody but the server."""
    context = browser.new_context(base_url=base, **options)
    context.set_default_timeout(60_000)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith((base, "blob:")) else complaints.append(asked.url))
    try:
        yield page
    finally:
        context.close()
    assert complaints == []


def ask(page: Any, path: str, body: Any = None, **options: Any) -> Any:
    """Ask the server beside the page, as a model would."""
    method = "get" if body is None else "post"
    answer = getattr(page.context.request, method)(path, **({} if body is None else {"data": body}), **options)
    assert answer.ok, answer.text()
    return answer.json()


def send(page: Any, stream: str, rows: list[tuple[str, list[float], int]], *, tags: Any = None) -> None:
    """Announce forecasts, a hundred at a time, and settle them."""
    for start in range(0, len(rows), 100):
        some = rows[start : start + 100]
        forecasts = [{"id": name, "p": p, "tags": tags(name) if tags else {}} for name, p, _ in some]
        ask(page, f"/v1/streams/{stream}/forecasts/batch", {"forecasts": forecasts})
        ask(page, "/v1/outcomes", {"outcomes": [{"stream": stream, "id": name, "outcome": y} for name, _, y in some]})


def rows(count: int, *, sharp: float, start: int = 0, seed: int = 0) -> list[tuple[str, list[float], int]]:
    """Forecasts of two classes, too sure by a factor of the logits, with their outcomes."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=count)
    came = rng.random(count) < 1 / (1 + np.exp(-z))
    p = 1 / (1 + np.exp(-sharp * z))
    return [(f"r{start + i}", [1 - p[i], p[i]], int(came[i])) for i in range(count)]


def live(page: Any) -> None:
    page.wait_for_selector("#live[data-state=live]")


def drawn(page: Any, chart: str) -> bool:
    """Tell whether a chart has anything on it besides its axes."""
    script = """canvas => {
      const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const colours = new Set();
      for (let i = 0; i < data.length; i += 4) if (data[i + 3] == 255) colours.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
      return colours.size;
    }"""  # noqa: E501
    return bool(page.locator(f".{chart} canvas").evaluate(script) > 3)


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.id || document.activeElement.textContent"))


def tab_to(page: Any, wanted: str, *, most: int = 60) -> None:
    """Press Tab until the element with this id or text has the focus."""
    for _ in range(most):
        if focused(page) == wanted:
            return
        page.keyboard.press("Tab")
    pytest.fail(f"Tab does not reach {wanted!r}")


def test_a_stream_is_created_fed_and_alarms_without_a_reload(browser: Any, tmp_path: Path) -> None:
    # By keyboard alone, from the first page on.
    with serving(tmp_path / "books.sqlite") as base, looking(browser, base) as page:
        page.goto("/")
        page.get_by_text("There is no stream yet.").wait_for()
        tab_to(page, "new-name")
        page.keyboard.type("weather.rain")
        tab_to(page, "new-classes")
        page.keyboard.type("dry, rain")
        tab_to(page, "new-player")
        page.keyboard.type("temp")  # a list of choices finds what is typed
        tab_to(page, "new-gate")
        page.keyboard.press("Space")
        tab_to(page, "new-alpha")
        page.keyboard.press("Enter")

        page.wait_for_url("**/streams/weather.rain")
        live(page)
        page.get_by_text("Send its first forecast, as below").wait_for()
        made = ask(page, "/v1/streams/weather.rain")["config"]
        assert (made["classes"], made["corrector"]["name"], made["gate"]) == (["dry", "rain"], "temperature", True)
        page.evaluate("window.same = true")

        ask(page, "/v1/streams/weather.rain/forecasts", {"id": "open", "p": [0.5, 0.5], "due": time.time() - 60})
        page.get_by_text("1 forecast awaits its outcome, 1 of them overdue.").wait_for()
        page.get_by_role("rowheader", name="open").wait_for()

        send(page, "weather.rain", rows(400, sharp=1))
        page.locator(".facts", has_text="outcomes400").wait_for()
        assert not page.locator(".alarm.card").is_visible()
        send(page, "weather.rain", rows(400, sharp=3, start=400, seed=1))
        page.locator(".alarm.card").wait_for()
        page.get_by_text("forecasts are too sure").first.wait_for()
        page.locator("#error-summary", has_text="After 800 outcomes").wait_for()
        for chart in ("reliability", "error", "evidence"):
            assert drawn(page, chart), chart
        said = page.locator("#evidence-summary").text_content()
        assert "An alarm is raised at 20." in said
        assert "it stays until you begin anew" in said
        page.get_by_text("Over 800 outcomes, the Brier score of the model is").wait_for()
        assert page.get_by_text("No correction needed").count() == 0

        tab_to(page, "Begin anew")
        page.keyboard.press("Enter")
        assert focused(page) == "Cancel"
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        page.locator("dialog[open]").wait_for(state="detached")
        page.locator(".alarm.card").wait_for(state="hidden")
        assert not ask(page, "/v1/streams/weather.rain")["monitors"]["model"]["alarm"]
        assert page.locator(".plain li", has_text="forecasts are too sure").first.is_visible()  # the record stays
        assert focused(page) == "main"

        tab_to(page, "hold")
        page.keyboard.press("Enter")
        send(page, "weather.rain", rows(100, sharp=1, start=800))
        time.sleep(2)  # in which it would have moved
        assert page.locator(".facts", has_text="outcomes800").is_visible()
        page.get_by_role("button", name="Pause", pressed=True).press("Enter")
        page.locator(".facts", has_text="outcomes900").wait_for()
        assert page.evaluate("window.same") is True


def test_the_list_moves_and_what_needs_attention_comes_first(browser: Any, tmp_path: Path) -> None:
    with serving(tmp_path / "books.sqlite") as base, looking(browser, base) as page:
        for name in ("a", "b", "c"):
            ask(page, "/v1/streams", {"name": name, "classes": ["no", "yes"]})
        page.goto("/")
        live(page)
        page.get_by_text("3 streams: no alarm").wait_for()
        page.evaluate("window.same = true")
        send(page, "c", rows(500, sharp=3))
        page.locator("tbody tr").first.get_by_role("link", name="c").wait_for()
        page.locator("tbody tr").first.get_by_text("far off").wait_for()
        page.locator("tbody tr").first.get_by_text("too sure, since").wait_for()
        ask(page, "/v1/streams", {"name": "d", "classes": ["no", "yes"]})
        page.get_by_role("link", name="d").wait_for()
        page.locator("#filter").fill("far off")
        assert page.locator("tbody tr").count() == 1
        page.locator("#filter").fill("nothing like it")
        page.get_by_text("No stream matches the filter.").wait_for()
        assert page.evaluate("window.same") is True


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[str]:
    """The address of a server with streams of every kind."""
    with serving(tmp_path_factory.mktemp("books") / "books.sqlite") as base, looking(browser, base) as page:
        page.goto("/")
        new = {"name": "flights.delay", "classes": ["on time", "late"], "corrector": {"name": "guarded"}}
        ask(page, "/v1/streams", new | {"tags": ["carrier"]})
        send(page, "flights.delay", rows(3000, sharp=3), tags=lambda name: {"carrier": ["AA", "UA"][int(name[1:]) % 2]})
        late = [{"id": f"late{i}", "p": [0.5, 0.5], "due": 1.0} for i in range(30)]
        ask(page, "/v1/streams/flights.delay/forecasts/batch", {"forecasts": late})
        ask(page, "/v1/streams", {"name": "new", "classes": ["no", "yes"]})
        ask(page, "/v1/streams", {"name": "own", "classes": ["no", "yes"], "forecaster": {"name": "guarded"}})
        own = [{"id": f"o{i}"} for i in range(100)]
        ask(page, "/v1/streams/own/forecasts/batch", {"forecasts": own})
        ask(page, "/v1/outcomes", {"outcomes": [{"stream": "own", "id": f"o{i}", "outcome": i % 2} for i in range(90)]})
        ask(page, "/v1/streams", {"name": "box", "set": {"name": "Box", "options": {"low": 0, "high": 1, "dim": 2}}})
        points = [{"id": f"p{i}", "p": [0.2, 0.8]} for i in range(50)]
        ask(page, "/v1/streams/box/forecasts/batch", {"forecasts": points})
        came = [{"stream": "box", "id": f"p{i}", "outcome": [0.1, 0.9]} for i in range(50)]
        ask(page, "/v1/outcomes", {"outcomes": came})
        ask(page, "/v1/streams", {"name": "old", "classes": ["no", "yes"]})
        send(page, "old", rows(50, sharp=1))
        ask(page, "/v1/streams/old/archive", {})
        yield base


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/streams/flights.delay", "/streams/new", "/streams/own", "/streams/box"])
def test_everybody_can_read_it(browser: Any, books: str, path: str, scheme: str, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with looking(browser, books, **options) as page:
        page.goto(path)
        live(page)
        page.locator(".card:visible").first.wait_for()
        if path == "/":
            page.get_by_role("link", name="flights.delay").wait_for()
        if path == "/streams/flights.delay":
            page.get_by_role("rowheader", name="UA").wait_for()
            page.locator(".evidence canvas").wait_for()
        for part in page.locator("details").all():
            if part.is_visible():
                part.evaluate("part => { part.open = true }")
        found = axe.run(page).response["violations"]
        assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found] == []
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_class_a_tag_and_a_window_are_chosen(browser: Any, books: str) -> None:
    with looking(browser, books) as page:
        page.goto("/streams/flights.delay")
        page.locator("#reliability-summary", has_text="For the most likely class").wait_for()
        page.select_option("#class-chooser", label="late")
        page.locator("#reliability-summary", has_text="For late, the ECE is").wait_for()
        page.locator(".reliability summary").click()
        page.locator(".reliability tbody tr").nth(9).wait_for()
        page.get_by_role("rowheader", name="AA").wait_for()
        page.select_option("#scores-by", label="hour")
        page.get_by_role("rowheader", name=re.compile(r"^\d{4}-\d\d-\d\d \d\d:00 UTC$")).first.wait_for()
        page.get_by_text("30 forecasts await their outcomes, 30 of them overdue.").wait_for()
        page.get_by_role("button", name="Show more").click()
        page.get_by_role("rowheader", name="late29").wait_for()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download the rounds as Parquet").click()
        assert Path(download.value.path()).read_bytes()[:4] == b"PAR1"


def test_what_is_not_there_is_said(browser: Any, books: str) -> None:
    context = browser.new_context(base_url=books)  # where a console may tell of the 404
    page = context.new_page()
    page.goto("/streams/nowhere")
    page.get_by_text("There is no stream named nowhere.").wait_for()
    context.close()


def test_the_first_outcome_is_shown_everywhere_at_once(browser: Any, tmp_path: Path) -> None:
    with serving(tmp_path / "books.sqlite") as base, looking(browser, base) as page:
        ask(page, "/v1/streams", {"name": "s", "classes": ["no", "yes"]})
        ask(page, "/v1/streams/s/forecasts", {"id": "a", "p": [0.5, 0.5]})
        page.goto("/streams/s")
        live(page)
        page.get_by_text("Scores need outcomes.").wait_for()
        page.get_by_text("Nothing to compare yet").wait_for()
        ask(page, "/v1/outcomes", {"outcomes": [{"stream": "s", "id": "a", "outcome": 1}]})
        page.locator(".facts", has_text="outcomes1").wait_for()
        assert page.get_by_text("Scores need outcomes.").count() == 0
        assert not page.get_by_text("Nothing to compare yet").is_visible()
        page.locator("#error-summary", has_text="After 1 outcome, the error").wait_for()
        page.locator("#reliability-summary", has_text="in 1 round.").wait_for()


def test_words_agree_with_each_other(browser: Any, books: str) -> None:
    # A verdict over all outcomes and an alarm along the way; what a correction, and what a guarantee, is worth.
    script = """async () => {
      const words = await import("/page/words.js");
      const alarm = {of: "announced", at: 1, since: 0, round: 1, onset: 1, kind: "class", where: "b", direction: "too low", size: 1, gap: 0.1, e_value: 21, group: null};
      const calm = {level: "calibrated", sentences: ["", "Fine."], advice: "No correction needed."};
      const part = found => ({brier: found, intervals: {level: 0.9, brier: [found - 0.1, found + 0.1]}});
      const stream = (own, model) => ({
        config: {corrector: {name: "vector"}}, counts: {learned: 7}, verdict: calm, model_verdict: calm,
        monitors: {announced: {alarm: own}, model: {alarm: model}},
      });
      const both = stream(alarm, null);
      const change = (value, low, high) => words.benefit({rounds: 9, of: 12, model: part(0.5), announced: part(0.5 + value), change: {value, low, high, level: 0.9}}, true);
      const mark = guarantee => [{rounds: 1, announced: 0.5, model: null, guarantee}];
      const numbers = {...alarm, kind: "interval", where: 0.8, direction: "too narrow", gap: -0.3};
      return {
        numbers: [words.alarmInWords(numbers), words.alarmInWords({...numbers, e_value: null}), words.watch(stream(numbers, null))],
        alarm: words.alarmInWords(alarm), proof: words.alarmInWords({...alarm, e_value: null}),
        list: [words.watch(both), words.sentence(both), words.sentence(stream(null, null))],
        advice: [words.advice(both), words.advice(stream(null, {...alarm, of: "model"})), words.advice(stream(null, null))],
        why: [words.reconciled(both, "announced") !== "", words.reconciled(both, "model")],
        remedy: words.remedy(both),
        change: [change(-0.02, -0.03, -0.01), change(0.02, 0.01, 0.03), change(0.02, -0.01, 0.05)],
        error: [words.errorSummary(mark(2), false, true), words.errorSummary(mark(1.5), false, true)],
        slow: [["guarded", 50], ["guarded", 5], ["tracker", 50]].map(([name, pending]) => words.slowed({config: {forecaster: {name}}, counts: {pending}}) !== ""),
        made: words.made({config: {classes: ["a", "b"]}}),
      };
    }"""  # noqa: E501
    with looking(browser, books) as page:
        page.goto("/")
        said = page.evaluate(script)
    assert said["alarm"].startswith(
        "Forecasts of b are too low, by 0.1 on average, since the first outcome, which arrived "
    )
    assert said["alarm"].endswith("It was raised after 1 outcome.")
    assert said["numbers"][0].startswith(
        "Forecasts are too narrow: the 80\u00a0% interval held 50\u00a0%, since the first"
    )
    assert said["numbers"][1].startswith("The outcome was a number, to which the forecast gave the probability 0.")
    assert said["numbers"][2] == "announced: too narrow, since the first outcome"
    assert said["proof"].startswith("The outcome was b, to which the forecast gave the probability 0. ")
    assert said["list"] == [
        "announced: b too low, since the first outcome",
        "Over all outcomes together; the alarm looks at them in order.",
        "Fine.",
    ]
    assert said["advice"] == [
        "See to the alarm first.",
        "Nothing about what is announced; the alarm is of the model alone.",
        "No correction needed.",
    ]
    assert said["why"] == [True, ""]
    assert "look at the correction" in said["remedy"]
    assert [text.rpartition("; lower is better. ")[2] for text in said["change"]] == [
        "The correction lowers it by 0.02, give or take 0.01: it helps.",
        "The correction raises it by 0.02, give or take 0.01: so far it does harm.",
        "The correction raises it by 0.02, give or take 0.03: too early to tell whether it helps.",
    ]
    assert said["change"][0].startswith(
        "Over the last 9 outcomes, the Brier score of the model is 0.500 (90\u00a0% int"
    )
    assert said["error"][0].endswith("a round. There is no useful guarantee yet after 1 outcome.")
    assert said["error"][1].endswith("a round. It is guaranteed to be at most 1.5.")
    assert said["slow"] == [True, False, False]
    assert said["made"].endswith("the probability of ever raising a false alarm is at most 5\u00a0%")


def test_archived_streams_are_shown_on_request(browser: Any, books: str) -> None:
    with looking(browser, books) as page:
        page.goto("/")
        page.get_by_role("link", name="flights.delay").wait_for()
        assert page.get_by_role("link", name="old").count() == 0
        page.locator("#archived").check()
        page.get_by_role("link", name="old").click()
        page.get_by_text("it takes no new forecasts; outcomes").wait_for()
        assert page.get_by_role("button", name="Archive").count() == 0


def test_text_from_the_server_is_never_markup(browser: Any, tmp_path: Path) -> None:
    bad = '<img src=x onerror="window.bad=1">'
    with serving(tmp_path / "books.sqlite") as base, looking(browser, base) as page:
        ask(page, "/v1/streams", {"name": "s", "classes": [bad, "'; $(x)"], "tags": ["t"]})
        ask(page, "/v1/streams/s/forecasts", {"id": bad, "p": [0.5, 0.5], "tags": {"t": bad}})
        send(page, "s", rows(300, sharp=4), tags=lambda _: {"t": bad})
        for path in ("/", "/streams/s"):
            page.goto(path)
            live(page)
            page.get_by_text("far off").first.wait_for()
        page.get_by_role("rowheader", name=bad).first.wait_for()
        assert page.locator("img").count() == 0
        assert page.evaluate("window.bad") is None
        command = page.locator("pre").nth(1).text_content()
        sent = """'{ "outcomes": [ { "stream": "s", "id": "round-1", "outcome": "'\\''; $(x)" } ] }'"""
        assert command.endswith(f"-d {sent}")


def test_a_refused_form_says_why_and_where(browser: Any, books: str) -> None:
    context = browser.new_context(base_url=books)
    page = context.new_page()
    page.goto("/")
    page.get_by_text("Create a stream").click()
    page.fill("#new-name", "three")
    page.fill("#new-classes", "a, b, c")
    page.select_option("#new-player", value="corrector platt")
    page.get_by_role("button", name="Create the stream").click()
    page.get_by_role("alert").wait_for()
    assert focused(page) == "new-player"
    assert page.locator("#new-player").get_attribute("aria-invalid") == "true"
    page.fill("#new-name", "no spaces here")
    page.get_by_role("button", name="Create the stream").click()  # which the browser stops
    page.get_by_role("alert").wait_for(state="detached")
    assert page.locator("#new-player").get_attribute("aria-invalid") is None
    context.close()


def test_every_choice_of_the_form_is_taken(browser: Any, tmp_path: Path) -> None:
    with serving(tmp_path / "books.sqlite") as base, looking(browser, base) as page:
        page.goto("/")
        page.get_by_text("There is no stream yet.").wait_for()
        values = page.locator("#new-player option").evaluate_all("options => options.map(each => each.value)")
        assert len(values) > 10
        for number, value in enumerate(values):
            page.goto("/")
            page.locator("#new-player").wait_for(state="attached")
            page.locator(".create").evaluate("part => { part.open = true }")
            page.fill("#new-name", f"s{number}")
            page.fill("#new-classes", "no, yes")
            page.select_option("#new-player", value=value)
            page.get_by_role("button", name="Create the stream").click()
            page.wait_for_url(f"**/streams/s{number}")


def test_a_token_is_asked_for_kept_and_forgotten(browser: Any, tmp_path: Path) -> None:
    data = tmp_path / "books.sqlite"
    make = [sys.executable, "-m", "treecal", "token", "create", "page", "--data", str(data), "--json"]
    scopes = [part for scope in ("forecast", "outcome", "read", "admin") for part in ("--scope", scope)]
    made = subprocess.run([*make, *scopes], check=True, capture_output=True, text=True)
    token = json.loads(made.stdout)["token"]
    with serving(data) as base:
        context = browser.new_context(base_url=base)  # the console tells of each 401
        page = context.new_page()
        bearer = {"headers": {"Authorization": f"Bearer {token}"}}
        ask(page, "/v1/streams", {"name": "s", "classes": ["no", "yes"]}, **bearer)
        page.goto("/")
        page.get_by_role("heading", name="A token is needed").wait_for()
        assert focused(page) == "token"
        page.keyboard.type("tcal_wrong")
        page.keyboard.press("Enter")
        page.get_by_text("That token was refused").wait_for()
        page.keyboard.type(token)
        page.keyboard.press("Enter")
        page.get_by_role("link", name="s", exact=True).click()
        live(page)
        ask(page, "/v1/streams/s/forecasts", {"id": "a", "p": [0.5, 0.5]}, **bearer)
        page.get_by_text("1 forecast awaits its outcome").wait_for()
        assert "$TREECAL_TOKEN" in page.locator("pre").first.text_content()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download the rounds as Parquet").click()
        assert Path(download.value.path()).read_bytes()[:4] == b"PAR1"
        assert token not in page.content()
        page.get_by_role("button", name="Forget the token").click()
        page.get_by_role("heading", name="A token is needed").wait_for()
        assert page.evaluate("sessionStorage.length + localStorage.length") == 0
        context.close()


def test_it_comes_back_after_the_server_does(browser: Any, tmp_path: Path) -> None:
    data = tmp_path / "books.sqlite"
    context = browser.new_context()  # the console tells of requests that failed
    page = context.new_page()
    with serving(data) as base:
        page.context.request.post(f"{base}/v1/streams", data={"name": "s", "classes": ["no", "yes"]})
        page.goto(f"{base}/streams/s")
        live(page)
    page.wait_for_selector("#live[data-state=reconnecting]")
    assert page.locator("#live").get_attribute("role") == "status"
    with serving(data, int(base.rpartition(":")[2])):
        page.context.request.post(f"{base}/v1/streams/s/forecasts", data={"id": "a", "p": [0.5, 0.5]})
        live(page)
        page.get_by_text("1 forecast awaits its outcome").wait_for()
        context.close()


def test_numbers_are_written_for_people(browser: Any, books: str) -> None:
    script = """async () => {
      const {amount, count, counted, evidence, percent, power, span} = await import("/page/numbers.js");
      return [
        count(1234567), count(null), counted(1, "round"), counted(2000, "round"),
        amount(0.012345), amount(1234.5), amount(0), amount(0.0000123), amount(-2.5e8), amount(null), amount(NaN),
        evidence(1), evidence(19.96), evidence(9999), evidence(23456), evidence(3e20), evidence(0.00012), evidence(Infinity),
        percent(0.1234), percent(0.999), percent(1.5), percent(0), power(-12), span(59), span(121), span(3 * 86400),
      ];
    }"""  # noqa: E501
    expected = [
        *("1,234,567", "–", "1 round", "2,000 rounds"),
        *("0.0123", "1,230", "0", "1.2 × 10⁻⁵", "−2.5 × 10⁸", "–", "–"),
        *("1", "20", "10,000", "2.3 × 10⁴", "10²⁰", "1.2 × 10⁻⁴", "beyond all numbers"),
        *("12\u00a0%", "100\u00a0%", "150\u00a0%", "0\u00a0%", "10⁻¹²", "59 s", "2 min", "3 d"),
    ]
    with looking(browser, books) as page:
        page.goto("/")
        assert page.evaluate(script) == expected


def test_events_are_read_in_whatever_pieces_they_come(browser: Any, books: str) -> None:
    script = """async ([text, size]) => {
      const {messages} = await import("/page/sse.js");
      const bytes = new TextEncoder().encode(text);
      const body = new ReadableStream({start(control) {
        for (let i = 0; i < bytes.length; i += size) control.enqueue(bytes.slice(i, i + size));
        control.close();
      }});
      const found = [];
      for await (const {kind, data} of messages(body)) found.push([kind, data]);
      return found;
    }"""
    lines = [": hello", "", "event: alarm", 'data: {"a":', 'data: "é"}', "", "id: 7", "data:x", "", "event: lost"]
    with looking(browser, books) as page:
        page.goto("/")
        for end in ("\n", "\r\n"):
            for size in (1, 2, 3, 1000):
                found = page.evaluate(script, [end.join(lines), size])
                assert found == [["", ""], ["alarm", '{"a":\n"é"}'], ["message", "x"]], (end, size)


def test_forecasts_of_numbers_are_a_fan(browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with serving(tmp_path / "books.sqlite") as base, looking(browser, base) as page:
        ask(page, "/v1/streams", {"name": "load", "set": {"name": "Cdf", "options": {"low": 0, "high": 500}}})
        page.goto("/streams/load")
        live(page)
        middles = 200 + 50 * np.sin(np.arange(80) / 8)
        told = [
            (f"r{k}", {"q10": m - 20, "q90": m + 20}, m + 15 * rng.normal()) for k, m in enumerate(middles.tolist())
        ]
        # Before the outcomes, at which the page asks again: forecasts alone are seen at its next look, in 15 seconds.
        ask(page, "/v1/streams/load/forecasts", {"id": "waits", "p": {"mean": 200, "sd": 10}})
        send(page, "load", told)  # type: ignore[arg-type]
        page.wait_for_selector("#fan-summary:has-text('interval held')")
        assert drawn(page, "fan")
        assert "80 outcomes" in page.locator("#fan-summary").inner_text()
        assert "numbers from 0 to 500" in page.locator(".lead").inner_text()
        assert page.locator(".reliability").is_hidden()
        page.wait_for_selector("text=median 200")
        page.get_by_role("region", name="Scores by day").locator("th", has_text="CRPS").wait_for()
        page.screenshot(path=tmp_path / "fan.png", full_page=True)
