"""The page's files: what is vendored is what was taken, nothing is inline, nothing comes from elsewhere."""

from __future__ import annotations

import hashlib
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from treecal.serve import _wire as wire
from treecal.serve._config import CORRECTORS, FORECASTERS

PAGE = Path(str(files("treecal") / "serve" / "page"))
VENDOR = PAGE / "vendor" / "uplot-1.6.32"
OWN = sorted(path for path in PAGE.iterdir() if path.is_file())
SCRIPTS = [path for path in OWN if path.suffix == ".js"]


class Tags(HTMLParser):
    """The tags of a page, each with its attributes and the text that follows it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), []))

    def handle_data(self, data: str) -> None:
        if self.found:
            self.found[-1][2].append(data.strip())


@pytest.fixture(scope="module")
def tags() -> Tags:
    return Tags((PAGE / "index.html").read_text("utf-8"))


def test_what_is_vendored_has_its_hash() -> None:
    listed = {name: digest for digest, name in map(str.split, (VENDOR / "SHA256SUMS").read_text("ascii").splitlines())}
    assert set(listed) == {path.name for path in VENDOR.iterdir()} - {"SHA256SUMS"}
    assert "LICENSE" in listed
    for name, expected in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == expected, name


def test_nothing_is_inline(tags: Tags) -> None:
    for tag, attributes, text in tags.found:
        assert not [name for name in attributes if name == "style" or name.startswith("on")], (tag, attributes)
        assert tag != "style"
        assert tag != "script" or (attributes.get("src") and not any(text))


def test_scripts_make_no_markup_from_text() -> None:
    # A policy without inline scripts is the second line of defence; that text is never read as HTML is the first.
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(.style"
    )
    for path in SCRIPTS:
        assert not forbidden.search(path.read_text("utf-8")), path.name


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_nothing_refers_to_elsewhere(path: Path) -> None:
    text = path.read_text("utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"\b(https?|wss?|ftp):|@import|[\"'(]//", text)


def test_links_of_the_page_resolve(tags: Tags) -> None:
    references = [a.get("src") or a.get("href") or "" for tag, a, _ in tags.found if tag in ("script", "link", "img")]
    assert len(references) == 4
    for reference in references:
        assert reference.startswith("/page/")
        assert (PAGE / reference.removeprefix("/page/")).is_file(), reference


def imports(path: Path) -> list[str]:
    return re.findall(r"^(?:import|export)\b[^;]*?\bfrom\s+\"([^\"]+)\";", path.read_text("utf-8"), re.M)


def test_imports_resolve_and_every_script_is_used() -> None:
    seen, left = set[Path](), [PAGE / "main.js"]
    while left:
        path = left.pop()
        seen.add(path)
        for name in imports(path) if path.parent == PAGE else []:
            target = (path.parent / name).resolve()
            assert name.startswith("./"), (path.name, name)
            assert target.is_file(), (path.name, name)
            if target not in seen:
                left.append(target)
    assert {path for path in seen if path.parent == PAGE} == set(SCRIPTS)


def test_names_that_are_imported_are_exported() -> None:
    for path in SCRIPTS:
        for names, target in re.findall(r"^import \{([^}]*)\} from \"\./([\w.]+)\";", path.read_text("utf-8"), re.M):
            text = (PAGE / target).read_text("utf-8")
            for name in (part.strip() for part in names.split(",")):
                assert re.search(rf"^export (async )?(function\*?|class|const) {name}\b", text, re.M), (path.name, name)


def test_types_are_those_of_the_wire() -> None:
    text = (PAGE / "wire.d.ts").read_text("utf-8")
    own = text.split("// What the answers leave open")[0]
    for name, body in re.findall(r"export interface (\w+) \{(.*?)\}\n", own, re.S):
        fields = re.findall(r"(?:^|;)\s*(\w+)\??:", body)
        expected = [field.name for field in msgspec.structs.fields(getattr(wire, name))]
        assert sorted(fields) == sorted(expected), name


def test_classes_in_the_style_sheet_are_used() -> None:
    style = re.sub(r"/\*.*?\*/", "", (PAGE / "style.css").read_text("utf-8"), flags=re.S)
    rules = re.sub(r"\{[^{}]*\}", " ", style)
    text = " ".join(path.read_text("utf-8") for path in [*SCRIPTS, PAGE / "index.html"])
    made = {"calibrated", "nearly-calibrated", "somewhat-off", "far-off", "cannot-tell", "model-alarm"}  # of words
    for name in set(re.findall(r"\.([a-z][\w-]*)", rules)) - made:
        assert name.startswith("u-") or re.search(rf"[\"' `]{name}[\"' `]", text), name


def test_the_form_offers_what_there_is_and_begins_with_the_default() -> None:
    text = (PAGE / "create.js").read_text("utf-8")
    names = re.findall(r'^ +\["([a-z-]+)", "', text, re.M)
    end = names.index("forecaster")
    correctors, forecasters = names[1:end], names[end + 1 :]
    assert correctors[0] == "auto"
    assert set(correctors) <= set(CORRECTORS)
    assert set(forecasters) <= set(FORECASTERS)
    (chosen,) = re.findall(r'selected: value === "(\w+)"', text)
    assert chosen == "auto"
