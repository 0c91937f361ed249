"""Rows of judgements as others export them: one flat row for each answer, whose columns are paths such as `scores.f1`.

Layouts, and the keys that tell them: samples of inspect_ai (`scores`, `epoch`), samples of lm-evaluation-harness
(`doc_id`, `resps`), results of promptfoo (`testIdx`, `success`), scores of langfuse (`data_type` or `dataType`) and
annotations of phoenix (`annotator_kind`). The last two have a row for each score of an answer: they are put together by
its id.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from treecal.exceptions import FileError
from treecal.io._open import open_source

Record = dict[str, Any]


class _Score(NamedTuple):
    """A score of an answer, by a person or a program."""

    id: str
    name: str
    kind: str
    value: Any


_INSPECT = {"C": 1, "I": 0, "N": 0}
"""Correct, incorrect, no answer: `P`, partly correct, is neither."""


def read_records(source: Any) -> list[Record]:
    """Return the rows of a file or table as flat records, put into columns by the layout that the first row has.

    Examples
    --------
    >>> flat({"scores": {"judge": {"value": "C"}}, "epoch": 1})["scores.judge.value"]
    'C'
    """
    opened = open_source(source)
    rows = [row for whole in opened.objects() for row in _unpacked(whole)]
    if not rows:
        raise FileError(f"there are no rows in {opened.name}.")
    return _as_laid_out(rows)


def flat(row: Record, before: str = "") -> Record:
    """Return a nested object as one of paths."""
    found: Record = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found


def _unpacked(row: Record) -> list[Record]:
    """Return what a whole log in one object holds: inspect_ai's `samples`, promptfoo's `results.results`."""
    results = row["results"].get("results") if _is_object(row, "results") else None
    for inner in (row.get("samples"), results):
        if isinstance(inner, list) and all(isinstance(each, dict) for each in inner):
            return inner
    return [row]


def _is_object(row: Record, name: str) -> bool:
    return isinstance(row.get(name), dict)


def _as_laid_out(rows: list[Record]) -> list[Record]:
    first = rows[0]
    if _is_object(first, "scores") and "epoch" in first:
        return [_inspect(row) for row in rows]
    if {"doc_id", "resps"} <= first.keys():
        return [_harness(row) for row in rows]
    if {"testIdx", "success"} <= first.keys():
        return [flat(row) | {"correct": row.get("success")} for row in rows]
    if "annotator_kind" in first and ("span_id" in first or "trace_id" in first):
        return _pivoted(map(_phoenix, rows))
    if {"dataType", "data_type"} & first.keys() and {"traceId", "trace_id"} & first.keys():
        return _pivoted(map(_langfuse, rows))
    return [flat(row) for row in rows]


def _inspect(row: Record) -> Record:
    """Return a sample of inspect_ai: `correct` is the value of its score, if there is one of two values."""
    found = flat(row)
    for name, score in row["scores"].items():
        value = score.get("value") if isinstance(score, dict) else score
        known = _INSPECT.get(value, value) if isinstance(value, str) else value
        if isinstance(known, int | float):
            found[f"scores.{name}.value"] = known
            found.setdefault("correct", known)
    return found


def _harness(row: Record) -> Record:
    """Return a sample of lm-evaluation-harness: of choices, how likely the likeliest is beside the others.

    Its answer to choices is a log likelihood of each, with whether it was the greedy one.
    """
    found = flat(row)
    for metric in ("acc", "exact_match"):
        if metric in row:
            found.setdefault("correct", row[metric])
    choices = row.get("filtered_resps") or []
    try:
        scores = [float(choice[0]) for choice in choices if isinstance(choice, list) and len(choice) == 2]
    except (TypeError, ValueError):
        return found
    if len(scores) == len(choices) > 1:
        most = max(scores)
        found["confidence"] = 1 / math.fsum(math.exp(score - most) for score in scores)
    return found


def _phoenix(row: Record) -> _Score:
    result = row["result"] if _is_object(row, "result") else row
    score, label = result.get("score"), result.get("label")
    id_ = str(row.get("span_id") or row.get("trace_id"))
    return _Score(id_, str(row.get("name")), str(row["annotator_kind"]), label if score is None else score)


def _langfuse(row: Record) -> _Score:
    value = row.get("value")
    text = row.get("string_value", row.get("stringValue"))
    ids = row.get("trace_id", row.get("traceId")), row.get("observation_id", row.get("observationId"))
    id_ = " ".join(str(each) for each in ids if each)
    return _Score(id_, str(row.get("name")), str(row.get("source", "")), text if value is None else value)


def _pivoted(scores: Iterable[_Score]) -> list[Record]:
    """Return a record for each id: its scores by name, and by name and who gave them, as `correct.human`."""
    found: dict[str, Record] = {}
    for score in scores:
        record = found.setdefault(score.id, {"id": score.id})
        record[score.name] = score.value
        record[f"{score.name}.{score.kind.lower()}"] = score.value
    return list(found.values())
