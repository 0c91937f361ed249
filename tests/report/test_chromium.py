"""The report in a real browser: no errors, no requests, every picture there, on a wide screen and a narrow one."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.report.test_page import sections
from treecal import report

pytestmark = pytest.mark.heavy
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


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

    def visit(self, page: Path, *, width: int) -> list[str]:
        """Open a page; return all that went wrong with it."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.read()
        script = (
            "Promise.all([...document.images].map(i => i.decode())).then(() => "
            "[document.images.length, [...document.images].filter(i => !i.naturalWidth).length, "
            "document.documentElement.scrollWidth - innerWidth])"
        )
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        wrong = [str(self._complaint(event)) for event in self.events if self._complaint(event)]
        if "exceptionDetails" in answer:
            return [*wrong, "a picture does not decode"]
        pictures, broken, overflow = answer["result"]["value"]
        wrong += ["no picture"] * (not pictures) + ["broken picture"] * broken
        return wrong + [f"{overflow} pixels too wide"] * (overflow > 0)

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


def test_the_report_opens_without_a_murmur(tmp_path: Path) -> None:
    page = report.write(tmp_path / "report.html", sections(), title="Two streams", command="make demo")
    with chromium(tmp_path / "profile") as browser:
        assert browser.visit(page, width=1200) == []
        assert browser.visit(page, width=400) == []


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('<script>console.error("no")</script>', "no"),
        ("<script>undefined_name()</script>", "undefined_name"),
        ('<img src="file:///nowhere.png">', "asks for file:///nowhere.png"),
        ('<img src="data:image/svg+xml,<svg">', "decode"),
        ('<div style="width:3000px">wide</div>', "too wide"),
    ],
)
def test_a_bad_page_is_found_out(body: str, complaint: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<!DOCTYPE html><title>x</title>{body}")
    with chromium(tmp_path / "profile") as browser:
        assert any(complaint in wrong for wrong in browser.visit(page, width=1200))
