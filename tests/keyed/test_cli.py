"""The commands that can give their work to Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treecal.cli._app import app
from treecal.exceptions import ParameterError


def said(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert app([*words, "--json"], result_action="return_value") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.xdist_group("spark")
def test_spark_says_what_the_others_say(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = {"a": [0.5, 0.5, 0.25, 1.0] * 50, "b": [0.5, 0.5, 0.75, 0.0] * 50, "label": ["a", "b", "b", "a"] * 50}
    path = str(tmp_path / "log.parquet")
    pq.write_table(pa.table(log), path)
    audit = ("audit", path, "--forecast", "a,b", "--outcome", "label", "--classes", "a,b")
    here, there = said(capsys, *audit), said(capsys, *audit, "--engine", "spark")
    assert here["whole"] == there["whole"]


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "log.csv", "--forecast", "p", "--outcome", "y", "--master", "local[2]"),
        ("audit", "log.csv", "--forecast", "p", "--outcome", "y", "--engine", "spark"),
    ],
)
def test_options_that_do_not_go_together(words: tuple[str, ...]) -> None:
    with pytest.raises(ParameterError, match="spark"):
        app(list(words), result_action="return_value", exit_on_error=False)
