"""What systems differ in is in one module, and its branch for Windows is tried with what Windows would answer."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from treecal import _platform
from treecal._atomic import InUseError, exclusive, new_file

SOURCES = Path(_platform.__file__).parent
ELSEWHERE = re.compile(
    r"\bimport (fcntl|msvcrt|termios|tty|pty|resource|pwd|grp)\b|os\.(fork|fchmod|fchown|mkfifo)\(|SIGHUP\""
)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], int]:
    """Behave as on Windows; return which files are locked, by whom."""
    held: dict[tuple[int, int], int] = {}

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > 1 << 20  # what is locked could not be read
        found = os.fstat(descriptor)
        if held.setdefault((found.st_dev, found.st_ino), descriptor) != descriptor:
            raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    monkeypatch.setattr(_platform, "WINDOWS", True)
    return held


def test_one_process_holds_a_file_on_windows(windows: dict[tuple[int, int], int], tmp_path: Path) -> None:
    with exclusive(tmp_path / "s.treecal"):
        assert len(windows) == 1
        with (
            pytest.raises(InUseError, match=f"in use by another treecal, process {os.getpid()}"),
            exclusive(tmp_path / "s.treecal"),
        ):
            pass


def test_a_file_is_closed_before_it_is_renamed_on_windows(
    windows: dict[tuple[int, int], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    close, replace = os.close, os.replace

    def noted(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    def replaced(old: Any, new: Any) -> None:
        assert closed
        replace(old, new)

    monkeypatch.setattr(os, "close", noted)
    monkeypatch.setattr(os, "replace", replaced)
    path = tmp_path / "note.txt"
    for text in ("first", "second"):
        closed.clear()
        windows.clear()
        with new_file(path, force=True) as temporary:
            temporary.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == "second"


def test_a_lock_that_fails_otherwise_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def locking(descriptor: int, mode: int, count: int) -> None:
        raise OSError(errno.EINVAL, "no locks here")

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    monkeypatch.setattr(_platform, "WINDOWS", True)
    with open(tmp_path / "file", "wb") as file:
        assert _platform.lock(file.fileno()) is None


def test_only_one_module_knows_the_system() -> None:
    found = {
        path.name
        for path in SOURCES.rglob("*.py")
        if any(ELSEWHERE.search(line.split("#")[0]) for line in path.read_text(encoding="utf-8").splitlines())
    }
    assert found == {"_platform.py"}
