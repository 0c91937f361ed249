"""The layouts that others export judgements in: a row for each answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from treecal.exceptions import FileError, ParameterError
from treecal.io import quantile_columns, read_records

INSPECT = {
    "id": 7,
    "epoch": 1,
    "input": "2 + 2?",
    "target": "4",
    "scores": {"judge": {"value": "C", "answer": "4", "metadata": {"confidence": 0.9}}},
    "metadata": {"topic": "maths"},
}
HARNESS = {
    "doc_id": 0,
    "doc": {"query": "q"},
    "target": "1",
    "resps": [[["-2.0", "False"]], [["-1.0", "True"]]],
    "filtered_resps": [["-2.0", "False"], ["-1.0", "True"]],
    "acc": 1.0,
}
PROMPTFOO = {
    "testIdx": 3,
    "promptIdx": 0,
    "success": False,
    "score": 0.2,
    "gradingResult": {"pass": False, "score": 0.2},
    "vars": {"topic": "law"},
}
LANGFUSE = [
    {"id": "1", "trace_id": "a", "name": "confidence", "value": 0.8, "data_type": "NUMERIC", "source": "API"},
    {"id": "2", "trace_id": "a", "name": "correct", "value": 1, "data_type": "BOOLEAN", "source": "ANNOTATION"},
    {"id": "3", "trace_id": "b", "name": "confidence", "value": 0.4, "data_type": "NUMERIC", "source": "API"},
    {"id": "4", "trace_id": "b", "name": "kind", "string_value": "law", "data_type": "CATEGORICAL", "source": "EVAL"},
]
PHOENIX = [
    {"span_id": "s", "name": "correct", "annotator_kind": "LLM", "result": {"label": "correct", "score": 1}},
    {"span_id": "s", "name": "correct", "annotator_kind": "HUMAN", "result": {"label": "incorrect", "score": 0}},
    {"span_id": "t", "name": "correct", "annotator_kind": "LLM", "result": {"label": "incorrect", "score": None}},
]


def read(folder: Path, rows: list[Any]) -> list[dict[str, Any]]:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_records(path)


def test_inspect_ai(tmp_path: Path) -> None:
    wrong = INSPECT | {"scores": {"judge": {"value": "I"}}}
    first, second = read(tmp_path, [INSPECT, wrong])
    assert first["scores.judge.metadata.confidence"] == 0.9
    assert (first["correct"], second["correct"]) == (1, 0)
    assert first["metadata.topic"] == "maths"
    assert read(tmp_path, [{"version": 2, "samples": [INSPECT, wrong]}]) == [first, second]
    partly = read(tmp_path, [INSPECT | {"scores": {"judge": {"value": "P"}}}])[0]
    assert "correct" not in partly


def test_lm_evaluation_harness(tmp_path: Path) -> None:
    (found,) = read(tmp_path, [HARNESS])
    assert found["correct"] == 1.0
    assert found["confidence"] == pytest.approx(1 / (1 + 2.718281828**-1))
    (written,) = read(tmp_path, [HARNESS | {"filtered_resps": ["text"], "acc": 0.0}])
    assert "confidence" not in written


def test_promptfoo(tmp_path: Path) -> None:
    (found,) = read(tmp_path, [PROMPTFOO])
    assert (found["correct"], found["gradingResult.score"], found["vars.topic"]) == (False, 0.2, "law")
    assert read(tmp_path, [{"evalId": "e", "results": {"version": 3, "results": [PROMPTFOO]}}]) == [found]


def test_langfuse(tmp_path: Path) -> None:
    a, b = read(tmp_path, LANGFUSE)
    assert a == {"id": "a", "confidence": 0.8, "confidence.api": 0.8, "correct": 1, "correct.annotation": 1}
    assert (b["id"], b["kind"]) == ("b", "law")
    camel = {"traceId": "a", "observationId": "o", "name": "c", "value": 1, "dataType": "NUMERIC", "source": "API"}
    assert read(tmp_path, [camel])[0]["id"] == "a o"


def test_phoenix(tmp_path: Path) -> None:
    s, t = read(tmp_path, PHOENIX)
    assert (s["correct.llm"], s["correct.human"], t["correct.llm"]) == (1, 0, "incorrect")


def test_anything_else_is_columns_by_path(tmp_path: Path) -> None:
    assert read(tmp_path, [{"a": {"b": 1}, "c": [1, 2]}]) == [{"a.b": 1, "c": [1, 2]}]
    with pytest.raises(FileError, match="not a JSON object"):
        read(tmp_path, [{"a": 1}, [1, 2]])


def test_quantiles_as_nixtla_darts_and_autogluon_name_them() -> None:
    pandas = pytest.importorskip("pandas")
    cv = pandas.DataFrame(
        {
            "unique_id": ["a", "a"],
            "cutoff": [1, 2],
            "y": [5.0, 7.0],
            "ETS": [4.0, 6.0],
            "ETS-lo-90.0": [1.0, 2.0],
            "ETS-hi-90.0": [8.0, 9.0],
            "NHITS-median": [4.5, 6.5],
            "NHITS_ql0.1": [3.0, 4.0],
        }
    )
    found = quantile_columns(cv, model="ETS")
    assert list(found) == ["unique_id", "cutoff", "y", "ETS", "q0.05", "q0.95"]
    assert found["q0.95"].tolist() == [8, 9]
    assert list(quantile_columns(cv, model="NHITS"))[-2:] == ["q0.1", "q0.5"]
    with pytest.raises(ParameterError, match="'ETS', 'NHITS'"):
        quantile_columns(cv)
    assert list(quantile_columns({"load_q0.10": [1.0], "load_q0.90": [3.0]})) == ["q0.1", "q0.9"]
    assert list(quantile_columns({"item_id": ["a"], "mean": [2.0], "0.1": [1.0], "0.9": [3.0]})) == [
        "item_id",
        "mean",
        "q0.1",
        "q0.9",
    ]
    assert list(quantile_columns({"TimeGPT-q-10": [1.0], "TimeGPT-q-90": [3.0]})) == ["q0.1", "q0.9"]
    with pytest.raises(FileError, match="is named as a quantile"):
        quantile_columns({"y": [1.0]})
    report = tc.audit(cv, quantiles=["ETS-lo-90.0", "ETS-hi-90.0"], outcome="y")
    assert report.whole.placed.intervals == {0.9: 1.0}


def test_quantiles_of_sktime() -> None:
    pandas = pytest.importorskip("pandas")
    quantiles = pandas.DataFrame([[1.0, 3.0]], columns=pandas.MultiIndex.from_product([["load"], [0.1, 0.9]]))
    found = quantile_columns(quantiles)
    assert {name: column.tolist() for name, column in found.items()} == {"q0.1": [1], "q0.9": [3]}
    ends = [("load", 0.9, "lower"), ("load", 0.9, "upper")]
    interval = pandas.DataFrame([[1.0, 3.0]], columns=pandas.MultiIndex.from_tuples(ends))
    assert list(quantile_columns(interval)) == ["q0.05", "q0.95"]


def test_quantiles_of_the_hubverse() -> None:
    rows = [
        ("A", "US", "quantile", "0.9", 8.0),
        ("A", "US", "quantile", "0.1", 3.0),
        ("A", "DE", "quantile", "0.1", 4.0),
        ("A", "DE", "median", "NA", 4.0),
    ]
    names = ["model_id", "location", "output_type", "output_type_id", "value"]
    table = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    found = quantile_columns(table)
    assert found["location"].tolist() == ["US", "DE"]
    assert found["q0.1"].tolist() == [3, 4]
    assert str(found["q0.9"].tolist()) == "[8.0, nan]"
    with pytest.raises(FileError, match="there twice"):
        quantile_columns({name: [*column, column[0]] for name, column in table.items()})
    with pytest.raises(FileError, match="output_type"):
        quantile_columns(table | {"output_type": ["sample"] * 4})


class Told:
    """As forecasts of GluonTS are."""

    item_id = "a"

    def quantile(self, level: float) -> Any:
        return np.array([1.0, 2.0]) + level


def test_quantiles_of_gluonts_and_mapie() -> None:
    found = quantile_columns([Told(), Told()], levels=[0.1, 0.9])
    assert found["step"].tolist() == [1, 2, 1, 2]
    assert found["q0.9"].tolist() == [1.9, 2.9] * 2
    intervals = np.array([[[4.0, 3.0], [7.0, 8.0]]])
    found = quantile_columns((np.array([5.0]), intervals), levels=[0.8, 0.9])
    assert {name: column.tolist() for name, column in found.items()} == {
        "q0.05": [3],
        "q0.1": [4],
        "q0.9": [7],
        "q0.95": [8],
    }
    with pytest.raises(ParameterError, match="confidence levels"):
        quantile_columns((np.array([5.0]), intervals), levels=[0.9])
    with pytest.raises(ParameterError, match="is a int"):
        quantile_columns(3)
