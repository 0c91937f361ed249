"""Optional packages: what is not there is named with its extra; what is there and broken is not called missing."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata as installed
from pathlib import Path

import pytest

from treecal import _optional
from treecal._optional import require
from treecal.exceptions import UnsupportedError


@pytest.mark.parametrize("module", ["a_treecal_test_lacks", "a_treecal_test_lacks.part"])
def test_a_missing_package(module: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        require(module, extra="files", what="reading files")
    assert str(caught.value) == (
        "reading files needs a_treecal_test_lacks, which is not installed.\n\n"
        'Hint: pip install "duckdb>=2.0" "narwhals>=2.0" "pyarrow>=16" (the extra files).'
    )


def test_the_hint_names_what_is_missing_and_only_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package in ("duckdb", "treecal"):
            raise installed.PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(installed, "version", version)
    assert _optional.to_install("files") == 'pip install "duckdb>=2.0" (the extra files).'
    monkeypatch.setattr(installed, "requires", version)
    assert _optional.to_install("files") == 'install treecal with its extra "files".'  # it is run from its sources


def test_requirements_are_those_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(_optional.requirements(None)) == {re.split(r"[^\w.-]", line)[0] for line in project["dependencies"]}
    for extra, lines in project["optional-dependencies"].items():
        assert len(_optional.requirements(extra)) == len(lines), extra


def test_a_package_that_lacks_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "treecal_needy.py").write_text("import a_treecal_test_lacks")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnsupportedError, match="needs a_treecal_test_lacks, which"):
        require("treecal_needy", extra="files", what="reading files")


@pytest.mark.parametrize("module", ["json.a_part_it_lacks", "treecal_damaged"])
def test_what_is_installed_and_broken_raises_its_own_error(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "treecal_damaged.py").write_text("from json import nothing_of_it")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError):
        require(module, extra="files", what="reading files")
