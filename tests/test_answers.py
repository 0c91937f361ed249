"""Every answer is what it was in 0.1.0: forecasts of trees by their bits, weights that were learned within rounding."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treecal as tc
from treecal._typing import Array

ANSWERS: dict[str, Any] = json.loads((Path(__file__).parent / "data/answers-0.1.0.json").read_text())
TREES: dict[str, dict[str, Any]] = {
    "arity 2": {"arity": 2},
    "arity 3, mixed": {"arity": 3, "mix": 0.1},
    "arity 8": {"arity": 8},
    "depth 5": {"arity": 4, "depth": 5},
}


def outcomes(rounds: int, dim: int) -> Array:
    """Points of the simplex from a generator that no library can change; every second one is a class."""
    state, rows = 1, np.zeros((rounds, dim))
    for t in range(rounds):
        for k in range(dim):
            state = state * 6364136223846793005 % 2**64
            rows[t, k] = 1 + (state >> 40)
        rows[t] = rows[t] == rows[t].max() if t % 2 else rows[t] / rows[t].sum()
    return rows


def make(kind: Any, space: tc.ConvexSet, tree: dict[str, Any]) -> Any:
    return tc.TreeCal(space, **tree) if kind == "tree" else tc.AdaptiveTreeCal(space, rule=kind, **tree)


def points(forecasts: list[Any]) -> str:
    return hashlib.sha256(b"".join(x.points.tobytes() for x in forecasts)).hexdigest()


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("kind", ["tree", "stick", "block"])
def test_answers_of_0_1_0(kind: str, tree: str) -> None:
    space, y = tc.Simplex(5), outcomes(600, 5)
    f, forecasts, ledger = make(kind, space, TREES[tree]), [], tc.Ledger(space)
    for outcome in y:
        forecasts.append(f.predict())
        ledger.record(forecasts[-1], outcome)
        f.update(outcome)
    expected = ANSWERS[f"{kind}, {tree}"]
    assert points(forecasts) == expected["points"]
    assert f.predict().weights.tolist() == pytest.approx(expected["weights"], rel=1e-12)
    assert ledger.error("l1") == pytest.approx(expected["l1"], rel=1e-12)
    run, bank = tc.replay(y, make(kind, space, TREES[tree])), tc.Bank(make(kind, space, TREES[tree]), streams=1)
    bank.update(np.zeros(600, int), y)
    assert all(run.forecast(t) == forecasts[t] for t in range(0, 600, 37))
    assert bank.predict([0])[0] == run.forecast(600) == f.predict()
    assert run.error("l1") == pytest.approx(expected["l1"], rel=1e-12)
