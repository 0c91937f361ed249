"""The layouts that others export judgements in: a row for each answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treecal.exceptions import FileError
from treecal.io import read_records

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
