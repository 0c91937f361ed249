"""The site builds without a warning, fetches nothing, and its reference has every public name, with an example."""

from __future__ import annotations

import ast
import doctest
import inspect
import pkgutil
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import treecal

ROOT = Path(__file__).parent.parent


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built in a folder of its own: the working tree stays as it is."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "zensical.toml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    (folder / "src").symlink_to(ROOT / "src")
    built = build(folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


def public_modules() -> list[ModuleType]:
    """Return every module that no underscore calls private, the command line apart."""
    names = [treecal.__name__] + [m.name for m in pkgutil.walk_packages(treecal.__path__, "treecal.")]
    return [import_module(n) for n in names if "._" not in n and not n.startswith("treecal.cli")]


def public() -> Iterator[tuple[str, str, Any]]:
    """Yield module, name and thing for all that a public module exports, and every class and function it defines."""
    for module in public_modules():
        exported = set(getattr(module, "__all__", ()))
        for name, thing in vars(module).items():
            own = (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__ == module.__name__
            if name in exported or (own and not name.startswith("_")):
                yield module.__name__, name, thing


@pytest.mark.heavy  # the next test finds what no page asks for
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    compressed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    entries = (line.split(" ") for line in zlib.decompress(compressed).decode().splitlines())
    documented = {name for name, kind, *_ in entries if kind != "py:module"}
    missing = [f"{module}.{name}" for module, name, _ in public() if f"{module}.{name}" not in documented]
    assert not missing, f"public names on no page of docs/reference: {missing}"


def test_every_public_name_is_of_a_module_that_a_page_describes() -> None:
    pages = "\n".join(page.read_text("utf-8") for page in (ROOT / "docs/reference").glob("*.md"))
    asked = set(re.findall(r"^::: (\S+)$", pages, re.M))
    described = {id(thing) for name in asked for thing in vars(pkgutil.resolve_name(name)).values()}
    missing = {f"{module}.{name}" for module, name, thing in public() if id(thing) not in described} - asked
    assert not missing, f"public names of which no page of docs/reference asks for the module: {missing}"


def test_the_names_people_type_are_on_the_front_page_of_the_reference() -> None:
    page = (ROOT / "docs/reference/index.md").read_text("utf-8")
    missing = [name for name in treecal.__all__ if f"`tc.{name}`" not in page]
    assert not missing, f"names in treecal.__all__ and not in docs/reference/index.md: {missing}"


def given(thing: Any) -> set[str]:
    """Return the names of the types one gets from a function, or from the bases, fields and methods of a class."""
    if not inspect.isclass(thing):
        return set(re.findall(r"\w+", str(getattr(thing, "__annotations__", {}).get("return"))))
    members = (getattr(member, "fget", member) for member in vars(thing).values())
    names = re.findall(
        r"\w+", f"{thing.__bases__} {vars(thing).get('__orig_bases__')} {vars(thing).get('__annotations__')}"
    )
    return set(names).union(*(given(member) for member in members if inspect.isfunction(member)))


def doctests(text: str | None) -> str:
    return "\n".join(re.findall(r">>>.*?(?:\n\s*\n|\Z)", text or "", re.S))


def used(code: str) -> Iterator[Any]:
    """Yield what of treecal a piece of code uses, found by its imports; of a tuple, all that is in it."""
    if ">>>" in code:
        code = "".join(example.source for example in doctest.DocTestParser().get_examples(code))
    nodes = list(ast.walk(ast.parse(code)))
    known: dict[str, Any] = {"tc": treecal}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("treecal"):
            for alias in node.names:
                module = import_module(str(node.module))
                found = getattr(module, alias.name, None) or import_module(f"{node.module}.{alias.name}")
                known[alias.asname or alias.name] = found
    for node in nodes:
        if isinstance(node, ast.Name):
            thing = known.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            thing = getattr(known.get(node.value.id), node.attr, None)
        else:
            continue
        yield from thing if isinstance(thing, tuple) else [thing]


def test_every_public_class_and_function_has_an_example() -> None:
    things = {thing for _, _, thing in public() if inspect.isclass(thing) or inspect.isfunction(thing)}
    shown = {thing for thing in things if ">>>" in (thing.__doc__ or "")}
    pages = [page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md")]
    blocks = [textwrap.dedent(code) for page in pages for code in re.findall(r"```py(?:thon)?\n(.*?)```", page, re.S)]
    shown |= things & {thing for block in blocks for thing in used(block) if inspect.isroutine(thing)}
    # Errors are shown where an example ends in one.
    text = "\n".join([*blocks, *(doctests(thing.__doc__) for thing in things)])
    raised = set(re.findall(r"^\s*treecal\.exceptions\.(\w+): ", text, re.M))
    shown |= {t for t in things if inspect.isclass(t) and issubclass(t, Exception) and t.__name__ in raised}
    # Classes that nobody makes by hand are shown with what one gets them from.
    fresh = shown
    while fresh:
        names = set[str]().union(*map(given, fresh))
        fresh = {thing for thing in things - shown if inspect.isclass(thing) and thing.__name__ in names}
        shown = shown | fresh
    missing = sorted(f"{thing.__module__}.{thing.__name__}" for thing in things - shown)
    assert not missing, f"public names without an example: {missing}"


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page() -> None:
    def leaves(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for part in entry.values() if isinstance(entry, dict) else entry:
                yield from leaves(part)

    listed = list(leaves(tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]))
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


class Fetched(HTMLParser):
    """Collects the addresses that a browser loads to show a page; links for people to follow are not among them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        loaded = {"link": ("href",), "a": ()}.get(tag, ("src", "srcset", "data", "poster"))
        if ("rel", "canonical") not in attrs:  # the page's own address, which a browser does not fetch
            self.addresses += [value for name, value in attrs if name in loaded and value]


@pytest.mark.heavy
def test_pages_load_what_is_there_and_nothing_from_elsewhere(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert pages
    for page in pages:
        addresses = Fetched(page.read_text("utf-8")).addresses
        assert addresses, f"{page.name} loads nothing at all"
        missing = [a for a in addresses if not (page.parent / a.partition("#")[0].partition("?")[0]).is_file()]
        assert not missing, f"{page.name} loads {missing}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(?:[a-z]+:)?//|@import", sheet.read_text("utf-8")), sheet


# One that is to be described reads the whole package.
DESCRIBED = pytest.param("::: treecal.gone", marks=pytest.mark.heavy)


@pytest.mark.parametrize("page", ["[gone](gone.md)", "[gone](#gone)", "[gone][treecal.gone]", DESCRIBED])
def test_a_broken_reference_stops_the_build(page: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    (tmp_path / "docs/reference").mkdir(parents=True)
    shutil.copy(ROOT / "docs/reference/own_types.py", tmp_path / "docs/reference")
    (tmp_path / "src").symlink_to(ROOT / "src")
    (tmp_path / "docs/index.md").write_text(f"# A page\n\n{page}\n")
    assert build(tmp_path).returncode != 0
