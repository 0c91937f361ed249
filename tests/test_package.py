"""What is packed: every file of the package, code or not, is in the wheel and in the source distribution."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str]]:
    """Names of the files in the wheel and in the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
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


@pytest.mark.parametrize("folder", ["src", "tests", "docs", "examples", "benchmarks", "deploy"])
def test_the_source_distribution_has_all(folder: str, built: tuple[set[str], set[str]]) -> None:
    expected = files(folder)
    assert expected
    assert expected <= built[1]


def test_the_source_distribution_can_be_made_and_tested(built: tuple[set[str], set[str]]) -> None:
    assert {"Makefile", "constraints.txt", "pyproject.toml", "zensical.toml", "README.md", "LICENSE"} <= built[1]
