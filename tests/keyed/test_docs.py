"""The page's Spark code (fenced as `py`, so that the other tests leave it alone) runs and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests import test_docs

PAGE = Path(__file__).parents[2] / "docs/howto/spark.md"


@pytest.mark.heavy
def test_the_page_on_spark_runs(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    text = re.sub(r"^```py$", "```python", PAGE.read_text("utf-8"), flags=re.M)
    # Java does not follow a change of directory.
    text = re.sub(r'"(state|incoming|checkpoint|forecasts)"', rf'"{tmp_path}/\1"', text)
    page.write_text(text, "utf-8")
    test_docs.run(page)
