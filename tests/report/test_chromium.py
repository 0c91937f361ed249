"""The report in a real browser: no errors, no requests, every picture there, on a wide screen and a narrow one."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from tests.report.test_page import sections
from treecal import report
from treecal.ledger import Reading

pytestmark = pytest.mark.heavy
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

SCRIPT = """
document.querySelectorAll("details").forEach(part => part.open = true);
const told = part => part.tagName + " " + part.textContent.trim().slice(0, 40);
const scrolls = part => getComputedStyle(part).overflowX != "visible";
function leaves(part) {
  for (let above = part.parentElement; above != document.body; above = above.parentElement)
    if (scrolls(above)) return false;
  const own = part.getBoundingClientRect(), around = part.parentElement.getBoundingClientRect();
  return own.width > 0 && (own.right > around.right + 1 || own.left < around.left - 1);
}
const all = [...document.body.querySelectorAll("*")], images = [...document.images];
Promise.all(images.map(image => image.decode())).then(() => [
  images.length, images.filter(image => !image.naturalWidth).length,
  document.documentElement.scrollWidth - innerWidth,
  all.filter(leaves).map(told),
  all.filter(part => scrolls(part) && part.scrollWidth > part.clientWidth + 1).map(told),
])
"""
"""Counts pictures and broken ones, pixels beyond the window, and parts that leave their container or scroll in it."""


class Browser:
    """Chromium, spoken to by the DevTools protocol over a pair of pipes: messages end in a zero byte."""

    def __init__(self, to: int, back: int) -> None:
        self.to, self.back, self.rest = to, back, b""
        self.numbers, self.events = count(1), list[dict[str, Any]]()
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session: str | None = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Network", "Log", "Runtime", "Page"):
            self.ask(f"{domain}.enable")

    session: str | None = None

    def read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            chunk = os.read(self.back, 65536)
            assert chunk, "Chromium has gone"
            self.rest += chunk
        message, _, self.rest = self.rest.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        if "method" in told:
            self.events.append(told)
        return told

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        os.write(self.to, json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode() + b"\0")
        while (answer := self.read()).get("id") != number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def visit(self, page: Path, *, width: int, dark: bool = False) -> list[str]:
        """Open a page, and all that is folded in it; return all that went wrong with it."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.read()
        answer = self.ask("Runtime.evaluate", expression=SCRIPT, awaitPromise=True, returnByValue=True)
        wrong = [str(self._complaint(event)) for event in self.events if self._complaint(event)]
        if "exceptionDetails" in answer:
            return [*wrong, "a picture does not decode"]
        pictures, broken, overflow, out, scrolled = answer["result"]["value"]
        wrong += ["no picture"] * (not pictures) + ["broken picture"] * broken
        wrong += [f"{overflow} pixels too wide"] * (overflow > 0) + [f"{what} leaves its container" for what in out]
        return wrong + [f"{what} has to be scrolled" for what in scrolled if width >= 1000]

    @staticmethod
    def _complaint(event: dict[str, Any]) -> Any:
        given = event["params"]
        if event["method"] in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            return given
        if event["method"] == "Network.requestWillBeSent":
            url = given["request"]["url"]
            return None if url.startswith("data:") or url == given["documentURL"] else f"asks for {url}"
        return None


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "this check needs Chromium: install your system's package `chromium`."
    (there, to), (back, here) = os.pipe(), os.pipe()
    # Chromium reads from descriptor 3 and writes to 4; the pipes must not stand there themselves.
    high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (there, here)]
    command = 'exec "$@" 3<&{} 4>&{}'.format(*high)
    process = subprocess.Popen(
        ["bash", "-c", command, "bash", path, *FLAGS, f"--user-data-dir={folder}"],
        pass_fds=high,
        stderr=subprocess.DEVNULL,
    )
    for end in (there, here, *high):
        os.close(end)
    try:
        yield Browser(to, back)
    finally:
        os.close(to)  # Chromium ends when nobody talks to it
        process.wait(timeout=30)
        os.close(back)


def audited(classes: int) -> report.Section:
    """Return an audit by group and by time, with names as long as people have them."""
    rng, rows = np.random.default_rng(0), 4000
    P = rng.dirichlet(np.ones(classes), size=rows)
    y = (P.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    names = [f"a class with a name of length {k}" for k in range(classes)]
    site = np.array(["Hamburg, Germany", "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch", "JFK"])
    P = P**1.7 / (P**1.7).sum(axis=1, keepdims=True)
    log = dict(zip(names, P.T, strict=True)) | {"y": np.array(names)[y], "site": site[np.arange(rows) % 3]}
    found = tc.audit(
        log | {"day": np.arange(rows) // 200}, forecast=names, outcome="y", classes=names, by="site", time="day"
    )
    return report.audited(found, title="A log")


def corrected(classes: int) -> report.Section:
    rng, space = np.random.default_rng(0), tc.Simplex(classes)
    P = rng.dirichlet(np.ones(classes), size=500)
    y = (P.cumsum(axis=1) > rng.random((500, 1))).argmax(axis=1)
    return report.Section("A model", [report.play(tc.GuardedCorrector(space), y, forecasts=P, note="Why it is there.")])


def long() -> report.Section:
    """Return figures as wide as they get."""
    rounds, curve = 123_456_789, report.Curve(*(np.array([0.123]) for _ in range(4)))
    reading = Reading(np.array([[0.48, 0.52]]), np.array([float(rounds)]), np.array([[0.5, 0.5]]), rounds, None)
    entries = [report.Entry(name, reading, curve=curve) for name in ("Guarded", "Codebook (eager part alone)")]
    return report.Section("A long stream", entries)


def boxed() -> report.Section:
    outcomes = np.random.default_rng(0).random((300, 2))
    return report.Section("Vectors", [report.play(tc.TreeCal(tc.Box(0, 1, dim=2)), outcomes)])


@pytest.mark.parametrize(
    "parts",
    [
        sections,
        lambda: [audited(2)],
        lambda: [audited(5)],
        lambda: [audited(50)],
        lambda: [corrected(4), boxed(), long()],
    ],
    ids=["streams", "audit of 2 classes", "audit of 5", "audit of 50", "correction, vectors, many rounds"],
)
def test_the_report_opens_without_a_murmur(parts: Callable[[], list[report.Section]], tmp_path: Path) -> None:
    details = {"file": "/a/path/without/a/single/space/that/is/longer/than/a/narrow/screen/can/be.parquet"}
    page = report.write(tmp_path / "report.html", parts(), title="A report", details=details, command="make demo")
    with chromium(tmp_path / "profile") as browser:
        for dark in (False, True):
            assert browser.visit(page, width=1200, dark=dark) == []
            assert browser.visit(page, width=390, dark=dark) == []


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('<script>console.error("no")</script>', "no"),
        ("<script>undefined_name()</script>", "undefined_name"),
        ('<img src="file:///nowhere.png">', "asks for file:///nowhere.png"),
        ('<img src="data:image/svg+xml,<svg">', "decode"),
        ('<div style="width:3000px">wide</div>', "too wide"),
        ('<div style="width:300px"><p style="width:400px">out</p></div>', "P out leaves its container"),
        ('<div style="width:300px; overflow-x:auto"><p style="width:400px">hidden</p></div>', "has to be scrolled"),
    ],
)
def test_a_bad_page_is_found_out(body: str, complaint: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<!DOCTYPE html><title>x</title>{body}")
    with chromium(tmp_path / "profile") as browser:
        assert any(complaint in wrong for wrong in browser.visit(page, width=1200))
