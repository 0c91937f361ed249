"""`treecal judge`: what the library says of stated confidences, from whatever they are written in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.support import refused, run
from treecal.auditing import stated


def rows(labelled: float = 1.0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    found = []
    for k in range(3000):
        sure = [50, 70, 90][k % 3]
        right = bool(rng.random() < {50: 0.5, 70: 0.7, 90: 0.68}[sure])
        judge = right if rng.random() < 0.9 else not right
        known = rng.random() < labelled
        topic = "law" if k % 2 else "code"
        found.append({"sure": sure, "ok": right if known else None, "judge": judge, "topic": topic})
    return found


def write(folder: Path, content: list[dict[str, Any]]) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    return path


def test_each_value_groups_and_advice(tmp_path: Path) -> None:
    content = rows()
    path = write(tmp_path, content)
    done = run("judge", path, "--confidence", "sure", "--correct", "ok", "--by", "topic", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    values = stated([row["sure"] / 100 for row in content], [row["ok"] for row in content])
    assert document["stated"] == [each.to_dict() for each in values]
    assert document["advice"] == "Say 70 % when you mean 90 %."
    assert [group["by"]["topic"] for group in document["groups"]] == ["code", "law"]
    said = run("judge", path, "--confidence", "sure", "--correct", "ok").out
    assert "Say 70 % when you mean 90 %." in said
    assert "Stated confidences" in said


def test_few_labels_and_a_judge(tmp_path: Path) -> None:
    path = write(tmp_path, rows(0.1))
    options = ("--confidence", "sure", "--correct", "ok", "--proxy", "judge")
    document = json.loads(run("judge", path, *options, "--probability", 0.1, "--json").out)
    found = document["whole"]["estimates"]["accuracy"]
    assert found["rows"] == 3000
    assert found["interval"][1] - found["interval"][0] < np.diff(found["labels_alone"]["interval"])[0]
    low, high = document["whole"]["estimates"]["too_sure"]["interval"]
    assert low > 0
    said = " ".join(run("judge", path, *options, "--probability", 0.1).out.split())
    assert f"Over all rows, forecasts are too sure by {low:.3f} to {high:.3f}." in said
    refused(run("judge", path, *options), "there is a proxy, judge, and no probability with which rows were drawn")
    refused(run("judge", path), "--confidence, --correct and --proxy name columns")
    alone = run("judge", path, *options[:4], "--json")
    assert alone.code == 0
    assert "no estimate for all rows" in alone.err


def test_an_audit_says_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, [row | {"sure": row["sure"] / 100, "pi": 0.1} for row in rows(0.1)])
    judged = json.loads(
        run("judge", path, "--confidence", "sure", "--correct", "ok", "--probability", "pi", "--json").out
    )
    assert judged["source"] == str(path)
    options = ("--forecast", "sure", "--outcome", "ok", "--probability", 0.1, "--json")
    audited = json.loads(run("audit", path, *options).out)
    assert audited["source"] == path.name
    assert audited["whole"]["estimates"] == judged["whole"]["estimates"]
    assert "Estimates for all rows" in run("audit", path, *options[:-1], "--proxy", "judge").out
    refused(run("audit", path, *options[:4], "--proxy", "judge"), "no probability with which rows were drawn")


def test_words_and_per_cents(tmp_path: Path) -> None:
    words = {50: "unsure", 70: "70%", 90: "Certain"}
    path = write(tmp_path, [row | {"sure": words[row["sure"]]} for row in rows()])
    asked = ("judge", path, "--confidence", "sure", "--correct", "ok")
    document = json.loads(run(*asked, "--words", "unsure=0.5,certain=0.9", "--json").out)
    assert [each["value"] for each in document["stated"]] == [0.5, 0.7, 0.9]
    refused(run(*asked), "has sure 'unsure'")
    refused(run(*asked, "--words", "unsure"), "--words is 'unsure', expected word=number")


def test_out_of_ten_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, [row | {"sure": row["sure"] // 10} for row in rows()])
    asked = ("judge", path, "--confidence", "sure", "--correct", "ok")
    refused(run(*asked), "out of 10 or in per cents")
    document = json.loads(run(*asked, "--scale", 10, "--json").out)
    assert [each["value"] for each in document["stated"]] == [0.5, 0.7, 0.9]


def test_likelihoods_are_gathered_by_twentieths(tmp_path: Path) -> None:
    """As exports of lm-evaluation-harness have them: hardly two are alike."""
    rng = np.random.default_rng(0)
    sure = rng.random(2000)
    path = write(tmp_path, [{"sure": p, "ok": bool(rng.random() < p**2)} for p in sure.tolist()])
    done = run("judge", path, "--confidence", "sure", "--correct", "ok", "--json")
    assert done.code == 0, done.err
    assert "the means of those near each twentieth" in done.err
    found = json.loads(done.out)["stated"]
    assert len(found) == 21
    assert sum(each["rows"] for each in found) == 2000
    assert found[0]["value"] == pytest.approx(sure[sure < 0.025].mean())
    assert [each["off"] for each in found[8:13]] == [True] * 5


def test_a_report(tmp_path: Path) -> None:
    path = write(tmp_path, rows())
    paper = tmp_path / "report.html"
    assert run("judge", path, "--confidence", "sure", "--correct", "ok", "--report", paper).code == 0
    assert "Say 70 % when you mean 90 %." in paper.read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--confidence", "gone"], "has no column 'gone'; it has"),
        (["--confidence", "sure", "--correct", "topic"], "has topic"),
        (["--confidence", "sure", "--correct", "ok", "--probability", "gone"], "has no column 'gone'"),
        (["--confidence", "sure", "--correct", "ok", "--scale", 50], "scale is 50"),
    ],
)
def test_bad_options(options: list[object], words: str, tmp_path: Path) -> None:
    refused(run("judge", write(tmp_path, rows()), *options), words)
