"""The same files give the same audit on Spark as on one machine: names, folders, groups, bins and torn rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.auditing.test_bins import edges_and_below
from treecal.cli._app import app

KEYS = [None, float("nan"), 0.0, -0.0, 2.5]
MODELS = ["old", 'a "new" one', "007"]


def found(capsys: pytest.CaptureFixture[str], path: Path, by: str, *more: str) -> Any:
    words = ["audit", str(path), "--forecast", "a,b", "--outcome", "y", "--classes", "a,b", "--bins", "100", "--by", by]
    app([*words, "--on-error", "skip", "--json", *more], result_action="return_value")
    return json.loads(capsys.readouterr().out) | {"source": None}


@pytest.mark.heavy
def test_files_are_read_by_the_same_rules(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p = [*edges_and_below(100)[0][:40].tolist(), 0.29, 0.57, 0.58]
    rows = [
        {"a": x, "b": 1 - x, "y": "ab"[i % 2], "p": 0.125, "model": MODELS[i % 3], "g": KEYS[i % 5]}
        for i, x in enumerate(p)
    ]
    folder = tmp_path / "p=0.9" / "model=x"  # what looks like a partition
    folder.mkdir(parents=True)
    for name, chosen in (("log[1]", rows), ("log1", [rows[0]]), ("l*", rows), ("lo", [rows[0]])):
        pq.write_table(pa.Table.from_pylist(chosen), folder / f"{name}.parquet")
        texts = [{key: None if cell != cell else cell for key, cell in row.items()} for row in chosen]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
        with (folder / f"{name}.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(texts)
    for name in ("log[1].parquet", "l*.jsonl", "log[1].csv"):
        by = "g,model" if name.endswith("parquet") else "model"
        here, there = (found(capsys, folder / name, by, *more) for more in ([], ["--engine", "spark"]))
        assert here["whole"]["rounds"] == len(rows)
        assert here == there, name
    with (folder / "log[1].csv").open("a") as file:
        file.write("0.5,0.5,a\n0.5,0.5,a,1,old,1,too many\n0.5f,0.5,a,1,old,1\n")
    here, there = (found(capsys, folder / "log[1].csv", "model", *more) for more in ([], ["--engine", "spark"]))
    assert here["invalid"] == there["invalid"] == 3
    assert (here["whole"], here["groups"]) == (there["whole"], there["groups"])
