"""How the tests are shared out between two processes: whole files, so that what a file makes once is made once.

Files that take long come first, and the doctests, each of which takes next to nothing, last: so both processes end at
about the same time. Where nothing is compiled yet, those that compile the most are the first of all, one for each
process, and not two of them that need the same.

What collecting the tests leaves, 700,000 objects that stay, is not looked through for garbage again and again.
"""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
FIRST = (
    "tests/forecasters/test_guard_streams.py",
    "tests/engine/test_climb.py",
    "tests/keyed/test_spark.py",
    "tests/engine/test_bank_kinds.py",
    "tests/engine/test_bank.py",
    "tests/cli/test_docs.py",
    "tests/cli/test_demo.py",
    "tests/report/test_entries.py",
    "tests/conformance/test_correctors.py",
    "tests/conformance/test_forecasters.py",
)

# How long an example takes says more of the machine than of the code.
settings.register_profile("treecal", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("treecal")


def pytest_collection() -> None:
    """Let nothing be looked through while it is made."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From here on, look through what tests make."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files in the order in which they are to be run."""
    items.sort(key=lambda item: _rank(item.path.relative_to(ROOT).as_posix()))


def _rank(path: str) -> int:
    if path in FIRST:
        return FIRST.index(path)
    return len(FIRST) + path.startswith("src/")
