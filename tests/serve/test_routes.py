"""A route is added by the steps of CONTRIBUTING.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.serve.http import NEW, served
from treecal.serve import _operations


def test_a_route_is_added_by_the_steps_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
    found = re.search(r"^## Add a route$.*?^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    table = list(_operations.OPERATIONS)
    monkeypatch.setattr(_operations, "OPERATIONS", table)
    exec(compile(found[1], "CONTRIBUTING.md", "exec", dont_inherit=True), vars(_operations) | {"OPERATIONS": table})
    assert table[-1].path == "/v1/number"
    with served(tmp_path, operations=table) as house:
        assert house.ask("GET", "/v1/number").json == {"streams": 0}
        for name in ("a", "b"):
            house.ask("POST", "/v1/streams", {**NEW, "name": name})
        assert house.ask("GET", "/v1/number").json == {"streams": 2}
        assert "/v1/number" in house.ask("GET", "/v1/openapi.json").json["paths"]
        one = house.make_token("read", prefix="a")
        assert house.ask("GET", "/v1/number", token=one).json == {"streams": 1}
        none = house.make_token("forecast")
        assert house.ask("GET", "/v1/number", token=none).status == 403
