"""What is published: every file of the package is packed, the same bytes each time, and all say the same version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

import treecal as tc

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PAPER = (ROOT / "paper/paper.md").read_text("utf-8")


def build(folder: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
        env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"},
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def built(packed: tuple[Path, Path]) -> tuple[set[str], set[str]]:
    """Names of the files in the wheel and in the source distribution."""
    wheel, sdist = packed
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as tar:
        return set(archive.namelist()), {name.split("/", 1)[1] for name in tar.getnames()}


def files(folder: str, *, of: str = ".") -> set[str]:
    base = ROOT / of
    found = {path.relative_to(base) for path in (base / folder).rglob("*") if path.is_file()}
    return {path.as_posix() for path in found if "__pycache__" not in path.parts}


def test_the_wheel_is_the_package(built: tuple[set[str], set[str]]) -> None:
    expected = files("treecal", of="src")
    assert any(not name.endswith(".py") for name in expected)
    assert {name for name in built[0] if ".dist-info/" not in name} == expected


@pytest.mark.parametrize(
    "folder", ["src", "tests", "docs", "examples", "benchmarks", "deploy", "paper", "recipe", "clients"]
)
def test_the_source_distribution_has_all(folder: str, built: tuple[set[str], set[str]]) -> None:
    expected = files(folder)
    assert expected
    assert expected <= built[1]


def test_the_source_distribution_has_nothing_else(built: tuple[set[str], set[str]]) -> None:
    """Folders, the list of files in pyproject.toml, and what hatchling adds."""
    packing = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["sdist"]
    listed = {name for name in packing["include"] if (ROOT / name).is_file()}
    assert {"Makefile", "constraints.txt", "zensical.toml", "README.md", "LICENSE"} <= listed <= built[1]
    folders = tuple(f"{name}/" for name in packing["include"] if (ROOT / name).is_dir())
    others = {name for name in built[1] if "." in name and not name.startswith(folders)}
    assert others <= listed | {"PKG-INFO", "pyproject.toml", ".gitignore", "hatch_build.py"}
    assert not [name for name in built[1] if re.search(r"__pycache__|\.pyc$|node_modules|\.(log|orig|rej|swp)$", name)]


def test_the_description_of_the_package_is_for_readers_of_an_index(packed: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(packed[0]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    assert "Description-Content-Type: text/markdown" in metadata
    description = metadata.partition("\n\n")[2]
    readme = (ROOT / "README.md").read_text("utf-8")
    found = re.findall(r"pip install (\S+)", readme), re.findall(r"pip install (\S+)", description)
    assert found[1] == [re.sub(r"^(\"?)\.", r"\1treecal", each) for each in found[0]]
    assert "this repository" in readme
    assert "this repository" not in description
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert len(links) == len(re.findall(r"\]\(", readme))
    assert [link for link in links if not link.startswith("https://")] == []
    site = PROJECT["urls"]["Documentation"]
    for link in links:
        page = link.removeprefix(site).partition("#")[0]
        if link.startswith(site) and page != "audit.html":  # which `make docs` makes
            assert (ROOT / "docs" / re.sub(r"\.html$", ".md", page)).is_file(), link


def test_the_same_commit_makes_the_same_bytes(packed: tuple[Path, Path], tmp_path: Path) -> None:
    for once, again in zip(packed, build(tmp_path), strict=True):
        assert once.read_bytes() == again.read_bytes()


def test_all_say_the_same_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    recipe = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text("utf-8"))
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert newest
    assert citation["version"] == recipe["context"]["version"] == newest[1] == tc.__version__


def test_the_recipe_needs_what_the_package_needs() -> None:
    recipe = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text("utf-8"))
    needs = [line.replace(" ", "") for line in recipe["requirements"]["run"]]
    assert needs == [f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]]


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.stem)
def test_workflows_and_templates_are_read(path: Path) -> None:
    content = yaml.safe_load(path.read_text("utf-8"))
    commands = re.findall(r"\bmake ([a-z]+)", path.read_text("utf-8"))
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert content
    assert set(commands) <= set(targets)


@pytest.mark.parametrize("page", ["AGENTS.md", "llms.txt", "SECURITY.md"])
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https:)([^)#]+)", (ROOT / page).read_text("utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_the_paper_cites_what_it_lists_and_lists_what_it_cites() -> None:
    listed = re.findall(r"^@\w+\{([\w-]+),", (ROOT / "paper/paper.bib").read_text("utf-8"), re.M)
    assert set(re.findall(r"@([\w-]+)", PAPER.split("---", 2)[2])) == set(listed)
    assert 250 <= len(PAPER.split("---", 2)[2].split()) <= 1000  # as JOSS asks
