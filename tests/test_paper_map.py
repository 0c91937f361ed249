"""Every name on the paper map exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAP = (ROOT / "docs/explanation/paper-map.md").read_text()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(treecal\.[\w.]+)`", MAP))))
def test_code_exists(name: str) -> None:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        return
    raise AssertionError(f"no module in {name}")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", MAP))))
def test_test_exists(name: str) -> None:
    path, function = name.split("::")
    assert f"def {function}(" in (ROOT / path).read_text()


def test_the_map_is_read() -> None:
    assert len(re.findall(r"`tests/", MAP)) > 15
