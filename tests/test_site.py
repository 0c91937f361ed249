"""The site as it is published: it is built without a warning, and what its pages lead to and load is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest

ROOT = Path(__file__).parents[1]
OURS = "https://treecal.github.io/treecal/"


class Page(HTMLParser):
    """What a page leads to and loads, and the names in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.names = set[str]()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag in ("a", "area") and "href" in given:
            self.links.append(given["href"])
        elif "src" in given:
            self.loaded.append(given["src"])
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next", "alternate"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "zensical.toml"):
        shutil.copy(ROOT / name, folder)
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("Build ")]
    assert (done.returncode, said) == (0, ["No issues found"])
    page = folder / "site/audit.html"
    subprocess.run([sys.executable, ROOT / "clients/browser/build.py", page], check=True)
    return folder / "site"


@pytest.mark.heavy
def test_all_that_pages_lead_to_and_load_is_there(site: Path) -> None:
    pages = {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 70
    lost = []
    for name, page in pages.items():
        base = "" if name == "404.html" else name
        for link in [*page.links, *page.loaded]:
            there = urljoin(f"{OURS}{base}", link)
            if not there.startswith(OURS):
                if link in page.loaded and urlparse(there).scheme != "data":
                    lost.append(f"{name} loads {link}")
                continue
            path, anchor = urldefrag(there.removeprefix(OURS))
            path = unquote(path) or "index.html"
            target = f"{path}index.html" if path.endswith("/") else path
            if not (site / target).is_file() or (
                anchor and target in pages and unquote(anchor) not in pages[target].names
            ):
                lost.append(f"{name}: {link}")
    assert lost == []


@pytest.mark.heavy
def test_it_can_be_searched(site: Path) -> None:
    (index,) = site.rglob("search.json")
    assert "temperature scaling" in index.read_text("utf-8").lower()
