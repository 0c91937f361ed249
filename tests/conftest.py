"""How tests are shared out among processes.

Those of an `xdist_group` run in one, and so do those that share a fixture of their module: in two it would be made
twice. pytest-xdist 3.8 notes groups where pytest 9.2 no longer looks (`_nodeid`), so they are noted here.
"""

from __future__ import annotations

import pytest
from _pytest.nodeid import NodeId


@pytest.hookimpl(trylast=True)  # after pytest-xdist
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note the group of each test at the end of its id, by which the processes are given tests."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        group = _group(item)
        if group is not None and not item.nodeid.endswith(f"@{group}"):
            item._id = NodeId.parse(f"{item.nodeid}@{group}")
            assert item.nodeid.endswith(f"@{group}"), "groups of tests have no effect"


def _group(item: pytest.Item) -> str | None:
    mark = item.get_closest_marker("xdist_group")
    if mark is not None:
        return str(mark.args[0])
    fixtures = getattr(item, "_fixtureinfo", None)
    made = () if fixtures is None else fixtures.name2fixturedefs.values()
    shared = any(found[-1].scope == "module" for found in made if found)
    return item.nodeid.partition("::")[0] if shared else None
