"""`treecal judge`: what stated confidences were worth, of a judge, an agent or a person."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from treecal.auditing import advice, audit, check_known, gathered, read_answers, read_confidences, shown, stated
from treecal.cli._options import Force, Json, split
from treecal.cli._terminal import Exit, emit, page, say
from treecal.correctors import method_of
from treecal.exceptions import FileError, ParameterError
from treecal.io import listed, new_file, read_records


def judge(
    path: str,
    /,
    *,
    confidence: str = "confidence",
    correct: str = "correct",
    proxy: str | None = None,
    probability: str | None = None,
    by: str | None = None,
    scale: float | None = None,
    words: str | None = None,
    report: Path | None = None,
    force: Force = False,
    json: Json = False,
) -> int:
    """Say what stated confidences were worth: each value exactly, without bins, and what to say in its place.

    The log is JSON lines, CSV or Parquet with a row for each answer: how sure it was, and whether it was right. Exports
    of inspect_ai, lm-evaluation-harness, promptfoo, langfuse and phoenix are known by their keys; columns inside others
    are named by paths, such as scores.judge.metadata.confidence.

        treecal judge log.jsonl --confidence stated --correct ok
        treecal judge log.jsonl --correct human --proxy judge --probability 0.05 --by topic
        treecal judge answers.csv --confidence sure --words "certain=0.99,likely=0.7,unsure=0.4" --report judge.html

    Exit codes: 0 success, 2 invalid input, 130 interrupted.

    Parameters
    ----------
    path
        The log.
    confidence
        Column of stated confidences: numbers from 0 to 1, per cents, or words.
    correct
        Column of whether the answer was right: true or false, 1 or 0, C or I; empty where that is not known.
    proxy
        Column of what a cheaper judge says of every row, in the same words or as a probability.
    probability
        The probability with which a row was drawn to be labelled: a number, or a column. Without it, rows whose outcome
        is known stand for themselves alone.
    by
        Columns to group rows by, separated by commas.
    scale
        The number that stands for certainty: 1, 10 or 100. By default 1, or 100 where confidences exceed 10.
    words
        What words mean, as word=number, separated by commas.
    report
        HTML file for a report with plots; needs the extra `plots`.
    """
    with ExitStack() as stack:
        paper = report and stack.enter_context(new_file(report, force=force))
        rows = read_records(path)
        table = None if words is None else _words(words)
        sure = read_confidences(confidence, _cells(rows, confidence, path), scale=scale, words=table)
        right = read_answers(correct, _cells(rows, correct, path))
        known = ~np.isnan(right)
        groups = split("--by", by)
        log: dict[str, Any] = {"confidence": sure, "correct": right}
        log |= {name: np.array([_text(cell) for cell in _cells(rows, name, path)], object) for name in groups}
        options: dict[str, Any] = {}
        if probability is not None or proxy is not None:
            check_known(probability, proxy)
            options = {"probability": _probability(rows, probability, path), "proxy": None}
            if proxy is not None:
                options["proxy"] = read_answers(proxy, _cells(rows, proxy, path), soft=True)
        few = {name: value for name, value in options.items() if value is not None}
        log |= {name: value for name, value in few.items() if np.ndim(value)}
        asked: dict[str, Any] = {name: name if np.ndim(value) else value for name, value in few.items()}
        if not options:
            log = {name: column[known] for name, column in log.items()}
            log["correct"] = log["correct"].astype(np.int64)
        found = audit(log, forecast="confidence", outcome="correct", classes=[0, 1], by=groups, **asked)
        found = replace(found, source=path)
        said = gathered(sure)
        values = stated(said, right, **options)
        if paper is not None:
            paper.write_text(_reported(found, advice(values)), "utf-8")
    unknown = int((~known).sum())
    if json:
        emit(found.to_dict() | {"stated": [each.to_dict() for each in values], "advice": advice(values)})
    else:
        page().print(shown(found, _option, values))
    if said is not sure:
        say("Too many confidences are stated for a table of values: it has the means of those near each twentieth.")
    if unknown and not options:
        say(
            f"{unknown:,} of {len(rows):,} rows have no {correct}, and it is not known how the others were chosen: "
            "this is about these alone, and no estimate for all rows.\nHint: draw rows to label by tc.sample_labels, "
            "and pass --probability."
        )
    return Exit.FINE


def _cells(rows: list[dict[str, Any]], name: str, path: str) -> list[Any]:
    there = dict.fromkeys(key for row in rows for key in row)
    if name not in there:
        hint = "--confidence, --correct and --proxy name columns; --probability a column, or a number such as 0.05."
        raise FileError(f"{path} has no column {name!r}; it has {listed(list(there))}.", hint=hint)
    return [row.get(name) for row in rows]


def _text(cell: Any) -> str | None:
    return None if cell is None else str(cell)


def _probability(rows: list[dict[str, Any]], given: str | None, path: str) -> Any:
    if given is None:
        return None
    try:
        return float(given)
    except ValueError:
        cells = _cells(rows, given, path)
    try:
        return np.array([np.nan if cell in (None, "") else float(cell) for cell in cells])
    except (TypeError, ValueError):
        raise ParameterError.expected("--probability", given, "a number, or a column of numbers") from None


def _words(text: str) -> dict[str, float]:
    try:
        pairs = [pair.rsplit("=", 1) for pair in split("--words", text)]
        found = {word: float(value) for word, value in pairs}
    except ValueError:
        raise ParameterError.expected("--words", text, "word=number, separated by commas") from None
    if not all(0 <= value <= 1 for value in found.values()):
        raise ParameterError.expected("--words", text, "probabilities, such as likely=0.7")
    return found


def _option(kind: str) -> str:
    return f"treecal recalibrate --method {method_of(kind)}"


def _reported(found: Any, words: str) -> str:
    from treecal import report

    section = report.audited(found, title=Path(found.source).name)
    first, *more = section.entries
    section = replace(section, entries=[replace(first, advice=words), *more])
    details = {"file": found.source, "rows": f"{found.whole.rounds:,}"}
    return report.render([section], title=f"Judgements of {Path(found.source).name}", details=details)
