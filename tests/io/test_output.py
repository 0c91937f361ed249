"""Files are written whole or not at all, and never over another without being told to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from treecal.exceptions import FileError
from treecal.io import new_file
from treecal.io._csv import inert


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    target = tmp_path / "a.csv"
    target.write_text("mine")
    with pytest.raises(FileError, match=r"a.csv exists and is not overwritten"), new_file(target):
        pytest.fail("the block should not run")
    with new_file(target, force=True) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "mine"
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_a_file_that_comes_into_being_meanwhile_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "a.csv"

    def write() -> None:
        with new_file(target) as temporary:
            temporary.write_text("ours")
            target.write_text("theirs")

    with pytest.raises(FileError, match="exists"):
        write()
    assert target.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def write() -> None:
        with new_file(tmp_path / "a.csv") as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        write()
    assert os.listdir(tmp_path) == []


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder"), new_file(tmp_path):
        pytest.fail("the block should not run")
    with pytest.raises(FileError, match="there is no folder"), new_file(tmp_path / "no" / "a.csv"):
        pytest.fail("the block should not run")


def test_permissions_are_the_usual_ones(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with new_file(tmp_path / "a.csv") as temporary:
        temporary.touch()
    assert stat.S_IMODE((tmp_path / "a.csv").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


def test_formulas_come_out_inert() -> None:
    for name in ("=1+1", "+1", "-1", "@sum", "\t=1", "\r=1"):
        assert inert(name) == f"'{name}"
    for cell in ("a=b", "", "rain", -1.5, 3, None):
        assert inert(cell) == cell
