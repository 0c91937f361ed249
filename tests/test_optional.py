"""Optional packages: what is not there is named with its extra; what is there and broken is not called missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from treecal._optional import require
from treecal.exceptions import UnsupportedError


@pytest.mark.parametrize("module", ["a_treecal_test_lacks", "a_treecal_test_lacks.part"])
def test_a_missing_package(module: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        require(module, extra="files", what="reading files")
    assert str(caught.value) == (
        'reading files needs a_treecal_test_lacks, which is not installed.\n\nHint: pip install "treecal[files]".'
    )


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
