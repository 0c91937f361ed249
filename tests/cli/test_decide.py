"""`treecal decide`: what the library advises, and what it pays."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import treecal as tc
from tests.cli.support import refused, run

COSTS = {"pass": {"fine": 0.0, "fraud": 10.0}, "block": {"fine": 1.0, "fraud": 0.0}}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = [(p, rng.random() < (0.9 if p > 0.5 else 0.25)) for p in rng.choice([0.05, 0.9], 200).tolist()]
    path = tmp_path / "log.csv"
    path.write_text("p,outcome\n" + "".join(f"{p},{'fraud' if y else 'fine'}\n" for p, y in rows))
    (tmp_path / "costs.csv").write_text("action,fraud,fine\npass,10,0\nblock,0,1\n")
    return path


@pytest.mark.parametrize("raw", [True, False])
def test_it_advises_what_the_library_does(log: Path, raw: bool) -> None:
    folder = log.parent
    options = ["--forecast", "p", "--classes", "fine,fraud", "--loss", folder / "costs.csv"] + ["--raw"] * raw
    found = json.loads(run("decide", log, *options, "--output", folder / "advice.csv", "--json").out)
    space = tc.Simplex(classes=["fine", "fraud"])
    d = tc.GuardedCorrector(space, corrector=None if raw else tc.Gated(tc.AutoCorrector(space)), losses=COSTS)
    paid = plain = 0.0
    with (folder / "advice.csv").open(encoding="utf-8") as advice, log.open(encoding="utf-8") as rows:
        for line, row in zip(csv.DictReader(advice), csv.DictReader(rows), strict=True):
            p = float(row["p"])
            x = d.predict([1 - p, p])
            assert line["action"] == x.action  # type: ignore[attr-defined] # it is a DecisionForecast
            assert float(line["weight_pass"]) == x.actions.get("pass", 0.0)  # type: ignore[attr-defined]
            paid += sum(w * COSTS[a][row["outcome"]] for a, w in x.actions.items())  # type: ignore[attr-defined]
            plain += COSTS[line["as_it_is"]][row["outcome"]]
            d.update(row["outcome"])
    assert found["cost"] == pytest.approx({"as_it_is": plain / 200, "advised": paid / 200})
    certificate = d.certificate(rounds=200)
    assert certificate is not None
    assert found["guaranteed"] == certificate.bound
    words = run("decide", log, *options).out
    assert "Guaranteed on every sequence" in words
    assert "always block" in words


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("0,1", "one action"),
        ("0,1; x,1", "a row per action"),
        ("bad.csv", "holds no losses"),
        ("none.csv", "No such file"),
        ("0,1,2; 1,0,0", "expected (actions, 2)"),
    ],
)
def test_losses_that_cannot_be(log: Path, loss: str, words: str) -> None:
    (log.parent / "bad.csv").write_text("action,fine,fraud\npass,0\n")
    given = log.parent / loss if loss.endswith(".csv") else loss
    refused(run("decide", log, "--forecast", "p", "--loss", given), words)
